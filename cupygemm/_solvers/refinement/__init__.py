"""Systems that are factored in a low precision and refined to that of their operands."""
