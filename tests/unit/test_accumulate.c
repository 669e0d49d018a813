/* Gradient accumulation: any split of a batch into micro-batches gives the big batch's gradients and weights; bits do
 * not depend on threads; a failed micro-batch, a call out of turn and an unfinished step leave nothing behind; random
 * numbers differ between the micro-batches of a step and come again after a restart; with several ranks only the last
 * micro-batch communicates. On a small network built by hand, of one linear layer, tanh, dropout (if asked for), another
 * layer and cross entropy, over batches of any size. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/api.h"
#include "library.h"

enum { ROWS = 24, IN = 20, HIDDEN = 32, CLASSES = 5 };

static const char *const weights[] = {"a.weight", "a.bias", "b.weight", "b.bias"};

typedef struct {
    weft_context *ctx;
    weft_program *program;
    weft_session *session;
    int k;
    float x[ROWS * IN];
    int64_t y[ROWS];
} Run;

static weft_value parameter(Run *r, const char *name, int rank, int64_t a, int64_t b)
{
    static float v[HIDDEN * IN];
    for (int64_t i = 0; i < a * b; i++)
        v[i] = (float)(i * 37 % 101 - 50) / 200;
    weft_tensor t = {.dtype = WEFT_F32, .rank = rank, .shape = {a, b}, .data = v};
    return weft_graph_parameter(r->program, name, &t, 1);
}

/* Values are numbered as they are made: %1 x, %2 y, %3 to %6 the weights. */
static void build(Run *r, int k, bool dropout)
{
    char text[32];
    memset(r, 0, sizeof *r);
    r->k = k;
    r->ctx = weft_context_new(NULL);
    assert_non_null(r->ctx);
    ok(r, weft_graph_new(r->ctx, &r->program));
    weft_graph_input(r->program, "x", WEFT_F32, 2, (int64_t[]){-1, IN}, "rows");
    weft_graph_input(r->program, "y", WEFT_I64, 1, (int64_t[]){-1}, "rows");
    parameter(r, weights[0], 2, HIDDEN, IN);
    parameter(r, weights[1], 1, HIDDEN, 1);
    parameter(r, weights[2], 2, CLASSES, HIDDEN);
    parameter(r, weights[3], 1, CLASSES, 1);
    weft_graph_node(r->program, "aten.linear", "%1, %3, %4", NULL, "net.py:1"); /* %7 */
    weft_graph_node(r->program, "aten.tanh", "%7", NULL, "net.py:2");           /* %8 */
    weft_graph_node(r->program, "aten.dropout", dropout ? "%8, 0.5, True" : "%8, 0.5, False", NULL, "net.py:3");
    weft_graph_node(r->program, "aten.linear", "%9, %5, %6", NULL, "net.py:4"); /* %10 */
    weft_value loss = weft_graph_node(r->program, "aten.cross_entropy_loss", "%10, %2", NULL, "net.py:5");
    ok(r, weft_graph_output(r->program, loss, "loss"));
    ok(r, weft_graph_finish(r->program));
    snprintf(text, sizeof text, "%d", k);
    ok(r, weft_set(r->program, "accumulate", text));
    ok(r, weft_set(r->program, "optimizer", "sgd"));
    ok(r, weft_set(r->program, "lr", "0.5"));
    for (int i = 0; i < ROWS * IN; i++)
        r->x[i] = (float)(i * 53 % 211) / 100 - 1;
    for (int i = 0; i < ROWS; i++)
        r->y[i] = i * 7 % CLASSES;
}

static void start(Run *r, int k, const char *threads, bool dropout)
{
    build(r, k, dropout);
    ok(r, weft_set(r->program, "threads", threads));
    ok(r, weft_session_new(r->program, &r->session));
}

static void feed(Run *r, int micro)
{
    int64_t n = ROWS / r->k;
    ok(r, weft_feed(r->session, "x", &(weft_tensor){WEFT_F32, 2, {n, IN}, r->x + micro * n * IN}));
    ok(r, weft_feed(r->session, "y", &(weft_tensor){WEFT_I64, 1, {n}, r->y + micro * n}));
}

static double step(Run *r)
{
    double loss;
    for (int m = 0; m + 1 < r->k; m++) {
        feed(r, m);
        ok(r, weft_micro(r->session, NULL));
    }
    feed(r, r->k - 1);
    ok(r, weft_step(r->session, &loss));
    return loss;
}

static uint64_t hash(Run *r)
{
    uint64_t h = 0;
    for (int i = 0; i < 4; i++) {
        weft_tensor t;
        ok(r, weft_parameter(r->session, weights[i], &t));
        h = wf_hash64(t.data, (size_t)(t.shape[0] * (t.rank > 1 ? t.shape[1] : 1)) * sizeof(float), h);
    }
    return h;
}

/* Largest difference in units of the largest magnitude. */
static double apart(const weft_tensor *a, const weft_tensor *b)
{
    double most = 0, largest = 0;
    assert_int_equal(a->rank, b->rank);
    for (int64_t i = 0; i < a->shape[0] * (a->rank > 1 ? a->shape[1] : 1); i++) {
        double x = ((const float *)a->data)[i], y = ((const float *)b->data)[i];
        most = fmax(most, fabs(x - y));
        largest = fmax(largest, fabs(x));
    }
    assert_true(largest > 0);
    return most / largest;
}

/* The sums of the same float32 terms in another order: 24 rows, errors of some 1e-7. */
static void splits_agree(void **state)
{
    static const int split[] = {2, 3, 4, 8, 24};
    (void)state;
    for (size_t i = 0; i < sizeof split / sizeof *split; i++) {
        Run big, r;
        start(&big, 1, "1", false);
        start(&r, split[i], "1", false);
        for (int t = 0; t < 3; t++) {
            double one = step(&big), many = step(&r), norm[2];
            assert_true(fabs(one - many) <= 1e-6 * one);
            ok(&big, weft_metric(big.session, "grad_norm", &norm[0]));
            ok(&r, weft_metric(r.session, "grad_norm", &norm[1]));
            assert_true(norm[0] > 0 && fabs(norm[0] - norm[1]) <= 1e-6 * norm[0]);
            for (int w = 0; w < 4; w++) {
                weft_tensor a, b;
                ok(&big, weft_gradient(big.session, weights[w], &a));
                ok(&r, weft_gradient(r.session, weights[w], &b));
                if (!(apart(&a, &b) <= 1e-6))
                    fail_msg("K = %d, step %d: the gradient of %s is %.2e apart", split[i], t + 1, weights[w], apart(&a, &b));
                ok(&big, weft_parameter(big.session, weights[w], &a));
                ok(&r, weft_parameter(r.session, weights[w], &b));
                assert_true(apart(&a, &b) <= 1e-6);
            }
        }
        weft_context_free(big.ctx);
        weft_context_free(r.ctx);
    }
}

static void threads_do_not_matter(void **state)
{
    static const char *const counts[] = {"1", "2", "3"};
    uint64_t h[3];
    (void)state;
    for (int k = 0; k < 3; k++) {
        Run r;
        start(&r, 4, counts[k], true);
        for (int i = 0; i < 5; i++)
            step(&r);
        h[k] = hash(&r);
        weft_context_free(r.ctx);
    }
    assert_true(h[0] == h[1] && h[1] == h[2]);
}

/* The buffers are state: counted once, taken once. */
static void steps_allocate_nothing(void **state)
{
    Run r, plain;
    double with, without;
    (void)state;
    start(&r, 4, "2", false);
    start(&plain, 1, "1", false);
    step(&r);
    int64_t calls = wf_seam_count(WF_SEAM_ALLOC), maps = wf_seam_count(WF_SEAM_MAP);
    for (int i = 0; i < 50; i++)
        step(&r);
    assert_int_equal(wf_seam_count(WF_SEAM_ALLOC), calls);
    assert_int_equal(wf_seam_count(WF_SEAM_MAP), maps);
    ok(&r, weft_metric(r.session, "state_bytes", &with));
    ok(&plain, weft_metric(plain.session, "state_bytes", &without));
    double parameters = (HIDDEN * IN + HIDDEN + CLASSES * HIDDEN + CLASSES) * sizeof(float);
    assert_true(with - without >= parameters && with - without <= parameters + 64 * 5); /* each aligned to 64 bytes */
    weft_context_free(r.ctx);
    weft_context_free(plain.ctx);
}

static void calls_out_of_turn(void **state)
{
    Run r, twin;
    double loss;
    (void)state;
    start(&r, 3, "1", true);
    start(&twin, 3, "1", true);
    feed(&r, 0);
    refused(&r, weft_step(r.session, &loss), WEFT_ERR_USAGE, "3 micro-batches has only 0");
    ok(&r, weft_micro(r.session, NULL));
    refused(&r, weft_step(r.session, &loss), WEFT_ERR_USAGE, "3 micro-batches has only 1");
    refused(&r, weft_forward(r.session, 0, &loss), WEFT_ERR_USAGE, "between the micro-batches");
    ok(&r, weft_forward(r.session, 1, &loss));
    feed(&r, 1);
    ok(&r, weft_micro(r.session, NULL));
    feed(&r, 2);
    refused(&r, weft_micro(r.session, NULL), WEFT_ERR_USAGE, "micro-batch 3 is the last of 3");
    ok(&r, weft_step(r.session, &loss));
    step(&twin);
    assert_int_equal(hash(&r), hash(&twin)); /* none of the refusals changed anything */
    weft_context_free(twin.ctx);
    weft_context_free(r.ctx);
    start(&r, 1, "1", false);
    feed(&r, 0);
    refused(&r, weft_micro(r.session, NULL), WEFT_ERR_USAGE, "no micro-batches");
    assert_int_equal(weft_micro(NULL, NULL), WEFT_ERR_USAGE);
    weft_context_free(r.ctx);
}

/* A bad label in any micro-batch: the weights are those of before, the step begins again and is that of a session in
 * which nothing failed. */
static void failed_micro_batches(void **state)
{
    Run r, twin;
    (void)state;
    start(&r, 4, "1", true);
    start(&twin, 4, "1", true);
    step(&r);
    step(&twin);
    uint64_t before = hash(&r);
    for (int bad = 0; bad < 4; bad++) {
        for (int m = 0; m < bad; m++) {
            feed(&r, m);
            ok(&r, weft_micro(r.session, NULL));
        }
        feed(&r, bad);
        int64_t *label = &r.y[bad * ROWS / 4 + 1], good = *label;
        *label = 77;
        refused(&r, bad < 3 ? weft_micro(r.session, NULL) : weft_step(r.session, NULL), WEFT_ERR_DATA, "77");
        *label = good;
        assert_int_equal(hash(&r), before);
        refused(&r, weft_step(r.session, NULL), WEFT_ERR_USAGE, "has only 0");
    }
    step(&r);
    step(&twin);
    assert_int_equal(hash(&r), hash(&twin));
    assert_true(hash(&r) != before);
    weft_context_free(r.ctx);
    weft_context_free(twin.ctx);
}

/* The same rows in each micro-batch of a step, and in two steps that begin with the same weights: other masks each time,
 * which come again when training goes on elsewhere from the same step. */
static void random_numbers(void **state)
{
    Run r, later;
    double loss[6], again[3];
    char path[] = "/tmp/weft-accumulate-XXXXXX";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    start(&r, 3, "1", true);
    for (int t = 0; t < 2; t++) {
        if (t == 1)
            ok(&r, weft_save(r.session, path));
        for (int m = 0; m < 3; m++) {
            feed(&r, 0);
            ok(&r, m < 2 ? weft_micro(r.session, NULL) : weft_step(r.session, NULL));
            ok(&r, weft_metric(r.session, "loss", &loss[t * 3 + m]));
        }
    }
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++)
            assert_true(loss[i] != loss[j]);
    start(&later, 3, "1", true);
    ok(&later, weft_load(later.session, path));
    wf_session_set_step(later.session->run, 1);
    for (int m = 0; m < 3; m++) {
        feed(&later, 0);
        ok(&later, m < 2 ? weft_micro(later.session, NULL) : weft_step(later.session, NULL));
        ok(&later, weft_metric(later.session, "loss", &again[m]));
        assert_true(again[m] == loss[3 + m]);
    }
    assert_int_equal(hash(&later), hash(&r));
    unlink(path);
    weft_context_free(r.ctx);
    weft_context_free(later.ctx);
}

static int starts(const WfExeProgram *p)
{
    int n = 0;
    for (int c = 0; c < p->n_calls; c++)
        n += p->calls[c].kind == WF_CALL_START;
    return n;
}

/* One reduction a step, whatever the number of micro-batches. */
static void only_the_last_communicates(void **state)
{
    int collectives[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        Run r;
        build(&r, i ? 4 : 1, false);
        r.program->options.nproc = 2;
        ok(&r, weft_compile(r.program));
        assert_int_equal(starts(&r.program->exe->program[WF_PROG_MICRO]), 0);
        collectives[i] = starts(&r.program->exe->program[WF_PROG_STEP]);
        weft_context_free(r.ctx);
    }
    assert_true(collectives[0] > 0);
    assert_int_equal(collectives[0], collectives[1]);
}

/* A compiled step keeps its micro-batches. */
static void compiled_steps(void **state)
{
    Run r, loaded;
    char path[] = "/tmp/weft-accumulate-XXXXXX";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    start(&r, 4, "1", true);
    ok(&r, weft_save_compiled(r.program, path));
    loaded = r;
    loaded.ctx = weft_context_new(NULL);
    assert_non_null(loaded.ctx);
    ok(&loaded, weft_open(loaded.ctx, path, &loaded.program));
    ok(&loaded, weft_session_new(loaded.program, &loaded.session));
    double a = step(&r), b = step(&loaded);
    assert_true(a == b);
    assert_int_equal(hash(&r), hash(&loaded));
    unlink(path);
    weft_context_free(r.ctx);
    weft_context_free(loaded.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_agree),      cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(calls_out_of_turn), cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(random_numbers),    cmocka_unit_test(failed_micro_batches),
        cmocka_unit_test(compiled_steps),    cmocka_unit_test(only_the_last_communicates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
