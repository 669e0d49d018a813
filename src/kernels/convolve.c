/* Convolutions without a matrix of patches.
 *
 * In channels-last memory, the patch of an output position is a few contiguous runs (a row of taps times all
 * channels), at the same distance from each other in every sample. So the rows of a register tile are the
 * samples: one output position of up to 14 samples is a product whose left matrix lies in place, row by row
 * of taps, and only the taps that meet the input are computed. Late layers gain most from that: of 3 x 3 taps
 * on 2 x 2 positions, five ninths meet nothing but padding.
 *
 * The gradient of the input is the same with the taps in reverse; with a stride, the taps of one residue
 * follow each other, so that runs stay contiguous.
 *
 * The weights are packed by a phase of their own: column panels, all taps deep. An element is the sum over
 * the runs, in order, of chains over at most 256 elements: a function of the shape alone. */
#include <string.h>

#include "kernels/convolve.h"

enum { DEEP = WF_KC, CACHED = 1 << 18, TILES = 16, SAMPLES = 48 };

typedef struct {
    const WfVec *vec;
    WfConvShape s;
    int src, dst;                            /* operand numbers of what is read and written */
    int64_t c, h, w, to_c, to_h, to_w, k;    /* channels and sizes of both; taps times channels */
    int64_t kh, kw, tap_h[32], tap_w[32];    /* the taps in the order of the packed weights */
    int64_t by_columns, by_rows, by_samples; /* tiles */
    WfConvRun *run_h, *run_w;
} Convolve;

/* ---- what meets what ---------------------------------------------------------------------------- */

void wf_conv_runs_forward(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                          WfConvRun *run)
{
    for (int64_t i = 0; i < out; i++) {
        int64_t at = i * stride - pad, first = at < 0 ? -at : 0, last = in - at < kernel ? in - at : kernel;
        run[i] =
            (WfConvRun){(int32_t)(at + first), (int32_t)first, last > first ? (int32_t)(last - first) : 0};
    }
}

/* Input position i is reached from output (i + pad - tap) / stride. Taps are ordered by residue, falling. */
static void runs_data(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad, WfConvRun *run)
{
    for (int64_t i = 0; i < in; i++) {
        int64_t residue = (i + pad) % stride, start = 0;
        for (int64_t r = 0; r < residue; r++)
            start +=
                (kernel - r + stride - 1) / stride > 0 && r < kernel ? (kernel - r + stride - 1) / stride : 0;
        int64_t count = residue < kernel ? (kernel - residue + stride - 1) / stride : 0;
        int64_t at = (i + pad) / stride - (count - 1); /* of the first, largest tap */
        int64_t first = at < 0 ? -at : 0, last = out - at < count ? out - at : count;
        run[i] = (WfConvRun){(int32_t)(at + first), (int32_t)(start + first),
                             last > first ? (int32_t)(last - first) : 0};
    }
}

static void order_taps(int64_t kernel, int64_t stride, bool data, int64_t *tap)
{
    int64_t n = 0;
    for (int64_t i = 0; !data && i < kernel; i++)
        tap[n++] = i;
    for (int64_t r = 0; data && r < stride && r < kernel; r++)
        for (int64_t i = (kernel - 1 - r) / stride * stride + r; i >= 0; i -= stride)
            tap[n++] = i;
}

static void plan(const WfLibDesc *d, const WfConvShape *s, Convolve *c)
{
    bool data = s->what == WF_CONV_DATA, flat = s->spatial == 1;
    memset(c, 0, sizeof *c);
    c->vec = wf_vec(d);
    c->s = *s;
    c->src = data ? s->dst : s->src, c->dst = data ? s->src : s->dst;
    c->c = data ? s->o : s->c, c->to_c = data ? s->c : s->o;
    const int64_t *from = data ? s->out : s->in, *to = data ? s->in : s->out;
    c->h = flat ? 1 : from[0], c->w = from[flat ? 0 : 1];
    c->to_h = flat ? 1 : to[0], c->to_w = to[flat ? 0 : 1];
    c->kh = flat ? 1 : s->kernel[0], c->kw = s->kernel[flat ? 0 : 1];
    c->k = c->kh * c->kw * c->c;
    order_taps(c->kh, flat ? 1 : s->stride[0], data, c->tap_h);
    order_taps(c->kw, s->stride[flat ? 0 : 1], data, c->tap_w);
    int64_t columns = CACHED / c->k / WF_NR * WF_NR;
    columns = columns < 2 * WF_NR ? 2 * WF_NR : columns;
    c->by_columns = (c->to_c + columns - 1) / columns;
    c->by_samples = (s->n + SAMPLES - 1) / SAMPLES;
    c->by_rows = (TILES + c->by_columns * c->by_samples - 1) / (c->by_columns * c->by_samples);
    c->by_rows = c->by_rows < c->to_h ? c->by_rows : c->to_h;
}

/* ---- packing the weights ------------------------------------------------------------------------ */

/* Both strides are large (PyTorch's own layout, forward): whole taps of a few channels at a time are
 * transposed into the scratch, whose rows are then put into the order of taps. */
static void pack_taps(const Convolve *c, int64_t j, int64_t columns, int64_t width, const float *w,
                      float *out, float *work)
{
    int64_t taps = c->kh * c->kw, many = DEEP / taps;
    const int64_t *at = c->s.w_stride;
    for (int64_t q = 0; q < c->c; q += many) {
        int64_t n = c->c - q < many ? c->c - q : many;
        c->vec->pack_b(n * taps, columns, w + q * taps + j * at[0], 1, at[0], work);
        for (int64_t t = 0; t < taps; t++)
            for (int64_t i = 0; i < n; i++)
                wf_conv_copy(out + (t * c->c + q + i) * width, work + (i * taps + t) * width, width);
    }
}

/* One column panel of the packed weights. */
static void pack_panel(const Convolve *c, int64_t j, const float *w, float *packed, float *work)
{
    bool data = c->s.what == WF_CONV_DATA, flat = c->s.spatial == 1;
    const int64_t *at = c->s.w_stride;
    int64_t row = at[data ? 0 : 1], column = at[data ? 1 : 0], step_h = flat ? 0 : at[2];
    int64_t step_w = at[flat ? 2 : 3], taps = c->kh * c->kw, nr = c->vec->nr;
    int64_t columns = c->to_c - j < nr ? c->to_c - j : nr, width = columns > nr / 2 ? nr : nr / 2;
    float *out = packed + j * c->k;
    bool native = !data && step_w == 1 && (flat || step_h == c->kw) && row == taps;
    if (native && taps > 1 && taps <= DEEP && width >= 16) {
        pack_taps(c, j, columns, width, w, out, work);
        return;
    }
    for (int64_t y = 0; y < c->kh; y++)
        for (int64_t x = 0; x < c->kw; x++) {
            const float *tap = w + c->tap_h[y] * step_h + c->tap_w[x] * step_w + j * column;
            c->vec->pack_b(c->c, columns, tap, row, column, out + (y * c->kw + x) * c->c * width);
        }
}

/* ---- running ------------------------------------------------------------------------------------ */

/* Starts rows of the output with the bias; false when there is none. */
static bool bias_rows(const Convolve *c, void *const *operand, int64_t rows, int64_t j0, int64_t j1,
                      float *to, int64_t ld)
{
    if (!c->s.has_bias)
        return false;
    const float *bias = (const float *)operand[c->s.bias] + j0;
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * ld, bias, (size_t)(j1 - j0) * sizeof(float));
    return true;
}

/* One output position of the samples i0 .. i1 - 1. */
static void position(const Convolve *c, int64_t y, int64_t x, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                     void *const *operand, const float *packed, float *edge)
{
    WfConvRun run_y = c->run_h[y], run_x = c->run_w[x];
    int64_t from_ld = c->h * c->w * c->c, to_ld = c->to_h * c->to_w * c->to_c, n = i1 - i0;
    const float *from = (const float *)operand[c->src] + i0 * from_ld;
    float *to = (float *)operand[c->dst] + i0 * to_ld + (y * c->to_w + x) * c->to_c + j0;
    bool add = bias_rows(c, operand, n, j0, j1, to, to_ld);
    int64_t length = run_x.n * c->c, blocks = (length + DEEP - 1) / DEEP,
            panels = (n + c->vec->mr - 1) / c->vec->mr;
    for (int32_t e = 0; e < run_y.n; e++) {
        const float *a = from + ((run_y.src + e) * c->w + run_x.src) * c->c;
        int64_t start = ((run_y.tap + e) * c->kw + run_x.tap) * c->c;
        for (int64_t b = 0; b < blocks; b++) {
            int64_t p = length * b / blocks, k = length * (b + 1) / blocks - p;
            for (int64_t q = 0; q < panels; q++) {
                int64_t i = n * q / panels, rows = n * (q + 1) / panels - i;
                c->vec->panel((int)rows, false, j1 - j0, k, a + i * from_ld + p, from_ld, packed + j0 * c->k,
                              0, c->k, start + p, to + i * to_ld, to_ld, add, edge);
            }
            add = true;
        }
    }
    for (int64_t i = 0; !add && i < n; i++)
        memset(to + i * to_ld, 0, (size_t)(j1 - j0) * sizeof(float));
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                void *scratch, int thread)
{
    const Convolve *c = lib->self;
    (void)thread;
    if (phase == 0) {
        pack_panel(c, tile * c->vec->nr, operand[c->s.weights], workspace, scratch);
        return;
    }
    int64_t units = wf_up(c->to_c, WF_NR) / WF_NR, column = tile / (c->by_rows * c->by_samples);
    int64_t j0 = units * column / c->by_columns * WF_NR, j1 = units * (column + 1) / c->by_columns * WF_NR;
    int64_t sample = tile / c->by_rows % c->by_samples, row = tile % c->by_rows;
    int64_t i0 = c->s.n * sample / c->by_samples, i1 = c->s.n * (sample + 1) / c->by_samples;
    int64_t y0 = c->to_h * row / c->by_rows, y1 = c->to_h * (row + 1) / c->by_rows;
    j1 = j1 < c->to_c ? j1 : c->to_c;
    for (int64_t y = y0; y < y1; y++)
        for (int64_t x = 0; x < c->to_w; x++)
            position(c, y, x, i0, i1, j0, j1, operand, workspace, scratch);
}

/* ---- the call ----------------------------------------------------------------------------------- */

/* Where the register tile beats oneDNN 2.6, by shape alone. Milliseconds of one core (Sapphire Rapids,
 * AVX-512, thread CPU time, minimum of interleaved runs, oneDNN / here), batch 32, 3 x 3 taps where not said
 * otherwise:
 *
 *   channels, input size       y           dx          dW
 *   3 > 64    64, 7 x 7 / 2    3.8 / 4.9               4.9 / 6.5
 *   64 > 64   16               3.3 / 3.5   3.6 / 3.6   3.7 / 4.7
 *   64 > 128  16, / 2          1.9 / 1.9   2.0 / 1.8   2.6 / 2.4
 *   128 > 128 8                3.4 / 3.3   3.6 / 3.3   3.9 / 4.2
 *   64 > 128  16, 1 x 1 / 2    .27 / .25   .29 / .31   .28 / .32
 *   128 > 256 8, / 2           2.2 / 1.8   2.6 / 1.8   3.5 / 2.2
 *   256 > 256 4                5.3 / 3.1   3.6 / 3.0   6.4 / 3.6
 *   128 > 256 8, 1 x 1 / 2     .31 / .23   .27 / .26   .31 / .27
 *   256 > 512 4, / 2           8.6 / 2.3   6.4 / 2.3   11.7 / 2.8
 *   512 > 512 2                15.6 / 4.3  10.5 / 4.5  25.6 / 4.6
 *
 * AVX2:
 *   64 > 128  16, / 2          5.0 / 5.0   4.4 / 4.0   5.0 / 4.8
 *   128 > 128 8                9.4 / 9.8   8.5 / 9.9
 *   256 > 256 4                12.0 / 9.1              11.5 / 7.1
 *   512 > 512 2                18.2 / 8.5  18.9 / 9.5  34.3 / 6.4 */
bool wf_convolve_takes(const WfLibDesc *d, const WfConvShape *s)
{
    if (s->groups != 1 || s->spatial > 2 || s->n < 8 || s->o < 16)
        return false;
    int64_t c = s->what == WF_CONV_DATA ? s->o : s->c, taps = 1, positions = 1, strides = 1;
    for (int i = 0; i < s->spatial; i++) {
        taps *= s->kernel[i], positions *= s->out[i], strides *= s->stride[i];
        if (s->dilation[i] != 1 || s->kernel[i] > 32)
            return false;
    }
    if (c * s->kernel[s->spatial - 1] < 64)
        return false;
    if (s->what == WF_CONV_WEIGHT)
        return positions <= 16 || (positions <= 64 && strides > 1 && c * taps >= 512);
    if (wf_vec(d)->level < 4 && positions > 16 && strides == 1)
        return false;
    return positions <= 16 || (positions <= 64 && (taps > 1 || s->what == WF_CONV_FWD));
}

void wf_convolve_sizes(const WfLibDesc *d, const WfConvShape *s, size_t *workspace, size_t *scratch)
{
    Convolve c;
    if (s->what == WF_CONV_WEIGHT) {
        wf_convolve_weight_sizes(d, s, workspace, scratch);
        return;
    }
    plan(d, s, &c);
    *workspace = (size_t)(c.k * wf_up(c.to_c, WF_NR)) * sizeof(float);
    *scratch = (size_t)(DEEP * WF_NR > WF_EDGE ? DEEP * WF_NR : WF_EDGE) * sizeof(float);
}

void wf_convolve_create(WfArena *arena, const WfLibDesc *d, const WfConvShape *s, WfLib *lib)
{
    if (s->what == WF_CONV_WEIGHT) {
        wf_convolve_weight_create(arena, d, s, lib);
        return;
    }
    Convolve *c = WF_NEW(arena, Convolve);
    plan(d, s, c);
    c->run_h = WF_NEWN(arena, WfConvRun, (size_t)c->to_h);
    c->run_w = WF_NEWN(arena, WfConvRun, (size_t)c->to_w);
    c->run_h[0] = (WfConvRun){0, 0, 1};
    int x = s->spatial - 1;
    for (int i = 0; i < s->spatial; i++) {
        WfConvRun *to = i == x ? c->run_w : c->run_h;
        if (s->what == WF_CONV_DATA)
            runs_data(s->in[i], s->out[i], s->kernel[i], s->stride[i], s->pad[i], to);
        else
            wf_conv_runs_forward(s->in[i], s->out[i], s->kernel[i], s->stride[i], s->pad[i], to);
    }
    lib->self = c;
    lib->run = run;
    lib->tiles[lib->n_phases++] = (c->to_c + c->vec->nr - 1) / c->vec->nr;
    lib->tiles[lib->n_phases++] = c->by_columns * c->by_samples * c->by_rows;
}
