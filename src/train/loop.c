/* The loop: order of visits per epoch, learning rate per step, one metrics line per step, evaluation (evaluate.c) after each
 * epoch and at the end, best and final weights. Large batches are gathered ahead by a thread (ahead.c). Nothing is left
 * half-written: the metrics file grows by whole lines, weights are written beside and renamed. */
#include "train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Part `part` of the rank's batch `own` of an epoch, which in the last step may hold fewer samples than others, or none. */
static void next_part(WfLoop *l, const WfOrder *order, int64_t own, int64_t part)
{
    int64_t batch = wf_share_batch((WfShare){l->rank, l->ranks, l->micro}, own), first = part * l->rows;
    int64_t left = l->data->samples - batch * l->batch - first;
    int64_t valid = left < 0 ? 0 : left < l->rows ? left : l->rows, count = l->cut && valid ? valid : l->rows;
    double begin = wf_now();
    if (part == 0 && l->ahead) {
        l->buffer = wf_ahead_next(l->ahead); /* evaluation may use it, too: it is this thread's until the next batch */
    } else if (part == 0) {
        wf_order_batch(order, batch, l->batch, l->index);
        wf_loop_read(l, l->data, l->batch);
    }
    l->waited += wf_now() - begin;
    l->fed.order = *order;
    l->fed.batch = batch;
    wf_loop_hand_in(l, l->data, first, count);
    if (valid < count)
        wf_session_set_rows(l->t->session, valid);
    if (!l->first_step)
        l->first_step = wf_now();
}

static void one_step(WfLoop *l, const WfOrder *order, int64_t step, double *commit)
{
    WfSession *s = l->t->session;
    const WfOptions *o = l->t->options;
    double lr = l->t->lr, norm = NAN, count;
    l->waited = 0;
    if (l->schedule) {
        const WfMicroRow *row = wf_micro_begin(l->schedule, l->t, l->mark.step);
        l->rows = row->rows;
        l->parts = l->batch / row->rows;
    }
    for (int64_t m = 0, all = l->micro * l->parts; m < all; m++) {
        next_part(l, order, step * l->micro + m / l->parts, m % l->parts);
        if (m + 1 == all)
            break;
        wf_session_micro(s);
        wf_check_cancel(l->t->ctx);
    }
    lr = wf_schedule_lr_from(o, lr, l->mark.before + l->mark.step + 1, l->mark.before + l->total);
    wf_session_set_lr(s, lr);
    if (!o->reduce)
        wf_session_set_reduce(s, wf_bench_reduces(l->mark.step));
    wf_session_step(s);
    double now = wf_now(), ms = (now - *commit) * 1e3, loss = wf_session_loss(s);
    *commit = now;
    if (l->t->step_ms)
        l->t->step_ms[l->mark.step] = ms;
    l->mark.step++;
    wf_session_metric(s, WF_PROG_STEP, "grad_norm", &norm);
    wf_session_metric(s, WF_PROG_STEP, "mean_loss", &loss); /* over micro-batches and ranks */
    if (!isfinite(loss) && !l->told_nan && !l->rank)
        wf_log(l->t->ctx, WF_LOG_WARN, "the loss of step %lld is %s; --check-finite stops there and names the node that made it",
               (long long)l->mark.step, isnan(loss) ? "nan" : "infinite");
    l->told_nan |= !isfinite(loss);
    if (o->check_replicas && l->mark.step % o->check_replicas == 0)
        wf_session_compare(s, false);
    if (l->metrics) {
        WfArena *a = wf_arena_scratch(l->t->ctx);
        double rss = wf_loop_rss_mb();
        WfStr line = {.arena = a};
        wf_str_putc(&line, '{');
        wf_loop_number(&line, "step", (double)l->mark.step);
        wf_loop_number(&line, "loss", loss);
        if (wf_session_metric(s, WF_PROG_STEP, "loss_count", &count))
            wf_loop_number(&line, "loss_count", count); /* what its mean is over */
        wf_loop_number(&line, "lr", lr);
        wf_loop_number(&line, "grad_norm", norm);
        wf_loop_number(&line, "step_ms", ms);
        wf_loop_number(&line, "data_ms", l->waited * 1e3); /* of step_ms: waiting for data */
        wf_loop_number(&line, "rss_mb", rss);
        for (int i = 0; l->schedule && i < l->ranks; i++)
            wf_str_printf(&line, "%s%lld%s", i ? ", " : ", \"micro_batch\": [", (long long)l->schedule->chosen[i], i + 1 < l->ranks ? "" : "]");
        if (l->mark.step == l->from + 1)
            wf_loop_number(&line, "start_to_step_s", l->first_step - wf_process_start());
        wf_loop_metrics(l, &line);
        const WfScalar values[] = {{"train/loss", loss}, {"train/lr", lr}, {"train/grad_norm", norm}, {"perf/step_ms", ms},
                                   {"perf/data_ms", l->waited * 1e3}, {"mem/rss_mb", rss}};
        wf_events_add(l->events, l->mark.step, values, WF_LEN(values), l->mark.step == l->from + 1 || l->mark.step == l->total);
        wf_arena_free(a);
    }
    wf_loop_progress(l, loss, norm, lr, ms);
}

static WfRun run_of(const WfTraining *t, const char *folder)
{
    return (WfRun){t->ctx, t->arena, t->exe, t->session, t->comm, t->options, folder, (int)t->options->keep_checkpoints};
}

static void checkpoint(WfLoop *l)
{
    l->mark.micro_batch = l->schedule ? l->schedule->chosen : NULL;
    WfRun run = run_of(l->t, l->t->options->out);
    wf_checkpoint_save(&run, &l->mark);
    l->saved = l->mark.step;
}

static void evaluate_epoch(WfLoop *l)
{
    wf_loop_evaluate(l);
    l->mark.evaluation_due = false;
}

static void epochs(void *v)
{
    WfLoop *l = v;
    const WfOptions *o = l->t->options;
    if (l->mark.evaluation_due)
        evaluate_epoch(l);
    double commit = wf_now();
    for (int64_t epoch = l->mark.step / l->per_epoch; l->mark.step < l->total && !l->stopped; epoch++) {
        WfOrder order = wf_order(l->data->samples, (uint64_t)o->seed, epoch, o->shuffle);
        l->epoch = epoch;
        for (int64_t b = l->mark.step % l->per_epoch; b < l->per_epoch && l->mark.step < l->total && !l->stopped; b++) {
            l->together = true;
            wf_ranks_check_cancel(l->t);
            l->together = l->ranks == 1;
            one_step(l, &order, b, &commit);
            l->mark.evaluation_due = b + 1 == l->per_epoch || l->mark.step == l->total;
            if (l->mark.evaluation_due)
                evaluate_epoch(l);
            if (o->checkpoint_every && l->mark.step % o->checkpoint_every == 0)
                checkpoint(l);
            if (l->saved == l->mark.step || b + 1 == l->per_epoch)
                commit = wf_now();
        }
    }
    l->together = true;
}

/* Takes up the run of --resume, if there is one. */
static void resume(WfLoop *l)
{
    const WfOptions *o = l->t->options;
    WfRun run = run_of(l->t, o->resume);
    bool found = o->resume && wf_checkpoint_load(&run, &l->mark);
    l->from = l->mark.step;
    l->saved = found ? l->from : -1;
    if (o->resume && !l->rank && found)
        fprintf(stderr, "resumed from %s after step %lld%s\n", o->resume, (long long)l->from,
                l->from >= l->total ? ": the run is finished" : "");
    else if (o->resume && !l->rank)
        fprintf(stderr, "%s holds no checkpoint: starting at step 0\n", o->resume);
}

/* Steps of an epoch, and what is to become of samples that do not fill the last of them. */
static void plan_epochs(WfLoop *l)
{
    WfCtx *ctx = l->t->ctx;
    int64_t samples = l->data->samples, batches = l->micro * l->ranks, rest = samples % l->batch;
    l->cut = !strcmp(wf_exe_option(l->t->exe, l->t->arena, "last-batch"), "short");
    l->per_epoch = samples / l->batch / batches;
    if (strcmp(wf_exe_option(l->t->exe, l->t->arena, "last-batch"), "drop"))
        l->per_epoch += samples > l->per_epoch * l->batch * batches;
    bool fit = !rest || wf_exe_fits(l->t->exe, rest);
    for (int i = 0; l->schedule && i < l->schedule->table->rows.n; i++) {
        int64_t n = rest % l->schedule->table->rows.at[i].rows;
        fit &= !n || wf_exe_fits(l->t->exe, n);
    }
    if (l->cut && !fit) {
        int64_t lo = l->batch, hi;
        if (l->t->exe->n_symbols)
            wf_exe_sizes(&l->t->exe->symbols[0], &lo, &hi);
        wf_fail_at(ctx, WF_E_LAST_BATCH, NULL,
                   "Export it with dynamic_shapes={'x': {0: torch.export.Dim('batch', min=1)}, ...}, or use --last-batch=pad.",
                   "--last-batch short: the last batch of an epoch has %lld samples, and the export allows %lld%s", (long long)rest,
                   (long long)lo, l->t->exe->n_symbols ? " and more, in its steps" : " only");
    }
    if (l->cut && wf_loop_speaks(l) && samples % (l->batch * batches))
        wf_fail_at(ctx, WF_E_LAST_BATCH, NULL, "Use --last-batch=pad or drop.",
                   "--last-batch short: the model's forward pass has collectives, which need batches of one size on all ranks");
    const char *more = "Choose a smaller --batch-size, or --last-batch pad, which fills the step up; or give more data.";
    if (!l->per_epoch && l->micro > 1)
        wf_fail_at(ctx, WF_E_FEW_SAMPLES, NULL, more, "%lld samples do not fill one step of %lld batches of %lld%s", (long long)samples,
                (long long)l->micro, (long long)l->batch, l->ranks > 1 ? " on every rank" : "");
    if (!l->per_epoch)
        wf_fail_at(ctx, WF_E_FEW_SAMPLES, NULL, more, "%lld samples do not fill one batch of %lld%s", (long long)samples,
                (long long)(l->batch * l->ranks), l->ranks > 1 ? " (the batches of all ranks together)" : "");
}

/* What is left of a run that ends: its weights, and a checkpoint where all ranks are at the same place. */
static void keep(void *v)
{
    WfLoop *l = v;
    const WfTraining *t = l->t;
    const WfOptions *o = t->options;
    if (o->checkpoint_every && l->together && l->saved != l->mark.step && l->mark.step)
        checkpoint(l);
    if (!o->out || l->rank)
        return;
    t->save(t->user, wf_loop_path(l, "final.safetensors"));
    if (o->save_optimizer)
        wf_optimizer_save(t->ctx, t->exe, t->session, wf_loop_path(l, "optimizer.safetensors"));
    if (!l->mark.evaluated)
        t->save(t->user, wf_loop_path(l, "best.safetensors"));
}

static void tell_kept(WfLoop *l)
{
    const WfOptions *o = l->t->options;
    if (!l->rank)
        fprintf(stderr, "stopped after step %lld%s%s%s\n", (long long)l->mark.step, o->out ? "; weights are in " : "",
                o->out ? wf_loop_path(l, "final.safetensors") : "", l->saved == l->mark.step ? "; --resume goes on from there" : "");
}

/* Where data or values do not let a run go on, or another rank fails, the last whole step is kept, too: what fails before the commit
 * point has changed nothing. What goes wrong meanwhile does not take the failure's place. */
static void keep_after(WfLoop *l, weft_status s)
{
    bool torn = l->ranks > 1 && !strcmp(wf_exe_option(l->t->exe, l->t->arena, "update"), "early"); /* some gradients were used, others never came */
    bool whole = s == WEFT_ERR_DATA || s == WEFT_ERR_NUMERIC || (s == WEFT_ERR_RANK && !torn);
    wf_loop_break_line(l);
    l->together = l->ranks == 1;
    if (whole && l->mark.step > l->from && l->t->options->out && wf_guard(l->t->ctx, keep, l) == WEFT_OK)
        tell_kept(l);
}

void wf_train(WfTraining *t)
{
    const WfOptions *o = t->options;
    WfLoop l = {.t = t, .mark = {.best = -INFINITY}, .best_value = NAN, .ranks = 1};
    if (o->checkpoint_every && !o->out)
        wf_fail_at(t->ctx, WF_E_ARGUMENT_MISSING, NULL, "Add --out DIR.", "option checkpoint-every: there is no folder to write to");
    if (t->comm) {
        l.rank = wf_comm_rank(t->comm);
        l.ranks = wf_comm_size(t->comm);
        wf_session_join(t->session, t->comm);
    }
    l.inputs = wf_train_inputs(t->arena, t->exe, &l.n_inputs);
    l.data = wf_dataset_open(t->ctx, t->arena, o, WF_DATA_TRAIN, l.inputs, l.n_inputs);
    if (o->eval_data.n)
        l.eval = wf_dataset_open(t->ctx, t->arena, o, WF_DATA_EVAL, l.inputs, l.n_inputs);
    l.measured = wf_metrics_new(t->ctx, t->arena, o->metrics, o->best_metric);
    if (!l.eval && (o->metrics || o->best_metric || o->early_stop))
        wf_fail_at(t->ctx, WF_E_OPTION_MEANINGLESS, NULL, "Name the data to evaluate with by --eval-data.",
                   "option %s: nothing is evaluated", o->early_stop ? "early-stop" : o->best_metric ? "best-metric" : "metrics");
    if (o->check_finite)
        wf_dataset_check_finite(l.data);
    if (o->check_finite && l.eval)
        wf_dataset_check_finite(l.eval);
    l.batch = wf_exe_batch(t->ctx, t->exe, o);
    wf_ranks_agree(t, l.data, l.batch);
    l.schedule = wf_micro_new(t->ctx, t->arena, t, l.data, l.batch);
    l.micro = wf_session_micro_batches(t->session);
    l.parts = 1;
    l.rows = l.batch;
    plan_epochs(&l);
    l.total = o->steps ? o->steps : (o->epochs ? o->epochs : 1) * l.per_epoch;
    l.mark.samples = l.data->samples;
    l.mark.step_rows = l.batch * l.micro * l.ranks;
    l.mark.epoch_steps = l.per_epoch;
    l.mark.total = l.total;
    l.mark.recipe = l.data->learned ? wf_hash64(l.data->learned, strlen(l.data->learned), 0) : 0;
    if (o->checkpoint_every || o->resume)
        l.mark.data = wf_dataset_fingerprint(l.data);
    l.mark.before = wf_session_steps(t->session);
    resume(&l);
    wf_loop_banner(&l);
    if (o->dry_run) /* all that can be known is told */
        return;
    wf_loop_allocate(&l);
    wf_loop_try_metrics(&l);
    wf_loop_check_patience(&l);
    wf_loop_open_out(&l);
    WfArena *scratch = wf_arena_scratch(t->ctx); /* the thread ends with it, on every road */
    wf_loop_start_ahead(&l, scratch);
    weft_status s = wf_guard(t->ctx, epochs, &l);
    wf_arena_free(scratch);
    WfCaught failure = {0};
    if (s == WEFT_OK || s == WEFT_ERR_CANCELLED) { /* also on Ctrl-C: the last whole step is kept */
        keep(&l);
        wf_loop_summary(&l);
        if (s == WEFT_ERR_CANCELLED)
            tell_kept(&l);
    } else {
        failure = wf_train_failure(t, s);
        keep_after(&l, s);
    }
    wf_events_close(l.events);
    if (l.metrics)
        fclose(l.metrics);
    if (l.metrics && !l.mark.step) /* an empty file would keep the folder from being used again */
        unlink(wf_loop_path(&l, "metrics.jsonl"));
    if (s == WEFT_ERR_CANCELLED)
        wf_reraise(t->ctx, s);
    if (s != WEFT_OK)
        wf_train_fail(t, &failure, l.fed.data, l.fed.data ? wf_loop_fed(&l) : NULL);
}
