"""Device sources of cupygemm, installed as package data."""
