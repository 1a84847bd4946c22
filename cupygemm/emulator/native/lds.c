/* DS instructions: LDS reads, writes and atomics, transposing reads (gfx950), and the lane
 * exchanges that go through the LDS hardware without touching its memory.
 *
 *   operands ─► LDS address of each lane ─► bounds ─► races, uninitialised bytes ─► data
 *
 * Rules: AMD's "CDNA3" and "CDNA4 Instruction Set Architecture", chapter 11 (data share) and the
 * pseudocode of the DS instructions. LDS runs in unaligned mode (LLVM, "unaligned-access-mode"),
 * so only atomics and transposing reads must be aligned. */
#include "lanes.h"
#include "shadow.h"

/* -- pointers ---------------------------------------------------------------------------------- */

static int check_alignment(struct machine *m, uint64_t exec, const uint32_t *address, int alignment,
                           int bytes, int code) {
    uint32_t odd = 0;
    for (int lane = 0; lane < LANES; lane++)
        odd |= exec >> lane & 1 ? address[lane] : 0;
    if (!(odd & (uint32_t)(alignment - 1)))
        return OK;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        if (address[lane] & (uint32_t)(alignment - 1))
            return raise(m, code, lane, address[lane], bytes, code == ATOMIC_MISALIGNED);
    }
    return OK;
}

static void point(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                  uint8_t **pointer) {
    for (int lane = 0; lane < LANES; lane++)
        pointer[lane] = v->bytes + (exec >> lane & 1 ? address[lane] : 0);
}

/* -- reads, writes and atomics ----------------------------------------------------------------- */

/* The lanes' accesses in the shadow memory. Aligned ones of 4, 8 and 16 bytes with a record for
 * each 4 are nearly all LDS traffic: their loops know how many records there are, test them
 * together, and leave those of a lane that is not plainly right to the careful way. The loops
 * keep copies that the stores to the records cannot change, as far as the compiler knows. */
static inline int read_lanes(const struct lds_view *view, uint64_t exec, const uint32_t *address,
                             int n) {
    const struct lds_view v = *view;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        struct record *r = v.records + (address[lane] >> 2);
        bool good = true;
        for (int i = 0; i < n; i++)
            good &= (r[i].write & WRITTEN) && ordered(&v, r[i].write);
        if (__builtin_expect(!good, 0)) {
            int code = shadow_read(view, lane, address[lane], 4 * n);
            if (code)
                return code;
            continue;
        }
        for (int i = 0; i < n; i++)
            r[i].read = read_word(&v, r[i].read);
    }
    return OK;
}

static int shadow_reads(const struct lds_view *v, const struct operation *op, uint64_t exec,
                        const uint32_t *address) {
    if (!v->m->shadow)
        return OK;
    if (v->m->shadow_shift == 2) {
        switch (op->bytes) {
        case 4: return read_lanes(v, exec, address, 1);
        case 8: return read_lanes(v, exec, address, 2);
        case 16: return read_lanes(v, exec, address, 4);
        default: break;
        }
    }
    int code = OK;
    for (uint64_t left = exec; left && !code; left &= left - 1)
        code = shadow_read(v, first_lane(left), address[first_lane(left)], op->bytes);
    return code;
}

/* Returns the lanes that are left to the careful way. */
static inline uint64_t write_lanes(const struct lds_view *view, uint64_t exec,
                                   const uint32_t *address, int n) {
    const struct lds_view v = *view;
    uint64_t careful = 0;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        struct record *r = v.records + (address[lane] >> 2);
        bool good = true;
        for (int i = 0; i < n; i++)
            good &= plainly_writable(&v, r + i);
        if (__builtin_expect(!good, 0)) {
            careful |= 1ull << lane;
            continue;
        }
        for (int i = 0; i < n; i++)
            r[i] = (struct record){v.new_write, 0};
    }
    return careful;
}

static int shadow_writes(const struct lds_view *v, const struct operation *op, uint64_t exec,
                         const uint32_t *address, const uint32_t *row, size_t pitch) {
    uint64_t careful = v->m->shadow ? exec : 0;
    if (careful && v->m->shadow_shift == 2) {
        switch (op->bytes) {
        case 4: careful = write_lanes(v, exec, address, 1); break;
        case 8: careful = write_lanes(v, exec, address, 2); break;
        case 16: careful = write_lanes(v, exec, address, 4); break;
        default: break;
        }
    }
    int code = OK;
    for (uint64_t left = careful; left && !code; left &= left - 1) {
        int lane = first_lane(left);
        uint8_t data[16], *pointer[LANES];
        pointer[lane] = data;
        store_lanes(op, row, pitch, 1ull << lane, pointer, NULL);
        code = shadow_write(v, lane, address[lane], op->bytes, data);
    }
    return code;
}

static int shadow_atomics(const struct lds_view *v, const struct operation *op, uint64_t exec,
                          const uint32_t *address) {
    int code = OK;
    for (uint64_t left = exec; left && !code; left &= left - 1)
        code = shadow_atomic(v, first_lane(left), address[first_lane(left)], op->bytes);
    return code;
}

/* One of the two accesses of a read2, write2 or wrxchg2, or the only one. */
static int access_lds(struct machine *m, const struct operation *op, int64_t wave,
                      struct lds_view *v, uint64_t exec, const uint32_t *address, int64_t data,
                      int64_t result) {
    size_t pitch = (size_t)m->num_waves * LANES;
    uint8_t *pointer[LANES];
    int code;
    point(v, exec, address, pointer);
    switch (op->kind) {
    case LOAD:
        code = shadow_reads(v, op, exec, address);
        if (!code)
            load_lanes(op, vector_row(m, result, wave), pitch, exec, pointer, NULL);
        return code;
    case STORE:
        code = shadow_writes(v, op, exec, address, vector_row(m, data, wave), pitch);
        if (!code)
            store_lanes(op, vector_row(m, data, wave), pitch, exec, pointer, NULL);
        return code;
    default: /* ATOMIC */
        code = check_alignment(m, exec, address, op->bytes, op->bytes, ATOMIC_MISALIGNED);
        if (!code)
            code = shadow_atomics(v, op, exec, address);
        if (!code)
            atomic_lanes(op, vector_row(m, data, wave),
                         op->data2 >= 0 && !op->pair ? vector_row(m, op->data2, wave) : NULL,
                         result >= 0 ? vector_row(m, result, wave) : NULL, pitch, exec, pointer,
                         NULL);
        return code;
    }
}

static int memory_instruction(struct machine *m, const struct operation *op, int64_t wave,
                              uint64_t exec, uint32_t pc) {
    bool writes = op->kind != LOAD;
    uint32_t address[2][LANES];
    lds_addresses(m, op, wave, op->offset, address[0]);
    int code = check_lds(m, exec, address[0], op->bytes, writes);
    if (!code && op->pair) {
        lds_addresses(m, op, wave, op->offset2, address[1]);
        code = check_lds(m, exec, address[1], op->bytes, writes);
    }
    if (code)
        return code;
    struct lds_view v = lds_view(m, wave, how_it_writes(op));
    note_issue(&v, pc);
    code = access_lds(m, op, wave, &v, exec, address[0], op->data, op->result);
    if (!code && op->pair)
        code = access_lds(m, op, wave, &v, exec, address[1], op->data2, op->result + op->dwords);
    return code;
}

/* Add or subtract the number of active lanes, once; every active lane gets the old value. */
static int append(struct machine *m, const struct operation *op, int64_t wave, uint64_t exec,
                  uint32_t pc) {
    uint32_t address[LANES];
    int lane = first_lane(exec);
    lds_addresses(m, op, wave, op->offset, address);
    int code = check_lds(m, 1ull << lane, address, 4, true);
    if (!code)
        code = check_alignment(m, 1ull << lane, address, 4, 4, ATOMIC_MISALIGNED);
    if (code)
        return code;
    struct lds_view v = lds_view(m, wave, BY_ATOMIC);
    note_issue(&v, pc);
    code = shadow_atomic(&v, lane, address[lane], 4);
    if (code)
        return code;
    uint32_t old, value;
    memcpy(&old, v.bytes + address[lane], 4);
    uint32_t lanes = (uint32_t)__builtin_popcountll(exec);
    value = op->atomic == ADD ? old + lanes : old - lanes;
    memcpy(v.bytes + address[lane], &value, 4);
    uint32_t *row = vector_row(m, op->result, wave);
    for (uint64_t left = exec; left; left &= left - 1)
        row[first_lane(left)] = old;
    return OK;
}

/* -- transposing reads ------------------------------------------------------------------------- */

static uint32_t take_bits(const uint32_t *words, int first, int bits) {
    uint64_t pair = words[first / 32] | (uint64_t)words[first / 32 + (first % 32 + bits > 32)]
                                            << 32;
    return (uint32_t)(pair >> first % 32) & ((1u << bits) - 1);
}

/* Each 16 consecutive lanes read a tile of 16 columns, its rows one after another: n elements of
 * 64 (or 96) bits from each lane, so 16/n lanes to a row. Lane l gets column l%16, row 0 lowest.
 * gfx950; the b16 layout as ROCm's rocjitsu states it (ROCm/rocm-systems, pull request 10175):
 * element n of lane l is element l%4 of lane 16(l/16) + (l/4)%4 + 4n. The narrower types follow
 * the same rule with their own n. */
static int transpose(struct machine *m, const struct operation *op, int64_t wave, uint64_t exec,
                     uint32_t pc) {
    uint32_t address[LANES];
    if (~exec)
        return raise(m, TRANSPOSE_PARTIAL, first_lane(~exec), 0, op->bytes, false);
    lds_addresses(m, op, wave, op->offset, address);
    int code = check_lds(m, exec, address, op->bytes, false);
    if (!code)
        code = check_alignment(m, exec, address, op->bytes == 8 ? 8 : 16, op->bytes,
                               TRANSPOSE_MISALIGNED);
    if (code)
        return code;
    struct lds_view v = lds_view(m, wave, 0);
    note_issue(&v, pc);
    code = shadow_reads(&v, op, exec, address);
    if (code)
        return code;
    uint32_t read[LANES][3], written[LANES][3];
    memset(written, 0, sizeof written);
    for (int lane = 0; lane < LANES; lane++)
        memcpy(read[lane], v.bytes + address[lane], (size_t)op->bytes);
    int bits = op->element_bits, n = op->bytes * 8 / bits, lanes_per_row = 16 / n;
    for (int lane = 0; lane < LANES; lane++)
        for (int row = 0; row < n; row++) {
            int source = (lane & ~15) + row * lanes_per_row + lane % 16 / n;
            uint64_t value = take_bits(read[source], lane % n * bits, bits);
            int place = row * bits;
            value <<= place % 32;
            written[lane][place / 32] |= (uint32_t)value;
            if (value >> 32)
                written[lane][place / 32 + 1] |= (uint32_t)(value >> 32);
        }
    for (int d = 0; d < op->dwords; d++) {
        uint32_t *row = vector_row(m, op->result + d, wave);
        for (int lane = 0; lane < LANES; lane++)
            row[lane] = written[lane][d];
    }
    return OK;
}

/* -- lane exchanges ---------------------------------------------------------------------------- */

/* A lane that is switched off gives 0 (bpermute, swizzle) or nothing (permute), and gets
 * nothing. */
static void exchange(struct machine *m, const struct operation *op, int64_t wave, uint64_t exec) {
    const uint32_t *data = vector_row(m, op->data, wave);
    uint32_t *result = vector_row(m, op->result, wave);
    uint32_t moved[LANES] = {0}, address[LANES] = {0};
    if (op->kind != SWIZZLE)
        lds_addresses(m, op, wave, op->offset, address);
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t other = op->kind == SWIZZLE ? op->lanes[lane] : address[lane] / 4 % LANES;
        if (op->kind == PERMUTE) {
            if (exec >> lane & 1)
                moved[other] = data[lane];
        } else {
            moved[lane] = exec >> other & 1 ? data[other] : 0;
        }
    }
    for (uint64_t left = exec; left; left &= left - 1)
        result[first_lane(left)] = moved[first_lane(left)];
}

int lds_instruction(struct machine *m, const struct operation *op, const int64_t *ids,
                    int64_t first, int64_t step, int64_t count, uint32_t pc) {
    struct waves list = {ids, first, step, count};
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position);
        uint64_t exec = scalar64(m, EXEC, wave);
        int code = OK;
        if (!exec)
            continue;
        switch (op->kind) {
        case PERMUTE:
        case BPERMUTE:
        case SWIZZLE: exchange(m, op, wave, exec); break;
        case TRANSPOSE: code = transpose(m, op, wave, exec, pc); break;
        case APPEND: code = append(m, op, wave, exec, pc); break;
        default: code = memory_instruction(m, op, wave, exec, pc);
        }
        if (code) {
            m->fault.position = (int32_t)position;
            m->fault.is_atomic = op->kind == ATOMIC || op->kind == APPEND;
            return code;
        }
    }
    return OK;
}
