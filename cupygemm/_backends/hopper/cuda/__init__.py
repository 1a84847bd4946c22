"""What CuPy does not bind of CUDA: driver functions, NVRTC, launch attributes, tensor maps."""
