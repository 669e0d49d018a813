/* Convolutions on the register tile of the matrix products; conv.c asks whether they take a call. */
#ifndef WF_KERNELS_CONVOLVE_H
#define WF_KERNELS_CONVOLVE_H

#include "kernels/private.h"

typedef enum { WF_CONV_FWD, WF_CONV_DATA, WF_CONV_WEIGHT } WfConvWhat;

typedef struct {
    WfConvWhat what;
    int spatial, src, weights, bias, dst; /* operand numbers; bias -1: none */
    bool has_bias;
    int64_t n, c, o, groups, in[3], out[3], kernel[3], dilation[3];
    int64_t stride[12], pad[12], pad_end[12]; /* as oneDNN's dims */
    int64_t w_stride[5];
    int64_t per, tiles; /* oneDNN: samples of a tile or range, and how many */
} WfConvShape;

bool wf_convolve_takes(const WfLibDesc *d, const WfConvShape *s);
void wf_convolve_sizes(const WfLibDesc *d, const WfConvShape *s, size_t *workspace, size_t *scratch);
void wf_convolve_create(WfArena *arena, const WfLibDesc *d, const WfConvShape *s, WfLib *lib);
/* The weight gradient, for the three above. */
void wf_convolve_weight_sizes(const WfLibDesc *d, const WfConvShape *s, size_t *workspace, size_t *scratch);
void wf_convolve_weight_create(WfArena *arena, const WfLibDesc *d, const WfConvShape *s, WfLib *lib);

/* Weight gradients of depthwise convolutions (depthwise.c); no scratch. */
bool wf_depthwise_takes(const WfConvShape *s);
void wf_depthwise_sizes(const WfLibDesc *d, const WfConvShape *s, size_t *workspace);
void wf_depthwise_create(WfArena *arena, const WfLibDesc *d, const WfConvShape *s, WfLib *lib);

/* All three in float64; no workspace, no scratch. */
void wf_conv_f64_create(WfArena *arena, const WfConvShape *s, WfLib *lib);

/* What one position of the output reads along one dim: n positions of the source from `src` on, by the taps
 * from `tap` on. */
typedef struct {
    int32_t src, tap, n;
} WfConvRun;
/* Forward: out positions of a dim of size `in`. */
void wf_conv_runs_forward(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                          WfConvRun *run);

/* Adds n floats of `ranges` of samples, `apart` from each other, into the first: (0+1)+(2+3). */
static inline void wf_conv_add_ranges(int64_t ranges, int64_t apart, int64_t n, float *at)
{
    for (int64_t step = 1; step < ranges; step *= 2)
        for (int64_t r = 0; r + step < ranges; r += 2 * step)
            for (int64_t e = 0; e < n; e++)
                at[r * apart + e] += at[(r + step) * apart + e];
}

/* Copies n floats in vectors; reads and writes up to 15 more. */
static inline void wf_conv_copy(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        __builtin_memcpy(to + i, from + i, 64);
}

#endif
