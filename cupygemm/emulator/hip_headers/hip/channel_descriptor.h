// The format of an array's elements: bits of each component, and their kind. A part of HIP, all of
// which comes with its runtime header.
#pragma once

#include <device/hip.h>
#include <hip/hip_runtime_api.h>

template <typename T> struct CupygemmComponents {
    using type = T;
    static constexpr int count = 1;
};
template <typename T, unsigned n> struct CupygemmComponents<HIP_vector_type<T, n>> {
    using type = T;
    static constexpr int count = n;
};

template <typename T> constexpr hipChannelFormatDesc hipCreateChannelDesc() {
    using Components = CupygemmComponents<T>;
    using Element = typename Components::type;
    constexpr int bits = 8 * sizeof(Element), count = Components::count;
    constexpr auto kind = Element(0.5) != Element(0) ? hipChannelFormatKindFloat
                          : Element(-1) < Element(0) ? hipChannelFormatKindSigned
                                                     : hipChannelFormatKindUnsigned;
    return {bits, count > 1 ? bits : 0, count > 2 ? bits : 0, count > 3 ? bits : 0, kind};
}
