/* rocRAND's device interface, by hipRAND's functions: their states and numbers are the same. */
#pragma once

#include <hiprand/hiprand_kernel.h>

typedef hiprandStatePhilox4_32_10 rocrand_state_philox4x32_10;
typedef hiprandStateXORWOW rocrand_state_xorwow;
typedef hiprandStateMRG32k3a rocrand_state_mrg32k3a;

#define CUPYGEMM_ROCRAND(name)                                                                     \
    template <typename... Arguments> HIPRAND_DEVICE auto roc##name(Arguments... arguments) {       \
        return hip##name(arguments...);                                                            \
    }
CUPYGEMM_ROCRAND(rand_init)
CUPYGEMM_ROCRAND(rand)
CUPYGEMM_ROCRAND(rand4)
CUPYGEMM_ROCRAND(rand_uniform)
CUPYGEMM_ROCRAND(rand_uniform4)
CUPYGEMM_ROCRAND(rand_uniform_double)
CUPYGEMM_ROCRAND(rand_normal)
CUPYGEMM_ROCRAND(rand_normal2)
CUPYGEMM_ROCRAND(rand_normal4)
CUPYGEMM_ROCRAND(rand_normal_double)
CUPYGEMM_ROCRAND(rand_log_normal)
CUPYGEMM_ROCRAND(rand_log_normal_double)
CUPYGEMM_ROCRAND(rand_poisson)
CUPYGEMM_ROCRAND(rand_poisson4)
#undef CUPYGEMM_ROCRAND
