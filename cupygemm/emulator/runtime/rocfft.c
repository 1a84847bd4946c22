// librocfft.so.0 of the emulated device. CuPy links to the library but takes no symbol from it:
// its FFTs call hipFFT, which host_libraries/fft.py computes.

int cupygemm_rocfft_is_empty(void) { return 1; }
