/* A memory instruction with its operands resolved. units/memory/operation.py mirrors
 * `struct operation`, field for field, and the enumerations. */
#ifndef CUPYGEMM_OPERATION_H
#define CUPYGEMM_OPERATION_H

#include <stdint.h>

enum { LANES = 64 };

enum space { GLOBAL, FLAT, SCRATCH, BUFFER, LDS };
enum kind { LOAD, STORE, ATOMIC, LOAD_TO_LDS, TRANSPOSE, PERMUTE, BPERMUTE, SWIZZLE, APPEND };

/* The layout of a lane's data in memory and in its registers. */
enum format {
    DWORDS,
    U8,
    S8,
    U16,
    S16,
    U8_LOW,
    S8_LOW,
    U16_LOW,
    U8_HIGH,
    S8_HIGH,
    U16_HIGH,
    TYPED
};

/* The place of 16-bit data of a typed access: none, two in a register, or the upper half alone. */
enum d16 { NO_D16, D16_PACKED, D16_HIGH };

enum atomic {
    SWAP,
    CMPSWAP,
    ADD,
    SUB,
    RSUB,
    SMIN,
    UMIN,
    SMAX,
    UMAX,
    AND,
    OR,
    XOR,
    INC,
    DEC,
    MSKOR,
    WRAP,
    FADD,
    FMIN,
    FMAX,
    FCMPSWAP,
    PK_ADD_F16,
    PK_ADD_BF16,
    CONDXCHG,
};

/* Registers are rows of the register files, -1 for none. */
struct operation {
    int32_t space, kind, format, atomic;
    int32_t dwords;  /* registers of one access */
    int32_t bytes;   /* of memory that one access of a lane touches */
    int32_t address; /* first VGPR of the address */
    int32_t wide;    /* the address is 64 bits */
    int32_t data;    /* first register stored, or first operand of an atomic */
    int32_t data2;   /* second operand of an atomic, or second value stored */
    int32_t result;  /* first register loaded or returned */
    int32_t scalar;  /* SADDR, SOFFSET or SBASE register */
    int32_t resource;
    int32_t offen, idxen;
    int32_t pair;         /* DS: two accesses, at `offset` and `offset2` */
    int32_t element_bits; /* of a transposing read */
    int32_t add_lane;     /* DS: the address is M0 + 4 * lane */
    int32_t coherent;     /* bypasses the caches: an atomic load or store */
    int32_t updates;      /* stores a sum with the value read there (units/memory/updates.py) */
    int32_t channels;     /* TYPED: components in registers */
    int32_t d16;          /* TYPED: enum d16 */
    int32_t data_format;  /* TYPED: of the element, -1: the resource's */
    int32_t number;       /* TYPED: numeric format, likewise */
    int32_t selects;      /* TYPED: DST_SEL, 3 bits for each channel */
    int64_t offset, offset2;
    uint32_t m0_mask;     /* bits of M0 that are an LDS address */
    uint32_t constant;    /* added to a buffer address with SOFFSET */
    uint8_t lanes[LANES]; /* source lane of a swizzle */
};

#endif
