/* What weft.h says of a session beside stepping it: inputs by position, the optimiser's state, evaluations, checkpoints, schedules,
 * texts. On recorded cases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "case_run.h"
#include "folder.h"
#include "library.h"

static const char *const adamw[] = {"optimizer", "adamw", "lr", "0.001", "seed", "3", NULL};

static char *folder(char *text)
{
    const char *tmp = getenv("TMPDIR");
    sprintf(text, "%.200s/weft-api-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(text);
}

static void inputs_have_an_order(void **state)
{
    Run r;
    weft_tensor t;
    (void)state;
    open_case(&r, "mlp_mnist_adamw", adamw);
    assert_int_equal(weft_input_count(r.session), 2);
    assert_string_equal(weft_input_name(r.session, 0), "x");
    assert_string_equal(weft_input_name(r.session, 1), "y");
    assert_null(weft_input_name(r.session, 2));
    assert_null(weft_input_name(r.session, -1));
    must(&r, weft_input(r.session, 0, &t));
    assert_true(t.dtype == WEFT_F32 && t.rank == 4 && t.shape[0] == 8 && t.shape[1] == 1 && t.shape[2] == 28 && !t.data);
    must(&r, weft_input(r.session, 1, &t));
    assert_true(t.dtype == WEFT_I64 && t.rank == 1 && t.shape[0] == 8);
    refused(&r, weft_input(r.session, 2, &t), WEFT_ERR_USAGE, "no input 2");
    weft_context_free(r.ctx);
    open_case(&r, "dynamic_batch_mlp", adamw); /* a size that batches choose */
    must(&r, weft_input(r.session, 0, &t));
    assert_true(t.rank == 2 && t.shape[0] == -1 && t.shape[1] > 0);
    weft_context_free(r.ctx);
}

static void a_target_comes_last(void **state)
{
    Run r = {.ctx = weft_context_new(NULL), .folder = "fashion"};
    weft_tensor t, x;
    (void)state;
    must(&r, weft_open(r.ctx, WEFT_SOURCE_DIR "/examples/fashion.pt2", &r.program));
    must(&r, weft_set(r.program, "loss", "cross_entropy"));
    must(&r, weft_session_new(r.program, &r.session));
    assert_int_equal(weft_input_count(r.session), 2);
    assert_string_equal(weft_input_name(r.session, 1), "y");
    must(&r, weft_input(r.session, 0, &x));
    must(&r, weft_input(r.session, 1, &t));
    assert_true(t.dtype == WEFT_I64 && t.rank == 1 && t.shape[0] == x.shape[0]);
    weft_context_free(r.ctx);
}

/* AdamW's first step from zeros: exp_avg = 0.1 g, exp_avg_sq = 0.001 g^2. */
static void state_is_lent(void **state)
{
    Run r;
    weft_tensor t, g;
    double step;
    int seen = 0;
    (void)state;
    open_case(&r, "mlp_mnist_adamw", adamw);
    refused(&r, weft_gradient(r.session, weft_parameter_name(r.session, 0), &g), WEFT_ERR_USAGE, "no step has run");
    must(&r, step_case(&r, 1, NULL));
    for (int i = 0; i < weft_state_count(r.session); i++) {
        const char *of = weft_state_parameter(r.session, i), *kind = weft_state_kind(r.session, i);
        must(&r, weft_state(r.session, i, &t));
        must(&r, weft_gradient(r.session, of, &g));
        double first = ((const float *)g.data)[0], have = ((const float *)t.data)[0];
        double want = !strcmp(kind, "exp_avg") ? 0.1 * first : 0.001 * first * first;
        assert_true(!strcmp(kind, "exp_avg") || !strcmp(kind, "exp_avg_sq"));
        assert_true(fabs(have - want) <= 1e-6 * fabs(want)); /* float32 rounds a product or two */
        seen++;
    }
    assert_int_equal(seen, 2 * weft_parameter_count(r.session)); /* it has no buffers */
    assert_null(weft_state_kind(r.session, seen));
    refused(&r, weft_state(r.session, seen, &t), WEFT_ERR_USAGE, "no state");
    must(&r, weft_set_step(r.session, 41));
    must(&r, step_case(&r, 2, NULL));
    must(&r, weft_metric(r.session, "step", &step));
    assert_true(step == 42);
    refused(&r, weft_set_step(r.session, -1), WEFT_ERR_USAGE, "-1 steps");
    weft_context_free(r.ctx);
}

static void parameters_say_what_they_are(void **state)
{
    Run r;
    weft_tensor t;
    int trained = 0, buffers = 0, transient = 0;
    (void)state;
    open_case(&r, "resnet_tiny_bn_sgd", adamw);
    for (int i = 0; i < weft_parameter_count(r.session); i++) {
        int f = weft_parameter_flags(r.session, i);
        trained += !!(f & WEFT_TRAINABLE);
        buffers += !!(f & WEFT_BUFFER);
        transient += !!(f & WEFT_TRANSIENT);
        assert_true(!(f & WEFT_TRAINABLE) || !(f & WEFT_BUFFER));
        assert_true(!!strstr(weft_parameter_name(r.session, i), "running_") <= !!(f & WEFT_BUFFER));
    }
    assert_true(trained > 0 && buffers > 0 && transient == 0);
    assert_int_equal(weft_parameter_flags(r.session, weft_parameter_count(r.session)), 0);
    weft_context_free(r.ctx);
    open_case(&r, "tied_transposed", adamw); /* a tied tensor has two names */
    int aliases = 0;
    for (int i = 0; i < weft_parameter_count(r.session); i++)
        for (int k = 0; weft_parameter_alias(r.session, i, k); k++)
            aliases++;
    assert_int_equal(aliases, 1);
    must(&r, step_case(&r, 1, NULL));
    for (int i = 0; i < weft_parameter_count(r.session); i++) { /* one gradient, by either */
        weft_tensor one, same;
        const char *alias = weft_parameter_alias(r.session, i, 0);
        if (!alias)
            continue;
        must(&r, weft_gradient(r.session, weft_parameter_name(r.session, i), &one));
        must(&r, weft_gradient(r.session, alias, &same));
        assert_true(one.data == same.data && one.rank == 2);
    }
    refused(&r, weft_gradient(r.session, "nothing", &t), WEFT_ERR_USAGE, "no such parameter");
    weft_context_free(r.ctx);
}

/* Two equal batches have the mean of one; a batch of which rows count for nothing is refused where no row can. */
static void evaluations_are_means(void **state)
{
    Run r;
    double one, all, accuracy, value;
    (void)state;
    open_case(&r, "mlp_mnist_adamw", adamw);
    refused(&r, weft_evaluate(r.session, NULL), WEFT_ERR_USAGE, "weft_evaluate_begin comes first");
    refused(&r, weft_evaluate_begin(r.session, "loss,accurate"), WEFT_ERR_USAGE, "no metric 'accurate'");
    uint64_t before = state_hash(&r);
    must(&r, weft_evaluate_begin(r.session, NULL));
    assert_null(weft_evaluated(r.session, 0, &value));
    for (int t = 1; t <= 2; t++) {
        feed_case(&r, t);
        must(&r, weft_evaluate(r.session, t == 1 ? &one : &all));
    }
    must(&r, weft_evaluate_end(r.session));
    assert_true(state_hash(&r) == before);
    assert_string_equal(weft_evaluated(r.session, 0, &value), "loss");
    assert_true(fabs(value - (one + all) / 2) <= 1e-12 * value);
    assert_string_equal(weft_evaluated(r.session, 1, &accuracy), "accuracy");
    assert_true(accuracy >= 0 && accuracy <= 1 && accuracy * 16 == floor(accuracy * 16));
    assert_null(weft_evaluated(r.session, 2, &value));
    refused(&r, weft_evaluate_end(r.session), WEFT_ERR_USAGE, "no evaluation has begun");
    weft_context_free(r.ctx);
}

/* Mean loss and accuracy of batches 1 to n of the case, of the last of which `rows` rows count (-1: all). */
static void evaluated(Run *r, int n, int rows, double *loss, double *accuracy)
{
    must(r, weft_evaluate_begin(r->session, "loss,accuracy"));
    for (int t = 1; t <= n; t++) {
        feed_case(r, t);
        if (t == n && rows >= 0)
            must(r, weft_rows(r->session, rows));
        must(r, weft_evaluate(r->session, NULL));
    }
    must(r, weft_evaluate_end(r->session));
    assert_string_equal(weft_evaluated(r->session, 0, loss), "loss");
    assert_string_equal(weft_evaluated(r->session, 1, accuracy), "accuracy");
}

/* Rows that are no samples have no share, even when they are all. */
static void padding_is_left_out(void **state)
{
    static const char *const padded[] = {"optimizer", "adamw", "lr", "0.001", "last-batch", "pad", NULL};
    Run r;
    double loss, accuracy, one, of_one;
    (void)state;
    open_case(&r, "mlp_mnist_adamw", padded);
    must(&r, step_case(&r, 1, NULL)); /* it knows the first batch better than the second then */
    evaluated(&r, 1, -1, &one, &of_one);
    evaluated(&r, 2, -1, &loss, &accuracy);
    assert_true(loss != one && accuracy != of_one); /* the second batch has something to say */
    evaluated(&r, 2, 0, &loss, &accuracy);
    assert_true(loss == one && accuracy == of_one);
    weft_context_free(r.ctx);
}

/* Rows predict as they do in a whole batch, to the bit, labels or not; what was fed stays fed, in the caller's memory. */
static void predictions_take_fewer_rows(void **state)
{
    Run r;
    weft_tensor whole, t;
    double before, after;
    float want[8 * 10];
    (void)state;
    open_case(&r, "mlp_mnist_adamw", adamw);
    refused(&r, weft_predict(r.session, &t), WEFT_ERR_DATA, "x was not fed");
    refused(&r, weft_predict(r.session, NULL), WEFT_ERR_USAGE, "out is NULL");
    feed_rows(&r, 1, 8, "x");
    must(&r, weft_predict(r.session, &whole));
    assert_true(whole.dtype == WEFT_F32 && whole.rank == 2 && whole.shape[0] == 8 && whole.shape[1] == 10);
    memcpy(want, whole.data, sizeof want);
    for (int rows = 1; rows <= 8; rows++) {
        feed_rows(&r, 1, rows, "x");
        must(&r, weft_predict(r.session, &t));
        assert_true(t.rank == 2 && t.shape[0] == rows && t.shape[1] == 10);
        assert_memory_equal(t.data, want, (size_t)rows * 10 * sizeof *want);
    }
    refused(&r, weft_step(r.session, NULL), WEFT_ERR_DATA, "y was not fed"); /* zeros stood in for it, once */
    feed_case(&r, 1);
    must(&r, weft_forward(r.session, 1, &before));
    must(&r, weft_predict(r.session, &t));
    must(&r, weft_forward(r.session, 1, &after));
    assert_true(before == after);
    feed_rows(&r, 1, 3, NULL);
    must(&r, weft_predict(r.session, &t));
    assert_int_equal(t.shape[0], 3);
    refused(&r, weft_forward(r.session, 1, NULL), WEFT_ERR_DATA, "dimension 0 is 3, but must be 8");
    must(&r, weft_feed(r.session, "x", NULL));
    refused(&r, weft_predict(r.session, &t), WEFT_ERR_DATA, "x was not fed");
    weft_context_free(r.ctx);
    open_case(&r, "dynamic_batch_mlp", adamw); /* a size that batches choose is the predictions' */
    for (int rows = 3; rows >= 2; rows--) {
        feed_rows(&r, 1, rows, "x");
        must(&r, weft_predict(r.session, &t));
        assert_int_equal(t.shape[0], rows);
    }
    weft_context_free(r.ctx);
}

/* Hosts often give a tensor without elements no memory: what is wrong is its shape. */
static void batches_of_no_rows_are_refused(void **state)
{
    static float x[1];
    Run r;
    weft_tensor t;
    (void)state;
    open_case(&r, "mlp_mnist_adamw", adamw);
    for (int k = 0; k < 2; k++) {
        feed_case(&r, 1);
        must(&r, weft_feed(r.session, "x", &(weft_tensor){WEFT_F32, 4, {0, 1, 28, 28}, k ? x : NULL}));
        refused(&r, weft_step(r.session, NULL), WEFT_ERR_DATA, "input x: dimension 0 is 0, but must be 8");
        refused(&r, weft_predict(r.session, &t), WEFT_ERR_DATA, "input x: dimension 0 is 0, but must be 8");
        must(&r, weft_evaluate_begin(r.session, NULL));
        refused(&r, weft_evaluate(r.session, NULL), WEFT_ERR_DATA, "the batch has no rows");
    }
    weft_context_free(r.ctx);
}

/* Five steps in one session are two, a checkpoint, and three in another, to the bit. */
static void checkpoints_go_on(void **state)
{
    Run r, other;
    char text[256], *dir = folder(text);
    int64_t step;
    (void)state;
    open_case(&r, "mlp_mnist_adamw", adamw);
    must(&r, weft_resume(r.session, dir, &step));
    assert_int_equal(step, -1);
    for (int t = 1; t <= 2; t++)
        must(&r, step_case(&r, t, NULL));
    must(&r, weft_checkpoint(r.session, dir, 2));
    refused(&r, weft_checkpoint(r.session, dir, 0), WEFT_ERR_USAGE, "at least one");
    open_case(&other, "mlp_mnist_adamw", adamw);
    must(&other, weft_resume(other.session, dir, &step));
    assert_int_equal(step, 2);
    assert_true(state_hash(&other) == state_hash(&r));
    for (int t = 3; t <= 5; t++) {
        must(&r, step_case(&r, t, NULL));
        must(&other, step_case(&other, t, NULL));
    }
    assert_true(state_hash(&other) == state_hash(&r));
    weft_context_free(other.ctx);
    static const char *const seed[] = {"optimizer", "adamw", "seed", "4", NULL};
    open_case(&other, "mlp_mnist_adamw", seed);
    refused(&other, weft_resume(other.session, dir, NULL), WEFT_ERR_USAGE, "seed 3, not 4");
    weft_context_free(other.ctx);
    static const char *const sgd[] = {"optimizer", "sgd", "lr", "0.1", "seed", "3", NULL};
    open_case(&other, "mlp_mnist_adamw", sgd);
    uint64_t before = state_hash(&other);
    refused(&other, weft_resume(other.session, dir, NULL), WEFT_ERR_USAGE, "which this training has not");
    assert_true(state_hash(&other) == before);
    weft_context_free(other.ctx);
    weft_context_free(r.ctx);
    assert_int_equal(remove_all(dir), 0);
}

/* lr (1 - e / 4) after two steps of warm-up. */
static void steps_follow_a_schedule(void **state)
{
    static const char *const linear[] = {"optimizer", "sgd", "lr", "0.8", "schedule", "linear", "total-steps", "6", "warmup-steps", "2", NULL};
    static const double want[] = {0.4, 0.8, 0.8, 0.6, 0.4};
    Run r;
    double lr;
    (void)state;
    open_case(&r, "mlp_mnist_adamw", linear);
    for (int t = 1; t <= 5; t++) {
        must(&r, step_case(&r, t, NULL));
        must(&r, weft_metric(r.session, "lr", &lr));
        assert_true(fabs(lr - want[t - 1]) < 1e-15);
    }
    weft_context_free(r.ctx);
    r = (Run){.ctx = weft_context_new(NULL), .folder = "mlp"};
    must(&r, weft_open(r.ctx, REFS "mlp_mnist_adamw/model.pt2", &r.program));
    must(&r, weft_set(r.program, "schedule", "cosine"));
    refused(&r, weft_session_new(r.program, &r.session), WEFT_ERR_USAGE, "number of steps is not known");
    weft_context_free(r.ctx);
}

static void plans_and_graphs_are_texts(void **state)
{
    Run r;
    const char *text;
    (void)state;
    open_case(&r, "mlp_mnist_adamw", adamw);
    must(&r, weft_plan_text(r.program, &text));
    assert_non_null(strstr(text, "training step: "));
    assert_non_null(strstr(text, "micro-batches of a step of 8 rows"));
    must(&r, weft_graph_text(r.program, "grad/step", 0, &text));
    assert_non_null(strstr(text, "graph joint {"));
    assert_non_null(strstr(text, "exp_avg"));
    must(&r, weft_graph_text(r.program, NULL, 0, &text));
    assert_non_null(strstr(text, "graph aten {"));
    refused(&r, weft_graph_text(r.program, "grad/walk", 0, &text), WEFT_ERR_USAGE, "grad/walk");
    assert_int_equal(weft_plan_text(NULL, &text), WEFT_ERR_USAGE);
    double loss;
    must(&r, step_case(&r, 1, &loss)); /* and the session goes on */
    assert_true(isfinite(loss));
    weft_context_free(r.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_have_an_order),     cmocka_unit_test(a_target_comes_last),
        cmocka_unit_test(state_is_lent),            cmocka_unit_test(parameters_say_what_they_are),
        cmocka_unit_test(evaluations_are_means),    cmocka_unit_test(padding_is_left_out),
        cmocka_unit_test(predictions_take_fewer_rows), cmocka_unit_test(batches_of_no_rows_are_refused),
        cmocka_unit_test(checkpoints_go_on),
        cmocka_unit_test(steps_follow_a_schedule),  cmocka_unit_test(plans_and_graphs_are_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
