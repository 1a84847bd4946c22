#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { MAX_HELPERS = 63 };
enum { SPINS = 200 }; /* about as long as sleeping and waking take: some 10 us */

/* The current job. `ticket` holds the number of the job in its high half and the next part in its
 * low half, so that a helper that wakes late cannot take a part of another job. */
static struct {
    void (*work)(void *, int64_t);
    void *context;
    int64_t parts;
    _Atomic uint64_t ticket;
    _Atomic int64_t finished;
} job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t started = PTHREAD_COND_INITIALIZER;
static atomic_flag in_use = ATOMIC_FLAG_INIT;
static _Atomic int asleep;
static _Atomic int64_t threads = 1;
static int helpers; /* that exist in this process */

static void take_parts(uint64_t number) {
    uint64_t ticket = atomic_load(&job.ticket);
    while (ticket >> 32 == number && (int64_t)(ticket & 0xFFFFFFFF) < job.parts) {
        if (!atomic_compare_exchange_weak(&job.ticket, &ticket, ticket + 1))
            continue;
        job.work(job.context, (int64_t)(ticket & 0xFFFFFFFF));
        atomic_fetch_add(&job.finished, 1);
        ticket = atomic_load(&job.ticket);
    }
}

static void *help(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    for (;;) {
        uint64_t number = atomic_load(&job.ticket) >> 32;
        for (int i = 0; number == seen && i < SPINS; i++) {
            relax();
            number = atomic_load(&job.ticket) >> 32;
        }
        if (number == seen) {
            pthread_mutex_lock(&lock);
            atomic_fetch_add(&asleep, 1);
            while ((number = atomic_load(&job.ticket) >> 32) == seen)
                pthread_cond_wait(&started, &lock);
            atomic_fetch_sub(&asleep, 1);
            pthread_mutex_unlock(&lock);
        }
        seen = number;
        take_parts(number);
    }
    return NULL;
}

/* A child process has none of its parent's helpers. */
static void forget_helpers(void) {
    helpers = 0;
    atomic_store(&asleep, 0);
    atomic_flag_clear(&in_use);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&started, NULL);
}

static void start_helpers(void) {
    static bool registered;
    if (!registered)
        pthread_atfork(NULL, NULL, forget_helpers);
    registered = true;
    while (helpers < threads - 1 && helpers < MAX_HELPERS) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, help, NULL))
            break;
        pthread_detach(thread);
        helpers++;
    }
}

/* Use `count` threads from now on, including the calling one. */
void set_threads(int64_t count) { atomic_store(&threads, count < 1 ? 1 : count); }

int64_t num_threads(void) { return atomic_load(&threads); }

void share(void (*work)(void *context, int64_t part), void *context, int64_t parts) {
    if (parts < 2 || atomic_load(&threads) < 2 || atomic_flag_test_and_set(&in_use)) {
        for (int64_t part = 0; part < parts; part++)
            work(context, part);
        return;
    }
    start_helpers();
    uint64_t number = atomic_load(&job.ticket) >> 32;
    atomic_store(&job.ticket, number++ << 32 | 0xFFFFFFFF); /* for a helper that is still on it */
    job.work = work;
    job.context = context;
    job.parts = parts;
    atomic_store(&job.finished, 0);
    atomic_store(&job.ticket, number << 32);
    if (atomic_load(&asleep)) {
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&started);
        pthread_mutex_unlock(&lock);
    }
    take_parts(number);
    for (int i = 0; atomic_load(&job.finished) < parts; i++)
        if (i < SPINS)
            relax();
        else
            sched_yield();
    atomic_flag_clear(&in_use);
}
