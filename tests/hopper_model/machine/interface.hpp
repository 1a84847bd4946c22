// The interface between a kernel and the machine.
#pragma once

namespace hopper_model {

struct Index {
    unsigned x, y, z;
};

struct Place {
    Index thread, block, grid;
};

// An operand of an asm statement: a value with its constraint.
struct Operand {
    void *address;
    unsigned bytes;
    const char *constraint;
};

// An asm statement.
struct Site {
    const char *text, *function;
    void *program; // parsed
};

extern "C" {
extern const Place *hopper_place; // of the running thread
void hopper_execute(Site *site, const Operand *operands, int count);
void hopper_syncthreads();
void hopper_syncwarp();
unsigned hopper_shuffle(unsigned value, unsigned lane);
unsigned hopper_ballot(unsigned condition);
unsigned hopper_shared_address(const void *pointer);
void *hopper_dynamic_shared();
[[noreturn]] void hopper_misaligned(const void *pointer, unsigned long multiple);
}

} // namespace hopper_model
