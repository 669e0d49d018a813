/* Products of float32 matrices on AMX tiles, which multiply bfloat16 and add float32.
 *
 * A float32 x is exactly h + m + l, three bfloat16: h is x rounded, m the rest rounded, l the rest of that. Of the nine
 * products of two such sums the six largest are taken (all but m l', l m' and l l', together at most 2^-24 of |x y|, as
 * much as rounding one product costs); each is exact, and they are added in float32. So a result is as close to the exact
 * one as that of fused multiply-adds, at 16 / 6 of their peak. Values below 2^-126 count as zero, as do such parts.
 *
 * A packed operand is laid out as the tiles read it: panels of 32 rows of A (columns of B), in a panel the steps of 32
 * along K, in a step h, m, l, of each the two halves of 16, 1 KB each. A word holds elements q and q + 16 along K of a step,
 * so that packing needs no shuffles. Beyond the edges are zeros. */
#ifndef WF_KERNELS_AMX_H
#define WF_KERNELS_AMX_H

#include "kernels/kernels.h"

enum { WF_AMX_SIDE = 32, WF_AMX_STEP = 6144 /* bytes of a step of a panel */ };

/* Does this processor have AMX, and does the system let this process use it? Asks for it the first time. */
bool wf_amx_available(void);

/* Bytes of `outer` rows of A (or columns of B), k deep. */
static inline int64_t wf_amx_bytes(int64_t outer, int64_t k)
{
    return (outer + WF_AMX_SIDE - 1) / WF_AMX_SIDE * ((k + WF_AMX_SIDE - 1) / WF_AMX_SIDE) * WF_AMX_STEP;
}

/* Packs x: element (i, p), i along the outer dim and p along K, lies at x[i * outer_stride + p * k_stride]; one of the two
 * strides is 1. False when a value is infinite, NaN, or rounds to infinity: what was packed is not to be multiplied then. */
bool wf_amx_pack_a(int64_t outer, int64_t k, const float *x, int64_t outer_stride, int64_t k_stride, void *out);
bool wf_amx_pack_b(int64_t outer, int64_t k, const float *x, int64_t outer_stride, int64_t k_stride, void *out);

/* c[m, n] = (+=) a b (+ bias[j * bias_stride], when that is not NULL), rows of c ldc apart. */
void wf_amx_multiply(int64_t m, int64_t n, int64_t k, const void *a, const void *b, float *c, int64_t ldc, bool add,
                     const float *bias, int64_t bias_stride);

#endif
