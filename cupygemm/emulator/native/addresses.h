/* The address of each lane of a vector memory instruction: GLOBAL, FLAT, SCRATCH and MUBUF.
 *
 * Rules: AMD's "CDNA3 Instruction Set Architecture", chapters 9 (vector memory) and 10 (flat);
 * LLVM's "User Guide for AMDGPU Backend", "Relaxed Buffer OOB Mode", for accesses across the end
 * of a buffer. */
#ifndef CUPYGEMM_ADDRESSES_H
#define CUPYGEMM_ADDRESSES_H

#include "machine.h"

/* The locations of the lanes' data. Lanes are split by the memory that their address reaches; only
 * FLAT mixes them. */
struct access {
    uint64_t exec, to_lds, to_scratch;
    LINE_ALIGNED uint64_t address[LANES]; /* global, or offset into LDS or private memory */
    uint8_t bytes[LANES];                 /* of the access that are within a buffer's bounds */
    uint8_t count[LANES];                 /* dwords, likewise */
    bool partial;                         /* some lane is out of a buffer's bounds */
    int adjacent;                         /* lanes 0, 1, ... of global memory, see adjacent_lanes */
    uint64_t repeating;                   /* lanes with the address of the lane before */
    LINE_ALIGNED uint8_t *pointer[LANES];
};

static const uint64_t BUFFER_ADDRESS = (1ull << 48) - 1;

/* Take lanes out of an access: their loads give 0, and their stores and atomics do nothing. */
static inline void drop_lanes(struct access *a, const struct operation *op, uint64_t lanes) {
    if (lanes)
        a->adjacent = 0;
    if (lanes && !a->partial) {
        a->partial = true;
        memset(a->count, op->dwords, LANES);
    }
    for (uint64_t left = lanes; left; left &= left - 1)
        a->bytes[first_lane(left)] = a->count[first_lane(left)] = 0;
    a->to_lds &= ~lanes;
    a->to_scratch &= ~lanes;
}

/* -- addresses --------------------------------------------------------------------------------- */

static inline void global_addresses(const struct machine *m, const struct operation *op,
                                    int64_t wave, struct access *a) {
    const uint32_t *low = vector_row(m, op->address, wave);
    if (op->wide) {
        const uint32_t *high = vector_row(m, op->address + 1, wave);
        for (int lane = 0; lane < LANES; lane++)
            a->address[lane] = (low[lane] | (uint64_t)high[lane] << 32) + (uint64_t)op->offset;
    } else {
        uint64_t base = scalar64(m, op->scalar, wave) + (uint64_t)op->offset;
        for (int lane = 0; lane < LANES; lane++)
            a->address[lane] = base + low[lane];
    }
}

static inline void split_apertures(const struct machine *m, struct access *a) {
    uint64_t shared = m->shared_aperture >> 32, private = m->private_aperture >> 32;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t top = a->address[lane] >> 32;
        a->to_lds |= (uint64_t)(top == shared) << lane;
        a->to_scratch |= (uint64_t)(top == private) << lane;
    }
    a->to_lds &= a->exec;
    a->to_scratch &= a->exec;
    for (uint64_t left = a->to_lds | a->to_scratch; left; left &= left - 1)
        a->address[first_lane(left)] &= 0xFFFFFFFF;
}

static inline void scratch_addresses(const struct machine *m, const struct operation *op,
                                     int64_t wave, struct access *a) {
    uint32_t base = (uint32_t)op->offset + (op->scalar >= 0 ? scalar(m, op->scalar, wave) : 0);
    const uint32_t *row = op->address >= 0 ? vector_row(m, op->address, wave) : NULL;
    for (int lane = 0; lane < LANES; lane++)
        a->address[lane] = (uint32_t)(base + (row ? row[lane] : 0));
    a->to_scratch = a->exec;
}

/* A buffer resource (V#) and the scalar part of an address. */
struct buffer {
    uint64_t base, stride, records, soffset;
    uint64_t index_stride;
    bool swizzled, adds_lane;
};

static inline struct buffer read_buffer(const struct machine *m, const struct operation *op,
                                        int64_t wave) {
    uint32_t word[4];
    for (int i = 0; i < 4; i++)
        word[i] = scalar(m, op->resource + i, wave);
    struct buffer b = {
        .base = word[0] | (uint64_t)(word[1] & 0xFFFF) << 32,
        .stride = word[1] >> 16 & 0x3FFF,
        .records = word[2],
        .swizzled = word[1] >> 31,
        .adds_lane = word[3] >> 23 & 1,
        .index_stride = 8ull << (word[3] >> 21 & 3),
        .soffset = op->scalar >= 0 ? scalar(m, op->scalar, wave) : op->constant,
    };
    /* The CDNA3 guide's section 9.1.5 does not describe an access without an index whose resource
     * is swizzled. HipKittens loads linear memory this way (make_srsrc in
     * HazyResearch/HipKittens) on MI300X and MI355X. */
    b.swizzled &= op->idxen || b.adds_lane;
    if (b.adds_lane) /* the data format's bits extend the stride */
        b.stride |= (uint64_t)(word[3] >> 15 & 15) << 14;
    return b;
}

static inline bool is_private_segment(const struct machine *m, const struct buffer *b) {
    uint64_t windows = (uint64_t)(m->num_waves * LANES * m->scratch_bytes);
    return b->adds_lane && b->base >= m->scratch_base && b->base - m->scratch_base <= windows;
}

/* The private segment buffer of targets without architected scratch. Its swizzle interleaves the
 * lanes' dwords, so a scalar offset counts 64 lanes and a vector offset one. */
static inline int private_segment_addresses(struct machine *m, const struct operation *op,
                                            int64_t wave, const struct buffer *b,
                                            struct access *a) {
    uint64_t window = m->scratch_base + (uint64_t)(wave * LANES * m->scratch_bytes);
    uint64_t scaled = b->base + b->soffset - window;
    int code = OK;
    if (scaled % LANES)
        code =
            raise(m, SCRATCH_MISALIGNED, first_lane(a->exec), scaled, op->bytes, op->kind == STORE);
    if (code)
        return code;
    const uint32_t *row = op->offen ? vector_row(m, op->address, wave) : NULL;
    for (int lane = 0; lane < LANES; lane++)
        a->address[lane] =
            (uint32_t)(scaled / LANES + (uint64_t)op->offset + (row ? row[lane] : 0));
    a->to_scratch = a->exec;
    return OK;
}

/* The addresses in a linear buffer, the usual kind. Returns false if some lane is out of bounds. */
static inline bool linear_addresses(const struct operation *op, const struct buffer *b,
                                    const uint32_t *offset_row, uint64_t skip, struct access *a) {
    uint64_t start = (uint64_t)op->offset + skip, size = (uint64_t)op->bytes, outside = 0;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t first = start + (offset_row ? offset_row[lane] : 0) + b->soffset;
        outside |= (uint64_t)(first + size > b->records);
        a->address[lane] = (b->base + first) & BUFFER_ADDRESS;
    }
    memset(a->bytes, op->bytes, LANES);
    memset(a->count, (op->bytes + 3) / 4, LANES);
    return !outside;
}

/* `skip`: bytes of the access that are already done, in a swizzled buffer. */
static inline void buffer_addresses(const struct machine *m, const struct operation *op,
                                    int64_t wave, const struct buffer *b, uint64_t skip,
                                    struct access *a) {
    const uint32_t *index_row = op->idxen ? vector_row(m, op->address, wave) : NULL;
    const uint32_t *offset_row = op->offen ? vector_row(m, op->address + op->idxen, wave) : NULL;
    bool structured = op->idxen && b->stride != 0;
    bool unchecked = b->adds_lane && !op->idxen;
    bool by_dword = op->format == DWORDS && op->kind != ATOMIC;
    uint8_t size = (uint8_t)op->bytes;
    a->partial = false;
    if (!op->idxen && !b->adds_lane && linear_addresses(op, b, offset_row, skip, a))
        return;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t index = index_row ? index_row[lane] : 0;
        uint64_t offset = (uint64_t)op->offset + (offset_row ? offset_row[lane] : 0) + skip;
        uint64_t within = size;
        if (structured) {
            within = index < b->records ? size : 0;
        } else if (!unchecked) {
            uint64_t first = offset + b->soffset; /* 64 bits: it saturates rather than wraps */
            uint64_t rest = first < b->records ? b->records - first : 0;
            within = rest >= size ? size : by_dword ? rest & ~3ull : 0;
        }
        a->bytes[lane] = (uint8_t)within;
        a->count[lane] = (uint8_t)((within + 3) / 4);
        a->partial |= within != size;
        if (b->adds_lane)
            index += (uint64_t)lane;
        uint64_t place = offset + index * b->stride;
        if (b->swizzled)
            place = (index / b->index_stride * b->stride + (offset & ~3ull)) * b->index_stride +
                    index % b->index_stride * 4 + (offset & 3);
        a->address[lane] = (b->base + b->soffset + place) & BUFFER_ADDRESS;
    }
}

/* Return the number of active lanes if they are the first lanes and access one contiguous stretch
 * of global memory in order; else 0. */
static inline int adjacent_lanes(const struct operation *op, const struct access *a) {
    int lanes = __builtin_popcountll(a->exec);
    if (a->partial || a->to_lds | a->to_scratch || !lanes || a->exec != low_bits(lanes))
        return 0;
    uint64_t different = 0;
    if (lanes > 1 && a->address[1] != a->address[0] + (uint64_t)op->bytes)
        return 0;
    for (int lane = 0; lane < LANES; lane++)
        different |= (a->address[lane] ^ (a->address[0] + (uint64_t)(lane * op->bytes))) &
                     (lane < lanes ? ~0ull : 0);
    return different ? 0 : lanes;
}

/* Whether all lanes, active or not, have the same address. */
static inline bool have_one_address(const struct access *a) {
    uint64_t different = a->address[LANES - 1] ^ a->address[0];
    if (different)
        return false;
    for (int lane = 0; lane < LANES; lane++)
        different |= a->address[lane] ^ a->address[0];
    return !different;
}

typedef uint64_t eight __attribute__((vector_size(64)));

/* The lanes whose address equals that of the previous lane, active or not. Vectors are read as they
 * were stored: a load that spans two of them would wait until both are in the cache. */
static inline uint64_t repeated_addresses(const struct access *a) {
    const eight bits = {1, 2, 4, 8, 16, 32, 64, 128};
    eight found = {0}, before, now = {0};
    if (have_one_address(a))
        return ~1ull;
    for (int k = 0; k < LANES / 8; k++) {
        before = now;
        memcpy(&now, a->address + 8 * k, sizeof now);
        before = __builtin_shufflevector(before, now, 7, 8, 9, 10, 11, 12, 13, 14);
        found |= (eight)(before == now) & bits << (uint64_t)(8 * k);
    }
    uint64_t lanes = 0;
    for (int k = 0; k < 8; k++)
        lanes |= found[k];
    return lanes & ~1ull;
}

/* The lanes that access the same bytes as the previous lane; `same` are the lanes with the same
 * address. */
static inline uint64_t repeating_among(const struct access *a, uint64_t lanes, uint64_t same) {
    return a->partial ? 0 : same & lanes & lanes << 1;
}

static inline uint64_t repeating_lanes(const struct access *a, uint64_t lanes) {
    return a->partial ? 0 : repeating_among(a, lanes, repeated_addresses(a));
}

/* Find the active lanes and their addresses. If there are none, `exec` is 0 and the rest is
 * unset. */
static inline int resolve_addresses(struct machine *m, const struct operation *op, int64_t wave,
                                    struct access *a, struct buffer *b) {
    a->exec = scalar64(m, EXEC, wave);
    a->to_lds = a->to_scratch = 0;
    a->partial = false;
    b->swizzled = false;
    if (!a->exec)
        return OK;
    memset(a->bytes, op->bytes, LANES);
    switch (op->space) {
    case GLOBAL: global_addresses(m, op, wave, a); return OK;
    case FLAT:
        global_addresses(m, op, wave, a);
        split_apertures(m, a);
        return OK;
    case SCRATCH: scratch_addresses(m, op, wave, a); return OK;
    default: break;
    }
    *b = read_buffer(m, op, wave);
    if (is_private_segment(m, b)) {
        b->swizzled = false;
        return private_segment_addresses(m, op, wave, b, a);
    }
    buffer_addresses(m, op, wave, b, 0, a);
    return OK;
}

#endif
