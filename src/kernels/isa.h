/* The vector code of the kernels, included once per ISA level with VL, the floats in a vector (8 or 16); MR,
 * the rows of the largest register tile (its width is two vectors); TARGET, the function attribute that
 * allows the instructions; NAME(x), the name of this level's x. Only GCC's vector extensions are used, so
 * that gcc and clang both compile it and no intrinsics header is needed.
 *
 * The register tile is MR rows by two vectors (tile.h), or by one: accumulators are named variables, not an array, so that
 * they stay in registers whatever the optimiser thinks of unrolling; rows above R are dead code in the instance for R rows. A
 * tile of an output block has any number of rows from 1 to MR, which lets gemm cut M evenly instead of leaving a
 * thin last tile. Every element is one chain of fused multiply-adds over k from zero, whatever tile it falls
 * in: its bits do not depend on the tile shape, nor on the vector length. */
#include "kernels/private.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT ON
#else
/* The kernels are what the product's speed is made of: optimised in debug builds too. */
#pragma GCC optimize("O2", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef float vfu __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define LOAD(p)     ((vf) * (const vfu *)(p))
#define STORE(p, v) (*(vfu *)(p) = (v))
#define INLINE      static inline __attribute__((always_inline)) TARGET

/* ---- gemm --------------------------------------------------------------------------------------- */

#define ROWS_3(X) X(0) X(1) X(2) X(3) X(4) X(5)
#if MR > 6
#define ROWS(X) ROWS_3(X) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#else
#define ROWS(X) ROWS_3(X)
#endif

/* How the register tile finds element (i, p) of a: in columns at a[p*ld + i]; in rows at
 * a[i*ld + p] (three rows share a pointer: an address can scale an index by 2). */
enum { COLUMNS, ROWS_OF_A, PANELS_PACKED = WF_A_PACKED / WF_KC / VL };

/* c[R, VL] = (or +=) sum over p < k of a[., p] b[p, .]; rows of b are ldb apart. */
INLINE void tile(const int R, const int layout, int64_t k, const float *a, int64_t ld, const float *b, int64_t ldb,
                 float *c, int64_t ldc, bool add)
{
#define DECLARE(i) vf x##i = {0};
#define STEP(i) \
    if (R > i)  \
        x##i += LOAD(b) * (layout == COLUMNS ? a[i] : at[i / 3][i % 3 * ld]);
#define FINISH(i) \
    if (R > i)    \
        STORE(c + i * ldc, add ? LOAD(c + i * ldc) + x##i : x##i);
    const float *at[5] = {a, a + 3 * ld, a + 6 * ld, a + 9 * ld, a + 12 * ld};
    for (int i = 0; i < R; i++) /* there when the sums are done */
        __builtin_prefetch(c + i * ldc, 1);
    ROWS(DECLARE)
    for (int64_t p = 0; p < k; p++) {
        __builtin_prefetch(b + 8 * ldb); /* b streams from the second-level cache, across pages */
        ROWS(STEP)
        a += layout == COLUMNS ? ld : 1;
        at[0]++, at[1]++, at[2]++, at[3]++, at[4]++;
        b += ldb;
    }
    ROWS(FINISH)
#undef DECLARE
#undef STEP
#undef FINISH
}

typedef void TileFn(int64_t k, const float *a, int64_t ld, const float *b, int64_t ldb, float *c, int64_t ldc,
                    bool add);

#define TILE(name, i, layout)                                                                         \
    TARGET static void name##_##i(int64_t k, const float *a, int64_t ld, const float *b, int64_t ldb, \
                                  float *c, int64_t ldc, bool add)                                    \
    {                                                                                                 \
        tile(i + 1, layout, k, a, ld, b, ldb, c, ldc, add);                                           \
    }
#define NARROW_TILES(i)  \
    TILE(c1, i, COLUMNS) \
    TILE(r1, i, ROWS_OF_A)
ROWS(NARROW_TILES)

#include "kernels/tile.h"

#define C1(i) c1_##i,
#define C2(i) c2_##i,
#define R1(i) r1_##i,
#define R2(i) r2_##i,
static TileFn *const tiles[2][2][MR] = {{{ROWS(C1)}, {ROWS(C2)}}, {{ROWS(R1)}, {ROWS(R2)}}};

/* One row panel against all column panels of a block of b: packed `deep` rows deep, of which the k from
 * `from` on are meant (ldb 0), or in place (n is a multiple of VL). `edge` holds MR x 2*VL floats. */
TARGET static void panel(int rows, bool columns, int64_t n, int64_t k, const float *a, int64_t ld,
                         const float *b, int64_t ldb, int64_t deep, int64_t from, float *c, int64_t ldc,
                         bool add, float *edge)
{
    for (int64_t j = 0; j < n; j += 2 * VL, b += ldb ? 2 * VL : deep * 2 * VL) {
        int cols = n - j < 2 * VL ? (int)(n - j) : 2 * VL;
        TileFn *fn = tiles[columns ? COLUMNS : ROWS_OF_A][cols > VL][rows - 1];
        int64_t step = ldb ? ldb : cols > VL ? 2 * VL : VL;
        const float *at = b + from * step;
        if (cols == VL || cols == 2 * VL) {
            fn(k, a, ld, at, step, c + j, ldc, add);
            continue;
        }
        fn(k, a, ld, at, step, edge, 2 * VL, false);
        for (int i = 0; i < rows; i++)
            for (int q = 0; q < cols; q++)
                c[i * ldc + j + q] = add ? c[i * ldc + j + q] + edge[i * 2 * VL + q] : edge[i * 2 * VL + q];
    }
}

/* Rows of b are contiguous: copies k x cols into a panel of width w (VL or 2*VL), zero beyond cols. */
INLINE void pack_rows(int64_t k, int cols, int w, const float *b, int64_t ld, float *out)
{
    for (int64_t p = 0; p < k; p++, b += ld, out += w)
        for (int j = 0; j < w; j++)
            out[j] = j < cols ? b[j] : 0;
}

/* Swaps element j of the upper row with element j - s of the lower, for the j that have bit s set: one of the
 * log2(VL) steps of a transposition in registers. */
#if VL == 16
#define LO(j, s) ((j) & (s) ? 16 + (j) - (s) : (j))
#define HI(j, s) ((j) & (s) ? 16 + (j) : (j) + (s))
#define ALL(F, s)                                                                                       \
    F(0, s), F(1, s), F(2, s), F(3, s), F(4, s), F(5, s), F(6, s), F(7, s), F(8, s), F(9, s), F(10, s), \
        F(11, s), F(12, s), F(13, s), F(14, s), F(15, s)
#else
#define LO(j, s)  ((j) & (s) ? 8 + (j) - (s) : (j))
#define HI(j, s)  ((j) & (s) ? 8 + (j) : (j) + (s))
#define ALL(F, s) F(0, s), F(1, s), F(2, s), F(3, s), F(4, s), F(5, s), F(6, s), F(7, s)
#endif
#define SWAP(i, j, s)                                            \
    do {                                                         \
        vf lo = __builtin_shufflevector(r##i, r##j, ALL(LO, s)); \
        r##j = __builtin_shufflevector(r##i, r##j, ALL(HI, s));  \
        r##i = lo;                                               \
    } while (0)

/* out[p*w + j] = b[j*ld + p] for p < VL, j < cols <= VL, zero for j from cols to VL - 1. */
INLINE void transpose(int cols, const float *b, int64_t ld, float *out, int w)
{
#define EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#if VL == 16
#define EACH(X) EIGHT(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#else
#define EACH(X) EIGHT(X)
#endif
#define GET(i)     \
    vf r##i = {0}; \
    if (i < cols)  \
        r##i = LOAD(b + i * ld);
#define PUT(i) STORE(out + i * w, r##i);
    EACH(GET)
    SWAP(0, 1, 1);
    SWAP(2, 3, 1);
    SWAP(4, 5, 1);
    SWAP(6, 7, 1);
    SWAP(0, 2, 2);
    SWAP(1, 3, 2);
    SWAP(4, 6, 2);
    SWAP(5, 7, 2);
    SWAP(0, 4, 4);
    SWAP(1, 5, 4);
    SWAP(2, 6, 4);
    SWAP(3, 7, 4);
#if VL == 16
    SWAP(8, 9, 1);
    SWAP(10, 11, 1);
    SWAP(12, 13, 1);
    SWAP(14, 15, 1);
    SWAP(8, 10, 2);
    SWAP(9, 11, 2);
    SWAP(12, 14, 2);
    SWAP(13, 15, 2);
    SWAP(8, 12, 4);
    SWAP(9, 13, 4);
    SWAP(10, 14, 4);
    SWAP(11, 15, 4);
    SWAP(0, 8, 8);
    SWAP(1, 9, 8);
    SWAP(2, 10, 8);
    SWAP(3, 11, 8);
    SWAP(4, 12, 8);
    SWAP(5, 13, 8);
    SWAP(6, 14, 8);
    SWAP(7, 15, 8);
#endif
    EACH(PUT)
#undef GET
#undef PUT
}

/* Columns of b are contiguous: the same panel by transposition. */
INLINE void pack_columns(int64_t k, int cols, int w, const float *b, int64_t ld, float *out)
{
    int64_t p = 0;
    for (; p + VL <= k; p += VL) {
        for (int j = 0; j < w; j += VL) {
            if (j + VL <= cols)
                transpose(VL, b + j * ld + p, ld, out + p * w + j, w);
            else
                transpose(cols - j, b + j * ld + p, ld, out + p * w + j, w);
        }
    }
    for (; p < k; p++)
        for (int j = 0; j < w; j++)
            out[p * w + j] = j < cols ? b[j * ld + p] : 0;
}

TARGET static void pack_b(int64_t k, int64_t n, const float *b, int64_t bk, int64_t bn, float *out)
{
    int64_t j = 0;
    /* Whole panels several at a time: a row that is read in one go streams, one that is cut at 32 columns
     * does not. */
    for (; bn == 1 && j + 2 * VL <= n;) {
        int64_t many = (n - j) / (2 * VL) < 8 ? (n - j) / (2 * VL) : 8;
        for (int64_t p = 0; p < k; p++) {
            const float *row = b + j + p * bk;
            float *to = out + p * 2 * VL;
            for (int64_t q = 0; q < many; q++, row += 2 * VL, to += k * 2 * VL) {
                __builtin_prefetch(row + 8 * bk);
                __builtin_prefetch(row + 8 * bk + VL);
                STORE(to, LOAD(row));
                STORE(to + VL, LOAD(row + VL));
            }
        }
        j += many * 2 * VL;
        out += many * k * 2 * VL;
    }
    for (; j < n; j += 2 * VL, out += k * 2 * VL) {
        int cols = n - j < 2 * VL ? (int)(n - j) : 2 * VL, w = cols > VL ? 2 * VL : VL;
        if (bn == 1)
            pack_rows(k, cols, w, b + j, bk, out);
        else if (bk == 1)
            pack_columns(k, cols, w, b + j * bn, bn, out);
        else
            for (int64_t p = 0; p < k; p++)
                for (int q = 0; q < w; q++)
                    out[p * w + q] = q < cols ? b[p * bk + (j + q) * bn] : 0;
    }
}

/* Elements first .. last - 1 of row panel q when m rows are cut evenly into panels of at most MR. */
#define PANELS(m) (((m) + MR - 1) / MR)
INLINE int64_t panel_row(int64_t m, int64_t q)
{
    return m * q / PANELS(m);
}

/* Row panels of a packed a are VL wide, though at most MR columns are used: rows of them are whole vectors. A
 * panel near the end starts earlier in its vectors, so that no load passes the end of a row. */
INLINE int64_t panel_shift(int64_t m, int64_t i)
{
    return m >= VL && i + VL > m ? i + VL - m : 0;
}

/* Lays a[k, m], rows ld apart, out as k of the `deep` rows of the row panels that `block` cuts. */
TARGET static void pack_a(int64_t m, int64_t k, const float *a, int64_t ld, int64_t deep, float *out)
{
    int64_t panels = PANELS(m), start[PANELS_PACKED];
    for (int64_t q = 0; q < panels; q++)
        start[q] = panel_row(m, q) - panel_shift(m, panel_row(m, q));
    for (int64_t p = 0; p < k; p++, a += ld, out += VL) {
        float *to = out;
        for (int64_t j = 0; j < m; j += 16)
            __builtin_prefetch(a + 16 * ld + j);
        for (int64_t q = 0; m >= VL && q < panels; q++, to += deep * VL)
            STORE(to, LOAD(a + start[q]));
        for (int64_t j = 0; m < VL && j < m; j++)
            out[j] = a[j];
    }
}

/* Panel by panel, all K blocks while the panel of c is in the first-level cache; a is read in place, in rows
 * or in columns. */
INLINE void in_place(const WfBlock *g, float *edge)
{
    bool rows = g->ak == 1;
    for (int64_t q = 0; q < PANELS(g->m); q++) {
        int64_t i = panel_row(g->m, q), n = panel_row(g->m, q + 1) - i;
        const float *b = g->b, *a = g->a + i * g->am;
        for (int64_t s = g->first; s < g->last; s++) {
            int64_t p = g->k * s / g->blocks, k = g->k * (s + 1) / g->blocks - p;
            panel((int)n, !rows, g->n, k, a + p * g->ak, rows ? g->am : g->ak,
                  b + g->column * (g->ldb ? 1 : k), g->ldb, k, 0, g->c + i * g->ldc, g->ldc,
                  g->add || s > g->first, edge);
            b += k * (g->ldb ? g->ldb : g->b_width);
        }
    }
}

/* The columns of a are packed, a few panels and a K block at a time: in place, every step of k would touch
 * another page. */
TARGET static void block(const WfBlock *g, float *edge)
{
    if (!g->pack || g->am != 1 || g->m < VL || g->n < 64) {
        in_place(g, edge);
        return;
    }
    float *packed = edge + WF_EDGE;
    int64_t parts = (PANELS(g->m) + PANELS_PACKED - 1) / PANELS_PACKED;
    for (int64_t part = 0; part < parts; part++) {
        int64_t i0 = g->m * part / parts, m = g->m * (part + 1) / parts - i0;
        const float *b = g->b;
        for (int64_t s = g->first; s < g->last; s++) {
            int64_t p = g->k * s / g->blocks, k = g->k * (s + 1) / g->blocks - p;
            pack_a(m, k, g->a + i0 + p * g->ak, g->ak, k, packed);
            for (int64_t q = 0; q < PANELS(m); q++) {
                int64_t i = panel_row(m, q), n = panel_row(m, q + 1) - i;
                panel((int)n, true, g->n, k, packed + q * k * VL + panel_shift(m, i), VL,
                      b + g->column * (g->ldb ? 1 : k), g->ldb, k, 0, g->c + (i0 + i) * g->ldc, g->ldc,
                      g->add || s > g->first, edge);
            }
            b += k * (g->ldb ? g->ldb : g->b_width);
        }
    }
}

/* c[m, n] (+)= a b over the first k of the `deep` rows of what pack_a and pack_b_row laid out. */
TARGET static void packed_block(int64_t m, int64_t n, int64_t k, int64_t deep, const float *a, const float *b,
                                float *c, int64_t ldc, bool add, float *edge)
{
    for (int64_t q = 0; q < PANELS(m); q++) {
        int64_t i = panel_row(m, q), rows = panel_row(m, q + 1) - i;
        panel((int)rows, true, n, k, a + q * deep * VL + panel_shift(m, i), VL, b, 0, deep, 0, c + i * ldc,
              ldc, add, edge);
    }
}

/* Row p of the `deep` rows of the column panels of a packed b. Reads n rounded up to whole vectors. */
TARGET static void pack_b_row(int64_t n, const float *row, int64_t deep, int64_t p, float *out)
{
    int64_t j = 0;
    for (; j + VL < n; j += 2 * VL) {
        float *to = out + j * deep + p * 2 * VL;
        STORE(to, LOAD(row + j));
        STORE(to + VL, LOAD(row + j + VL));
    }
    if (j < n)
        STORE(out + j * deep + p * VL, LOAD(row + j));
}

#include "kernels/rows.h"

#include "kernels/cells.h"

#include "kernels/taps.h"
