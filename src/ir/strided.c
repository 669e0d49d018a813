/* Where values lie in memory: strides of stored values, and of what views make of them. */
#include "ir/ir_private.h"

#include <string.h>

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
    while (!(stored && stored[v]) && (n = wf_producer(g, v))) {
        if (n->op->family != WF_VIEW && !stored)
            break;
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
    out->rank = rank;
    memcpy(out->shape, x->shape, sizeof out->shape);
    return true;
}

bool wf_call_operand(WfGraph *g, const WfLibraryCall *c, int k, const bool *stored, WfStrided *out)
{
    WfVal v = c->at[k].v;
    out->base = v;
    out->offset = 0;
    out->rank = c->at[k].rank;
    if (v == WF_STATUS) {
        out->rank = 1;
        out->shape[0] = 2;
        out->stride[0] = 1;
        return true;
    }
    const WfValue *x = wf_value(g, v);
    bool whole = c->at[k].rank > 0;
    WfDim dense = 1;
    if (!wf_strided(g, v, stored, out))
        return false;
    if (!c->at[k].dense && !whole)
        return true;
    for (int i = x->rank - 1; i >= 0; i--) { /* dense in the wanted order? */
        int d = !whole && c->at[k].ordered ? c->at[k].order[i] : i;
        if (x->shape[d] != 1 && out->stride[d] != dense)
            return false;
        out->stride[d] = dense;
        dense = wf_emul(g->exprs, dense, x->shape[d]);
    }
    if (whole) {
        out->rank = c->at[k].rank;
        WfDim at = 1;
        for (int i = out->rank - 1; i >= 0; i--) {
            out->shape[i] = c->at[k].shape[i];
            out->stride[i] = at;
            at = wf_emul(g->exprs, at, out->shape[i]);
        }
    }
    return true;
}
