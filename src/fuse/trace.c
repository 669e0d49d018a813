/* Index tracing. Views are index maps; composing them from a result downwards gives, for every stored value that a
 * computation reads, the index it is read at, as expressions over the loop variables. */
#include "fuse/fuse.h"

#include <string.h>

WfDim wf_flatten(WfExprs *e, int rank, const WfDim *shape, const WfDim *ix)
{
    WfDim flat = 0;
    for (int i = 0; i < rank; i++)
        flat = wf_eadd(e, wf_emul(e, flat, shape[i]), ix[i]);
    return flat;
}

void wf_unflatten(WfExprs *e, int rank, const WfDim *shape, WfDim flat, WfDim *ix)
{
    for (int i = rank - 1; i > 0; i--) {
        ix[i] = wf_emod(e, flat, shape[i]);
        flat = wf_efloordiv(e, flat, shape[i]);
    }
    if (rank)
        ix[0] = shape[0] == 1 ? 0 : flat;
}

static bool walk(WfWalk *w, WfVal v, const WfDim *ix, bool guarded, bool root);

static bool walk_view(WfWalk *w, const WfNode *n, const WfDim *ix, bool guarded)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++) {
        WfIndex x = {.operand = i};
        memcpy(x.at, ix, sizeof x.at);
        n->op->index(w->g, n, &x);
        if (!walk(w, in[i], x.at, guarded || x.n_guards, false))
            return false;
    }
    return true;
}

static bool walk(WfWalk *w, WfVal v, const WfDim *ix, bool guarded, bool root)
{
    struct { WfVal v; bool guarded; WfDim ix[WF_MAX_RANK]; } key;
    memset(&key, 0, sizeof key);
    key.v = v;
    key.guarded = guarded;
    memcpy(key.ix, ix, (size_t)wf_value(w->g, v)->rank * sizeof *ix);
    if (wf_map_get_bytes(w->seen, &key, sizeof key, NULL))
        return true;
    wf_map_put_bytes(w->seen, &key, sizeof key, 1);
    const WfNode *n = wf_producer(w->g, v);
    if (!n || (!root && w->stored[v]))
        return w->leaf(w, v, key.ix, guarded);
    w->steps++;
    WfDim at[WF_MAX_RANK];
    WfVal in[16];
    switch (n->op->family) {
    case WF_SOURCE:
        return true;
    case WF_VIEW:
        return walk_view(w, n, key.ix, guarded);
    case WF_POINTWISE: {
        int k = wf_operands(n, in, 16);
        for (int i = 0; i < k; i++)
            if (!walk(w, in[i], key.ix, guarded, false))
                return false;
        return true;
    }
    case WF_GATHER: {
        if (!walk(w, wf_tensor(n, 2), key.ix, guarded, false))
            return false;
        memcpy(at, key.ix, sizeof at); /* the data decide: a symbol nobody knows stands for the position read */
        at[n->args[1].i] = wf_sym(w->g->exprs, "data", 0, INT64_MAX);
        return walk(w, wf_tensor(n, 0), at, true, false);
    }
    default:
        return w->leaf(w, v, key.ix, guarded);
    }
}

bool wf_walk(WfWalk *w, WfVal v, const WfDim *ix)
{
    w->seen = wf_map_new(w->g->arena);
    WfDim at[WF_MAX_RANK] = {0};
    memcpy(at, ix, (size_t)wf_value(w->g, v)->rank * sizeof *ix);
    return walk(w, v, at, false, true);
}

void wf_memory_strides(WfGraph *g, WfVal v, WfDim *stride)
{
    const WfValue *x = wf_value(g, v);
    WfDim at = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        int d = x->ordered ? x->order[i] : i;
        stride[d] = at;
        at = wf_emul(g->exprs, at, x->shape[d]);
    }
}

bool wf_strided(WfGraph *g, WfVal v, const bool *stored, WfStrided *out)
{
    WfExprs *e = g->exprs;
    const WfValue *x = wf_value(g, v);
    WfDim ix[WF_MAX_RANK] = {0}, var[WF_MAX_RANK], stride[WF_MAX_RANK];
    int rank = x->rank;
    for (int i = 0; i < rank; i++) {
        WfStr name = {.arena = g->arena};
        wf_str_printf(&name, "o%d.", i);
        wf_eprint(e, x->shape[i], &name);
        for (char *c = name.at; *c; c++)
            if (!((*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || *c == '.'))
                *c = '_';
        wf_str_printf(&name, "_%llx", (unsigned long long)x->shape[i]);
        ix[i] = var[i] = wf_sym_bounded(e, name.at, x->shape[i]);
    }
    const WfNode *n;
    while (!stored[v] && (n = wf_producer(g, v))) {
        if (n->op->family != WF_VIEW || wf_operand_count(n) != 1)
            return false;
        WfIndex m = {0};
        memcpy(m.at, ix, sizeof ix);
        n->op->index(g, n, &m);
        for (int i = 0; i < m.n_guards; i++) { /* a crop's guards always hold; anything else is a mask */
            if (!wf_eprove_le(e, m.guard[i].lo, m.guard[i].value) || !wf_eprove_lt(e, m.guard[i].value, m.guard[i].hi))
                return false;
        }
        memcpy(ix, m.at, sizeof ix);
        v = wf_tensor(n, 0);
    }
    wf_memory_strides(g, v, stride);
    WfDim at = 0;
    for (int i = 0; i < wf_value(g, v)->rank; i++)
        at = wf_eadd(e, at, wf_emul(e, ix[i], stride[i]));
    for (int i = 0; i < rank; i++) {
        WfDim rest;
        if (!wf_elinear(e, at, var[i], &out->stride[i], &rest))
            return false;
        at = rest;
    }
    for (int i = 0; i < rank; i++)
        for (int k = 0; k < rank; k++)
            if (wf_edepends(e, out->stride[i], var[k]))
                return false;
    out->base = v;
    out->offset = at;
    return true;
}
