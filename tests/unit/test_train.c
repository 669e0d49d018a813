/* Schedules against PyTorch's own numbers; reading ahead. */
#include "data_fixture.h"

#include "train/train.h"

static void do_set(void *p)
{
    Fixture *f = p;
    wf_options_set(f->ctx, &f->o, f->name, f->value);
}

static void set(Fixture *f, const char *name, const char *value)
{
    f->name = name;
    f->value = value;
    if (wf_guard(f->ctx, do_set, f) != WEFT_OK)
        fail_msg("%s %s: %s", name, value, f->ctx->diag.message);
}

/* ---- schedules: the lists are param_groups[0]["lr"] before each step, torch 2.15.0 ---- */

static void expect_rates(Fixture *f, const double *want, int n, int64_t total)
{
    for (int i = 0; i < n; i++) {
        double got = wf_schedule_lr(&f->o, i + 1, total);
        if (fabs(got - want[i]) > 1e-12 * fabs(want[i]) + 1e-18)
            fail_msg("step %d: %.17g, not %.17g", i + 1, got, want[i]);
    }
}

static void cosine_is_pytorchs(void **state)
{
    /* CosineAnnealingLR(T_max=8, eta_min=1e-4), lr 0.1 */
    const double want[] = {0.1, 0.09619778264893877, 0.08536998372026805, 0.06916503744663624,
                           0.050050000000000004, 0.030934962553363768, 0.014730016279731953, 0.0039022173510612273};
    set(*state, "lr", "0.1");
    set(*state, "schedule", "cosine");
    set(*state, "min-lr", "1e-4");
    expect_rates(*state, want, 8, 8);
}

static void linear_is_pytorchs(void **state)
{
    /* LinearLR(1.0, 0.1, 8), lr 0.1 */
    const double want[] = {0.1, 0.08875, 0.07749999999999999, 0.06624999999999999, 0.05499999999999999,
                           0.04374999999999999, 0.032499999999999994, 0.021249999999999995};
    set(*state, "lr", "0.1");
    set(*state, "schedule", "linear");
    set(*state, "min-lr", "0.01");
    expect_rates(*state, want, 8, 8);
}

static void step_is_pytorchs(void **state)
{
    const double want[] = {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025}; /* StepLR(3, 0.5), lr 0.1 */
    set(*state, "lr", "0.1");
    set(*state, "schedule", "step");
    set(*state, "step-size", "3");
    set(*state, "gamma", "0.5");
    expect_rates(*state, want, 8, 8);
}

static void one_cycle_is_pytorchs(void **state)
{
    /* OneCycleLR(max_lr=0.1, total_steps=10, pct_start=0.3, cycle_momentum=False) */
    const double want[] = {0.0040000000000000036, 0.052000000000000005, 0.1, 0.09504846320134738, 0.0811745653949763,
                           0.06112620219362893, 0.03887419780637107, 0.0188258346050237, 0.004951936798652629, 4e-07};
    set(*state, "schedule", "one-cycle");
    set(*state, "max-lr", "0.1");
    expect_rates(*state, want, 10, 10);
}

static void warmup_is_lambda_lr(void **state)
{
    const double want[] = {0.025, 0.05, 0.07500000000000001, 0.1, 0.1, 0.1}; /* LambdaLR(min(1, (e + 1) / 4)) */
    set(*state, "lr", "0.1");
    set(*state, "warmup-steps", "4");
    expect_rates(*state, want, 6, 6);
}

static void schedules_end_where_they_should(void **state)
{
    Fixture *f = *state;
    set(f, "lr", "0.1");
    set(f, "schedule", "cosine");
    set(f, "min-lr", "0.01");
    set(f, "warmup-steps", "2");
    assert_true(wf_schedule_lr(&f->o, 2, 10) == 0.1 && wf_schedule_lr(&f->o, 3, 10) == 0.1);
    assert_true(fabs(wf_schedule_lr(&f->o, 11, 10) - 0.01) < 1e-15);
    assert_true(wf_schedule_lr(&f->o, 1000, 10) == wf_schedule_lr(&f->o, 11, 10));
    assert_true(fabs(wf_schedule_lr_from(&f->o, 0.2, 11, 10) - 0.02) < 1e-15);
    set(f, "total-steps", "20");
    assert_true(wf_schedule_lr(&f->o, 11, 10) > 0.05);
    set(f, "schedule", "one-cycle");
    set(f, "pct-start", "0");
    assert_true(isfinite(wf_schedule_lr(&f->o, 1, 1)) && isfinite(wf_schedule_lr(&f->o, 5, 1)));
}

/* ---- reading ahead ---- */

enum { AHEAD_ROWS = 23, AHEAD_BATCH = 5, AHEAD_TOTAL = 14 };

typedef struct {
    Fixture *f;
    int64_t take;
    volatile int cancel;
    bool wait_for_end;
} Ahead;

static void do_ahead(void *p)
{
    Ahead *t = p;
    WfCtx *ctx = t->f->ctx;
    WfArena *a = wf_arena_scratch(ctx);
    float x[2][AHEAD_BATCH * 3], want_x[AHEAD_BATCH * 3];
    int64_t y[2][AHEAD_BATCH], want_y[AHEAD_BATCH], index[AHEAD_BATCH];
    void *first[] = {x[0], y[0]}, *second[] = {x[1], y[1]};
    WfAhead *h = wf_ahead_new(ctx, a, t->f->d, &t->f->o, AHEAD_BATCH, AHEAD_ROWS / AHEAD_BATCH, 0, AHEAD_TOTAL, (WfShare){0, 1, 1},
                              first, second);
    assert_non_null(h);
    for (int64_t k = 0; k < t->take; k++) {
        void **got = wf_ahead_next(h);
        WfOrder order = wf_order(AHEAD_ROWS, (uint64_t)t->f->o.seed, k / 4, t->f->o.shuffle); /* 4 whole batches an epoch */
        assert_int_equal(wf_order_batch(&order, k % 4, AHEAD_BATCH, index), AHEAD_BATCH);
        wf_dataset_gather(t->f->d, 0, index, AHEAD_BATCH, want_x);
        wf_dataset_gather(t->f->d, 1, index, AHEAD_BATCH, want_y);
        assert_memory_equal(got[0], want_x, sizeof want_x);
        assert_memory_equal(got[1], want_y, sizeof want_y);
        memset(got[0], 0xff, sizeof want_x); /* the step's to use until it asks again */
    }
    if (t->wait_for_end) {
        t->cancel = 1; /* there is no batch after the last: without this it would wait for ten minutes */
        wf_ahead_next(h);
    }
    wf_arena_free(a);
}

typedef struct { Fixture *f; void *x, *y; } Late;

static void do_late(void *p)
{
    Late *t = p;
    WfCtx *ctx = t->f->ctx;
    WfArena *a = wf_arena_scratch(ctx);
    void *buffers[] = {t->x, t->y};
    WfAhead *h = wf_ahead_new(ctx, a, t->f->d, &t->f->o, AHEAD_BATCH, AHEAD_ROWS / AHEAD_BATCH, 0, AHEAD_TOTAL, (WfShare){0, 1, 1},
                              buffers, buffers);
    assert_non_null(h);
    wf_ahead_next(h);
}

static void batches_come_ahead_in_order(void **state)
{
    Fixture *f = *state;
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 3}}, {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    float x[AHEAD_ROWS * 3];
    int64_t y[AHEAD_ROWS];
    for (int i = 0; i < AHEAD_ROWS * 3; i++)
        x[i] = (float)i;
    for (int i = 0; i < AHEAD_ROWS; i++)
        y[i] = 1000 + i;
    const WfTensor t[] = {{"x", WF_F32, 2, {AHEAD_ROWS, 3}, x, sizeof x}, {"y", WF_I64, 1, {AHEAD_ROWS}, y, sizeof y}};
    give(f, write_tensors(f, "ahead.safetensors", t, 2));
    f->inputs = in;
    f->n = 2;
    opens(f);
    for (int shuffle = 0; shuffle < 2; shuffle++)
        for (int64_t take = 0; take <= AHEAD_TOTAL; take++) { /* also: ended before, while and after it gathers */
            Ahead a = {.f = f, .take = take};
            f->o.shuffle = shuffle;
            f->o.seed = 7 + take;
            assert_int_equal(wf_guard(f->ctx, do_ahead, &a), WEFT_OK);
        }
    Ahead a = {.f = f, .take = AHEAD_TOTAL, .wait_for_end = true};
    f->ctx->cancel = &a.cancel;
    assert_int_equal(wf_guard(f->ctx, do_ahead, &a), WEFT_ERR_CANCELLED);
    f->ctx->cancel = NULL;
}

/* What goes wrong in the thread is raised where its batch is asked for, not before. */
static void files_that_fail_fail_their_batch(void **state)
{
    Fixture *f = *state;
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 3}},
                                     {.name = "y", .dtype = WF_I64, .rank = 2, .shape = {-1, 100000}}};
    int64_t *y = calloc(AHEAD_ROWS * 100000, 8);
    float x[AHEAD_ROWS * 3] = {0};
    const WfTensor t[] = {{"x", WF_F32, 2, {AHEAD_ROWS, 3}, x, sizeof x},
                          {"y", WF_I64, 2, {AHEAD_ROWS, 100000}, y, AHEAD_ROWS * 800000}};
    char *path = write_tensors(f, "large.safetensors", t, 2);
    give(f, path);
    f->inputs = in;
    f->n = 2;
    opens(f);
    assert_int_equal(truncate(path, 1000), 0);
    Late late = {.f = f, .x = x, .y = y};
    assert_int_equal(wf_guard(f->ctx, do_late, &late), WEFT_ERR_IO);
    assert_non_null(strstr(f->ctx->diag.message, "changed or cut off while it is in use"));
    assert_string_equal(f->ctx->diag.place, path);
    free(y);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(cosine_is_pytorchs), TEST(linear_is_pytorchs), TEST(step_is_pytorchs), TEST(one_cycle_is_pytorchs),
        TEST(warmup_is_lambda_lr), TEST(schedules_end_where_they_should),
        TEST(batches_come_ahead_in_order), TEST(files_that_fail_fail_their_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
