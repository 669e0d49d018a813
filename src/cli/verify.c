/* weft verify: replays a recorded PyTorch run (docs/cases.md) and compares losses, gradients, outputs, weights and
 * buffers, group by group, with the case's tolerances. A data-parallel case is replayed by as many ranks as it was
 * recorded with: each compares what is its own, rank 0 puts their findings together, and the process that the user
 * started reads them from a file. */
#include "cli/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *get(VerifyCase *c, const char *key) { return json_object_get(c->json, key); }

double wf_verify_number(json_t *o, const char *key, double otherwise)
{
    json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* ---- comparison ---- */

VerifyGroup *wf_verify_group(VerifyCase *c, const char *name, double tolerance)
{
    for (int i = 0; i < c->n_groups; i++)
        if (!strcmp(c->groups[i].name, name))
            return &c->groups[i];
    if (c->n_groups == VERIFY_GROUPS)
        wf_fail(c->ctx, WF_E_CASE, "%s: more kinds of tensors are recorded than a case can have", c->dir);
    VerifyGroup *g = &c->groups[c->n_groups++];
    *g = (VerifyGroup){.name = wf_arena_strdup(c->a, name), .tolerance = tolerance};
    return g;
}

static double magnitude(const WfTensor *t)
{
    double m = 0;
    size_t n = t->bytes / wf_dtype_size(t->dtype);
    for (size_t i = 0; i < n; i++) {
        double v = fabs(wf_load_f64(t->dtype, (const char *)t->data + i * wf_dtype_size(t->dtype)));
        m = v > m ? v : m;
    }
    return m;
}

/* Largest magnitude of a group of expected tensors: names that begin with prefix. */
static double group_magnitude(VerifyCase *c, const char *prefix)
{
    double m = 0;
    for (int i = 0; i < c->expected->n; i++)
        if (!strncmp(c->expected->at[i].name, prefix, strlen(prefix))) {
            double v = magnitude(&c->expected->at[i]);
            m = v > m ? v : m;
        }
    return m;
}

static void compare(VerifyCase *c, VerifyGroup *g, const char *name, const WfTensor *want, const void *data, WfDtype dtype,
                    size_t n, double largest, double allowed_abs)
{
    size_t count = want->bytes / wf_dtype_size(want->dtype);
    double worst = 0, scale = 0.01 * largest;
    g->compared++;
    if (count != n) {
        g->failed = true;
        g->where = wf_arena_printf(c->a, "%s: %zu elements instead of %zu", name, n, count);
        g->worst = INFINITY;
        return;
    }
    bool exact = !wf_dtype_is_float(want->dtype);
    for (size_t i = 0; i < n; i++) {
        double a = wf_load_f64(want->dtype, (const char *)want->data + i * wf_dtype_size(want->dtype));
        double b = wf_load_f64(dtype, (const char *)data + i * wf_dtype_size(dtype));
        double d = isnan(a) && isnan(b) ? 0 : a == b ? 0 : fabs(a - b);
        if (isnan(d))
            d = INFINITY;
        worst = d > worst ? d : worst;
        if (isfinite(a) && fabs(a) > scale)
            scale = fabs(a);
        if (isfinite(b) && fabs(b) > scale)
            scale = fabs(b);
    }
    double rel = worst == 0 ? 0 : exact ? INFINITY : worst / (scale > 0 ? scale : 1);
    if (allowed_abs >= 0)
        rel = worst <= allowed_abs ? 0 : rel;
    if (rel > g->worst || !g->where) {
        g->worst = rel > g->worst ? rel : g->worst;
        g->where = wf_arena_strdup(c->a, name);
    }
    if (rel > g->tolerance)
        g->failed = true;
}

static double tolerance(VerifyCase *c, const char *key, double otherwise)
{
    json_t *t = get(c, "tolerance");
    return wf_verify_number(t, key, otherwise);
}

static void compare_scalars(VerifyCase *c, const char *name, const double *have, int n, double tol)
{
    const WfTensor *w = wf_tensors_find(c->expected, name);
    if (w && n)
        compare(c, wf_verify_group(c, name, tol), name, w, have, WF_F64, (size_t)n, magnitude(w), -1);
}

/* The largest value of a hyperparameter in the optimiser and its groups. */
static double most(VerifyCase *c, const char *key)
{
    size_t i;
    json_t *group;
    double v = wf_verify_number(get(c, "optimizer"), key, 0);
    json_array_foreach(get(c, "param_groups"), i, group)
        v = fmax(v, wf_verify_number(group, key, 0));
    return v;
}

/* How far one step can move a parameter whose gradient is noise of any size: lr times what the optimiser makes of a
 * gradient that is far larger than those before it, and what momentum adds to that later. */
static double largest_step(VerifyCase *c)
{
    size_t i;
    json_t *rate, *betas = json_object_get(get(c, "optimizer"), "betas");
    double lr = most(c, "lr"), alpha = most(c, "alpha"), momentum = most(c, "momentum");
    double first = json_number_value(json_array_get(betas, 0)), second = json_number_value(json_array_get(betas, 1));
    json_array_foreach(get(c, "lr_per_step"), i, rate)
        lr = fmax(lr, json_number_value(rate));
    return lr * fmax(1, (1 - first) / sqrt(fmax(1 - second, 1e-6))) / sqrt(fmax(1 - alpha, 1e-6)) / fmax(1 - momentum, 1e-6);
}

static double unstable_allowance(VerifyCase *c, const char *name)
{
    size_t i;
    json_t *u;
    json_array_foreach(get(c, "unstable_params"), i, u) {
        const char *p = json_is_string(u) ? json_string_value(u) : json_string_value(json_object_get(u, "param"));
        if (!p || strcmp(p, name))
            continue;
        double update = wf_verify_number(u, "update_abs", 0), steps = wf_verify_number(c->json, "steps", 1);
        return fmax(update, largest_step(c) * steps * 2); /* the two runs may have gone apart */
    }
    return -1;
}

static bool listed(VerifyCase *c, const char *key, const char *name)
{
    size_t i;
    json_t *v;
    json_array_foreach(get(c, key), i, v)
        if (json_is_string(v) && !strcmp(json_string_value(v), name))
            return true;
    return false;
}

static void compare_state(VerifyCase *c, int step)
{
    char prefix[2][32];
    snprintf(prefix[0], 32, "param%d.", step);
    if (c->ranks > 1)
        snprintf(prefix[1], 32, "buffer%d.rank%d.", step, c->rank);
    else
        snprintf(prefix[1], 32, "buffer%d.", step);
    for (int k = 0; k < 2; k++) {
        double m = group_magnitude(c, prefix[k]), tol = tolerance(c, "param_rtol", 1e-4);
        char *label = wf_arena_strndup(c->a, prefix[k], strlen(prefix[k]) - 1);
        for (int i = 0; i < c->expected->n; i++) {
            const WfTensor *w = &c->expected->at[i];
            const char *name = w->name + strlen(prefix[k]);
            WfTensor t;
            if (strncmp(w->name, prefix[k], strlen(prefix[k])) || (k && listed(c, "unstable_buffers", name)))
                continue;
            VerifyGroup *g = wf_verify_group(c, label, tol);
            if (!wf_session_tensor(c->s->run, name, &t)) {
                g->failed = true;
                g->where = wf_arena_printf(c->a, "%s: there is no such tensor", w->name);
                continue;
            }
            compare(c, g, w->name, w, t.data, t.dtype, t.bytes / wf_dtype_size(t.dtype), m,
                    k ? -1 : unstable_allowance(c, name));
        }
    }
}

/* The outputs of one role that the program's last run left, against the expected tensors of that prefix. */
static void compare_outputs(VerifyCase *c, WfProgramKind kind, WfExeOutRole role, const char *prefix, double tol)
{
    const WfExeProgram *p = &c->s->program->exe->program[kind];
    double largest = group_magnitude(c, wf_arena_printf(c->a, "%s.", prefix));
    for (int k = 0; k < p->n_outputs; k++) {
        WfTensor t;
        if (p->outputs[k].role != role)
            continue;
        char *name = wf_arena_printf(c->a, "%s.%s", prefix, p->outputs[k].name);
        if (c->ranks > 1 && !strcmp(prefix, "out"))
            name = wf_arena_printf(c->a, "%s.rank%d", name, c->rank);
        const WfTensor *w = wf_tensors_find(c->expected, name);
        wf_session_output(c->s->run, kind, k, &t);
        if (w && t.data)
            compare(c, wf_verify_group(c, prefix, tol), name, w, t.data, t.dtype,
                    t.bytes / wf_dtype_size(t.dtype), largest, -1);
    }
}

static void compare_gradients(VerifyCase *c)
{
    const WfExeProgram *p = &c->s->program->exe->program[WF_PROG_STEP];
    compare_outputs(c, WF_PROG_STEP, WF_XOUT_GRAD, "grad", tolerance(c, "grad_rtol", 1e-4));
    for (int i = 0; i < c->expected->n; i++) { /* what was recorded but did not come out */
        const char *name = c->expected->at[i].name;
        bool found = false;
        if (strncmp(name, "grad.", 5))
            continue;
        for (int k = 0; k < p->n_outputs; k++)
            found |= p->outputs[k].role == WF_XOUT_GRAD && !strcmp(p->outputs[k].name, name + 5);
        if (!found && magnitude(&c->expected->at[i]) != 0) { /* none or zero: what comes of it is compared in the parameters */
            VerifyGroup *g = wf_verify_group(c, "grad", tolerance(c, "grad_rtol", 1e-4));
            g->failed = true;
            g->where = wf_arena_printf(c->a, "%s: no gradient", name);
        }
    }
}

/* ---- replay ---- */

/* micro: of the step's micro-batches; -1: it has none. */
static void feed(VerifyCase *c, int step, int micro)
{
    size_t i;
    json_t *in;
    json_array_foreach(get(c, "inputs"), i, in) {
        const char *name = json_string_value(json_object_get(in, "name"));
        char *rank = c->ranks > 1 ? wf_arena_printf(c->a, "rank%d.", c->rank) : "";
        char *part = micro < 0 ? "" : wf_arena_printf(c->a, "micro%d.", micro);
        char *key = wf_arena_printf(c->a, "step%d.%s%s%s", step, rank, part, name ? name : "");
        const WfTensor *t = wf_tensors_find(c->inputs, key);
        if (!name || !t)
            wf_fail(c->ctx, WF_E_CASE, "%s/inputs.safetensors: %s is missing", c->dir, key);
        wf_session_feed(c->s->run, name, t);
    }
}

/* All micro-batches of step t but the last; their losses into out[0 .. K - 1). The first has the recorded outputs. */
static void micro_batches(VerifyCase *c, int t, int k, double *out)
{
    for (int m = 0; m + 1 < k; m++) {
        feed(c, t, m);
        wf_session_micro(c->s->run);
        out[m] = wf_session_loss(c->s->run);
        if (t == 1 && m == 0)
            compare_outputs(c, WF_PROG_MICRO, WF_XOUT_USER, "out", tolerance(c, "grad_rtol", 1e-4));
    }
}

static void replay(VerifyCase *c)
{
    int k = wf_session_micro_batches(c->s->run);
    int steps = (int)wf_verify_number(c->json, "steps", 0);
    double *loss = WF_NEWN(c->a, double, (size_t)steps + 1), *mean = WF_NEWN(c->a, double, (size_t)steps + 1);
    double *norm = WF_NEWN(c->a, double, (size_t)steps + 1);
    double *micro = WF_NEWN(c->a, double, wf_mul_size((size_t)steps + 1, (size_t)k));
    json_t *rates = get(c, "lr_per_step");
    double lr = wf_verify_number(get(c, "optimizer"), "lr", 0);
    wf_session_set_lr(c->s->run, lr);
    for (int t = 1; t <= steps; t++) {
        if (json_is_array(rates))
            wf_session_set_lr(c->s->run, json_number_value(json_array_get(rates, (size_t)t - 1)));
        micro_batches(c, t, k, &micro[(t - 1) * k]);
        feed(c, t, k > 1 ? k - 1 : -1);
        wf_session_step(c->s->run);
        mean[t - 1] = loss[t - 1] = micro[t * k - 1] = wf_session_loss(c->s->run);
        wf_session_metric(c->s->run, WF_PROG_STEP, "mean_loss", &mean[t - 1]); /* over micro-batches and ranks */
        wf_session_metric(c->s->run, WF_PROG_STEP, "grad_norm", &norm[t - 1]);
        if (t == 1 && k == 1)
            compare_outputs(c, WF_PROG_STEP, WF_XOUT_USER, "out", tolerance(c, "grad_rtol", 1e-4));
        if (t == 1)
            compare_gradients(c);
        if (t == 1 || t == steps)
            compare_state(c, t);
    }
    compare_scalars(c, "loss", mean, steps, tolerance(c, "loss_rtol", 1e-4));
    compare_scalars(c, "loss_micro", micro, steps * k, tolerance(c, "loss_rtol", 1e-4));
    if (c->ranks > 1)
        compare_scalars(c, wf_arena_printf(c->a, "loss.rank%d", c->rank), loss, steps, tolerance(c, "loss_rtol", 1e-4));
    compare_scalars(c, "grad_norm", norm, steps, tolerance(c, "grad_rtol", 1e-4));
}

/* ---- the evaluation form ---- */

/* Parameters and buffers get the recorded values of the last step, so that what is compared is the form alone. */
static void take_state(VerifyCase *c, int step)
{
    for (int k = 0; k < 2; k++) {
        char *prefix = wf_arena_printf(c->a, "%s%d.", k ? "buffer" : "param", step);
        for (int i = 0; i < c->expected->n; i++) {
            const WfTensor *w = &c->expected->at[i];
            WfTensor t;
            if (!strncmp(w->name, prefix, strlen(prefix)) && wf_session_tensor(c->s->run, w->name + strlen(prefix), &t) &&
                t.dtype == w->dtype && t.bytes == w->bytes)
                memcpy((void *)(uintptr_t)t.data, w->data, w->bytes);
        }
    }
}

static void evaluate(VerifyCase *c)
{
    bool recorded = false;
    for (int i = 0; i < c->expected->n; i++)
        recorded |= !strncmp(c->expected->at[i].name, "eval.", 5);
    if (!recorded)
        return;
    take_state(c, (int)wf_verify_number(c->json, "steps", 0));
    feed(c, 1, wf_session_micro_batches(c->s->run) > 1 ? 0 : -1);
    wf_session_forward(c->s->run, true);
    compare_outputs(c, WF_PROG_EVAL, WF_XOUT_USER, "eval", tolerance(c, "eval_rtol", 1e-5));
    compare_outputs(c, WF_PROG_EVAL, WF_XOUT_LOSS, "eval", tolerance(c, "eval_rtol", 1e-5));
}

/* ---- statistical cases (dropout) ---- */

static void must(VerifyCase *c, VerifyGroup *g, bool ok, const char *what)
{
    g->compared++;
    if (!ok) {
        g->failed = true;
        g->worst = INFINITY;
        g->where = wf_arena_strdup(c->a, what);
    }
}

static void statistical(VerifyCase *c)
{
    json_t *k = get(c, "checks"), *frac = json_object_get(k, "zero_fraction"), *mean = json_object_get(k, "loss_mean");
    VerifyGroup *g = wf_verify_group(c, "statistics", 0);
    int64_t index = (int64_t)wf_verify_number(k, "output_index", 1);
    double p = wf_verify_number(k, "p", 0), value = wf_verify_number(k, "nonzero_value", 0), rtol = wf_verify_number(k, "nonzero_rtol", 1e-6);
    double sum = 0, *first = NULL;
    bool differ = false;
    for (int run = 0; run < 2; run++) {
        const WfExeProgram *prog = &c->s->program->exe->program[WF_PROG_STEP];
        WfTensor t = {0}, w = {0};
        feed(c, 1, -1);
        wf_session_set_step(c->s->run, run);
        wf_session_forward(c->s->run, false);
        sum += wf_session_loss(c->s->run) / 2;
        for (int o = 0; o < prog->n_outputs; o++) {
            if (prog->outputs[o].role == WF_XOUT_USER && atoll(prog->outputs[o].name) == index)
                wf_session_output(c->s->run, WF_PROG_STEP, o, &t);
            if (prog->outputs[o].role == WF_XOUT_GRAD)
                wf_session_output(c->s->run, WF_PROG_STEP, o, &w);
        }
        if (!t.data)
            wf_fail(c->ctx, WF_E_CASE, "%s: there is no output %lld", c->dir, (long long)index);
        size_t n = t.bytes / wf_dtype_size(t.dtype), zero = 0, cols = (size_t)t.shape[t.rank - 1];
        double *now = WF_NEWN(c->a, double, n);
        double *kept = WF_NEWN(c->a, double, cols);
        bool values = true;
        for (size_t i = 0; i < n; i++) {
            now[i] = wf_load_f64(t.dtype, (const char *)t.data + i * wf_dtype_size(t.dtype));
            zero += now[i] == 0;
            kept[i % cols] += now[i] != 0;
            values &= now[i] == 0 || fabs(now[i] - value) <= rtol * fabs(value);
            differ |= first && first[i] != now[i];
        }
        double f = (double)zero / (double)n;
        must(c, g, f >= json_number_value(json_array_get(frac, 0)) && f <= json_number_value(json_array_get(frac, 1)),
             wf_arena_printf(c->a, "a fraction of %.4f is zero", f));
        must(c, g, values, "a kept value is not scaled by 1 / (1 - p)");
        bool same_mask = w.data && w.bytes / wf_dtype_size(w.dtype) == cols; /* backward uses the forward's mask */
        for (size_t j = 0; same_mask && j < cols; j++) {
            double want = kept[j] / (1 - p) / (double)n;
            double have = wf_load_f64(w.dtype, (const char *)w.data + j * wf_dtype_size(w.dtype));
            same_mask = fabs(want - have) <= 1e-5 * fabs(want) + 1e-12;
        }
        if (json_object_get(k, "grad_w"))
            must(c, g, same_mask, "the backward pass does not use the forward's mask");
        first = now;
    }
    if (json_is_true(json_object_get(k, "runs_differ")))
        must(c, g, differ, "two steps drew the same mask");
    must(c, g, sum >= json_number_value(json_array_get(mean, 0)) && sum <= json_number_value(json_array_get(mean, 1)),
         wf_arena_printf(c->a, "the mean loss is %.5f", sum));
}

/* ---- report ---- */

static bool passed(const VerifyCase *c)
{
    bool ok = c->n_groups > 0;
    for (int i = 0; i < c->n_groups; i++)
        ok &= !c->groups[i].failed;
    return ok;
}

static void print_table(VerifyCase *c, const char *name)
{
    bool ok = passed(c);
    printf("%s %s\n", ok ? "ok  " : "FAIL", name);
    for (int i = 0; i < c->n_groups; i++) {
        const VerifyGroup *g = &c->groups[i];
        printf("  %-11s %3d compared  worst %.2e  allowed %.0e  %s%s\n", g->name, g->compared, g->worst, g->tolerance,
               g->failed ? "FAILED at " : "at ", g->where ? g->where : "-");
    }
}

static json_t *result_json(VerifyCase *c, const char *name)
{
    json_t *groups = json_object();
    for (int i = 0; i < c->n_groups; i++) {
        const VerifyGroup *g = &c->groups[i];
        json_object_set_new(groups, g->name,
                            json_pack("{sf sf si sb ss}", "worst", isfinite(g->worst) ? g->worst : 1e308, "tolerance",
                                      g->tolerance, "compared", g->compared, "ok", !g->failed, "at",
                                      g->where ? g->where : ""));
    }
    return json_pack("{ss sb so}", "case", name, "ok", passed(c), "groups", groups);
}

static const char *unavailable(VerifyCase *c)
{
    if (get(c, "amp"))
        return "mixed precision is not available yet";
    return NULL;
}

static void run_case(VerifyCase *c, const WfOptions *given)
{
    if (!wf_file_exists(wf_arena_printf(c->a, "%s/case.json", c->dir)))
        wf_fail_at(c->ctx, WF_E_CASE, c->dir, "tools/record.py makes one of a model and its batches (docs/cases.md).",
                   "a case is a folder with a case.json, and this is %s", wf_file_exists(c->dir) ? "none" : "not there");
    WfFile *f = wf_file_map(c->ctx, c->a, wf_arena_printf(c->a, "%s/case.json", c->dir));
    c->json = (json_t *)wf_json_parse(c->ctx, (const char *)f->at, f->size, f->path);
    const char *model = json_string_value(get(c, "model")), *why = unavailable(c);
    if (why)
        wf_fail(c->ctx, WF_E_MODEL_FORM, "%s: %s", c->dir, why);
    if (!model)
        wf_fail(c->ctx, WF_E_CASE, "%s/case.json: model is missing", c->dir);
    c->ranks = (int)wf_verify_number(c->json, "data_parallel", 1);
    c->rank = c->comm ? wf_comm_rank(c->comm) : 0;
    if (c->ranks < 1 || c->ranks > WF_COMM_MAX_LOCAL || (c->comm && wf_comm_size(c->comm) != c->ranks))
        wf_fail(c->ctx, WF_E_STEP_RANKS, "%s was recorded with %d ranks", c->dir, c->ranks);
    c->inputs = wf_safetensors_open(c->ctx, c->a, wf_arena_printf(c->a, "%s/inputs.safetensors", c->dir));
    c->expected = wf_safetensors_open(c->ctx, c->a, wf_arena_printf(c->a, "%s/expected.safetensors", c->dir));
    char *path = wf_arena_printf(c->a, "%s/%s", c->dir, model);
    weft_program *p = wf_open(c->ctx, path);
    p->options = *given;
    wf_case_options(c->ctx, c->a, c->json, c->dir, &p->options);
    p->options.nproc = c->ranks;
    wf_program_open_model(p, path);
    if (c->ranks > 1 && !c->comm) {
        wf_program_compile(p); /* once, for all */
        weft_program_free(p);
        wf_verify_by_ranks(c);
        return;
    }
    c->s = wf_start(p);
    if (c->comm)
        wf_session_join(c->s->run, c->comm);
    if (json_string_value(get(c, "kind")) && !strcmp(json_string_value(get(c, "kind")), "statistical"))
        statistical(c);
    else
        replay(c);
    evaluate(c);
    if (c->comm)
        wf_verify_put_together(c);
}

typedef struct { VerifyCase c; const WfOptions *o; } Attempt;
static void attempt(void *v) { run_case(&((Attempt *)v)->c, ((Attempt *)v)->o); }

static void put_json(WfCtx *ctx, const WfOptions *o, json_t *result)
{
    char *text = json_dumps(result, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    if (!text)
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    if (o->out)
        wf_write_file(ctx, o->out, text, strlen(text));
    else
        puts(text);
    free(text);
}

int wf_cli_verify(WfCtx *ctx, const WfOptions *given, const WfStrings *words)
{
    WfOptions options = *given, *o = &options;
    WfComm *comm = wf_cli_join(ctx, o);
    bool speaks = !comm || wf_comm_rank(comm) == 0;
    int failed = 0;
    json_t *all = json_array();
    if (words->n < 1)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name a case folder; docs/cases.md describes them");
    for (int i = 0; i < words->n; i++) {
        Attempt t = {.c = {.ctx = ctx, .a = ctx->arena, .dir = words->at[i], .words = words, .comm = comm}, .o = o};
        weft_status s = wf_guard(ctx, attempt, &t);
        if (s == WEFT_ERR_CANCELLED || (s != WEFT_OK && (comm || (words->n == 1 && !o->json))))
            wf_reraise(ctx, s);
        if (s != WEFT_OK) {
            failed++;
            json_array_append_new(all, json_pack("{ss sb ss ss ss}", "case", words->at[i], "ok", 0, "kind",
                                                 wf_status_name(s), "code", weft_code((weft_context *)ctx), "error", ctx->diag.message));
            if (!o->json)
                printf("FAIL %s\n  error: %s\n  %s\n", words->at[i], ctx->diag.message,
                       ctx->diag.place ? ctx->diag.place : "");
            continue;
        }
        failed += !passed(&t.c);
        json_array_append_new(all, result_json(&t.c, words->at[i]));
        if (!o->json && speaks)
            print_table(&t.c, words->at[i]);
        if (t.c.s)
            weft_program_free(t.c.s->program);
    }
    if (o->json && speaks)
        put_json(ctx, o, words->n == 1 ? json_array_get(all, 0) : all);
    json_decref(all);
    bool ok = !failed || !speaks || (comm && o->out); /* what a launcher of verify wants is in the file */
    wf_comm_close(comm);
    return ok ? 0 : 1;
}
