// The epilogue: from accumulators to output elements.
//
//   out = round(clamp(scale_out * activation(alpha * scale_a * scale_b * acc + beta * c + bias)))
//
// The kernel's Config names the terms that are present; they are composed at compile time. Each
// operand of the epilogue is a Source: a scalar, one value per row, one per column, or a matrix.
// Rows and columns are those of the C that the kernel computes. A lane fetches
//
//   One        once, at the start
//   Row        once for each row of its accumulators
//   Columns    once for each run of consecutive columns, shared by all rows
//   Elements   once for each run of each row
//
// and `finish` then returns the bits of one element. Each backend defines how a source is loaded:
// its `SourceMemory<Source>`, constructed for a tile, has a type `Run<count>`, of which `run[e]` is
// an element, and `load(run, row, column, left)`, which reads only the first `left` elements of the
// run, those inside the matrix.
//
// The arithmetic is fp32, or fp64 where the accumulators are fp64. Results are rounded once, here.
#pragma once

#include "common/activation.hpp"

namespace cupygemm {

// An operand of an epilogue in memory.
struct SourceArgs {
    u64 address;   // of the element at row 0 and column 0 of the first matrix
    i64 pitch;     // elements between neighbouring rows
    i64 stride[3]; // elements between matrices along each batch axis
};

// The scalars and sources of an epilogue. It must match
// cupygemm._backends.epilogue_args.EPILOGUE_ARGS. A scalar is stored as fp32 bits, or as fp64 bits
// where the accumulators are fp64.
struct EpilogueArgs {
    u64 alpha, beta, scale, low, high;
    SourceArgs scale_a, scale_b, c, bias, scale_out;
};

static_assert(sizeof(EpilogueArgs) == 240,
              "EpilogueArgs must match the dtype that the launcher packs");

enum class Along { none, one, row, column, matrix };

// The type of a source and the axes along which it varies. `vectors` says that every run of columns
// is aligned for vector loads.
template <class T, Along axes, bool aligned> struct Source {
    using Element = T;
    static constexpr Along along = axes;
    static constexpr bool vectors = aligned;
};
using NoSource = Source<f32, Along::none, false>;

// The type of the epilogue's arithmetic.
template <class Accumulator> struct ComputedIn {
    using Real = float;
};
template <> struct ComputedIn<double> {
    using Real = double;
};

CUPYGEMM_INLINE float number_of_bits(u64 bits, float) {
    return float_of_bits(static_cast<u32>(bits));
}
CUPYGEMM_INLINE double number_of_bits(u64 bits, double) { return double_of_bits(bits); }

// -- Rounding -------------------------------------------------------------------------------------

template <class Integer, class Real> CUPYGEMM_INLINE i32 saturated_integer(Real x) {
    constexpr bool is_signed = Integer(-1) < Integer(0);
    static_assert(sizeof(Integer) < 4 || is_signed, "u32 does not fit the i32 that is returned");
    constexpr i32 high = static_cast<i32>(~u32(0) >> (32 + is_signed - 8 * sizeof(Integer)));
    constexpr i32 low = is_signed ? -high - 1 : 0;
    x = nearest_integer(x);
    // 2^31 - 1 rounds to 2^31 in fp32, which no i32 holds, so compare before converting.
    const bool above = x >= static_cast<Real>(high), below = x <= static_cast<Real>(low);
    const i32 inside = static_cast<i32>(above || below || x != x ? Real(0) : x);
    return above ? high : below ? low : inside;
}

// Integers are rounded to nearest and saturate, and NaN becomes 0. 8-bit floats saturate in
// Numeric<Out>::round; wider floats overflow to infinity.
template <class Out, class Real>
CUPYGEMM_INLINE typename Numeric<Out>::Bits rounded_result(Real x) {
    if constexpr (IsSame<Out, f64>::value)
        return Numeric<Out>::round(x);
    else if constexpr (IsInteger<Out>::value)
        return Numeric<Out>::round(saturated_integer<Out>(x));
    else
        return Numeric<Out>::round(static_cast<float>(x));
}

// -- Sources in memory ----------------------------------------------------------------------------

template <class S> struct SourceMemory;

// An absent source.
template <> struct SourceMemory<NoSource> {
    template <class Corner> CUPYGEMM_INLINE SourceMemory(const SourceArgs &, const Corner &) {}
};

template <class Parts> struct SourceMemories {
    SourceMemory<typename Parts::ScaleA> scale_a;
    SourceMemory<typename Parts::ScaleB> scale_b;
    SourceMemory<typename Parts::C> c;
    SourceMemory<typename Parts::Bias> bias;
    SourceMemory<typename Parts::ScaleOut> scale_out;

    template <class Corner>
    CUPYGEMM_INLINE SourceMemories(const EpilogueArgs &args, const Corner &tile)
        : scale_a(args.scale_a, tile), scale_b(args.scale_b, tile), c(args.c, tile),
          bias(args.bias, tile), scale_out(args.scale_out, tile) {}
};

// -- Fetched parts of the sources -----------------------------------------------------------------

// A run of a source that varies along the `wanted` axes, as SourceMemory loads it; empty for other
// sources.
template <class S, Along wanted, int count, bool present = S::along == wanted> struct Fetched {
    template <class Memory>
    CUPYGEMM_INLINE void load(const Memory &, u32 /*row*/, u32 /*column*/, i32 /*left*/) {}
};

template <class S, Along wanted, int count> struct Fetched<S, wanted, count, true> {
    typename SourceMemory<S>::template Run<count> run;

    template <class Memory>
    CUPYGEMM_INLINE void load(const Memory &memory, u32 row, u32 column, i32 left) {
        memory.load(run, row, column, left);
    }
};

// The runs of all sources that are added to an element or multiply it.
template <class Parts, Along wanted, int count> struct FetchedParts {
    Fetched<typename Parts::ScaleA, wanted, count> scale_a;
    Fetched<typename Parts::ScaleB, wanted, count> scale_b;
    Fetched<typename Parts::C, wanted, count> c;
    Fetched<typename Parts::Bias, wanted, count> bias;

    template <class Memories>
    CUPYGEMM_INLINE void load(const Memories &memories, u32 row, u32 column, i32 left) {
        scale_a.load(memories.scale_a, row, column, left);
        scale_b.load(memories.scale_b, row, column, left);
        c.load(memories.c, row, column, left);
        bias.load(memories.bias, row, column, left);
    }
};

// -- Epilogues ------------------------------------------------------------------------------------

// out = round(acc)
template <class Out> struct CastEpilogue {
    using Element = Out;
    using Bits = typename Numeric<Out>::Bits;
    struct Nothing {};
    using Row = Nothing;
    template <int run> using Columns = Nothing;
    template <int run> using Elements = Nothing;

    CUPYGEMM_INLINE void load(Nothing &, u32 /*row*/, u32 /*column*/, i32 /*left*/) const {}

    template <class Accumulator>
    CUPYGEMM_INLINE Bits finish(Accumulator acc, int /*e*/, Nothing, Nothing, Nothing) const {
        return Numeric<Out>::round(acc);
    }
};

// The formula above, restricted to the terms that `Parts` names. `Memories` holds a SourceMemory
// for each source.
template <class Parts, class Out, class Accumulator, class Memories> struct FusedEpilogue {
    using Element = Out;
    using Bits = typename Numeric<Out>::Bits;
    using Real = typename ComputedIn<Accumulator>::Real;
    static constexpr bool narrow = Numeric<Out>::bytes <= 2 && sizeof(Real) == 4;
    using One = FetchedParts<Parts, Along::one, 1>;
    using Row = FetchedParts<Parts, Along::row, 1>;
    template <int run> using Columns = FetchedParts<Parts, Along::column, run>;
    template <int run> using Elements = FetchedParts<Parts, Along::matrix, run>;

    const Memories memories;
    One one;
    Real alpha, beta, scale, low, high;

    CUPYGEMM_INLINE FusedEpilogue(const EpilogueArgs &args, const Memories &sources)
        : memories(sources), alpha(number_of_bits(args.alpha, Real())),
          beta(number_of_bits(args.beta, Real())), scale(number_of_bits(args.scale, Real())),
          low(number_of_bits(args.low, Real())), high(number_of_bits(args.high, Real())) {
        one.load(memories, 0, 0, 1);
        if constexpr (Parts::ScaleOut::along != Along::none) {
            Fetched<typename Parts::ScaleOut, Along::one, 1> fetched;
            fetched.load(memories.scale_out, 0, 0, 1);
            const Real factor = Numeric<typename Parts::ScaleOut::Element>::value(fetched.run[0]);
            scale = Parts::scale ? scale * factor : factor;
        }
    }

    // Fetch a Row, Columns or Elements. `left` counts the elements of the run that lie in the
    // matrix.
    template <class Fetch>
    CUPYGEMM_INLINE void load(Fetch &fetch, u32 row, u32 column, i32 left) const {
        fetch.load(memories, row, column, left);
    }

    // Return the bits of element `e` of a run.
    template <class Columns, class Elements>
    CUPYGEMM_INLINE Bits finish(Accumulator acc, int e, const Row &row, const Columns &columns,
                                const Elements &elements) const {
        return rounded_result<Out>(computed(acc, e, row, columns, elements));
    }

    // Return the same element before it is rounded.
    template <class Columns, class Elements>
    CUPYGEMM_INLINE Real computed(Accumulator acc, int e, const Row &row, const Columns &columns,
                                  const Elements &elements) const {
        Real x = static_cast<Real>(acc);
        if constexpr (Parts::alpha)
            x *= alpha;
        if constexpr (Parts::ScaleA::along != Along::none)
            x *= value<typename Parts::ScaleA>(one.scale_a, row.scale_a, columns.scale_a,
                                               elements.scale_a, e);
        if constexpr (Parts::ScaleB::along != Along::none)
            x *= value<typename Parts::ScaleB>(one.scale_b, row.scale_b, columns.scale_b,
                                               elements.scale_b, e);
        if constexpr (Parts::C::along != Along::none)
            x = fma_of(beta, value<typename Parts::C>(one.c, row.c, columns.c, elements.c, e), x);
        if constexpr (Parts::Bias::along != Along::none)
            x += value<typename Parts::Bias>(one.bias, row.bias, columns.bias, elements.bias, e);
        x = Parts::Activation::template of<narrow>(x);
        if constexpr (Parts::scale || Parts::ScaleOut::along != Along::none)
            x *= scale;
        if constexpr (Parts::clamp)
            x = x < low ? low : x > high ? high : x; // NaN stays NaN
        return x;
    }

private:
    template <class S, class A, class R, class C, class M> CUPYGEMM_INLINE static Real
    value(const A &one, const R &row, const C &columns, const M &elements, int e) {
        using Type = Numeric<typename S::Element>;
        if constexpr (S::along == Along::one)
            return static_cast<Real>(Type::value(one.run[0]));
        else if constexpr (S::along == Along::row)
            return static_cast<Real>(Type::value(row.run[0]));
        else if constexpr (S::along == Along::column)
            return static_cast<Real>(Type::value(columns.run[e]));
        else
            return static_cast<Real>(Type::value(elements.run[e]));
    }
};

} // namespace cupygemm
