"""The command line, ``python -m cupygemm``."""
