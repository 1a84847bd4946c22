// Adds the parts of k that a split product left in its workspace, and rounds the sums once.
//
// The workspace is (split, batch, m, pitch) in fp32. A thread sums four columns, the parts in their
// order, so the result is the same bits each time. `config.cuh` defines `Config::ElementC` and
// whether C takes stores of four elements.
#include "common/numeric.hpp"
#include "config.cuh"

namespace cupygemm {

struct AddArgs {
    u64 workspace, c;
    i64 ldc;         // elements
    i64 c_stride[3]; // elements
    i32 batch0, batch1, batch2;
    u32 m, n;
    u32 pitch; // of the workspace, elements, a multiple of 4
    u32 num_splits;
};

struct Four {
    float value[4];
};

CUPYGEMM_INLINE Four load_four(const float *address) {
    Four four;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.value[0]), "=f"(four.value[1]), "=f"(four.value[2]),
                   "=f"(four.value[3])
                 : "l"(address));
    return four;
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(128) cupygemm_add_parts(const cupygemm::AddArgs args) {
    using namespace cupygemm;
    using Out = Numeric<Config::ElementC>;
    const u32 row_vectors = args.pitch / 4;
    const u32 index = blockIdx.x * 128 + threadIdx.x;
    const u32 row = index / row_vectors;
    if (row >= args.m)
        return;
    const u32 column = (index - row * row_vectors) * 4;
    const u32 batches = args.batch0 * args.batch1 * args.batch2;
    const u64 matrix = static_cast<u64>(args.m) * args.pitch;
    for (u32 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const float *part = reinterpret_cast<const float *>(args.workspace) + batch * matrix +
                            static_cast<u64>(row) * args.pitch + column;
        Four sum = load_four(part);
#pragma unroll 8
        for (u32 split = 1; split < args.num_splits; ++split) {
            const Four next = load_four(part + split * batches * matrix);
            for (int i = 0; i < 4; ++i)
                sum.value[i] += next.value[i];
        }
        const u32 index2 = batch % args.batch2, outer = batch / args.batch2;
        auto *to = reinterpret_cast<Out::Bits *>(args.c) + index2 * args.c_stride[2] +
                   outer % args.batch1 * args.c_stride[1] + outer / args.batch1 * args.c_stride[0] +
                   row * args.ldc + column;
        alignas(16) Out::Bits bits[4];
        for (int i = 0; i < 4; ++i)
            bits[i] = Out::round(sum.value[i]);
        if (Config::c_vectors && column + 4 <= args.n) {
            struct alignas(4 * sizeof(Out::Bits)) Pack {
                Out::Bits bits[4];
            };
            *reinterpret_cast<Pack *>(to) = Pack{{bits[0], bits[1], bits[2], bits[3]}};
        } else {
            for (u32 i = 0; i < 4; ++i)
                if (column + i < args.n)
                    to[i] = bits[i];
        }
    }
}
