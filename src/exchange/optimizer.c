/* The optimiser's state in a file: `what/parameter` for each tensor that torch.optim keeps under the name `what`, and `step`,
 * the number of steps done, from which bias corrections and schedule follow. */
#include "exchange/exchange.h"

#include <string.h>

/* What torch.optim calls the state: its name in the step is "PARAMETER.WHAT". */
const char *wf_optimizer_kind(const WfExeInput *in) { return in->name + strlen(in->of) + 1; }

static const WfExeInput *parameter(const WfExe *x, const char *name)
{
    for (int i = 0; i < x->n_inputs; i++)
        if (x->inputs[i].role == WF_XIN_PARAM && !strcmp(x->inputs[i].name, name))
            return &x->inputs[i];
    return NULL;
}

/* The state tensors of a session under the file's names; returns how many. */
static int states(WfArena *a, const WfExe *x, WfSession *s, WfTensor *t, WfWanted *w)
{
    int n = 0;
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        if (in->role != WF_XIN_STATE || !wf_session_tensor(s, in->name, &t[n]))
            continue;
        const WfExeInput *p = parameter(x, in->of);
        int m = p ? p->n_aliases : 0;
        const char **others = WF_NEWN(a, const char *, (size_t)m + 1);
        for (int k = 0; k < m; k++)
            others[k] = wf_arena_printf(a, "%s/%s", wf_optimizer_kind(in), p->aliases[k]);
        t[n].name = wf_arena_printf(a, "%s/%s", wf_optimizer_kind(in), in->of);
        w[n] = (WfWanted){.name = t[n].name, .aliases = others, .n_aliases = m, .dtype = t[n].dtype, .rank = t[n].rank};
        memcpy(w[n].shape, t[n].shape, sizeof t[n].shape);
        n++;
    }
    return n;
}

void wf_optimizer_load(WfCtx *ctx, const WfExe *x, WfSession *s, const char *path, bool strict)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfTensors *file = wf_safetensors_open(ctx, a, path);
    WfTensor *t = WF_NEWN(a, WfTensor, (size_t)x->n_inputs + 1);
    WfWanted *w = WF_NEWN(a, WfWanted, (size_t)x->n_inputs + 1);
    const WfTensor *counter = wf_tensors_find(file, "step");
    int64_t step = counter && counter->dtype == WF_I64 && counter->rank == 0 ? wf_load_i64(WF_I64, counter->data) : -1;
    if (step < 0 || step > (int64_t)1 << 53)
        wf_fail_at(ctx, WF_E_OPTIMIZER_STATE, NULL, "tools/state.py writes such files from torch.optim's state; docs/exchange.md has the format.",
                   "%s: not an optimiser's state: it needs `step`, an i64 scalar that says how many steps are done", path);
    int n = states(a, x, s, t, w);
    w[n++] = (WfWanted){.name = "step", .dtype = WF_I64};
    wf_weights_fit(ctx, file, w, n, strict, "optimiser state");
    for (int i = 0; i < n - 1; i++)
        if (w[i].from)
            wf_weights_copy(&w[i], (void *)(uintptr_t)t[i].data);
    wf_weights_tell(ctx, file, w, n);
    wf_session_set_step(s, step);
    wf_arena_free(a);
}

void wf_optimizer_save(WfCtx *ctx, const WfExe *x, WfSession *s, const char *path)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfTensor *t = WF_NEWN(a, WfTensor, (size_t)x->n_inputs + 1);
    int n = states(a, x, s, t, WF_NEWN(a, WfWanted, (size_t)x->n_inputs + 1));
    int64_t step = wf_session_steps(s);
    t[n++] = (WfTensor){.name = "step", .dtype = WF_I64, .data = &step, .bytes = sizeof step};
    wf_safetensors_write(ctx, path, t, n);
    wf_arena_free(a);
}
