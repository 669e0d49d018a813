/* The vector code of the kernels, included once per ISA level with
 *   VL      floats in a vector (8 or 16)
 *   MR      rows of the largest register tile (its width is two vectors)
 *   TARGET  the function attribute that allows the instructions
 *   NAME(x) the name of this level's x
 * Only GCC's vector extensions are used, so that gcc and clang both compile it and no intrinsics header is needed.
 *
 * The register tile: MR x 2 accumulators are named variables, not an array, so that they stay in registers whatever
 * the optimiser thinks of unrolling; rows above R are dead code in the instance for R rows. A tile of an output block
 * has any number of rows from 1 to MR, which lets gemm cut M evenly instead of leaving a thin last tile. Every
 * element is one chain of fused multiply-adds over k from zero, whatever tile it falls in: its bits do not depend on
 * the tile shape, nor on the vector length. */
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
#define LOAD(p) ((vf) * (const vfu *)(p))
#define STORE(p, v) (*(vfu *)(p) = (v))
#define INLINE static inline __attribute__((always_inline)) TARGET

/* ---- gemm ------------------------------------------------------------------------------------------------------- */

#define ROWS_3(X) X(0) X(1) X(2) X(3) X(4) X(5)
#if MR > 6
#define ROWS(X) ROWS_3(X) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#else
#define ROWS(X) ROWS_3(X)
#endif

/* c[R, V*VL] = (or +=) sum over p < k of a[., p] b[p, .]. Element (i, p) of a is at a[i*WF_ROW + p] in row layout and
 * at a[p*WF_COL + i] in column layout; b is k x V*VL, dense. */
INLINE void tile(const int R, const int V, const bool row, int64_t k, const float *a, const float *b, float *c,
                 int64_t ldc, bool add)
{
#define DECLARE(i) vf x##i = {0}, y##i = {0};
#define STEP(i)                                                                                                       \
    if (R > i) {                                                                                                      \
        float s = row ? a[i * WF_ROW] : a[i];                                                                         \
        x##i += b0 * s;                                                                                               \
        if (V > 1)                                                                                                    \
            y##i += b1 * s;                                                                                           \
    }
#define FINISH(i)                                                                                                     \
    if (R > i) {                                                                                                      \
        float *ci = c + i * ldc;                                                                                      \
        STORE(ci, add ? LOAD(ci) + x##i : x##i);                                                                      \
        if (V > 1)                                                                                                    \
            STORE(ci + VL, add ? LOAD(ci + VL) + y##i : y##i);                                                        \
    }
    ROWS(DECLARE)
    for (int64_t p = 0; p < k; p++) {
        vf b0 = LOAD(b), b1 = V > 1 ? LOAD(b + VL) : b0;
        ROWS(STEP)
        a += row ? 1 : WF_COL;
        b += V * VL;
    }
    ROWS(FINISH)
#undef DECLARE
#undef STEP
#undef FINISH
}

typedef void TileFn(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add);

#define TILE_FN(i)                                                                                                    \
    TARGET static void tile_r1_##i(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add)        \
    {                                                                                                                 \
        tile(i + 1, 1, true, k, a, b, c, ldc, add);                                                                   \
    }                                                                                                                 \
    TARGET static void tile_r2_##i(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add)        \
    {                                                                                                                 \
        tile(i + 1, 2, true, k, a, b, c, ldc, add);                                                                   \
    }                                                                                                                 \
    TARGET static void tile_c1_##i(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add)        \
    {                                                                                                                 \
        tile(i + 1, 1, false, k, a, b, c, ldc, add);                                                                  \
    }                                                                                                                 \
    TARGET static void tile_c2_##i(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add)        \
    {                                                                                                                 \
        tile(i + 1, 2, false, k, a, b, c, ldc, add);                                                                  \
    }
ROWS(TILE_FN)

#define R1(i) tile_r1_##i,
#define R2(i) tile_r2_##i,
#define C1(i) tile_c1_##i,
#define C2(i) tile_c2_##i,
static TileFn *const tiles[2][2][MR] = {{{ROWS(C1)}, {ROWS(C2)}}, {{ROWS(R1)}, {ROWS(R2)}}};

/* One row panel against all column panels of a packed block. `edge` holds MR x 2*VL floats. */
TARGET static void panel(int rows, bool row, int n, int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                         bool add, float *edge)
{
    for (int j = 0; j < n; j += 2 * VL) {
        int cols = n - j < 2 * VL ? n - j : 2 * VL;
        TileFn *fn = tiles[row][cols > VL][rows - 1];
        if (cols == VL || cols == 2 * VL) {
            fn(k, a, b, c + j, ldc, add);
        } else {
            fn(k, a, b, edge, 2 * VL, false);
            for (int i = 0; i < rows; i++)
                for (int q = 0; q < cols; q++)
                    c[i * ldc + j + q] = edge[i * 2 * VL + q] + (add ? c[i * ldc + j + q] : 0);
        }
        b += k * 2 * VL;
    }
}

/* Rows of b are contiguous: copies k x cols into a panel of width w (VL or 2*VL), zero beyond cols. */
INLINE void pack_rows(int64_t k, int cols, int w, const float *b, int64_t ld, float *out)
{
    if (cols == 2 * VL) {
        for (int64_t p = 0; p < k; p++, b += ld, out += 2 * VL) {
            STORE(out, LOAD(b));
            STORE(out + VL, LOAD(b + VL));
        }
        return;
    }
    for (int64_t p = 0; p < k; p++, b += ld, out += w)
        for (int j = 0; j < w; j++)
            out[j] = j < cols ? b[j] : 0;
}

/* Swaps element j of the upper row with element j - s of the lower, for the j that have bit s set: one of the log2(VL)
 * steps of a transposition in registers. */
#if VL == 16
#define LO(j, s) ((j) & (s) ? 16 + (j) - (s) : (j))
#define HI(j, s) ((j) & (s) ? 16 + (j) : (j) + (s))
#define ALL(F, s) F(0, s), F(1, s), F(2, s), F(3, s), F(4, s), F(5, s), F(6, s), F(7, s), F(8, s), F(9, s),           \
        F(10, s), F(11, s), F(12, s), F(13, s), F(14, s), F(15, s)
#else
#define LO(j, s) ((j) & (s) ? 8 + (j) - (s) : (j))
#define HI(j, s) ((j) & (s) ? 8 + (j) : (j) + (s))
#define ALL(F, s) F(0, s), F(1, s), F(2, s), F(3, s), F(4, s), F(5, s), F(6, s), F(7, s)
#endif
#define SWAP(i, j, s)                                                                                                 \
    do {                                                                                                              \
        vf lo = __builtin_shufflevector(r##i, r##j, ALL(LO, s));                                                      \
        r##j = __builtin_shufflevector(r##i, r##j, ALL(HI, s));                                                       \
        r##i = lo;                                                                                                    \
    } while (0)

/* out[p*w + j] = b[j*ld + p] for p, j < VL. */
INLINE void transpose(const float *b, int64_t ld, float *out, int w)
{
#define EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#if VL == 16
#define EACH(X) EIGHT(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#else
#define EACH(X) EIGHT(X)
#endif
#define GET(i) vf r##i = LOAD(b + i * ld);
#define PUT(i) STORE(out + i * w, r##i);
    EACH(GET)
    SWAP(0, 1, 1); SWAP(2, 3, 1); SWAP(4, 5, 1); SWAP(6, 7, 1);
    SWAP(0, 2, 2); SWAP(1, 3, 2); SWAP(4, 6, 2); SWAP(5, 7, 2);
    SWAP(0, 4, 4); SWAP(1, 5, 4); SWAP(2, 6, 4); SWAP(3, 7, 4);
#if VL == 16
    SWAP(8, 9, 1); SWAP(10, 11, 1); SWAP(12, 13, 1); SWAP(14, 15, 1);
    SWAP(8, 10, 2); SWAP(9, 11, 2); SWAP(12, 14, 2); SWAP(13, 15, 2);
    SWAP(8, 12, 4); SWAP(9, 13, 4); SWAP(10, 14, 4); SWAP(11, 15, 4);
    SWAP(0, 8, 8); SWAP(1, 9, 8); SWAP(2, 10, 8); SWAP(3, 11, 8);
    SWAP(4, 12, 8); SWAP(5, 13, 8); SWAP(6, 14, 8); SWAP(7, 15, 8);
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
            if (j + VL <= cols) {
                transpose(b + j * ld + p, ld, out + p * w + j, w);
                continue;
            }
            for (int q = 0; q < VL; q++)
                for (int i = 0; i < VL; i++)
                    out[(p + i) * w + j + q] = j + q < cols ? b[(j + q) * ld + p + i] : 0;
        }
    }
    for (; p < k; p++)
        for (int j = 0; j < w; j++)
            out[p * w + j] = j < cols ? b[j * ld + p] : 0;
}

TARGET static void pack_b(int64_t k, int64_t n, const float *b, int64_t bk, int64_t bn, float *out)
{
    for (int64_t j = 0; j < n; j += 2 * VL, out += k * 2 * VL) {
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

typedef float v8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v4u __attribute__((vector_size(16), aligned(4), may_alias));

/* Copies 1 to 16 floats with two overlapping moves. */
INLINE void copy_few(int n, const float *a, float *out)
{
    if (n >= 8) {
        v8u x = *(const v8u *)a, y = *(const v8u *)(a + n - 8);
        *(v8u *)out = x;
        *(v8u *)(out + n - 8) = y;
    } else if (n >= 4) {
        v4u x = *(const v4u *)a, y = *(const v4u *)(a + n - 4);
        *(v4u *)out = x;
        *(v4u *)(out + n - 4) = y;
    } else {
        for (int i = 0; i < n; i++)
            out[i] = a[i];
    }
}

/* Packs `rows` rows of a and says which layout it chose. */
TARGET static bool pack_a(int rows, int64_t k, const float *a, int64_t am, int64_t ak, float *out)
{
    if (am == 1 && rows > 1) {
        for (int64_t p = 0; p < k; p++, a += ak, out += WF_COL)
            copy_few(rows, a, out);
        return false;
    }
    for (int i = 0; i < rows; i++, a += am, out += WF_ROW) {
        if (ak == 1)
            __builtin_memcpy(out, a, (size_t)k * sizeof(float));
        else
            for (int64_t p = 0; p < k; p++)
                out[p] = a[p * ak];
    }
    return true;
}

TARGET static void block(int64_t m, int64_t n, int64_t k, const float *a, int64_t am, int64_t ak, const float *b,
                         float *c, int64_t ldc, bool add, float *scratch)
{
    int64_t panels = (m + MR - 1) / MR;
    float *edge = scratch + WF_PANEL;
    for (int64_t q = 0; q < panels; q++) {
        int64_t i = m * q / panels;
        int rows = (int)(m * (q + 1) / panels - i);
        bool row = pack_a(rows, k, a + i * am, am, ak, scratch);
        panel(rows, row, (int)n, k, scratch, b, c + i * ldc, ldc, add, edge);
    }
}
