/* Vector code on rows, included by each ISA level after isa.h: exp, tanh and sigmoid by polynomial, the
 * softmax steps of attention and the cells of recurrent layers. Rows are padded to multiples of 16 floats.
 *
 * exp: x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts; exp r by its Taylor polynomial of degree 7
 * (the rest is below 6e-9 relative, a tenth of an ulp); 2^n in two factors, so that results near the ends of
 * the range, denormals included, come out. Within 1.5 ulp of the exact value. tanh: below 0.625 an odd
 * polynomial (relative error 4e-8), above from exp(-2|x|). Sums run over 16 lanes that are added in a balanced
 * tree, at either vector length. */

#define SPLAT(x)           ((vf){0} + (float)(x))
#define PER16              (16 / VL)
#define SELECT(mask, a, b) ((vf)(((vi)(a) & (mask)) | ((vi)(b) & ~(mask))))

/* The larger and the smaller of two, b where either is no number. */
#if VL == 16 && defined(__clang__)
#define MAX(a, b) ((vf)__builtin_ia32_maxps512(a, b, 4))
#define MIN(a, b) ((vf)__builtin_ia32_minps512(a, b, 4))
#elif VL == 16
#define MAX(a, b) ((vf)__builtin_ia32_maxps512_mask(a, b, a, (unsigned short)-1, 4))
#define MIN(a, b) ((vf)__builtin_ia32_minps512_mask(a, b, a, (unsigned short)-1, 4))
#else
#define MAX(a, b) ((vf)__builtin_ia32_maxps256(a, b))
#define MIN(a, b) ((vf)__builtin_ia32_minps256(a, b))
#endif

/* exp(x) = p 2^e: returns p. */
INLINE vf exp_parts(vf x, vi *e)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    vf t = x * 1.44269504088896341f + magic, n = t - magic;
    vf r = x - n * 0.693145751953125f - n * 1.42860677e-6f;
    vf p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    *e = (vi)t - 0x4b400000;
    return p * r + 1.0f;
}

INLINE void exp_into(float *out, const float *in, float minus)
{
    for (int v = 0; v < PER16; v++) {
        vi e;
        vf p = exp_parts(MIN(SPLAT(89), MAX(SPLAT(-104), LOAD(in + v * VL) - minus)), &e);
        vi half = e >> 1;
        vf s1 = (vf)((half + 127) << 23), s2 = (vf)((e - half + 127) << 23);
        STORE(out + v * VL, p * s1 * s2);
    }
}

INLINE float sum16(const float *x)
{
    float t[8];
    for (int i = 0; i < 8; i++)
        t[i] = x[i] + x[i + 8];
    return ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}

#define INF __builtin_inff()

/* exp of what is at most 0, as above; below 2^-126.5 it gives 0. */
INLINE vf exp_below(vf x)
{
    vi e;
    vf p = exp_parts(MAX(SPLAT(-88.2f), x), &e);
    return p * (vf)((e + 127) << 23);
}

INLINE float max16(const float *x)
{
    float top = x[0];
    for (int l = 1; l < 16; l++)
        top = x[l] > top ? x[l] : top;
    return top;
}

/* Columns of row i that causality leaves. */
INLINE int64_t row_limit(const WfScores *w, int64_t n, int64_t i)
{
    int64_t limit = w->causal && w->first_limit + i < n ? w->first_limit + i : n;
    return limit < 0 ? 0 : limit;
}

/* s = s * scale + mask in the first `limit` columns, -inf from there to the end of the vectors that they touch. */
INLINE void scaled(const WfScores *w, int64_t i, int64_t limit, float *s)
{
    const float *m = w->mask ? w->mask + i * w->mask_row : NULL;
    int64_t j = 0;
    for (; j + VL <= limit && (!m || w->mask_col == 1); j += VL) {
        vf x = LOAD(s + j) * w->scale;
        STORE(s + j, m ? x + LOAD(m + j) : x);
    }
    for (; j < limit; j++)
        s[j] = s[j] * w->scale + (m ? m[j * w->mask_col] : 0);
    for (; j < wf_up(limit, 16); j++)
        s[j] = -INF;
}

/* One step of the running softmax over n columns of products (s has room for n rounded up to 16): s becomes
 * exp(s * scale + mask - max), max and sum are updated, and o (width multiple of 16), the sum so far, is
 * scaled to the new maximum. */
TARGET static void softmax_step(int64_t rows, int64_t n, float *s, int64_t ld, const WfScores *w, float *max,
                                float *sum, float *o, int64_t ldo, int64_t width)
{
    for (int64_t i = 0; i < rows; i++, s += ld, o += ldo) {
        int64_t limit = row_limit(w, n, i), end = wf_up(limit, 16);
        float part[16] __attribute__((aligned(64)));
        vf a = SPLAT(-INF), b = a;
        scaled(w, i, limit, s);
        for (int64_t j = 0; j < end; j += 16) {
            a = MAX(LOAD(s + j), a);
            b = PER16 > 1 ? MAX(LOAD(s + j + 16 - VL), b) : a;
        }
        STORE(part, a);
        STORE(part + 16 - VL, b);
        float top = max16(part);
        top = top > max[i] ? top : max[i];
        float minus = top == -INF ? 0 : top, fix[16], old[16] = {max[i] == -INF ? -INF : max[i] - minus};
        exp_into(fix, old, 0);
        if (max[i] == -INF)
            fix[0] = 0;
        a = b = SPLAT(0);
        for (int64_t j = 0; j < end; j += 16) {
            vf x = exp_below(LOAD(s + j) - minus);
            STORE(s + j, x);
            a += x;
            if (PER16 > 1) {
                x = exp_below(LOAD(s + j + 16 - VL) - minus);
                STORE(s + j + 16 - VL, x);
                b += x;
            }
        }
        STORE(part, a);
        if (PER16 > 1)
            STORE(part + 16 - VL, b);
        for (int64_t j = end; j < n; j += VL)
            STORE(s + j, SPLAT(0));
        sum[i] = sum[i] * fix[0] + sum16(part);
        max[i] = top;
        for (int64_t j = 0; j < width && fix[0] != 1; j += VL)
            STORE(o + j, LOAD(o + j) * fix[0]);
    }
}

/* s = exp(s * scale + mask - lse), 0 where causality hides and up to the next multiple of 16; rows whose lse is -inf
 * become 0. */
TARGET static void probability(int64_t rows, int64_t n, float *s, int64_t ld, const WfScores *w, const float *lse)
{
    for (int64_t i = 0; i < rows; i++, s += ld) {
        int64_t limit = lse[i] == -INF ? 0 : row_limit(w, n, i), end = wf_up(limit, 16);
        scaled(w, i, limit, s);
        for (int64_t j = 0; j < end; j += VL)
            STORE(s + j, exp_below(LOAD(s + j) - lse[i]));
        for (int64_t j = end; j < n; j += VL)
            STORE(s + j, SPLAT(0));
    }
}

/* out[i] = sum over j < n of a[i, j] b[i, j], in 16 lanes. */
TARGET static void dots(int64_t rows, int64_t n, const float *a, int64_t lda, const float *b, int64_t ldb, float *out)
{
    for (int64_t i = 0; i < rows; i++, a += lda, b += ldb) {
        float part[16] __attribute__((aligned(64))) = {0};
        int64_t j = 0;
        for (; j + 16 <= n; j += 16)
            for (int v = 0; v < 16; v += VL)
                STORE(part + v, LOAD(part + v) + LOAD(a + j + v) * LOAD(b + j + v));
        for (; j < n; j++)
            part[j % 16] += a[j] * b[j];
        out[i] = sum16(part);
    }
}

/* out = in * by. */
TARGET static void scale_row(int64_t n, const float *in, float by, float *out)
{
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        STORE(out + j, LOAD(in + j) * by);
    for (; j < n; j++)
        out[j] = in[j] * by;
}

/* d = p * (d - delta) * scale, with d = dO V^T. */
TARGET static void softmax_back(int64_t rows, int64_t n, const float *p, float *d, int64_t ld,
                                const float *delta, float scale)
{
    for (int64_t i = 0; i < rows; i++, p += ld, d += ld)
        for (int64_t j = 0; j < n; j += VL)
            STORE(d + j, LOAD(p + j) * (LOAD(d + j) - delta[i]) * scale);
}

/* e = exp(-|x|), which never overflows, and 1 / (1 + e): that, or e / (1 + e) below zero. */
INLINE vf sigmoid_exp(vf x)
{
    return exp_below((vf)((vi)x | (int32_t)0x80000000));
}

INLINE vf sigmoid_from(vf x, vf e, vf r)
{
    return SELECT(x < 0, e * r, r);
}

INLINE vf sigmoid_of(vf x)
{
    vf e = sigmoid_exp(x);
    return sigmoid_from(x, e, 1.0f / (1.0f + e));
}

/* e = exp(-2|x|), and large = (1 - e) / (1 + e), which is for |x| from 0.625 on. */
INLINE vf tanh_exp(vf x)
{
    return exp_below((vf)((vi)x & 0x7fffffff) * -2.0f);
}

INLINE vf tanh_from(vf x, vf large)
{
    vf size = (vf)((vi)x & 0x7fffffff), z = x * x;
    large = (vf)((vi)large | ((vi)x & (int32_t)0x80000000));
    vf p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return SELECT(size < SPLAT(0.625f), x + x * z * p, large);
}

INLINE vf tanh_of(vf x)
{
    vf e = tanh_exp(x);
    return tanh_from(x, (1.0f - e) / (1.0f + e));
}

TARGET static void exp_rows(int64_t n, const float *in, float *out)
{
    for (int64_t j = 0; j < n; j += 16)
        exp_into(out + j, in + j, 0);
}

TARGET static void sigmoid_rows(int64_t n, const float *in, float *out)
{
    for (int64_t j = 0; j < n; j += VL)
        STORE(out + j, sigmoid_of(LOAD(in + j)));
}

TARGET static void tanh_rows(int64_t n, const float *in, float *out)
{
    for (int64_t j = 0; j < n; j += VL)
        STORE(out + j, tanh_of(LOAD(in + j)));
}
