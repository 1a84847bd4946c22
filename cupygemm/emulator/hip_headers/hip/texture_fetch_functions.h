// Textures: as in ROCm, device code that fetches from one does not compile for CDNA, whose compute
// units have no image instructions. Host code that names these functions compiles.
#pragma once

typedef struct __hip_texture *hipTextureObject_t;

#if defined(__HIP_DEVICE_COMPILE__) && __HIP_DEVICE_COMPILE__
#define CUPYGEMM_NO_IMAGES                                                                         \
    __attribute__((unavailable("CDNA GPUs have no image instructions, and so no textures")))
#else
#define CUPYGEMM_NO_IMAGES
#endif

#define CUPYGEMM_FETCH(name)                                                                       \
    template <class T, class... Where>                                                             \
    static __device__ T name(hipTextureObject_t texture, Where... where) CUPYGEMM_NO_IMAGES;

CUPYGEMM_FETCH(tex1D)
CUPYGEMM_FETCH(tex2D)
CUPYGEMM_FETCH(tex3D)
#undef CUPYGEMM_FETCH
#undef CUPYGEMM_NO_IMAGES
