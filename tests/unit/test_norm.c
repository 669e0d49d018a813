/* What a loss is divided by: which losses are means over samples and which are refused, by node and line; where the rows of
 * a batch lie in a value; padding that counts for nothing in loss, gradient, buffers and evaluation. (That splits over ranks
 * and micro-batches give the whole batch's gradients: tests/dist/split.c.) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/api.h"
#include "ops/ops.h"
#include "library.h"

enum { ROWS = 6, IN = 5, OUT = 4 };

typedef struct {
    weft_context *ctx;
    weft_program *p;
    weft_session *s;
    weft_value x, z, y, h, w; /* y: labels; h: tanh(w x) */
    float data[ROWS * IN], target[ROWS * OUT];
    int64_t label[ROWS];
} Run;

static weft_value at(Run *r, const char *line, const char *op, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return weft_graph_node(r->p, op, text, NULL, line);
}

static void begin(Run *r, int64_t rows)
{
    float v[OUT * IN];
    memset(r, 0, sizeof *r);
    r->ctx = weft_context_new(NULL);
    assert_non_null(r->ctx);
    ok(r, weft_graph_new(r->ctx, &r->p));
    for (int i = 0; i < OUT * IN; i++)
        v[i] = (float)(i * 37 % 101 - 50) / 100;
    for (int i = 0; i < ROWS * IN; i++)
        r->data[i] = (float)(i * 53 % 211) / 100 - 1;
    for (int i = 0; i < ROWS * OUT; i++)
        r->target[i] = (float)(i * 31 % 97) / 50 - 1;
    for (int i = 0; i < ROWS; i++)
        r->label[i] = i * 7 % OUT;
    r->x = weft_graph_input(r->p, "x", WEFT_F32, 2, (int64_t[]){rows, IN}, rows < 0 ? "rows" : NULL);
    r->z = weft_graph_input(r->p, "z", WEFT_F32, 2, (int64_t[]){rows, OUT}, rows < 0 ? "rows" : NULL);
    r->y = weft_graph_input(r->p, "y", WEFT_I64, 1, (int64_t[]){rows}, rows < 0 ? "rows" : NULL);
    r->w = weft_graph_parameter(r->p, "w", &(weft_tensor){WEFT_F32, 2, {OUT, IN}, v}, 1);
    r->h = at(r, "net.py:1", "aten.tanh", "%%%d", at(r, "net.py:1", "aten.linear", "%%%d, %%%d", r->x, r->w));
}

static void finish(Run *r, weft_value loss, const char *const *options)
{
    ok(r, weft_graph_output(r->p, loss, "loss"));
    ok(r, weft_graph_finish(r->p));
    ok(r, weft_set(r->p, "optimizer", "sgd"));
    ok(r, weft_set(r->p, "lr", "0.5"));
    ok(r, weft_set(r->p, "threads", "1"));
    for (; *options; options += 2)
        ok(r, weft_set(r->p, options[0], options[1]));
}

static void feed(Run *r, int64_t n)
{
    ok(r, weft_feed(r->s, "x", &(weft_tensor){WEFT_F32, 2, {n, IN}, r->data}));
    ok(r, weft_feed(r->s, "z", &(weft_tensor){WEFT_F32, 2, {n, OUT}, r->target}));
    ok(r, weft_feed(r->s, "y", &(weft_tensor){WEFT_I64, 1, {n}, r->label}));
}

static weft_value loss_of(Run *r, int which)
{
    const char *l = "net.py:5";
    weft_value mse = at(r, "net.py:3", "aten.mse_loss", "%%%d, %%%d", r->h, r->z);
    weft_value ce = at(r, "net.py:4", "aten.cross_entropy_loss", "%%%d, %%%d", r->h, r->y);
    weft_value sum = at(r, "net.py:2", "aten.sum", "%%%d", r->h), scale = at(r, "net.py:2", "aten.sum", "%%%d", r->w);
    switch (which) {
    case 0: return at(r, l, "aten.sqrt", "%%%d", mse);
    case 1: return at(r, l, "aten.mse_loss", "%%%d, %%%d, 2", r->h, r->z);
    case 2: return at(r, l, "aten.add.Tensor", "%%%d, %%%d", mse, ce);
    case 3: return at(r, l, "aten.div.Tensor", "%%%d, %%%d", sum, at(r, l, "aten.sum", "%%%d", at(r, l, "aten.exp", "%%%d", r->h)));
    case 4: return at(r, l, "aten.mul.Tensor", "%%%d, %%%d", mse, mse);
    default: return at(r, l, "aten.add.Tensor", "%%%d, %%%d", at(r, l, "aten.sum", "%%%d", r->h), scale);
    }
}

static void losses_that_are_no_mean(void **state)
{
    static const struct { const char *part, *node; } refused[] = {
        {"not linear", "prim.sqrt"},   {"it is a sum", "prim.sum"},   {"two means over different counts", "prim.add"},
        {"depends on parameters", "prim.div"}, {"not linear", "prim.mul"}, {"added to what is none", "prim.add"}};
    (void)state;
    for (int i = 0; i < 6; i++) {
        Run r;
        begin(&r, -1);
        finish(&r, loss_of(&r, i), (const char *const[]){"loss-norm", "tokens", "accumulate", "2", NULL});
        assert_int_equal(weft_compile(r.p), WEFT_ERR_UNSUPPORTED);
        if (!strstr(weft_message(r.ctx), refused[i].part) || !strstr(weft_message(r.ctx), refused[i].node) ||
            !strstr(weft_message(r.ctx), "--loss-norm=tokens") || !strstr(weft_place(r.ctx), "net.py:5"))
            fail_msg("loss %d: %s\n%s", i, weft_message(r.ctx), weft_place(r.ctx));
        weft_context_free(r.ctx);
    }
}

/* Padding of any content: loss, gradient, weights and evaluation are those of the rows before it. A sum needs no count. */
static void padding_counts_for_nothing(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++)
        for (int n = 1; n <= ROWS; n++) {
            Run padded, plain;
            double a, b;
            weft_tensor g[2];
            for (int i = 0; i < 2; i++) {
                Run *r = i ? &plain : &padded;
                begin(r, i ? -1 : ROWS);
                weft_value loss = which == 1 ? loss_of(r, 1) : which ? at(r, "net.py:5", "aten.cross_entropy_loss", "%%%d, %%%d", r->h, r->y)
                                             : at(r, "net.py:5", "aten.mse_loss", "%%%d, %%%d", r->h, r->z);
                finish(r, loss, (const char *const[]){"last-batch", i ? "drop" : "pad", NULL});
                ok(r, weft_session_new(r->p, &r->s));
            }
            for (int step = 0; step < 2; step++) {
                for (int i = n * IN; i < ROWS * IN; i++)
                    padded.data[i] = 1e6f;
                feed(&padded, ROWS);
                feed(&plain, n);
                ok(&padded, weft_rows(padded.s, n));
                ok(&padded, weft_step(padded.s, &a));
                ok(&plain, weft_step(plain.s, &b));
                assert_true(fabs(a - b) <= 1e-6 * fabs(b)); /* float32 sums of up to 24 terms in another order */
                ok(&padded, weft_gradient(padded.s, "w", &g[0]));
                ok(&plain, weft_gradient(plain.s, "w", &g[1]));
                double most = 0, largest = 0;
                for (int i = 0; i < OUT * IN; i++) {
                    most = fmax(most, fabs((double)((float *)g[0].data)[i] - ((float *)g[1].data)[i]));
                    largest = fmax(largest, fabs((double)((float *)g[1].data)[i]));
                }
                if (!(largest > 0 && most <= 1e-6 * largest))
                    fail_msg("loss %d, %d rows: %g apart of %g", which, n, most, largest);
                ok(&padded, weft_rows(padded.s, n));
                ok(&padded, weft_forward(padded.s, 1, &a));
                ok(&plain, weft_forward(plain.s, 1, &b));
                assert_true(fabs(a - b) <= 1e-6 * fabs(b));
            }
            weft_context_free(padded.ctx);
            weft_context_free(plain.ctx);
        }
}

static void rows_where_they_have_no_meaning(void **state)
{
    Run r;
    (void)state;
    begin(&r, -1);
    finish(&r, loss_of(&r, 1), (const char *const[]){NULL});
    ok(&r, weft_session_new(r.p, &r.s));
    feed(&r, ROWS);
    refused(&r, weft_rows(r.s, -1), WEFT_ERR_USAGE, "-1 rows");
    ok(&r, weft_rows(r.s, 3));
    refused(&r, weft_step(r.s, NULL), WEFT_ERR_USAGE, "of which 3 rows count");
    ok(&r, weft_step(r.s, NULL)); /* it was for that one step */
    weft_context_free(r.ctx);
    begin(&r, -1);
    finish(&r, at(&r, "net.py:3", "aten.mse_loss", "%%%d, %%%d", r.h, r.z),
           (const char *const[]){"last-batch", "short", "accumulate", "2", NULL});
    ok(&r, weft_session_new(r.p, &r.s));
    feed(&r, ROWS);
    ok(&r, weft_rows(r.s, 3));
    refused(&r, weft_micro(r.s, NULL), WEFT_ERR_USAGE, "of which 3 rows count");
    ok(&r, weft_micro(r.s, NULL));
    ok(&r, weft_rows(r.s, 0));
    ok(&r, weft_step(r.s, NULL));
    ok(&r, weft_rows(r.s, 0));
    refused(&r, weft_forward(r.s, 1, NULL), WEFT_ERR_USAGE, "of which 0 rows count");
    assert_int_equal(weft_rows(NULL, 1), WEFT_ERR_USAGE);
    weft_context_free(r.ctx);
}

/* Nothing counts in a whole step: its gradient is zero, and nothing becomes NaN. */
static void a_step_of_nothing(void **state)
{
    Run r;
    double loss, count;
    weft_tensor g;
    (void)state;
    begin(&r, -1);
    finish(&r, at(&r, "net.py:5", "aten.cross_entropy_loss", "%%%d, %%%d", r.h, r.y),
           (const char *const[]){"loss-norm", "tokens", "accumulate", "2", "check-finite", "true", NULL});
    ok(&r, weft_session_new(r.p, &r.s));
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < ROWS; i++)
            r.label[i] = step && i % 2 ? 1 : -100;
        feed(&r, ROWS);
        ok(&r, weft_micro(r.s, NULL));
        for (int i = 0; i < ROWS; i++)
            r.label[i] = -100;
        feed(&r, ROWS);
        ok(&r, weft_step(r.s, &loss));
        ok(&r, weft_metric(r.s, "loss_count", &count));
        assert_true(count == (step ? 3 : 0) && isfinite(loss) && (loss > 0) == (step == 1));
        ok(&r, weft_gradient(r.s, "w", &g));
        for (int i = 0; i < OUT * IN; i++)
            assert_true(isfinite(((float *)g.data)[i]) && (step || ((float *)g.data)[i] == 0));
    }
    weft_context_free(r.ctx);
}

/* Running statistics: a micro-batch without samples leaves them as they are; the warning names the node. */
static void logged(void *user, int level, const char *line)
{
    if (level == WF_LOG_WARN && strstr(line, "statistics are those of all rows, also of padding") && strstr(line, "net.py:8"))
        ++*(int *)user;
}

static void buffers_of_batches_without_samples(void **state)
{
    Run r;
    int warned = 0;
    float zeros[OUT] = {0}, ones[OUT] = {1, 1, 1, 1}, before[OUT];
    (void)state;
    begin(&r, ROWS);
    weft_on_log(r.ctx, logged, &warned);
    weft_value m = weft_graph_parameter(r.p, "mean", &(weft_tensor){WEFT_F32, 1, {OUT}, zeros}, 0);
    weft_value v = weft_graph_parameter(r.p, "var", &(weft_tensor){WEFT_F32, 1, {OUT}, ones}, 0);
    weft_value n = at(&r, "net.py:8", "aten.batch_norm", "%%%d, None, None, %%%d, %%%d, True, 0.5, 1e-05, False", r.h, m, v);
    finish(&r, at(&r, "net.py:3", "aten.mse_loss", "%%%d, %%%d", n, r.z),
           (const char *const[]){"last-batch", "pad", "accumulate", "2", NULL});
    ok(&r, weft_session_new(r.p, &r.s));
    assert_int_equal(warned, 1);
    for (int counts = 1; counts >= 0; counts--) {
        weft_tensor t;
        feed(&r, ROWS);
        ok(&r, weft_micro(r.s, NULL));
        ok(&r, weft_parameter(r.s, "mean", &t));
        memcpy(before, t.data, sizeof before);
        assert_true(before[0] != 0);
        ok(&r, weft_rows(r.s, counts ? 2 : 0));
        ok(&r, weft_step(r.s, NULL));
        assert_int_equal(memcmp(before, t.data, sizeof before) != 0, counts);
    }
    weft_context_free(r.ctx);
}

/* Steps of any number of micro-batches, one after the other, without compiling again: those of the whole batch. */
static void any_number_of_micro_batches(void **state)
{
    static const int k[] = {3, 1, 2, 6, 2};
    Run r, whole;
    double a, b;
    (void)state;
    for (int i = 0; i < 2; i++) {
        Run *one = i ? &whole : &r;
        begin(one, -1);
        finish(one, at(one, "net.py:3", "aten.mse_loss", "%%%d, %%%d", one->h, one->z),
               i ? (const char *const[]){NULL} : (const char *const[]){"micro-batch", "auto", NULL});
        ok(one, weft_session_new(one->p, &one->s));
    }
    for (size_t t = 0; t < WF_LEN(k); t++) {
        ok(&r, weft_micro_batches(r.s, k[t]));
        for (int m = 0; m < k[t]; m++) {
            int64_t n = ROWS / k[t], from = m * n;
            ok(&r, weft_feed(r.s, "x", &(weft_tensor){WEFT_F32, 2, {n, IN}, r.data + from * IN}));
            ok(&r, weft_feed(r.s, "z", &(weft_tensor){WEFT_F32, 2, {n, OUT}, r.target + from * OUT}));
            ok(&r, weft_feed(r.s, "y", &(weft_tensor){WEFT_I64, 1, {n}, r.label + from}));
            if (m + 1 == k[t]) {
                ok(&r, weft_step(r.s, &a));
                break;
            }
            ok(&r, weft_micro(r.s, NULL));
            refused(&r, weft_micro_batches(r.s, k[t] + 1), WEFT_ERR_USAGE, "between steps only");
        }
        feed(&whole, ROWS);
        ok(&whole, weft_step(whole.s, &b));
        assert_true(fabs(a - b) <= 1e-6 * b);
        weft_tensor g[2];
        ok(&r, weft_gradient(r.s, "w", &g[0]));
        ok(&whole, weft_gradient(whole.s, "w", &g[1]));
        for (int i = 0; i < OUT * IN; i++)
            assert_true(fabsf(((float *)g[0].data)[i] - ((float *)g[1].data)[i]) <= 1e-6f);
    }
    refused(&r, weft_micro_batches(r.s, 0), WEFT_ERR_USAGE, "a step of 0 micro-batches");
    refused(&whole, weft_micro_batches(whole.s, 2), WEFT_ERR_USAGE, "was compiled for 1");
    assert_int_equal(weft_micro_batches(NULL, 1), WEFT_ERR_USAGE);
    weft_context_free(r.ctx);
    weft_context_free(whole.ctx);
}

/* ---- where rows lie ---- */

typedef struct { WfCtx *ctx; } Ctx;

static void do_rows(void *p)
{
    static const char text[] =
        "graph op {\n"
        "  symbol s0 in [1, inf]\n"
        "  input %w : f32[7, 4] = param \"w\"\n"
        "  input %x : f32[s0, 6, 4] = user \"x\"\n"
        "  input %y : i64[s0, 6] = user \"y\"\n"
        "  %a : f32[6*s0, 4] = prim.reshape(%x, [6*s0, 4])\n"          /* 0, 6 */
        "  %b : f32[6, s0, 4] = prim.permute(%x, [1, 0, 2])\n"        /* 1, 1 */
        "  %c : f32[6*s0, 4] = prim.reshape(%b, [6*s0, 4])\n"          /* 0, 1 */
        "  %d : f32[24*s0] = prim.reshape(%x, [24*s0])\n"               /* 0, 24 */
        "  %e : f32[2*s0, 3, 4] = prim.reshape(%a, [2*s0, 3, 4])\n"    /* 0, 2 */
        "  %f : f32[s0, 6] = prim.sum(%x, [2])\n"                       /* 0, 1 */
        "  %g : f32[6] = prim.sum(%f, [0])\n"                           /* mixed */
        "  %h : f32[s0, 6] = prim.expand(%g, [s0, 6])\n"                /* mixed */
        "  %i : f32[s0, 6] = prim.sub(%f, %h)\n"                        /* 0, 1 */
        "  %j : f32[s0, 3, 4] = prim.slice(%x, 1, 0, 3)\n"             /* 0, 1 */
        "  %k : f32[s0, 6, 4] = prim.flip(%x, [0])\n"                   /* mixed */
        "  %l : f32[4, 7] = prim.permute(%w, [1, 0])\n"                 /* none */
        "  %m : f32[6*s0, 7] = prim.matmul(%a, %l)\n"                   /* 0, 6 */
        "  %n : f32[4, 6*s0] = prim.permute(%a, [1, 0])\n"              /* 1, 6 */
        "  %o : f32[4, 4] = prim.matmul(%n, %a)\n"                      /* mixed */
        "  %p : f32[s0, 6, 4] = prim.cumsum(%x, 0)\n"                   /* mixed */
        "  %q : f32[s0, 6, 4] = prim.cumsum(%x, 1)\n"                   /* 0, 1 */
        "  output user \"0\" %q\n"
        "}\n";
    static const struct { const char *name; int dim; int64_t inner; } want[] = {
        {"w", WF_ROWS_NONE, 0}, {"x", 0, 1}, {"a", 0, 6}, {"b", 1, 1}, {"c", 0, 1}, {"d", 0, 24}, {"e", 0, 2}, {"f", 0, 1},
        {"g", WF_ROWS_MIXED, 0}, {"h", WF_ROWS_MIXED, 0}, {"i", 0, 1}, {"j", 0, 1}, {"k", WF_ROWS_MIXED, 0}, {"l", WF_ROWS_NONE, 0},
        {"m", 0, 6}, {"n", 1, 6}, {"o", WF_ROWS_MIXED, 0}, {"p", WF_ROWS_MIXED, 0}, {"q", 0, 1}};
    Ctx *c = p;
    wf_ops_init();
    WfGraph *g = wf_parse(c->ctx, c->ctx->arena, text, "text");
    WfDim s0;
    assert_true(wf_sym_find(g->exprs, "s0", &s0));
    WfRows *rows = wf_rows(g, s0);
    for (size_t i = 0; i < WF_LEN(want); i++) {
        bool found = false;
        for (WfVal v = 1; v < (WfVal)g->values.n; v++) {
            if (!g->values.at[v].name || strcmp(g->values.at[v].name, want[i].name))
                continue;
            found = true;
            if (rows[v].dim != want[i].dim || (rows[v].dim >= 0 && rows[v].inner != want[i].inner))
                fail_msg("%%%s: dimension %d, inner %lld", want[i].name, rows[v].dim, (long long)rows[v].inner);
        }
        assert_true(found);
    }
}

static void where_rows_lie(void **state)
{
    Ctx c = {wf_ctx_new()};
    (void)state;
    assert_non_null(c.ctx);
    assert_int_equal(wf_guard(c.ctx, do_rows, &c), WEFT_OK);
    wf_ctx_free(c.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_that_are_no_mean),         cmocka_unit_test(padding_counts_for_nothing),
        cmocka_unit_test(rows_where_they_have_no_meaning), cmocka_unit_test(a_step_of_nothing),
        cmocka_unit_test(buffers_of_batches_without_samples), cmocka_unit_test(where_rows_lie),
        cmocka_unit_test(any_number_of_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
