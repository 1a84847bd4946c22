// Atomic read-modify-write functions with relaxed order, at the scope of the device (plain name),
// the system (_system) or the block (_block). Each returns the previous value.
#pragma once

#include <device/keywords.h>

// Defines a function at its three scopes; the body uses the scope under the name `scope`.
#define HIP_ATOMIC_SCOPES(type, name, parameters, arguments, ...)                                  \
    template <int scope>                                                                           \
    HIP_DEVICE type hip_##name parameters __VA_ARGS__ HIP_DEVICE type name parameters {            \
        return hip_##name<__HIP_MEMORY_SCOPE_AGENT> arguments;                                     \
    }                                                                                              \
    HIP_DEVICE type name##_system parameters {                                                     \
        return hip_##name<__HIP_MEMORY_SCOPE_SYSTEM> arguments;                                    \
    }                                                                                              \
    HIP_DEVICE type name##_block parameters {                                                      \
        return hip_##name<__HIP_MEMORY_SCOPE_WORKGROUP> arguments;                                 \
    }

#define HIP_ATOMIC(type, name, builtin)                                                            \
    HIP_ATOMIC_SCOPES(type, name, (type * address, type value), (address, value),                  \
                      { return builtin(address, value, __ATOMIC_RELAXED, scope); })

#define HIP_ATOMIC_CAS(type)                                                                       \
    HIP_ATOMIC_SCOPES(                                                                             \
        type, atomicCAS, (type * address, type compare, type value), (address, compare, value), {  \
            __hip_atomic_compare_exchange_strong(address, &compare, value, __ATOMIC_RELAXED,       \
                                                 __ATOMIC_RELAXED, scope);                         \
            return compare;                                                                        \
        })

#define HIP_ATOMIC_SUB(type)                                                                       \
    HIP_ATOMIC_SCOPES(type, atomicSub, (type * address, type value), (address, value), {           \
        return __hip_atomic_fetch_add(address, (type) - value, __ATOMIC_RELAXED, scope);           \
    })

#define HIP_ATOMIC_ARITHMETIC(type)                                                                \
    HIP_ATOMIC(type, atomicAdd, __hip_atomic_fetch_add)                                            \
    HIP_ATOMIC_SUB(type)                                                                           \
    HIP_ATOMIC(type, atomicMin, __hip_atomic_fetch_min)                                            \
    HIP_ATOMIC(type, atomicMax, __hip_atomic_fetch_max)                                            \
    HIP_ATOMIC(type, atomicExch, __hip_atomic_exchange)

#define HIP_ATOMIC_LOGICAL(type)                                                                   \
    HIP_ATOMIC(type, atomicAnd, __hip_atomic_fetch_and)                                            \
    HIP_ATOMIC(type, atomicOr, __hip_atomic_fetch_or)                                              \
    HIP_ATOMIC(type, atomicXor, __hip_atomic_fetch_xor)                                            \
    HIP_ATOMIC_CAS(type)

HIP_ATOMIC_ARITHMETIC(int)
HIP_ATOMIC_ARITHMETIC(unsigned int)
HIP_ATOMIC_ARITHMETIC(unsigned long)
HIP_ATOMIC_ARITHMETIC(unsigned long long)
HIP_ATOMIC_ARITHMETIC(float)
HIP_ATOMIC_ARITHMETIC(double)
HIP_ATOMIC(long long, atomicMin, __hip_atomic_fetch_min)
HIP_ATOMIC(long long, atomicMax, __hip_atomic_fetch_max)
HIP_ATOMIC(long long, atomicExch, __hip_atomic_exchange)
HIP_ATOMIC_LOGICAL(int)
HIP_ATOMIC_LOGICAL(unsigned int)
HIP_ATOMIC_LOGICAL(unsigned long)
HIP_ATOMIC_LOGICAL(unsigned long long)
HIP_ATOMIC_CAS(unsigned short)
HIP_ATOMIC_CAS(long long)
HIP_ATOMIC_CAS(float)
HIP_ATOMIC_CAS(double)

// atomicInc stores old >= value ? 0 : old + 1, atomicDec old == 0 || old > value ? value : old - 1.
// Each is one instruction: a loop of atomicCAS would wait for earlier stores, and hide that no
// fence orders them.
#define HIP_ATOMIC_WRAP(name, builtin, scope)                                                      \
    HIP_DEVICE unsigned int name(unsigned int *address, unsigned int value) {                      \
        return builtin(address, value, __ATOMIC_RELAXED, scope);                                   \
    }
HIP_ATOMIC_WRAP(atomicInc, __builtin_amdgcn_atomic_inc32, "agent")
HIP_ATOMIC_WRAP(atomicInc_system, __builtin_amdgcn_atomic_inc32, "")
HIP_ATOMIC_WRAP(atomicInc_block, __builtin_amdgcn_atomic_inc32, "workgroup")
HIP_ATOMIC_WRAP(atomicDec, __builtin_amdgcn_atomic_dec32, "agent")
HIP_ATOMIC_WRAP(atomicDec_system, __builtin_amdgcn_atomic_dec32, "")
HIP_ATOMIC_WRAP(atomicDec_block, __builtin_amdgcn_atomic_dec32, "workgroup")
#undef HIP_ATOMIC_WRAP

HIP_DEVICE void atomicAddNoRet(float *address, float value) { (void)atomicAdd(address, value); }
#define HIP_ATOMIC_SAFETY(type, name)                                                              \
    HIP_DEVICE type unsafeAtomic##name(type *address, type value) {                                \
        return atomic##name(address, value);                                                       \
    }                                                                                              \
    HIP_DEVICE type safeAtomic##name(type *address, type value) {                                  \
        return atomic##name(address, value);                                                       \
    }
HIP_ATOMIC_SAFETY(float, Add)
HIP_ATOMIC_SAFETY(float, Max)
HIP_ATOMIC_SAFETY(float, Min)
HIP_ATOMIC_SAFETY(double, Add)
HIP_ATOMIC_SAFETY(double, Max)
HIP_ATOMIC_SAFETY(double, Min)
#undef HIP_ATOMIC_SAFETY

// Adds to a pair of 16-bit floats, where the target has no instruction for it.
template <typename Pair> HIP_DEVICE Pair hip_add_by_exchange(Pair *address, Pair value) {
    unsigned int *word = (unsigned int *)address, before = *(volatile unsigned int *)word, seen;
    do {
        seen = before;
        Pair sum = __builtin_bit_cast(Pair, seen) + value;
        before = atomicCAS(word, seen, __builtin_bit_cast(unsigned int, sum));
    } while (before != seen);
    return __builtin_bit_cast(Pair, before);
}

#undef HIP_ATOMIC
#undef HIP_ATOMIC_ARITHMETIC
#undef HIP_ATOMIC_CAS
#undef HIP_ATOMIC_LOGICAL
#undef HIP_ATOMIC_SCOPES
#undef HIP_ATOMIC_SUB
