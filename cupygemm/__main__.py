"""``python -m cupygemm``."""

from cupygemm._cli import main

main()
