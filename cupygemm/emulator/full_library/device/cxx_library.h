// The C++ headers in each HIP program, as included by clang's HIP wrapper and libstdc++.
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

// hiprtc's own namespace for such names.
namespace __hip_internal {
using namespace std;
}
