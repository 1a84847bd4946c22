/* The functions that execute ALU instructions for the run loop. Each executes one instruction of
 * the vector or the scalar ALU in one wave, on operands that units/native/alu.py resolves once.
 * Such an instruction cannot fail. It reads EXEC from the wave's registers and supports the default
 * float mode, with subnormals of f32 kept or flushed. The functions have no state of their own, so
 * threads may call them for different waves concurrently. */
#ifndef CUPYGEMM_ALU_H
#define CUPYGEMM_ALU_H

#include "machine.h"

typedef void alu_function(struct machine *m, const void *operation, int64_t wave);

/* valu_step.c: an operation of the vector ALU, for one wave or for several. */
void valu_lanewise(struct machine *m, const void *operation, int64_t wave);
void valu_waves(struct machine *m, const void *operation, struct waves part);
/* salu.c: the same for the scalar ALU. */
void salu(struct machine *m, const void *operation, int64_t wave);
void salu_waves(struct machine *m, const void *operation, struct waves part);

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
typedef float f32;
typedef double f64;

/* FROM_CODE: the address of the code object plus a constant, in a scalar instruction. */
enum source_file { FROM_VECTOR, FROM_SCALAR, FROM_CONSTANT, FROM_SPECIAL, FROM_CODE };
enum { VCCZ = 251, EXECZ = 252, SCC = 253 };

/* The number of consecutive waves from position `at` on, at most `most`. Their registers are
 * contiguous. */
static inline int64_t consecutive(struct waves part, int64_t at, int64_t most) {
    int64_t waves = 1;
    most = part.count - at < most ? part.count - at : most;
    if (!part.ids)
        return part.step == 1 ? most : 1;
    while (waves < most && part.ids[at + waves] == part.ids[at] + waves)
        waves++;
    return waves;
}

static inline void set_scalar(const struct machine *m, int64_t reg, int64_t wave, u32 value) {
    m->sgpr[reg * m->num_waves + wave] = value;
}

static inline void set_scalar64(const struct machine *m, int64_t reg, int64_t wave, u64 value) {
    set_scalar(m, reg, wave, (u32)value);
    set_scalar(m, reg + 1, wave, (u32)(value >> 32));
}

enum { KEEP_F32_INPUTS = 1 << 4, KEEP_F32_RESULTS = 1 << 5 }; /* MODE: subnormals of f32 stay */

/* A source that is not a register: whether a mask is zero, or SCC. */
static inline u32 special_source(const struct machine *m, int code, int64_t wave) {
    if (code == SCC)
        return m->scc[wave];
    return scalar64(m, code == VCCZ ? VCC : EXEC, wave) == 0;
}

#endif
