// A team of workgroups that is a thread-block cluster: records go from shared memory to shared
// memory, and a barrier of the cluster orders them. The interface is that of
// common/solvers/team.hpp; it needs no workspace. Source: PTX ISA 9.0, "mapa",
// "st.shared::cluster".
#pragma once

#include "common/solvers/scalar.hpp"

namespace cupygemm {

template <u32 size> CUPYGEMM_INLINE u32 *team_flags(u64, u32) { return nullptr; }

CUPYGEMM_INLINE u32 address_at_rank(const void *shared, u32 rank) {
    u32 address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(rank));
    return address;
}

CUPYGEMM_INLINE void store_at(u32 address, u32 word) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
CUPYGEMM_INLINE void store_at(u32 address, u64 word) {
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(address), "l"(word) : "memory");
}

// A barrier of all threads of the cluster, after which their stores are visible to each other.
CUPYGEMM_INLINE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

template <u32 size> struct TeamMemory {
    template <class Word> CUPYGEMM_INLINE static void give(Word *place, u32 rank, Word word) {
        store_at(address_at_rank(place, rank), word);
    }
    CUPYGEMM_INLINE static void barrier() { cluster_barrier(); }
};

template <class Word, u32 size, u32 record_words> struct Team {
    alignas(16) Word slots[2][size][record_words]; // by the parity of the step

    CUPYGEMM_INLINE const Word *record(u32 step, u32 rank) const { return slots[step % 2][rank]; }

    CUPYGEMM_INLINE void publish(u64, u32 rank, u32 step, u32 lane, const Word *record) {
        for (u32 i = lane; i < size * record_words; i += 32) {
            const u32 word = i % record_words;
            store_at(address_at_rank(&slots[step % 2][rank][word], i / record_words), record[word]);
        }
    }

    template <u32 threads> CUPYGEMM_INLINE void exchange(u32 *, u64, u32, u32 step, u32) {
        cluster_barrier(); // every record of this step is in this workgroup's shared memory
    }

    // The shared memory of every workgroup of the team exists.
    CUPYGEMM_INLINE void begin() { cluster_barrier(); }
};

// Store 16 bytes to the shared memory of a workgroup of the cluster, and count them at a barrier
// there.
CUPYGEMM_INLINE void store_and_count(u32 address, const u32 (&words)[4], u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], "
                 "{%1, %2, %3, %4}, [%5];" ::"r"(address),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(barrier)
                 : "memory");
}

// The messages of some steps, each from one sender to all `size` workgroups, and barriers that
// count their bytes. A place is used again after `places` steps.
template <u32 size, u32 places, u32 messages, u32 bytes> struct Inbox {
    u64 barriers[places];

    CUPYGEMM_INLINE u32 address(u32 step) const {
        return static_cast<u32>(__cvta_generic_to_shared(&barriers[step % places]));
    }
    CUPYGEMM_INLINE void expect(u32 step) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(step)),
                     "r"(messages * bytes)
                     : "memory");
    }
    CUPYGEMM_INLINE void begin() {
        for (u32 step = 0; step < places; ++step)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(step)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (u32 step = 0; step < places; ++step)
            expect(step);
    }
    // Wait for the messages of a step, and expect those of the next step with this place.
    CUPYGEMM_INLINE void wait(u32 step, u32 thread) {
        u32 done = 0;
        while (!done)
            asm volatile("{\n.reg .pred p;\n"
                         "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                         "selp.u32 %0, 1, 0, p;\n}"
                         : "=r"(done)
                         : "r"(address(step)), "r"(step / places % 2)
                         : "memory");
        if (thread == 0)
            expect(step + places);
    }
    // Send a message, whose words from `end` on are zero, from shared memory to the same place in
    // every workgroup. There, consecutive groups of 16 bytes are `pitch` words apart, and the
    // places of consecutive steps `apart` words. Called by 32 threads.
    template <class Word> CUPYGEMM_INLINE void send(const Word *first_place, u32 apart, u32 pitch,
                                                    u32 step, u32 lane, const Word *message,
                                                    u32 end) const {
        constexpr u32 chunks = bytes / 16, count = 16 / sizeof(Word);
        static_assert(chunks <= 32 && 32 % chunks == 0, "a thread must send one chunk");
        const u32 chunk = lane % chunks, place = step % places;
        union {
            Word words[count];
            u32 parts[4];
        };
#pragma unroll
        for (u32 i = 0; i < count; ++i)
            words[i] = count * chunk + i < end ? message[count * chunk + i] : Word{0};
#pragma unroll
        for (u32 to = lane / chunks; to < size; to += 32 / chunks)
            store_and_count(address_at_rank(first_place + pitch * chunk, to) +
                                place * apart * static_cast<u32>(sizeof(Word)),
                            parts, address_at_rank(barriers, to) + place * 8);
    }
};

// The rows of pivots arrive later than their heads (common/solvers/lu_late_steps.hpp).
template <u32 size> constexpr bool rows_are_late = true;

// Candidates for the pivot send their heads to all workgroups: one candidate of each 32 threads if
// that makes at most 64, so that no workgroup needs its own barrier, and otherwise one of each
// workgroup. Only the row of the pivot is sent, and the threads wait for it two steps later.
//
// Heads alternate between two places. A group sends the head of step s + 2 only after it has the
// heads of step s + 1, and by then every group has read the heads of step s. Row s is sent after
// the heads of step s, before which every group has read row s - 3. So rows need three places, and
// have four.
template <class Word, u32 size, u32 groups, u32 head_words, u32 row_words> struct PivotTeam {
    static constexpr bool by_groups = size * groups <= 64;
    static constexpr u32 slots = by_groups ? size * groups : size;
    static constexpr u32 row_places = 4;
    static constexpr u32 chunk = 16 / sizeof(Word); // words of 16 bytes
    static constexpr u64 records_bytes = 0;
    // Lanes that compare heads read adjacent 16 bytes.
    alignas(16) Word heads[2][head_words / chunk][slots][chunk];
    alignas(16) Word rows[row_places][row_words];
    Inbox<size, 2, slots, head_words * sizeof(Word)> head_inbox;
    Inbox<size, row_places, 1, row_words * sizeof(Word)> row_inbox;

    // The words of a head from `word` on, up to a multiple of 16 bytes.
    CUPYGEMM_INLINE const Word *head(u32 step, u32 slot, u32 word) const {
        return &heads[step % 2][word / chunk][slot][word % chunk];
    }
    CUPYGEMM_INLINE const Word *row(u32 number) const { return rows[number % row_places]; }

    CUPYGEMM_INLINE void publish_head(u32 slot, u32 step, u32 lane, const Word *record) {
        head_inbox.send(head(0, slot, 0), slots * head_words, slots * chunk, step, lane, record,
                        head_words);
    }
    CUPYGEMM_INLINE void publish_row(u32 number, u32 lane, const Word *record, u32 end) {
        row_inbox.send(rows[0], row_words, chunk, number, lane, record, end);
    }
    CUPYGEMM_INLINE void wait_head(u32 step, u32 thread) { head_inbox.wait(step, thread); }
    CUPYGEMM_INLINE void wait_row(u32 number, u32 thread) { row_inbox.wait(number, thread); }

    // Every workgroup's barriers are ready.
    CUPYGEMM_INLINE void begin() {
        if (local_thread() == 0) {
            head_inbox.begin();
            row_inbox.begin();
        }
        cluster_barrier();
    }
};

} // namespace cupygemm
