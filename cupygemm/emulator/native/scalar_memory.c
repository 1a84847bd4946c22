/* SMEM instructions. Rules: AMD's "CDNA3 Instruction Set Architecture", chapter 8 (scalar
 * memory). */
#include "addresses.h"
#include "global_shadow.h"
#include "lanes.h"
#include "stored_definedness.h"

/* Returns whether the load is undefined in part. */
static bool note_scalar_load(struct machine *m, const struct operation *op, int64_t wave,
                             uint64_t address, int64_t dwords, uint32_t pc) {
    uint8_t undefined[64];
    if (!undefined_global(m, address, (const uint8_t *)(uintptr_t)address, (int)(4 * dwords),
                          undefined))
        return false;
    for (int64_t i = 0; i < dwords; i++) {
        uint32_t bits;
        memcpy(&bits, undefined + 4 * i, 4);
        if (!bits)
            continue;
        m->undefined_scalar[(op->data + i) * m->num_waves + wave] = bits;
        m->origin_scalar[(op->data + i) * m->num_waves + wave] = origin_here(pc, FROM_GLOBAL);
        if (!m->num_undefined++)
            memset(m->undefined_address, 0, (size_t)m->num_waves * sizeof *m->undefined_address);
        if (!m->undefined_address[wave])
            m->undefined_address[wave] = address + (uint64_t)(4 * i) + 1;
    }
    return true;
}

/* A scalar atomic is checked and recorded like one in lane 0 of a vector instruction. */
static int scalar_atomic(struct machine *m, const struct operation *op, int64_t wave,
                         uint64_t address, uint32_t pc) {
    struct access a;
    a.exec = 1;
    a.to_lds = a.to_scratch = 0;
    a.adjacent = 0;
    a.partial = false;
    a.address[0] = address;
    a.bytes[0] = (uint8_t)op->bytes;
    a.pointer[0] = (uint8_t *)(uintptr_t)address;
    int code = check_memory(m, op, &a);
    if (!code)
        code = note_global(m, op, wave, &a, pc);
    if (code) {
        m->fault.lane = -1;
        m->fault.lanes = 0;
        return code;
    }
    size_t pitch = (size_t)m->num_waves;
    if (op->atomic == SWAP && op->result >= 0 && m->undefined)
        note_scalar_load(m, op, wave, address, op->dwords, pc);
    uint32_t *data = m->sgpr + op->data * m->num_waves + wave;
    atomic_lanes(op, data, op->data2 >= 0 ? m->sgpr + op->data2 * m->num_waves + wave : NULL,
                 op->result >= 0 ? data : NULL, pitch, 1, a.pointer, NULL);
    return OK;
}

/* A load that a wave has executed without a finding. Most waves load from the same address. */
struct loaded {
    bool found;
    uint64_t address;
    uint32_t words[16];
};

static uint64_t offset_of(const struct machine *m, const struct operation *op, int64_t wave) {
    return (uint64_t)op->offset + (op->scalar >= 0 ? scalar(m, op->scalar, wave) : 0);
}

/* Load or store `dwords` scalar registers, or exchange them atomically. A scalar buffer is a range
 * of bytes: loads past its end return 0 and stores there are dropped, dword by dword. An atomic
 * that extends past it returns 0 and changes nothing. So does an access outside the allocations
 * whose fault is ignored. EXEC is ignored. */
static int access_scalar(struct machine *m, const struct operation *op, int64_t wave, uint32_t pc,
                         struct loaded *latest) {
    uint64_t base = scalar64(m, op->resource, wave), dwords = (uint64_t)op->dwords;
    uint64_t offset = offset_of(m, op, wave);
    if (op->space == BUFFER) {
        struct buffer b = read_buffer(m, op, wave);
        uint64_t limit = b.stride ? b.stride * b.records : b.records;
        uint64_t rest = offset < limit ? (limit - offset) / 4 : 0;
        base = b.base;
        dwords = rest < dwords ? rest : dwords;
    }
    uint64_t address = base + offset;
    bool atomic = op->kind == ATOMIC, writes = atomic || op->kind == STORE, undefined = false;
    if (atomic && dwords < (uint64_t)op->dwords)
        dwords = 0;
    uint64_t alignment = atomic ? (uint64_t)op->bytes : 4;
    int code = OK;
    if (address & (alignment - 1) && dwords)
        code = raise(m, SCALAR_MISALIGNED, -1, address, op->bytes, writes);
    address &= ~(alignment - 1);
    if (!code && dwords && !inside(m, address, 4 * dwords)) {
        code = raise(m, OUT_OF_BOUNDS, -1, address, (int)(4 * dwords), writes);
        dwords = 0;
    }
    if (!code && dwords && op->kind == LOAD)
        code = note_scalar(m, op, wave, address, (int64_t)dwords, pc);
    if (!code && dwords && atomic)
        code = scalar_atomic(m, op, wave, address, pc);
    if (code)
        return code;
    if (writes && dwords && m->defined && watched(m, address))
        define_bytes(m, address, (int)(4 * dwords));
    if (atomic && (dwords || op->result < 0))
        return OK;
    if (!writes && dwords && m->undefined)
        undefined = note_scalar_load(m, op, wave, address, (int64_t)dwords, pc);
    uint32_t *words = latest->words, *registers = m->sgpr + op->data * m->num_waves + wave;
    memset(words, 0, sizeof latest->words);
    if (op->kind == LOAD)
        memcpy(words, (const void *)(uintptr_t)address, 4 * dwords);
    for (int64_t i = 0; i < op->dwords; i++) {
        if (op->kind != STORE) /* an atomic past the end returns 0 */
            registers[i * m->num_waves] = words[i];
        else if ((uint64_t)i < dwords) {
            void *place = (uint8_t *)(uintptr_t)address + 4 * i;
            memory_changes += memcmp(place, registers + i * m->num_waves, 4) != 0;
            memcpy(place, registers + i * m->num_waves, 4);
        }
    }
    latest->address = base + offset;
    latest->found = op->kind == LOAD && op->space != BUFFER && !undefined && !m->num_rivals &&
                    !m->num_stretches && dwords == (uint64_t)op->dwords;
    return OK;
}

/* The number of waves from a position on that load from an address. If there are several, their
 * registers are contiguous. */
static int64_t repeating_waves(const struct machine *m, const struct operation *op,
                               struct waves list, int64_t position, uint64_t address) {
    int64_t most = list.ids || list.step != 1 ? 1 : list.count - position, waves = 0;
    for (; waves < most; waves++) {
        int64_t wave = wave_at(list, position + waves);
        if (scalar64(m, op->resource, wave) + offset_of(m, op, wave) != address)
            break;
    }
    return waves;
}

int scalar_memory(struct machine *m, const struct operation *op, const int64_t *ids, int64_t first,
                  int64_t step, int64_t count, uint32_t pc) {
    struct waves list = {ids, first, step, count};
    struct loaded latest = {.found = false};
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position);
        uint32_t *registers = m->sgpr + op->data * m->num_waves + wave;
        int64_t alike = latest.found ? repeating_waves(m, op, list, position, latest.address) : 0;
        if (alike) {
            int64_t last = wave_at(list, position + alike - 1); /* records keep two waves */
            int code = note_scalar(m, op, last, latest.address, op->dwords, pc);
            if (code) {
                m->fault.position = (int32_t)(position + alike - 1);
                return code;
            }
            for (int64_t i = 0; i < op->dwords; i++)
                for (int64_t k = 0; k < alike; k++)
                    registers[i * m->num_waves + k] = latest.words[i];
            position += alike - 1;
            continue;
        }
        int code = access_scalar(m, op, wave, pc, &latest);
        if (code) {
            m->fault.position = (int32_t)position;
            m->fault.is_atomic = op->kind == ATOMIC;
            return code;
        }
    }
    return OK;
}
