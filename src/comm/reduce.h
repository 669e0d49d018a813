/* The reducing kernels, compiled once per instruction set (TARGET, NAME). One block of elements at a time is summed
 * into a buffer that stays in the first cache and then written to all destinations, so every source is read once from
 * memory and a destination may be a source. The tree over ranks is walked per block; trees of up to four leaves are
 * one loop. The room is compiled without contraction of multiply and add: the bits are those of plain C. */
#include "comm/private.h"

#include <immintrin.h>
#include <string.h>

enum { BLOCK = 1024, LEVELS = 18 }; /* LEVELS: depth of the tree over 65536 ranks, and one */

#define REAL_TREE(T, NAME_)                                                                                           \
    TARGET static void NAME_(T *restrict out, const T *const *x, int n, size_t at, size_t m, T s, bool scaled, T *tmp) \
    {                                                                                                                 \
        const T *restrict a = x[0] + at, *restrict b = n > 1 ? x[1] + at : a, *restrict c = n > 2 ? x[2] + at : a,     \
                          *restrict d = n > 3 ? x[3] + at : a;                                                        \
        if (n == 1 && scaled)                                                                                         \
            for (size_t i = 0; i < m; i++)                                                                            \
                out[i] = a[i] * s;                                                                                    \
        else if (n == 1)                                                                                              \
            memcpy(out, a, m * sizeof(T));                                                                            \
        else if (n == 2 && scaled)                                                                                    \
            for (size_t i = 0; i < m; i++)                                                                            \
                out[i] = a[i] * s + b[i] * s;                                                                         \
        else if (n == 2)                                                                                              \
            for (size_t i = 0; i < m; i++)                                                                            \
                out[i] = a[i] + b[i];                                                                                 \
        else if (n == 3 && scaled)                                                                                    \
            for (size_t i = 0; i < m; i++)                                                                            \
                out[i] = (a[i] * s + b[i] * s) + c[i] * s;                                                            \
        else if (n == 3)                                                                                              \
            for (size_t i = 0; i < m; i++)                                                                            \
                out[i] = (a[i] + b[i]) + c[i];                                                                        \
        else if (n == 4 && scaled)                                                                                    \
            for (size_t i = 0; i < m; i++)                                                                            \
                out[i] = (a[i] * s + b[i] * s) + (c[i] * s + d[i] * s);                                               \
        else if (n == 4)                                                                                              \
            for (size_t i = 0; i < m; i++)                                                                            \
                out[i] = (a[i] + b[i]) + (c[i] + d[i]);                                                               \
        else {                                                                                                        \
            int left = wf_comm_tree_left(n);                                                                          \
            NAME_(out, x, left, at, m, s, scaled, tmp + BLOCK);                                                       \
            NAME_(tmp, x + left, n - left, at, m, s, scaled, tmp + BLOCK);                                            \
            for (size_t i = 0; i < m; i++)                                                                            \
                out[i] = out[i] + tmp[i];                                                                             \
        }                                                                                                             \
    }
REAL_TREE(float, tree_f32)
REAL_TREE(double, tree_f64)

TARGET static void widen(bool bf16, float *restrict out, const uint16_t *restrict x, size_t m)
{
    if (bf16) {
        for (size_t i = 0; i < m; i++)
            ((uint32_t *)out)[i] = (uint32_t)x[i] << 16;
        return;
    }
    for (size_t i = 0; i < m; i += 8) {
        uint16_t part[8] = {0};
        float wide[8];
        size_t k = m - i < 8 ? m - i : 8;
        memcpy(part, x + i, k * sizeof(part[0]));
        _mm256_storeu_ps(wide, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)part)));
        memcpy(out + i, wide, k * sizeof(float));
    }
}

/* To nearest even. A NaN stays one: bf16 sets its quiet bit, so that cutting the payload cannot make an infinity. */
TARGET static void narrow(bool bf16, uint16_t *restrict out, const float *restrict x, size_t m)
{
    if (bf16) {
        for (size_t i = 0; i < m; i++) {
            uint32_t u = ((const uint32_t *)x)[i];
            uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
            out[i] = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : rounded);
        }
        return;
    }
    for (size_t i = 0; i < m; i += 8) {
        float wide[8] = {0};
        uint16_t part[8];
        size_t k = m - i < 8 ? m - i : 8;
        memcpy(wide, x + i, k * sizeof(float));
        _mm_storeu_si128((__m128i *)part, _mm256_cvtps_ph(_mm256_loadu_ps(wide), _MM_FROUND_TO_NEAREST_INT));
        memcpy(out + i, part, k * sizeof(part[0]));
    }
}

TARGET static void tree_narrow(bool bf16, float *restrict out, const uint16_t *const *x, int n, size_t at, size_t m,
                               float s, bool scaled, float *tmp)
{
    if (n == 1) {
        widen(bf16, out, x[0] + at, m);
        for (size_t i = 0; scaled && i < m; i++)
            out[i] = out[i] * s;
        return;
    }
    int left = wf_comm_tree_left(n);
    tree_narrow(bf16, out, x, left, at, m, s, scaled, tmp + BLOCK);
    tree_narrow(bf16, tmp, x + left, n - left, at, m, s, scaled, tmp + BLOCK);
    for (size_t i = 0; i < m; i++)
        out[i] = out[i] + tmp[i];
}

/* Everything whose result does not depend on the order: integer sums, minima, maxima. A NaN wins. */
#define ORDERLESS(T, U, NAME_)                                                                                        \
    TARGET static void NAME_(T *restrict out, const T *const *x, int n, size_t at, size_t m, WfCommReduce op)           \
    {                                                                                                                 \
        memcpy(out, x[0] + at, m * sizeof(T));                                                                        \
        for (int r = 1; r < n; r++) {                                                                                 \
            const T *restrict b = x[r] + at;                                                                          \
            if (op == WF_COMM_SUM)                                                                                    \
                for (size_t i = 0; i < m; i++)                                                                        \
                    out[i] = (T)((U)out[i] + (U)b[i]);                                                                \
            else if (op == WF_COMM_MIN)                                                                               \
                for (size_t i = 0; i < m; i++)                                                                        \
                    out[i] = out[i] < b[i] || out[i] != out[i] ? out[i] : b[i];                                       \
            else                                                                                                      \
                for (size_t i = 0; i < m; i++)                                                                        \
                    out[i] = out[i] > b[i] || out[i] != out[i] ? out[i] : b[i];                                       \
        }                                                                                                             \
    }
ORDERLESS(float, float, least_f32)
ORDERLESS(double, double, least_f64)
ORDERLESS(int64_t, uint64_t, any_i64)
ORDERLESS(int32_t, uint32_t, any_i32)
ORDERLESS(int16_t, uint16_t, any_i16)
ORDERLESS(int8_t, uint8_t, any_i8)
ORDERLESS(uint8_t, uint8_t, any_u8)

TARGET static void least_narrow(bool bf16, float *restrict out, const uint16_t *const *x, int n, size_t at, size_t m,
                                WfCommReduce op, float *tmp)
{
    widen(bf16, out, x[0] + at, m);
    for (int r = 1; r < n; r++) {
        const float *pair[2] = {out, tmp};
        widen(bf16, tmp, x[r] + at, m);
        least_f32(tmp + BLOCK, pair, 2, 0, m, op);
        memcpy(out, tmp + BLOCK, m * sizeof(float));
    }
}

/* One block into `out`, which has room for BLOCK doubles; `tmp` for LEVELS times that. Returns where the result
 * lies. */
TARGET static void *one_block(const WfReduceHow *how, const void *const *src, int n, size_t at, size_t m, void *out,
                              void *tmp)
{
    bool sum = how->op == WF_COMM_SUM || how->op == WF_COMM_MEAN, bf16 = how->dtype == WF_BF16;
    WfCommReduce op = sum ? WF_COMM_SUM : how->op;
    switch (how->dtype) {
    case WF_F32:
        if (sum)
            tree_f32(out, (const float *const *)src, n, at, m, (float)how->scale, how->scaled, tmp);
        else
            least_f32(out, (const float *const *)src, n, at, m, op);
        break;
    case WF_F64:
        if (sum)
            tree_f64(out, (const double *const *)src, n, at, m, how->scale, how->scaled, tmp);
        else
            least_f64(out, (const double *const *)src, n, at, m, op);
        break;
    case WF_F16:
    case WF_BF16: {
        uint16_t *result = (uint16_t *)((float *)out + BLOCK); /* the second half of `out` */
        if (sum)
            tree_narrow(bf16, out, (const uint16_t *const *)src, n, at, m, (float)how->scale, how->scaled, tmp);
        else
            least_narrow(bf16, out, (const uint16_t *const *)src, n, at, m, op, tmp);
        narrow(bf16, result, out, m);
        return result;
    }
    case WF_I64: any_i64(out, (const int64_t *const *)src, n, at, m, op); break;
    case WF_I32: any_i32(out, (const int32_t *const *)src, n, at, m, op); break;
    case WF_I16: any_i16(out, (const int16_t *const *)src, n, at, m, op); break;
    case WF_I8: any_i8(out, (const int8_t *const *)src, n, at, m, op); break;
    default: any_u8(out, (const uint8_t *const *)src, n, at, m, op); break;
    }
    return out;
}

TARGET static void stream_out(char *dst, const char *from, size_t bytes)
{
    size_t head = (size_t)(-(uintptr_t)dst & 31);
    if (head > bytes)
        head = bytes;
    memcpy(dst, from, head);
    size_t i = head;
    for (; i + 32 <= bytes; i += 32)
        _mm256_stream_si256((__m256i *)(dst + i), _mm256_loadu_si256((const __m256i *)(from + i)));
    memcpy(dst + i, from + i, bytes - i);
}

TARGET void NAME(wf_sum_ranks)(const WfReduceHow *how, const void *const *src, int n, size_t count, void *const *dst,
                               int n_dst)
{
    _Alignas(64) double out[BLOCK], tmp[BLOCK * LEVELS];
    size_t size = wf_dtype_size(how->dtype);
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t m = count - at < BLOCK ? count - at : BLOCK;
        const void *result = one_block(how, src, n, at, m, out, tmp);
        for (int d = 0; d < n_dst; d++) {
            char *to = (char *)dst[d] + at * size;
            if (how->stream)
                stream_out(to, result, m * size);
            else
                memcpy(to, result, m * size);
        }
    }
    if (how->stream)
        _mm_sfence();
}
