/* Evaluation: the evaluation form over all rows of a dataset, each once, shared among the ranks; which one was the best, and
 * whether it is time to stop. */
#include "train/loop.h"

#include <math.h>
#include <string.h>

bool wf_loop_speaks(const WfLoop *l) { return l->ranks > 1 && wf_exe_speaks(l->t->exe, WF_PROG_EVAL); }

static void check_rounds(const WfLoop *l, const WfDataset *d)
{
    if (wf_loop_speaks(l) && d->samples % (l->batch * l->ranks))
        wf_fail_at(l->t->ctx, WF_E_UNEVEN, NULL, "Leave out or add rows of --eval-data, or choose another --batch-size.",
                   "the model's forward pass has collectives, so all ranks evaluate together, but %lld rows are no multiple "
                   "of %lld ranks x %lld",
                   (long long)d->samples, (long long)l->ranks, (long long)l->batch);
}

/* Fills m with what the first `most` rows of d give. */
static void evaluate(WfLoop *l, const WfDataset *d, WfMetrics *m, int64_t most)
{
    int64_t samples = most < d->samples ? most : d->samples;
    check_rounds(l, d);
    int64_t ignore = wf_metrics_ignored(l->t->exe, l->t->arena);
    WfTensor *inputs = WF_NEWN(l->t->arena, WfTensor, (size_t)l->t->exe->n_inputs + 1);
    wf_metrics_begin(m);
    /* each rank its batches, in parts of its own size */
    for (int64_t at = l->rank * l->batch; at < samples; at += l->rows + ((at + l->rows) % l->batch ? 0 : l->batch * (l->ranks - 1))) {
        int64_t valid = samples - at < l->rows ? samples - at : l->rows;
        int64_t count = wf_exe_fits(l->t->exe, valid) ? valid : l->rows;
        wf_check_cancel(l->t->ctx);
        for (int64_t i = 0; i < count; i++)
            l->index[i] = at + (i < valid ? i : 0); /* padding: the first row again */
        wf_loop_read(l, d, valid);
        l->fed.data = d;
        l->fed.first = 0;
        wf_loop_tensors(l, d, count, inputs);
        wf_metrics_run(m, l->t->session, &(WfMeasured){l->t->exe, inputs, count, valid, valid, ignore});
    }
    wf_metrics_finish(m, l->t->comm);
}

typedef struct { WfLoop *l; const WfDataset *d; WfMetrics *m; } Job;

static void evaluate_all(void *p)
{
    Job *j = p;
    evaluate(j->l, j->d, j->m, INT64_MAX);
}

WfMetrics *wf_evaluate(WfTraining *t, const WfDataset *d)
{
    WfLoop l = {.t = t, .data = (WfDataset *)d, .ranks = 1};
    WfMetrics *m = wf_metrics_new(t->ctx, t->arena, t->options->metrics, t->options->best_metric);
    l.inputs = wf_train_inputs(t->arena, t->exe, &l.n_inputs);
    l.batch = l.rows = wf_exe_batch(t->ctx, t->exe, t->options);
    wf_loop_allocate(&l);
    Job job = {&l, d, m};
    weft_status s = wf_guard(t->ctx, evaluate_all, &job);
    if (s != WEFT_OK) {
        WfCaught f = wf_train_failure(t, s);
        wf_train_fail(t, &f, l.fed.data, l.fed.data ? wf_loop_fed(&l) : NULL);
    }
    return m;
}

void wf_loop_try_metrics(WfLoop *l)
{
    if (l->eval && l->t->options->metrics && !wf_loop_speaks(l))
        evaluate(l, l->eval, l->measured, l->batch * l->ranks);
}

/* Takes note of the evaluation; is it the best so far? */
static bool judge(WfLoop *l, const char **name)
{
    double score = wf_metrics_score(l->measured, name);
    bool same = l->mark.best_metric && !strcmp(l->mark.best_metric, *name); /* another was watched before this run was resumed */
    bool better = !l->mark.evaluated || !same || score > l->mark.best;
    l->mark.stale = better ? 0 : l->mark.stale + 1;
    if (better) {
        l->mark.best = isnan(score) ? -INFINITY : score;
        l->mark.best_step = l->mark.step;
        l->mark.best_metric = *name;
    }
    l->mark.evaluated = true;
    return better;
}

void wf_loop_evaluate(WfLoop *l)
{
    const char *watched;
    if (!l->eval)
        return;
    evaluate(l, l->eval, l->measured, INT64_MAX);
    bool better = judge(l, &watched);
    WfArena *a = wf_arena_scratch(l->t->ctx);
    WfStr s = {.arena = a}, text = {.arena = a};
    WfScalar *shown = WF_NEWN(a, WfScalar, (size_t)wf_metrics_count(l->measured) + 1);
    int n = 0;
    wf_str_putc(&s, '{');
    wf_loop_number(&s, "step", (double)l->mark.step);
    for (int i = 0; i < wf_metrics_count(l->measured); i++) {
        const char *name = wf_metrics_name(l->measured, i);
        double v = wf_metrics_value(l->measured, i);
        if (!isfinite(v) && strcmp(name, "loss"))
            continue;
        wf_loop_number(&s, wf_arena_printf(a, "eval_%s", name), v);
        if (better && !strcmp(name, watched))
            l->best_value = v;
        shown[n++] = (WfScalar){wf_arena_printf(a, "eval/%s", name), v};
        bool share = !strcmp(name, "accuracy") || !strncmp(name, "top", 3);
        wf_str_printf(&text, share ? "  %s %.2f %%" : "  %s %.4f", name, share ? v * 100 : v);
    }
    wf_loop_metrics(l, &s);
    wf_events_add(l->events, l->mark.step, shown, n, true);
    if (!l->rank) {
        wf_loop_break_line(l);
        fprintf(stderr, "      eval:%s  (%lld samples)%s\n", text.at ? text.at + 1 : "", (long long)l->eval->samples,
                better ? "  best so far" : "");
    }
    wf_arena_free(a);
    if (better && l->t->options->out && !l->rank)
        l->t->save(l->t->user, wf_loop_path(l, "best.safetensors"));
    wf_loop_check_patience(l);
}

void wf_loop_check_patience(WfLoop *l)
{
    int64_t patience = l->t->options->early_stop;
    if (!patience || l->mark.stale < patience)
        return;
    l->stopped = true;
    wf_loop_break_line(l);
    if (!l->rank)
        fprintf(stderr, "stopped early after step %lld: %s was best after step %lld, %lld evaluations ago\n", (long long)l->mark.step,
                l->mark.best_metric, (long long)l->mark.best_step, (long long)l->mark.stale);
}
