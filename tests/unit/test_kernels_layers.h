/* The second half of test_kernels.c: convolution, recurrence, sorting, scanning, scattering, refusals, the
 * team. */

/* ---- convolution -------------------------------------------------------------------------------- */

typedef struct {
    int spatial;
    int64_t n, c, o, in[3], k[3], s, d, p, g;
    bool bias, wide; /* wide: float64 */
} Conv;

static void conv_release(Case *f, Case *b, Case *w)
{
    b->p[1] = w->p[0] = w->p[1] = NULL; /* f's and b's */
    release(f), release(b), release(w);
}

/* Three-dimensional whatever the rank: missing dims have size 1, stride 1, padding 0. */
static void conv_case_at(Conv v, int isa)
{
    static const int last3[] = {0, 2, 1}, last4[] = {0, 2, 3, 1}, last5[] = {0, 2, 3, 4, 1};
    const int *order = v.spatial == 1 ? last3 : v.spatial == 2 ? last4 : last5;
    int rank = v.spatial + 2;
    WfDtype t = v.wide ? WF_F64 : WF_F32;
    double limit = v.wide ? 1e-14 : 4e-6;
    int64_t out[3] = {1, 1, 1}, in[3] = {1, 1, 1}, k[3] = {1, 1, 1}, s[3] = {1, 1, 1}, d[3] = {1, 1, 1},
            p[3] = {0};
    int64_t xs[5] = {v.n, v.c}, ys[5] = {v.n, v.o}, ws[5] = {v.o, v.c / v.g};
    Case f = {.d = {.kind = "conv_fwd"}}, b = {.d = {.kind = "conv_bwd_data"}},
         w = {.d = {.kind = "conv_bwd_weight"}};
    f.d.param[0] = v.g;
    for (int i = 0; i < v.spatial; i++) {
        in[i] = v.in[i], k[i] = v.k[i], s[i] = v.s, d[i] = v.d, p[i] = v.p;
        out[i] = (in[i] + 2 * v.p - (k[i] - 1) * v.d - 1) / v.s + 1;
        xs[2 + i] = in[i], ys[2 + i] = out[i], ws[2 + i] = k[i];
        f.d.param[1 + i] = v.s, f.d.param[4 + i] = v.d, f.d.param[7 + i] = v.p;
    }
    memcpy(b.d.param, f.d.param, sizeof f.d.param);
    memcpy(w.d.param, f.d.param, sizeof f.d.param);
    int x = add(&f, t, false, rank, xs, order, 0), wt = add(&f, t, false, rank, ws, NULL, 0);
    if (v.bias)
        add(&f, t, false, SHAPE(v.o), NULL, 0);
    else
        none(&f);
    int y = add(&f, t, true, rank, ys, order, 0);
    int dy = add(&b, t, false, rank, ys, order, 0);
    b.d.operand[1] = f.d.operand[wt], b.p[1] = f.p[wt], b.d.n = 2;
    int dx = add(&b, t, true, rank, xs, order, 0);
    w.d.operand[0] = f.d.operand[x], w.p[0] = f.p[x], w.d.operand[1] = b.d.operand[dy], w.p[1] = b.p[dy],
    w.d.n = 2;
    int dw = add(&w, t, true, rank, ws, NULL, 0), db = -1;
    if (v.bias)
        db = add(&w, t, true, SHAPE(v.o), NULL, 0);
    Case *all[] = {&f, &b, &w};
    char why[256];
    for (size_t i = 0; i < WF_LEN(all); i++) {
        all[i]->d.param[WF_LIB_ISA] = isa;
        if (isa < wf_isa_level() &&
            !wf_lib_accepts(&all[i]->d, why, sizeof why)) { /* oneDNN's at the other level */
            conv_release(&f, &b, &w);
            return;
        }
    }
    run(&f, isa), run(&b, isa), run(&w, isa);
    int64_t cg = v.c / v.g, og = v.o / v.g;
    double *rx = calloc((size_t)(v.n * v.c * in[0] * in[1] * in[2]), 8),
           *rw = calloc((size_t)(v.o * cg * k[0] * k[1] * k[2]), 8);
    Error ey = {0}, ex = {0}, ew = {0}, eb = {0};
    for (int64_t o = 0; o < v.o; o++) {
        double bias_grad = 0;
        for (int64_t n = 0; n < v.n; n++)
            for (int64_t q = 0; q < out[0] * out[1] * out[2]; q++) {
                int64_t at_y[3] = {q / (out[1] * out[2]), q / out[2] % out[1], q % out[2]};
                double sum = v.bias ? AT2(&f, 2, o, 0) : 0, g = at(&b, dy, n, o, at_y[0], at_y[1], at_y[2]);
                bias_grad += g;
                for (int64_t e = 0; e < cg * k[0] * k[1] * k[2]; e++) {
                    int64_t kk[3] = {e / (k[1] * k[2]) % k[0], e / k[2] % k[1], e % k[2]}, at_x[3],
                            c = e / (k[0] * k[1] * k[2]);
                    bool inside = true;
                    for (int i = 0; i < 3; i++) {
                        at_x[i] = at_y[i] * s[i] + kk[i] * d[i] - p[i];
                        inside = inside && at_x[i] >= 0 && at_x[i] < in[i];
                    }
                    if (!inside)
                        continue;
                    int64_t cx = o / og * cg + c;
                    double xv = at(&f, x, n, cx, at_x[0], at_x[1], at_x[2]),
                           wv = at(&f, wt, o, c, kk[0], kk[1], kk[2]);
                    sum += xv * wv;
                    rw[o * cg * k[0] * k[1] * k[2] + e] += xv * g;
                    rx[((n * v.c + cx) * in[0] + at_x[0]) * in[1] * in[2] + at_x[1] * in[2] + at_x[2]] +=
                        wv * g;
                }
                note(&ey, at(&f, y, n, o, at_y[0], at_y[1], at_y[2]), sum);
            }
        if (v.bias)
            note(&eb, AT2(&w, db, o, 0), bias_grad);
    }
    for (int64_t e = 0; e < v.n * v.c * in[0] * in[1] * in[2]; e++)
        note(&ex,
             at(&b, dx, e / (v.c * in[0] * in[1] * in[2]), e / (in[0] * in[1] * in[2]) % v.c,
                e / (in[1] * in[2]) % in[0], e / in[2] % in[1], e % in[2]),
             rx[e]);
    for (int64_t e = 0; e < v.o * cg * k[0] * k[1] * k[2]; e++)
        note(&ew,
             at(&w, dw, e / (cg * k[0] * k[1] * k[2]), e / (k[0] * k[1] * k[2]) % cg,
                e / (k[1] * k[2]) % k[0], e / k[2] % k[1], e % k[2]),
             rw[e]);
    small("conv y", ey, limit), small("conv dx", ex, limit), small("conv dw", ew, limit),
        small("conv db", eb, limit);
    free(rx), free(rw);
    conv_release(&f, &b, &w);
}

/* The highest level first: the first call of oneDNN in a process fixes its level. */
static void conv_case(Conv v)
{
    int level[3];
    for (int i = levels(level) - 1; i >= 0; i--)
        if (level[i] < WF_ISA_LEVEL_AMX) /* which no convolution uses */
            conv_case_at(v, level[i]);
}

static void test_conv(void **state)
{
    (void)state;
    if (wf_isa_level() < 3)
        return;
    conv_case((Conv){2, 3, 5, 7, {9, 11}, {3, 3}, 1, 1, 1, 1, true, false});
    conv_case((Conv){2, 33, 16, 32, {8, 8}, {3, 3}, 2, 1, 1, 1, false, false});
    conv_case((Conv){1, 5, 8, 8, {17}, {5}, 1, 2, 4, 1, true, false});
    conv_case((Conv){3, 2, 4, 6, {5, 6, 7}, {3, 2, 3}, 1, 1, 1, 1, true, false});
    conv_case((Conv){2, 6, 32, 32, {10, 10}, {3, 3}, 1, 1, 1, 32, true, false});
    conv_case((Conv){2, 4, 12, 24, {7, 7}, {3, 3}, 1, 1, 1, 4, false, false});
    /* depthwise: blocks that overlap, strides, dilation, more taps than go at once, taps that meet only padding */
    conv_case((Conv){2, 5, 16, 16, {9, 8}, {3, 3}, 2, 1, 1, 16, true, false});
    conv_case((Conv){2, 9, 40, 40, {7, 7}, {5, 5}, 1, 1, 2, 40, true, false});
    conv_case((Conv){2, 3, 23, 23, {6, 5}, {7, 7}, 1, 1, 3, 23, false, false});
    conv_case((Conv){2, 2, 96, 96, {4, 4}, {7, 7}, 1, 1, 3, 96, true, false});
    conv_case((Conv){2, 2, 17, 17, {12, 14}, {3, 11}, 3, 1, 5, 17, true, false});
    conv_case((Conv){2, 4, 32, 32, {9, 10}, {3, 3}, 1, 3, 3, 32, false, false});
    conv_case((Conv){1, 6, 48, 48, {30}, {4}, 2, 2, 3, 48, true, false});
    conv_case((Conv){2, 1, 16, 16, {2, 2}, {9, 9}, 1, 1, 4, 16, true, false});
    conv_case((Conv){2, 17, 24, 40, {4, 4}, {1, 1}, 1, 1, 0, 1, false, false});
    conv_case((Conv){2, 9, 3, 8, {12, 12}, {4, 4}, 4, 1, 0, 1, true, false});
    /* On the register tile: runs, edges, strides, ranges of samples, parts of channels. */
    conv_case((Conv){2, 17, 24, 40, {4, 3}, {3, 3}, 1, 1, 1, 1, true, false});
    conv_case((Conv){2, 9, 37, 43, {7, 8}, {3, 3}, 2, 1, 1, 1, false, false});
    conv_case((Conv){2, 8, 70, 50, {6, 5}, {1, 1}, 2, 1, 0, 1, true, false});
    conv_case((Conv){2, 50, 260, 230, {2, 2}, {3, 3}, 1, 1, 1, 1, false, false});
    conv_case((Conv){1, 16, 40, 64, {10}, {5}, 3, 1, 4, 1, true, false});
    conv_case((Conv){2, 100, 64, 32, {4, 4}, {3, 3}, 1, 1, 1, 1, true, false});
    conv_case((Conv){2, 9, 64, 32, {15, 13}, {3, 3}, 2, 1, 1, 1, true, false});
    conv_case((Conv){2, 10, 30, 33, {8, 9}, {7, 7}, 4, 1, 3, 1, true, false});
    conv_case((Conv){2, 3, 6, 8, {9, 11}, {3, 2}, 2, 2, 1, 2, true, true});
    conv_case((Conv){1, 5, 4, 4, {17}, {5}, 3, 1, 4, 4, false, true});
    conv_case((Conv){3, 2, 4, 6, {5, 6, 7}, {3, 2, 3}, 1, 1, 1, 1, true, true});
}

/* ---- recurrence: the backward against central differences of a forward in double ---------------- */

typedef struct {
    int mode;
    bool reverse;
    int64_t t, b, h;
    double *xp, *hp, *w, *bias, *h0, *c0, *y, *ht, *ct;
} Ref;

/* hp is added to the hidden-side pre-activations: its derivative is dhproj. */
static void rnn_reference(Ref *r)
{
    int64_t n = r->h, g = wf_rnn_gates(r->mode);
    for (int64_t b = 0; b < r->b; b++) {
        double h[64], c[64];
        memcpy(h, r->h0 + b * n, (size_t)n * 8);
        memcpy(c, r->c0 + b * n, (size_t)n * 8);
        for (int64_t i = 0; i < r->t; i++) {
            int64_t t = r->reverse ? r->t - 1 - i : i;
            double p[4][64], x[4][64], next[64];
            for (int64_t q = 0; q < g; q++)
                for (int64_t j = 0; j < n; j++) {
                    p[q][j] = r->bias[q * n + j] + r->hp[(t * r->b + b) * g * n + q * n + j];
                    x[q][j] = r->xp[(t * r->b + b) * g * n + q * n + j];
                    for (int64_t k = 0; k < n; k++)
                        p[q][j] += r->w[(q * n + j) * n + k] * h[k];
                }
            for (int64_t j = 0; j < n; j++) {
#define SIG(v) (1 / (1 + exp(-(v))))
                if (r->mode == WF_RNN_LSTM) {
                    c[j] = SIG(x[1][j] + p[1][j]) * c[j] + SIG(x[0][j] + p[0][j]) * tanh(x[2][j] + p[2][j]);
                    next[j] = SIG(x[3][j] + p[3][j]) * tanh(c[j]);
                } else if (r->mode == WF_RNN_GRU) {
                    double z = SIG(x[1][j] + p[1][j]), m = tanh(x[2][j] + SIG(x[0][j] + p[0][j]) * p[2][j]);
                    next[j] = (1 - z) * m + z * h[j];
                } else {
                    double v = x[0][j] + p[0][j];
                    next[j] = r->mode == WF_RNN_TANH ? tanh(v) : v < 0 ? 0 : v;
                }
            }
            memcpy(h, next, (size_t)n * 8);
            memcpy(r->y + (t * r->b + b) * n, h, (size_t)n * 8);
        }
        memcpy(r->ht + b * n, h, (size_t)n * 8);
        memcpy(r->ct + b * n, c, (size_t)n * 8);
    }
}

static double *doubles(const Case *c, int i, int64_t n)
{
    double *p = calloc((size_t)(n ? n : 1), 8);
    for (int64_t j = 0; c->p[i] && j < n; j++)
        p[j] = ((float *)c->p[i])[j];
    return p;
}

static double weighted(const double *v, const void *w, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; w && i < n; i++)
        sum += v[i] * ((const float *)w)[i];
    return sum;
}

/* d(loss)/d(x[i]) against the kernel's gradient, loss = <y, dy> + <hT, dhT> + <cT, dcT>. */
static void differences(const char *what, Ref *r, double *x, int64_t n, const Case *w, int grad)
{
    Error e = {0};
    int64_t ny = r->t * r->b * r->h, ns = r->b * r->h;
    for (int64_t i = 0; i < n; i++) {
        double keep = x[i], loss[2];
        for (int side = 0; side < 2; side++) {
            x[i] = keep + (side ? 1e-5 : -1e-5);
            rnn_reference(r);
            loss[side] =
                weighted(r->y, w->p[5], ny) + weighted(r->ht, w->p[6], ns) + weighted(r->ct, w->p[7], ns);
        }
        x[i] = keep;
        note(&e, ((float *)w->p[grad])[i], (loss[1] - loss[0]) / 2e-5);
    }
    small(what, e, 1e-5);
}

static void rnn_case(int mode, bool reverse, int64_t t, int64_t b, int64_t h)
{
    int64_t g = wf_rnn_gates(mode), s = wf_rnn_saved(mode);
    bool lstm = mode == WF_RNN_LSTM, gru = mode == WF_RNN_GRU;
    Case f = {.d = {.kind = "rnn_fwd"}}, w = {.d = {.kind = "rnn_bwd"}};
    f.d.param[0] = w.d.param[0] = mode, f.d.param[1] = w.d.param[1] = reverse;
    IN(&f, t, b, g * h), IN(&f, g * h, h), IN(&f, g * h), IN(&f, b, h);
    lstm ? (void)IN(&f, b, h) : none(&f);
    OUT(&f, t, b, h), OUT(&f, b, h);
    lstm ? (void)OUT(&f, b, h) : none(&f);
    s ? (void)OUT(&f, t, b, s * h) : none(&f);
    static const int from[] = {1, 3, 4, 5, 8};
    for (int i = 0; i < 5; i++)
        w.d.operand[i] = f.d.operand[from[i]], w.p[i] = f.p[from[i]];
    w.d.n = 5;
    IN(&w, t, b, h), IN(&w, b, h);
    lstm ? (void)IN(&w, b, h) : none(&w);
    OUT(&w, t, b, g * h);
    gru ? (void)OUT(&w, t, b, g * h) : none(&w);
    OUT(&w, b, h);
    lstm ? (void)OUT(&w, b, h) : none(&w);
    Ref r = {mode,
             reverse,
             t,
             b,
             h,
             doubles(&f, 0, t * b * g * h),
             calloc((size_t)(t * b * g * h), 8),
             doubles(&f, 1, g * h * h),
             doubles(&f, 2, g * h),
             doubles(&f, 3, b * h),
             doubles(&f, 4, b * h),
             calloc((size_t)(t * b * h), 8),
             calloc((size_t)(b * h), 8),
             calloc((size_t)(b * h), 8)};
    EACH_LEVEL(isa)
    {
        run(&f, isa);
        run(&w, isa);
        rnn_reference(&r);
        Error ey = {0}, eh = {0}, ec = {0};
        for (int64_t i = 0; i < t * b * h; i++)
            note(&ey, ((float *)f.p[5])[i], r.y[i]);
        for (int64_t i = 0; i < b * h; i++) {
            note(&eh, ((float *)f.p[6])[i], r.ht[i]);
            if (lstm)
                note(&ec, ((float *)f.p[7])[i], r.ct[i]);
        }
        small("rnn y", ey, 1e-5), small("rnn hT", eh, 1e-5), small("rnn cT", ec, 1e-5);
        differences("rnn dxproj", &r, r.xp, t * b * g * h, &w, 8);
        if (gru)
            differences("rnn dhproj", &r, r.hp, t * b * g * h, &w, 9);
        differences("rnn dh0", &r, r.h0, b * h, &w, 10);
        if (lstm)
            differences("rnn dc0", &r, r.c0, b * h, &w, 11);
    }
    double *all[] = {r.xp, r.hp, r.w, r.bias, r.h0, r.c0, r.y, r.ht, r.ct};
    for (size_t i = 0; i < WF_LEN(all); i++)
        free(all[i]);
    release(&f);
    for (int i = 0; i < 5; i++)
        w.p[i] = NULL;
    release(&w);
}

static void test_rnn(void **state)
{
    (void)state;
    for (int mode = 0; mode < 4; mode++) {
        rnn_case(mode, false, 3, 2, 5);
        rnn_case(mode, true, 2, 3, 17);
    }
    rnn_case(WF_RNN_LSTM, false, 1, 70, 3);
    rnn_case(WF_RNN_LSTM, true, 2, 9, 33); /* enough for AMX */
    rnn_case(WF_RNN_GRU, false, 2, 9, 33);
}

/* A step with a state or a weight that AMX cannot take gives the bits of a machine without it. */
static void test_rnn_special(void **state)
{
    (void)state;
    for (int i = 0; i < 4 && wf_isa_level() >= WF_ISA_LEVEL_AMX; i++) {
        Case f = {.d = {.kind = "rnn_fwd"}};
        f.d.param[0] = WF_RNN_LSTM;
        IN(&f, 1, 20, 160), IN(&f, 160, 40), IN(&f, 160), IN(&f, 20, 40), IN(&f, 20, 40);
        OUT(&f, 1, 20, 40), OUT(&f, 20, 40), OUT(&f, 20, 40), OUT(&f, 1, 20, 200);
        float *x = f.p[i % 2 ? 1 : 3], *y[2];
        if (i < 2)
            x[333] = i ? 3.4e38F : -INFINITY;
        for (int k = 0; k < 2; k++) {
            run(&f, WF_ISA_LEVEL_V4 + k);
            y[k] = memcpy(malloc(f.bytes[5]), f.p[5], f.bytes[5]);
        }
        if (i < 2)
            assert_memory_equal(y[0], y[1], f.bytes[5]);
        else
            assert_memory_not_equal(y[0], y[1], f.bytes[5]); /* AMX was at work otherwise */
        free(y[0]), free(y[1]);
        release(&f);
    }
}

/* ---- sort, scan --------------------------------------------------------------------------------- */

static void sort_case(WfDtype t, int64_t rows, int64_t n, bool descending, bool ties)
{
    Case c = {.d = {.kind = "sort"}};
    c.d.param[0] = descending;
    add(&c, t, false, SHAPE(rows, n), NULL, 0), add(&c, t, true, SHAPE(rows, n), NULL, 0);
    add(&c, WF_I64, true, SHAPE(rows, n), NULL, 0);
    size_t size = wf_dtype_size(t);
    for (int64_t i = 0; i < rows * n; i++) {
        double v = uniform() * 1000;
        v = ties ? floor(v / 100) : v;
        if (wf_dtype_is_float(t) && i % 17 == 3)
            v = i % 2 ? NAN : i % 4 ? -0.0 : INFINITY;
        v = t == WF_U8 ? fabs(v) / 4 : t == WF_BOOL ? v > 0 : v;
        wf_dtype_is_float(t) ? wf_store_f64(t, (char *)c.p[0] + (size_t)i * size, v)
                             : wf_store_i64(t, (char *)c.p[0] + (size_t)i * size, (int64_t)v);
    }
    run(&c, 0);
    for (int64_t r = 0; r < rows; r++) {
        bool *seen = calloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
            int64_t k = ((int64_t *)c.p[2])[r * n + i];
            assert_true(k >= 0 && k < n && !seen[k]);
            seen[k] = true;
            assert_memory_equal((char *)c.p[0] + (size_t)(r * n + k) * size,
                                (char *)c.p[1] + (size_t)(r * n + i) * size, size);
            if (!i)
                continue;
            double a = AT2(&c, 1, r, i - 1), b = AT2(&c, 1, r, i);
            bool same = a == b || (isnan(a) && isnan(b)), less = !same && (isnan(b) || a < b);
            assert_true(same ? ((int64_t *)c.p[2])[r * n + i - 1] < k : descending ? !less : less);
        }
        free(seen);
    }
    release(&c);
}

static void test_sort(void **state)
{
    (void)state;
    static const WfDtype types[] = {WF_F32, WF_F64, WF_F16, WF_BF16, WF_I64,
                                    WF_I32, WF_I16, WF_I8,  WF_U8,   WF_BOOL};
    for (size_t i = 0; i < WF_LEN(types); i++)
        for (int v = 0; v < 4; v++) {
            if (types[i] == WF_I8 && !(v & 2))
                continue; /* 1000 does not fit */
            sort_case(types[i], 3, 21, v & 1, v & 2);
            sort_case(types[i], 40, 333, v & 1, v & 2);
        }
}

static void test_scan(void **state)
{
    (void)state;
    static const WfDtype types[] = {WF_F32, WF_F64, WF_I64};
    static const int64_t shapes[][3] = {{7, 50, 1}, {1, 9, 1100}, {30, 11, 70}};
    for (int v = 0; v < 3 * 3 * 4; v++) {
        WfDtype t = types[v % 3];
        const int64_t *s = shapes[v / 3 % 3];
        bool product = v / 9 % 2, reverse = v / 18;
        Case c = {.d = {.kind = product ? "cumprod" : "cumsum"}};
        c.d.param[0] = reverse;
        add(&c, t, false, SHAPE(s[0], s[1], s[2]), NULL, 0),
            add(&c, t, true, SHAPE(s[0], s[1], s[2]), NULL, 0);
        for (int64_t i = 0; t == WF_I64 && i < s[0] * s[1] * s[2]; i++)
            ((int64_t *)c.p[0])[i] = i % 5 - 2;
        run(&c, 0);
        Error e = {0};
        for (int64_t o = 0; o < s[0]; o++)
            for (int64_t j = 0; j < s[2]; j++) {
                double acc = product;
                for (int64_t i = 0; i < s[1]; i++) {
                    int64_t k = reverse ? s[1] - 1 - i : i;
                    acc = product ? acc * AT3(&c, 0, o, k, j) : acc + AT3(&c, 0, o, k, j);
                    note(&e, AT3(&c, 1, o, k, j), acc);
                }
            }
        small("scan", e, t == WF_F32 ? 1e-6 : 1e-14);
        release(&c);
    }
}

/* ---- scatter ------------------------------------------------------------------------------------ */

static double combine(int op, double a, double b)
{
    return op == WF_SCATTER_SET   ? b
           : op == WF_SCATTER_ADD ? a + b
           : op == WF_SCATTER_MUL ? a * b
           : op == WF_SCATTER_MAX ? fmax(a, b)
                                  : fmin(a, b);
}

/* full: the index has the shape of the source, whose inner size is one less than out's. */
static void scatter_case(bool full, WfDtype t, int op, int64_t outer, int64_t v, int64_t inner, int64_t rows,
                         bool with_x)
{
    Case c = {.d = {.kind = full ? "scatter_full" : "scatter"}};
    int64_t width = full && inner > 1 ? inner - 1 : inner;
    c.d.param[0] = op, c.d.param[1] = 41;
    with_x ? (void)add(&c, t, false, SHAPE(outer, v, inner), NULL, 0) : none(&c);
    full ? add(&c, WF_I64, false, SHAPE(outer, rows, width), NULL, 0)
         : add(&c, WF_I64, false, SHAPE(1, rows), NULL, 0);
    add(&c, t, false, SHAPE(outer, rows, width), NULL, 2), add(&c, t, true, SHAPE(outer, v, inner), NULL, 0);
    int status = add(&c, WF_I64, true, SHAPE(2), NULL, 0);
    int64_t *index = c.p[1], n = full ? outer * rows * width : rows;
    for (int64_t i = 0; i < n; i++)
        index[i] = (int64_t)((uniform() + 1) / 2 * (float)v) % v;
    for (size_t i = 0; t == WF_I64 && i < (c.bytes[2] - GUARD) / 8; i++)
        ((int64_t *)c.p[2])[i] = (int64_t)i % 11 - 5;
    run(&c, 0);
    assert_int_equal(((int64_t *)c.p[status])[0], 0);
    double *want = calloc((size_t)(outer * v * inner), 8);
    Error e = {0};
    for (int64_t i = 0; with_x && i < outer * v * inner; i++)
        want[i] = AT3(&c, 0, i / (v * inner), i / inner % v, i % inner);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < width; j++) {
                double *to = &want[(o * v + index[full ? (o * rows + r) * width + j : r]) * inner + j];
                *to = combine(op, *to, AT3(&c, 2, o, r, j));
            }
    for (int64_t i = 0; i < outer * v * inner; i++)
        note(&e, AT3(&c, 3, i / (v * inner), i / inner % v, i % inner), want[i]);
    small("scatter", e, op == WF_SCATTER_ADD || op == WF_SCATTER_MUL ? 4e-6 : 0);
    index[n / 2] = v; /* one past the end: reported, and nothing else is touched */
    once(&c, 0, 2);
    assert_int_equal(((int64_t *)c.p[status])[0], 42);
    assert_int_equal(((int64_t *)c.p[status])[1], v);
    free(want);
    release(&c);
}

static void scatter_all(bool full)
{
    static const int64_t shapes[][4] = {
        {1, 100, 33, 600}, {1, 9, 600, 40}, {20, 7, 5, 30}, {1, 3000, 1, 9000}, {1, 1, 1, 3}};
    static const WfDtype types[] = {WF_F32, WF_F64, WF_I64};
    for (size_t i = 0; i < WF_LEN(shapes); i++)
        for (int op = 0; op < 5; op++)
            for (int t = 0; t < 3; t++) {
                const int64_t *s = shapes[i];
                scatter_case(full, types[t], op, s[0], s[1], s[2], s[3], op > WF_SCATTER_ADD || t == 1);
            }
}
static void test_scatter(void **state)
{
    (void)state, scatter_all(false);
}
static void test_scatter_full(void **state)
{
    (void)state, scatter_all(true);
}

/* ---- refusals, the team ------------------------------------------------------------------------- */

static void refused(const Case *c, const char *part)
{
    char why[256];
    assert_false(wf_lib_accepts(&c->d, why, sizeof why));
    if (!strstr(why, part))
        fail_msg("'%s' does not say '%s'", why, part);
}

static void test_refused(void **state)
{
    (void)state;
    Case c = {.d = {.kind = "nonsense"}};
    refused(&c, "nonsense");
    c.d.kind = "gemm";
    add(&c, WF_F32, false, SHAPE(4, 5), NULL, 0), add(&c, WF_F32, false, SHAPE(6, 7), NULL, 0), OUT(&c, 4, 7);
    refused(&c, "do not fit");
    c.d.operand[1].shape[0] = 5;
    c.d.operand[0].stride[1] = 2;
    c.d.operand[0].stride[0] = 10;
    refused(&c, "neither of the last two strides of A");
    c.d.operand[0].dtype = WF_I64;
    refused(&c, "f32 nor f64");
    release(&c);
    Case v = {.d = {.kind = "conv_fwd"}};
    IN(&v, 2, 8, 5, 5), IN(&v, 8, 8, 3, 3), none(&v), OUT(&v, 2, 8, 3, 3);
    refused(&v, "channels-last");
    release(&v);
}

static void count(void *arg, int thread, int n)
{
    int64_t *hits = arg;
    assert_true(thread < n);
    __atomic_fetch_add(&hits[thread], 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) {
        wf_team_barrier(team[n]);
        if (thread == 0)
            hits[8]++;
        wf_team_barrier(team[n]);
        if (hits[8] % 3 != (i + 1) % 3)
            __atomic_fetch_add(&hits[9], 1, __ATOMIC_RELAXED);
    }
}

static void test_team(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        int64_t hits[10] = {0};
        for (int i = 0; i < 500; i++)
            wf_team_run(team[n], count, hits);
        for (int i = 0; i < n; i++)
            assert_int_equal(hits[i], 500);
        assert_int_equal(hits[9], 0);
    }
    wf_team_free(wf_team_new(ctx, 4, NULL));
    wf_team_free(NULL);
}
