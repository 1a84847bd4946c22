"""Products of arrays whose chunks lie on several devices or machines."""
