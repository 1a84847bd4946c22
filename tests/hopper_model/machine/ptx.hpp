// The arguments of a PTX instruction, as its handler sees them.
#pragma once

#include "machine.hpp"

namespace hopper_model {

// A reference of an instruction to an operand of the asm, to a declared register, or to a number.
struct Reference {
    enum Kind { operand, variable, number, sink, special } kind;
    i64 value; // its position, or the number
};

struct Instruction {
    char name[128];
    char text[160]; // as written, perhaps shortened
    Handler handler;
    i32 guard; // variable, -1 without
    bool guard_negated;
    List<List<Reference>> arguments; // a vector or an address is a list
    i32 target;                      // of a branch
};

constexpr u32 max_variables = 8;

struct Arguments {
    const Instruction &instruction;
    const Operand *operands;
    i32 count;
    u64 *variables;
    bool branched;

    const List<Reference> &list(u32 argument) const {
        return instruction.arguments.items[argument];
    }
    const Operand &operand(u32 argument, u32 item = 0) const;
    u64 value(u32 argument, u32 item = 0) const;
    float real(u32 argument, u32 item = 0) const;
    void set(u32 argument, u64 value, u32 item = 0) const;
    void set_real(u32 argument, float value) const;
    bool has(const char *qualifier) const; // such as "multicast::cluster"
};

} // namespace hopper_model
