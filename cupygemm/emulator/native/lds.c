/* DS instructions: LDS reads, writes and atomics, transposing reads (CDNA4), and the lane
 * exchanges that go through the LDS hardware without touching its memory.
 *
 *   operands ─► LDS address of each lane ─► bounds ─► races, undefined bits ─► data
 *
 * Rules: AMD's "CDNA3" and "CDNA4 Instruction Set Architecture", chapter 11 (data share) and the
 * pseudocode of the DS instructions. LDS runs in unaligned mode (LLVM, "unaligned-access-mode"),
 * so only atomics and transposing reads must be aligned. */
#include "barrier_lanes.h"
#include "definedness.h"
#include "lane_races.h"
#include "lanes.h"
#include "lds_block_accesses.h"
#include "lds_exchange.h"
#include "lds_flags.h"
#include "lds_plain.h"
#include "lds_shadow.h"
#include "lds_transpose.h"
#include "lds_variables.h"
#include "shadow.h"

/* -- pointers ---------------------------------------------------------------------------------- */

static int check_alignment(struct machine *m, uint64_t exec, const uint32_t *address, int alignment,
                           int bytes, int code, bool writes) {
    uint32_t odd = 0;
    for (int lane = 0; lane < LANES; lane++)
        odd |= exec >> lane & 1 ? address[lane] : 0;
    if (!(odd & (uint32_t)(alignment - 1)))
        return OK;
    int found = OK;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        if (address[lane] & (uint32_t)(alignment - 1))
            found = raise_more(m, found, code, lane, address[lane], bytes, writes);
    }
    return found;
}

/* The pointers of lanes that access nothing are not used. */
static void point(const struct lds_view *v, const uint32_t *address, uint8_t **pointer) {
    for (int lane = 0; lane < LANES; lane++)
        pointer[lane] = (uint8_t *)((uintptr_t)v->bytes + address[lane]);
}

/* -- reads, writes and atomics ----------------------------------------------------------------- */

/* One of the two accesses of a read2, write2 or wrxchg2, or the only one. */
struct lds_access {
    uint64_t exec; /* the lanes that access LDS */
    bool partial;  /* an active lane is outside LDS, where that is no fault */
    struct lane_run stretch;
    int64_t data, result;
    LINE_ALIGNED uint32_t address[LANES];
    uint8_t count[LANES]; /* dwords that each lane accesses, where some access none */
};

/* Return the lanes that disable their load by an address of 2 GiB, or up to 64 KiB (instructions'
 * offsets) above. Tensile marks lanes outside a matrix this way, for buffers and LDS; LDS returns
 * 0. */
static uint64_t disabled_lanes(const struct operation *op, uint64_t exec, const uint32_t *address) {
    uint32_t bits = 0;
    for (int lane = 0; lane < LANES; lane++)
        bits |= address[lane];
    if (op->kind != LOAD || !(bits >> 31)) /* as in almost all accesses */
        return 0;
    uint64_t disabled = 0;
    for (int lane = 0; lane < LANES; lane++)
        disabled |= (uint64_t)(address[lane] >> 16 == 0x8000) << lane;
    return disabled & exec;
}

static int resolve_lds(struct machine *m, const struct operation *op, int64_t wave, uint64_t exec,
                       bool second, struct lds_access *a) {
    lds_addresses(m, op, wave, second ? op->offset2 : op->offset, a->address);
    a->data = second ? op->data2 : op->data;
    a->result = second ? op->result + op->dwords : op->result;
    a->exec = exec;
    a->partial = false;
    a->stretch = find_stretch(exec, a->address, op->bytes);
    if (are_plain(m, op, a->address, a->stretch))
        return OK;
    a->stretch.lanes = 0;
    uint64_t outside = disabled_lanes(op, exec, a->address);
    int code = check_lds(m, exec & ~outside, a->address, op->bytes, op->kind != LOAD);
    if (ignores(m, LDS_OUT_OF_BOUNDS))
        outside |= outside_lds(m, exec, a->address, op->bytes);
    a->exec = exec & ~outside;
    a->partial = outside != 0;
    if (outside)
        memset(a->count, op->dwords, LANES);
    for (uint64_t left = outside; left; left &= left - 1)
        a->count[first_lane(left)] = 0;
    return code;
}

/* Look for faults. Only the access records change, so that a wave with a fault
 * can be executed again. */
static int check_access(struct machine *m, const struct operation *op, struct lds_view *v,
                        const struct lds_access *a, uint32_t pc, const int64_t *poll) {
    int code;
    if (note_blocks(v, op, a->exec, a->address, a->stretch, op->bytes))
        return OK;
    switch (op->kind) {
    case LOAD:
        if (poll)
            return poll_flags(v, op, a->exec, a->address, pc, *poll);
        return shadow_reads(v, op, a->exec, a->address, a->stretch, a->result, pc);
    case STORE: return shadow_writes(v, op, a->exec, a->address, a->stretch, a->data);
    default: /* ATOMIC */
        code =
            check_alignment(m, a->exec, a->address, op->bytes, op->bytes, ATOMIC_MISALIGNED, true);
        if (!code && op->atomic == SWAP && a->result >= 0 && m->undefined)
            for (uint64_t left = a->exec; left; left &= left - 1)
                note_lds_load(m, op, v, a->result, first_lane(left), a->address[first_lane(left)],
                              pc);
        if (code)
            return code;
        return poll ? poll_flags(v, op, a->exec, a->address, pc, *poll)
                    : shadow_atomics(v, op, a->exec, a->address);
    }
}

/* Move the dwords of lanes whose addresses are contiguous. */
static void move_stretch(struct machine *m, const struct operation *op, struct lds_view *v,
                         const struct lds_access *a) {
    const size_t bytes = (size_t)a->stretch.lanes * sizeof(uint32_t);
    const int first = a->stretch.first;
    uint8_t *place = v->bytes + a->address[first];
    if (op->kind == LOAD) {
        memcpy(vector_row(m, a->result, v->wave) + first, place, bytes);
        return;
    }
    const uint32_t *row = vector_row(m, a->data, v->wave) + first;
    memory_changes += memcmp(place, row, bytes) != 0;
    memcpy(place, row, bytes);
}

/* Move a dword of each lane. */
static void move_dwords(struct machine *m, const struct operation *op, struct lds_view *v,
                        uint64_t exec, const struct lds_access *a) {
    if (op->kind == LOAD) {
        uint32_t *row = vector_row(m, a->result, v->wave);
        if (exec == ~0ull)
            for (int lane = 0; lane < LANES; lane++)
                memcpy(row + lane, v->bytes + a->address[lane], sizeof *row);
        else
            for (uint64_t left = exec; left; left &= left - 1)
                memcpy(row + first_lane(left), v->bytes + a->address[first_lane(left)],
                       sizeof *row);
        return;
    }
    const uint32_t *row = vector_row(m, a->data, v->wave);
    uint32_t changed = 0;
    for (uint64_t left = exec; left; left &= left - 1) { /* lane 0 first: addresses may coincide */
        int lane = first_lane(left);
        uint8_t *place = v->bytes + a->address[lane];
        uint32_t before, data = row[lane];
        memcpy(&before, place, sizeof before);
        changed |= before ^ data;
        memcpy(place, &data, sizeof data);
    }
    memory_changes += changed != 0;
}

static void move_access(struct machine *m, const struct operation *op, struct lds_view *v,
                        uint64_t exec, const struct lds_access *a) {
    size_t pitch = (size_t)m->row_dwords;
    bool single = op->format == DWORDS && op->dwords == 1 && op->kind != ATOMIC && !a->partial;
    if (single && a->stretch.lanes) {
        move_stretch(m, op, v, a);
        return;
    }
    if (single) {
        move_dwords(m, op, v, exec, a);
        return;
    }
    const uint8_t *count = a->partial ? a->count : NULL;
    uint8_t *pointer[LANES];
    point(v, a->address, pointer);
    switch (op->kind) {
    case LOAD:
        load_lanes(op, vector_row(m, a->result, v->wave), pitch, exec, pointer, count);
        return;
    case STORE:
        store_lanes(op, vector_row(m, a->data, v->wave), pitch, exec, pointer, count);
        return;
    default: /* ATOMIC */
        atomic_lanes(op, vector_row(m, a->data, v->wave),
                     op->data2 >= 0 && !op->pair ? vector_row(m, op->data2, v->wave) : NULL,
                     a->result >= 0 ? vector_row(m, a->result, v->wave) : NULL, pitch, exec,
                     pointer, count);
    }
}

/* Look for lanes that have stored to one address; those of a stretch have not. */
static int find_lane_race(struct machine *m, const struct operation *op, const struct lds_view *v,
                          uint64_t exec, const struct lds_access *access) {
    uint8_t *pointer[2][LANES];
    struct stored stored[2];
    for (int i = op->pair; i >= 0; i--) {
        const struct lds_access *a = &access[i];
        const uint32_t *row = vector_row(m, a->data, v->wave);
        bool single = op->format == DWORDS && op->dwords == 1 && !op->pair && !a->partial;
        bool alone = a->stretch.lanes && !op->pair;
        if (alone || (single && !lost_dwords(v->bytes, a->address, row, exec)))
            return OK;
        point(v, a->address, pointer[i]);
        stored[i] = (struct stored){row, (size_t)m->row_dwords, exec, pointer[i],
                                    a->partial ? a->count : NULL};
    }
    for (int i = 0; i <= op->pair; i++) {
        uint64_t lost = lost_lanes(op, &stored[i]);
        if (lost)
            return lane_race(m, op, &stored[i], i < op->pair ? &stored[1] : NULL, lost,
                             access[i].address[first_lane(lost)], access[i].data);
    }
    return OK;
}

static int find_update(struct machine *m, const struct operation *op, const struct lds_view *v,
                       uint64_t exec, const struct lds_access *a) {
    uint8_t *pointer[LANES];
    point(v, a->address, pointer);
    struct stored s = {vector_row(m, a->data, v->wave), 0, exec, pointer, NULL};
    int code = find_lost_update(m, op, &s, a->data);
    if (code)
        m->fault.address = a->address[m->fault.lane];
    return code;
}

/* `v` is the view of the previous wave, if there was one. */
static int memory_instruction(struct machine *m, const struct operation *op, int64_t wave,
                              uint64_t exec, uint32_t pc, struct lds_view *v) {
    struct lds_access access[2];
    int code = OK;
    for (int i = 0; i <= op->pair && !code; i++)
        code = resolve_lds(m, op, wave, exec, i, &access[i]);
    if (m->strict_alignment && op->kind != ATOMIC)
        for (int i = 0; i <= op->pair && !code; i++)
            code = check_alignment(m, access[i].exec, access[i].address,
                                   op->bytes == 12 ? 16 : op->bytes, op->bytes, MISALIGNED,
                                   op->kind != LOAD);
    const struct named_access *named = m->num_named ? named_access(m, pc) : NULL;
    for (int i = 0; named && i <= op->pair && !code; i++)
        code = check_variable(m, op, named, access[i].exec, access[i].address);
    if (code)
        return code;
    view_next(v, m, wave, how_it_writes(op));
    const int64_t *poll = v->flags ? poll_at(m, pc) : NULL;
    if (!poll) /* a wave that waits long keeps its earlier operations on record */
        note_issue(v, pc);
    bool is_noted = op->pair && !access[0].partial && !access[1].partial && !poll &&
                    note_pair(v, op, exec, access[0].address);
    for (int i = 0; i <= op->pair && !is_noted && !code; i++)
        code = check_access(m, op, v, &access[i], pc, poll);
    if (v->flags && !code && op->kind != LOAD && !op->pair && access[0].exec)
        release_flag(v, access[0].exec, access[0].address, op->kind == ATOMIC, (int32_t)v->seq);
    if (op->updates && !code && !access[0].partial && !ignores(m, LANE_RACE))
        code = find_update(m, op, v, exec, &access[0]);
    for (int i = 0; i <= op->pair && !code; i++)
        move_access(m, op, v, exec, &access[i]);
    if (code || op->kind != STORE || ignores(m, LANE_RACE))
        return code;
    return find_lane_race(m, op, v, exec, access);
}

/* Add or subtract the number of active lanes, once; every active lane receives the old value. */
static int append(struct machine *m, const struct operation *op, int64_t wave, uint64_t exec,
                  uint32_t pc) {
    uint32_t address[LANES];
    int lane = first_lane(exec);
    lds_addresses(m, op, wave, op->offset, address);
    int code = check_lds(m, 1ull << lane, address, 4, true);
    if (!code)
        code = check_alignment(m, 1ull << lane, address, 4, 4, ATOMIC_MISALIGNED, true);
    if (code)
        return code;
    struct lds_view v = lds_view(m, wave, BY_ATOMIC);
    note_issue(&v, pc);
    uint32_t old = 0, value, lanes = (uint32_t)__builtin_popcountll(exec);
    if (!outside_lds(m, 1ull << lane, address, 4)) {
        update_lanes(&v, 1ull << lane, address, 4, true);
        code = shadow_atomic(&v, lane, address[lane], 4, true);
        if (code)
            return code;
        memcpy(&old, v.bytes + address[lane], 4);
        value = op->atomic == ADD ? old + lanes : old - lanes;
        memcpy(v.bytes + address[lane], &value, 4);
        memory_changes += value != old;
    }
    uint32_t *row = vector_row(m, op->result, wave);
    for (uint64_t left = exec; left; left &= left - 1)
        row[first_lane(left)] = old;
    return OK;
}

/* -- transposing reads ------------------------------------------------------------------------- */

/* The undefined bits move like the data. */
static void transpose_undefined(struct machine *m, const struct operation *op,
                                const struct lds_view *v, uint64_t exec, const uint32_t *address,
                                uint32_t pc) {
    uint32_t read[LANES][3] = {{0}}, written[LANES][3];
    int32_t origin = origin_here(pc, FROM_LDS);
    bool found = false;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        found |= undefined_lds(v, address[lane], op->bytes, (uint8_t *)read[lane], &origin);
    }
    if (!found)
        return;
    transpose_tile(op, read, written);
    for (int lane = 0; lane < LANES; lane++)
        note_load(m, op, op->result, v->wave, lane, op->bytes, (const uint8_t *)written[lane],
                  address[lane], origin);
}

static int transpose(struct machine *m, const struct operation *op, int64_t wave, uint64_t exec,
                     uint32_t pc) {
    uint32_t address[LANES];
    if (~exec && raise(m, TRANSPOSE_PARTIAL, first_lane(~exec), 0, op->bytes, false)) {
        m->fault.lanes = ~exec;
        return TRANSPOSE_PARTIAL;
    }
    exec = ~0ull; /* each lane reads for others, too */
    lds_addresses(m, op, wave, op->offset, address);
    int code = check_lds(m, exec, address, op->bytes, false);
    if (!code)
        code = check_alignment(m, exec, address, op->bytes == 8 ? 8 : 16, op->bytes,
                               TRANSPOSE_MISALIGNED, false);
    if (code)
        return code;
    struct lds_view v = lds_view(m, wave, 0);
    note_issue(&v, pc);
    if (ignores(m, LDS_OUT_OF_BOUNDS))
        exec &= ~outside_lds(m, exec, address, op->bytes);
    update_lanes(&v, exec, address, op->bytes, false);
    uint64_t careful =
        plain_reads(&v, exec, address, find_stretch(exec, address, op->bytes), op->bytes);
    struct fault first;
    for (uint64_t left = careful; left; left &= left - 1) {
        int lane = first_lane(left), found = shadow_read(&v, lane, address[lane], op->bytes);
        code = collect(m, code, found, lane, &first);
    }
    if (code)
        return code;
    if (careful && m->undefined)
        transpose_undefined(m, op, &v, exec, address, pc);
    uint32_t read[LANES][3] = {{0}}, written[LANES][3];
    for (uint64_t left = exec; left; left &= left - 1)
        memcpy(read[first_lane(left)], v.bytes + address[first_lane(left)], (size_t)op->bytes);
    transpose_tile(op, read, written);
    for (int d = 0; d < op->dwords; d++) {
        uint32_t *row = vector_row(m, op->result + d, wave);
        for (int lane = 0; lane < LANES; lane++)
            row[lane] = written[lane][d];
    }
    return OK;
}

/* -- the waves --------------------------------------------------------------------------------- */

int lds_instruction(struct machine *m, const struct operation *op, const int64_t *ids,
                    int64_t first, int64_t step, int64_t count, uint32_t pc) {
    struct waves list = {ids, first, step, count};
    struct lds_view view = {0};
    const bool plain = may_be_plain(m, op);
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position);
        uint64_t exec = scalar64(m, EXEC, wave);
        int code = OK;
        if (!exec)
            continue;
        switch (op->kind) {
        case PERMUTE:
        case BPERMUTE:
        case SWIZZLE: code = exchange(m, op, wave, exec, pc); break;
        case TRANSPOSE: code = transpose(m, op, wave, exec, pc); break;
        case APPEND: code = append(m, op, wave, exec, pc); break;
        default:
            code = check_barriers(m, wave, exec);
            if (!code && !(plain && access_places(m, op, wave, exec, pc, &view)))
                code = memory_instruction(m, op, wave, exec, pc, &view);
        }
        if (code) {
            m->fault.position = (int32_t)position;
            m->fault.is_atomic = op->kind == ATOMIC || op->kind == APPEND;
            return code;
        }
    }
    return OK;
}
