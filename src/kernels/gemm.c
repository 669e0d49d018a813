/* Matrix products.
 *
 * K is cut into equal blocks of at most 256. B is packed into column panels, K block by K block, so that the
 * register tile streams it from the second-level cache; any transposition of B is absorbed there. A is read
 * in place when its rows are contiguous (packing never paid), and packed when its columns are: weight
 * gradients, where in place every step of k touches another page (1.1 to 1.7 times faster packed). An element
 * of D is the sum over the blocks, in order, of chains of fused multiply-adds within a block: a function of K
 * alone, so cuts of M and N never change bits.
 *
 * Three ways to cut. Few rows: along N only, each tile packs its own columns of B. Otherwise B is packed once
 * by a phase of its own when it is small enough to stay in cache, and M is cut finely; or M and N are cut
 * into large tiles that pack for themselves. When M x N gives few tiles and K is long (gradients of narrow
 * layers), K is split into ranges whose partial results lie in the workspace and are added in a balanced tree
 * by a second phase.
 *
 * Where the processor has AMX, large products go another way: gemm_amx.c. */
#include <string.h>

#include "kernels/gemm.h"

/* ---- blocks, shared with attention and rnn ------------------------------------------------------ */

enum { PACKED = 1 << 17 }; /* floats of packed B at a time: 512 KB, to stay in the second-level cache */

/* K blocks that are packed together for n columns. */
static int64_t together(int64_t n, int64_t k)
{
    int64_t kc = (k + wf_k_blocks(k) - 1) / (k ? wf_k_blocks(k) : 1),
            many = PACKED / (wf_up(n, WF_NR) * (kc ? kc : 1));
    return many < 1 ? 1 : many < wf_k_blocks(k) ? many : wf_k_blocks(k);
}

/* Also enough for fewer columns than n, of which more K blocks may be packed together. */
int64_t wf_product_scratch(int64_t n, int64_t k)
{
    int64_t kc = k < WF_KC ? k : WF_KC, one = wf_up(n, WF_NR) * kc, all = wf_up(n, WF_NR) * k;
    return WF_BLOCK_SCRATCH + (all <= PACKED ? all : one > PACKED ? one : PACKED);
}

/* B need not be packed when its rows are whole vectors, and near each other or read by few panels of A. A stride of 0
 * (one row, repeated) is how the block marks packed columns: such a B is packed. */
static bool in_place(int64_t m, int64_t n, int64_t bk, int64_t bn)
{
    return bn == 1 && n % 16 == 0 && bk > 0 && bk % 16 == 0 && (bk <= 128 || m <= 28);
}

void wf_product(const WfVec *vec, int64_t m, int64_t n, int64_t k, const float *a, int64_t am, int64_t ak,
                const float *b, int64_t bk, int64_t bn, float *c, int64_t ldc, bool add, float *scratch)
{
    int64_t blocks = wf_k_blocks(k), many = together(n, k);
    float *packed = scratch + WF_BLOCK_SCRATCH;
    WfBlock g = {0, m, n, k, blocks, 0, 0, am, ak, wf_up(n, WF_NR), 0, ldc, a, packed, c, add, true};
    if (in_place(m, n, bk, bn)) {
        g.ldb = bk, g.b = b, g.last = blocks;
        if (blocks)
            vec->block(&g, scratch);
        g.first = blocks;
    }
    for (; g.first < blocks; g.first = g.last) {
        g.last = g.first + many < blocks ? g.first + many : blocks;
        float *out = packed;
        for (int64_t q = g.first; q < g.last; q++) {
            int64_t p = k * q / blocks, kc = k * (q + 1) / blocks - p;
            vec->pack_b(kc, n, b + p * bk, bk, bn, out);
            out += kc * g.b_width;
        }
        vec->block(&g, scratch);
        g.add = true;
    }
    for (int64_t i = 0; !k && !add && i < m; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof(float));
}

void wf_product_wide(const WfVec *vec, int64_t m, int64_t n, int64_t k, const float *a, int64_t am, int64_t ak,
                     const float *b, int64_t bk, int64_t bn, float *c, int64_t ldc, bool add, float *scratch)
{
    for (int64_t j = 0; j < n; j += WF_COLUMNS)
        wf_product(vec, m, n - j < WF_COLUMNS ? n - j : WF_COLUMNS, k, a, am, ak, b + j * bn, bk, bn, c + j, ldc, add,
                   scratch);
}

int64_t wf_prepack_size(int64_t k, int64_t n)
{
    return k * wf_up(n, WF_NR);
}

void wf_prepack_columns(const WfVec *vec, int64_t k, int64_t column, int64_t n, int64_t width, const float *b,
                        int64_t bk, int64_t bn, float *out)
{
    int64_t blocks = wf_k_blocks(k);
    for (int64_t q = 0; q < blocks; q++) {
        int64_t p = k * q / blocks, kc = k * (q + 1) / blocks - p;
        vec->pack_b(kc, n, b + p * bk + column * bn, bk, bn, out + p * wf_up(width, WF_NR) + column * kc);
    }
}

void wf_prepack(const WfVec *vec, int64_t k, int64_t n, const float *b, int64_t bk, int64_t bn, float *out)
{
    wf_prepack_columns(vec, k, 0, n, n, b, bk, bn, out);
}

void wf_product_columns(const WfVec *vec, int64_t m, int64_t column, int64_t n, int64_t width, int64_t k,
                        const float *a, int64_t am, int64_t ak, const float *packed, float *c, int64_t ldc,
                        bool add, float *scratch)
{
    int64_t blocks = wf_k_blocks(k), many = together(n, k);
    WfBlock g = {column, m, n, k, blocks, 0, 0, am, ak, wf_up(width, WF_NR), 0, ldc, a, NULL, c, add, true};
    for (; g.first < blocks; g.first = g.last) {
        g.last = g.first + many < blocks ? g.first + many : blocks;
        g.b = packed + k * g.first / blocks * g.b_width;
        vec->block(&g, scratch);
        g.add = true;
    }
    for (int64_t i = 0; !k && !add && i < m; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof(float));
}

void wf_product_packed(const WfVec *vec, int64_t m, int64_t n, int64_t k, const float *a, int64_t am,
                       int64_t ak, const float *packed, float *c, int64_t ldc, bool add, float *scratch)
{
    wf_product_columns(vec, m, 0, n, n, k, a, am, ak, packed, c, ldc, add, scratch);
}

void wf_product_in_place(const WfVec *vec, int64_t m, int64_t n, int64_t k, const float *a, int64_t am,
                         int64_t ak, const float *b, int64_t ldb, float *c, int64_t ldc, bool add,
                         float *scratch)
{
    int64_t blocks = wf_k_blocks(k);
    WfBlock g = {0, m, n, k, blocks, 0, blocks, am, ak, n, ldb, ldc, a, b, c, add, false};
    if (m && n)
        vec->block(&g, scratch);
}

/* ---- the call ----------------------------------------------------------------------------------- */

typedef WfGemm Gemm;

/* Batch dims over which A and D advance evenly and B stays are rows. */
static void fold(Gemm *g)
{
    while (g->n_batch) {
        int i = g->n_batch - 1;
        bool rows = g->b_batch[i] == 0 && g->a_batch[i] == g->m * g->am && g->d_batch[i] == g->m * g->dm;
        if (!rows && g->batch[i] != 1)
            return;
        g->m *= g->batch[i];
        g->n_batch--;
    }
}

static int64_t tile_rows(int64_t n, int64_t tiles, int64_t unit, int64_t i)
{
    int64_t units = (n + unit - 1) / unit, at = units * i / tiles * unit;
    return at < n ? at : n;
}

enum {
    SHARED_MAX = 1 << 22,
    COLUMNS_MAX = 512,
    ROWS_MAX = 512,
    PACK_COLUMNS = 256,
    FEW_ROWS = 256,
    FEW_COLUMNS = 64,
    COLUMNS_LEAST = 192,
    ROWS_LEAST = 64
};

/* Columns of A are packed by each tile, and B by each tile or once for all: few and large tiles, cut along
 * the longer side only. False when M, N or K is too small for that. */
static bool cut_for_columns(Gemm *g)
{
    if (g->f64 || g->am != 1 || g->ak == 1 || g->n_batches != 1 || g->m < 48 || g->n < 128 || g->k < 256)
        return false;
    int64_t wanted = (int64_t)(2.0 * (double)g->m * (double)g->n * (double)g->k / 6e8);
    wanted = wanted < 4 ? 4 : wanted > 16 ? 16 : wanted;
    g->m_tiles = g->n_tiles = g->k_splits = g->group = 1;
    bool wide = g->n >= 2 * g->m;
    int64_t least = wide ? g->n / COLUMNS_LEAST : 1, most = (g->n + COLUMNS_MAX - 1) / COLUMNS_MAX;
    g->n_tiles = wide ? (wanted < least ? wanted : least) : 1;
    g->n_tiles = g->n_tiles < most ? most : g->n_tiles;
    for (int64_t rows = ROWS_LEAST; !wide && rows <= 2 * ROWS_LEAST; rows *= 2, wanted *= 2)
        while (g->m_tiles * g->n_tiles < wanted && g->m / (g->m_tiles + 1) >= rows)
            g->m_tiles++;
    g->shared = g->m_tiles > 1 && g->k * g->n <= SHARED_MAX;
    return true;
}

static void cut(Gemm *g)
{
    if (cut_for_columns(g))
        return;
    double flops = 2.0 * (double)g->m * (double)(g->n < WF_NR ? WF_NR : g->n) * (double)g->k;
    const double small = 3e6, target = 24e6;
    g->m_tiles = g->n_tiles = g->k_splits = g->group = 1;
    bool few_rows = g->m <= FEW_ROWS && g->n >= 2 * FEW_COLUMNS;
    bool may_share =
        !few_rows && !g->f64 && g->n_batches == 1 && g->k * g->n <= SHARED_MAX;
    int64_t least = may_share ? 64 : 256; /* rows from which on a tile is not halved for balance only */
    while (few_rows && g->n / g->n_tiles >= 2 * FEW_COLUMNS &&
           (g->n / g->n_tiles > COLUMNS_MAX || (g->n_tiles < 16 && flops / (double)g->n_tiles > 2 * small)))
        g->n_tiles *= 2;
    while (!few_rows) {
        double each = flops / (double)(g->m_tiles * g->n_tiles);
        int64_t rows = g->m / g->m_tiles, cols = g->n / g->n_tiles;
        int64_t tiles = g->m_tiles * g->n_tiles * g->n_batches;
        bool large = cols > COLUMNS_MAX || rows > ROWS_MAX;
        if (!large && (each < 2 * small || (each < target && tiles >= 16) || (rows < least && cols < 256)))
            break;
        if (cols > COLUMNS_MAX || (rows < least && cols >= 256))
            g->n_tiles *= 2;
        else if (rows < 2)
            break;
        else
            g->m_tiles *= 2;
    }
    int64_t tiles = g->m_tiles * g->n_tiles * g->n_batches;
    if (!g->f64 && g->n_batches == 1 && g->m * g->n <= 1 << 18)
        while (tiles * g->k_splits < 8 && g->k / g->k_splits >= 512 &&
               flops / (double)(tiles * g->k_splits) > small)
            g->k_splits *= 2;
    g->shared = may_share && g->m_tiles > 1 && g->k_splits == 1;
    if (g->m_tiles * g->n_tiles == 1 && flops < small) {
        double per = small / (flops + 1e3);
        g->group = per > (double)g->n_batches / 8 ? (g->n_batches + 7) / 8 : (int64_t)per + 1;
        if (flops * (double)g->n_batches < 1e6)
            g->group = g->n_batches;
        g->group = g->group < 1 ? 1 : g->group;
    }
}

enum { WHOLE_ROWS = 192 };

/* Rows are completed one range after the other, when somebody waits for them and the cut allows it. */
static void cut_for_rows(Gemm *g)
{
    if (g->n_batches != 1 || g->dm != g->n || (g->n_tiles > 1 && !g->shared))
        return;
    g->whole = true;
    if (g->n_tiles > 1)
        g->m_tiles = (g->m + WHOLE_ROWS - 1) / WHOLE_ROWS;
}

static void plan(const WfLibDesc *d, Gemm *g)
{
    memset(g, 0, sizeof *g);
    bool has_bias = d->n > 3 && wf_has(d, 2);
    g->out = d->n > 3 ? 3 : 2;
    const WfOperand *a = &d->operand[0], *b = &d->operand[1], *o = &d->operand[g->out];
    g->vec = wf_vec(d);
    g->f64 = a->dtype == WF_F64;
    g->add = d->param[0] == 1;
    g->bias = has_bias ? 2 : 0;
    g->bias_stride = has_bias ? d->operand[2].stride[0] : 0;
    int r = a->rank;
    g->m = a->shape[r - 2], g->k = a->shape[r - 1], g->n = b->shape[r - 1];
    g->am = a->stride[r - 2], g->ak = a->stride[r - 1];
    g->bk = b->stride[r - 2], g->bn = b->stride[r - 1];
    g->dm = o->stride[r - 2];
    /* A dim of size 1 may have any stride: call it contiguous where the other is not. */
    if (g->k == 1 && g->am != 1)
        g->ak = 1;
    if (g->m == 1 && g->ak != 1)
        g->am = 1;
    if (g->n == 1 && g->bk != 1)
        g->bn = 1;
    if (g->k == 1 && g->bn != 1)
        g->bk = 1;
    for (int i = 0; i < r - 2; i++) {
        if (o->shape[i] == 1)
            continue;
        int q = g->n_batch++;
        g->batch[q] = o->shape[i];
        g->a_batch[q] = a->shape[i] == 1 ? 0 : a->stride[i];
        g->b_batch[q] = b->shape[i] == 1 ? 0 : b->stride[i];
        g->d_batch[q] = o->stride[i];
    }
    fold(g);
    g->n_batches = 1;
    for (int i = 0; i < g->n_batch; i++)
        g->n_batches *= g->batch[i];
    if (g->m == 0 || g->n == 0)
        g->n_batches = 0;
    cut(g);
    if (d->param[1])
        cut_for_rows(g);
}

static bool accepts(const WfLibDesc *d, char *why, size_t size)
{
    if (d->n != 3 && d->n != 4)
        return wf_refuse(why, size, "gemm takes A, B, bias, D");
    int out = d->n - 1, rank = d->operand[0].rank;
    WfDtype t = d->operand[0].dtype;
    if (t != WF_F32 && t != WF_F64)
        return wf_refuse(why, size, "A is neither f32 nor f64");
    if (rank < 2 || rank > 6)
        return wf_refuse(why, size, "A has %d dimensions, expected 2 to 6", rank);
    if (!wf_want(d, 0, "A", t, rank, why, size) || !wf_want(d, 1, "B", t, rank, why, size) ||
        !wf_want(d, out, "D", t, rank, why, size))
        return false;
    const WfOperand *a = &d->operand[0], *b = &d->operand[1], *o = &d->operand[out];
    if (a->shape[rank - 2] != o->shape[rank - 2] || a->shape[rank - 1] != b->shape[rank - 2] ||
        b->shape[rank - 1] != o->shape[rank - 1])
        return wf_refuse(why, size, "the shapes of A, B and D do not fit");
    for (int i = 0; i < rank - 2; i++)
        if ((a->shape[i] != o->shape[i] && a->shape[i] != 1) ||
            (b->shape[i] != o->shape[i] && b->shape[i] != 1))
            return wf_refuse(why, size, "batch dimension %d of A, B and D does not fit", i);
    for (int i = 0; i < 2; i++) {
        const WfOperand *x = &d->operand[i];
        if (x->stride[rank - 1] != 1 && x->stride[rank - 2] != 1 && x->shape[rank - 1] != 1 &&
            x->shape[rank - 2] != 1)
            return wf_refuse(why, size,
                             "neither of the last two strides of %s is 1: copy it to a dense layout",
                             i ? "B" : "A");
    }
    if (o->shape[rank - 1] > 1 && o->stride[rank - 1] != 1)
        return wf_refuse(why, size, "the last stride of D is not 1: write to a dense D");
    if (o->shape[rank - 2] > 1 && o->stride[rank - 2] < o->shape[rank - 1])
        return wf_refuse(why, size, "rows of D overlap");
    if (d->n == 4 && wf_has(d, 2) &&
        (!wf_want(d, 2, "bias", t, 1, why, size) || d->operand[2].shape[0] != o->shape[rank - 1]))
        return wf_refuse(why, size, "bias is not %s[N]", wf_dtype_name(t));
    return true;
}

static int64_t tile_columns(const Gemm *g)
{
    int64_t units = (g->n + WF_NR - 1) / WF_NR;
    return (units + g->n_tiles - 1) / g->n_tiles * WF_NR;
}

static void sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    Gemm g;
    plan(d, &g);
    if (g.f64)
        return;
    if (wf_gemm_amx_takes(d, &g)) {
        wf_gemm_amx_sizes(d, &g, workspace, scratch);
        return;
    }
    int64_t floats = g.k_splits > 1 ? g.k_splits * g.m * g.n : g.shared ? wf_prepack_size(g.k, g.n) : 0;
    *workspace = (size_t)floats * sizeof(float);
    *scratch =
        (size_t)(g.shared ? WF_BLOCK_SCRATCH : wf_product_scratch(tile_columns(&g), g.k)) * sizeof(float);
}

static void product_f64(const Gemm *g, int64_t i0, int64_t i1, int64_t j0, int64_t j1, const double *a,
                        const double *b, const double *bias, double *c)
{
    for (int64_t i = i0; i < i1; i++) {
        double *row = c + i * g->dm;
        for (int64_t j = j0; j < j1; j++)
            row[j] = (g->add ? row[j] : 0) + (bias ? bias[j * g->bias_stride] : 0);
        for (int64_t p = 0; p < g->k; p++)
            for (int64_t j = j0; j < j1; j++)
                row[j] += a[i * g->am + p * g->ak] * b[p * g->bk + j * g->bn];
    }
}

static void run_entry(const Gemm *g, int64_t entry, int64_t mi, int64_t ni, int64_t ki, void *const *operand,
                      float *workspace, float *scratch)
{
    int64_t a_at = 0, b_at = 0, d_at = 0;
    for (int q = g->n_batch - 1; q >= 0; q--) {
        int64_t x = entry % g->batch[q];
        entry /= g->batch[q];
        a_at += x * g->a_batch[q];
        b_at += x * g->b_batch[q];
        d_at += x * g->d_batch[q];
    }
    int64_t i0 = tile_rows(g->m, g->m_tiles, 1, mi), i1 = tile_rows(g->m, g->m_tiles, 1, mi + 1);
    int64_t j0 = tile_rows(g->n, g->n_tiles, WF_NR, ni), j1 = tile_rows(g->n, g->n_tiles, WF_NR, ni + 1);
    const void *bias = g->bias ? operand[g->bias] : NULL;
    if (g->f64) {
        product_f64(g, i0, i1, j0, j1, (const double *)operand[0] + a_at, (const double *)operand[1] + b_at,
                    bias, (double *)operand[g->out] + d_at);
        return;
    }
    int64_t k0 = g->k * ki / g->k_splits, k1 = g->k * (ki + 1) / g->k_splits;
    const float *a = (const float *)operand[0] + a_at + i0 * g->am + k0 * g->ak;
    const float *b = (const float *)operand[1] + b_at + j0 * g->bn + k0 * g->bk;
    if (g->k_splits > 1) {
        float *part = workspace + ki * g->m * g->n;
        wf_product(g->vec, i1 - i0, j1 - j0, k1 - k0, a, g->am, g->ak, b, g->bk, g->bn, part + i0 * g->n + j0,
                   g->n, false, scratch);
        return;
    }
    float *c = (float *)operand[g->out] + d_at + i0 * g->dm + j0;
    if (bias)
        wf_gemm_bias_rows(g, i1 - i0, j1 - j0, (const float *)bias + j0 * g->bias_stride, c);
    bool add = g->add || bias;
    if (g->shared)
        wf_product_columns(g->vec, i1 - i0, j0, j1 - j0, g->n, g->k, a, g->am, g->ak, workspace, c, g->dm,
                           add, scratch);
    else
        wf_product(g->vec, i1 - i0, j1 - j0, g->k, a, g->am, g->ak, b, g->bk, g->bn, c, g->dm, add, scratch);
}

static int64_t pack_tiles(const Gemm *g)
{
    return wf_k_blocks(g->k) * ((g->n + PACK_COLUMNS - 1) / PACK_COLUMNS);
}

/* Packs one K block of some columns of B. */
static void pack(const Gemm *g, int64_t tile, void *const *operand, float *packed)
{
    int64_t blocks = wf_k_blocks(g->k), q = tile % blocks, j = tile / blocks * PACK_COLUMNS;
    int64_t p = g->k * q / blocks, kc = g->k * (q + 1) / blocks - p;
    int64_t n = g->n - j < PACK_COLUMNS ? g->n - j : PACK_COLUMNS;
    g->vec->pack_b(kc, n, (const float *)operand[1] + p * g->bk + j * g->bn, g->bk, g->bn,
                   packed + p * wf_up(g->n, WF_NR) + j * kc);
}

/* Adds the partial results of one range of rows in a balanced tree: ((0+1)+(2+3))+... */
static void combine(const Gemm *g, int64_t tile, int64_t tiles, void *const *operand, float *part)
{
    int64_t i0 = g->m * tile / tiles, i1 = g->m * (tile + 1) / tiles, size = g->m * g->n;
    for (int64_t step = 1; step < g->k_splits; step *= 2)
        for (int64_t s = 0; s + step < g->k_splits; s += 2 * step)
            for (int64_t e = i0 * g->n; e < i1 * g->n; e++)
                part[s * size + e] += part[(s + step) * size + e];
    const float *bias = g->bias ? operand[g->bias] : NULL;
    for (int64_t i = i0; i < i1; i++) {
        float *row = (float *)operand[g->out] + i * g->dm;
        for (int64_t j = 0; j < g->n; j++) {
            float start = (g->add ? row[j] : 0) + (bias ? bias[j * g->bias_stride] : 0);
            row[j] = start + part[i * g->n + j];
        }
    }
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                void *scratch, int thread)
{
    const Gemm *g = lib->self;
    (void)thread;
    if (g->shared && phase == 0) {
        pack(g, tile, operand, workspace);
        return;
    }
    if (!g->shared && phase == 1) {
        combine(g, tile, lib->tiles[1], operand, workspace);
        return;
    }
    if (g->whole && g->k_splits == 1) {
        for (int64_t ni = 0; ni < g->n_tiles; ni++)
            run_entry(g, 0, tile, ni, 0, operand, workspace, scratch);
        return;
    }
    /* Tiles that follow each other read the same columns of B: they find them in the cache. */
    int64_t ki = tile % g->k_splits, mi = tile / g->k_splits % g->m_tiles;
    int64_t ni = tile / (g->k_splits * g->m_tiles) % g->n_tiles;
    int64_t first = tile / (g->k_splits * g->n_tiles * g->m_tiles) * g->group;
    int64_t last = first + g->group < g->n_batches ? first + g->group : g->n_batches;
    for (int64_t entry = first; entry < last; entry++)
        run_entry(g, entry, mi, ni, ki, operand, workspace, scratch);
}

static void rows(const WfLib *lib, int64_t tile, int64_t *first, int64_t *end)
{
    const Gemm *g = lib->self;
    int64_t tiles = lib->tiles[lib->n_phases - 1];
    *first = g->m * tile / tiles;
    *end = g->m * (tile + 1) / tiles;
}

static void create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    (void)ctx;
    (void)threads;
    Gemm *g = WF_NEW(arena, Gemm);
    plan(d, g);
    if (wf_gemm_amx_takes(d, g)) {
        wf_gemm_amx_create(arena, d, g, lib);
        return;
    }
    lib->self = g;
    lib->run = run;
    int64_t tiles = (g->n_batches + g->group - 1) / g->group * g->m_tiles * g->n_tiles * g->k_splits;
    if (g->shared)
        lib->tiles[lib->n_phases++] = pack_tiles(g);
    if (g->whole && g->k_splits == 1)
        tiles = g->m_tiles;
    if (g->whole)
        lib->rows = rows, lib->n_rows = g->m;
    lib->tiles[lib->n_phases++] = tiles;
    if (g->k_splits > 1)
        lib->tiles[lib->n_phases++] = g->m < 8 ? 1 : 8;
}

const WfKind wf_kind_gemm = {"gemm", accepts, sizes, create};
