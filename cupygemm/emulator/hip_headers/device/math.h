// The math functions of HIP, in double and single precision.
//
// There is no device library underneath. clang's builtins serve the functions that the hardware has
// or the compiler expands (square root, rounding, fmod, and the exponential and logarithm in single
// precision). The others are implemented here in double precision; in single precision they round
// the double result. Errors are within a few units in the last place.
#pragma once

#include <device/math_basic.h>

#include <device/math_exponential.h>
#include <device/math_trigonometric.h>

#include <device/math_bessel.h>
#include <device/math_hyperbolic.h>
#include <device/math_special.h>

#include <device/math_overloads.h>

// HIP's runtime header includes these functions of the C header.
#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif
#ifndef NAN
#define NAN __builtin_nanf("")
#endif
