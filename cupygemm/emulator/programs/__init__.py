"""A kernel's code in the forms that the run loop executes, in C and in Python."""
