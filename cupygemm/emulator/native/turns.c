/* Run batches side by side, in the order that turns.h describes. */
#include "turns.h"
#include "following.h"
#include "threads.h"

#include <sched.h>

enum { SPINS = 500, PATIENCE = 2000 }; /* looks until a thread yields, and takes others' members */

static int32_t state_of(const struct member *m) {
    return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE);
}

static void set_state(struct member *m, enum member_state state) {
    __atomic_store_n(&m->state, state, __ATOMIC_RELEASE);
}

/* Let the next member that has not ended access device memory. */
void pass_turn(struct turns *t) {
    int64_t next = t->turn;
    for (int64_t k = 0; k < MEMBERS; k++) {
        next = (next + 1) % MEMBERS;
        if (state_of(t->members + next) != HAS_ENDED) {
            __atomic_store_n(&t->turn, next, __ATOMIC_RELEASE);
            return;
        }
    }
    __atomic_store_n(&t->turn, -1, __ATOMIC_RELEASE);
}

static void stop(struct turns *t, struct member *me) {
    set_state(me, CAN_RUN);
    __atomic_store_n(&t->stopped, 1, __ATOMIC_RELEASE);
}

/* Begin the member's next batch when one has ended and it is the member's turn. */
static void begin_next(struct turns *t, struct member *me) {
    struct loop *l = me->loop;
    struct following *f = l->following;
    if (t->first >= t->end) {
        set_state(me, HAS_ENDED);
        pass_turn(t);
        return;
    }
    if (!f || t->work <= 0) {
        stop(t, me);
        return;
    }
    int64_t first = t->first;
    t->work -= f->loop.work - l->work;
    t->first += t->groups;
    pass_turn(t);
    start_batch(l, f, first);
    me->event = NO_EVENT;
    set_state(me, CAN_RUN);
}

/* Run a member up to its next access, or from an access in its turn up to the one after. */
static void advance(struct turns *t, int64_t number) {
    struct member *me = t->members + number;
    if (me->event == NO_EVENT)
        me->event = run_batch(me->loop);
    if (me->event == AT_ACCESS) {
        me->event = NO_EVENT;
        set_state(me, WAITS);
    } else if (!has_turn(t, number)) {
        set_state(me, WAITS);
    } else if (me->event == DONE) {
        begin_next(t, me);
    } else {
        stop(t, me);
    }
}

/* Take a member that is in `state`. A member whose registers are in another core's cache is left to
 * that core for a while. */
static bool claim(struct turns *t, int64_t number, int32_t state, int64_t thread, int64_t looks) {
    struct member *m = t->members + number;
    int64_t owner = __atomic_load_n(&m->thread, __ATOMIC_RELAXED);
    if (state_of(m) != state || (owner != thread && looks < PATIENCE))
        return false;
    if (!__atomic_compare_exchange_n(&m->state, &state, RUNS, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return false;
    __atomic_store_n(&m->thread, thread, __ATOMIC_RELAXED);
    return true;
}

/* Return a member that can run, or -1 if all have ended or Python is needed. */
static int64_t next_member(struct turns *t, int64_t thread) {
    for (int64_t looks = 0;; looks++) {
        int64_t turn = __atomic_load_n(&t->turn, __ATOMIC_ACQUIRE);
        if (turn < 0 || __atomic_load_n(&t->stopped, __ATOMIC_ACQUIRE))
            return -1;
        if (claim(t, turn, WAITS, thread, looks))
            return turn;
        for (int64_t k = 0; k < MEMBERS; k++)
            if (claim(t, (turn + k) % MEMBERS, CAN_RUN, thread, looks))
                return (turn + k) % MEMBERS;
        if (looks < SPINS)
            relax();
        else
            sched_yield();
    }
}

static void take_turns(void *context, int64_t thread) {
    for (int64_t number; (number = next_member(context, thread)) >= 0;)
        advance(context, number);
}

/* Run until all members have ended, or the one whose turn it is needs Python. */
void run_turns(struct turns *t) {
    int64_t threads = num_threads() < MEMBERS ? num_threads() : MEMBERS;
    for (int64_t k = 0; k < MEMBERS; k++)
        if (t->members[k].thread < 0)
            t->members[k].thread = k % threads;
    t->stopped = 0;
    share(take_turns, t, threads);
}

int64_t size_of_turns(void) { return sizeof(struct turns); }
