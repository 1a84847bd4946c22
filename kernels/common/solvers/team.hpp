// A team: the workgroups that factor one panel together, and their exchange of records.
//
// In each step of a panel, every workgroup publishes one record, and reads the records of all
// others. The records go through global memory:
//
//   store the record | fence | barrier | flag = step + 1 | wait for all flags | load all records
//
// The flags must be zero before the launch. All workgroups of a team must be resident at the same
// time. A team is far smaller than a GPU, so it fits unless other kernels fill the GPU, and these
// end. Records alternate between two places: a workgroup writes the record of step s + 2 only after
// all flags of step s + 1 are set, and then all records of step s have been read.
#pragma once

#include "common/solvers/scalar.hpp"

namespace cupygemm {

// The memory in which the teams of a launch exchange: flags first, then records.
template <u32 size> CUPYGEMM_INLINE u32 *team_flags(u64 workspace, u32 team) {
    return reinterpret_cast<u32 *>(workspace) + team * size;
}

// Stores words to the same place in the shared memory of another workgroup of the team, and waits
// until all have been stored. Only teams of one, and the teams of hopper/team.cuh, can do so.
template <u32 size> struct TeamMemory {
    static_assert(size == 1, "workgroups of this team share no memory but that of the device");
    template <class Word> CUPYGEMM_INLINE static void give(Word *place, u32, Word word) {
        *place = word;
    }
    CUPYGEMM_INLINE static void barrier() { workgroup_barrier(); }
};

template <class Word, u32 size, u32 record_words> struct Team {
    static constexpr u32 places = size == 1 ? 2 : 1;    // a team of one does not wait between steps
    alignas(16) Word slots[places][size][record_words]; // the records of the last exchange

    CUPYGEMM_INLINE const Word *record(u32 step, u32 rank) const {
        return slots[step % places][rank];
    }

    // Publish the record in shared memory, whose words from `end` on are zero. Called by 32 threads
    // of the workgroup.
    CUPYGEMM_INLINE void publish(u64 records, u32 rank, u32 step, u32 lane, const Word *record,
                                 u32 end = record_words) {
        if constexpr (size == 1) {
            for (u32 i = lane; i < record_words; i += 32)
                slots[step % places][0][i] = i < end ? record[i] : 0;
        } else {
            Word *place =
                reinterpret_cast<Word *>(records) + (step % 2 * size + rank) * record_words;
            for (u32 i = lane; i < record_words; i += 32)
                device_store(place + i, i < end ? record[i] : Word{0});
            device_fence();
        }
    }

    // Wait for the records of all workgroups. Called by every thread.
    template <u32 threads>
    CUPYGEMM_INLINE void exchange(u32 *flags, u64 records, u32 rank, u32 step, u32 thread) {
        workgroup_barrier(); // the record of this workgroup is published
        if constexpr (size > 1) {
            if (thread == 0)
                device_store(flags + rank, step + 1);
            for (u32 other = thread; other < size; other += threads)
                while (device_load(flags + other) <= step) {
                }
            device_fence();
            workgroup_barrier(); // every flag of this step has been seen
            const Word *place =
                reinterpret_cast<const Word *>(records) + step % 2 * size * record_words;
            for (u32 i = thread; i < size * record_words; i += threads)
                slots[0][i / record_words][i % record_words] = device_load(place + i);
            workgroup_barrier(); // the records are in shared memory
        }
    }

    CUPYGEMM_INLINE void begin() {}
};

// Whether the rows of pivots arrive later than their heads, as in clusters (hopper/team.cuh).
template <u32 size> constexpr bool rows_are_late = false;

// The same for records of a head and a row; every workgroup publishes one.
template <class Word, u32 size, u32 groups, u32 head_words, u32 row_words> struct PivotTeam
    : Team<Word, size, head_words + row_words> {
    static constexpr u32 slots = size;
    static constexpr u64 records_bytes = 2 * size * (head_words + row_words) * sizeof(Word);

    // The words of a head from `word` on, up to a multiple of 16 bytes.
    CUPYGEMM_INLINE const Word *head(u32 step, u32 slot, u32 word) const {
        return this->record(step, slot) + word;
    }
    CUPYGEMM_INLINE const Word *row(u32 step, u32 slot) const {
        return this->record(step, slot) + head_words;
    }
};

} // namespace cupygemm
