/* hipRAND's device interface, for Philox4x32-10, XORWOW (the default) and MRG32k3a.
 *
 * Integers and uniform numbers are rocRAND's bit for bit; normal numbers may differ from a GPU's in
 * their last bits. Not here: Sobol, MTGP32 and discrete distributions. */
#pragma once

#include <hiprand/detail/distributions.h>
#include <hiprand/detail/engines.h>
#include <hiprand/detail/poisson.h>

typedef hiprandState hiprandState_t;
typedef hiprandStateXORWOW hiprandStateXORWOW_t;
typedef hiprandStatePhilox4_32_10 hiprandStatePhilox4_32_10_t;
typedef hiprandStateMRG32k3a hiprandStateMRG32k3a_t;
