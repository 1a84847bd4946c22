"""Device sources of cupygemm, installed as package data and read by ``cupygemm._source``."""
