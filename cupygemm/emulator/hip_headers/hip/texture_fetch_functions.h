// Textures and surfaces: as in ROCm, device code that accesses one does not compile for CDNA, whose
// compute units have no image instructions. Host code that names these functions compiles.
#pragma once

typedef struct __hip_texture *hipTextureObject_t;
typedef struct __hip_surface *hipSurfaceObject_t;

#if defined(__HIP_DEVICE_COMPILE__) && __HIP_DEVICE_COMPILE__
#define CUPYGEMM_NO_IMAGES                                                                         \
    __attribute__((                                                                                \
        unavailable("CDNA GPUs have no image instructions, and so no textures or surfaces")))
#else
#define CUPYGEMM_NO_IMAGES
#endif

#define CUPYGEMM_FETCH(name)                                                                       \
    template <class T, class... Where>                                                             \
    static __device__ T name(hipTextureObject_t texture, Where... where) CUPYGEMM_NO_IMAGES;
#define CUPYGEMM_FETCHES(name)                                                                     \
    CUPYGEMM_FETCH(name)                                                                           \
    CUPYGEMM_FETCH(name##Lod)                                                                      \
    CUPYGEMM_FETCH(name##Grad)
#define CUPYGEMM_ACCESS(name)                                                                      \
    template <class T, class... Where>                                                             \
    static __device__ void name##read(T *value, hipSurfaceObject_t surface, Where... where)        \
        CUPYGEMM_NO_IMAGES;                                                                        \
    template <class T, class... Where>                                                             \
    static __device__ void name##write(T value, hipSurfaceObject_t surface, Where... where)        \
        CUPYGEMM_NO_IMAGES;

CUPYGEMM_FETCHES(tex1D)
CUPYGEMM_FETCHES(tex1DLayered)
CUPYGEMM_FETCHES(tex2D)
CUPYGEMM_FETCHES(tex2DLayered)
CUPYGEMM_FETCHES(tex3D)
CUPYGEMM_FETCHES(texCubemap)
CUPYGEMM_FETCHES(texCubemapLayered)
CUPYGEMM_FETCH(tex1Dfetch)
CUPYGEMM_FETCH(tex2Dgather)
CUPYGEMM_ACCESS(surf1D)
CUPYGEMM_ACCESS(surf1DLayered)
CUPYGEMM_ACCESS(surf2D)
CUPYGEMM_ACCESS(surf2DLayered)
CUPYGEMM_ACCESS(surf3D)
CUPYGEMM_ACCESS(surfCubemap)
CUPYGEMM_ACCESS(surfCubemapLayered)
#undef CUPYGEMM_ACCESS
#undef CUPYGEMM_FETCHES
#undef CUPYGEMM_FETCH
#undef CUPYGEMM_NO_IMAGES
