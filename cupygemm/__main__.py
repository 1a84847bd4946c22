"""``python -m cupygemm``."""

from cupygemm._commands.cli import main

main()
