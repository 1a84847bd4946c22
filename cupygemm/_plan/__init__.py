"""Plans: from a request to a call that is ready to run, and the table that keeps them."""
