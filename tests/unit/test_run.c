/* Sessions: a step allocates nothing, a failed step changes nothing, the planned peak is known, results do
 * not depend on the number of threads, and evaluation leaves the state alone. Through the public interface,
 * on recorded models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "library.h"

#define REFS WEFT_SOURCE_DIR "/tests/refs/"
enum { ROWS = 8, COLUMNS = 12, CLASSES = 4 };

typedef struct {
    weft_context *ctx;
    weft_program *program;
    weft_session *session;
    float x[ROWS * COLUMNS];
    int64_t y[ROWS];
} Run;

static void open_model(Run *r, const char *path)
{
    r->ctx = weft_context_new(NULL);
    assert_non_null(r->ctx);
    ok(r, weft_open(r->ctx, path, &r->program));
}

static void start(Run *r, const char *threads)
{
    open_model(r, REFS "dynamic_batch_mlp/model.pt2");
    ok(r, weft_set(r->program, "optimizer", "adamw"));
    ok(r, weft_set(r->program, "lr", "0.01"));
    ok(r, weft_set(r->program, "threads", threads));
    ok(r, weft_session_new(r->program, &r->session));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        r->x[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < ROWS; i++)
        r->y[i] = i % CLASSES;
}

static void feed(Run *r)
{
    ok(r, weft_feed(r->session, "x", &(weft_tensor){WEFT_F32, 2, {ROWS, COLUMNS}, r->x}));
    ok(r, weft_feed(r->session, "y", &(weft_tensor){WEFT_I64, 1, {ROWS}, r->y}));
}

static void step(Run *r)
{
    double loss;
    feed(r);
    ok(r, weft_step(r->session, &loss));
}

/* Hash of weights and buffers. */
static uint64_t state_hash(Run *r)
{
    uint64_t h = 0;
    for (int i = 0; i < weft_parameter_count(r->session); i++) {
        weft_tensor t;
        ok(r, weft_parameter(r->session, weft_parameter_name(r->session, i), &t));
        size_t bytes = wf_dtype_size((WfDtype)t.dtype);
        for (int d = 0; d < t.rank; d++)
            bytes *= (size_t)t.shape[d];
        h = wf_hash64(t.data, bytes, h);
    }
    return h;
}

static void steps_allocate_nothing(void **state)
{
    Run r;
    double slab, loss, first = 0;
    (void)state;
    start(&r, "2");
    for (int i = 0; i < 3; i++)
        step(&r);
    weft_metric(r.session, "loss", &first);
    int64_t calls = wf_seam_count(WF_SEAM_ALLOC), maps = wf_seam_count(WF_SEAM_MAP);
    size_t heap = mallinfo2().uordblks;
    for (int i = 0; i < 1000; i++) {
        feed(&r);
        if (weft_step(r.session, &loss) != WEFT_OK)
            fail();
    }
    assert_int_equal(wf_seam_count(WF_SEAM_ALLOC), calls);
    assert_int_equal(wf_seam_count(WF_SEAM_MAP), maps);
    assert_int_equal(mallinfo2().uordblks, heap);
    assert_true(loss < first);
    ok(&r, weft_metric(r.session, "slab_bytes", &slab));
    assert_true(slab > 0);
    ok(&r, weft_metric(r.session, "state_bytes", &slab));
    assert_true(slab > 0);
    weft_context_free(r.ctx);
}

static void failed_steps_change_nothing(void **state)
{
    Run r, twin;
    double loss;
    (void)state;
    start(&r, "1");
    start(&twin, "1");
    step(&r);
    step(&twin);
    uint64_t before = state_hash(&r);
    for (int i = 0; i < 3; i++) {
        int64_t good = r.y[i];
        r.y[i] = i == 1 ? -1 : 1000 + i;
        feed(&r);
        assert_int_equal(weft_step(r.session, &loss), WEFT_ERR_DATA);
        assert_non_null(strstr(weft_message(r.ctx), i == 1 ? "-1" : i ? "1002" : "1000"));
        assert_non_null(strstr(weft_place(r.ctx), ".py:"));
        assert_int_equal(state_hash(&r), before);
        r.y[i] = good;
    }
    double steps;
    ok(&r, weft_metric(r.session, "step", &steps));
    assert_int_equal((int)steps, 1);
    step(&r); /* optimiser state is untouched as well: the next step is that of a session without failures */
    step(&twin);
    assert_int_equal(state_hash(&r), state_hash(&twin));
    weft_context_free(r.ctx);
    weft_context_free(twin.ctx);
}

static void wrong_feeds_are_refused(void **state)
{
    Run r;
    double loss;
    float wide[ROWS * (COLUMNS + 1)] = {0};
    (void)state;
    start(&r, "1");
    assert_int_equal(weft_step(r.session, &loss), WEFT_ERR_DATA);
    assert_non_null(strstr(weft_message(r.ctx), "was not fed"));
    assert_int_equal(weft_feed(r.session, "z", &(weft_tensor){WEFT_F32, 2, {ROWS, COLUMNS}, r.x}),
                     WEFT_ERR_DATA);
    assert_int_equal(weft_feed(r.session, "x", &(weft_tensor){WEFT_I64, 2, {ROWS, COLUMNS}, r.x}),
                     WEFT_ERR_DATA);
    assert_int_equal(weft_feed(r.session, "x", &(weft_tensor){WEFT_F32, 1, {ROWS}, r.x}), WEFT_ERR_DATA);
    assert_int_equal(weft_feed(r.session, "x", &(weft_tensor){WEFT_F32, 2, {ROWS, COLUMNS}, NULL}),
                     WEFT_ERR_USAGE);
    feed(&r);
    ok(&r, weft_feed(r.session, "x", &(weft_tensor){WEFT_F32, 2, {ROWS, COLUMNS + 1}, wide}));
    assert_int_equal(weft_step(r.session, &loss), WEFT_ERR_DATA);
    feed(&r);
    ok(&r, weft_feed(r.session, "x", &(weft_tensor){WEFT_F32, 2, {ROWS - 1, COLUMNS}, r.x}));
    assert_int_equal(weft_step(r.session, &loss), WEFT_ERR_DATA);
    step(&r);
    weft_context_free(r.ctx);
}

static void evaluation_changes_nothing(void **state)
{
    Run r;
    double a, b;
    (void)state;
    start(&r, "2");
    step(&r);
    uint64_t before = state_hash(&r);
    feed(&r);
    ok(&r, weft_forward(r.session, 1, &a));
    ok(&r, weft_forward(r.session, 1, &b));
    assert_true(a == b);
    ok(&r, weft_forward(r.session, 0, &b));
    assert_true(a != b); /* batch statistics instead of running ones */
    assert_int_equal(state_hash(&r), before);
    weft_context_free(r.ctx);
}

static void threads_do_not_matter(void **state)
{
    static const char *const counts[] = {"1", "2", "3"};
    uint64_t hash[3];
    (void)state;
    for (int k = 0; k < 3; k++) {
        Run r;
        start(&r, counts[k]);
        for (int i = 0; i < 10; i++)
            step(&r);
        hash[k] = state_hash(&r);
        weft_context_free(r.ctx);
    }
    assert_true(hash[0] == hash[1] && hash[1] == hash[2]);
}

static void weights_travel(void **state)
{
    Run a, b;
    char path[] = "/tmp/weft-test-XXXXXX";
    float *memory = aligned_alloc(64, 4096);
    weft_tensor t;
    (void)state;
    close(mkstemp(path));
    start(&a, "1");
    start(&b, "1");
    step(&a);
    ok(&a, weft_save(a.session, path));
    ok(&b, weft_load(b.session, path));
    assert_int_equal(state_hash(&a), state_hash(&b));
    ok(&a, weft_parameter(a.session, "o.bias", &t)); /* training in the caller's memory */
    memcpy(memory, t.data, CLASSES * sizeof(float));
    t.data = memory;
    ok(&a, weft_parameter_replace(a.session, "o.bias", &t));
    float before = memory[0];
    step(&a);
    assert_true(memory[0] != before);
    t.data = memory + 1;
    assert_int_equal(weft_parameter_replace(a.session, "o.bias", &t), WEFT_ERR_USAGE);
    unlink(path);
    weft_context_free(a.ctx);
    weft_context_free(b.ctx);
    free(memory);
}

/* Sessions of different models live side by side, each with its own kernels. */
static void models_live_together(void **state)
{
    Run alone, a, b;
    float x[16 * 4] = {0}, y[16] = {1};
    (void)state;
    start(&alone, "1");
    step(&alone);
    uint64_t want = state_hash(&alone);
    weft_context_free(alone.ctx);
    open_model(&b, REFS "linreg_sgd/model.pt2");
    ok(&b, weft_session_new(b.program, &b.session));
    start(&a, "1");
    step(&a);
    assert_true(state_hash(&a) == want);
    ok(&b, weft_feed(b.session, "x", &(weft_tensor){WEFT_F32, 2, {16, 4}, x}));
    ok(&b, weft_feed(b.session, "y", &(weft_tensor){WEFT_F32, 2, {16, 1}, y}));
    ok(&b, weft_step(b.session, NULL));
    weft_context_free(b.ctx);
    step(&a);
    weft_context_free(a.ctx);
}

/* Rows in pairs, and a window of 3 n + 1: other sizes are refused, and the message says which fit. */
static void sizes_in_steps(void **state)
{
    Run r;
    float x[7 * 8] = {0}, z[13] = {0};
    int64_t y[7] = {0};
    static const struct {
        int64_t rows, window;
        const char *message;
    } wrong[] = {{7, 13, "plus multiples of 2"}, {6, 12, "plus multiples of 3"}, {6, 1, "7 to 193"}};
    (void)state;
    open_model(&r, REFS "dynamic_multiples/model.pt2");
    ok(&r, weft_session_new(r.program, &r.session));
    for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
        bool good = i == sizeof wrong / sizeof *wrong;
        int64_t rows = good ? 6 : wrong[i].rows, window = good ? 13 : wrong[i].window;
        ok(&r, weft_feed(r.session, "x", &(weft_tensor){WEFT_F32, 2, {rows, 8}, x}));
        ok(&r, weft_feed(r.session, "y", &(weft_tensor){WEFT_I64, 1, {rows}, y}));
        ok(&r, weft_feed(r.session, "z", &(weft_tensor){WEFT_F32, 1, {window}, z}));
        assert_int_equal(weft_step(r.session, NULL), good ? WEFT_OK : WEFT_ERR_DATA);
        if (!good && !strstr(weft_message(r.ctx), wrong[i].message))
            fail_msg("%s", weft_message(r.ctx));
    }
    weft_context_free(r.ctx);
}

static void said(Run *r, weft_status got, weft_status want, const char *text)
{
    assert_int_equal(got, want);
    if (!strstr(weft_message(r->ctx), text))
        fail_msg("\"%s\" instead of \"%s\"", weft_message(r->ctx), text);
}

/* NULL where a handle, a name or a result is wanted is an error like any other. */
static void nulls_are_refused(void **state)
{
    Run r = {0};
    weft_tensor t = {WEFT_F32, 2, {ROWS, COLUMNS}, r.x};
    double d;
    (void)state;
    start(&r, "1");
    said(&r, weft_open(r.ctx, NULL, &r.program), WEFT_ERR_USAGE, "the path is NULL");
    said(&r, weft_feed(r.session, NULL, &t), WEFT_ERR_USAGE, "the name of the input is NULL");
    said(&r, weft_metric(r.session, NULL, &d), WEFT_ERR_USAGE, "the name of the metric is NULL");
    said(&r, weft_parameter(r.session, NULL, &t), WEFT_ERR_USAGE, "the name of the parameter is NULL");
    said(&r, weft_parameter(r.session, "a.weight", NULL), WEFT_ERR_USAGE, "out is NULL");
    said(&r, weft_output(r.session, 0, NULL), WEFT_ERR_USAGE, "out is NULL");
    said(&r, weft_output(r.session, -2, &t), WEFT_ERR_USAGE, "there is no output -2");
    said(&r, weft_parameter_replace(r.session, "a.weight", NULL), WEFT_ERR_USAGE, "there is no memory for a.weight");
    said(&r, weft_save(r.session, NULL), WEFT_ERR_USAGE, "the path is NULL");
    said(&r, weft_set(r.program, "lr", NULL), WEFT_ERR_USAGE, "option lr: the value is NULL");
    assert_int_equal(weft_step(NULL, &d), WEFT_ERR_USAGE);
    assert_int_equal(weft_set(NULL, "lr", "1"), WEFT_ERR_USAGE);
    assert_int_equal(weft_graph_finish(NULL), WEFT_ERR_USAGE);
    said(&r, weft_graph_finish(r.program), WEFT_ERR_USAGE, "this program is not being built");
    assert_int_equal(weft_parameter_count(NULL) + weft_output_count(NULL), 0);
    assert_null(weft_parameter_name(r.session, -1));
    step(&r);
    weft_context_free(r.ctx);
}

/* The learning rate is a number of the running step; whatever else comes too late, or is nobody's, is refused. */
static void options_between_steps(void **state)
{
    Run r = {0};
    double lr;
    weft_tensor w;
    (void)state;
    start(&r, "1");
    step(&r);
    ok(&r, weft_parameter(r.session, "a.weight", &w));
    float before = ((const float *)w.data)[0];
    ok(&r, weft_set(r.program, "lr", "0")); /* adamw then moves no weight, its decay included */
    step(&r);
    assert_true(((const float *)w.data)[0] == before);
    ok(&r, weft_metric(r.session, "lr", &lr));
    assert_true(lr == 0);
    ok(&r, weft_set(r.program, "lr", "0.01"));
    step(&r);
    assert_true(((const float *)w.data)[0] != before);
    said(&r, weft_set(r.program, "seed", "3"), WEFT_ERR_USAGE, "option seed must be set before");
    said(&r, weft_set(r.program, "epochs", "2"), WEFT_ERR_USAGE, "option epochs belongs to the loop");
    weft_context_free(r.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_allocate_nothing),  cmocka_unit_test(failed_steps_change_nothing),
        cmocka_unit_test(wrong_feeds_are_refused), cmocka_unit_test(evaluation_changes_nothing),
        cmocka_unit_test(threads_do_not_matter),   cmocka_unit_test(weights_travel),
        cmocka_unit_test(models_live_together), cmocka_unit_test(sizes_in_steps),
        cmocka_unit_test(nulls_are_refused),       cmocka_unit_test(options_between_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
