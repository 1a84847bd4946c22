// librocfft.so.0 of the emulated device. CuPy's runtime module names the library but takes no
// symbol from it; its FFTs need hipfft, which is absent, so they fail as an ImportError there.

int cupygemm_rocfft_is_empty(void) { return 1; }
