"""The epilogue of a product: its options, its formula, and the arrays that it reads."""
