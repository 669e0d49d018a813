/* Weight gradients of convolutions: dW[o, tap, c] = the sum over samples and positions of dy[o] x[c at the
 * tap].
 *
 * A tile is a range of output channels, a group of taps (one, a row, or all, by the number of channels) with
 * a range of input channels, and a range of samples. It goes through its positions in order and packs both
 * sides, 256 positions at a time: dy into row panels, patches of x into column panels. Positions whose tap
 * meets only padding are left out when the group is one tap.
 *
 * At most four ranges of samples lie in the workspace; a second phase adds them in a balanced tree and puts
 * the sums into the caller's layout. */
#include <string.h>

#include "kernels/convolve.h"

enum { DEEP = WF_KC, COLUMNS_MAX = 256, TILES = 12, RANGES_MAX = 4, COMBINE = 16 };

typedef struct {
    const WfVec *vec;
    WfConvShape s;
    int64_t h, w, to_h, to_w, kh, kw, k;     /* of x and dy; taps; taps times channels */
    int64_t group_h, group_w, groups, parts; /* taps of a group, groups, parts of the input channels */
    int64_t out_parts, ranges;               /* of the output channels, of the samples */
    bool direct;                             /* the caller's layout is the one of the sums */
    WfConvRun *run_h, *run_w;
} Gradient;

static void plan(const WfLibDesc *d, const WfConvShape *s, Gradient *g)
{
    bool flat = s->spatial == 1;
    memset(g, 0, sizeof *g);
    g->vec = wf_vec(d);
    g->s = *s;
    g->h = flat ? 1 : s->in[0], g->w = s->in[flat ? 0 : 1];
    g->to_h = flat ? 1 : s->out[0], g->to_w = s->out[flat ? 0 : 1];
    g->kh = flat ? 1 : s->kernel[0], g->kw = s->kernel[flat ? 0 : 1];
    g->k = g->kh * g->kw * s->c;
    bool all = g->k <= COLUMNS_MAX, row = g->kw * s->c <= COLUMNS_MAX;
    g->group_h = all ? g->kh : 1, g->group_w = all || row ? g->kw : 1;
    g->groups = g->kh / g->group_h * (g->kw / g->group_w);
    g->parts = all || row ? 1 : (s->c + COLUMNS_MAX - 1) / COLUMNS_MAX;
    int64_t most = WF_A_PACKED / DEEP / (g->vec->nr / 2) * g->vec->mr; /* that pack_a takes */
    g->out_parts = (s->o + most - 1) / most;
    g->ranges = 1;
    while (g->ranges < RANGES_MAX && g->groups * g->parts * g->out_parts * g->ranges < TILES &&
           s->n / g->ranges >= 2 && s->n * g->to_h * g->to_w / g->ranges >= 4 * DEEP)
        g->ranges *= 2;
    const int64_t *at = s->w_stride;
    bool last = at[0] == g->k && (s->c == 1 || at[1] == 1) && (g->kw == 1 || at[flat ? 2 : 3] == s->c);
    g->direct = g->ranges == 1 && last && (flat || g->kh == 1 || at[2] == g->kw * s->c);
}

/* ---- one tile ----------------------------------------------------------------------------------- */

typedef struct {
    const Gradient *g;
    int64_t o0, outs, c0, channels, tap_h, tap_w, columns; /* of the tile */
    const float *x, *x_end, *dy;
    float *sums, *edge, *a, *b, *row;
    int64_t filled;
    bool add;
} Tile;

static void flush(Tile *t)
{
    if (t->filled)
        t->g->vec->packed_block(t->outs, t->columns, t->filled, DEEP, t->a, t->b, t->sums, t->g->k, t->add,
                                t->edge);
    t->add = t->add || t->filled;
    t->filled = 0;
}

/* The patch of position (y, x) of sample i under the group's taps. */
static const float *patch(const Tile *t, int64_t i, int64_t y, int64_t x)
{
    const Gradient *g = t->g;
    const float *from = t->x + i * g->h * g->w * g->s.c;
    int64_t stride_w = g->s.stride[g->s.spatial - 1], pad_w = g->s.pad[g->s.spatial - 1];
    int64_t stride_h = g->s.spatial == 1 ? 1 : g->s.stride[0], pad_h = g->s.spatial == 1 ? 0 : g->s.pad[0];
    int64_t at_h = y * stride_h - pad_h + t->tap_h, at_w = x * stride_w - pad_w + t->tap_w;
    int64_t first = at_w < 0 ? -at_w : 0, last = g->w - at_w < g->group_w ? g->w - at_w : g->group_w;
    int64_t c = t->channels, width = g->group_w * c, length = (last - first) * c;
    if (g->group_h == 1 && last - first == g->group_w && at_h >= 0 && at_h < g->h && t->columns % 16 == 0)
        return from + (at_h * g->w + at_w) * g->s.c + t->c0;
    bool whole = last - first == g->group_w && at_h >= 0 && at_h + g->group_h <= g->h;
    if (!whole)
        memset(t->row, 0, (size_t)t->columns * sizeof(float));
    for (int64_t e = 0; e < g->group_h && last > first; e++) {
        const float *p = from + ((at_h + e) * g->w + at_w + first) * g->s.c + t->c0;
        float *to = t->row + e * width + first * c;
        if (at_h + e < 0 || at_h + e >= g->h)
            continue;
        if (whole && t->x_end - p >= length + 16)
            wf_conv_copy(to, p, length);
        else
            memcpy(to, p, (size_t)length * sizeof(float));
    }
    return t->row;
}

/* n positions of a row of sample i, from (y, x) on. */
static void take(Tile *t, int64_t i, int64_t y, int64_t x, int64_t n)
{
    const Gradient *g = t->g;
    const float *dy = t->dy + ((i * g->to_h + y) * g->to_w) * g->s.o + t->o0;
    while (n) {
        int64_t many = n < DEEP - t->filled ? n : DEEP - t->filled;
        g->vec->pack_a(t->outs, many, dy + x * g->s.o, g->s.o, DEEP, t->a + t->filled * (g->vec->nr / 2));
        for (int64_t q = 0; q < many; q++)
            g->vec->pack_b_row(t->columns, patch(t, i, y, x + q), DEEP, t->filled + q, t->b);
        t->filled += many, n -= many, x += many;
        if (t->filled == DEEP)
            flush(t);
    }
}

static void sum_tile(const Gradient *g, int64_t tile, void *const *operand, float *workspace, float *scratch)
{
    int64_t range = tile % g->ranges, part = tile / g->ranges % g->parts;
    int64_t group = tile / (g->ranges * g->parts) % g->groups,
            out = tile / (g->ranges * g->parts * g->groups);
    Tile t = {.g = g, .x = operand[g->s.src], .dy = operand[g->s.dst], .edge = scratch};
    t.x_end = t.x + g->s.n * g->h * g->w * g->s.c;
    t.o0 = g->s.o * out / g->out_parts, t.outs = g->s.o * (out + 1) / g->out_parts - t.o0;
    t.c0 = g->s.c * part / g->parts, t.channels = g->s.c * (part + 1) / g->parts - t.c0;
    t.tap_h = group / (g->kw / g->group_w) * g->group_h, t.tap_w = group % (g->kw / g->group_w) * g->group_w;
    t.columns = g->group_h * g->group_w * t.channels;
    t.a = scratch + WF_EDGE, t.b = t.a + WF_A_PACKED, t.row = t.b + DEEP * wf_up(COLUMNS_MAX, WF_NR);
    memset(t.row, 0, (size_t)(COLUMNS_MAX + WF_NR) * sizeof(float));
    float *sums = g->direct ? operand[g->s.weights] : workspace + range * g->s.o * g->k;
    t.sums = sums + t.o0 * g->k + (t.tap_h * g->kw + t.tap_w) * g->s.c + t.c0;
    bool one = g->group_h * g->group_w == 1;
    for (int64_t i = g->s.n * range / g->ranges; i < g->s.n * (range + 1) / g->ranges; i++)
        for (int64_t y = 0; y < g->to_h; y++) {
            int64_t x0 = 0, x1 = g->to_w;
            WfConvRun run = g->run_h[y];
            if (one && (t.tap_h < run.tap || t.tap_h >= run.tap + run.n))
                continue;
            while (one && x0 < x1 && t.tap_w < g->run_w[x0].tap)
                x0++;
            while (one && x0 < x1 && t.tap_w >= g->run_w[x1 - 1].tap + g->run_w[x1 - 1].n)
                x1--;
            take(&t, i, y, x0, x1 - x0);
        }
    flush(&t);
    for (int64_t o = 0; !t.add && o < t.outs; o++)
        memset(t.sums + o * g->k, 0, (size_t)t.columns * sizeof(float));
}

/* The bias gradient of one range: sums of dy, sample by sample. */
static void bias_tile(const Gradient *g, int64_t range, const float *dy, float *sum)
{
    int64_t n = g->s.o, size = g->to_h * g->to_w;
    memset(sum, 0, (size_t)(2 * n) * sizeof(float));
    for (int64_t i = g->s.n * range / g->ranges; i < g->s.n * (range + 1) / g->ranges; i++) {
        memset(sum + n, 0, (size_t)n * sizeof(float));
        for (int64_t p = 0; p < size; p++)
            for (int64_t j = 0; j < n; j++)
                sum[n + j] += dy[(i * size + p) * n + j];
        for (int64_t j = 0; j < n; j++)
            sum[j] += sum[n + j];
    }
}

/* ---- the call ----------------------------------------------------------------------------------- */

static void combine(const Gradient *g, int64_t tile, void *const *operand, float *workspace)
{
    const int64_t *at = g->s.w_stride;
    int64_t taps = g->kh * g->kw, step_w = at[g->s.spatial == 1 ? 2 : 3],
            step_h = g->s.spatial == 1 ? 0 : at[2];
    for (int64_t o = g->s.o * tile / COMBINE; o < g->s.o * (tile + 1) / COMBINE; o++) {
        float *sums = workspace + o * g->k, *to = (float *)operand[g->s.weights] + o * at[0];
        wf_conv_add_ranges(g->ranges, g->s.o * g->k, g->k, sums);
        if (step_w == 1 && (g->kh == 1 || step_h == g->kw) && at[1] == taps) {
            for (int64_t c = 0; c < g->s.c; c++)
                for (int64_t q = 0; q < taps; q++)
                    *to++ = sums[q * g->s.c + c];
            continue;
        }
        for (int64_t q = 0; q < taps; q++)
            for (int64_t c = 0; c < g->s.c; c++)
                to[q / g->kw * step_h + q % g->kw * step_w + c * at[1]] = sums[q * g->s.c + c];
    }
}

static void combine_bias(const Gradient *g, void *const *operand, float *sums)
{
    wf_conv_add_ranges(g->ranges, 2 * g->s.o, g->s.o, sums);
    memcpy(operand[g->s.bias], sums, (size_t)g->s.o * sizeof(float));
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                void *scratch, int thread)
{
    const Gradient *g = lib->self;
    int64_t tiles = g->out_parts * g->groups * g->parts * g->ranges, combines = g->direct ? 0 : COMBINE;
    float *bias = (float *)workspace + (g->direct ? 0 : g->ranges * g->s.o * g->k);
    (void)thread;
    if (phase == 0 && tile < tiles)
        sum_tile(g, tile, operand, workspace, scratch);
    else if (phase == 0)
        bias_tile(g, tile - tiles, operand[g->s.dst], bias + (tile - tiles) * 2 * g->s.o);
    else if (tile < combines)
        combine(g, tile, operand, workspace);
    else
        combine_bias(g, operand, bias);
}

void wf_convolve_weight_sizes(const WfLibDesc *d, const WfConvShape *s, size_t *workspace, size_t *scratch)
{
    Gradient g;
    plan(d, s, &g);
    int64_t floats = g.direct ? 0 : g.ranges * s->o * g.k;
    *workspace = (size_t)(floats + (s->has_bias ? g.ranges * 2 * s->o : 0)) * sizeof(float);
    *scratch = (size_t)(WF_EDGE + WF_A_PACKED + DEEP * wf_up(COLUMNS_MAX, WF_NR) + COLUMNS_MAX + 2 * WF_NR) *
               sizeof(float);
}

void wf_convolve_weight_create(WfArena *arena, const WfLibDesc *d, const WfConvShape *s, WfLib *lib)
{
    Gradient *g = WF_NEW(arena, Gradient);
    plan(d, s, g);
    g->run_h = WF_NEWN(arena, WfConvRun, (size_t)g->to_h);
    g->run_w = WF_NEWN(arena, WfConvRun, (size_t)g->to_w);
    g->run_h[0] = (WfConvRun){0, 0, 1};
    for (int i = 0; i < s->spatial; i++)
        wf_conv_runs_forward(s->in[i], s->out[i], s->kernel[i], s->stride[i], s->pad[i],
                             i == s->spatial - 1 ? g->run_w : g->run_h);
    lib->self = g;
    lib->run = run;
    lib->tiles[lib->n_phases++] =
        g->out_parts * g->groups * g->parts * g->ranges + (s->has_bias ? g->ranges : 0);
    if (!g->direct || s->has_bias)
        lib->tiles[lib->n_phases++] = (g->direct ? 0 : COMBINE) + s->has_bias;
}
