"""Products of float32 and float64 by int8 products modulo several integers."""
