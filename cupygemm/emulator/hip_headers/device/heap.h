// malloc, free, new and delete on the device, with one heap per module.
// A block has 16 << order bytes, of which the first 16 hold its order. Blocks are allocated from
// the heap in sequence; a freed block is pushed to the free list of its order, from which malloc
// takes it. A list is the place of its first block and a count of its changes, so an exchange fails
// if another thread has taken and returned that block in between. As in HIP, the heap has 8 MiB.
#pragma once

#include <device/keywords.h>

namespace cupygemm_heap {
typedef unsigned int place; // in the heap, in units of 16 bytes; 0 is none
constexpr place units = (8 << 20) / 16;
constexpr int orders = 20;

struct alignas(16) unit {
    place next;
    int order;
};
struct lists {
    place end; // end of the allocated part
    unsigned long long first[orders];
};
template <typename T> struct of_module {
    static __device__ T value;
};
template <typename T> __device__ T of_module<T>::value;
struct memory {
    unit all[units];
};

HIP_DEVICE unit *at(place where) { return &of_module<memory>::value.all[where]; }
HIP_DEVICE unsigned long long *list(int order) { return &of_module<lists>::value.first[order]; }
HIP_DEVICE unsigned long long with(unsigned long long list, place first) {
    return ((list >> 32) + 1) << 32 | first;
}
HIP_DEVICE bool exchange(unsigned long long *list, unsigned long long &before, place first) {
    return __hip_atomic_compare_exchange_strong(list, &before, with(before, first),
                                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE,
                                                __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> HIP_DEVICE T loaded(T *from) {
    return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
}

HIP_DEVICE place taken(int order) {
    unsigned long long before = loaded(list(order));
    while (place first = (place)before) {
        if (exchange(list(order), before, loaded(&at(first)->next)))
            return first;
    }
    return 0;
}
HIP_DEVICE place cut(place size) {
    place *end = &of_module<lists>::value.end, before = loaded(end);
    do {
        if (before + size > units - 1)
            return 0;
    } while (!__hip_atomic_compare_exchange_strong(end, &before, before + size, __ATOMIC_RELAXED,
                                                   __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT));
    return before + 1;
}
} // namespace cupygemm_heap

extern "C" {
inline __device__ void *malloc(size_t bytes) {
    using namespace cupygemm_heap;
    if (bytes > (units - 2) * sizeof(unit))
        return nullptr;
    place needed = (place)((bytes + sizeof(unit) - 1) / sizeof(unit)) + 1;
    int order = needed > 1 ? 32 - __builtin_clz(needed - 1) : 0;
    place found = taken(order);
    if (found == 0)
        found = cut((place)1 << order);
    if (found == 0)
        return nullptr;
    at(found)->order = order;
    return at(found + 1);
}

inline __device__ void free(void *block) {
    using namespace cupygemm_heap;
    if (block == nullptr)
        return;
    place freed = (place)((unit *)block - at(0)) - 1;
    unsigned long long *first = list(at(freed)->order), before = loaded(first);
    do {
        __hip_atomic_store(&at(freed)->next, (place)before, __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_AGENT);
    } while (!exchange(first, before, freed));
}
}

__attribute__((device)) inline void *operator new(size_t bytes) { return malloc(bytes); }
__attribute__((device)) inline void *operator new[](size_t bytes) { return malloc(bytes); }
__attribute__((device)) inline void operator delete(void *block) noexcept { free(block); }
__attribute__((device)) inline void operator delete[](void *block) noexcept { free(block); }
__attribute__((device)) inline void operator delete(void *block, size_t) noexcept { free(block); }
__attribute__((device)) inline void operator delete[](void *block, size_t) noexcept { free(block); }
