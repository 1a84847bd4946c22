// librocfft.so.0 of the emulated device. CuPy links to the library but uses no symbol of it: its
// FFTs call hipFFT, which host_libraries/fft.py implements.

int cupygemm_rocfft_is_empty(void) { return 1; }
