/* What a node costs, from its shape alone: FLOPs of products against the peak of one core, bytes of everything else
 * against its memory bandwidth, what travels against the link between the ranks (base/machine.c). */
#include "weave/weave.h"

#include <string.h>

typedef struct { WfGraph *g; const int64_t *symbols; } Sizes;

static double size(const Sizes *s, WfDim d)
{
    int64_t n;
    return wf_eeval(s->g->exprs, d, s->symbols, &n) && n > 0 ? (double)n : 1;
}

static double elements(const Sizes *s, WfVal v) { return v ? size(s, wf_numel(s->g, v)) : 0; }

int64_t *wf_weave_usual(WfGraph *g)
{
    enum { SOME = 32 };
    int n = wf_esym_count(g->exprs);
    int64_t *values = WF_NEWN(g->arena, int64_t, (size_t)n + 1);
    for (int i = 0; i < n; i++) {
        int64_t lo, hi, hint = wf_esym_hint(g->exprs, i);
        wf_esym_range(g->exprs, i, &lo, &hi);
        values[i] = hint ? hint : SOME;
        values[i] = values[i] < lo ? lo : values[i] > hi ? hi : values[i];
    }
    return values;
}

/* Multiplications and additions of a library call, from the shapes of its operands. */
static double flops(const Sizes *s, const WfNode *n)
{
    WfGraph *g = s->g;
    const char *name = n->schema->name;
    WfVal a = wf_tensor(n, 0), b = wf_tensor(n, 1);
    if (!a || !b)
        return 0;
    const WfValue *x = wf_value(g, a), *y = wf_value(g, b);
    if (!strcmp(name, "prim.matmul"))
        return 2 * elements(s, a) * size(s, y->shape[y->rank - 1]);
    if (!strcmp(name, "prim.conv")) /* every output element reads a window of the weight */
        return 2 * elements(s, n->out) * elements(s, b) / size(s, y->shape[0]);
    if (!strcmp(name, "prim.conv_bwd_data"))
        return 2 * elements(s, a) * elements(s, b) / size(s, y->shape[0]);
    if (!strcmp(name, "prim.conv_bwd_weight"))
        return 2 * elements(s, b) * elements(s, n->out) / size(s, y->shape[1]);
    if (!strcmp(name, "prim.attention") || !strcmp(name, "prim.attention_bwd"))
        return (strcmp(name, "prim.attention") ? 10 : 4) * elements(s, a) * size(s, y->shape[2]);
    if (!strncmp(name, "prim.rnn", 8))
        return 2 * elements(s, a) * size(s, x->shape[x->rank - 1]);
    return 0;
}

double wf_weave_flops(WfGraph *g, const int64_t *symbols)
{
    const Sizes s = {g, symbols};
    double all = 0;
    for (int i = 1; i < g->nodes.n; i++)
        all += flops(&s, wf_node(g, (WfNodeId)i));
    return all;
}

static double bytes_of(const Sizes *s, WfVal v) { return elements(s, v) * (double)wf_dtype_size(wf_value(s->g, v)->dtype); }

double wf_weave_travel(WfGraph *g, const WfLink *link, const WfNode *n)
{
    const WfTravel *t = n->op->travel ? n->op->travel : wf_op_find(n->op->start)->travel;
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    const Sizes sizes = {g, wf_weave_usual(g)}, *s = &sizes;
    double from = 0, to = 0;
    for (int i = 0; i < k; i++)
        from += bytes_of(s, in[i]);
    for (int i = 0; i < n->n_out; i++)
        to += bytes_of(s, n->out + (WfVal)i);
    return link->latency + (from > to ? from : to) * t->traffic / link->rate;
}

double wf_weave_seconds(WfGraph *g, const WfMachine *m, const WfNode *n, const int64_t *symbols)
{
    const Sizes sizes = {g, symbols}, *s = &sizes;
    WfVal in[WF_MAX_RESULTS];
    double bytes = 0;
    if (n->op->family == WF_VIEW || n->op->family == WF_COLLECTIVE)
        return 0;
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        bytes += in[i] ? bytes_of(s, in[i]) : 0;
    for (int i = 0; i < n->n_out; i++)
        bytes += bytes_of(s, n->out + (WfVal)i);
    return flops(s, n) / m->flops + bytes / m->bytes;
}
