/* The two halves: y = tanh(x a^T) b^T, with a sum of tanh added to a buffer of the caller's, for any number of rows. Outputs, the
 * buffer and gradients against plain loops in double; several frames at once; a mask of dropout that backward has again; the
 * same bits from a file; what does not fit is refused and changes nothing. */
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
#include "library.h"

enum { IN = 6, HIDDEN = 40, OUT = 5, MOST = 9, FRAME = 1 << 14 };

typedef struct {
    weft_context *ctx;
    weft_program *program;
    weft_session *session;
    float x[MOST * IN], a[HIDDEN * IN], b[OUT * HIDDEN], seen[HIDDEN];
} Run;

typedef struct { _Alignas(64) uint8_t at[FRAME]; } Frame;
typedef struct { float x[MOST * IN], a[HIDDEN * IN], b[OUT * HIDDEN]; } Gradients;

static void fill(float *v, int n, int seed)
{
    for (int i = 0; i < n; i++)
        v[i] = (float)((i * 37 + seed * 11) % 101 - 50) / 100;
}

static void start(Run *r)
{
    memset(r, 0, sizeof *r);
    r->ctx = weft_context_new(NULL);
    assert_non_null(r->ctx);
    fill(r->x, MOST * IN, 1);
    fill(r->a, HIDDEN * IN, 2);
    fill(r->b, OUT * HIDDEN, 3);
}

/* The buffer is written in between, in place: what comes before reads the old value, what comes after the new one. */
static void build(Run *r)
{
    start(r);
    ok(r, weft_graph_new(r->ctx, &r->program));
    weft_value x = weft_graph_input(r->program, "x", WEFT_F32, 2, (int64_t[]){-1, IN}, "rows");
    weft_value a = weft_graph_input(r->program, "a", WEFT_F32, 2, (int64_t[]){HIDDEN, IN}, NULL);
    weft_value b = weft_graph_input(r->program, "b", WEFT_F32, 2, (int64_t[]){OUT, HIDDEN}, NULL);
    weft_graph_input(r->program, "seen", WEFT_F32, 1, (int64_t[]){HIDDEN}, NULL); /* %4 */
    ok(r, weft_graph_wants(r->program, x));
    ok(r, weft_graph_wants(r->program, a));
    ok(r, weft_graph_wants(r->program, b));
    weft_graph_node(r->program, "aten.linear", "%1, %2", NULL, "net.py:1  h = self.a(x)");  /* %5 */
    weft_graph_node(r->program, "aten.tanh", "%5", NULL, "net.py:2");                       /* %6 */
    weft_graph_node(r->program, "aten.detach", "%6", NULL, NULL);                           /* %7 */
    weft_graph_node(r->program, "aten.sum.dim_IntList", "%7, [0]", NULL, NULL);             /* %8 */
    weft_graph_node(r->program, "aten.add_.Tensor", "%4, %8", NULL, "net.py:3");            /* %9 */
    weft_graph_node(r->program, "aten.add_.Tensor", "%4, %8", NULL, "net.py:4");            /* %10: the same again */
    weft_value y = weft_graph_node(r->program, "aten.linear", "%6, %3", NULL, "net.py:5");  /* %11 */
    weft_value top = weft_graph_node(r->program, "aten.argmax", "%11, -1", NULL, "net.py:6");
    ok(r, weft_graph_output(r->program, y, "y"));
    ok(r, weft_graph_output(r->program, top, "top"));
    ok(r, weft_graph_finish(r->program));
    ok(r, weft_set(r->program, "halves", "both"));
    ok(r, weft_set(r->program, "threads", "2"));
    ok(r, weft_session_new(r->program, &r->session));
}

static void end(Run *r) { weft_context_free(r->ctx); }

static void forward(Run *r, int64_t rows, float *y, int64_t *top, Frame *frame)
{
    ok(r, weft_run_forward(r->session, &rows, 0, (void *[]){r->x, r->a, r->b, r->seen}, (void *[]){y, top}, frame->at));
}

static void backward(Run *r, int64_t rows, const float *dy, Gradients *g, Frame *frame)
{
    ok(r, weft_run_backward(r->session, &rows, (void *[]){r->x, r->a, r->b, NULL}, (void *[]){(void *)dy},
                            (void *[]){g->x, g->a, g->b}, frame->at));
}

/* In double: y, the sum over tanh, gradients. */
static void expect(const Run *r, int rows, const float *dy, double *y, double *sum, double *dx, double *da, double *db)
{
    double h[MOST * HIDDEN], dh;
    memset(sum, 0, HIDDEN * sizeof *sum);
    memset(dx, 0, (size_t)rows * IN * sizeof *dx);
    memset(da, 0, HIDDEN * IN * sizeof *da);
    memset(db, 0, OUT * HIDDEN * sizeof *db);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < HIDDEN; j++) {
            double s = 0;
            for (int k = 0; k < IN; k++)
                s += (double)r->x[i * IN + k] * r->a[j * IN + k];
            sum[j] += h[i * HIDDEN + j] = tanh(s);
        }
    for (int i = 0; i < rows; i++)
        for (int o = 0; o < OUT; o++) {
            y[i * OUT + o] = 0;
            for (int j = 0; j < HIDDEN; j++) {
                y[i * OUT + o] += h[i * HIDDEN + j] * r->b[o * HIDDEN + j];
                db[o * HIDDEN + j] += dy[i * OUT + o] * h[i * HIDDEN + j];
            }
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < HIDDEN; j++) {
            dh = 0;
            for (int o = 0; o < OUT; o++)
                dh += (double)dy[i * OUT + o] * r->b[o * HIDDEN + j];
            dh *= 1 - h[i * HIDDEN + j] * h[i * HIDDEN + j];
            for (int k = 0; k < IN; k++) {
                dx[i * IN + k] += dh * r->a[j * IN + k];
                da[j * IN + k] += dh * r->x[i * IN + k];
            }
        }
}

/* Sums of at most 40 products of numbers below one: 1e-5 is a hundred roundings of float32. */
static void near(const float *a, const double *b, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-5 * (1 + fabs(b[i]))))
            fail_msg("%s[%d] is %.9g, not %.9g", what, i, a[i], b[i]);
}

static void check(Run *r, int rows, const float *dy, const float *y, const Gradients *g)
{
    double ey[MOST * OUT], sum[HIDDEN], dx[MOST * IN], da[HIDDEN * IN], db[OUT * HIDDEN];
    expect(r, rows, dy, ey, sum, dx, da, db);
    near(y, ey, rows * OUT, "y");
    near(g->x, dx, rows * IN, "gradient of x");
    near(g->a, da, HIDDEN * IN, "gradient of a");
    near(g->b, db, OUT * HIDDEN, "gradient of b");
}

static void test_values(void **state)
{
    Run r;
    Frame *one = aligned_alloc(64, sizeof *one), *two = aligned_alloc(64, sizeof *two);
    Gradients g;
    float y1[MOST * OUT], y2[MOST * OUT], dy[MOST * OUT];
    double y[MOST * OUT], sum[HIDDEN], dx[MOST * IN], da[HIDDEN * IN], db[OUT * HIDDEN];
    int64_t top[MOST];
    (void)state;
    build(&r);
    fill(dy, MOST * OUT, 4);
    forward(&r, 3, y1, top, one);
    expect(&r, 3, dy, y, sum, dx, da, db);
    for (int j = 0; j < HIDDEN; j++)
        sum[j] *= 2; /* added twice, by two equal nodes */
    near(r.seen, sum, HIDDEN, "seen");
    for (int i = 0; i < 3; i++)
        for (int o = 0; o < OUT; o++)
            assert_true(y1[i * OUT + top[i]] >= y1[i * OUT + o]);
    forward(&r, MOST, y2, top, two); /* both frames wait */
    backward(&r, 3, dy, &g, one);
    check(&r, 3, dy, y1, &g);
    backward(&r, MOST, dy, &g, two);
    check(&r, MOST, dy, y2, &g);
    backward(&r, 3, dy, &g, one); /* again */
    check(&r, 3, dy, y1, &g);
    free(one);
    free(two);
    end(&r);
}

static void test_ports(void **state)
{
    static const char *const gradients[] = {"x", "a", "b"};
    Run r;
    weft_tensor t;
    size_t bytes;
    int64_t rows = 7;
    (void)state;
    build(&r);
    assert_int_equal(weft_port_count(r.session, WEFT_INPUTS), 4);
    assert_int_equal(weft_port_count(r.session, WEFT_OUTPUTS), 2);
    assert_int_equal(weft_port_count(r.session, WEFT_COTANGENTS), 1); /* an index has none */
    assert_string_equal(weft_port_name(r.session, WEFT_COTANGENTS, 0), "0");
    assert_int_equal(weft_port_count(r.session, WEFT_GRADIENTS), 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(weft_port_name(r.session, WEFT_GRADIENTS, i), gradients[i]);
    assert_int_equal(weft_port_count(r.session, WEFT_WRITTEN), 1);
    assert_string_equal(weft_port_name(r.session, WEFT_WRITTEN, 0), "seen");
    assert_int_equal(weft_port_count(r.session, WEFT_READ), 3);
    assert_null(weft_port_name(r.session, WEFT_READ, 3));
    assert_int_equal(weft_port_count(r.session, (weft_ports)17), -1);
    assert_int_equal(weft_size_count(r.session), 1);
    assert_string_equal(weft_size_name(r.session, 0), "rows");
    ok(&r, weft_port(r.session, WEFT_OUTPUTS, 0, &rows, &t));
    assert_int_equal(t.dtype, WEFT_F32);
    assert_int_equal(t.rank, 2);
    assert_int_equal(t.shape[0], 7);
    assert_int_equal(t.shape[1], OUT);
    ok(&r, weft_frame_bytes(r.session, &rows, &bytes));
    /* a line, and what tanh gave or was given: nothing else of the forward pass is needed */
    assert_int_equal(bytes, 64 + (7 * HIDDEN * sizeof(float) + 63) / 64 * 64);
    refused(&r, weft_frame_bytes(r.session, NULL, &bytes), WEFT_ERR_USAGE, "sizes is NULL");
    refused(&r, weft_port(r.session, WEFT_OUTPUTS, 2, &rows, &t), WEFT_ERR_USAGE, "no port 2");
    end(&r);
}

static void test_refusals(void **state)
{
    Run r;
    Frame *f = aligned_alloc(64, sizeof *f);
    Gradients g;
    float y[MOST * OUT], dy[MOST * OUT] = {0};
    int64_t top[MOST], rows = 3, other = 4, none = 0;
    void *in[] = {NULL, NULL, NULL, NULL}, *out[] = {y, top}, *cot[] = {dy}, *grad[] = {g.x, g.a, g.b};
    (void)state;
    build(&r);
    in[0] = r.x, in[1] = r.a, in[2] = r.b, in[3] = r.seen;
    memset(f, 0, sizeof *f);
    refused(&r, weft_run_backward(r.session, &rows, in, cot, grad, f->at), WEFT_ERR_USAGE, "does not hold");
    refused(&r, weft_run_forward(r.session, &rows, 0, in, out, NULL), WEFT_ERR_USAGE, "NULL");
    refused(&r, weft_step(r.session, NULL), WEFT_ERR_USAGE, "as two halves");
    refused(&r, weft_run_forward(r.session, &rows, 0, in, out, f->at + 4), WEFT_ERR_USAGE, "aligned");
    refused(&r, weft_run_forward(r.session, &none, 0, in, out, f->at), WEFT_ERR_DATA, "rows is 0");
    refused(&r, weft_run_forward(r.session, &rows, 0, NULL, out, f->at), WEFT_ERR_USAGE, "NULL");
    in[1] = NULL;
    refused(&r, weft_run_forward(r.session, &rows, 0, in, out, f->at), WEFT_ERR_DATA, "a was not fed");
    in[1] = r.a;
    for (int j = 0; j < HIDDEN; j++)
        assert_true(r.seen[j] == 0);
    ok(&r, weft_run_forward(r.session, &rows, 0, in, out, f->at));
    refused(&r, weft_run_backward(r.session, &other, in, cot, grad, f->at), WEFT_ERR_USAGE, "does not hold");
    ok(&r, weft_run_backward(r.session, &rows, in, cot, grad, f->at));
    assert_int_equal(weft_step(r.session, NULL), WEFT_ERR_USAGE);
    free(f);
    end(&r);
}

static void test_from_a_file(void **state)
{
    Run r;
    Frame *f = aligned_alloc(64, sizeof *f);
    Gradients g, again;
    float y[MOST * OUT], z[MOST * OUT], dy[MOST * OUT];
    int64_t top[MOST];
    char path[] = "/tmp/weft-half-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    build(&r);
    memset(&g, 0, sizeof g);
    memset(&again, 0, sizeof again);
    fill(dy, MOST * OUT, 4);
    forward(&r, 5, y, top, f);
    backward(&r, 5, dy, &g, f);
    ok(&r, weft_save_compiled(r.program, path));
    end(&r);
    start(&r);
    ok(&r, weft_open(r.ctx, path, &r.program));
    ok(&r, weft_session_new(r.program, &r.session));
    forward(&r, 5, z, top, f);
    backward(&r, 5, dy, &again, f);
    assert_memory_equal(y, z, 5 * OUT * sizeof *y);
    assert_memory_equal(&g, &again, sizeof g);
    end(&r);
    close(fd);
    unlink(path);
    free(f);
}

/* y = dropout(x): the gradient of x is y / x where x is kept. */
static void test_dropout(void **state)
{
    enum { N = 4096 };
    static float x[N], y[N], z[N], g[N], one[N];
    Run r;
    Frame *f = aligned_alloc(64, sizeof *f);
    size_t bytes;
    int kept = 0, moved = 0;
    (void)state;
    start(&r);
    ok(&r, weft_graph_new(r.ctx, &r.program));
    ok(&r, weft_graph_wants(r.program, weft_graph_input(r.program, "x", WEFT_F32, 1, (int64_t[]){N}, NULL)));
    ok(&r, weft_graph_output(r.program, weft_graph_node(r.program, "aten.dropout", "%1, 0.25, True", NULL, NULL), "y"));
    ok(&r, weft_graph_finish(r.program));
    ok(&r, weft_set(r.program, "halves", "both"));
    ok(&r, weft_session_new(r.program, &r.session));
    ok(&r, weft_frame_bytes(r.session, NULL, &bytes));
    assert_int_equal(bytes, 64); /* the mask is made again from the seed */
    for (int i = 0; i < N; i++)
        x[i] = one[i] = 1;
    ok(&r, weft_run_forward(r.session, NULL, 7, (void *[]){x}, (void *[]){y}, f->at));
    ok(&r, weft_run_forward(r.session, NULL, 8, (void *[]){x}, (void *[]){z}, (Frame[1]){0}[0].at));
    ok(&r, weft_run_backward(r.session, NULL, (void *[]){NULL}, (void *[]){one}, (void *[]){g}, f->at));
    assert_memory_equal(y, g, sizeof y);
    for (int i = 0; i < N; i++) {
        kept += y[i] != 0;
        moved += y[i] != z[i];
    }
    assert_true(abs(kept - 3 * N / 4) < 5 * 28); /* five deviations */
    assert_true(moved > N / 4);
    free(f);
    end(&r);
}

static int calls_of(const weft_session *s, WfProgramKind kind, const char *symbol)
{
    const WfExeProgram *p = &s->program->exe->program[kind];
    int n = 0;
    for (int c = 0; c < p->n_calls; c++)
        n += p->calls[c].symbol && !strcmp(p->calls[c].symbol, symbol);
    return n;
}

/* An op with a result that only backward reads (the logarithms of attention's sums): it runs in forward, and there alone. */
static void test_what_forward_saves(void **state)
{
    Run r;
    (void)state;
    start(&r);
    ok(&r, weft_graph_new(r.ctx, &r.program));
    for (int i = 0; i < 3; i++)
        ok(&r, weft_graph_wants(r.program, weft_graph_input(r.program, (const char *[]){"q", "k", "v"}[i], WEFT_F32, 4, (int64_t[]){2, 3, 64, 16}, NULL)));
    ok(&r, weft_graph_output(r.program, weft_graph_node(r.program, "aten.scaled_dot_product_attention", "%1, %2, %3", NULL, NULL), "y"));
    ok(&r, weft_graph_finish(r.program));
    ok(&r, weft_set(r.program, "halves", "both"));
    ok(&r, weft_session_new(r.program, &r.session));
    assert_int_equal(calls_of(r.session, WF_PROG_FORWARD, "attention_fwd"), 1);
    assert_int_equal(calls_of(r.session, WF_PROG_BACKWARD, "attention_fwd"), 0);
    assert_int_equal(calls_of(r.session, WF_PROG_BACKWARD, "attention_bwd"), 1);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_ports), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_from_a_file), cmocka_unit_test(test_dropout),
                                       cmocka_unit_test(test_what_forward_saves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
