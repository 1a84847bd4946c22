"""The waves in flight: their registers, how they start, and how reports describe them."""
