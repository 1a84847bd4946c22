/* The state of a batch of waves as C sees it, and common parts of all memory instructions.
 *
 * units/memory/machine.py mirrors `struct machine`, field for field. A C function executes one
 * instruction for a list of waves, one wave after another and lane 0 first. It returns 0, or the
 * code of the fault at which it stopped and which `struct fault` describes. */
#ifndef CUPYGEMM_MACHINE_H
#define CUPYGEMM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "access_records.h"
#include "operation.h"

enum { EXEC = 126, M0 = 124, VCC = 106, HISTORY = 256 };
enum { GRANULE = 16, LINE = 128, RELEASES = 16 };
enum { COARSEST = 4 }; /* shadow_shift of the largest granules of LDS */

enum fault_code {
    OK,
    OUT_OF_BOUNDS,     /* outside every allocation */
    LDS_OUT_OF_BOUNDS, /* outside the workgroup's LDS */
    LDS_UNINITIALISED, /* atomic on a byte that nothing has written */
    RACE_READ,         /* of a byte that another wave wrote, not ordered by a barrier */
    RACE_WRITE_READ,   /* write over a byte that another wave read */
    RACE_WRITE_WRITE,  /* write over a byte that another wave wrote */
    GLOBAL_RACE_READ,  /* the same three in global memory, between any waves of the launch */
    GLOBAL_RACE_WRITE_READ,
    GLOBAL_RACE_WRITE_WRITE,
    LDS_LOAD_IN_FLIGHT, /* read of a byte that the wave's own direct-to-LDS load has yet to write */
    SCRATCH_OUT_OF_BOUNDS,
    SCRATCH_MISALIGNED,
    ATOMIC_MISALIGNED,
    SCALAR_MISALIGNED,
    TRANSPOSE_MISALIGNED,
    TRANSPOSE_PARTIAL,    /* transposing read with lanes switched off */
    LDS_LOAD_MISALIGNED,  /* direct-to-LDS load to an address that is no multiple of 4 */
    MISALIGNED,           /* plain access, where that is checked */
    MEMORY_UNINITIALISED, /* atomic on global memory that nothing has written */
    UNDEFINED_STORE,      /* store to global memory of what depends on such bytes or registers */
    UNDEFINED_ATOMIC,     /* the same as the operand of an atomic */
    STREAM_RACE_READ,     /* three kinds of race in global memory with work of other streams */
    STREAM_RACE_WRITE_READ,
    STREAM_RACE_WRITE_WRITE,
    LANE_RACE,          /* lanes of a wave that store different values to the same bytes */
    SKIPPED_BARRIER,    /* access of lanes that were not at a barrier of their wave */
    INACTIVE_LANE,      /* use of what an exchange read in a lane that was switched off */
    OTHER_VARIABLE,     /* access to LDS outside the variable that the source names */
    UNSEEN_WRITE,       /* read of what another workgroup has stored and keeps in its own L2 */
    TYPED_FORMAT,       /* typed access to a format that does not exist or is not emulated */
    TYPED_SELECTS,      /* typed store through a resource that exchanges components */
    TYPED_SWIZZLED,     /* typed access of more than a dword to a swizzled buffer */
    TYPED_MISALIGNED,   /* typed access that is not aligned to its element, of up to a dword */
    STALE_LINE,         /* load of a line that the L1 may hold from before a store to it */
    LANE_ADDRESS,       /* lane exchange whose address is no multiple of 4 */
    NEEDS_FINER_SHADOW, /* not a fault: the caller refines the shadow memory and resumes */
};

/* The bytes that a copy, a fill or a library call in another stream accesses, unordered with this
 * launch: `run` bytes in each `pitch` from `start`. */
struct stretch {
    uint64_t start, end, pitch, run;
    int64_t writes;
};

/* The bytes of the variable in LDS that an instruction's source names; -1 if it may be any variable
 * that is the same in all lanes (units/lds/shared_arrays.py). */
struct named_access {
    int64_t pc, low, high;
};

/* The places at which a wave issued its recent operations, for reports. */
struct issue {
    uint32_t seq;
    uint32_t pc;
};

struct fault {
    int32_t position; /* of the wave in the list */
    int32_t lane;
    uint64_t address;
    int32_t bytes;
    int32_t other_wave;    /* within the workgroup (in global memory, the launch), -1 if none */
    int64_t other_pc;      /* -1 if unknown */
    int32_t other_seq;     /* number of the other wave's LDS operation, 0 if unknown */
    int32_t other_by_load; /* it was a direct-to-LDS load, numbered among those of vmcnt */
    int32_t writes;        /* the access writes */
    int32_t is_atomic;
    int32_t reg;    /* the register with undefined bits */
    uint64_t lanes; /* all lanes with the same fault */
    int64_t other;  /* of a race between streams: the time of the other access, or minus the number
                       of its stretch, from 1; of a race between lanes: the other lane */
};

/* The number of stores and atomics that have changed a byte of memory, LDS or private memory in
 * this process. While it does not change, a wave whose registers repeat does so for ever
 * (emulator/liveness). Each function that writes memory for a kernel adds to it; concurrent threads
 * may lose counts, but the number always changes. */
extern int64_t memory_changes;

struct machine {
    uint32_t *vgpr; /* (512, num_waves, 64), rows are row_dwords apart */
    uint32_t *sgpr; /* (128, num_waves) */
    uint8_t *lds;   /* (workgroups, lds_bytes) */
    uint8_t *scratch;
    struct record *shadow;    /* (workgroups, shadow_stride) */
    struct lds_block *blocks; /* (workgroups, shadow_stride / TOGETHER, rounded up), by `first` */
    struct lds_pending *pending; /* (workgroups,) */
    struct lds_load *loads;      /* (workgroups, PENDING_LOADS * waves_per_group) */
    uint8_t *settled;            /* (workgroups, as many as `blocks`) enum settled */
    const int32_t *workgroup;
    const int32_t *wave_in_group;
    const int32_t *wave_ids; /* (workgroups, 16): index in the batch of each wave of a workgroup */
    const int32_t *lds_issued;
    const int32_t *lds_released;
    const int32_t *lds_waited;
    const int32_t *vm_issued;
    const int32_t *vm_released;
    const int32_t *vm_waited;
    const int32_t *barrier_epoch;
    const uint64_t *starts; /* sorted bounds of the memory that the kernel may access */
    const uint64_t *ends;
    struct issue *lds_history; /* (HISTORY, num_waves), by sequence number modulo HISTORY */
    struct issue *vm_history;
    struct lds_flags *flags; /* (workgroups,) NULL: no loop of the kernel waits for a flag in LDS */
    int32_t *reads; /* (workgroups, shadow_stride, waves_per_group) with flags: last read of each */
    const int64_t *polls; /* (num_polls, 2) of instructions that wait: program counter, condition */
    const struct named_access *named; /* (num_named,) ascending */
    const int64_t *variables;         /* (num_variables, 2) of LDS: first byte, one past the last */
    struct global_record *global_shadow; /* NULL: races in global memory are not checked */
    struct line_record *global_lines;
    const int32_t *vm_passed;
    const uint8_t *without_write_back; /* of each dword of code: no write-back can follow */
    const int64_t *pcs;                /* (num_waves,) */
    const int32_t
        *written_back;        /* (num_waves,) operations before the latest write-back of the L2 */
    uint32_t *clock;          /* vector memory operations of all launches */
    uint32_t *acquired;       /* (workgroups,) time of the latest atomic */
    uint32_t *invalidated;    /* (workgroups,) latest invalidation of L1; NULL: not needed */
    struct release *releases; /* (num_waves, RELEASES), newest first */
    const struct interval *rivals;   /* (num_rivals,) ascending */
    const struct stretch *stretches; /* (num_stretches,) */
    uint8_t *defined;                /* a bit for each byte from global_base: it was written */
    uint32_t *undefined; /* (512, num_waves, 64) undefined bits of the vector registers, as vgpr */
    uint32_t *undefined_scalar; /* (129, num_waves) and of the scalar registers */
    int32_t *origin;            /* (512, num_waves) origins of these bits, see definedness.h */
    int32_t *origin_scalar;     /* (129, num_waves) */
    uint8_t *lds_undefined;     /* undefined bits of LDS, where its records say TAINTED */
    int32_t *lds_origin;        /* (workgroups, lds_bytes / 4) */
    uint8_t *scratch_defined;   /* bits of private memory that have been written */
    int32_t *scratch_origin;    /* of each 4 bytes of private memory */
    uint64_t
        *undefined_address; /* (num_waves,) of the first lane of a load that found such bytes */
    uint8_t *scc;           /* (num_waves,) */
    uint64_t *launched;     /* (num_waves,) lanes that have a work-item */
    uint64_t *skipped;      /* (num_waves,) lanes that skipped a barrier; NULL: not checked */
    int64_t *skipped_at;    /* (num_waves,) program counter of the first such barrier */
    int64_t row_dwords;     /* from a vector register to the next, of one wave */
    int64_t num_waves;
    int64_t num_ranges;
    int64_t lds_bytes;
    int64_t scratch_bytes; /* per lane */
    int64_t shadow_stride; /* records of a workgroup */
    int64_t shadow_shift;  /* log2 of the bytes that a record covers */
    uint64_t scratch_base; /* address in a private segment buffer resource */
    uint64_t shared_aperture;
    uint64_t private_aperture;
    int64_t bank_shift; /* log2 of the LDS banks */
    int64_t needed_shift;
    uint64_t global_base, global_end; /* the range that the shadow of global memory covers */
    uint64_t arguments, arguments_bytes;
    int64_t num_groups; /* workgroups of the batch */
    int64_t waves_per_group;
    int64_t first_wave;   /* of the batch, within the launch */
    int64_t launch_start; /* the clock at the start of the launch */
    int64_t num_rivals, num_stretches;
    int64_t num_polls, num_named, num_variables, num_without_write_back;
    int64_t communicates;  /* workgroups may wait for each other, by atomics or past the caches */
    int64_t lds_orders;    /* waves may order one another by flags or atomics in LDS */
    int64_t num_xcds;      /* 1: stores reach all workgroups without a write-back */
    int64_t num_undefined; /* lanes whose load found undefined bytes */
    int64_t strict_alignment; /* plain accesses must be aligned to their size */
    int64_t tainted;          /* a register that the instruction reads has undefined bits */
    int64_t mode;             /* MODE of the executing waves */
    int64_t num_skipped;      /* 0: no lane has skipped a barrier */
    int64_t defers;           /* loads from LDS may be listed */
    uint64_t code_base;       /* address of the code object */
    uint64_t ignored;         /* bits of the fault codes that are not raised */
    struct fault fault;
};

/* The waves that execute the instruction: an index array, or first, first + step, ... */
struct waves {
    const int64_t *ids;
    int64_t first, step, count;
};

/* Arrays of lanes begin at a cache line, so that no vector crosses two. */
#define LINE_ALIGNED _Alignas(64)

static inline int64_t wave_at(struct waves w, int64_t position) {
    return w.ids ? w.ids[position] : w.first + position * w.step;
}

static inline uint32_t *vector_row(const struct machine *m, int64_t reg, int64_t wave) {
    return m->vgpr + reg * m->row_dwords + wave * LANES;
}

static inline uint32_t *undefined_row(const struct machine *m, int64_t reg, int64_t wave) {
    return m->undefined + reg * m->row_dwords + wave * LANES;
}

static inline int32_t *origin_of(const struct machine *m, int64_t reg, int64_t wave) {
    return m->origin + reg * m->num_waves + wave;
}

static inline uint32_t scalar(const struct machine *m, int64_t reg, int64_t wave) {
    return m->sgpr[reg * m->num_waves + wave];
}

static inline uint64_t scalar64(const struct machine *m, int64_t reg, int64_t wave) {
    return scalar(m, reg, wave) | (uint64_t)scalar(m, reg + 1, wave) << 32;
}

static inline uint64_t low_bits(int n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }

/* The alignment of an access of `bytes` bytes. */
static inline uint64_t alignment_of(int bytes) { return bytes == 12 ? 4 : (uint64_t)bytes; }

static inline bool ignores(const struct machine *m, int code) { return m->ignored >> code & 1; }

/* The first lane of a mask: for (uint64_t m = mask; m; m &= m - 1) visits each lane. */
static inline int first_lane(uint64_t mask) { return __builtin_ctzll(mask); }

/* Describe a fault and return its code, or return OK if it is ignored. */
static inline int raise(struct machine *m, int code, int lane, uint64_t address, int bytes,
                        bool writes) {
    if (ignores(m, code))
        return OK;
    m->fault.lane = lane;
    m->fault.address = address;
    m->fault.bytes = bytes;
    m->fault.writes = writes;
    m->fault.is_atomic = false;
    m->fault.other_wave = -1;
    m->fault.other_pc = -1;
    m->fault.reg = -1;
    m->fault.lanes = lane >= 0 ? 1ull << lane : 0;
    return code;
}

/* The same for further lanes: the first is described, the others are counted. */
static inline int raise_more(struct machine *m, int before, int code, int lane, uint64_t address,
                             int bytes, bool writes) {
    if (!before || ignores(m, code))
        return before ? before : raise(m, code, lane, address, bytes, writes);
    m->fault.lanes |= 1ull << lane;
    return before;
}

/* The same if each lane's check has described its own fault in m->fault; `first` keeps the one
 * that is reported. */
static inline int collect(struct machine *m, int before, int code, int lane, struct fault *first) {
    if (!before && !code)
        return OK;
    if (!before)
        *first = m->fault;
    else if (code == before)
        first->lanes |= 1ull << lane;
    m->fault = *first; /* a check without a fault in the end may have written it */
    return before ? before : code;
}

/* Find the range of allocations that may contain an address: the last that starts at or below it.
 * Most accesses are to the same range as the previous one, which threads may overwrite for each
 * other. */
static inline int64_t find_range(const struct machine *m, uint64_t address) {
    static int64_t latest;
    int64_t low = __atomic_load_n(&latest, __ATOMIC_RELAXED), high = m->num_ranges;
    if (low < high && m->starts[low] <= address &&
        (low + 1 == high || address < m->starts[low + 1]))
        return low;
    low = 0;
    while (low < high) { /* the first start > address */
        int64_t middle = (low + high) / 2;
        if (m->starts[middle] <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low)
        __atomic_store_n(&latest, low - 1, __ATOMIC_RELAXED);
    return low - 1;
}

static inline bool inside(const struct machine *m, uint64_t first, uint64_t bytes) {
    int64_t range = find_range(m, first);
    return range >= 0 && first < m->ends[range] && bytes <= m->ends[range] - first;
}

/* Check that `bytes[lane]` bytes at `address[lane]` are in one allocation, for the lanes of `exec`.
 * Nearly always all lanes share one, so the lowest and the highest address are looked up first. */
static inline int check_global(struct machine *m, uint64_t exec, const uint64_t *address,
                               const uint8_t *bytes, bool writes) {
    uint64_t low = ~0ull, high = 0;
    for (int lane = 0; lane < LANES; lane++) {
        bool counts = exec >> lane & 1 && bytes[lane];
        uint64_t first = counts ? address[lane] : ~0ull;
        uint64_t end = counts ? address[lane] + bytes[lane] : 0;
        low = first < low ? first : low;
        high = end > high ? end : high;
    }
    if (low == ~0ull || (high > low && inside(m, low, high - low)))
        return OK;
    int code = OK;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        if (bytes[lane] && !inside(m, address[lane], bytes[lane]))
            code = raise_more(m, code, OUT_OF_BOUNDS, lane, address[lane], bytes[lane], writes);
    }
    return code;
}

#endif
