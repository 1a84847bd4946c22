// The C++ headers that each HIP program has, as clang's wrapper of HIP and libstdc++ bring them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// hiprtc's own namespace for such things.
namespace __hip_internal {
using namespace std;
}
