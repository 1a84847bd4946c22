"""A model of a Hopper GPU that runs the sources of the Hopper kernels on the host."""
