"""AMD CDNA GPUs: HIP kernels compiled for gfx targets; also run on the emulated device."""
