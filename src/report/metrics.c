/* Metrics: sums over rows, each row once, padding never; values once all batches and ranks are in. Classes are compared in
 * float64; of equal scores the first class counts, as argmax has it. */
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { LOSS, PERPLEXITY, ACCURACY, TOP, F1, MSE, MAE } Kind;
enum { MOST = 16 };

typedef struct {
    const char *name;
    Kind kind;
    int64_t k;           /* TOP: so many */
    double hits, value;
} Metric;

struct WfMetrics {
    WfCtx *ctx;
    WfArena *a;
    Metric at[MOST];
    int n;
    bool given;          /* what is asked for must be there */
    const char *best;    /* --best-metric; NULL: accuracy where there is one, else the loss */
    double loss, weight; /* sum of losses, and what it is over */
    double seen, squares, absolutes, elements;
    double *classes;     /* F1: of each class hits, times predicted, times true */
    int64_t n_classes;
};

static const struct { const char *name; Kind kind; bool larger; } kinds[] = {
    {"loss", LOSS, false}, {"perplexity", PERPLEXITY, false}, {"accuracy", ACCURACY, true}, {"top", TOP, true}, {"f1", F1, true},
    {"mse", MSE, false}, {"mae", MAE, false}};

static void add_metric(WfMetrics *m, const char *option, const char *name)
{
    const char *names[WF_LEN(kinds)];
    Metric x = {.name = name, .k = 1};
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->at[i].name, name))
            return;
    for (size_t i = 0; i < WF_LEN(kinds); i++) {
        size_t n = strlen(kinds[i].name);
        char *end = (char *)name + n;
        names[i] = kinds[i].kind == TOP ? "top5" : kinds[i].name;
        if (strncmp(name, kinds[i].name, n))
            continue;
        if (kinds[i].kind == TOP)
            x.k = name[n] >= '1' && name[n] <= '9' ? strtoll(name + n, &end, 10) : 0;
        if (*end || x.k < 1 || m->n == MOST)
            continue;
        x.kind = kinds[i].kind;
        m->at[m->n++] = x;
        return;
    }
    const char *near = wf_nearest(name, names, WF_LEN(kinds));
    wf_fail_at(m->ctx, WF_E_METRIC, NULL,
               near ? wf_arena_printf(m->a, "Did you mean %s?", near) : "They are loss, perplexity, accuracy, topN, f1, mse, mae.",
               "option %s: there is no metric '%s'", option, name);
}

WfMetrics *wf_metrics_new(WfCtx *ctx, WfArena *a, const char *names, const char *best)
{
    WfMetrics *m = WF_NEW(a, WfMetrics);
    *m = (WfMetrics){.ctx = ctx, .a = a, .given = names, .best = best};
    const char *p = names ? names : "loss,accuracy";
    for (size_t n; *p; p += n + (p[n] == ',')) {
        n = strcspn(p, ",");
        add_metric(m, "metrics", wf_arena_strndup(a, p, n));
    }
    if (m->best)
        add_metric(m, "best-metric", m->best);
    return m;
}

void wf_metrics_begin(WfMetrics *m)
{
    m->loss = m->weight = m->seen = m->squares = m->absolutes = m->elements = 0;
    for (int i = 0; i < m->n; i++)
        m->at[i].hits = 0;
    if (m->classes)
        memset(m->classes, 0, (size_t)m->n_classes * 3 * sizeof *m->classes);
}

static bool asks(const WfMetrics *m, Kind kind)
{
    bool any = false;
    for (int i = 0; i < m->n; i++)
        any |= m->at[i].kind == kind;
    return any;
}

static double value_at(const WfTensor *t, int64_t i)
{
    return t->dtype == WF_F32 ? ((const float *)t->data)[i] : wf_load_f64(t->dtype, (const uint8_t *)t->data + i * (int64_t)wf_dtype_size(t->dtype));
}

static int64_t elements_of(const WfTensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->shape[d];
    return n;
}

/* The input that holds the target of `elements` values: --target's, or the last that the predictions do not
 * depend on. -1: none. */
static int target_input(const WfMetrics *m, const WfMeasured *b, bool integer, int64_t elements)
{
    const char *target = wf_exe_option(b->exe, m->a, "target");
    int found = -1;
    for (int i = 0; i < b->exe->n_inputs; i++) {
        const WfExeInput *in = &b->exe->inputs[i];
        if (in->role != WF_XIN_USER || in->predicts || !b->inputs[i].data || (integer ? in->dtype != WF_I64 : !wf_dtype_is_float(in->dtype)) ||
            elements_of(&b->inputs[i]) != elements)
            continue;
        found = i;
        if (!strcmp(target, in->name))
            break;
    }
    return found;
}

static void count_class(WfMetrics *m, int64_t classes, int64_t said, int64_t is)
{
    if (!asks(m, F1))
        return;
    if (!m->classes) {
        m->classes = WF_NEWN(m->a, double, (size_t)classes * 3);
        m->n_classes = classes;
    }
    if (said < 0 || said >= m->n_classes || is < 0 || is >= m->n_classes)
        return;
    m->classes[3 * is] += said == is;
    m->classes[3 * said + 1]++;
    m->classes[3 * is + 2]++;
}

/* Of scores [N, C, ...] and one class for each row of the others. */
static void add_classes(WfMetrics *m, const WfMeasured *b, const WfTensor *p)
{
    int64_t rows = 1, inner = 1, classes = p->rank > 1 ? p->shape[1] : 0;
    for (int d = 0; d < p->rank; d++)
        rows *= d == 1 ? 1 : p->shape[d];
    for (int d = 2; d < p->rank; d++)
        inner *= p->shape[d];
    int at = classes > 0 ? target_input(m, b, true, rows) : -1;
    if (at < 0)
        return;
    const int64_t *y = b->inputs[at].data;
    for (int64_t r = 0, n = rows / b->count * b->valid; r < n; r++) {
        int64_t from = r / inner * classes * inner + r % inner, best = 0, before = 0;
        if (y[r] == b->ignore)
            continue;
        double top = value_at(p, from), mine = y[r] >= 0 && y[r] < classes ? value_at(p, from + y[r] * inner) : NAN;
        for (int64_t c = 0; c < classes; c++) {
            double v = value_at(p, from + c * inner);
            before += v > mine || (v == mine && c < y[r]);
            if (v > top) {
                top = v;
                best = c;
            }
        }
        for (int i = 0; i < m->n; i++)
            m->at[i].hits += m->at[i].kind == ACCURACY ? best == y[r] : m->at[i].kind == TOP && !isnan(mine) && before < m->at[i].k;
        m->seen++;
        count_class(m, classes, best, y[r]);
    }
}

/* Of predictions and a target of the same size: differences; of a binary loss the two classes, too. */
static void add_values(WfMetrics *m, const WfMeasured *b, const WfTensor *p)
{
    const char *loss = wf_exe_option(b->exe, m->a, "loss");
    bool logits = !strcmp(loss, "bce_with_logits"), binary = logits || !strcmp(loss, "bce");
    int64_t elements = elements_of(p);
    int at = target_input(m, b, false, elements);
    if (at < 0)
        return;
    const WfTensor *y = &b->inputs[at];
    for (int64_t i = 0, n = elements / b->count * b->valid; i < n; i++) {
        double x = value_at(p, i), want = value_at(y, i), d = x - want;
        m->squares += d * d;
        m->absolutes += fabs(d);
        m->elements++;
        if (!binary)
            continue;
        int64_t said = x > (logits ? 0 : 0.5), is = want > 0.5;
        for (int k = 0; k < m->n; k++)
            m->at[k].hits += m->at[k].kind == ACCURACY && said == is;
        m->seen++;
        count_class(m, 2, said, is);
    }
}

int64_t wf_metrics_ignored(const WfExe *x, WfArena *a)
{
    const char *given = wf_exe_option(x, a, "ignore-index");
    return *given ? strtoll(given, NULL, 10) : -100;
}

static void add(WfMetrics *m, const WfMeasured *b, const WfTensor *p)
{
    if (!wf_dtype_is_float(p->dtype) || !p->rank || b->count < 1)
        return;
    add_classes(m, b, p);
    add_values(m, b, p);
}

static void add_loss(WfMetrics *m, WfSession *s, double loss, const WfMeasured *b)
{
    double sum, share;
    if (wf_session_metric(s, WF_PROG_EVAL, "loss_sum", &sum) && wf_session_metric(s, WF_PROG_EVAL, "loss_count", &share)) {
        m->loss += sum; /* one mean over everything that counts */
        m->weight += share;
    } else if (isfinite(loss) || b->valid == b->count) {
        m->loss += loss * (double)b->valid;
        m->weight += (double)b->valid;
    }
}

/* The input that holds classes for --loss, whose ignore-index the loss leaves out of its mean; -1: none does. */
static int classes_input(const WfMetrics *m, const WfExe *x)
{
    for (int i = 0; i < x->n_inputs; i++)
        if (x->inputs[i].role == WF_XIN_USER && x->inputs[i].dtype == WF_I64 && wf_exe_classes(x, m->a, x->inputs[i].name))
            return i;
    return -1;
}

/* Feeds the batch; its rows from `from` on become the first again. */
static void feed(WfSession *s, const WfMeasured *b, int64_t from)
{
    for (int i = 0; i < b->exe->n_inputs; i++) {
        const WfTensor *t = &b->inputs[i];
        if (!t->data)
            continue;
        size_t row = t->bytes / (size_t)b->count;
        for (int64_t k = from; k < b->count && t->shape[0] == b->count; k++)
            memcpy((uint8_t *)(uintptr_t)t->data + (size_t)k * row, t->data, row);
        WfTensor fed = wf_session_fed(s, i);
        if (fed.data != t->data || fed.shape[0] != t->shape[0])
            wf_session_feed(s, t->name, t);
    }
}

/* A loss that cannot ignore the padding, which is the first row again, is freed of it: the loss of that row, from a batch of
 * nothing else, is taken out of the mean over the batch. */
static double without_padding(WfSession *s, const WfMeasured *b, double mean)
{
    feed(s, b, 1);
    wf_session_forward(s, true);
    double row = wf_session_loss(s);
    return isfinite(row) ? (mean * (double)b->count - row * (double)(b->count - b->valid)) / (double)b->valid : mean;
}

void wf_metrics_run(WfMetrics *m, WfSession *s, const WfMeasured *b)
{
    bool filled = b->given < b->count, masks = wf_session_masks(s, WF_PROG_EVAL);
    int ignoring = filled && !masks ? classes_input(m, b->exe) : -1, output = wf_exe_predictions(b->exe);
    feed(s, b, b->given);
    if (ignoring >= 0) {
        const WfTensor *y = &b->inputs[ignoring];
        int64_t each = elements_of(y) / b->count;
        for (int64_t k = b->given * each; k < b->count * each; k++)
            ((int64_t *)(uintptr_t)y->data)[k] = b->ignore;
    }
    if (filled && masks)
        wf_session_set_rows(s, b->valid);
    wf_session_forward(s, true);
    double loss = wf_session_loss(s);
    if (output >= 0) {
        WfTensor p;
        wf_session_output(s, WF_PROG_EVAL, output, &p);
        add(m, b, &p);
    }
    if (filled && !masks && ignoring < 0)
        loss = without_padding(s, b, loss);
    add_loss(m, s, loss, b);
}

/* Adds the values of all ranks, in order of rank; every rank gets the sums. */
static void add_ranks(WfCtx *ctx, WfComm *comm, double *values, int n)
{
    int size = comm ? wf_comm_size(comm) : 1;
    if (size == 1)
        return;
    WfArena *a = wf_arena_scratch(ctx);
    double *all = WF_NEWN(a, double, (size_t)(n * size));
    wf_comm_exchange(comm, values, (size_t)n * sizeof *values, all, 0, "the evaluation");
    for (int i = 0; i < n; i++) {
        values[i] = 0;
        for (int r = 0; r < size; r++)
            values[i] += all[r * n + i];
    }
    wf_arena_free(a);
}

/* The mean of the classes that occur, predicted or true; each 2 hits / (predicted + true). */
static double macro_f1(const WfMetrics *m)
{
    double sum = 0, n = 0;
    for (int64_t c = 0; c < m->n_classes; c++) {
        const double *k = &m->classes[3 * c];
        if (k[1] + k[2] == 0)
            continue;
        sum += 2 * k[0] / (k[1] + k[2]);
        n++;
    }
    return n ? sum / n : NAN;
}

void wf_metrics_finish(WfMetrics *m, WfComm *comm)
{
    double sums[6 + MOST] = {m->loss, m->weight, m->seen, m->squares, m->absolutes, m->elements};
    for (int i = 0; i < m->n; i++)
        sums[6 + i] = m->at[i].hits;
    add_ranks(m->ctx, comm, sums, 6 + m->n);
    if (asks(m, F1)) { /* a rank without rows knows no classes */
        double *all = m->classes, n = 0;
        int size = comm ? wf_comm_size(comm) : 1, rank = comm ? wf_comm_rank(comm) : 0;
        WfArena *scratch = wf_arena_scratch(m->ctx);
        double *counts = WF_NEWN(scratch, double, (size_t)size);
        counts[rank] = (double)m->n_classes;
        add_ranks(m->ctx, comm, counts, size);
        for (int r = 0; r < size; r++)
            n = counts[r] > n ? counts[r] : n;
        wf_arena_free(scratch);
        if (!all && n > 0)
            all = m->classes = WF_NEWN(m->a, double, (size_t)n * 3);
        m->n_classes = (int64_t)n;
        if (n > 0)
            add_ranks(m->ctx, comm, all, (int)m->n_classes * 3);
    }
    for (int i = 0; i < m->n; i++) {
        Metric *x = &m->at[i];
        double mean = sums[1] > 0 ? sums[0] / sums[1] : NAN, seen = sums[2] > 0 ? sums[2] : NAN, elements = sums[5] > 0 ? sums[5] : NAN;
        x->value = x->kind == LOSS ? mean : x->kind == PERPLEXITY ? exp(mean) : x->kind == F1 ? macro_f1(m)
                 : x->kind == MSE ? sums[3] / elements : x->kind == MAE ? sums[4] / elements : sums[6 + i] / seen;
        bool classes = x->kind == ACCURACY || x->kind == TOP || x->kind == F1;
        if (m->given && (classes ? sums[2] == 0 : x->kind == MSE || x->kind == MAE ? sums[5] == 0 : sums[1] == 0))
            wf_fail_at(m->ctx, WF_E_METRIC, NULL,
                       classes ? "It needs predictions [N, C, ...] and an input of N x ... classes (i64), or a binary --loss."
                       : x->kind == LOSS || x->kind == PERPLEXITY ? "Name the loss with --loss."
                                                                 : "It needs an input of the predictions' size that they do not depend on.",
                       "metric %s: the model has nothing to compute it from", x->name);
    }
}

int wf_metrics_count(const WfMetrics *m) { return m->n; }
const char *wf_metrics_name(const WfMetrics *m, int i) { return m->at[i].name; }
double wf_metrics_value(const WfMetrics *m, int i) { return m->at[i].value; }

double wf_metrics_score(const WfMetrics *m, const char **name)
{
    const Metric *chosen = NULL;
    const char *want = m->best ? m->best : "accuracy";
    for (int k = 0; k < 2 && !chosen; k++, want = "loss")
        for (int i = 0; i < m->n; i++)
            if (!strcmp(m->at[i].name, want) && (m->best || k || isfinite(m->at[i].value)))
                chosen = &m->at[i];
    if (!chosen)
        chosen = &m->at[0];
    *name = chosen->name;
    for (size_t i = 0; i < WF_LEN(kinds); i++)
        if (kinds[i].kind == chosen->kind && kinds[i].larger)
            return chosen->value;
    return -chosen->value;
}
