/* What the memory of a step is for. State lies outside the slab and counts whole. In the slab buffers share memory over time, so
 * their kinds are told at the call where most bytes are alive: that is what the peak is made of; what placing costs
 * beyond that is left over. */
#include "exe/exe.h"

static int64_t product(const WfExe *x, const WfExeInput *in)
{
    int64_t n = (int64_t)wf_dtype_size(in->dtype);
    for (int d = 0; d < in->rank; d++) {
        int64_t size = 0;
        if (!wf_elit(x->exprs, in->shape[d], &size) || !wf_mul_ok(n, size, &n))
            return 0;
    }
    return n;
}

/* Which buffers of a program are gradients (outputs, or parts of a bucket), which are workspaces of library calls. */
static void mark(const WfExeProgram *p, bool *gradient, bool *workspace)
{
    for (int i = 0; i < p->n_outputs; i++)
        if (p->outputs[i].role == WF_XOUT_GRAD && p->outputs[i].buf >= 0)
            gradient[p->outputs[i].buf] = true;
    for (int c = 0; c < p->n_calls; c++)
        if (p->calls[c].workspace >= 0)
            workspace[p->calls[c].workspace] = true;
}

void wf_exe_memory(const WfExe *x, WfArena *a, WfProgramKind kind, const int64_t *symbols, WfExeMemory *out)
{
    const WfExeProgram *p = &x->program[kind];
    bool *gradient = WF_NEWN(a, bool, (size_t)p->n_bufs + 1), *workspace = WF_NEWN(a, bool, (size_t)p->n_bufs + 1);
    int64_t *more = WF_NEWN(a, int64_t, (size_t)p->n_calls + 2), *bytes = WF_NEWN(a, int64_t, (size_t)p->n_bufs + 1), now = 0, most = -1;
    *out = (WfExeMemory){.call = -1};
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        int64_t n = in->role == WF_XIN_USER || in->role == WF_XIN_COTANGENT ? 0 : product(x, in);
        if (in->role == WF_XIN_PARAM)
            out->weights += n;
        else if (in->role == WF_XIN_STATE)
            out->optimiser += n;
        else if (in->role == WF_XIN_ACCUM)
            out->gathered += n;
        else
            out->buffers += n;
    }
    mark(p, gradient, workspace);
    for (int i = 0; i < p->n_bufs; i++) {
        const WfExeBuf *b = &p->bufs[i];
        bytes[i] = b->place == WF_PLACE_INPUT || b->same_as >= 0 || b->inside >= 0 ? 0 : wf_exe_eval(x, b->bytes, symbols);
        if (b->place == WF_PLACE_ARENA)
            out->travelling += bytes[i];
        if (b->place != WF_PLACE_SLAB || b->first < 0)
            continue;
        more[b->first] += bytes[i];
        more[b->last + 1] -= bytes[i];
    }
    for (int c = 0; c < p->n_calls; c++) {
        now += more[c];
        if (now <= most)
            continue;
        most = now;
        out->call = c;
    }
    for (int i = 0; i < p->n_bufs; i++) {
        const WfExeBuf *b = &p->bufs[i];
        if (b->place != WF_PLACE_SLAB || b->first < 0 || b->first > out->call || b->last < out->call)
            continue;
        *(gradient[i] ? &out->gradients : workspace[i] ? &out->workspace : &out->activations) += bytes[i];
    }
}
