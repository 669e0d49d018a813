/* What an executable says of itself to those who feed it and read its outputs: rows of a batch, options, predictions. */
#include "exe/exe.h"

#include <string.h>

static void check_batch(WfCtx *ctx, const WfExeSymbol *s, int64_t want)
{
    int64_t lo, hi;
    wf_exe_sizes(s, &lo, &hi);
    if (want < lo || want > hi)
        wf_fail(ctx, WF_E_BATCH_SIZE, "--batch-size %lld: the export allows %lld to %lld", (long long)want,
                (long long)lo, (long long)hi);
    if ((want - s->plus) % s->factor)
        wf_fail(ctx, WF_E_BATCH_SIZE, "--batch-size %lld: the export allows %lld plus multiples of %lld",
                (long long)want, (long long)lo, (long long)s->factor);
}

bool wf_exe_fits(const WfExe *x, int64_t rows)
{
    int64_t lo, hi;
    if (!x->n_symbols)
        return false;
    wf_exe_sizes(&x->symbols[0], &lo, &hi);
    return rows >= lo && (rows - x->symbols[0].plus) % x->symbols[0].factor == 0;
}

bool wf_exe_speaks(const WfExe *x, WfProgramKind kind)
{
    const WfExeProgram *p = &x->program[kind];
    bool any = false;
    for (int c = 0; c < p->n_calls; c++)
        any |= p->calls[c].kind == WF_CALL_START;
    return any;
}

#define EXPORT_DYNAMIC "Export it with dynamic_shapes={'x': {0: torch.export.Dim('batch', min=1)}, ...} to choose freely."

int64_t wf_exe_batch(WfCtx *ctx, const WfExe *x, const WfOptions *o)
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
        if (o->batch_size && o->batch_size != size && o->batch_size == wf_options_micro(o)) /* wf_options_settle */
            wf_fail_at(ctx, WF_E_MICRO_BATCH, NULL, EXPORT_DYNAMIC,
                       "--micro-batch %lld, but the model was exported for batches of %lld", (long long)o->batch_size,
                       (long long)size);
        if (o->batch_size && o->batch_size != size)
            wf_fail_at(ctx, WF_E_BATCH_SIZE, NULL, EXPORT_DYNAMIC,
                       "--batch-size %lld, but the model was exported for batches of %lld",
                       (long long)o->batch_size, (long long)size);
        return size;
    }
    wf_fail(ctx, WF_E_NO_BATCH, "the model has no input with a batch dimension");
}

const char *wf_exe_option(const WfExe *x, WfArena *a, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = x->options; p && *p; p = strchr(p, '\n'), p += p != NULL)
        if (!strncmp(p, name, n) && p[n] == '=')
            return wf_arena_strndup(a, p + n + 1, strcspn(p + n + 1, "\n"));
    return "";
}

int64_t wf_exe_elements(const WfExe *x, const WfExeInput *in)
{
    int64_t n = 1, size;
    for (int d = 0; d < in->rank; d++)
        n *= wf_elit(x->exprs, in->shape[d], &size) ? size : 1;
    return n;
}

static bool is_target(const WfExe *x, WfArena *a, const char *input)
{
    const char *loss = wf_exe_option(x, a, "loss"), *target = wf_exe_option(x, a, "target");
    return *loss && strcmp(loss, "none") && !strcmp(input, *target ? target : "y");
}

bool wf_exe_classes(const WfExe *x, WfArena *a, const char *input)
{
    const char *loss = wf_exe_option(x, a, "loss");
    return (!strcmp(loss, "cross_entropy") || !strcmp(loss, "nll")) && strcmp(wf_exe_option(x, a, "soft-target"), "true") &&
           is_target(x, a, input);
}

const char *wf_exe_target(const WfExe *x, WfArena *a, const char *input)
{
    const char *loss = wf_exe_option(x, a, "loss");
    if (!is_target(x, a, input))
        return NULL;
    if (wf_exe_classes(x, a, input))
        return wf_arena_printf(a, "%s is the target of --loss %s: classes (i64) [N, ...] for scores [N, C, ...] of forward, N being the samples. Where "
                               "forward gives [N, T, C] or [N * T, C], return [N, C, T], which .transpose(1, 2) makes, or the loss itself. Probabilities of "
                               "the classes are --soft-target.", input, loss);
    return wf_arena_printf(a, "%s is the target of --loss %s: of the type and the shape of what forward gives. Add or drop dimensions of "
                           "size 1 (forward: .squeeze(1)), or convert the data.", input, loss);
}

int wf_exe_predictions(const WfExe *x)
{
    const WfExeProgram *p = &x->program[WF_PROG_EVAL];
    for (int k = p->n_outputs - 1; k >= 0; k--)
        if (p->outputs[k].role == WF_XOUT_USER && p->outputs[k].buf >= 0 && !strcmp(p->outputs[k].name, "predictions"))
            return k;
    return -1;
}

int wf_exe_predicted(WfCtx *ctx, const WfExe *x)
{
    const WfExeProgram *p = &x->program[WF_PROG_EVAL];
    int named = wf_exe_predictions(x);
    for (int k = 0; named < 0 && k < p->n_outputs; k++)
        if (p->outputs[k].role == WF_XOUT_USER && p->outputs[k].buf >= 0)
            return k;
    if (named < 0)
        wf_fail(ctx, WF_E_PREDICTIONS, "the model has no tensor output to predict");
    return named;
}
