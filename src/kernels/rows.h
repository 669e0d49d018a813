/* Vector code on rows, included by each ISA level after isa.h: exp, tanh and sigmoid by polynomial, the
 * softmax steps of attention and the cells of recurrent layers. Rows are padded to multiples of 16 floats.
 *
 * exp: x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts; exp r by its Taylor polynomial of degree 7
 * (the rest is below 6e-9 relative, a tenth of an ulp); 2^n in two factors, so that results near the ends of
 * the range, denormals included, come out. Within 1.5 ulp of the exact value. tanh: below 0.625 an odd
 * polynomial (relative error 4e-8), above from exp(2x). Sums run over 16 lanes that are added in a balanced
 * tree, at either vector length. */

#define SPLAT(x)           ((vf){0} + (float)(x))
#define PER16              (16 / VL)
#define SELECT(mask, a, b) ((vf)(((vi)(a) & (mask)) | ((vi)(b) & ~(mask))))

INLINE void exp_into(float *out, const float *in, float minus)
{
    for (int v = 0; v < PER16; v++) {
        vf x = LOAD(in + v * VL) - minus, lo = SPLAT(-104), hi = SPLAT(89);
        x = SELECT(x < lo, lo, x);
        x = SELECT(x > hi, hi, x);
        const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
        vf t = x * 1.44269504088896341f + magic, n = t - magic;
        vf r = x - n * 0.693145751953125f - n * 1.42860677e-6f;
        vf p = r * (1.0f / 5040) + 1.0f / 720;
        p = p * r + 1.0f / 120;
        p = p * r + 1.0f / 24;
        p = p * r + 1.0f / 6;
        p = p * r + 0.5f;
        p = p * r + 1.0f;
        p = p * r + 1.0f;
        vi e = (vi)t - 0x4b400000, half = e >> 1;
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

/* s = s * scale + mask, -inf from column `limit(row)` = first_limit + row on (causal) and in the padding. */
TARGET static void scores(int64_t rows, int64_t n, float *s, int64_t ld, float scale, const float *mask,
                          int64_t mask_row, int64_t mask_col, bool causal, int64_t first_limit)
{
    for (int64_t i = 0; i < rows; i++, s += ld) {
        const float *m = mask ? mask + i * mask_row : NULL;
        int64_t limit = causal && first_limit + i < n ? first_limit + i : n;
        limit = limit < 0 ? 0 : limit;
        int64_t j = 0;
        for (; j + VL <= limit && (!m || mask_col == 1); j += VL) {
            vf x = LOAD(s + j) * scale;
            STORE(s + j, m ? x + LOAD(m + j) : x);
        }
        for (; j < limit; j++)
            s[j] = s[j] * scale + (m ? m[j * mask_col] : 0);
        for (; j < wf_up(n, 16); j++)
            s[j] = -INF;
    }
}

/* One step of the running softmax: s becomes exp(s - max), max and sum are updated, and o (width multiple of
 * 16), the sum so far, is scaled to the new maximum. */
TARGET static void softmax_step(int64_t rows, int64_t n, float *s, int64_t ld, float *max, float *sum,
                                float *o, int64_t ldo, int64_t width)
{
    for (int64_t i = 0; i < rows; i++, s += ld, o += ldo) {
        float part[16] __attribute__((aligned(64)));
        for (int l = 0; l < 16; l++)
            part[l] = -INF;
        for (int64_t j = 0; j < n; j += 16)
            for (int v = 0; v < PER16; v++) {
                vf x = LOAD(s + j + v * VL), y = LOAD(part + v * VL);
                STORE(part + v * VL, SELECT(x > y, x, y));
            }
        float top = max[i];
        for (int l = 0; l < 16; l++)
            top = part[l] > top ? part[l] : top;
        float minus = top == -INF ? 0 : top;
        float fix[16], old[16] = {max[i] == -INF ? -INF : max[i] - minus};
        exp_into(fix, old, 0);
        if (max[i] == -INF)
            fix[0] = 0;
        for (int l = 0; l < 16; l++)
            part[l] = 0;
        for (int64_t j = 0; j < n; j += 16) {
            exp_into(s + j, s + j, minus);
            for (int v = 0; v < PER16; v++)
                STORE(part + v * VL, LOAD(part + v * VL) + LOAD(s + j + v * VL));
        }
        sum[i] = sum[i] * fix[0] + sum16(part);
        max[i] = top;
        for (int64_t j = 0; j < width && fix[0] != 1; j += VL)
            STORE(o + j, LOAD(o + j) * fix[0]);
    }
}

/* s = exp(s - lse); rows whose lse is -inf become 0. */
TARGET static void probability(int64_t rows, int64_t n, float *s, int64_t ld, const float *lse)
{
    for (int64_t i = 0; i < rows; i++, s += ld)
        for (int64_t j = 0; j < n; j += 16)
            exp_into(s + j, s + j, lse[i] == -INF ? 0 : lse[i]);
}

/* d = p * (d - delta) * scale, with d = dO V^T. */
TARGET static void softmax_back(int64_t rows, int64_t n, const float *p, float *d, int64_t ld,
                                const float *delta, float scale)
{
    for (int64_t i = 0; i < rows; i++, p += ld, d += ld)
        for (int64_t j = 0; j < n; j += VL)
            STORE(d + j, LOAD(p + j) * (LOAD(d + j) - delta[i]) * scale);
}

INLINE void sigmoid_into(float *out, const float *in)
{
    float t[16] __attribute__((aligned(64)));
    for (int v = 0; v < PER16; v++)
        STORE(t + v * VL, SPLAT(0) - LOAD(in + v * VL));
    exp_into(t, t, 0);
    for (int v = 0; v < PER16; v++)
        STORE(out + v * VL, 1.0f / (1.0f + LOAD(t + v * VL)));
}

INLINE void tanh_into(float *out, const float *in)
{
    float t[16] __attribute__((aligned(64)));
    for (int v = 0; v < PER16; v++)
        STORE(t + v * VL, (vf)((vi)LOAD(in + v * VL) & 0x7fffffff) * 2.0f);
    exp_into(t, t, 0);
    for (int v = 0; v < PER16; v++) {
        vf x = LOAD(in + v * VL), z = x * x;
        vf large = 1.0f - 2.0f / (LOAD(t + v * VL) + 1.0f);
        vi sign = (vi)x & (int32_t)0x80000000;
        large = (vf)((vi)large | sign);
        vf p = z * -5.70498872745e-3f + 2.06390887954e-2f;
        p = p * z - 5.37397155531e-2f;
        p = p * z + 1.33314422036e-1f;
        p = p * z - 3.33332819422e-1f;
        vf small = x + x * z * p, size = (vf)((vi)x & 0x7fffffff);
        STORE(out + v * VL, SELECT(size < SPLAT(0.625f), small, large));
    }
}

TARGET static void exp_rows(int64_t n, const float *in, float *out)
{
    for (int64_t j = 0; j < n; j += 16)
        exp_into(out + j, in + j, 0);
}

TARGET static void sigmoid_rows(int64_t n, const float *in, float *out)
{
    for (int64_t j = 0; j < n; j += 16)
        sigmoid_into(out + j, in + j);
}

TARGET static void tanh_rows(int64_t n, const float *in, float *out)
{
    for (int64_t j = 0; j < n; j += 16)
        tanh_into(out + j, in + j);
}
