/* Weight gradients of depthwise convolutions on channels-last activations: dW[c, tap] = the sum over samples and positions of
 * dy[c] x[c at the tap]. No product of matrices is in it: sixteen channels are the lanes of a vector.
 *
 * A tile is a block of sixteen channels, a row of taps and one of at most four ranges of samples; each of its rows of positions
 * goes through the taps of the row at once. Positions at whose tap there is only padding are left out. The rows of a sample are
 * added up, then samples, so that chains of additions stay short. A second phase adds the ranges in a balanced tree and puts the
 * sums into the caller's layout. The last block of channels begins early, so that it is full; it gives only what the one before
 * does not. */
#include <string.h>

#include "kernels/convolve.h"

enum { LANES = 16, TAPS_MOST = 32, TILES = 12, RANGES_MAX = 4, COMBINE = 8 };

typedef struct {
    const WfVec *vec;
    WfConvShape s;
    int64_t h, w, to_h, to_w, kh, kw; /* of x and dy; taps */
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int64_t blocks, ranges, range;    /* range: floats of sums of a range of samples */
    int64_t first[TAPS_MOST], end[TAPS_MOST]; /* of a row's positions, those whose tap lies in x */
} Depthwise;

bool wf_depthwise_takes(const WfConvShape *s)
{
    return s->what == WF_CONV_WEIGHT && s->groups == s->c && s->o == s->c && s->c >= LANES && s->spatial <= 2 &&
           s->kernel[s->spatial - 1] <= TAPS_MOST;
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) { return v < lo ? lo : v > hi ? hi : v; }

static void plan(const WfLibDesc *d, const WfConvShape *s, Depthwise *g)
{
    bool flat = s->spatial == 1;
    int x = s->spatial - 1;
    memset(g, 0, sizeof *g);
    g->vec = wf_vec(d);
    g->s = *s;
    g->h = flat ? 1 : s->in[0], g->to_h = flat ? 1 : s->out[0], g->kh = flat ? 1 : s->kernel[0];
    g->w = s->in[x], g->to_w = s->out[x], g->kw = s->kernel[x];
    g->stride_h = flat ? 1 : s->stride[0], g->pad_h = flat ? 0 : s->pad[0], g->dilation_h = flat ? 1 : s->dilation[0];
    g->stride_w = s->stride[x], g->pad_w = s->pad[x], g->dilation_w = s->dilation[x];
    for (int64_t k = 0; k < g->kw; k++) {
        int64_t at = g->pad_w - k * g->dilation_w; /* position p reads x at p * stride - at */
        g->first[k] = clamp(at <= 0 ? 0 : (at + g->stride_w - 1) / g->stride_w, 0, g->to_w);
        g->end[k] = clamp(g->w + at <= 0 ? 0 : (g->w - 1 + at) / g->stride_w + 1, g->first[k], g->to_w);
    }
    g->blocks = (s->c + LANES - 1) / LANES;
    g->ranges = 1;
    while (g->ranges < RANGES_MAX && g->blocks * g->kh * g->ranges < TILES && s->n / g->ranges >= 2)
        g->ranges *= 2;
    g->range = g->blocks * (g->kh * g->kw + s->has_bias) * LANES;
}

static int64_t lane_of(const Depthwise *g, int64_t block)
{
    return block * LANES < g->s.c - LANES ? block * LANES : g->s.c - LANES;
}

static void add(int64_t n, const float *from, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* Adds one row of positions to sums[kw][16]. */
static void row(const Depthwise *g, const float *x, const float *dy, float *sums)
{
    int64_t c = g->s.c, tap = g->dilation_w * c, step = g->stride_w * c;
    for (int64_t k0 = 0; k0 < g->kw; k0 += WF_TAPS) {
        int64_t k1 = k0 + WF_TAPS < g->kw ? k0 + WF_TAPS : g->kw;
        int64_t all = g->first[k0], after = g->end[k1 - 1]; /* positions that meet every tap */
        if (all < after)
            g->vec->depthwise_row((int)(k1 - k0), after - all, x + (all * g->stride_w - g->pad_w + k0 * g->dilation_w) * c, tap, step,
                                  dy + all * c, c, sums + k0 * LANES);
        for (int64_t k = k0; k < k1; k++)
            for (int side = 0; side < (all < after ? 2 : 1); side++) {
                int64_t from = side ? after : g->first[k], to = side || all >= after ? g->end[k] : all;
                if (from < to)
                    g->vec->depthwise_row(1, to - from, x + (from * g->stride_w - g->pad_w + k * g->dilation_w) * c, tap, step,
                                          dy + from * c, c, sums + k * LANES);
            }
    }
}

static void sum_tile(const Depthwise *g, int64_t range, int64_t block, int64_t tap_h, const float *x, const float *dy, float *sums)
{
    float sample[TAPS_MOST * LANES];
    int64_t n = g->kw * LANES, c = g->s.c, lane = lane_of(g, block);
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int64_t i = g->s.n * range / g->ranges; i < g->s.n * (range + 1) / g->ranges; i++) {
        memset(sample, 0, (size_t)n * sizeof *sample);
        for (int64_t y = 0; y < g->to_h; y++) {
            int64_t at = y * g->stride_h - g->pad_h + tap_h * g->dilation_h;
            if (at >= 0 && at < g->h)
                row(g, x + (i * g->h + at) * g->w * c + lane, dy + (i * g->to_h + y) * g->to_w * c + lane, sample);
        }
        add(n, sample, sums);
    }
}

static void bias_tile(const Depthwise *g, int64_t range, int64_t block, const float *dy, float *sums)
{
    static const float ones[LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    int64_t c = g->s.c, size = g->to_h * g->to_w;
    memset(sums, 0, LANES * sizeof *sums);
    for (int64_t i = g->s.n * range / g->ranges; i < g->s.n * (range + 1) / g->ranges; i++) {
        float sample[LANES] = {0};
        for (int64_t y = 0; y < g->to_h; y++)
            g->vec->depthwise_row(1, g->to_w, ones, 0, 0, dy + (i * size + y * g->to_w) * c + lane_of(g, block), c, sample);
        add(LANES, sample, sums);
    }
}

/* Sums of a row of taps, or behind all of them those of the bias. */
static float *sums_of(const Depthwise *g, float *workspace, int64_t range, int64_t block, int64_t tap_h)
{
    return workspace + range * g->range + (tap_h * g->blocks * g->kw + block * (tap_h < g->kh ? g->kw : 1)) * LANES;
}

/* The channels of some blocks. */
static void combine(const Depthwise *g, int64_t tile, void *const *operand, float *workspace)
{
    const int64_t *stride = g->s.w_stride;
    int64_t step_w = stride[g->s.spatial == 1 ? 2 : 3], step_h = g->s.spatial == 1 ? 0 : stride[2];
    for (int64_t block = g->blocks * tile / COMBINE; block < g->blocks * (tile + 1) / COMBINE; block++) {
        int64_t lanes = lane_of(g, block), c0 = block * LANES, c1 = lanes + LANES;
        for (int64_t y = 0; y < g->kh + g->s.has_bias; y++) {
            bool bias = y == g->kh;
            int64_t taps = bias ? 1 : g->kw, step_c = bias ? 1 : stride[0];
            float *to = bias ? operand[g->s.bias] : (float *)operand[g->s.weights] + y * step_h, *sums = sums_of(g, workspace, 0, block, y);
            wf_conv_add_ranges(g->ranges, g->range, taps * LANES, sums);
            for (int64_t c = c0; c < c1; c++)
                for (int64_t x = 0; x < taps; x++)
                    to[c * step_c + x * step_w] = sums[x * LANES + c - lanes];
        }
    }
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace, void *scratch, int thread)
{
    const Depthwise *g = lib->self;
    (void)scratch, (void)thread;
    if (phase == 1) {
        combine(g, tile, operand, workspace);
        return;
    }
    int64_t range = tile % g->ranges, block = tile / g->ranges % g->blocks, tap_h = tile / (g->ranges * g->blocks);
    float *sums = sums_of(g, workspace, range, block, tap_h);
    if (tap_h < g->kh)
        sum_tile(g, range, block, tap_h, operand[g->s.src], operand[g->s.dst], sums);
    else
        bias_tile(g, range, block, operand[g->s.dst], sums);
}

void wf_depthwise_sizes(const WfLibDesc *d, const WfConvShape *s, size_t *workspace)
{
    Depthwise g;
    plan(d, s, &g);
    *workspace = (size_t)(g.ranges * g.range) * sizeof(float);
}

void wf_depthwise_create(WfArena *arena, const WfLibDesc *d, const WfConvShape *s, WfLib *lib)
{
    Depthwise *g = WF_NEW(arena, Depthwise);
    plan(d, s, g);
    lib->self = g;
    lib->run = run;
    lib->tiles[lib->n_phases++] = g->ranges * g->blocks * (g->kh + s->has_bias);
    lib->tiles[lib->n_phases++] = COMBINE;
}
