/* Splitting reductions. A long reduction with few results would be one tile; it is cut in two, first over pieces, then
 * over the pieces' results. The cut is a function of the shapes alone, so the order of every sum is fixed. */
#include "fuse/fuse.h"
#include "ops/ops.h"

#include <string.h>

#define FEW_TILES 64         /* with more, the kernel has tiles enough */
#define LONG_ELEMENTS 32768  /* operand elements: below this one tile is quick */

static bool splittable(const WfNode *n)
{
    const char *s = n->schema->name;
    return !strcmp(s, "prim.sum") || !strcmp(s, "prim.amax") || !strcmp(s, "prim.amin") || !strcmp(s, "prim.prod");
}

/* The reduced dimension to keep in the first stage and in how many pieces; 0 when the reduction stays whole. */
static int64_t pieces(WfGraph *g, const WfNode *n, int *dim)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    int64_t total = 1, kept = 1, size, best = 0;
    uint32_t mask = 0;
    for (int i = 0; i < n->args[1].n; i++)
        mask |= 1u << n->args[1].ints[i];
    for (int i = 0; i < x->rank; i++) {
        if (!wf_elit(g->exprs, x->shape[i], &size))
            return 0;
        total *= size;
        if (!(mask >> i & 1))
            kept *= size;
    }
    /* the slowest dimension reduced: columns, 16 to a tile; else rows */
    if (total < LONG_ELEMENTS || (mask & 1 ? kept / 16 : kept) >= FEW_TILES)
        return 0;
    int64_t want = total / 8192;
    want = want > 32 ? 32 : want;
    for (int i = 0; i < x->rank && !best; i++) { /* the slowest reduced dimension that divides */
        wf_elit(g->exprs, x->shape[i], &size);
        if (!(mask >> i & 1))
            continue;
        for (int64_t p = want; p >= 2; p--)
            if (size % p == 0) {
                best = p;
                *dim = i;
                break;
            }
    }
    return best;
}

static WfVal split(WfGraph *g, const WfNode *n, WfVal x, int dim, int64_t p)
{
    const WfValue *v = wf_value(g, x);
    WfDim shape[WF_MAX_RANK + 1];
    uint32_t first = 0;
    int64_t size;
    int r = 0, at = 0, kept = 0;
    wf_elit(g->exprs, v->shape[dim], &size);
    for (int i = 0; i < v->rank; i++) {
        bool reduced = false;
        for (int k = 0; k < n->args[1].n; k++)
            reduced |= n->args[1].ints[k] == i;
        if (i == dim) {
            at = kept;
            shape[r++] = p;
            shape[r] = size / p;
            first |= 1u << r++;
            continue;
        }
        if (reduced)
            first |= 1u << r;
        else
            kept++;
        shape[r++] = v->shape[i];
    }
    WfVal part = wf_reduce(g, n->schema->name, wf_reshape(g, x, r, shape), first, false);
    return wf_reduce(g, n->schema->name, part, 1u << at, false);
}

/* The split of node n of `from`, whose line its nodes keep; the last has its name as well. */
static WfVal split_node(const WfGraph *from, const WfNode *n, WfGraph *to, WfVal x, int dim, int64_t p)
{
    uint32_t source = to->source;
    int before = to->values.n;
    to->source = n->source;
    WfVal v = split(to, n, x, dim, p);
    to->source = source;
    const char *name = wf_value(from, n->out)->name;
    if (name && (int)v >= before && !wf_value(to, v)->name)
        wf_name_value(to, v, name);
    return v;
}

WfGraph *wf_fuse_split(WfPassEnv *env, WfGraph *g)
{
    (void)env;
    WfGraph *to = wf_graph_like(g, WF_PRIM);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    bool *live = wf_live_nodes(g);
    wf_copy_inputs(g, to, map);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        int dim = 0;
        int64_t p = live[i] && splittable(n) && wf_value(g, wf_tensor(n, 0))->rank < WF_MAX_RANK ? pieces(g, n, &dim) : 0;
        if (!live[i])
            continue;
        if (p)
            map[n->out] = split_node(g, n, to, map[wf_tensor(n, 0)], dim, p);
        else
            wf_copy_node(g, n, to, map);
    }
    wf_copy_outputs(g, to, map);
    return to;
}
