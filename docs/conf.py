"""Sphinx configuration. `make docs` builds with -W: a warning is an error."""

from cupygemm import __version__

project = "cupygemm"
author = "The cupygemm developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
]
exclude_patterns = ["_build"]
default_role = "py:obj"
highlight_language = "python"

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc sections say it in words
numpydoc_show_class_members = False
# Everything in the reference is public, so its docstrings have to be complete.
numpydoc_validation_checks = {
    *("all", "ES01", "EX01", "GL01", "GL02", "GL08", "PR04", "PR07", "RT02", "RT03", "SA01", "YD01")
}
# Records document their fields as attributes.
numpydoc_validation_exclude = {r"\.[A-Z]\w*$"}

html_theme = "furo"
html_title = f"cupygemm {version}"
html_show_sourcelink = False
