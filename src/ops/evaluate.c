/* Slow evaluation, in double precision, of the primitives that are neither pointwise nor views nor plain
 * reductions: sources, gather, arg-reductions and all library calls. Straight from the definitions (loops
 * over all indices), and on purpose without any code in common with src/kernels: the two are compared with
 * each other. */
#include "ops/ops_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *val(WfOracle *o, WfVal v)
{
    return v ? o->val[v] : NULL;
}
static int64_t dim(WfOracle *o, WfVal v, int d)
{
    return wf_oracle_dim(o, wf_value(o->g, v)->shape[d]);
}

/* ---- sources ---- */

void wf_full_eval(WfOracle *o, const WfNode *n)
{
    int64_t count = wf_oracle_numel(o, n->out);
    double *y = wf_oracle_new(o, n->out), v = wf_float(o->g, n, 1);
    char tmp[8];
    WfDtype t = n->args[2].dtype;
    wf_store_f64(t, tmp, v);
    v = t == WF_F32 ? v : wf_load_f64(t, tmp);
    for (int64_t i = 0; i < count; i++)
        y[i] = v;
}

void wf_iota_eval(WfOracle *o, const WfNode *n)
{
    int64_t shape[WF_MAX_RANK], inner = 1, count = wf_oracle_shape(o, n->out, shape);
    int d = (int)n->args[1].i;
    double *y = wf_oracle_new(o, n->out);
    for (int i = d + 1; i < n->args[0].n; i++)
        inner *= shape[i];
    for (int64_t i = 0; i < count; i++)
        y[i] = (double)(i / inner % shape[d]);
}

void wf_size_eval(WfOracle *o, const WfNode *n)
{
    *wf_oracle_new(o, n->out) = (double)wf_oracle_dim(o, wf_int(n, 0));
}

/* Philox4x32-10 (Salmon et al., 2011): key (seed, seed's high word ^ stream's golden multiple), counter
 * (element, step); the top 24 bits of the first word. */
void wf_rand_eval(WfOracle *o, const WfNode *n)
{
    int64_t count = wf_oracle_numel(o, n->out);
    uint64_t stream = (uint64_t)wf_oracle_dim(o, wf_int(n, 1)), step = (uint64_t)o->step;
    double *y = wf_oracle_new(o, n->out);
    for (int64_t i = 0; i < count; i++) {
        uint32_t k0 = (uint32_t)o->seed, k1 = (uint32_t)((o->seed >> 32) ^ (stream * 0x9E3779B9u));
        uint32_t c[4] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32), (uint32_t)step, (uint32_t)(step >> 32)};
        for (int r = 0; r < 10; r++) {
            uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
            uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                                (uint32_t)a};
            memcpy(c, next, sizeof c);
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        y[i] = (double)(c[0] >> 8) * 0x1p-24;
    }
}

/* ---- indices ---- */

static void out_of_range(WfOracle *o, const WfNode *n, double at, int64_t size)
{
    wf_fail_node(o->g, n, WF_E_SHAPES, "index %.0f is out of range for size %lld", at, (long long)size);
}

void wf_gather_eval(WfOracle *o, const WfNode *n)
{
    WfVal x = wf_tensor(n, 0), index = wf_tensor(n, 2);
    int64_t sx[WF_MAX_RANK], si[WF_MAX_RANK],
        count = (wf_oracle_shape(o, x, sx), wf_oracle_shape(o, index, si));
    int d = (int)n->args[1].i, rank = wf_value(o->g, x)->rank;
    double *y = wf_oracle_new(o, n->out);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at[WF_MAX_RANK], flat = 0;
        for (int k = rank - 1; k >= 0; k--) {
            at[k] = rest % si[k];
            rest /= si[k];
        }
        double k = val(o, index)[i];
        if (k < 0 || k >= (double)sx[d])
            out_of_range(o, n, k, sx[d]);
        at[d] = (int64_t)k;
        for (int j = 0; j < rank; j++)
            flat = flat * sx[j] + at[j];
        y[i] = val(o, x)[flat];
    }
}

static double combine(const char *mode, double a, double b)
{
    return !strcmp(mode, "set")   ? b
           : !strcmp(mode, "add") ? a + b
           : !strcmp(mode, "mul") ? a * b
           : isnan(a) || isnan(b) ? NAN
           : !strcmp(mode, "max") ? (a > b ? a : b)
                                  : (a < b ? a : b);
}

/* Both scatters: index[outer, R, inner], or index[R]. */
void wf_scatter_eval(WfOracle *o, const WfNode *n)
{
    WfVal x = wf_tensor(n, 0), index = wf_tensor(n, 1), src = wf_tensor(n, 2);
    int64_t s[3], ss[3], count = wf_oracle_shape(o, x, s);
    bool rows = wf_value(o->g, index)->rank == 1;
    wf_oracle_shape(o, src, ss);
    double *y = wf_oracle_new(o, n->out);
    memcpy(y, val(o, x), (size_t)count * sizeof *y);
    for (int64_t a = 0; a < ss[0]; a++)
        for (int64_t r = 0; r < ss[1]; r++)
            for (int64_t i = 0; i < ss[2]; i++) {
                int64_t from = (a * ss[1] + r) * ss[2] + i;
                double k = val(o, index)[rows ? r : from];
                if (k < 0 || k >= (double)s[1])
                    out_of_range(o, n, k, s[1]);
                double *to = &y[(a * s[1] + (int64_t)k) * s[2] + i];
                *to = combine(n->args[3].s, *to, val(o, src)[from]);
            }
}

/* Index of the first extremum over the reduced dimensions, counted row-major among them; NaN wins. */
static void arg_eval(WfOracle *o, const WfNode *n, int sign)
{
    WfVal x = wf_tensor(n, 0);
    int64_t shape[WF_MAX_RANK], count = wf_oracle_shape(o, x, shape), n_out = wf_oracle_numel(o, n->out);
    int rank = wf_value(o->g, x)->rank;
    uint32_t dims = 0;
    for (int i = 0; i < n->args[1].n; i++)
        dims |= 1u << n->args[1].ints[i];
    double *y = wf_oracle_new(o, n->out), *best = WF_NEWN(o->arena, double, (size_t)n_out + 1);
    bool *any = WF_NEWN(o->arena, bool, (size_t)n_out + 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at[WF_MAX_RANK], to = 0, k = 0;
        for (int d = rank - 1; d >= 0; d--) {
            at[d] = rest % shape[d];
            rest /= shape[d];
        }
        for (int d = 0; d < rank; d++) {
            int64_t *which = dims >> d & 1 ? &k : &to;
            *which = *which * shape[d] + at[d];
        }
        double v = val(o, x)[i] * sign;
        if (!any[to] || (!isnan(best[to]) && (isnan(v) || v > best[to]))) {
            any[to] = true;
            best[to] = v;
            y[to] = (double)k;
        }
    }
}

void wf_argmax_eval(WfOracle *o, const WfNode *n)
{
    arg_eval(o, n, 1);
}
void wf_argmin_eval(WfOracle *o, const WfNode *n)
{
    arg_eval(o, n, -1);
}

/* ---- running sums, sorting ---- */

static void running_eval(WfOracle *o, const WfNode *n, bool product)
{
    int64_t s[WF_MAX_RANK], outer = 1, inner = 1, count = wf_oracle_shape(o, n->out, s);
    int rank = wf_value(o->g, n->out)->rank, d = (int)n->args[1].i;
    int64_t len = rank ? s[d] : 1;
    for (int i = 0; i < rank; i++)
        *(i < d ? &outer : &inner) *= i == d ? 1 : s[i];
    double *y = wf_oracle_new(o, n->out), *x = val(o, wf_tensor(n, 0));
    bool reverse = wf_bool(n, 2);
    for (int64_t a = 0; count && a < outer; a++)
        for (int64_t i = 0; i < inner; i++) {
            double acc = product;
            for (int64_t r = 0; r < len; r++) {
                int64_t at = (a * len + (reverse ? len - 1 - r : r)) * inner + i;
                acc = product ? acc * x[at] : acc + x[at];
                y[at] = acc;
            }
        }
}

void wf_cumsum_eval(WfOracle *o, const WfNode *n)
{
    running_eval(o, n, false);
}
void wf_cumprod_eval(WfOracle *o, const WfNode *n)
{
    running_eval(o, n, true);
}

static bool goes_before(double a, double b, bool descending) /* strictly; NaN is the largest */
{
    if (isnan(a) || isnan(b))
        return descending ? isnan(a) && !isnan(b) : !isnan(a) && isnan(b);
    return descending ? a > b : a < b;
}

void wf_sort_eval(WfOracle *o, const WfNode *n)
{
    WfVal x = wf_tensor(n, 0);
    int64_t count = wf_oracle_numel(o, x), len = dim(o, x, wf_value(o->g, x)->rank - 1);
    double *y = wf_oracle_new(o, n->out), *at = wf_oracle_new(o, n->out + 1);
    bool descending = wf_bool(n, 1);
    for (int64_t row = 0; len && row < count / len; row++) {
        double *v = y + row * len, *k = at + row * len;
        for (int64_t i = 0; i < len; i++) { /* insertion keeps equal elements in order */
            double e = val(o, x)[row * len + i];
            int64_t j = i;
            for (; j > 0 && goes_before(e, v[j - 1], descending); j--) {
                v[j] = v[j - 1];
                k[j] = k[j - 1];
            }
            v[j] = e;
            k[j] = (double)i;
        }
    }
}

/* ---- matmul, convolution ---- */

void wf_matmul_eval(WfOracle *o, const WfNode *n)
{
    WfVal a = wf_tensor(n, 0), b = wf_tensor(n, 1);
    int r = wf_value(o->g, a)->rank;
    int64_t m = dim(o, a, r - 2), k = dim(o, a, r - 1), w = dim(o, b, r - 1),
            count = wf_oracle_numel(o, n->out);
    double *y = wf_oracle_new(o, n->out);
    for (int64_t i = 0; i < count; i++) {
        int64_t batch = i / (m * w), row = i / w % m, col = i % w;
        for (int64_t q = 0; q < k; q++)
            y[i] += val(o, a)[(batch * m + row) * k + q] * val(o, b)[(batch * k + q) * w + col];
    }
}

typedef struct {
    int s; /* spatial rank, here always 3: missing dims have size 1 */
    int64_t n, c, f, groups, in[3], out[3], k[3], stride[3], pad[3], dil[3];
} Conv;

static void spatial(WfOracle *o, WfVal v, int64_t *to)
{
    int r = wf_value(o->g, v)->rank;
    for (int i = 0; i < 3; i++)
        to[i] = i < r - 2 ? dim(o, v, 2 + i) : 1;
}

/* Calls fn for every product of the convolution: flat places in x, w and y. */
static void conv_walk(const Conv *c, double *x, double *w, double *y, int target)
{
    int64_t cg = c->c / c->groups, fg = c->f / c->groups, at[3];
    int64_t outs = c->out[0] * c->out[1] * c->out[2], ks = c->k[0] * c->k[1] * c->k[2];
    for (int64_t b = 0; b < c->n; b++)
        for (int64_t f = 0; f < c->f; f++)
            for (int64_t p = 0; p < outs; p++)
                for (int64_t ch = 0; ch < cg; ch++)
                    for (int64_t q = 0; q < ks; q++) {
                        int64_t pr = p, qr = q;
                        bool inside = true;
                        for (int d = 2; d >= 0; d--) {
                            at[d] = pr % c->out[d] * c->stride[d] - c->pad[d] + qr % c->k[d] * c->dil[d];
                            inside &= at[d] >= 0 && at[d] < c->in[d];
                            pr /= c->out[d];
                            qr /= c->k[d];
                        }
                        if (!inside)
                            continue;
                        double *px =
                            &x[(((b * c->c + f / fg * cg + ch) * c->in[0] + at[0]) * c->in[1] + at[1]) *
                                   c->in[2] +
                               at[2]];
                        double *pw = &w[(f * cg + ch) * ks + q], *py = &y[(b * c->f + f) * outs + p];
                        if (target == 0)
                            *py += *px * *pw;
                        else if (target == 1)
                            *px += *py * *pw;
                        else
                            *pw += *px * *py;
                    }
}

static void conv_run(WfOracle *o, const WfNode *n, WfVal x, WfVal w, WfVal y, int at, int target)
{
    Conv c = {.s = 3, .n = dim(o, x, 0), .c = dim(o, x, 1), .f = dim(o, w, 0)};
    c.groups = wf_oracle_dim(o, wf_int(n, at + 3));
    spatial(o, x, c.in);
    spatial(o, w, c.k);
    spatial(o, y, c.out);
    for (int i = 0; i < 3; i++) {
        bool has = i < n->args[at].n;
        c.stride[i] = has ? n->args[at].ints[i] : 1;
        c.pad[i] = has ? n->args[at + 1].ints[i] : 0;
        c.dil[i] = has ? n->args[at + 2].ints[i] : 1;
    }
    wf_oracle_new(o, n->out);
    conv_walk(&c, val(o, x), val(o, w), val(o, y), target);
}

void wf_conv_eval(WfOracle *o, const WfNode *n)
{
    conv_run(o, n, wf_tensor(n, 0), wf_tensor(n, 1), n->out, 2, 0);
}
void wf_conv_bwd_data_eval(WfOracle *o, const WfNode *n)
{
    conv_run(o, n, n->out, wf_tensor(n, 1), wf_tensor(n, 0), 3, 1);
}
void wf_conv_bwd_weight_eval(WfOracle *o, const WfNode *n)
{
    conv_run(o, n, wf_tensor(n, 0), n->out, wf_tensor(n, 1), 3, 2);
}
