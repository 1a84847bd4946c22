/* Poisson numbers of hipRAND's device interface, by the methods that rocRAND documents.
 *
 *     lambda < 64      products of uniform numbers (Knuth)
 *     lambda <= 4000   rejection from a logistic distribution (Atkinson's method PA)
 *     above            a rounded normal number
 *
 * A call takes a varying count of numbers from the generator. */
#pragma once

#include <hiprand/detail/distributions.h>

template <typename State>
HIPRAND_DEVICE unsigned int cupygemm_poisson_small(State *s, double lambda) {
    const double limit = exp(-lambda);
    double product = hiprand_uniform_double(s);
    unsigned int count = 0;
    for (; product > limit; ++count)
        product *= hiprand_uniform_double(s);
    return count;
}

template <typename State>
HIPRAND_DEVICE unsigned int cupygemm_poisson_large(State *s, double lambda) {
    const double slope = 3.14159265358979323846 / sqrt(3.0 * lambda), centre = slope * lambda;
    const double offset = log(0.767 - 3.36 / lambda) - lambda - log(slope);
    for (;;) {
        double u = hiprand_uniform_double(s);
        double x = (centre - log((1.0 - u) / u)) / slope, count = floor(x + 0.5);
        if (count < 0)
            continue;
        double v = hiprand_uniform_double(s), y = centre - slope * x, t = 1.0 + exp(y);
        if (y + log(v / (t * t)) <= offset + count * log(lambda) - lgamma(count + 1.0))
            return (unsigned int)count;
    }
}

template <typename State> HIPRAND_DEVICE unsigned int hiprand_poisson(State *s, double lambda) {
    if (lambda < 64.0)
        return cupygemm_poisson_small(s, lambda);
    if (lambda <= 4000.0)
        return cupygemm_poisson_large(s, lambda);
    return (unsigned int)round(sqrt(lambda) * hiprand_normal_double(s) + lambda);
}
HIPRAND_DEVICE uint4 hiprand_poisson4(hiprandStatePhilox4_32_10 *s, double lambda) {
    uint4 x;
    x.x = hiprand_poisson(s, lambda), x.y = hiprand_poisson(s, lambda);
    x.z = hiprand_poisson(s, lambda), x.w = hiprand_poisson(s, lambda);
    return x;
}
