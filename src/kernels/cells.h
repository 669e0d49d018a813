/* The cells of recurrent layers, included by each ISA level after rows.h: plain loops over the hidden units
 * of one sample, which the compiler turns into vectors, around the row functions. Formulas as in rnn.c. */

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

/* One sample's step. x: input side, p = W_hh h', each G*n; bias may be NULL; h, c: state before, then after;
 * saved may be NULL; work holds 5 rows of n rounded up to 16. */
LOOPS static void cell(int mode, int64_t n, const float *restrict x, const float *restrict p,
                       const float *restrict bias, float *restrict h, float *restrict c,
                       float *restrict saved, float *restrict work)
{
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
    if (mode == WF_RNN_LSTM) {
        float *restrict t = work + 4 * np;
        apply(sigmoid_rows, n, a, a), apply(sigmoid_rows, n, e, e), apply(tanh_rows, n, f, f);
        apply(sigmoid_rows, n, g, g);
        for (int64_t j = 0; j < n; j++)
            c[j] = e[j] * c[j] + a[j] * f[j];
        apply(tanh_rows, n, c, t);
        for (int64_t j = 0; j < n; j++)
            h[j] = g[j] * t[j];
    } else if (mode == WF_RNN_GRU) {
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
    if (saved && mode == WF_RNN_LSTM)
        __builtin_memcpy(saved + 4 * n, c, (size_t)n * sizeof(float));
}

/* One sample's step back. dh, dc: gradients of the state after the step, replaced by the direct part of the
 * gradient of the state before it (the part through W_hh is added by the caller). y, before: states after and
 * before; c_before: the cell state before. Writes the gate gradients: dx on the input side, dp on the hidden
 * side (GRU's differ). */
LOOPS static void cell_back(int mode, int64_t n, const float *restrict saved, const float *restrict y,
                            const float *restrict before, const float *restrict c_before, float *restrict dh,
                            float *restrict dc, float *restrict dx, float *restrict dp, float *restrict work)
{
    if (mode == WF_RNN_LSTM) {
        const float *restrict i = saved, *restrict f = i + n, *restrict g = f + n, *restrict o = g + n;
        apply(tanh_rows, n, saved + 4 * n, work);
        for (int64_t j = 0; j < n; j++) {
            float t = work[j], d = dc[j] + dh[j] * o[j] * (1 - t * t);
            dx[j] = d * g[j] * i[j] * (1 - i[j]);
            dx[n + j] = d * c_before[j] * f[j] * (1 - f[j]);
            dx[2 * n + j] = d * i[j] * (1 - g[j] * g[j]);
            dx[3 * n + j] = dh[j] * t * o[j] * (1 - o[j]);
            dc[j] = d * f[j];
            dh[j] = 0;
        }
        __builtin_memcpy(dp, dx, (size_t)(4 * n) * sizeof(float));
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
