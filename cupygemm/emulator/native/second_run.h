/* The second run of an instruction, on undefined bits: its record, which definedness/native.py
 * mirrors, field for field. */
#ifndef CUPYGEMM_SECOND_RUN_H
#define CUPYGEMM_SECOND_RUN_H

#include "valu.h"

/* How the undefined bits of a result follow from those of the sources; definedness/rules.py
 * explains each rule. */
enum rule {
    EITHER,
    SAME,
    SUM,
    SHIFTED_SUM,
    LOGIC,
    SELECT,
    COMPARE,
    MOVE,
    READ_LANE,
    WRITE_LANE,
    ACCESS
};

/* Of two integers, or the opposite. */
enum relation { EQUAL, LESS, LESS_OR_EQUAL, SIGNED = 4 };

enum { MOST_REGISTERS = 16, FIRST_SCALAR = 512 };

/* Registers by number; a scalar one has FIRST_SCALAR added. */
struct registers {
    int32_t count;
    int32_t number[MOST_REGISTERS];
};

struct second_run {
    int32_t rule;               /* enum rule */
    int32_t origin_flags;       /* COMPUTED, or 0 if the bits only move */
    uint32_t moves;             /* of MOVE: a bit for each source whose bits move */
    uint32_t table;             /* of LOGIC: the truth table, see definedness/bits.py; of COMPARE:
                                   the relation, or SIGNED */
    struct registers addresses; /* of ACCESS: they must be defined in active lanes */
    struct registers sources, targets;
    /* Its sources[0] are the undefined bits, and sources[1] the values, or the undefined bits of
     * the second pass. */
    struct valu_operation operation;
};

#endif
