/* Vector and scalar memory instructions: GLOBAL, FLAT, SCRATCH, MUBUF and SMEM.
 *
 *   operands ─► address of each lane ─► checks ─► pointer of each lane ─► load, store, atomic, LDS
 *
 * Device addresses are host addresses. Private memory is kept per lane, unswizzled. Rules: AMD's
 * "CDNA3 Instruction Set Architecture", chapters 8 (scalar memory), 9 (vector memory) and 10 (flat);
 * LLVM's "User Guide for AMDGPU Backend", "Relaxed Buffer OOB Mode", for accesses across the end of
 * a buffer. */
#include "lanes.h"
#include "shadow.h"

/* Where the lanes' data are. Lanes are split by what their address reaches; only FLAT mixes them. */
struct access {
    uint64_t exec, to_lds, to_scratch;
    uint64_t address[LANES]; /* global, or offset into LDS or private memory */
    uint8_t bytes[LANES];    /* of the access that are within a buffer's bounds */
    uint8_t count[LANES];    /* dwords, likewise */
    bool partial;            /* some lane is out of a buffer's bounds */
    uint8_t *pointer[LANES];
};

static const uint64_t BUFFER_ADDRESS = (1ull << 48) - 1;

/* -- addresses -----------------------------------------------------------------------------------*/

static void global_addresses(const struct machine *m, const struct operation *op, int64_t wave,
                             struct access *a) {
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

static void split_apertures(const struct machine *m, struct access *a) {
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

static void scratch_addresses(const struct machine *m, const struct operation *op, int64_t wave,
                              struct access *a) {
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

static struct buffer read_buffer(const struct machine *m, const struct operation *op,
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
    if (b.adds_lane) /* the data format's bits extend the stride */
        b.stride |= (uint64_t)(word[3] >> 15 & 15) << 14;
    return b;
}

static bool is_private_segment(const struct machine *m, const struct buffer *b) {
    uint64_t windows = (uint64_t)(m->num_waves * LANES * m->scratch_bytes);
    return b->adds_lane && b->base >= m->scratch_base && b->base - m->scratch_base <= windows;
}

/* The private segment buffer of targets without architected scratch. Its swizzle interleaves the
 * lanes' dwords, so a scalar offset counts 64 lanes and a vector offset one. */
static int private_segment_addresses(struct machine *m, const struct operation *op, int64_t wave,
                                     const struct buffer *b, struct access *a) {
    uint64_t window = m->scratch_base + (uint64_t)(wave * LANES * m->scratch_bytes);
    uint64_t scaled = b->base + b->soffset - window;
    if (scaled % LANES)
        return raise(m, SCRATCH_MISALIGNED, first_lane(a->exec), scaled, op->bytes,
                     op->kind == STORE);
    const uint32_t *row = op->offen ? vector_row(m, op->address, wave) : NULL;
    for (int lane = 0; lane < LANES; lane++)
        a->address[lane] =
            (uint32_t)(scaled / LANES + (uint64_t)op->offset + (row ? row[lane] : 0));
    a->to_scratch = a->exec;
    return OK;
}

/* `skip` is how many bytes of the access a swizzled buffer has dealt with already. */
static void buffer_addresses(const struct machine *m, const struct operation *op, int64_t wave,
                             const struct buffer *b, uint64_t skip, struct access *a) {
    const uint32_t *index_row = op->idxen ? vector_row(m, op->address, wave) : NULL;
    const uint32_t *offset_row = op->offen ? vector_row(m, op->address + op->idxen, wave) : NULL;
    bool structured = op->idxen && b->stride != 0;
    bool unchecked = b->adds_lane && !op->idxen;
    bool by_dword = op->format == DWORDS && op->kind != ATOMIC;
    uint8_t size = (uint8_t)op->bytes;
    a->partial = false;
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

/* -- pointers ------------------------------------------------------------------------------------*/

static int scratch_pointers(struct machine *m, int64_t wave, struct access *a, int bytes,
                            bool writes) {
    uint8_t *base = m->scratch + wave * LANES * m->scratch_bytes;
    for (uint64_t left = a->to_scratch; left; left &= left - 1) {
        int lane = first_lane(left);
        uint64_t offset = a->address[lane];
        if ((int64_t)offset + bytes > m->scratch_bytes)
            return raise(m, SCRATCH_OUT_OF_BOUNDS, lane, offset, bytes, writes);
        if (bytes >= 4 ? offset % 4 : offset % 4 + (uint64_t)bytes > 4)
            return raise(m, SCRATCH_MISALIGNED, lane, offset, bytes, writes);
        a->pointer[lane] = base + lane * m->scratch_bytes + offset;
    }
    return OK;
}

static void lane_data(const struct operation *op, const uint32_t *row, size_t pitch, int lane,
                      uint8_t *data) {
    uint8_t *pointer[LANES];
    pointer[lane] = data;
    store_lanes(op, row, pitch, 1ull << lane, pointer, NULL);
}

/* FLAT through the LDS aperture. */
static int lds_pointers(struct machine *m, const struct operation *op, int64_t wave,
                        struct access *a, uint32_t pc) {
    bool writes = op->kind != LOAD;
    uint32_t address[LANES];
    for (int lane = 0; lane < LANES; lane++)
        address[lane] = (uint32_t)a->address[lane];
    int code = check_lds(m, a->to_lds, address, op->bytes, writes);
    struct lds_view v = lds_view(m, wave, op->kind == ATOMIC ? BY_ATOMIC : 0);
    note_issue(&v, pc);
    for (uint64_t left = a->to_lds; left && !code; left &= left - 1) {
        int lane = first_lane(left);
        a->pointer[lane] = v.bytes + address[lane];
        if (op->kind == LOAD) {
            code = shadow_read(&v, lane, address[lane], op->bytes);
        } else if (op->kind == STORE) {
            uint8_t data[16];
            lane_data(op, vector_row(m, op->data, wave), (size_t)m->num_waves * LANES, lane, data);
            code = shadow_write(&v, lane, address[lane], op->bytes, data);
        } else {
            code = shadow_atomic(&v, lane, address[lane], op->bytes);
        }
    }
    return code;
}

static int check_alignment(struct machine *m, const struct operation *op, const struct access *a) {
    for (uint64_t left = a->exec; left; left &= left - 1) {
        int lane = first_lane(left);
        if (a->address[lane] & (uint64_t)(op->bytes - 1))
            return raise(m, ATOMIC_MISALIGNED, lane, a->address[lane], op->bytes, true);
    }
    return OK;
}

static int resolve_pointers(struct machine *m, const struct operation *op, int64_t wave,
                            struct access *a, uint32_t pc) {
    bool writes = op->kind == STORE || op->kind == ATOMIC;
    uint64_t global = a->exec & ~(a->to_lds | a->to_scratch);
    int code = op->kind == ATOMIC ? check_alignment(m, op, a) : OK;
    if (!code)
        code = check_global(m, global, a->address, a->bytes, writes);
    for (int lane = 0; lane < LANES; lane++)
        a->pointer[lane] = (uint8_t *)(uintptr_t)a->address[lane];
    if (!code && a->to_scratch)
        code = scratch_pointers(m, wave, a, op->bytes, writes);
    if (!code && a->to_lds)
        code = lds_pointers(m, op, wave, a, pc);
    return code;
}

/* -- direct-to-LDS loads -------------------------------------------------------------------------*/

/* The lanes' dwords land contiguously, lane by lane, from M0 plus the instruction's offset; lanes
 * that are switched off leave a gap, and lanes out of a buffer's bounds write zero. */
static int load_to_lds(struct machine *m, const struct operation *op, int64_t wave,
                       const struct access *a, uint32_t pc) {
    uint32_t base = (scalar(m, M0, wave) & op->m0_mask) + (uint32_t)op->offset;
    uint32_t pitch = 4 * (uint32_t)op->dwords;
    uint32_t target[LANES];
    for (int lane = 0; lane < LANES; lane++)
        target[lane] = base + (uint32_t)lane * pitch;
    int first = first_lane(a->exec);
    if (base % 4)
        return raise(m, LDS_LOAD_MISALIGNED, first, target[first], (int)pitch, true);
    int code = check_lds(m, a->exec, target, (int)pitch, true);
    if (code)
        return code;
    struct lds_view v = lds_view(m, wave, BY_LOAD);
    note_issue(&v, pc);
    uint32_t data[4 * LANES] = {0};
    load_lanes(op, data, LANES, a->exec, a->pointer, a->partial ? a->count : NULL);
    for (uint64_t left = a->exec; left && !code; left &= left - 1) {
        int lane = first_lane(left);
        uint32_t words[4];
        for (int d = 0; d < op->dwords; d++)
            words[d] = data[d * LANES + lane];
        code = shadow_write(&v, lane, target[lane], (int)pitch, (const uint8_t *)words);
        if (!code)
            memcpy(v.bytes + target[lane], words, pitch);
    }
    return code;
}

/* -- one wave ------------------------------------------------------------------------------------*/

static int transfer(struct machine *m, const struct operation *op, int64_t wave, struct access *a,
                    uint32_t pc) {
    int code = resolve_pointers(m, op, wave, a, pc);
    if (code)
        return code;
    size_t pitch = (size_t)m->num_waves * LANES;
    const uint8_t *count = a->partial ? a->count : NULL;
    uint8_t *const *pointer = a->pointer;
    switch (op->kind) {
    case LOAD:
        load_lanes(op, vector_row(m, op->result, wave), pitch, a->exec, pointer, count);
        break;
    case STORE:
        store_lanes(op, vector_row(m, op->data, wave), pitch, a->exec, pointer, count);
        break;
    case LOAD_TO_LDS: return load_to_lds(m, op, wave, a, pc);
    default:
        atomic_lanes(op, vector_row(m, op->data, wave),
                     op->data2 >= 0 ? vector_row(m, op->data2, wave) : NULL,
                     op->result >= 0 ? vector_row(m, op->result, wave) : NULL, pitch, a->exec,
                     pointer, count);
    }
    return OK;
}

/* A swizzled buffer scatters the dwords of an access, and they are moved one at a time. All addresses
 * are taken first: an address register may also be a destination. */
static int transfer_swizzled(struct machine *m, const struct operation *op, int64_t wave,
                             const struct buffer *b, struct access *a, uint32_t pc) {
    if (op->format != DWORDS || op->kind == ATOMIC) {
        buffer_addresses(m, op, wave, b, 0, a);
        return transfer(m, op, wave, a, pc);
    }
    struct access part[4];
    for (int d = 0; d < op->dwords; d++) {
        struct operation one = *op;
        one.dwords = 1;
        one.bytes = 4;
        part[d].exec = a->exec;
        part[d].to_lds = part[d].to_scratch = 0;
        buffer_addresses(m, &one, wave, b, 4 * (uint64_t)d, &part[d]);
    }
    for (int d = 0; d < op->dwords; d++) {
        struct operation one = *op;
        one.dwords = 1;
        one.bytes = 4;
        one.data += d;
        one.result += d;
        int code = transfer(m, &one, wave, &part[d], pc);
        if (code)
            return code;
    }
    return OK;
}

static int resolve_addresses(struct machine *m, const struct operation *op, int64_t wave,
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

int vector_memory(struct machine *m, const struct operation *op, const int64_t *ids, int64_t first,
                  int64_t step, int64_t count, uint32_t pc) {
    struct waves list = {ids, first, step, count};
    struct access a;
    struct buffer b;
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position);
        int code = resolve_addresses(m, op, wave, &a, &b);
        if (!a.exec)
            continue;
        if (!code)
            code = b.swizzled ? transfer_swizzled(m, op, wave, &b, &a, pc)
                              : transfer(m, op, wave, &a, pc);
        if (code) {
            m->fault.position = (int32_t)position;
            m->fault.is_atomic = op->kind == ATOMIC;
            return code;
        }
    }
    return OK;
}

/* -- cache lines ---------------------------------------------------------------------------------*/

/* Count the distinct lines of 2**shift bytes that the lanes' accesses touch. */
static int64_t distinct_lines(const struct access *a, uint64_t lanes, int shift) {
    uint64_t lines[2 * LANES];
    int n = 0;
    for (uint64_t left = lanes; left; left &= left - 1) {
        int lane = first_lane(left);
        uint64_t last = (a->address[lane] + a->bytes[lane] - 1) >> shift;
        for (uint64_t line = a->address[lane] >> shift; line <= last && n < 2 * LANES; line++) {
            int place = n; /* insert in order */
            while (place > 0 && lines[place - 1] > line)
                place--;
            if (place > 0 && lines[place - 1] == line)
                continue;
            memmove(lines + place + 1, lines + place, (size_t)(n - place) * sizeof *lines);
            lines[place] = line;
            n++;
        }
    }
    return n;
}

/* Add to `totals` what the instruction asks of global memory: wave-instructions, lanes, bytes,
 * 64-byte lines, 128-byte lines. Call it before the instruction executes. */
void count_lines(struct machine *m, const struct operation *op, const int64_t *ids, int64_t first,
                 int64_t step, int64_t count, int64_t *totals) {
    struct waves list = {ids, first, step, count};
    struct access a;
    struct buffer b;
    for (int64_t position = 0; position < count; position++) {
        if (resolve_addresses(m, op, wave_at(list, position), &a, &b))
            continue;
        uint64_t lanes = 0;
        for (uint64_t left = a.exec & ~(a.to_lds | a.to_scratch); left; left &= left - 1) {
            int lane = first_lane(left);
            if (a.bytes[lane]) {
                lanes |= 1ull << lane;
                totals[2] += a.bytes[lane];
            }
        }
        totals[0] += 1;
        totals[1] += __builtin_popcountll(lanes);
        totals[3] += distinct_lines(&a, lanes, 6);
        totals[4] += distinct_lines(&a, lanes, 7);
    }
}

/* -- scalar memory -------------------------------------------------------------------------------*/

/* Load or store `dwords` scalar registers. A scalar buffer is a range of bytes: beyond its end loads
 * return 0 and stores are dropped, dword by dword. EXEC plays no part. */
int scalar_memory(struct machine *m, const struct operation *op, const int64_t *ids, int64_t first,
                  int64_t step, int64_t count, uint32_t pc) {
    (void)pc;
    struct waves list = {ids, first, step, count};
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position);
        uint64_t offset =
            (uint64_t)op->offset + (op->scalar >= 0 ? scalar(m, op->scalar, wave) : 0);
        uint64_t base = scalar64(m, op->resource, wave), dwords = (uint64_t)op->dwords;
        if (op->space == BUFFER) {
            struct buffer b = read_buffer(m, op, wave);
            uint64_t limit = b.stride ? b.stride * b.records : b.records;
            uint64_t rest = offset < limit ? (limit - offset) / 4 : 0;
            base = b.base;
            dwords = rest < dwords ? rest : dwords;
        }
        uint64_t address = base + offset;
        bool writes = op->kind == STORE;
        int code = OK;
        if (address % 4 && dwords)
            code = raise(m, SCALAR_MISALIGNED, -1, address, op->bytes, writes);
        else if (dwords && !inside(m, address, 4 * dwords))
            code = raise(m, OUT_OF_BOUNDS, -1, address, (int)(4 * dwords), writes);
        if (code) {
            m->fault.position = (int32_t)position;
            return code;
        }
        uint32_t words[16] = {0};
        uint32_t *registers = m->sgpr + op->data * m->num_waves + wave;
        if (!writes)
            memcpy(words, (const void *)(uintptr_t)address, 4 * dwords);
        for (int64_t i = 0; i < op->dwords; i++) {
            if (!writes)
                registers[i * m->num_waves] = words[i];
            else if ((uint64_t)i < dwords)
                memcpy((uint8_t *)(uintptr_t)address + 4 * i, registers + i * m->num_waves, 4);
        }
    }
    return OK;
}
