/* The loop: order of visits per epoch, learning rate per step, one metrics line per step, evaluation after each epoch and
 * at the end, best and final weights. Large batches are gathered ahead by a thread (ahead.c). Nothing is left
 * half-written: the metrics file grows by whole lines, weights are written beside and renamed. */
#include "train/train.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AHEAD_BYTES = 1 << 20 };

typedef struct {
    WfTraining *t;
    WfDataset *data, *eval;
    WfDataInput *inputs;
    int n_inputs;
    int64_t batch, per_epoch, total; /* rows of a micro-batch; steps */
    int64_t micro;               /* micro-batches in a step */
    bool cut;                    /* an epoch's last batch may have fewer rows */
    int64_t *index;
    void **buffer;               /* by input */
    WfAhead *ahead;              /* NULL: batches are gathered in place */
    FILE *metrics;
    double started, first_step, last_print;
    WfMark mark;                 /* where the run stands */
    int64_t from, saved;         /* the step after which this process began; that of the newest checkpoint */
    bool together;               /* all ranks are at the same place, or there is one */
    int64_t ignore;              /* the label that the loss leaves out */
    int rank, ranks;             /* rank 0 speaks and writes */
} Loop;

/* ---- inputs ---- */

WfDataInput *wf_train_inputs(WfArena *a, const WfExe *x, int *n)
{
    WfDataInput *in = WF_NEWN(a, WfDataInput, (size_t)x->n_inputs + 1);
    *n = 0;
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *e = &x->inputs[i];
        if (e->role != WF_XIN_USER)
            continue;
        WfDataInput *d = &in[(*n)++];
        *d = (WfDataInput){.name = e->name, .dtype = e->dtype, .rank = e->rank};
        for (int k = 0; k < e->rank; k++)
            if (!wf_elit(x->exprs, e->shape[k], &d->shape[k]))
                d->shape[k] = -1;
    }
    return in;
}

static void check_batch(WfCtx *ctx, const WfExeSymbol *s, int64_t want)
{
    int64_t lo, hi;
    wf_exe_sizes(s, &lo, &hi);
    if (want < lo || want > hi)
        wf_fail(ctx, WEFT_ERR_USAGE, "--batch-size %lld: the export allows %lld to %lld", (long long)want, (long long)lo,
                (long long)hi);
    if ((want - s->plus) % s->factor)
        wf_fail(ctx, WEFT_ERR_USAGE, "--batch-size %lld: the export allows %lld plus multiples of %lld", (long long)want,
                (long long)lo, (long long)s->factor);
}

/* Can `count` samples be a batch of their own? */
static bool fits(const WfExe *x, int64_t count)
{
    int64_t lo, hi;
    if (!x->n_symbols)
        return false;
    wf_exe_sizes(&x->symbols[0], &lo, &hi);
    return count >= lo && (count - x->symbols[0].plus) % x->symbols[0].factor == 0;
}

int64_t wf_train_batch(WfCtx *ctx, const WfExe *x, const WfOptions *o)
{
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *e = &x->inputs[i];
        int64_t size;
        if (e->role != WF_XIN_USER || !e->rank)
            continue;
        if (!wf_elit(x->exprs, e->shape[0], &size)) {
            int64_t want = o->batch_size ? o->batch_size : 32;
            for (int k = 0; k < x->n_symbols; k++)
                if (x->symbols[k].input == i && x->symbols[k].dim == 0) {
                    want = o->batch_size ? want : wf_exe_usual(&x->symbols[k]);
                    check_batch(ctx, &x->symbols[k], want);
                }
            return want;
        }
        if (o->batch_size && o->batch_size != size)
            wf_fail_at(ctx, WEFT_ERR_USAGE, NULL,
                       "Export it with dynamic_shapes={'x': {0: torch.export.Dim('batch', min=1)}, ...} to choose freely.",
                       "--batch-size %lld, but the model was exported for batches of %lld", (long long)o->batch_size,
                       (long long)size);
        return size;
    }
    wf_fail(ctx, WEFT_ERR_USAGE, "the model has no input with a batch dimension");
}

static size_t column_bytes(const Loop *l, int i)
{
    const WfColumn *c = &l->data->columns[i];
    return wf_mul_size((size_t)l->batch, wf_mul_size((size_t)c->sample_elements, wf_dtype_size(c->input->dtype)));
}

static void **new_buffers(const Loop *l)
{
    WfArena *a = l->t->arena;
    void **buffer = WF_NEWN(a, void *, (size_t)l->n_inputs + 1);
    for (int i = 0; i < l->n_inputs; i++) {
        uint8_t *p = wf_arena_alloc(a, column_bytes(l, i) + 64);
        buffer[i] = p + (64 - (uintptr_t)p % 64) % 64;
    }
    return buffer;
}

static void allocate_buffers(Loop *l)
{
    l->index = WF_NEWN(l->t->arena, int64_t, (size_t)l->batch);
    l->buffer = new_buffers(l);
}

/* Below AHEAD_BYTES a batch is gathered in less time than it takes to wake a thread. */
static void start_ahead(Loop *l, WfArena *a)
{
    size_t bytes = 0;
    int64_t batches;
    for (int i = 0; i < l->n_inputs; i++)
        bytes += column_bytes(l, i);
    if (!wf_mul_ok(l->total, l->micro, &batches))
        batches = INT64_MAX;
    if (bytes >= AHEAD_BYTES)
        l->ahead = wf_ahead_new(l->t->ctx, a, l->data, l->t->options, l->batch, l->per_epoch * l->micro, l->from * l->micro, batches,
                                (WfShare){l->rank, l->ranks, l->micro}, l->buffer, new_buffers(l));
}

/* Feeds the `count` rows in the buffers. */
static void hand_in(Loop *l, const WfDataset *d, int64_t count)
{
    for (int i = 0; i < l->n_inputs; i++) {
        const WfColumn *c = &d->columns[i];
        WfTensor t = {.name = c->input->name, .dtype = c->input->dtype, .rank = c->rank, .data = l->buffer[i]};
        memcpy(t.shape, c->shape, sizeof t.shape);
        t.shape[0] = count;
        t.bytes = (size_t)(count * c->sample_elements) * wf_dtype_size(t.dtype);
        wf_session_feed(l->t->session, t.name, &t);
    }
}

/* A plan option as the executable records it, which a compiled step does, too; "" when there is none of that name. */
static const char *plan_option(const Loop *l, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = l->t->exe->options; p && *p; p = strchr(p, '\n'), p += p != NULL)
        if (!strncmp(p, name, n) && p[n] == '=')
            return wf_arena_strndup(l->t->arena, p + n + 1, strcspn(p + n + 1, "\n"));
    return "";
}

/* The input that holds classes for --loss, whose ignore-index the loss leaves out of its mean; -1: none does. */
static int ignoring_input(const Loop *l)
{
    const char *loss = plan_option(l, "loss"), *target = plan_option(l, "target");
    if ((strcmp(loss, "cross_entropy") && strcmp(loss, "nll")) || !strcmp(plan_option(l, "soft-target"), "true"))
        return -1;
    for (int i = 0; i < l->n_inputs; i++)
        if (!strcmp(l->inputs[i].name, *target ? target : "y"))
            return i;
    return -1;
}

/* Gathers and feeds `count` rows; classes from row `valid` on are such that the loss ignores them, where it can. */
static void feed(Loop *l, const WfDataset *d, int64_t count, int64_t valid, int ignoring)
{
    for (int i = 0; i < l->n_inputs; i++) {
        const WfColumn *c = &d->columns[i];
        wf_dataset_gather(d, i, l->index, count, l->buffer[i]);
        for (int64_t k = valid * c->sample_elements; i == ignoring && k < count * c->sample_elements; k++)
            ((int64_t *)l->buffer[i])[k] = l->ignore;
    }
    hand_in(l, d, count);
}

/* ---- evaluation ---- */

static bool predictions(WfTraining *t, WfTensor *out)
{
    int n = wf_session_outputs(t->session, WF_PROG_EVAL);
    for (int k = n - 1; k >= 0; k--) {
        wf_session_output(t->session, WF_PROG_EVAL, k, out);
        if (t->exe->program[WF_PROG_EVAL].outputs[k].role == WF_XOUT_USER && out->data && out->name &&
            !strcmp(out->name, "predictions"))
            return true;
    }
    return false;
}

/* The integer input that has one element for each row of class scores; -1 when there is none. */
static int label_input(const Loop *l, const WfTensor *p, int class_dim, int64_t batch)
{
    const char *target = plan_option(l, "target");
    int64_t rows = 1;
    int found = -1;
    for (int d = 0; d < p->rank; d++)
        rows *= d == class_dim ? 1 : p->shape[d];
    for (int i = 0; i < l->n_inputs; i++) {
        const WfColumn *c = &l->data->columns[i];
        if (c->input->dtype != WF_I64 || c->sample_elements * batch != rows)
            continue;
        if (!strcmp(target, c->input->name))
            return i;
        found = i;
    }
    return found;
}

static void count_hits(Loop *l, const WfTensor *p, int64_t batch, int64_t valid, int64_t *hits, int64_t *seen)
{
    int class_dim = p->rank > 1 ? 1 : 0;
    if (p->rank < 2 || p->dtype != WF_F32)
        return;
    int at = label_input(l, p, class_dim, batch);
    if (at < 0)
        return;
    int64_t classes = p->shape[1], inner = 1, per_row;
    for (int d = 2; d < p->rank; d++)
        inner *= p->shape[d];
    const int64_t *y = l->buffer[at];
    per_row = l->data->columns[at].sample_elements;
    for (int64_t r = 0; r < valid * per_row; r++) {
        int64_t outer = r / inner, in = r % inner, best = 0;
        const float *v = (const float *)p->data + outer * classes * inner + in;
        for (int64_t c = 1; c < classes; c++)
            if (v[c * inner] > v[best * inner])
                best = c;
        if (y[r] == l->ignore)
            continue;
        *hits += best == y[r];
        ++*seen;
    }
}

/* The padding of a batch is its first row again. A loss that cannot ignore it is freed of it: the loss of that row, from
 * a batch of nothing else, is taken out of the mean over the batch. */
static double without_padding(Loop *l, const WfDataset *d, double mean, int64_t count, int64_t valid)
{
    for (int64_t i = 0; i < count; i++)
        l->index[i] = l->index[0];
    feed(l, d, count, count, -1);
    wf_session_forward(l->t->session, true);
    double row = wf_session_loss(l->t->session);
    return isfinite(row) ? (mean * (double)count - row * (double)(count - valid)) / (double)valid : mean;
}

/* Does the model's forward pass speak with that of other ranks? They then take the same number of batches, of one size. */
static bool speaks(const Loop *l)
{
    const WfExeProgram *p = &l->t->exe->program[WF_PROG_EVAL];
    bool any = false;
    for (int c = 0; c < p->n_calls; c++)
        any |= p->calls[c].kind == WF_CALL_START;
    return any && l->ranks > 1;
}

static void check_rounds(const Loop *l, const WfDataset *d)
{
    if (speaks(l) && d->samples % (l->batch * l->ranks))
        wf_fail_at(l->t->ctx, WEFT_ERR_DATA, NULL, "Leave out or add rows of --eval-data, or choose another --batch-size.",
                   "the model's forward pass has collectives, so all ranks evaluate together, but %lld rows are no multiple "
                   "of %lld ranks x %lld",
                   (long long)d->samples, (long long)l->ranks, (long long)l->batch);
}

static WfEvaluation evaluate(Loop *l, const WfDataset *d)
{
    WfSession *s = l->t->session;
    double loss = 0, weight = 0;
    int64_t hits = 0, seen = 0;
    bool masks = wf_session_masks(s, WF_PROG_EVAL);
    int ignoring = masks ? -1 : ignoring_input(l);
    check_rounds(l, d);
    l->ignore = strtoll(*plan_option(l, "ignore-index") ? plan_option(l, "ignore-index") : "-100", NULL, 10);
    for (int64_t at = l->rank * l->batch; at < d->samples; at += l->batch * l->ranks) {
        int64_t valid = d->samples - at < l->batch ? d->samples - at : l->batch;
        int64_t count = fits(l->t->exe, valid) ? valid : l->batch;
        wf_check_cancel(l->t->ctx);
        for (int64_t i = 0; i < count; i++)
            l->index[i] = at + (i < valid ? i : 0); /* padding: the first row again */
        feed(l, d, count, valid, ignoring);
        if (valid < count && masks)
            wf_session_set_rows(s, valid);
        wf_session_forward(s, true);
        WfTensor p;
        double b = wf_session_loss(s), sum, share;
        if (predictions(l->t, &p))
            count_hits(l, &p, count, valid, &hits, &seen);
        if (ignoring < 0 && valid < count && !masks)
            b = without_padding(l, d, b, count, valid);
        if (wf_session_metric(s, WF_PROG_EVAL, "loss_sum", &sum) && wf_session_metric(s, WF_PROG_EVAL, "loss_count", &share)) {
            loss += sum; /* one mean over everything that counts */
            weight += share;
        } else if (isfinite(b) || valid == count) {
            loss += b * (double)valid;
            weight += (double)valid;
        }
    }
    double sums[4] = {loss, weight, (double)hits, (double)seen};
    wf_ranks_add(l->t, sums, 4);
    return (WfEvaluation){.loss = sums[1] > 0 ? sums[0] / sums[1] : NAN, .accuracy = sums[3] > 0 ? sums[2] / sums[3] : NAN,
                          .samples = d->samples};
}

WfEvaluation wf_evaluate(WfTraining *t, const WfDataset *d)
{
    Loop l = {.t = t, .data = (WfDataset *)d, .ranks = 1};
    l.inputs = wf_train_inputs(t->arena, t->exe, &l.n_inputs);
    l.batch = wf_train_batch(t->ctx, t->exe, t->options);
    allocate_buffers(&l);
    return evaluate(&l, d);
}

/* ---- metrics and files ---- */

static double rss_mb(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0, skip;
    if (!f)
        return 0;
    if (fscanf(f, "%ld %ld", &skip, &pages) != 2)
        pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576.0;
}

/* A number that is whole is written as an integer: a reader takes 1e+01 for a floating-point step. */
static void number(WfStr *s, const char *key, double v)
{
    wf_str_printf(s, "%s\"%s\": ", s->n > 1 ? ", " : "", key);
    if (fabs(v) < 9007199254740992.0 && v == floor(v))
        wf_str_printf(s, "%lld", (long long)v);
    else if (isfinite(v))
        wf_str_float(s, v);
    else
        wf_str_puts(s, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
}

static void metrics_line(Loop *l, WfStr *s)
{
    if (!l->metrics)
        return;
    wf_str_puts(s, "}\n");
    if (fwrite(s->at, 1, s->n, l->metrics) != s->n || fflush(l->metrics))
        wf_fail_at(l->t->ctx, WEFT_ERR_IO, l->t->options->out, "Free some space, remove this folder and start again.",
                   "metrics.jsonl cannot be written: %s", strerror(errno));
}

char *wf_train_path(WfArena *a, const char *out, const char *name)
{
    size_t n = strlen(out);
    return wf_arena_printf(a, "%s%s%s", out, n && out[n - 1] == '/' ? "" : "/", name);
}

static char *in_out(Loop *l, const char *name) { return wf_train_path(l->t->arena, l->t->options->out, name); }

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Lines of steps that are going to be done again are dropped. */
static void keep_metrics(Loop *l)
{
    WfArena *a = wf_arena_scratch(l->t->ctx);
    char *path = in_out(l, "metrics.jsonl");
    if (wf_file_exists(path)) {
        WfFile *f = wf_file_map(l->t->ctx, a, path);
        WfStr s = {.arena = a};
        for (const char *at = (const char *)f->at, *end = at + f->size, *next; at < end; at = next) {
            const char *stop = memchr(at, '\n', (size_t)(end - at)), key[] = "{\"step\": ";
            next = stop ? stop + 1 : end;
            bool whole = stop && (size_t)(next - at) > sizeof key && !memcmp(at, key, sizeof key - 1);
            if (whole && strtoll(at + sizeof key - 1, NULL, 10) <= l->mark.step)
                wf_str_putn(&s, at, (size_t)(next - at));
        }
        wf_write_file(l->t->ctx, path, s.at ? s.at : "", s.n);
    }
    wf_arena_free(a);
}

static void open_out(Loop *l)
{
    const char *out = l->t->options->out;
    struct stat st;
    if (!out || l->rank)
        return;
    if (!stat(out, &st) && !S_ISDIR(st.st_mode))
        wf_fail(l->t->ctx, WEFT_ERR_USAGE, "--out %s is a file; name a folder", out);
    bool same = l->t->options->resume && same_folder(out, l->t->options->resume);
    if (!same && (wf_file_exists(in_out(l, "final.safetensors")) || wf_file_exists(in_out(l, "metrics.jsonl"))))
        wf_fail_at(l->t->ctx, WEFT_ERR_USAGE, NULL, "Choose another folder, remove this one, or go on with --resume.",
                   "--out %s already holds a run", out);
    wf_mkdirs(l->t->ctx, out);
    if (same)
        keep_metrics(l);
    l->metrics = fopen(in_out(l, "metrics.jsonl"), same ? "a" : "w");
    if (!l->metrics)
        wf_fail(l->t->ctx, WEFT_ERR_IO, "%s/metrics.jsonl cannot be made: %s", out, strerror(errno));
}

static char *duration(WfArena *a, double s)
{
    if (s < 100)
        return wf_arena_printf(a, "%.0f s", s);
    if (s < 6000)
        return wf_arena_printf(a, "%.0f min", s / 60);
    return wf_arena_printf(a, "%.1f h", s / 3600);
}

static void progress(Loop *l, double loss, double norm, double lr, double ms)
{
    const WfOptions *o = l->t->options;
    double now = wf_now();
    if (l->rank)
        return;
    bool due = l->t->terminal ? now - l->last_print > 0.2 : o->log_every > 0 && l->mark.step % o->log_every == 0;
    char line[256];
    if (!due && l->mark.step != l->total)
        return;
    l->last_print = now;
    double left = (now - l->first_step) / (double)(l->mark.step - l->from) * (double)(l->total - l->mark.step);
    WfArena *a = wf_arena_scratch(l->t->ctx);
    loss = isnan(loss) ? (double)NAN : loss; /* printf shows a sign */
    norm = isnan(norm) ? (double)NAN : norm;
    snprintf(line, sizeof line, "step %lld/%lld  loss %.4f  grad %.3g  lr %.3g  %.0f samples/s  %.2f ms  %.0f MB  left %s",
             (long long)l->mark.step, (long long)l->total, loss, norm, lr, (double)(l->batch * l->ranks * l->micro) / ms * 1e3, ms,
             rss_mb(),
             duration(a, left));
    fprintf(stderr, l->t->terminal ? "\r\033[K%s%s" : "%s%s", line, l->t->terminal && l->mark.step != l->total ? "" : "\n");
    wf_arena_free(a);
}

static void evaluation(Loop *l)
{
    if (!l->eval)
        return;
    WfEvaluation e = evaluate(l, l->eval);
    WfArena *a = wf_arena_scratch(l->t->ctx);
    WfStr s = {.arena = a};
    wf_str_putc(&s, '{');
    number(&s, "step", (double)l->mark.step);
    number(&s, "eval_loss", e.loss);
    if (isfinite(e.accuracy))
        number(&s, "eval_accuracy", e.accuracy);
    metrics_line(l, &s);
    if (!l->rank) {
        fprintf(stderr, "%s      eval: loss %.4f", l->t->terminal ? "\n" : "", e.loss);
        if (isfinite(e.accuracy))
            fprintf(stderr, "  accuracy %.2f %%", e.accuracy * 100);
        fprintf(stderr, "  (%lld samples)\n", (long long)e.samples);
    }
    wf_arena_free(a);
    bool better = isfinite(e.accuracy) ? e.accuracy > l->mark.best : e.loss < l->mark.best_loss;
    if ((better || !l->mark.evaluated) && l->t->options->out && !l->rank)
        l->t->save(l->t->user, in_out(l, "best.safetensors"));
    if (better || !l->mark.evaluated) {
        l->mark.best = e.accuracy;
        l->mark.best_loss = e.loss;
    }
    l->mark.evaluated = true;
}

/* ---- the loop ---- */

/* The rank's batch `own` of an epoch, which may hold fewer samples than others, or none, in the last step. */
static void next_batch(Loop *l, const WfOrder *order, int64_t own)
{
    int64_t batch = wf_share_batch((WfShare){l->rank, l->ranks, l->micro}, own), left = l->data->samples - batch * l->batch;
    int64_t valid = left < 0 ? 0 : left < l->batch ? left : l->batch, count = l->cut && valid ? valid : l->batch;
    if (l->ahead) {
        l->buffer = wf_ahead_next(l->ahead); /* evaluation may use it, too: it is this thread's until the next batch */
        hand_in(l, l->data, count);
    } else {
        wf_order_batch(order, batch, l->batch, l->index);
        feed(l, l->data, count, count, -1);
    }
    if (valid < count)
        wf_session_set_rows(l->t->session, valid);
    if (!l->first_step)
        l->first_step = wf_now();
}

static void one_step(Loop *l, const WfOrder *order, int64_t step, double *commit)
{
    WfSession *s = l->t->session;
    const WfOptions *o = l->t->options;
    double lr = l->t->lr, norm = NAN, count;
    for (int64_t m = 0; m + 1 < l->micro; m++) {
        next_batch(l, order, step * l->micro + m);
        wf_session_micro(s);
        wf_check_cancel(l->t->ctx);
    }
    next_batch(l, order, step * l->micro + l->micro - 1);
    lr = wf_schedule_lr_from(o, lr, l->mark.step + 1, l->total);
    wf_session_set_lr(s, lr);
    wf_session_step(s);
    double now = wf_now(), ms = (now - *commit) * 1e3, loss = wf_session_loss(s);
    *commit = now;
    if (l->t->step_ms)
        l->t->step_ms[l->mark.step] = ms;
    l->mark.step++;
    wf_session_metric(s, WF_PROG_STEP, "grad_norm", &norm);
    wf_session_metric(s, WF_PROG_STEP, "mean_loss", &loss); /* over micro-batches and ranks */
    if (o->check_replicas && l->mark.step % o->check_replicas == 0)
        wf_session_compare(s, false);
    if (l->metrics) {
        WfArena *a = wf_arena_scratch(l->t->ctx);
        WfStr line = {.arena = a};
        wf_str_putc(&line, '{');
        number(&line, "step", (double)l->mark.step);
        number(&line, "loss", loss);
        if (wf_session_metric(s, WF_PROG_STEP, "loss_count", &count))
            number(&line, "loss_count", count); /* what its mean is over */
        number(&line, "lr", lr);
        number(&line, "grad_norm", norm);
        number(&line, "step_ms", ms);
        number(&line, "rss_mb", rss_mb());
        if (l->mark.step == l->from + 1)
            number(&line, "start_to_step_s", l->first_step - wf_process_start());
        metrics_line(l, &line);
        wf_arena_free(a);
    }
    progress(l, loss, norm, lr, ms);
}

static void checkpoint(Loop *l)
{
    wf_checkpoint_save(l->t, &l->mark);
    l->saved = l->mark.step;
}

static void evaluate_epoch(Loop *l)
{
    evaluation(l);
    l->mark.evaluation_due = false;
}

static void epochs(void *v)
{
    Loop *l = v;
    const WfOptions *o = l->t->options;
    if (l->mark.evaluation_due)
        evaluate_epoch(l);
    double commit = wf_now();
    for (int64_t epoch = l->mark.step / l->per_epoch; l->mark.step < l->total; epoch++) {
        WfOrder order = wf_order(l->data->samples, (uint64_t)o->seed, epoch, o->shuffle);
        for (int64_t b = l->mark.step % l->per_epoch; b < l->per_epoch && l->mark.step < l->total; b++) {
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
static void resume(Loop *l)
{
    const WfOptions *o = l->t->options;
    bool found = o->resume && wf_checkpoint_load(l->t, &l->mark);
    l->from = l->mark.step;
    l->saved = found ? l->from : -1;
    if (o->resume && !l->rank && found)
        fprintf(stderr, "resumed from %s after step %lld%s\n", o->resume, (long long)l->from,
                l->from >= l->total ? ": the run is finished" : "");
    else if (o->resume && !l->rank)
        fprintf(stderr, "%s holds no checkpoint: starting at step 0\n", o->resume);
}

/* Steps of an epoch, and what is to become of samples that do not fill the last of them. */
static void plan_epochs(Loop *l)
{
    WfCtx *ctx = l->t->ctx;
    int64_t samples = l->data->samples, batches = l->micro * l->ranks, rest = samples % l->batch;
    l->cut = !strcmp(plan_option(l, "last-batch"), "short");
    l->per_epoch = samples / l->batch / batches;
    if (strcmp(plan_option(l, "last-batch"), "drop"))
        l->per_epoch += samples > l->per_epoch * l->batch * batches;
    if (l->cut && rest && !fits(l->t->exe, rest)) {
        int64_t lo = l->batch, hi;
        if (l->t->exe->n_symbols)
            wf_exe_sizes(&l->t->exe->symbols[0], &lo, &hi);
        wf_fail_at(ctx, WEFT_ERR_USAGE, NULL,
                   "Export it with dynamic_shapes={'x': {0: torch.export.Dim('batch', min=1)}, ...}, or use --last-batch=pad.",
                   "--last-batch short: the last batch of an epoch has %lld samples, and the export allows %lld%s", (long long)rest,
                   (long long)lo, l->t->exe->n_symbols ? " and more, in its steps" : " only");
    }
    if (l->cut && speaks(l) && samples % (l->batch * batches))
        wf_fail_at(ctx, WEFT_ERR_USAGE, NULL, "Use --last-batch=pad or drop.",
                   "--last-batch short: the model's forward pass has collectives, which need batches of one size on all ranks");
    if (!l->per_epoch && l->micro > 1)
        wf_fail(ctx, WEFT_ERR_DATA, "%lld samples do not fill one step of %lld batches of %lld%s", (long long)samples,
                (long long)l->micro, (long long)l->batch, l->ranks > 1 ? " on every rank" : "");
    if (!l->per_epoch)
        wf_fail(ctx, WEFT_ERR_DATA, "%lld samples do not fill one batch of %lld%s", (long long)samples,
                (long long)(l->batch * l->ranks), l->ranks > 1 ? " (the batches of all ranks together)" : "");
}

void wf_train(WfTraining *t)
{
    const WfOptions *o = t->options;
    Loop l = {.t = t, .mark = {.best = -1, .best_loss = INFINITY}, .started = wf_now(), .ranks = 1};
    if (o->checkpoint_every && !o->out)
        wf_fail_at(t->ctx, WEFT_ERR_USAGE, NULL, "Add --out DIR.", "option checkpoint-every: there is no folder to write to");
    if (t->comm) {
        l.rank = wf_comm_rank(t->comm);
        l.ranks = wf_comm_size(t->comm);
        wf_session_join(t->session, t->comm);
    }
    l.inputs = wf_train_inputs(t->arena, t->exe, &l.n_inputs);
    l.data = wf_dataset_open(t->ctx, t->arena, &o->data, l.inputs, l.n_inputs);
    if (o->eval_data.n)
        l.eval = wf_dataset_open(t->ctx, t->arena, &o->eval_data, l.inputs, l.n_inputs);
    if (o->check_finite)
        wf_dataset_check_finite(l.data);
    if (o->check_finite && l.eval)
        wf_dataset_check_finite(l.eval);
    l.batch = wf_train_batch(t->ctx, t->exe, o);
    wf_ranks_agree(t, l.data, l.batch);
    l.micro = wf_session_micro_batches(t->session);
    plan_epochs(&l);
    l.total = o->steps ? o->steps : (o->epochs ? o->epochs : 1) * l.per_epoch;
    l.mark.samples = l.data->samples;
    l.mark.step_rows = l.batch * l.micro * l.ranks;
    resume(&l);
    allocate_buffers(&l);
    open_out(&l);
    WfArena *scratch = wf_arena_scratch(t->ctx); /* the thread ends with it, on every road */
    start_ahead(&l, scratch);
    weft_status s = wf_guard(t->ctx, epochs, &l);
    wf_arena_free(scratch);
    if (s == WEFT_OK || s == WEFT_ERR_CANCELLED) { /* also on Ctrl-C: the last whole step is kept */
        if (o->checkpoint_every && l.together && l.saved != l.mark.step && l.mark.step)
            checkpoint(&l);
        if (o->out && !l.rank) {
            t->save(t->user, in_out(&l, "final.safetensors"));
            if (!l.mark.evaluated)
                t->save(t->user, in_out(&l, "best.safetensors"));
        }
        if (s == WEFT_ERR_CANCELLED && !l.rank)
            fprintf(stderr, "\nstopped after step %lld%s%s%s\n", (long long)l.mark.step, o->out ? "; weights are in " : "",
                    o->out ? in_out(&l, "final.safetensors") : "",
                    l.saved == l.mark.step ? "; --resume goes on from there" : "");
    }
    if (l.metrics)
        fclose(l.metrics);
    if (l.metrics && !l.mark.step) /* an empty file would keep the folder from being used again */
        unlink(in_out(&l, "metrics.jsonl"));
    if (s != WEFT_OK)
        wf_reraise(t->ctx, s);
}
