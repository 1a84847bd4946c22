/* Move data between the lanes of register rows and memory, and the arithmetic of atomics.
 *
 * `pointer[lane]` is the location of the lane's data; `count[lane]` is the number of its dwords
 * within a buffer's bounds (the rest load 0 and are not stored), or NULL when all are. */
#ifndef CUPYGEMM_LANES_H
#define CUPYGEMM_LANES_H

#include "machine.h"

/* -- dwords of four lanes ---------------------------------------------------------------------- */

typedef uint32_t quad __attribute__((vector_size(16)));

static inline quad low_pairs(quad a, quad b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
static inline quad high_pairs(quad a, quad b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
static inline quad first_halves(quad a, quad b) {
    return __builtin_shufflevector(a, b, 0, 1, 4, 5);
}
static inline quad second_halves(quad a, quad b) {
    return __builtin_shufflevector(a, b, 2, 3, 6, 7);
}

/* Transpose the dwords of four lanes into four lanes of each dword, or back. */
static inline void transpose_quads(quad *q) {
    quad low = low_pairs(q[0], q[1]), high = high_pairs(q[0], q[1]);
    quad next_low = low_pairs(q[2], q[3]), next_high = high_pairs(q[2], q[3]);
    q[0] = first_halves(low, next_low);
    q[1] = second_halves(low, next_low);
    q[2] = first_halves(high, next_high);
    q[3] = second_halves(high, next_high);
}

static inline quad quad_at(const void *from) {
    quad q;
    memcpy(&q, from, sizeof q);
    return q;
}

static inline void load_quads(uint32_t *row, size_t pitch, uint8_t *const *pointer) {
    for (int lane = 0; lane < LANES; lane += 4) {
        quad q[4] = {quad_at(pointer[lane]), quad_at(pointer[lane + 1]), quad_at(pointer[lane + 2]),
                     quad_at(pointer[lane + 3])};
        transpose_quads(q);
        for (size_t d = 0; d < 4; d++)
            memcpy(row + d * pitch + lane, &q[d], sizeof *q);
    }
}

/* Returns which bits change. */
static inline uint32_t store_quads(const uint32_t *row, size_t pitch, uint8_t *const *pointer) {
    quad changed = {0};
    for (int lane = 0; lane < LANES; lane += 4) {
        quad q[4];
        for (size_t d = 0; d < 4; d++)
            q[d] = quad_at(row + d * pitch + lane);
        transpose_quads(q);
        for (int i = 0; i < 4; i++) { /* one after another: they may overlap */
            changed |= quad_at(pointer[lane + i]) ^ q[i];
            memcpy(pointer[lane + i], &q[i], sizeof *q);
        }
    }
    return changed[0] | changed[1] | changed[2] | changed[3];
}

/* -- loads ------------------------------------------------------------------------------------- */

static inline void load_dwords(uint32_t *row, size_t pitch, uint64_t exec, uint8_t *const *pointer,
                               const uint8_t *count, int dwords) {
    if (exec == ~0ull && !count && dwords == 4) {
        load_quads(row, pitch, pointer);
        return;
    }
    if (exec == ~0ull && !count) {
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t data[4];
            memcpy(data, pointer[lane], 4 * (size_t)dwords);
            for (int d = 0; d < dwords; d++)
                row[(size_t)d * pitch + (size_t)lane] = data[d];
        }
        return;
    }
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        uint32_t data[4] = {0, 0, 0, 0};
        memcpy(data, pointer[lane], 4 * (size_t)(count ? count[lane] : dwords));
        for (int d = 0; d < dwords; d++)
            row[(size_t)d * pitch + (size_t)lane] = data[d];
    }
}

/* Read one element narrower than a dword. The D16 forms write one half of a register and clear the
 * other, as these targets do with SRAM-ECC, which their boards have (LLVM's
 * GCNSubtarget::d16PreservesUnusedBits; Tensile combines two such loads by v_or_b32). */
static inline uint32_t load_narrow(int format, const uint8_t *pointer, bool valid) {
    uint32_t value = 0;
    bool wide = format == U16 || format == S16 || format == U16_LOW || format == U16_HIGH;
    if (valid)
        memcpy(&value, pointer, wide ? 2 : 1);
    switch (format) {
    case S8: return (uint32_t)(int8_t)value;
    case S16: return (uint32_t)(int16_t)value;
    case S8_LOW: value = (uint16_t)(int8_t)value; /* fall through */
    case U8_LOW:
    case U16_LOW: return value;
    case S8_HIGH: value = (uint16_t)(int8_t)value; /* fall through */
    case U8_HIGH:
    case U16_HIGH: return value << 16;
    default: return value;
    }
}

static inline void load_narrow_lanes(int format, uint32_t *row, uint64_t exec,
                                     uint8_t *const *pointer, const uint8_t *count) {
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        row[lane] = load_narrow(format, pointer[lane], !count || count[lane]);
    }
}

/* Each case is its own loop, compiled for its width and format. */
static inline void load_lanes(const struct operation *op, uint32_t *row, size_t pitch,
                              uint64_t exec, uint8_t *const *pointer, const uint8_t *count) {
    switch (op->format) {
    case U8: load_narrow_lanes(U8, row, exec, pointer, count); return;
    case S8: load_narrow_lanes(S8, row, exec, pointer, count); return;
    case U16: load_narrow_lanes(U16, row, exec, pointer, count); return;
    case S16: load_narrow_lanes(S16, row, exec, pointer, count); return;
    case DWORDS: break;
    default: load_narrow_lanes(op->format, row, exec, pointer, count); return;
    }
    switch (op->dwords) {
    case 1: load_dwords(row, pitch, exec, pointer, count, 1); return;
    case 2: load_dwords(row, pitch, exec, pointer, count, 2); return;
    case 3: load_dwords(row, pitch, exec, pointer, count, 3); return;
    default: load_dwords(row, pitch, exec, pointer, count, 4); return;
    }
}

/* -- stores ------------------------------------------------------------------------------------ */

/* Each width is its own loop. Returns which bits change. */
static inline uint32_t copy_dwords(const uint32_t *row, size_t pitch, uint64_t exec,
                                   uint8_t *const *pointer, int dwords) {
    uint32_t changed = 0;
    if (exec == ~0ull && dwords == 4)
        return store_quads(row, pitch, pointer);
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        uint32_t data[4], before[4];
        memcpy(before, pointer[lane], 4 * (size_t)dwords);
        for (int d = 0; d < dwords; d++) {
            data[d] = row[(size_t)d * pitch + (size_t)lane];
            changed |= before[d] ^ data[d];
        }
        memcpy(pointer[lane], data, 4 * (size_t)dwords);
    }
    return changed;
}

/* Return whether a byte changes. */
static inline bool copy_lanes(const struct operation *op, const uint32_t *row, size_t pitch,
                              uint64_t exec, uint8_t *const *pointer, const uint8_t *count) {
    if (op->format == DWORDS && !count) {
        switch (op->dwords) {
        case 1: return copy_dwords(row, pitch, exec, pointer, 1) != 0;
        case 2: return copy_dwords(row, pitch, exec, pointer, 2) != 0;
        case 3: return copy_dwords(row, pitch, exec, pointer, 3) != 0;
        case 4: return copy_dwords(row, pitch, exec, pointer, 4) != 0;
        default: break;
        }
    }
    int shift = op->format == U8_HIGH || op->format == U16_HIGH ? 16 : 0;
    uint32_t changed = 0;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        int dwords = count ? count[lane] : op->dwords;
        if (op->format == DWORDS) {
            for (int d = 0; d < dwords; d++) {
                uint32_t before;
                memcpy(&before, pointer[lane] + 4 * d, 4);
                changed |= before ^ row[(size_t)d * pitch + lane];
                memcpy(pointer[lane] + 4 * d, row + (size_t)d * pitch + lane, 4);
            }
        } else if (dwords) {
            uint32_t value = row[lane] >> shift;
            changed |= (uint32_t)memcmp(pointer[lane], &value, (size_t)op->bytes);
            memcpy(pointer[lane], &value, (size_t)op->bytes);
        }
    }
    return changed != 0;
}

static inline void store_lanes(const struct operation *op, const uint32_t *row, size_t pitch,
                               uint64_t exec, uint8_t *const *pointer, const uint8_t *count) {
    memory_changes += copy_lanes(op, row, pitch, exec, pointer, count);
}

/* -- atomics ----------------------------------------------------------------------------------- */

static inline float as_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline double as_f64(uint64_t bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static inline uint64_t f64_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

/* The sum of two halves. A float has enough bits that rounding twice changes nothing. */
static inline uint32_t add_f16(uint32_t a, uint32_t b) {
    uint16_t left = (uint16_t)a, right = (uint16_t)b, bits;
    _Float16 x, y;
    memcpy(&x, &left, 2);
    memcpy(&y, &right, 2);
    _Float16 sum = (_Float16)((float)x + (float)y);
    memcpy(&bits, &sum, 2);
    return bits;
}

static inline uint32_t add_bf16(uint32_t a, uint32_t b) {
    float sum = as_f32(a << 16) + as_f32(b << 16);
    uint32_t bits = f32_bits(sum);
    if (sum != sum)
        return bits >> 16 | 0x40; /* a quiet NaN */
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

/* Return the new value; `data` and `data2` are the instruction's operands in the order of the ISA
 * guide's pseudocode (for a compare and swap, the new value and what to compare with). */
static inline uint64_t atomic_result(int atomic, int bytes, uint64_t old, uint64_t data,
                                     uint64_t data2) {
    bool wide = bytes == 8;
    int64_t so = wide ? (int64_t)old : (int32_t)old, sd = wide ? (int64_t)data : (int32_t)data;
    switch (atomic) {
    case SWAP: return data;
    case CMPSWAP: return old == data2 ? data : old;
    case ADD: return old + data;
    case SUB: return old - data;
    case RSUB: return data - old;
    case SMIN: return sd < so ? data : old;
    case UMIN: return data < old ? data : old;
    case SMAX: return sd >= so ? data : old;
    case UMAX: return data >= old ? data : old;
    case AND: return old & data;
    case OR: return old | data;
    case XOR: return old ^ data;
    case INC: return old >= data ? 0 : old + 1;
    case DEC: return old == 0 || old > data ? data : old - 1;
    case MSKOR: return (old & ~data) | data2;
    case WRAP: return old >= data ? old - data : old + data2;
    case PK_ADD_F16:
        return add_f16((uint32_t)old, (uint32_t)data) |
               add_f16((uint32_t)old >> 16, (uint32_t)data >> 16) << 16;
    case PK_ADD_BF16:
        return add_bf16((uint32_t)old & 0xFFFF, (uint32_t)data & 0xFFFF) |
               add_bf16((uint32_t)old >> 16, (uint32_t)data >> 16) << 16;
    case CONDXCHG: {
        uint64_t low = data >> 31 & 1 ? data & 0x7FFFFFFF : old & 0xFFFFFFFF;
        uint64_t high = data >> 63 ? data >> 32 & 0x7FFFFFFF : old >> 32;
        return high << 32 | low;
    }
    default: break;
    }
    if (wide) {
        double o = as_f64(old), d = as_f64(data);
        switch (atomic) {
        case FADD: return f64_bits(o + d);
        case FMIN: return d < o ? data : old;
        case FMAX: return d > o ? data : old;
        default: return o == as_f64(data2) ? data : old;
        }
    }
    float o = as_f32((uint32_t)old), d = as_f32((uint32_t)data);
    switch (atomic) {
    case FADD: return f32_bits(o + d);
    case FMIN: return d < o ? data : old;
    case FMAX: return d > o ? data : old;
    default: return o == as_f32((uint32_t)data2) ? data : old;
    }
}

static inline uint64_t row_value(const uint32_t *row, size_t pitch, int lane, int bytes) {
    return bytes == 8 ? row[lane] | (uint64_t)row[pitch + (size_t)lane] << 32 : row[lane];
}

/* Execute an atomic, lane 0 first; `result` is NULL when nothing is returned. */
static inline void atomic_lanes(const struct operation *op, const uint32_t *data,
                                const uint32_t *data2, uint32_t *result, size_t pitch,
                                uint64_t exec, uint8_t *const *pointer, const uint8_t *count) {
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        uint64_t old = 0;
        if (!count || count[lane]) {
            uint64_t operand = row_value(data, pitch, lane, op->bytes);
            uint64_t operand2 = data2 ? row_value(data2, pitch, lane, op->bytes) : 0;
            memcpy(&old, pointer[lane], (size_t)op->bytes);
            uint64_t value = atomic_result(op->atomic, op->bytes, old, operand, operand2);
            memory_changes += memcmp(pointer[lane], &value, (size_t)op->bytes) != 0;
            memcpy(pointer[lane], &value, (size_t)op->bytes);
        }
        if (result) {
            result[lane] = (uint32_t)old;
            if (op->bytes == 8)
                result[pitch + (size_t)lane] = (uint32_t)(old >> 32);
        }
    }
}

#endif
