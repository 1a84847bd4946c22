"""Reference results and error bounds, which `cupygemm.testing` offers to users."""
