/* Operations of the scalar ALU, one line for each: the types of its sources and statements of C
 * that compute the result r and, if the instruction writes it, SCC.
 *
 *     SCALAR2(s_add_u32, u32, u32, r = a + b, scc = a + b < a)
 *
 * defines sop_s_add_u32, which units/native/alu.py finds by its name. The type of the result is
 * u64; its low half is what a 32-bit destination receives. A comparison computes SCC alone. */
#ifndef CUPYGEMM_SALU_H
#define CUPYGEMM_SALU_H

#include "alu.h"

struct salu_source {
    int32_t file, reg; /* enum source_file; the register, or the code of a special source */
    int32_t wide;
    int32_t unused;
    uint64_t constant;
};

enum { SCALAR_BLOCK = 16 }; /* waves that execute together, at most */

/* The operands and SCC have an element for each wave. */
typedef void scalar_function(uint64_t *restrict result, const uint64_t *restrict a,
                             const uint64_t *restrict b, const uint64_t *restrict old,
                             uint8_t *restrict scc, int waves);

/* The use of the result: the destination receives it; or EXEC receives it, and the destination
 * receives the old or the new EXEC. */
enum salu_result { TO_DESTINATION, SAVES_EXEC, WRITES_EXEC };

struct salu_operation {
    scalar_function *function;
    struct salu_source sources[2];
    int32_t result, wide; /* the register, -1 for none */
    int32_t kind;         /* enum salu_result */
    int32_t unused;
};

#define UNUSED_SCALAR __attribute__((unused))
#define SCALAR2(name, A, B, ...)                                                                   \
    void sop_##name(uint64_t *restrict result, const uint64_t *restrict first UNUSED_SCALAR,       \
                    const uint64_t *restrict second UNUSED_SCALAR,                                 \
                    const uint64_t *restrict before UNUSED_SCALAR, uint8_t *restrict flag,         \
                    int waves) {                                                                   \
        for (int at = 0; at < waves; ++at) {                                                       \
            A a UNUSED_SCALAR = (A)first[at];                                                      \
            B b UNUSED_SCALAR = (B)second[at];                                                     \
            u64 r = 0, old UNUSED_SCALAR = before[at];                                             \
            u8 scc = flag[at];                                                                     \
            __VA_ARGS__;                                                                           \
            flag[at] = scc;                                                                        \
            result[at] = r;                                                                        \
        }                                                                                          \
    }
#define SCALAR1(name, A, ...) SCALAR2(name, A, u64, __VA_ARGS__)

#endif
