/* Vector code for x86-64-v4: 16 floats, tiles of 14 x 32: 28 accumulators, 2 of b, 1 of a in 32 registers. */
#define VL      16
#define MR      14
#define NAME(x) x##_v4
#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))
#else
#define TARGET
#endif
#include "kernels/isa.h"

const WfVec NAME(wf_vec) = {
    .level = 4,
    .nr = 2 * VL,
    .mr = MR,
    .panel = panel,
    .pack_a = pack_a,
    .packed_block = packed_block,
    .pack_b_row = pack_b_row,
    .pack_b = pack_b,
    .block = block,
    .softmax_step = softmax_step,
    .probability = probability,
    .softmax_back = softmax_back,
    .dots = dots,
    .scale_row = scale_row,
    .exp = exp_rows,
    .sigmoid = sigmoid_rows,
    .tanh = tanh_rows,
    .cell = cell,
    .cell_back = cell_back,
    .depthwise_row = depthwise_row,
};
