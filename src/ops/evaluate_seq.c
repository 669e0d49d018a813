/* Slow evaluation in double precision of attention and of recurrent layers, forward and backward; see
 * evaluate.c. The formulas are those in the headers of src/kernels/attention.c and rnn.c, which are
 * PyTorch's. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

static double *val(WfOracle *o, WfVal v)
{
    return v ? o->val[v] : NULL;
}

/* ---- attention ---- */

typedef struct {
    int64_t b, h, hk, t, s, d, dv, mask[4];
    bool causal;
    double scale, *q, *k, *v, *m;
} Att;

static Att att_of(WfOracle *o, const WfNode *n, int mask, int rest)
{
    int64_t q[4], k[4], v[4];
    Att a = {.causal = wf_bool(n, rest), .scale = wf_float(o->g, n, rest + 1)};
    wf_oracle_shape(o, wf_tensor(n, 0), q);
    wf_oracle_shape(o, wf_tensor(n, 1), k);
    wf_oracle_shape(o, wf_tensor(n, 2), v);
    a.b = q[0], a.h = q[1], a.t = q[2], a.d = q[3], a.hk = k[1], a.s = k[2], a.dv = v[3];
    a.q = val(o, wf_tensor(n, 0)), a.k = val(o, wf_tensor(n, 1)), a.v = val(o, wf_tensor(n, 2));
    a.m = val(o, wf_tensor(n, mask));
    if (a.m)
        wf_oracle_shape(o, wf_tensor(n, mask), a.mask);
    return a;
}

static double *row(double *x, int64_t h_n, int64_t t_n, int64_t d, int64_t b, int64_t h, int64_t t)
{
    return x + ((b * h_n + h) * t_n + t) * d;
}

static double score(const Att *a, int64_t b, int64_t h, int64_t t, int64_t s)
{
    if (a->causal && s > t)
        return -INFINITY;
    double x = 0, *q = row(a->q, a->h, a->t, a->d, b, h, t);
    double *k = row(a->k, a->hk, a->s, a->d, b, h / (a->h / a->hk), s);
    for (int64_t i = 0; i < a->d; i++)
        x += q[i] * k[i];
    x *= a->scale;
    if (a->m) {
        const int64_t *m = a->mask,
                      at[4] = {m[0] > 1 ? b : 0, m[1] > 1 ? h : 0, m[2] > 1 ? t : 0, m[3] > 1 ? s : 0};
        x += a->m[((at[0] * m[1] + at[1]) * m[2] + at[2]) * m[3] + at[3]];
    }
    return x;
}

void wf_attention_eval(WfOracle *o, const WfNode *n)
{
    Att a = att_of(o, n, 3, 4);
    double *y = wf_oracle_new(o, n->out), *lse = wf_oracle_new(o, n->out + 1);
    double *p = WF_NEWN(o->arena, double, (size_t)a.s + 1);
    for (int64_t i = 0; i < a.b * a.h * a.t; i++) {
        int64_t b = i / (a.h * a.t), h = i / a.t % a.h, t = i % a.t;
        double top = -INFINITY, sum = 0;
        for (int64_t s = 0; s < a.s; s++) {
            p[s] = score(&a, b, h, t, s);
            top = p[s] > top ? p[s] : top;
        }
        for (int64_t s = 0; s < a.s; s++)
            sum += p[s] = top == -INFINITY ? 0 : exp(p[s] - top);
        lse[i] = sum > 0 ? top + log(sum) : -INFINITY;
        for (int64_t s = 0; s < a.s && sum > 0; s++)
            for (int64_t d = 0; d < a.dv; d++)
                y[i * a.dv + d] += p[s] / sum * row(a.v, a.hk, a.s, a.dv, b, h / (a.h / a.hk), s)[d];
    }
}

void wf_attention_bwd_eval(WfOracle *o, const WfNode *n)
{
    Att a = att_of(o, n, 6, 7);
    double *y = val(o, wf_tensor(n, 3)), *dy = val(o, wf_tensor(n, 4)), *lse = val(o, wf_tensor(n, 5));
    double *dq = wf_oracle_new(o, n->out), *dk = wf_oracle_new(o, n->out + 1),
           *dv = wf_oracle_new(o, n->out + 2);
    for (int64_t i = 0; i < a.b * a.h * a.t; i++) {
        int64_t b = i / (a.h * a.t), h = i / a.t % a.h, t = i % a.t, hk = h / (a.h / a.hk);
        double delta = 0;
        for (int64_t d = 0; d < a.dv; d++)
            delta += dy[i * a.dv + d] * y[i * a.dv + d];
        for (int64_t s = 0; s < a.s && lse[i] != -INFINITY; s++) {
            double p = exp(score(&a, b, h, t, s) - lse[i]), dp = 0, *v = row(a.v, a.hk, a.s, a.dv, b, hk, s);
            for (int64_t d = 0; d < a.dv; d++) {
                dp += dy[i * a.dv + d] * v[d];
                row(dv, a.hk, a.s, a.dv, b, hk, s)[d] += p * dy[i * a.dv + d];
            }
            double ds = p * (dp - delta) * a.scale;
            for (int64_t d = 0; d < a.d; d++) {
                dq[i * a.d + d] += ds * row(a.k, a.hk, a.s, a.d, b, hk, s)[d];
                row(dk, a.hk, a.s, a.d, b, hk, s)[d] += ds * a.q[i * a.d + d];
            }
        }
    }
}

/* ---- recurrence ---- */

enum { LSTM, GRU, TANH, RELU };
static const int n_gates[] = {4, 3, 1, 1}, n_saved[] = {5, 4, 0, 0};
static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* One unit's step: x and p are its pre-activations of the input and the hidden side, by gate. */
static double unit(int mode, const double *x, const double *p, double h, double *c, double *save)
{
    if (mode == LSTM) {
        double i = logistic(x[0] + p[0]), f = logistic(x[1] + p[1]), g = tanh(x[2] + p[2]),
               u = logistic(x[3] + p[3]);
        *c = f * *c + i * g;
        memcpy(save, (double[]){i, f, g, u, *c}, 5 * sizeof *save);
        return u * tanh(*c);
    }
    if (mode == GRU) {
        double r = logistic(x[0] + p[0]), z = logistic(x[1] + p[1]), m = tanh(x[2] + r * p[2]);
        memcpy(save, (double[]){r, z, m, p[2]}, 4 * sizeof *save);
        return (1 - z) * m + z * h;
    }
    return mode == TANH ? tanh(x[0] + p[0]) : x[0] + p[0] > 0 ? x[0] + p[0] : 0;
}

void wf_rnn_eval(WfOracle *o, const WfNode *n)
{
    int64_t sh[3];
    wf_oracle_shape(o, n->out, sh);
    int mode = (int)wf_lit(o->g, n, 5), gates = n_gates[mode], blocks = n_saved[mode];
    int64_t t_n = sh[0], b_n = sh[1], h_n = sh[2];
    double *x = val(o, wf_tensor(n, 0)), *w = val(o, wf_tensor(n, 1)), *bias = val(o, wf_tensor(n, 2));
    double *h0 = val(o, wf_tensor(n, 3)), *c0 = val(o, wf_tensor(n, 4));
    double *y = wf_oracle_new(o, n->out), *h = wf_oracle_new(o, n->out + 1),
           *c = wf_oracle_new(o, n->out + 2);
    double *saved = wf_oracle_new(o, n->out + 3);
    memcpy(h, h0, (size_t)(b_n * h_n) * sizeof *h);
    if (c0)
        memcpy(c, c0, (size_t)(b_n * h_n) * sizeof *c);
    for (int64_t k = 0; k < t_n; k++) {
        int64_t t = wf_bool(n, 6) ? t_n - 1 - k : k;
        for (int64_t b = 0; b < b_n; b++) {
            for (int64_t j = 0; j < h_n; j++) {
                double in[4], p[4] = {0}, save[5] = {0};
                for (int q = 0; q < gates; q++) {
                    in[q] = x[((t * b_n + b) * gates + q) * h_n + j];
                    p[q] = bias ? bias[q * h_n + j] : 0;
                    for (int64_t m = 0; m < h_n; m++)
                        p[q] += w[(q * h_n + j) * h_n + m] * h[b * h_n + m];
                }
                y[(t * b_n + b) * h_n + j] = unit(mode, in, p, h[b * h_n + j], &c[b * h_n + j], save);
                for (int q = 0; q < blocks; q++)
                    saved[((t * b_n + b) * blocks + q) * h_n + j] = save[q];
            }
            memcpy(h + b * h_n, y + (t * b_n + b) * h_n, (size_t)h_n * sizeof *h);
        }
    }
}

/* One unit's step back: gradients of the pre-activations on both sides; *dh becomes the direct part. */
static void unit_back(int mode, const double *s, double y, double before, double c_before, double *dh,
                      double *dc, double *dx, double *dp)
{
    if (mode == LSTM) {
        double t = tanh(s[4]), d = *dc + *dh * s[3] * (1 - t * t);
        dx[0] = d * s[2] * s[0] * (1 - s[0]);
        dx[1] = d * c_before * s[1] * (1 - s[1]);
        dx[2] = d * s[0] * (1 - s[2] * s[2]);
        dx[3] = *dh * t * s[3] * (1 - s[3]);
        *dc = d * s[1];
        *dh = 0;
    } else if (mode == GRU) {
        double dm = *dh * (1 - s[1]) * (1 - s[2] * s[2]);
        dx[0] = dm * s[3] * s[0] * (1 - s[0]);
        dx[1] = *dh * (before - s[2]) * s[1] * (1 - s[1]);
        dx[2] = dm;
        *dh *= s[1];
    } else {
        dx[0] = mode == TANH ? *dh * (1 - y * y) : y > 0 ? *dh : 0;
        *dh = 0;
    }
    memcpy(dp, dx, 4 * sizeof *dp);
    if (mode == GRU)
        dp[2] = dx[2] * s[0];
}

void wf_rnn_bwd_eval(WfOracle *o, const WfNode *n)
{
    WfVal yv = wf_tensor(n, 3);
    int64_t sh[3];
    wf_oracle_shape(o, yv, sh);
    int mode = (int)wf_lit(o->g, n, 8), gates = n_gates[mode], blocks = n_saved[mode];
    int64_t t_n = sh[0], b_n = sh[1], h_n = sh[2], state = b_n * h_n;
    double *w = val(o, wf_tensor(n, 0)), *h0 = val(o, wf_tensor(n, 1)), *c0 = val(o, wf_tensor(n, 2));
    double *y = val(o, yv), *saved = val(o, wf_tensor(n, 4)), *dy = val(o, wf_tensor(n, 5));
    double *dht = val(o, wf_tensor(n, 6)), *dct = val(o, wf_tensor(n, 7));
    double *dx = wf_oracle_new(o, n->out), *dp = wf_oracle_new(o, n->out + 1);
    double *dh = wf_oracle_new(o, n->out + 2), *dc = wf_oracle_new(o, n->out + 3);
    if (dht)
        memcpy(dh, dht, (size_t)state * sizeof *dh);
    if (dct)
        memcpy(dc, dct, (size_t)state * sizeof *dc);
    for (int64_t k = t_n - 1; k >= 0; k--) {
        bool reverse = wf_bool(n, 9);
        int64_t t = reverse ? t_n - 1 - k : k, prev = reverse ? t + 1 : t - 1;
        for (int64_t i = 0; i < state; i++) {
            int64_t b = i / h_n, j = i % h_n, at = (t * b_n + b) * h_n + j, was = (prev * b_n + b) * h_n + j;
            double s[5] = {0}, gx[4] = {0}, gp[4] = {0};
            for (int q = 0; q < blocks; q++)
                s[q] = saved[((t * b_n + b) * blocks + q) * h_n + j];
            double c_before =
                mode == LSTM ? (k ? saved[((prev * b_n + b) * blocks + 4) * h_n + j] : c0[i]) : 0;
            dh[i] += dy ? dy[at] : 0;
            unit_back(mode, s, y[at], k ? y[was] : h0[i], c_before, &dh[i], &dc[i], gx, gp);
            for (int q = 0; q < gates; q++) {
                dx[((t * b_n + b) * gates + q) * h_n + j] = gx[q];
                dp[((t * b_n + b) * gates + q) * h_n + j] = gp[q];
            }
        }
        for (int64_t i = 0; i < state; i++) /* and through W_hh */
            for (int64_t r = 0; r < gates * h_n; r++)
                dh[i] += dp[(t * b_n + i / h_n) * gates * h_n + r] * w[r * h_n + i % h_n];
    }
}
