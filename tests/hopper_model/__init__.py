"""A model of what the Hopper kernels ask of a GPU, on which their own sources run on the host."""
