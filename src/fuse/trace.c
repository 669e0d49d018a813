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
        WfDim size = shape[i] ? shape[i] : 1; /* of what has no elements nothing is read: any index will do */
        ix[i] = wf_emod(e, flat, size);
        flat = wf_efloordiv(e, flat, size);
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
