// The one header of Thrust that CuPy's complex numbers include: the bounds of its namespace.
#pragma once

#define THRUST_NAMESPACE_BEGIN namespace thrust {
#define THRUST_NAMESPACE_END }
#define THRUST_NS_QUALIFIER ::thrust
