/* Vector code for x86-64-v3: 8 floats, tiles of 6 x 16: 12 accumulators, 2 of b, 1 of a in 16 registers. */
#define VL      8
#define MR      6
#define NAME(x) x##_v3
#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2,fma")))
#else
#define TARGET
#endif
#include "kernels/isa.h"

const WfVec NAME(wf_vec) = {
    .level = 3,
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
