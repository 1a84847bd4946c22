// The math functions of HIP, in double and single precision.
//
// There is no device library underneath: clang's builtins do what the hardware or the compiler
// expands (square root, rounding, fmod, and the exponential and logarithm in single precision), and
// the rest is written here, in double precision. A single-precision function that is not a builtin
// is the double one, rounded. Errors are within a few units in the last place.
#pragma once

#include <device/math_basic.h>

#include <device/math_exponential.h>
#include <device/math_trigonometric.h>

#include <device/math_bessel.h>
#include <device/math_hyperbolic.h>
#include <device/math_special.h>

#include <device/math_overloads.h>
