/* The cells of recurrent layers, included by each ISA level after rows.h: for one sample, LSTM's in one pass over the hidden
 * units, the others plain loops, which the compiler turns into vectors, around the row functions. Formulas as in rnn.c. */

#if defined(__clang__)
#define LOOPS TARGET
#else
#define LOOPS __attribute__((optimize("O3"))) TARGET
#endif

/* Applies f to n floats of any count: whole groups in place, the rest through a padded buffer. */
LOOPS static void apply(void (*f)(int64_t, const float *, float *), int64_t n, const float *in, float *out)
{
    int64_t whole = n / 16 * 16;
    float tail[16] = {0};
    f(whole, in, out);
    if (n > whole) {
        __builtin_memcpy(tail, in + whole, (size_t)(n - whole) * sizeof(float));
        f(16, tail, tail);
        __builtin_memcpy(out + whole, tail, (size_t)(n - whole) * sizeof(float));
    }
}

/* A vector of the first `cols` floats, and back. */
INLINE vf take(const float *p, int cols)
{
    float part[VL] = {0};
    if (cols == VL)
        return LOAD(p);
    __builtin_memcpy(part, p, (size_t)cols * sizeof(float));
    return LOAD(part);
}

INLINE void put(float *p, vf v, int cols)
{
    float part[VL];
    if (cols == VL) {
        STORE(p, v);
        return;
    }
    STORE(part, v);
    __builtin_memcpy(p, part, (size_t)cols * sizeof(float));
}

/* `cols` hidden units of an LSTM from the j-th on. The four gates' denominators, 1 to 2 each, are inverted by one division. */
INLINE void lstm(int cols, int64_t j, int64_t n, const float *x, const float *p, const float *bias, float *h, float *c,
                 float *saved)
{
    vf gate[4], e[4];
    for (int q = 0; q < 4; q++) {
        int64_t at = q * n + j;
        vf v = take(p + at, cols);
        if (bias)
            v += take(bias + at, cols);
        v += take(x + at, cols);
        gate[q] = v;
        e[q] = q == 2 ? tanh_exp(v) : sigmoid_exp(v);
    }
    vf p0 = 1.0f + e[0], p1 = 1.0f + e[1], p2 = 1.0f + e[2], p3 = 1.0f + e[3], first = p0 * p1, last = p2 * p3;
    vf inverse = 1.0f / (first * last), of_first = inverse * last, of_last = inverse * first;
    gate[0] = sigmoid_from(gate[0], e[0], of_first * p1);
    gate[1] = sigmoid_from(gate[1], e[1], of_first * p0);
    gate[2] = tanh_from(gate[2], (1.0f - e[2]) * (of_last * p3));
    gate[3] = sigmoid_from(gate[3], e[3], of_last * p2);
    vf to = gate[1] * take(c + j, cols) + gate[0] * gate[2];
    put(c + j, to, cols);
    put(h + j, gate[3] * tanh_of(to), cols);
    for (int q = 0; saved && q < 4; q++)
        put(saved + q * n + j, gate[q], cols);
    if (saved)
        put(saved + 4 * n + j, to, cols);
}

/* The same units back; arguments as of cell_back. */
INLINE void lstm_back(int cols, int64_t j, int64_t n, const float *saved, const float *c_before, float *dh, float *dc,
                      float *dx, float *dp)
{
    saved += j, dx += j, dp += j;
    vf i = take(saved, cols), f = take(saved + n, cols), g = take(saved + 2 * n, cols), o = take(saved + 3 * n, cols);
    vf t = tanh_of(take(saved + 4 * n, cols)), d_h = take(dh + j, cols);
    vf d = take(dc + j, cols) + d_h * o * (1 - t * t);
    vf grad[4] = {d * g * i * (1 - i), d * take(c_before + j, cols) * f * (1 - f), d * i * (1 - g * g),
                  d_h * t * o * (1 - o)};
    for (int q = 0; q < 4; q++) {
        put(dx + q * n, grad[q], cols);
        put(dp + q * n, grad[q], cols);
    }
    put(dc + j, d * f, cols);
    put(dh + j, SPLAT(0), cols);
}

/* One sample's step. x: input side, p = W_hh h', each G*n; bias may be NULL; h, c: state before, then after;
 * saved may be NULL; work holds 4 rows of n rounded up to 16. */
LOOPS static void cell(int mode, int64_t n, const float *restrict x, const float *restrict p,
                       const float *restrict bias, float *restrict h, float *restrict c,
                       float *restrict saved, float *restrict work)
{
    if (mode == WF_RNN_LSTM) {
        int64_t j = 0;
        for (; j + VL <= n; j += VL)
            lstm(VL, j, n, x, p, bias, h, c, saved);
        if (j < n)
            lstm((int)(n - j), j, n, x, p, bias, h, c, saved);
        return;
    }
    int64_t np = wf_up(n, 16);
    int gates = wf_rnn_gates(mode);
    float *restrict a = work, *restrict e = a + np, *restrict f = e + np, *restrict g = f + np;
    float *gate[4] = {a, e, f, g};
    for (int q = 0; q < gates; q++) {
        bool later = mode == WF_RNN_GRU && q == 2; /* joins n after the reset gate */
        float *restrict to = later ? g : gate[q];
        for (int64_t j = 0; j < n; j++)
            to[j] = p[q * n + j];
        for (int64_t j = 0; bias && j < n; j++)
            to[j] += bias[q * n + j];
        for (int64_t j = 0; !later && j < n; j++)
            to[j] += x[q * n + j];
    }
    if (mode == WF_RNN_GRU) {
        apply(sigmoid_rows, n, a, a), apply(sigmoid_rows, n, e, e);
        for (int64_t j = 0; j < n; j++)
            f[j] = x[2 * n + j] + a[j] * g[j];
        apply(tanh_rows, n, f, f);
        for (int64_t j = 0; j < n; j++)
            h[j] = f[j] + e[j] * (h[j] - f[j]);
    } else if (mode == WF_RNN_TANH) {
        apply(tanh_rows, n, a, h);
    } else {
        for (int64_t j = 0; j < n; j++)
            h[j] = a[j] < 0 ? 0 : a[j];
    }
    for (int q = 0; saved && q < 4; q++)
        __builtin_memcpy(saved + q * n, gate[q], (size_t)n * sizeof(float));
}

/* One sample's step back. dh, dc: gradients of the state after the step (dy, which may be NULL, is added to dh), replaced by the direct part of the
 * gradient of the state before it (the part through W_hh is added by the caller). y, before: states after and
 * before; c_before: the cell state before. Writes the gate gradients: dx on the input side, dp on the hidden
 * side (GRU's differ). */
LOOPS static void cell_back(int mode, int64_t n, const float *restrict saved, const float *restrict y,
                            const float *restrict before, const float *restrict c_before, const float *restrict dy,
                            float *restrict dh, float *restrict dc, float *restrict dx, float *restrict dp)
{
    for (int64_t j = 0; dy && j < n; j++)
        dh[j] += dy[j];
    if (mode == WF_RNN_LSTM) {
        int64_t j = 0;
        for (; j + VL <= n; j += VL)
            lstm_back(VL, j, n, saved, c_before, dh, dc, dx, dp);
        if (j < n)
            lstm_back((int)(n - j), j, n, saved, c_before, dh, dc, dx, dp);
    } else if (mode == WF_RNN_GRU) {
        const float *restrict rg = saved, *restrict z = rg + n, *restrict m = z + n, *restrict hn = m + n;
        for (int64_t j = 0; j < n; j++) {
            float dn = dh[j] * (1 - z[j]) * (1 - m[j] * m[j]), dr = dn * hn[j] * rg[j] * (1 - rg[j]);
            float dz = dh[j] * (before[j] - m[j]) * z[j] * (1 - z[j]);
            dx[j] = dr, dp[j] = dr;
            dx[n + j] = dz, dp[n + j] = dz;
            dx[2 * n + j] = dn, dp[2 * n + j] = dn * rg[j];
            dh[j] *= z[j];
        }
    } else {
        for (int64_t j = 0; j < n; j++) {
            float d = mode == WF_RNN_TANH ? dh[j] * (1 - y[j] * y[j]) : y[j] <= 0 ? 0 : dh[j];
            dx[j] = d, dp[j] = d;
            dh[j] = 0;
        }
    }
}
