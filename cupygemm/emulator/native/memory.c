/* Vector memory instructions: GLOBAL, FLAT, SCRATCH and MUBUF.
 *
 *   operands ─► address of each lane ─► checks ─► pointer of each lane ─► load, store, atomic, LDS
 *
 * Device addresses are host addresses. Private memory is kept per lane, unswizzled. */
#include "addresses.h"
#include "barrier_lanes.h"
#include "few_places.h"
#include "global_shadow.h"
#include "lane_races.h"
#include "lanes.h"
#include "lds_flags.h"
#include "lds_pending.h"
#include "stored_definedness.h"
#include "typed_lanes.h"

int64_t memory_changes;

/* -- pointers ---------------------------------------------------------------------------------- */

static int scratch_pointers(struct machine *m, const struct operation *op, int64_t wave,
                            struct access *a, bool writes) {
    int code = OK, bytes = op->bytes;
    uint64_t outside = 0;
    uint8_t *base = m->scratch + wave * LANES * m->scratch_bytes;
    for (uint64_t left = a->to_scratch; left; left &= left - 1) {
        int lane = first_lane(left);
        uint64_t offset = a->address[lane];
        if ((int64_t)offset + bytes > m->scratch_bytes) {
            code = raise_more(m, code, SCRATCH_OUT_OF_BOUNDS, lane, offset, bytes, writes);
            outside |= 1ull << lane;
        }
        a->pointer[lane] = base + lane * m->scratch_bytes + offset;
    }
    if (!code)
        drop_lanes(a, op, outside);
    return code;
}

static void lane_data(const struct operation *op, const uint32_t *row, size_t pitch, int lane,
                      uint8_t *data) {
    uint8_t *pointer[LANES];
    pointer[lane] = data;
    copy_lanes(op, row, pitch, 1ull << lane, pointer, NULL);
}

/* FLAT through the LDS aperture. */
static int lds_pointers(struct machine *m, const struct operation *op, int64_t wave,
                        struct access *a, uint32_t pc) {
    bool writes = op->kind != LOAD;
    uint32_t address[LANES];
    for (int lane = 0; lane < LANES; lane++)
        address[lane] = (uint32_t)a->address[lane];
    int code = check_lds(m, a->to_lds, address, op->bytes, writes);
    struct lds_view v = lds_view(m, wave, how_it_writes(op));
    const int64_t *poll = v.flags ? poll_at(m, pc) : NULL;
    if (!poll)
        note_issue(&v, pc);
    if (code)
        return code;
    if (ignores(m, LDS_OUT_OF_BOUNDS))
        drop_lanes(a, op, outside_lds(m, a->to_lds, address, op->bytes));
    for (uint64_t left = a->to_lds; left; left &= left - 1)
        a->pointer[first_lane(left)] = v.bytes + address[first_lane(left)];
    update_lanes(&v, a->to_lds, address, op->bytes, writes);
    struct fault first;
    for (uint64_t left = poll ? 0 : a->to_lds; left; left &= left - 1) {
        int lane = first_lane(left), found;
        if (op->kind == LOAD) {
            found = shadow_read(&v, lane, address[lane], op->bytes);
            if (!found && m->undefined)
                note_lds_load(m, op, &v, op->result, lane, address[lane], pc);
        } else if (op->kind == STORE) {
            uint8_t data[16];
            lane_data(op, vector_row(m, op->data, wave), (size_t)m->row_dwords, lane, data);
            found = shadow_write(&v, lane, address[lane], op->bytes, data);
            if (m->tainted && m->undefined)
                taint_stored_lds(&v, op, op->data, lane, address[lane]);
        } else {
            found = shadow_atomic(&v, lane, address[lane], op->bytes, op->atomic != SWAP);
        }
        code = collect(m, code, found, lane, &first);
    }
    if (poll)
        code = poll_flags(&v, op, a->to_lds, address, pc, *poll);
    if (v.flags && !code && writes && a->to_lds)
        release_flag(&v, a->to_lds, address, op->kind == ATOMIC, m->lds_waited[wave]);
    return code;
}

static int check_alignment(struct machine *m, const struct operation *op, const struct access *a) {
    bool atomic = op->kind == ATOMIC;
    if (!atomic && !m->strict_alignment)
        return OK;
    int code = OK;
    uint64_t below = alignment_of(op->bytes) - 1;
    for (uint64_t left = atomic ? a->exec : a->exec & ~a->to_scratch; left; left &= left - 1) {
        int lane = first_lane(left);
        if (a->bytes[lane] && a->address[lane] & below)
            code = raise_more(m, code, atomic ? ATOMIC_MISALIGNED : MISALIGNED, lane,
                              a->address[lane], op->bytes, op->kind != LOAD);
    }
    return code;
}

static uint64_t outside_allocations(const struct machine *m, uint64_t lanes,
                                    const struct access *a) {
    uint64_t outside = 0;
    for (uint64_t left = lanes; left; left &= left - 1) {
        int lane = first_lane(left);
        if (a->bytes[lane] && !inside(m, a->address[lane], a->bytes[lane]))
            outside |= 1ull << lane;
    }
    return outside;
}

/* Whether all lanes access whole operands in one allocation: the usual case. */
static bool are_inside(const struct machine *m, const struct operation *op, uint64_t lanes,
                       const struct access *a) {
    uint64_t low = ~0ull, high = 0;
    if (a->partial || !lanes)
        return false;
    for (int half = 0; half < 2; half++) {
        uint32_t word = (uint32_t)(lanes >> 32 * half);
        for (int k = 0; k < 32; k++) {
            uint64_t on = 0 - (uint64_t)(word >> k & 1), place = a->address[32 * half + k];
            low = (place | ~on) < low ? place | ~on : low;
            high = (place & on) > high ? place & on : high;
        }
    }
    return inside(m, low, high - low + (uint64_t)op->bytes);
}

static int resolve_pointers(struct machine *m, const struct operation *op, int64_t wave,
                            struct access *a, uint32_t pc) {
    bool writes = op->kind == STORE || op->kind == ATOMIC;
    uint64_t global = a->exec & ~(a->to_lds | a->to_scratch);
    int code = check_alignment(m, op, a);
    if (!code && !are_inside(m, op, global, a))
        code = check_global(m, global, a->address, a->bytes, writes);
    if (ignores(m, OUT_OF_BOUNDS))
        drop_lanes(a, op, outside_allocations(m, global, a));
    for (int lane = 0; lane < LANES; lane++)
        a->pointer[lane] = (uint8_t *)(uintptr_t)a->address[lane];
    if (!code && a->to_scratch)
        code = scratch_pointers(m, op, wave, a, writes);
    if (!code && a->to_lds)
        code = lds_pointers(m, op, wave, a, pc);
    return code;
}

/* -- direct-to-LDS loads ----------------------------------------------------------------------- */

/* The lanes' dwords are stored contiguously, lane by lane, from M0 plus the instruction's offset;
 * lanes that are switched off leave a gap, and lanes out of a buffer's bounds write zero (stated
 * for CDNA4 by AMD's authors of Triton: triton-lang/triton, pull request 11435). */
static int load_to_lds(struct machine *m, const struct operation *op, int64_t wave,
                       const struct access *a, uint32_t pc) {
    uint32_t base = (scalar(m, M0, wave) & op->m0_mask) + (uint32_t)op->offset;
    uint32_t pitch = 4 * (uint32_t)op->dwords;
    uint32_t target[LANES];
    for (int lane = 0; lane < LANES; lane++)
        target[lane] = base + (uint32_t)lane * pitch;
    if (base % 4) {
        int lane = first_lane(a->exec);
        if (raise(m, LDS_LOAD_MISALIGNED, lane, target[lane], (int)pitch, true)) {
            m->fault.lanes = a->exec;
            return LDS_LOAD_MISALIGNED;
        }
        for (int i = 0; i < LANES; i++)
            target[i] -= base % 4;
    }
    int code = check_lds(m, a->exec, target, (int)pitch, true);
    if (code)
        return code;
    uint64_t exec = a->exec;
    if (ignores(m, LDS_OUT_OF_BOUNDS))
        exec &= ~outside_lds(m, exec, target, (int)pitch);
    struct lds_view v = lds_view(m, wave, BY_LOAD);
    note_issue(&v, pc);
    update_lanes(&v, exec, target, (int)pitch, true);
    uint32_t data[4 * LANES] = {0};
    load_lanes(op, data, LANES, exec, a->pointer, a->partial ? a->count : NULL);
    struct fault first;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        uint32_t words[4];
        uint8_t undefined[16];
        for (int d = 0; d < op->dwords; d++)
            words[d] = data[d * LANES + lane];
        int found = shadow_write(&v, lane, target[lane], (int)pitch, (const uint8_t *)words);
        code = collect(m, code, found, lane, &first);
        if (code)
            continue;
        memory_changes += memcmp(v.bytes + target[lane], words, pitch) != 0;
        memcpy(v.bytes + target[lane], words, pitch);
        int bytes = a->bytes[lane];
        if (m->undefined && bytes &&
            undefined_global(m, a->address[lane], a->pointer[lane], bytes, undefined))
            taint_loaded_lds(&v, op, target[lane], bytes, undefined, origin_here(pc, FROM_GLOBAL));
    }
    return code;
}

/* -- one wave ---------------------------------------------------------------------------------- */

static int find_update(struct machine *m, const struct operation *op, int64_t wave,
                       const struct access *a) {
    struct stored s = {vector_row(m, op->data, wave), 0, a->exec & ~a->to_scratch, a->pointer,
                       NULL};
    return a->partial || ignores(m, LANE_RACE) ? OK : find_lost_update(m, op, &s, op->data);
}

/* Look for faults, and find the pointers. Only the access records change, so
 * that a wave with a fault can be executed again. */
static int check(struct machine *m, const struct operation *op, int64_t wave, struct access *a,
                 uint32_t pc) {
    int code = op->format == TYPED ? check_elements(m, op, a) : OK;
    code = code ? code : resolve_pointers(m, op, wave, a, pc);
    bool dropped = ignores(m, OUT_OF_BOUNDS); /* lanes with a fault */
    a->adjacent = code || dropped ? 0 : a->adjacent;
    if (!code && op->kind == ATOMIC)
        code = check_memory(m, op, a);
    if (!code && (op->kind == STORE || op->kind == ATOMIC))
        code = check_data(m, op, wave, a);
    if (!code)
        code = note_global(m, op, wave, a, pc);
    if (!code && op->updates && !a->adjacent)
        code = find_update(m, op, wave, a);
    return code;
}

/* Look for lanes that have stored to one address. Private memory is each lane's own. */
static int find_lane_race(struct machine *m, const struct operation *op, int64_t wave,
                          const struct access *a) {
    struct stored s = {vector_row(m, op->data, wave), (size_t)m->row_dwords,
                       a->exec & ~a->to_scratch, a->pointer, a->partial ? a->count : NULL};
    if (a->adjacent || !s.exec || ignores(m, LANE_RACE))
        return OK;
    uint64_t lost = lost_lanes(op, &s);
    return lost ? lane_race(m, op, &s, NULL, lost, a->address[first_lane(lost)], op->data) : OK;
}

/* Move the data. */
static int move(struct machine *m, const struct operation *op, int64_t wave, struct access *a,
                uint32_t pc) {
    size_t pitch = (size_t)m->row_dwords;
    const uint8_t *count = a->partial ? a->count : NULL;
    uint8_t *const *pointer = a->pointer;
    uint64_t lanes;
    switch (op->kind) {
    case LOAD:
        if (op->format == TYPED)
            load_elements(op, vector_row(m, op->result, wave), pitch, a->exec, pointer, count);
        else
            load_lanes(op, vector_row(m, op->result, wave), pitch, a->exec, pointer, count);
        lanes = op->format == DWORDS ? poisoned_lanes(m, op, wave) : ~0ull;
        if (a->to_scratch || lanes)
            note_undefined(m, op, wave, a, lanes, pc);
        break;
    case STORE:
        if (op->format == TYPED)
            store_elements(op, vector_row(m, op->data, wave), pitch, a->exec, pointer, count);
        else
            store_lanes(op, vector_row(m, op->data, wave), pitch, a->exec, pointer, count);
        note_defined(m, op, wave, a);
        return find_lane_race(m, op, wave, a);
    case LOAD_TO_LDS: return load_to_lds(m, op, wave, a, pc);
    default:
        if (op->atomic == SWAP && op->result >= 0)
            note_undefined(m, op, wave, a, ~0ull, pc);
        atomic_lanes(op, vector_row(m, op->data, wave),
                     op->data2 >= 0 ? vector_row(m, op->data2, wave) : NULL,
                     op->result >= 0 ? vector_row(m, op->result, wave) : NULL, pitch, a->exec,
                     pointer, count);
        note_defined(m, op, wave, a);
    }
    return OK;
}

/* Whether adjacent lanes load or store a dword each, and no special case applies. */
static bool is_plain_stretch(const struct machine *m, const struct operation *op,
                             const struct access *a) {
    bool plain = op->format == DWORDS && op->dwords == 1 && (op->kind == LOAD || op->kind == STORE);
    return plain && a->adjacent && !m->strict_alignment && !m->tainted &&
           inside(m, a->address[0], 4 * (uint64_t)a->adjacent) &&
           (op->kind == STORE || !m->undefined ||
            !memchr((const void *)(uintptr_t)a->address[0], POISON, 4 * (size_t)a->adjacent) ||
            (m->defined && all_defined(m, a->address[0], 4 * (uint64_t)a->adjacent)));
}

static int transfer_stretch(struct machine *m, const struct operation *op, int64_t wave,
                            const struct access *a, uint32_t pc) {
    int code = note_global(m, op, wave, a, pc);
    if (code)
        return code;
    size_t bytes = 4 * (size_t)a->adjacent;
    void *memory = (void *)(uintptr_t)a->address[0];
    if (op->kind == LOAD) {
        memcpy(vector_row(m, op->result, wave), memory, bytes);
        return OK;
    }
    const uint32_t *row = vector_row(m, op->data, wave);
    memory_changes += memcmp(memory, row, bytes) != 0;
    memcpy(memory, row, bytes);
    note_defined(m, op, wave, a);
    return OK;
}

static int transfer(struct machine *m, const struct operation *op, int64_t wave, struct access *a,
                    uint32_t pc) {
    a->adjacent = adjacent_lanes(op, a);
    a->repeating = a->adjacent ? 0 : repeated_addresses(a);
    if (is_plain_stretch(m, op, a))
        return transfer_stretch(m, op, wave, a, pc);
    if (loads_few_places(m, op, a))
        return load_few_places(m, op, wave, a, pc);
    int code = check(m, op, wave, a, pc);
    return code ? code : move(m, op, wave, a, pc);
}

/* Dword `d` of an access, as an operation. */
static struct operation one_dword(const struct operation *op, int d) {
    struct operation one = *op;
    one.dwords = 1;
    one.bytes = 4;
    one.data += d;
    one.result += d;
    return one;
}

/* A swizzled buffer scatters the dwords of an access, and they are moved one at a time. All are
 * checked first: an address register may also be a destination. */
static int transfer_swizzled(struct machine *m, const struct operation *op, int64_t wave,
                             const struct buffer *b, struct access *a, uint32_t pc) {
    if (op->format == TYPED && op->bytes > 4)
        return raise(m, TYPED_SWIZZLED, first_lane(a->exec), a->address[first_lane(a->exec)],
                     op->bytes, op->kind == STORE);
    if (op->format != DWORDS || op->kind == ATOMIC) {
        buffer_addresses(m, op, wave, b, 0, a);
        return transfer(m, op, wave, a, pc);
    }
    struct access part[4];
    for (int d = 0; d < op->dwords; d++) {
        struct operation one = one_dword(op, d);
        part[d].exec = a->exec;
        part[d].to_lds = part[d].to_scratch = 0;
        buffer_addresses(m, &one, wave, b, 4 * (uint64_t)d, &part[d]);
        part[d].adjacent = adjacent_lanes(&one, &part[d]);
        part[d].repeating = repeated_addresses(&part[d]);
        int code = check(m, &one, wave, &part[d], pc);
        if (code)
            return code;
    }
    for (int d = 0; d < op->dwords; d++) {
        struct operation one = one_dword(op, d);
        int code = move(m, &one, wave, &part[d], pc);
        if (code)
            return code;
    }
    return OK;
}

int vector_memory(struct machine *m, const struct operation *given, const int64_t *ids,
                  int64_t first, int64_t step, int64_t count, uint32_t pc) {
    struct waves list = {ids, first, step, count};
    struct operation typed;
    struct access a;
    struct buffer b;
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position);
        const struct operation *op = with_format(m, given, wave, &typed);
        int code = resolve_addresses(m, op, wave, &a, &b);
        if (!a.exec)
            continue;
        if (!code)
            code = check_barriers(m, wave, a.exec & ~a.to_scratch);
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

/* Sizes of the structures that Python mirrors. */
int64_t size_of_machine(void) { return sizeof(struct machine); }
int64_t size_of_operation(void) { return sizeof(struct operation); }
int64_t size_of_record(void) { return sizeof(struct record); }
int64_t size_of_global_record(void) { return sizeof(struct global_record); }
int64_t size_of_line_record(void) { return sizeof(struct line_record); }
