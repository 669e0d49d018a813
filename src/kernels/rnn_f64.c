/* Recurrent layers in float64: the formulas of rnn.c as plain sums, in one fixed order. A tile is a sample of the batch
 * and walks the whole sequence. Models in float64 are checked with, not trained with: this is meant to be right. */
#include <math.h>
#include <string.h>

#include "kernels/rnn.h"

static double *at3(const WfRnn *r, void *const *operand, int i, int64_t t, int64_t b)
{
    return r->has[i] ? (double *)operand[i] + t * r->stride[i][0] + b * r->stride[i][1] : NULL;
}

static double *at2(const WfRnn *r, void *const *operand, int i, int64_t b)
{
    return r->has[i] ? (double *)operand[i] + b * r->stride[i][0] : NULL;
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* One unit's step: x and p are its pre-activations of the input and the hidden side, by gate; returns the new state. */
static double unit(int mode, const double *x, const double *p, double h, double *c, double *saved)
{
    if (mode == WF_RNN_LSTM) {
        double i = logistic(x[0] + p[0]), f = logistic(x[1] + p[1]), g = tanh(x[2] + p[2]), o = logistic(x[3] + p[3]);
        *c = f * *c + i * g;
        memcpy(saved, (double[]){i, f, g, o, *c}, 5 * sizeof *saved);
        return o * tanh(*c);
    }
    if (mode == WF_RNN_GRU) {
        double r = logistic(x[0] + p[0]), z = logistic(x[1] + p[1]), n = tanh(x[2] + r * p[2]);
        memcpy(saved, (double[]){r, z, n, p[2]}, 4 * sizeof *saved);
        return n + z * (h - n);
    }
    double v = x[0] + p[0];
    return mode == WF_RNN_TANH ? tanh(v) : v > 0 || isnan(v) ? v : 0;
}

/* Work of a sample: the state, the cell, and the hidden side of the gates. */
static void forward(const WfRnn *r, int64_t b, void *const *operand, double *work)
{
    int64_t n = r->h;
    double *h = work, *c = h + n, *p = c + n;
    const double *w = operand[W_HH], *bias = r->has[B_HH] ? operand[B_HH] : NULL, *c0 = at2(r, operand, C0, b);
    memcpy(h, at2(r, operand, H0, b), (size_t)n * sizeof *h);
    if (c0)
        memcpy(c, c0, (size_t)n * sizeof *c);
    for (int64_t i = 0; i < r->t; i++) {
        int64_t t = r->reverse ? r->t - 1 - i : i;
        const double *x = at3(r, operand, XPROJ, t, b);
        double *y = at3(r, operand, Y, t, b), *kept = at3(r, operand, SAVED, t, b);
        for (int64_t q = 0; q < r->g * n; q++) {
            p[q] = bias ? bias[q] : 0;
            for (int64_t k = 0; k < n; k++)
                p[q] += w[q * r->stride[W_HH][0] + k] * h[k];
        }
        for (int64_t j = 0; j < n; j++) {
            double in[4], hidden[4], saved[5];
            for (int64_t q = 0; q < r->g; q++)
                in[q] = x[q * n + j], hidden[q] = p[q * n + j];
            y[j] = unit(r->mode, in, hidden, h[j], &c[j], saved);
            for (int64_t q = 0; kept && q < r->s; q++)
                kept[q * n + j] = saved[q];
        }
        memcpy(h, y, (size_t)n * sizeof *h);
    }
    memcpy(at2(r, operand, HT, b), h, (size_t)n * sizeof *h);
    if (r->has[CT])
        memcpy(at2(r, operand, CT, b), c, (size_t)n * sizeof *c);
}

/* One unit's step back: gradients of the pre-activations on the input side; *dh becomes the direct part. Returns the
 * factor from there to the hidden side of GRU's last gate. */
static double unit_back(int mode, const double *s, double y, double before, double c_before, double *dh, double *dc, double *dx)
{
    if (mode == WF_RNN_LSTM) {
        double t = tanh(s[4]), d = *dc + *dh * s[3] * (1 - t * t);
        dx[0] = d * s[2] * s[0] * (1 - s[0]);
        dx[1] = d * c_before * s[1] * (1 - s[1]);
        dx[2] = d * s[0] * (1 - s[2] * s[2]);
        dx[3] = *dh * t * s[3] * (1 - s[3]);
        *dc = d * s[1];
        *dh = 0;
        return 1;
    }
    if (mode == WF_RNN_GRU) {
        double d = *dh * (1 - s[1]) * (1 - s[2] * s[2]);
        dx[0] = d * s[3] * s[0] * (1 - s[0]);
        dx[1] = *dh * (before - s[2]) * s[1] * (1 - s[1]);
        dx[2] = d;
        *dh *= s[1];
        return s[0];
    }
    dx[0] = mode == WF_RNN_TANH ? *dh * (1 - y * y) : y > 0 ? *dh : 0;
    *dh = 0;
    return 1;
}

/* Work of a sample: gradients of the state, of the cell, and of the hidden side of the gates. */
static void backward(const WfRnn *r, int64_t b, void *const *operand, double *work)
{
    int64_t n = r->h;
    double *dh = work, *dc = dh + n, *dp = dc + n;
    const double *w = operand[BW_HH], *dht = at2(r, operand, DHT, b), *dct = at2(r, operand, DCT, b);
    for (int64_t j = 0; j < n; j++)
        dh[j] = dht ? dht[j] : 0, dc[j] = dct ? dct[j] : 0;
    for (int64_t i = r->t - 1; i >= 0; i--) {
        int64_t t = r->reverse ? r->t - 1 - i : i, previous = r->reverse ? t + 1 : t - 1;
        const double *kept = at3(r, operand, BSAVED, t, b), *y = at3(r, operand, BY, t, b), *dy = at3(r, operand, DY, t, b);
        const double *before = i ? at3(r, operand, BY, previous, b) : at2(r, operand, BH0, b);
        const double *c_before = r->mode != WF_RNN_LSTM ? NULL
                                 : i                    ? at3(r, operand, BSAVED, previous, b) + 4 * n
                                                        : at2(r, operand, BC0, b);
        double *dx = at3(r, operand, DXPROJ, t, b), *hidden = at3(r, operand, DHPROJ, t, b);
        for (int64_t j = 0; j < n; j++) {
            double s[5] = {0}, grads[4];
            for (int64_t q = 0; kept && q < r->s; q++)
                s[q] = kept[q * n + j];
            dh[j] += dy ? dy[j] : 0;
            double last = unit_back(r->mode, s, y[j], before[j], c_before ? c_before[j] : 0, &dh[j], &dc[j], grads);
            for (int64_t q = 0; q < r->g; q++) {
                dx[q * n + j] = grads[q];
                dp[q * n + j] = grads[q] * (q == 2 ? last : 1);
            }
        }
        if (hidden)
            memcpy(hidden, dp, (size_t)(r->g * n) * sizeof *dp);
        for (int64_t q = 0; q < r->g * n; q++)
            for (int64_t k = 0; k < n; k++)
                dh[k] += dp[q] * w[q * r->stride[BW_HH][0] + k];
    }
    memcpy(at2(r, operand, DH0, b), dh, (size_t)n * sizeof *dh);
    if (r->has[DC0])
        memcpy(at2(r, operand, DC0, b), dc, (size_t)n * sizeof *dc);
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace, void *scratch, int thread)
{
    const WfRnn *r = lib->self;
    (void)phase, (void)workspace, (void)thread;
    if (r->backward)
        backward(r, tile, operand, scratch);
    else
        forward(r, tile, operand, scratch);
}

size_t wf_rnn_f64_scratch(const WfRnn *r)
{
    return (size_t)((r->g + 2) * r->h) * sizeof(double);
}

void wf_rnn_f64_create(const WfRnn *r, WfLib *lib)
{
    lib->run = run;
    lib->tiles[lib->n_phases++] = r->b;
}
