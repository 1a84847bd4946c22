/* The engines of hipRAND's device interface: Philox4x32-10, XORWOW and MRG32k3a.
 *
 * Seeds, subsequences and offsets mean what rocRAND's documentation and headers say. Sources:
 * Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011); Marsaglia, Xorshift RNGs
 * (2003); L'Ecuyer, Good parameters and implementations for combined multiple recursive random
 * number generators (1999). A jump of XORWOW evaluates a polynomial of its step, one of MRG32k3a
 * powers of its two matrices. */
#pragma once

#include <hip/hip_runtime.h>

#include <hiprand/detail/xorwow_jumps.h>

#define HIPRAND_DEVICE static inline __device__

/* The second of two normal numbers, which the next call returns. */
struct cupygemm_spare_normals {
    bool has_float, has_double;
    float of_float;
    double of_double;
};

// -- Philox ---------------------------------------------------------------------------------------

struct hiprandStatePhilox4_32_10 {
    unsigned int counter[4], result[4], key[2], substate;
    cupygemm_spare_normals spare;
};

HIPRAND_DEVICE void cupygemm_philox_rounds(hiprandStatePhilox4_32_10 *s) {
    unsigned int x = s->counter[0], y = s->counter[1], z = s->counter[2], w = s->counter[3];
    unsigned int k0 = s->key[0], k1 = s->key[1];
    for (int round = 0; round < 10; ++round) {
        unsigned long long first = 0xD2511F53ull * x, second = 0xCD9E8D57ull * z;
        x = (unsigned int)(second >> 32) ^ y ^ k0;
        z = (unsigned int)(first >> 32) ^ w ^ k1;
        y = (unsigned int)second;
        w = (unsigned int)first;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    s->result[0] = x, s->result[1] = y, s->result[2] = z, s->result[3] = w;
}

/* Add to the lower or to the upper 64 bits of the counter; the lower ones carry. */
HIPRAND_DEVICE void cupygemm_philox_count(hiprandStatePhilox4_32_10 *s, unsigned long long low,
                                          unsigned long long high) {
    unsigned long long first = s->counter[0] | (unsigned long long)s->counter[1] << 32;
    unsigned long long second = s->counter[2] | (unsigned long long)s->counter[3] << 32;
    first += low;
    second += high + (first < low);
    s->counter[0] = (unsigned int)first, s->counter[1] = (unsigned int)(first >> 32);
    s->counter[2] = (unsigned int)second, s->counter[3] = (unsigned int)(second >> 32);
}

HIPRAND_DEVICE void skipahead(unsigned long long n, hiprandStatePhilox4_32_10 *s) {
    unsigned int place = s->substate + (unsigned int)(n & 3);
    s->substate = place & 3;
    cupygemm_philox_count(s, n / 4 + place / 4, 0);
    cupygemm_philox_rounds(s);
}

HIPRAND_DEVICE void skipahead_subsequence(unsigned long long n, hiprandStatePhilox4_32_10 *s) {
    cupygemm_philox_count(s, 0, n);
    cupygemm_philox_rounds(s);
}

HIPRAND_DEVICE void skipahead_sequence(unsigned long long n, hiprandStatePhilox4_32_10 *s) {
    skipahead_subsequence(n, s);
}

HIPRAND_DEVICE void hiprand_init(unsigned long long seed, unsigned long long subsequence,
                                 unsigned long long offset, hiprandStatePhilox4_32_10 *s) {
    *s = {};
    s->key[0] = (unsigned int)seed, s->key[1] = (unsigned int)(seed >> 32);
    cupygemm_philox_count(s, 0, subsequence);
    skipahead(offset, s);
}

HIPRAND_DEVICE unsigned int hiprand(hiprandStatePhilox4_32_10 *s) {
    // Not result[substate]: an array that is indexed at run time is kept in private memory.
    unsigned int low = s->substate & 1 ? s->result[1] : s->result[0];
    unsigned int high = s->substate & 1 ? s->result[3] : s->result[2];
    unsigned int found = s->substate & 2 ? high : low;
    if (++s->substate == 4) {
        s->substate = 0;
        cupygemm_philox_count(s, 1, 0);
        cupygemm_philox_rounds(s);
    }
    return found;
}

HIPRAND_DEVICE uint4 hiprand4(hiprandStatePhilox4_32_10 *s) {
    uint4 found;
    found.x = hiprand(s), found.y = hiprand(s), found.z = hiprand(s), found.w = hiprand(s);
    return found;
}

// -- XORWOW ---------------------------------------------------------------------------------------

struct hiprandStateXORWOW {
    unsigned int words[5], weyl; // five words of a generator that is linear over bits
    cupygemm_spare_normals spare;
};
struct hiprandState : hiprandStateXORWOW {};

HIPRAND_DEVICE void cupygemm_xorwow_step(unsigned int (&x)[5]) {
    unsigned int t = x[0] ^ (x[0] >> 2);
    unsigned int next = x[4] ^ (x[4] << 4) ^ t ^ (t << 1);
    x[0] = x[1], x[1] = x[2], x[2] = x[3], x[3] = x[4], x[4] = next;
}

/* Jump over n numbers (row 0) or subsequences (row 64). */
HIPRAND_DEVICE void cupygemm_xorwow_jump(hiprandStateXORWOW *s, unsigned long long n, int row) {
    for (; n; n >>= 1, ++row) {
        if (!(n & 1))
            continue;
        unsigned int x[5], moved[5] = {};
        for (int i = 0; i < 5; ++i)
            x[i] = s->words[i];
        for (int bit = 0; bit < 160; ++bit) {
            unsigned int coefficient = cupygemm_xorwow_jumps[row][bit / 32] >> bit % 32 & 1;
            for (int i = 0; i < 5; ++i)
                moved[i] ^= x[i] & (0 - coefficient);
            cupygemm_xorwow_step(x);
        }
        for (int i = 0; i < 5; ++i)
            s->words[i] = moved[i];
    }
}

HIPRAND_DEVICE void skipahead(unsigned long long n, hiprandStateXORWOW *s) {
    cupygemm_xorwow_jump(s, n, 0);
    s->weyl += (unsigned int)n * 362437u;
}

HIPRAND_DEVICE void skipahead_subsequence(unsigned long long n, hiprandStateXORWOW *s) {
    cupygemm_xorwow_jump(s, n, 64); // 2**67 is a multiple of the Weyl sequence's period
}

HIPRAND_DEVICE void skipahead_sequence(unsigned long long n, hiprandStateXORWOW *s) {
    skipahead_subsequence(n, s);
}

HIPRAND_DEVICE void hiprand_init(unsigned long long seed, unsigned long long subsequence,
                                 unsigned long long offset, hiprandStateXORWOW *s) {
    unsigned int low = (unsigned int)seed ^ 0x2C7F967Fu;
    unsigned int high = (unsigned int)(seed >> 32) ^ 0xA03697CBu;
    unsigned int t0 = 1228688033u * low, t1 = 2073658381u * high;
    s->words[0] = 123456789u + t0;
    s->words[1] = 362436069u ^ t0;
    s->words[2] = 521288629u + t1;
    s->words[3] = 88675123u ^ t1;
    s->words[4] = 5783321u + t0;
    s->weyl = 6615241u + t1 + t0;
    s->spare = {};
    skipahead_subsequence(subsequence, s);
    skipahead(offset, s);
}

HIPRAND_DEVICE unsigned int hiprand(hiprandStateXORWOW *s) {
    cupygemm_xorwow_step(s->words);
    return s->words[4] + (s->weyl += 362437u);
}

// -- MRG32k3a -------------------------------------------------------------------------------------

struct hiprandStateMRG32k3a {
    unsigned int first[3], second[3]; // of a recurrence modulo each prime
    cupygemm_spare_normals spare;
};

template <unsigned int prime> struct cupygemm_mrg_matrix {
    unsigned int at[3][3];

    __device__ cupygemm_mrg_matrix squared() const {
        cupygemm_mrg_matrix found = {};
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j)
                for (int k = 0; k < 3; ++k)
                    found.at[i][j] =
                        (found.at[i][j] + (unsigned long long)at[i][k] * at[k][j] % prime) % prime;
        return found;
    }
    __device__ void apply(unsigned int (&x)[3]) const {
        unsigned int moved[3] = {};
        for (int i = 0; i < 3; ++i)
            for (int k = 0; k < 3; ++k)
                moved[i] = (moved[i] + (unsigned long long)at[i][k] * x[k] % prime) % prime;
        for (int i = 0; i < 3; ++i)
            x[i] = moved[i];
    }
};
using cupygemm_mrg_first = cupygemm_mrg_matrix<4294967087u>;
using cupygemm_mrg_second = cupygemm_mrg_matrix<4294944443u>;

HIPRAND_DEVICE void cupygemm_mrg_jump(hiprandStateMRG32k3a *s, unsigned long long n,
                                      cupygemm_mrg_first first, cupygemm_mrg_second second) {
    for (; n; n >>= 1) {
        if (n & 1) {
            first.apply(s->first);
            second.apply(s->second);
        }
        first = first.squared();
        second = second.squared();
    }
}

HIPRAND_DEVICE void skipahead(unsigned long long n, hiprandStateMRG32k3a *s) {
    cupygemm_mrg_jump(s, n, {{{0, 1, 0}, {0, 0, 1}, {4294156359u, 1403580, 0}}},
                      {{{0, 1, 0}, {0, 0, 1}, {4293573854u, 0, 527612}}});
}

/* 2**76 numbers each. */
HIPRAND_DEVICE void skipahead_subsequence(unsigned long long n, hiprandStateMRG32k3a *s) {
    cupygemm_mrg_jump(s, n,
                      {{{82758667u, 1871391091u, 4127413238u},
                        {3672831523u, 69195019u, 1871391091u},
                        {3672091415u, 3528743235u, 69195019u}}},
                      {{{1511326704u, 3759209742u, 1610795712u},
                        {4292754251u, 1511326704u, 3889917532u},
                        {3859662829u, 4292754251u, 3708466080u}}});
}

/* 2**127 numbers each. */
HIPRAND_DEVICE void skipahead_sequence(unsigned long long n, hiprandStateMRG32k3a *s) {
    cupygemm_mrg_jump(s, n,
                      {{{2427906178u, 3580155704u, 949770784u},
                        {226153695u, 1230515664u, 3580155704u},
                        {1988835001u, 986791581u, 1230515664u}}},
                      {{{1464411153u, 277697599u, 1610723613u},
                        {32183930u, 1464411153u, 1022607788u},
                        {2824425944u, 32183930u, 2093834863u}}});
}

/* A seed's product with a word, reduced as rocRAND does: 64 bits overflow. */
HIPRAND_DEVICE unsigned int cupygemm_mrg_seed(unsigned long long seed, unsigned int word,
                                              unsigned int prime, int folds) {
    auto reduced = [=](unsigned long long value) {
        for (int i = 0; i < folds; ++i)
            value = (0ull - prime & 0xFFFFFFFFull) * (value >> 32) + (value & 0xFFFFFFFFull);
        return value >= prime ? value - prime : value;
    };
    unsigned long long high = reduced((word >> 17) * seed) << 17;
    return (unsigned int)reduced(high + reduced((word & 0x1FFFFu) * seed));
}

HIPRAND_DEVICE void hiprand_init(unsigned long long seed, unsigned long long subsequence,
                                 unsigned long long offset, hiprandStateMRG32k3a *s) {
    seed = seed ? seed : 12345;
    unsigned int low = (unsigned int)seed ^ 0x55555555u;
    unsigned int high = (unsigned int)(seed >> 32) ^ 0xAAAAAAAAu;
    for (int i = 0; i < 3; ++i) {
        s->first[i] = cupygemm_mrg_seed(seed, i == 1 ? high : low, 4294967087u, 1);
        s->second[i] = cupygemm_mrg_seed(seed, i == 1 ? low : high, 4294944443u, 2);
    }
    s->spare = {};
    skipahead_subsequence(subsequence, s);
    skipahead(offset, s);
}

/* A number from 1 to the first prime. */
HIPRAND_DEVICE unsigned int cupygemm_mrg_next(hiprandStateMRG32k3a *s) {
    unsigned int p =
        (1403580ull * s->first[1] + 810728ull * (4294967087u - s->first[0])) % 4294967087u;
    unsigned int q =
        (527612ull * s->second[2] + 1370589ull * (4294944443u - s->second[0])) % 4294944443u;
    s->first[0] = s->first[1], s->first[1] = s->first[2], s->first[2] = p;
    s->second[0] = s->second[1], s->second[1] = s->second[2], s->second[2] = q;
    return p - q + (p <= q ? 4294967087u : 0);
}

HIPRAND_DEVICE unsigned int hiprand(hiprandStateMRG32k3a *s) {
    return (unsigned int)((cupygemm_mrg_next(s) - 1) * 1.000000048661607);
}
