// Threads are coroutines, which run by priority in a seeded order.
//
// The first ready thread of the order runs until it waits, or until it wakes a thread that precedes
// it. So a thread may run far ahead of the others or far behind them, as on the hardware. With seed
// 0 the last threads (the producer's) have the highest priority, with seed 1 the lowest. Other
// seeds shuffle the warps and the threads within them, and sometimes move the running thread to the
// end. Loads land when no thread can run, which is the latest time possible, or at random times. If
// nothing can happen then, the model reports a deadlock. (The schedules are those of S. Burckhardt
// et al., "A randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010.)
#include "scheduler.hpp"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

// Switch stacks: save the registers that a function preserves under the x86-64 ABI.
asm(".text\n"
    ".globl hopper_switch\n"
    ".hidden hopper_switch\n"
    ".type hopper_switch,@function\n"
    "hopper_switch:\n" // (void **save, void *load)
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size hopper_switch,.-hopper_switch\n");
extern "C" void hopper_switch(void **save, void *load);

namespace hopper_model {

extern "C" {
const Place *hopper_place;
}

Cluster cluster;
Thread *running;
u64 seed;
char error_text[4096];

namespace {

constexpr u32 stack_bytes = 256 << 10;

List<Thread> threads;
List<u32> order; // threads by turn
u8 *ready;       // by turn
bool woken;      // since the running thread started
u64 random_state;
u8 *stacks;
u32 num_stacks;
void *main_stack;
sigjmp_buf top;
void (*entry)();

void describe(char *to, u32 size, const Thread &thread) {
    snprintf(to, size, "block %u, thread %u%s%s", thread.place.block.x, thread.index,
             thread.site ? ", in " : "", thread.site ? thread.site->function : "");
}

void switch_to_main() { hopper_switch(&running->stack, main_stack); }

void begin_thread() {
    entry();
    require_no_multiplications(*running);
    require_stores_read(*running);
    require_copies_landed(*running);
    running->done = true;
    --running->block->running;
    ready[running->turn] = 0;
    switch_to_main();
}

u32 first_ready() {
    const void *found = memchr(ready, 1, threads.size);
    return found ? static_cast<u32>(static_cast<const u8 *>(found) - ready) : threads.size;
}

// Let the threads that precede this one run.
void preempt() {
    if (seed > 1 && random_below(64) == 0) {
        const u32 turn = running->turn, last = threads.size - 1;
        Thread &other = threads[order[last]];
        const u8 other_ready = ready[last];
        order[last] = order[turn], order[turn] = static_cast<u32>(&other - threads.items);
        ready[last] = ready[turn], ready[turn] = other_ready;
        running->turn = last, other.turn = turn;
    }
    if (first_ready() < running->turn)
        switch_to_main();
}

void shuffle(u32 *items, u32 count) {
    for (u32 i = count; i > 1; --i) {
        const u32 other = random_below(i), item = items[i - 1];
        items[i - 1] = items[other];
        items[other] = item;
    }
}

void make_order() {
    order.clear();
    const u32 count = threads.size, warps = (count + warp_size - 1) / warp_size;
    List<u32> by_warp;
    for (u32 warp = 0; warp < warps; ++warp)
        by_warp.push(seed == 0 ? warps - 1 - warp : warp);
    if (seed > 1)
        shuffle(by_warp.items, warps);
    for (u32 warp : by_warp) {
        const u32 first = order.size;
        for (u32 lane = 0; lane < warp_size && warp * warp_size + lane < count; ++lane)
            order.push(warp * warp_size + lane);
        if (seed > 1)
            shuffle(order.items + first, order.size - first);
    }
    free(by_warp.items);
    for (u32 turn = 0; turn < count; ++turn)
        threads[order[turn]].turn = turn;
}

void report_deadlock() {
    u32 length = static_cast<u32>(
        snprintf(error_text, sizeof(error_text), "deadlock: nothing can go on, and"));
    for (u32 i = 0; i < threads.size; ++i) {
        const Thread &t = threads[i];
        const auto same = [&t](const Thread &u) {
            return !u.done && u.block == t.block && u.waits_for == t.waits_for &&
                   memcmp(u.wait_details, t.wait_details, sizeof(t.wait_details)) == 0;
        };
        bool first = !t.done;
        u32 count = 0;
        for (u32 j = 0; j < threads.size; ++j)
            if (same(threads[j])) {
                first = first && j >= i;
                ++count;
            }
        if (!first || length + 200 > sizeof(error_text))
            continue;
        char what[200];
        snprintf(what, sizeof(what), t.waits_for, t.wait_details[0], t.wait_details[1],
                 t.wait_details[2]);
        length += static_cast<u32>(snprintf(error_text + length, sizeof(error_text) - length,
                                            "\n  block %u: %u threads from %u on wait for %s",
                                            t.place.block.x, count, t.index, what));
    }
}

// Do one step of the cluster; return whether there was one to do.
bool step() {
    if (seed > 1 && random_below(16) == 0)
        land_a_load();
    const u32 turn = first_ready();
    if (turn == threads.size)
        return land_a_load();
    running = &threads[order[turn]];
    hopper_place = &running->place;
    woken = false;
    hopper_switch(&main_stack, running->stack);
    running = nullptr;
    return true;
}

void on_signal(int number, siginfo_t *info, void *) {
    char who[160] = "the model";
    if (running)
        describe(who, sizeof(who), *running);
    snprintf(error_text, sizeof(error_text), "%s: %s", who,
             number == SIGILL ? "an index outside its array" : "an access outside every array");
    if (number != SIGILL) {
        const size_t length = strlen(error_text);
        snprintf(error_text + length, sizeof(error_text) - length, ", at %p", info->si_addr);
    }
    siglongjmp(top, 1);
}

// Catch plain loads and stores of a kernel outside the arrays, which end at guard pages.
struct SignalGuard {
    struct sigaction before[3];
    stack_t stack_before;
    static constexpr int numbers[3] = {SIGSEGV, SIGBUS, SIGILL};

    SignalGuard() {
        static u8 stack[1 << 16];
        stack_t own = {};
        own.ss_sp = stack;
        own.ss_size = sizeof(stack);
        sigaltstack(&own, &stack_before);
        struct sigaction action = {};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (u32 i = 0; i < 3; ++i)
            sigaction(numbers[i], &action, &before[i]);
    }
    void restore() {
        for (u32 i = 0; i < 3; ++i)
            sigaction(numbers[i], &before[i], nullptr);
        sigaltstack(&stack_before, nullptr);
    }
};

} // namespace

u32 random_below(u32 limit) { // splitmix64
    u64 z = random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return static_cast<u32>((z ^ z >> 31) >> 33) % limit;
}

void fail(const char *format, ...) {
    u32 length = 0;
    if (running) {
        describe(error_text, sizeof(error_text), *running);
        length = static_cast<u32>(strlen(error_text));
        length += static_cast<u32>(snprintf(error_text + length, sizeof(error_text) - length,
                                            running->text ? ": %.100s: " : ": ", running->text));
    }
    va_list values;
    va_start(values, format);
    vsnprintf(error_text + length, sizeof(error_text) - length, format, values);
    va_end(values);
    siglongjmp(top, 1);
}

void wait_on(Condition &condition, const char *what, u64 x, u64 y, u64 z) {
    Thread &thread = *running;
    thread.waits_for = what;
    thread.wait_details[0] = x, thread.wait_details[1] = y, thread.wait_details[2] = z;
    condition.waiting.push(&thread);
    ready[thread.turn] = 0;
    switch_to_main();
}

void wake(Condition &condition) {
    for (Thread *thread : condition.waiting)
        ready[thread->turn] = 1;
    condition.waiting.clear();
    woken = true;
}

void go_on() {
    if (woken || seed > 1) {
        woken = false;
        preempt();
    }
}

Thread &add_thread() { return threads.push(Thread{}); }

void begin_schedule(u64 given) {
    seed = given;
    random_state = given;
}

bool run_threads(void (*function)()) {
    entry = function;
    if (num_stacks < threads.size) {
        if (stacks)
            munmap(stacks, static_cast<size_t>(num_stacks) * stack_bytes);
        num_stacks = threads.size;
        stacks = static_cast<u8 *>(mmap(nullptr, static_cast<size_t>(num_stacks) * stack_bytes,
                                        PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    }
    ready = static_cast<u8 *>(malloc(threads.size));
    memset(ready, 1, threads.size);
    make_order();
    for (u32 i = 0; i < threads.size; ++i) {
        auto **stack = reinterpret_cast<void **>(stacks + (i + 1ull) * stack_bytes);
        *--stack = nullptr; // at a function's entry the stack is 8 bytes off a multiple of 16
        *--stack = reinterpret_cast<void *>(begin_thread);
        stack -= 6; // registers
        threads[i].stack = stack;
    }
    SignalGuard guard;
    bool succeeded = false;
    if (sigsetjmp(top, 1) == 0) {
        while (step())
            ;
        succeeded = true;
        for (const Thread &thread : threads)
            succeeded = succeeded && thread.done;
        if (!succeeded)
            report_deadlock();
    }
    guard.restore();
    running = nullptr;
    for (Thread &thread : threads) {
        free(thread.unfenced.items);
        free(thread.stores.items);
        free(thread.copies.items);
        free(thread.groups.items);
    }
    threads.clear();
    free(ready);
    return succeeded;
}

} // namespace hopper_model
