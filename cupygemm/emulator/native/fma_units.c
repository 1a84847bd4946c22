/* a*b + c rounded once to a multiple of a power of two, in integers: where a division ends in a
 * subnormal number, its last step must not round twice. */
#include "valu_functions.h"

typedef unsigned __int128 u128;

enum { MANTISSA = 52, ROOM = 20 };

/* A finite |x| as mantissa * 2^exponent, whose mantissa has 53 bits, or is 0. */
static uint64_t split(double x, int *exponent) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t mantissa = bits << 12 >> 12;
    int biased = (int)(bits >> MANTISSA & 0x7FF);
    mantissa |= biased ? 1ull << MANTISSA : 0;
    int shift = mantissa ? __builtin_clzll(mantissa) - 11 : 0;
    *exponent = (biased ? biased : 1) - 1075 - shift;
    return mantissa << shift;
}

/* x / 2^shift; the lowest bit also stands for all bits that are shifted out. */
static u128 shift_right(u128 x, int shift) {
    if (shift <= 0)
        return x << -shift;
    if (shift > 127)
        return x != 0;
    return x >> shift | ((x & (((u128)1 << shift) - 1)) != 0);
}

/* |a*b + c| / 2^unit, rounded to the nearest integer, ties to even, which must fit in 64 bits. The
 * arguments are finite. */
uint64_t fma_in_units(double a, double b, double c, int unit) {
    int of_a, of_b, of_c;
    u128 product = (u128)split(a, &of_a) * split(b, &of_b), addend = split(c, &of_c);
    int of_product = of_a + of_b, exponent = of_product - ROOM;
    if (!product || (addend && of_c - of_product > 50)) { /* c has more than the product's bits */
        exponent = of_c - 70;
        product = shift_right(product, exponent - of_product);
        addend <<= 70;
    } else {
        product <<= ROOM;
        addend = addend ? shift_right(addend, exponent - of_c) : 0;
    }
    int opposite = (signbit(a) ^ signbit(b) ^ signbit(c)) != 0;
    u128 more = product > addend ? product : addend, less = product > addend ? addend : product;
    u128 sum = opposite ? more - less : more + less;
    u128 quarters = shift_right(sum, unit - 2 - exponent);
    uint64_t result = (uint64_t)(quarters >> 2), rest = (uint64_t)quarters & 3;
    return result + (rest > 2 || (rest == 2 && result & 1));
}
