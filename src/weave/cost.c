/* What a node costs, from its shape alone: FLOPs of products against the peak of one core, bytes of everything else
 * against its memory bandwidth, what travels against the link between the ranks (base/machine.c). */
#include "weave/weave.h"

#include <string.h>

static double elements(WfGraph *g, WfVal v)
{
    int64_t n;
    return v && wf_elit(g->exprs, wf_numel(g, v), &n) ? (double)n : 1024;
}

static double size(WfGraph *g, WfDim d)
{
    int64_t n;
    return wf_elit(g->exprs, d, &n) ? (double)n : 32;
}

/* Multiplications and additions of a library call, from the shapes of its operands. */
static double flops(WfGraph *g, const WfNode *n)
{
    const char *name = n->schema->name;
    WfVal a = wf_tensor(n, 0), b = wf_tensor(n, 1);
    if (!a || !b)
        return 0;
    const WfValue *x = wf_value(g, a), *y = wf_value(g, b);
    if (!strcmp(name, "prim.matmul"))
        return 2 * elements(g, a) * size(g, y->shape[y->rank - 1]);
    if (!strcmp(name, "prim.conv")) /* every output element reads a window of the weight */
        return 2 * elements(g, n->out) * elements(g, b) / size(g, y->shape[0]);
    if (!strcmp(name, "prim.conv_bwd_data"))
        return 2 * elements(g, a) * elements(g, b) / size(g, y->shape[0]);
    if (!strcmp(name, "prim.conv_bwd_weight"))
        return 2 * elements(g, b) * elements(g, n->out) / size(g, y->shape[1]);
    if (!strcmp(name, "prim.attention") || !strcmp(name, "prim.attention_bwd"))
        return (strcmp(name, "prim.attention") ? 10 : 4) * elements(g, a) * size(g, y->shape[2]);
    if (!strncmp(name, "prim.rnn", 8))
        return 2 * elements(g, a) * size(g, x->shape[x->rank - 1]);
    return 0;
}

static double bytes_of(WfGraph *g, WfVal v) { return elements(g, v) * (double)wf_dtype_size(wf_value(g, v)->dtype); }

double wf_weave_travel(WfGraph *g, const WfLink *link, const WfNode *n)
{
    const WfTravel *t = n->op->travel ? n->op->travel : wf_op_find(n->op->start)->travel;
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    double from = 0, to = 0;
    for (int i = 0; i < k; i++)
        from += bytes_of(g, in[i]);
    for (int i = 0; i < n->n_out; i++)
        to += bytes_of(g, n->out + (WfVal)i);
    return link->latency + (from > to ? from : to) * t->traffic / link->rate;
}

double wf_weave_seconds(WfGraph *g, const WfMachine *m, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS];
    double bytes = 0;
    if (n->op->family == WF_VIEW || n->op->family == WF_COLLECTIVE)
        return 0;
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        bytes += in[i] ? bytes_of(g, in[i]) : 0;
    for (int i = 0; i < n->n_out; i++)
        bytes += bytes_of(g, n->out + (WfVal)i);
    return flops(g, n) / m->flops + bytes / m->bytes;
}
