"""Products of arrays whose chunks are spread over several devices or machines."""
