/* Splitting, packing and multiplying on AMX tiles; see amx.h. */
#include "kernels/amx.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if !defined(__clang__)
#pragma GCC optimize("O2", "no-trapping-math", "no-math-errno") /* in debug builds too */
#endif
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,prfchw")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { SIDE = WF_AMX_SIDE, HALF = 16, TILE = 1024, PLANE = 2 * TILE, PLANES = 3 };

/* ---- may we? ------------------------------------------------------------------------------------ */

static bool available;

static void ask(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(0), "c"(0));
    if (a < 7)
        return;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    if (!(d >> 22 & 1) || !(d >> 24 & 1)) /* amx-bf16, amx-tile */
        return;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(1));
    if (!(a >> 5 & 1)) /* avx512-bf16 */
        return;
    available = !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
}

bool wf_amx_available(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask);
    return available;
}

/* ---- packing ------------------------------------------------------------------------------------ */

/* Pairs of float32 as words of two bfloat16 (x below, y above), part by part: the largest, what that leaves, what is left
 * then. A part is rounded to nearest by an addition to the integer that the float is. *sick becomes NaN where x or y is
 * infinite, NaN, or rounds to infinity. */
INLINE void split(__m512 x, __m512 y, __m512i out[PLANES], __m512 *sick)
{
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000);
    for (int i = 0; i < PLANES; i++) {
        __m512i p = _mm512_castps_si512(x), q = _mm512_castps_si512(y);
        if (i == PLANES - 1) { /* fits */
            *sick = _mm512_fmadd_ps(x, y, *sick);
        } else {
            p = _mm512_and_si512(_mm512_add_epi32(p, half), upper);
            q = _mm512_and_si512(_mm512_add_epi32(q, half), upper);
            x = _mm512_sub_ps(x, _mm512_castsi512_ps(p));
            y = _mm512_sub_ps(y, _mm512_castsi512_ps(q));
        }
        out[i] = _mm512_ternarylogic_epi32(_mm512_srli_epi32(p, 16), q, upper, 0xf8); /* a | (b & c) */
    }
}

/* A block of 16 x 16, rows and columns swapped. */
INLINE void transpose(__m512 in[HALF])
{
    __m512 t[HALF];
    __m512d u[HALF];
    for (int i = 0; i < HALF; i += 2) {
        t[i] = _mm512_unpacklo_ps(in[i], in[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(in[i], in[i + 1]);
    }
    for (int i = 0; i < HALF; i += 4)
        for (int j = 0; j < 2; j++) {
            u[i + 2 * j] = _mm512_unpacklo_pd(_mm512_castps_pd(t[i + j]), _mm512_castps_pd(t[i + 2 + j]));
            u[i + 2 * j + 1] = _mm512_unpackhi_pd(_mm512_castps_pd(t[i + j]), _mm512_castps_pd(t[i + 2 + j]));
        }
    for (int j = 0; j < 4; j++) { /* u[4 i + j] holds columns j, 4 + j, 8 + j, 12 + j of rows 4 i to 4 i + 3 */
        __m512 v[4];
        for (int i = 0; i < 4; i++)
            v[i] = _mm512_castpd_ps(u[4 * i + j]);
        __m512 a = _mm512_shuffle_f32x4(v[0], v[1], 0x88), b = _mm512_shuffle_f32x4(v[0], v[1], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(v[2], v[3], 0x88), d = _mm512_shuffle_f32x4(v[2], v[3], 0xdd);
        in[j] = _mm512_shuffle_f32x4(a, c, 0x88);
        in[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
        in[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
        in[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* One half of a step: 16 along the outer dim, 32 along K, of which n and k are there. A word holds elements q and q + 16
 * along K. Rows of A's tiles lie along K, those of B's along the outer dim: as in memory, or to be transposed. */
INLINE void pack_half(const bool right, const bool k_contiguous, int64_t n, int64_t k, const float *x, int64_t stride, char *out,
                      __m512 *sick)
{
    const bool turn = right == k_contiguous;
    __m512 first[HALF], second[HALF];
    __m512i parts[PLANES];
    __mmask16 low = (__mmask16)(k_contiguous ? (k >= HALF ? 0xffff : (1u << k) - 1) : (1u << n) - 1);
    __mmask16 high = (__mmask16)(k_contiguous ? (k <= HALF ? 0 : k >= SIDE ? 0xffff : (1u << (k - HALF)) - 1) : low);
    for (int i = 0; i < HALF; i++) {
        int64_t j = k_contiguous ? i : i + HALF, end = k_contiguous ? n : k;
        __m512 a = _mm512_maskz_loadu_ps(i < end ? low : 0, x + (i < end ? i * stride : 0));
        __m512 b = _mm512_maskz_loadu_ps(j < end ? high : 0, x + (j < end ? j * stride : 0) + (k_contiguous ? HALF : 0));
        if (turn) {
            first[i] = a, second[i] = b;
            continue;
        }
        split(a, b, parts, sick);
        for (int p = 0; p < PLANES; p++)
            _mm512_store_si512(out + p * PLANE + 64 * i, parts[p]);
    }
    if (!turn)
        return;
    transpose(first);
    transpose(second);
    for (int i = 0; i < HALF; i++) {
        split(first[i], second[i], parts, sick);
        for (int p = 0; p < PLANES; p++)
            _mm512_store_si512(out + p * PLANE + 64 * i, parts[p]);
    }
}

INLINE bool pack(const bool right, const bool k_contiguous, int64_t outer, int64_t k, const float *x, int64_t stride, char *out)
{
    int64_t steps = (k + SIDE - 1) / SIDE, panels = (outer + SIDE - 1) / SIDE;
    __m512 sick = _mm512_setzero_ps();
    /* Along what lies together, so that every line and page is read once. */
    for (int64_t at = 0; at < steps * panels; at++) {
        int64_t panel = k_contiguous ? at / steps : at % panels, step = k_contiguous ? at % steps : at / panels;
        char *to = out + (panel * steps + step) * WF_AMX_STEP;
        int64_t deep = k - step * SIDE < SIDE ? k - step * SIDE : SIDE;
        for (int half = 0; half < 2; half++) {
            int64_t i = panel * SIDE + half * HALF, n = outer - i < HALF ? outer - i : HALF;
            if (n > 0)
                pack_half(right, k_contiguous, n, deep,
                          x + (k_contiguous ? i * stride + step * SIDE : i + step * SIDE * stride), stride, to + half * TILE,
                          &sick);
        }
    }
    return !_mm512_cmp_ps_mask(sick, sick, _CMP_UNORD_Q);
}

TARGET bool wf_amx_pack_a(int64_t outer, int64_t k, const float *x, int64_t outer_stride, int64_t k_stride, void *out)
{
    return k_stride == 1 ? pack(false, true, outer, k, x, outer_stride, out) : pack(false, false, outer, k, x, k_stride, out);
}

TARGET bool wf_amx_pack_b(int64_t outer, int64_t k, const float *x, int64_t outer_stride, int64_t k_stride, void *out)
{
    return k_stride == 1 ? pack(true, true, outer, k, x, outer_stride, out) : pack(true, false, outer, k, x, k_stride, out);
}

/* ---- multiplying -------------------------------------------------------------------------------- */

/* c[16 R, 16 S] (+)= one panel of A times one of B. Tiles 0 to 3 hold c, 4 and 5 a part of A, 6 and 7 one of B. The order
 * needs the fewest loads that begin with a small product and end with the large one. */
INLINE void tiles(const int R, const int S, int64_t steps, const char *a, const char *b, float *c, int64_t ldc, bool add)
{
#define LOAD(first, second, part, plane, two)                         \
    do {                                                     \
        _tile_loadd(first, part + (plane) * PLANE, 64);       \
        if (two) {                                           \
            _tile_loadd(second, part + (plane) * PLANE + TILE, 64); \
        }                                                    \
    } while (0)
#define LOAD_A(plane) LOAD(4, 5, a, plane, R > 1)
#define LOAD_B(plane) LOAD(6, 7, b, plane, S > 1)
#define EACH_TILE(X) \
    do {             \
        X(0, 4, 6, 0);  \
        if (S > 1) { \
            X(1, 4, 7, 64); \
        }            \
        if (R > 1) { \
            X(2, 5, 6, HALF * ldc); \
        }            \
        if (R > 1 && S > 1) { \
            X(3, 5, 7, HALF * ldc + 64); \
        }            \
    } while (0)
#define ZERO(t, x, y, at) _tile_zero(t)
#define READ(t, x, y, at) _tile_loadd(t, to + (at), ldc)
#define WRITE(t, x, y, at) _tile_stored(t, to + (at), ldc)
#define ADD(t, x, y, at) _tile_dpbf16ps(t, x, y)
#define MULTIPLY EACH_TILE(ADD)
    enum { H, M, L };
    ldc *= (int64_t)sizeof(float);
    char *to = (char *)c;
    if (add)
        EACH_TILE(READ);
    else
        EACH_TILE(ZERO);
    for (int64_t step = 0; step < steps; step++, a += WF_AMX_STEP, b += WF_AMX_STEP) {
        for (int64_t i = 8 * step; i < 8 * step + 8 && i < R * HALF; i++) { /* there when it is written */
            __builtin_prefetch(to + i * ldc, 1);
            if (S > 1)
                __builtin_prefetch(to + i * ldc + 64, 1);
        }
        LOAD_A(L);
        LOAD_B(H);
        MULTIPLY;
        LOAD_A(M);
        MULTIPLY;
        LOAD_B(M);
        MULTIPLY;
        LOAD_A(H);
        MULTIPLY;
        LOAD_B(L);
        MULTIPLY;
        LOAD_B(H);
        MULTIPLY;
    }
    EACH_TILE(WRITE);
#undef LOAD
#undef LOAD_A
#undef LOAD_B
#undef EACH_TILE
#undef ZERO
#undef READ
#undef WRITE
#undef ADD
#undef MULTIPLY
}

TARGET static void block(bool tall, bool wide, int64_t steps, const char *a, const char *b, float *c, int64_t ldc, bool add)
{
    if (tall && wide)
        tiles(2, 2, steps, a, b, c, ldc, add);
    else if (tall)
        tiles(2, 1, steps, a, b, c, ldc, add);
    else if (wide)
        tiles(1, 2, steps, a, b, c, ldc, add);
    else
        tiles(1, 1, steps, a, b, c, ldc, add);
}

TARGET void wf_amx_multiply(int64_t m, int64_t n, int64_t k, const void *a, const void *b, float *c, int64_t ldc, bool add,
                            const float *bias, int64_t bias_stride)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 8; i++)
        shape.row_bytes[i] = 64, shape.rows[i] = HALF;
    _tile_loadconfig(&shape);
    int64_t steps = (k + SIDE - 1) / SIDE;
    float edge[SIDE * SIDE] __attribute__((aligned(64)));
    for (int64_t j = 0; j < n; j += SIDE)
        for (int64_t i = 0; i < m; i += SIDE) {
            const char *pa = (const char *)a + i / SIDE * steps * WF_AMX_STEP;
            const char *pb = (const char *)b + j / SIDE * steps * WF_AMX_STEP;
            int64_t rows = m - i < SIDE ? m - i : SIDE, columns = n - j < SIDE ? n - j : SIDE;
            bool whole = rows % HALF == 0 && columns % HALF == 0;
            float *to = c + i * ldc + j;
            if (whole && !bias) {
                block(rows > HALF, columns > HALF, steps, pa, pb, to, ldc, add);
                continue;
            }
            for (int64_t r = 0; (add || bias) && r < rows; r++)
                for (int64_t q = 0; q < columns; q++)
                    edge[r * SIDE + q] = (add ? to[r * ldc + q] : 0) + (bias ? bias[(j + q) * bias_stride] : 0);
            block(rows > HALF, columns > HALF, steps, pa, pb, edge, SIDE, add || bias);
            for (int64_t r = 0; r < rows; r++)
                memcpy(to + r * ldc, edge + r * SIDE, (size_t)columns * sizeof(float));
        }
    _tile_release();
}

#else

bool wf_amx_available(void) { return false; }
bool wf_amx_pack_a(int64_t outer, int64_t k, const float *x, int64_t os, int64_t ks, void *out)
{
    (void)outer, (void)k, (void)x, (void)os, (void)ks, (void)out;
    return false;
}
bool wf_amx_pack_b(int64_t outer, int64_t k, const float *x, int64_t os, int64_t ks, void *out)
{
    return wf_amx_pack_a(outer, k, x, os, ks, out);
}
void wf_amx_multiply(int64_t m, int64_t n, int64_t k, const void *a, const void *b, float *c, int64_t ldc, bool add,
                     const float *bias, int64_t bias_stride)
{
    (void)m, (void)n, (void)k, (void)a, (void)b, (void)c, (void)ldc, (void)add, (void)bias, (void)bias_stride;
}

#endif
