/* One rank of the test that any split of a batch over ranks and micro-batches gives the whole batch's loss and gradients,
 * with ragged labels and with a last step that is not full. The reference is one rank with all rows in one batch, computed
 * in the same process. usage:
 *   split launch N LAST    starts N ranks
 *   split LAST             a rank, whatever launched it, with that --last-batch; prints hashes for the elastic cases */
#include "api/api.h"
#include "comm/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 3, IN = 5, CLASSES = 4, MOST = 64, STEPS = 3, MAX_K = 3 };
typedef enum { CE, WEIGHTED, MSE, MASKED, PENALTY, NLL, TWICE, LOSSES } Loss;
static const char *const names[] = {"cross entropy", "weighted and smoothed cross entropy", "mse", "a masked sum by its count",
                                    "l1 and a penalty", "nll", "a mean of means"};
static const char *const weights[] = {"w", "b"};

static float x[MOST * T * IN], target[MOST * T * CLASSES];
static int64_t label[MOST * T];

typedef struct {
    Loss loss;
    bool tokens, elastic;
    const char *last; /* drop, pad, short */
    int nproc, k, batch, rows;
} Case;

typedef struct {
    weft_context *ctx;
    weft_program *p;
    weft_session *s;
    double loss, norm;
    float grad[2][IN * CLASSES];
} Run;

static void need(const Run *r, weft_status s)
{
    if (s == WEFT_OK)
        return;
    fprintf(stderr, "error: %s\n  %s\n", weft_message(r->ctx), weft_place(r->ctx));
    exit(1);
}

static weft_value node(Run *r, const char *op, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return weft_graph_node(r->p, op, text, NULL, "net.py:7");
}

static weft_value vector(Run *r, const char *name, int rank, int64_t a, int64_t b, int trainable, float first)
{
    float v[IN * CLASSES];
    for (int i = 0; i < a * b; i++)
        v[i] = first + (float)(i * 37 % 23) / 20;
    return weft_graph_parameter(r->p, name, &(weft_tensor){WEFT_F32, rank, {a, b}, v}, trainable);
}

/* rows -1: any number. */
static void build(Run *r, const Case *c, int64_t rows)
{
    const char *symbol = rows < 0 ? "rows" : NULL;
    need(r, weft_graph_new(r->ctx, &r->p));
    weft_value in = weft_graph_input(r->p, "x", WEFT_F32, 3, (int64_t[]){rows, T, IN}, symbol);
    weft_value y = weft_graph_input(r->p, "y", WEFT_I64, 2, (int64_t[]){rows, T}, symbol);
    weft_value z = weft_graph_input(r->p, "z", WEFT_F32, 3, (int64_t[]){rows, T, CLASSES}, symbol);
    weft_value w = vector(r, weights[0], 2, CLASSES, IN, 1, -0.5f), b = vector(r, weights[1], 1, CLASSES, 1, 1, -0.3f), loss = 0;
    weft_value h = node(r, "aten.tanh", "%%%d", node(r, "aten.linear", "%%%d, %%%d, %%%d", in, w, b));
    weft_value flat = node(r, "aten.reshape", "%%%d, [-1, %d]", h, CLASSES), labels = node(r, "aten.reshape", "%%%d, [-1]", y);
    switch (c->loss) {
    case CE: loss = node(r, "aten.cross_entropy_loss", "%%%d, %%%d", flat, labels); break;
    case WEIGHTED:
        loss = node(r, "aten.cross_entropy_loss", "%%%d, %%%d, %%%d, 1, -100, 0.125", flat, labels,
                    vector(r, "classes", 1, CLASSES, 1, 0, 0.5f));
        break;
    case MSE: loss = node(r, "aten.mse_loss", "%%%d, %%%d", h, z); break;
    case MASKED: {
        weft_value m = node(r, "aten.ne.Scalar", "%%%d, -100", y), f = node(r, "aten.to.dtype", "%%%d, f32", m);
        weft_value d = node(r, "aten.abs", "%%%d", node(r, "aten.sub.Tensor", "%%%d, %%%d", h, z));
        weft_value each = node(r, "aten.mul.Tensor", "%%%d, %%%d", node(r, "aten.sum.dim_IntList", "%%%d, [-1]", d), f);
        weft_value count = node(r, "aten.clamp", "%%%d, 1", node(r, "aten.sum", "%%%d", f));
        loss = node(r, "aten.div.Tensor", "%%%d, %%%d", node(r, "aten.sum", "%%%d", each), count);
        break;
    }
    case PENALTY: {
        weft_value q = node(r, "aten.sum", "%%%d", node(r, "aten.mul.Tensor", "%%%d, %%%d", w, w));
        loss = node(r, "aten.add.Tensor", "%%%d, %%%d", node(r, "aten.l1_loss", "%%%d, %%%d", h, z),
                    node(r, "aten.mul.Tensor", "%%%d, 0.01", q));
        break;
    }
    case NLL:
        loss = node(r, "aten.nll_loss_nd", "%%%d, %%%d", node(r, "aten.log_softmax.int", "%%%d, 1", flat), labels);
        break;
    default: {
        weft_value d = node(r, "aten.sub.Tensor", "%%%d, %%%d", h, z), sq = node(r, "aten.mul.Tensor", "%%%d, %%%d", d, d);
        weft_value rows_of = node(r, "aten.sum.dim_IntList", "%%%d, [2]", node(r, "aten.transpose.int", "%%%d, 0, 1", sq));
        weft_value over = node(r, "aten.mean.dim", "%%%d, [1]", rows_of); /* over rows first, then over positions */
        loss = node(r, "aten.mul.Tensor", "%%%d, 0.5", node(r, "aten.mean", "%%%d", over));
    }
    }
    need(r, weft_graph_output(r->p, loss, "loss"));
    need(r, weft_graph_finish(r->p));
    need(r, weft_set(r->p, "optimizer", "sgd"));
    need(r, weft_set(r->p, "lr", "0.25"));
    need(r, weft_set(r->p, "threads", "1"));
}

/* Rows [from, from + n) of the data, then rows of no sample up to `size`. */
static void feed(Run *r, int from, int n, int size)
{
    static float fx[MOST * T * IN], fz[MOST * T * CLASSES];
    static int64_t fy[MOST * T];
    for (int i = 0; i < size; i++) {
        int row = i < n ? from + i : 0;
        float f = i < n ? 1 : 3; /* nobody's rows are not even copies */
        for (int k = 0; k < T * IN; k++)
            fx[i * T * IN + k] = f * x[row * T * IN + k];
        for (int k = 0; k < T * CLASSES; k++)
            fz[i * T * CLASSES + k] = f * target[row * T * CLASSES + k];
        for (int k = 0; k < T; k++)
            fy[i * T + k] = i < n ? label[row * T + k] : k % CLASSES;
    }
    need(r, weft_feed(r->s, "x", &(weft_tensor){WEFT_F32, 3, {size, T, IN}, fx}));
    need(r, weft_feed(r->s, "y", &(weft_tensor){WEFT_I64, 2, {size, T}, fy}));
    need(r, weft_feed(r->s, "z", &(weft_tensor){WEFT_F32, 3, {size, T, CLASSES}, fz}));
}

static void look(Run *r)
{
    need(r, weft_metric(r->s, "grad_norm", &r->norm));
    for (int i = 0; i < 2; i++) {
        weft_tensor t;
        need(r, weft_gradient(r->s, weights[i], &t));
        memcpy(r->grad[i], t.data, sizeof(float) * (size_t)(i ? CLASSES : CLASSES * IN));
    }
}

static double apart(const float *a, const float *b, int n)
{
    double most = 0, largest = 0;
    for (int i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)a[i]));
    }
    return largest > 0 && isfinite(most) ? most / largest : INFINITY;
}

static uint64_t one(const Case *c, int rank, WfCtx *ctx, weft_world *w)
{
    Run whole = {.ctx = (weft_context *)ctx}, r = whole;
    char number[16];
    bool pad = !strcmp(c->last, "pad"), cut = !strcmp(c->last, "short");
    build(&whole, c, -1);
    need(&whole, weft_session_new(whole.p, &whole.s));
    build(&r, c, cut ? -1 : c->batch);
    snprintf(number, sizeof number, "%d", c->nproc);
    need(&r, weft_set(r.p, "nproc", number));
    snprintf(number, sizeof number, "%d", c->k);
    need(&r, weft_set(r.p, "accumulate", number));
    need(&r, weft_set(r.p, "last-batch", c->last));
    need(&r, weft_set(r.p, "loss-norm", c->tokens ? "tokens" : "mean"));
    if (c->elastic)
        need(&r, weft_set(r.p, "deterministic", "elastic"));
    need(&r, weft_session_new(r.p, &r.s));
    if (w)
        need(&r, weft_join(r.s, w));
    uint64_t hash = 0;
    for (int step = 0; step < STEPS; step++) {
        feed(&whole, 0, c->rows, c->rows);
        need(&whole, weft_step(whole.s, &whole.loss));
        for (int m = 0; m < c->k; m++) {
            int from = (rank * c->k + m) * c->batch, n = c->rows - from < c->batch ? c->rows - from : c->batch;
            n = n < 0 ? 0 : n;
            feed(&r, from, n, cut && n ? n : c->batch);
            if (n < c->batch && (pad || !n))
                need(&r, weft_rows(r.s, n));
            need(&r, m + 1 < c->k ? weft_micro(r.s, NULL) : weft_step(r.s, &r.loss));
        }
        look(&whole);
        look(&r);
        double worst = fmax(fabs(whole.loss - r.loss) / fabs(whole.loss), fabs(whole.norm - r.norm) / whole.norm);
        for (int i = 0; i < 2; i++)
            worst = fmax(worst, apart(whole.grad[i], r.grad[i], i ? CLASSES : CLASSES * IN));
        if (!(worst <= 1e-6)) { /* the same float32 terms, some dozens of them, in another order */
            fprintf(stderr, "error: rank %d of %d, %s, loss-norm %s, last-batch %s%s, %d micro-batches of %d for %d rows, step %d: "
                            "%.2e apart (loss %.9g and %.9g)\n", rank, c->nproc, names[c->loss], c->tokens ? "tokens" : "mean",
                    c->last, c->elastic ? ", elastic" : "", c->k, c->batch, c->rows, step + 1, worst, whole.loss, r.loss);
            exit(1);
        }
        hash = wf_hash64(r.grad, sizeof r.grad, hash);
        hash = wf_hash64(&r.loss, sizeof r.loss, hash);
    }
    weft_program_free(r.p);
    weft_program_free(whole.p);
    return hash;
}

/* Some labels count for nothing, so that rows and micro-batches weigh differently; with the mean of means they all count. */
static void fill(bool ragged)
{
    for (int i = 0; i < MOST * T * IN; i++)
        x[i] = (float)(i * 53 % 211) / 100 - 1;
    for (int i = 0; i < MOST * T * CLASSES; i++)
        target[i] = (float)(i * 31 % 97) / 50 - 1;
    for (int i = 0; i < MOST * T; i++)
        label[i] = ragged && (i % 2 == 0 || i / T % 3 == 1) && i ? -100 : i * 7 % CLASSES;
}

typedef struct {
    WfCtx *ctx;
    char **argv;
    int code;
} Args;

static void rank_of(void *p)
{
    Args *a = p;
    WfCtx *ctx = a->ctx;
    weft_world *w = NULL;
    Run r = {.ctx = (weft_context *)ctx};
    need(&r, weft_world_open(r.ctx, NULL, &w));
    int rank = weft_world_rank(w), size = weft_world_size(w), cases = 0;
    static const char *const last[] = {"drop", "pad", "short"};
    for (int k = 1; k <= MAX_K + 1; k++)
        for (int l = 0; l < 3; l++) /* a world has memory for so many sessions, not for all cases */
            for (int tokens = 0; tokens < 2 && !strcmp(a->argv[1], last[l]); tokens++)
                for (int loss = 0; loss < LOSSES; loss++)
                    for (int elastic = 0; elastic < 2; elastic++) {
                        bool power = !((size * k) & (size * k - 1)) && !(k & (k - 1)), full = l == 0;
                        Case c = {.loss = loss, .tokens = tokens, .elastic = elastic, .last = last[l], .nproc = size, .k = k,
                                  .batch = full ? 2 : 3};
                        c.rows = full ? 2 * size * k : size * k == 1 ? 2 : 3 * size * k - 4; /* the last micro-batch has none */
                        bool counts = loss == CE || loss == WEIGHTED || loss == MASKED || loss == NLL;
                        if ((elastic && (!power || size * k == 1)) || (!elastic && k > MAX_K) || (!tokens && counts && loss != CE))
                            continue;
                        if ((elastic || k > 1) && loss != CE && loss != PENALTY && (k + loss) % 2)
                            continue; /* not all of everything */
                        fill(tokens);
                        uint64_t h = one(&c, rank, ctx, w);
                        cases++;
                        if (elastic && rank == 0 && size * k == 4)
                            printf("elastic %s %d %s %016llx\n", c.last, tokens, names[loss], (unsigned long long)h);
                    }
    if (rank == 0)
        printf("cases %d\n", cases);
    need(&r, weft_world_close(w));
}

static void launch(void *p)
{
    static volatile int interrupted;
    Args *a = p;
    char *rank[] = {a->argv[0], a->argv[3], NULL};
    a->code = wf_launch(a->ctx, &(WfLaunch){.nproc = atoi(a->argv[2]), .argv = rank, .interrupt = &interrupted, .grace = 1});
}

int main(int argc, char **argv)
{
    Args a = {wf_ctx_new(), argv, 0};
    bool launcher = argc == 4 && !strcmp(argv[1], "launch");
    if (argc != 2 && !launcher)
        return 2;
    weft_status s = wf_guard(a.ctx, launcher ? launch : rank_of, &a);
    if (s != WEFT_OK && !a.ctx->diag.told)
        fprintf(stderr, "error: %s\n", a.ctx->diag.message);
    wf_ctx_free(a.ctx);
    return s != WEFT_OK ? 1 : a.code;
}
