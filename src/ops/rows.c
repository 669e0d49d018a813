/* Where the rows of a batch lie in every value of a graph: followed from the inputs, whose first dimension is the batch,
 * through views, pointwise nodes and whatever treats samples alike. It serves what must know which elements of a loss
 * belong to which sample. Where rows are summed over or lost sight of, a value is mixed; a pointwise node of a mixed value
 * and one with rows goes by the latter (normalised by statistics of the batch, a sample's element is still its own). */
#include "ops/ops_private.h"

#include <string.h>

#define E(g) ((g)->exprs)

static const WfRows mixed = {.dim = WF_ROWS_MIXED}, none = {.dim = WF_ROWS_NONE};

static WfRows at(int dim, WfDim inner) { return (WfRows){.dim = dim, .inner = inner}; }

static WfRows merge(WfRows a, WfRows b)
{
    if (a.dim == WF_ROWS_NONE || (a.dim == WF_ROWS_MIXED && b.dim >= 0))
        return b;
    if (b.dim < 0 || (a.dim == b.dim && a.inner == b.inner))
        return a;
    return mixed;
}

static WfDim product(WfGraph *g, const WfDim *shape, int n)
{
    WfDim p = 1;
    for (int i = 0; i < n; i++)
        p = wf_emul(E(g), p, shape[i]);
    return p;
}

/* a / b, where that is proved to leave nothing. */
static bool quotient(WfGraph *g, WfDim a, WfDim b, WfDim *q)
{
    int64_t lit;
    if (wf_elit(E(g), b, &lit) && lit <= 0)
        return false;
    *q = wf_efloordiv(E(g), a, b);
    return *q != 0 && wf_emul(E(g), *q, b) == a;
}

/* Row-major, an element's place is ((outer * batch + row) * inner + rest), however the shape cuts it. */
static WfRows reshaped(WfGraph *g, const WfNode *n, WfRows r, WfDim batch)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *y = wf_value(g, n->out);
    WfDim inner = wf_emul(E(g), r.inner, product(g, x->shape + r.dim + 1, x->rank - r.dim - 1)), behind = 1, in;
    for (int e = y->rank - 1; e >= 0; behind = wf_emul(E(g), behind, y->shape[e--])) {
        WfDim here, rest;
        if (quotient(g, inner, behind, &in) && quotient(g, y->shape[e], wf_emul(E(g), in, batch), &here))
            return at(e, in);
        if (!quotient(g, inner, behind, &rest))
            break;
    }
    return mixed;
}

static WfRows view(WfGraph *g, const WfNode *n, const WfRows *rows, WfDim batch)
{
    const char *name = n->schema->name + strlen("prim.");
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    WfRows r = none;
    for (int i = 0; i < k && i < WF_MAX_RESULTS; i++)
        r = merge(r, rows[in[i]]);
    if (r.dim < 0)
        return r;
    if (!strcmp(name, "reshape"))
        return reshaped(g, n, r, batch);
    if (!strcmp(name, "expand"))
        return at(r.dim + wf_rank_of(g, n->out) - wf_rank_of(g, in[0]), r.inner);
    for (int i = 0; !strcmp(name, "permute") && i < n->args[1].n; i++)
        if (n->args[1].ints[i] == r.dim)
            return at(i, r.inner);
    /* slice, cat, flip, pad, window, unwindow: the other dimensions are as they were */
    return wf_size_of(g, n->out, r.dim) == wf_size_of(g, in[0], r.dim) && strcmp(name, "flip") ? r : mixed;
}

static WfRows reduced(const WfNode *n, WfRows r)
{
    int dim = r.dim;
    for (int i = 0; i < n->args[1].n && dim >= 0; i++) {
        if (n->args[1].ints[i] == dim)
            return mixed;
        r.dim -= n->args[1].ints[i] < dim;
    }
    return r;
}

static WfRows product_rows(WfGraph *g, const WfNode *n, const WfRows *rows)
{
    WfRows a = rows[wf_tensor(n, 0)], b = rows[wf_tensor(n, 1)];
    int rank = wf_rank_of(g, n->out);
    bool summed = a.dim == rank - 1 || b.dim == rank - 2;
    return summed ? mixed : merge(a, b);
}

/* Losses by row of x[N, C, ...]: the labels', else those of x without its classes. */
static WfRows class_rows(WfGraph *g, const WfNode *n, const WfRows *rows)
{
    WfRows x = rows[wf_tensor(n, 0)], label = rows[wf_tensor(n, 1)];
    int classes = wf_rank_of(g, wf_tensor(n, 0)) > 1;
    if (label.dim >= 0)
        return label;
    if (x.dim < 0)
        return merge(label, x);
    return x.dim == classes ? mixed : at(x.dim - (x.dim > classes), x.inner);
}

/* Result k of the other nodes, which treat samples alike along the dimension that holds them. */
static WfRows other(WfGraph *g, const WfNode *n, int k, const WfRows *rows)
{
    const char *name = n->schema->name;
    WfRows r = rows[wf_tensor(n, 0)];
    bool along = !strcmp(name, "prim.cumsum") || !strcmp(name, "prim.cumprod");
    if (!strcmp(name, "prim.gather")) { /* the index says what is taken of whom, unless x has rows of its own there */
        WfRows index = rows[wf_tensor(n, 2)];
        if (r.dim >= 0 && r.dim == n->args[1].i)
            r = mixed;
        return merge(r, index);
    }
    if (!strcmp(name, "prim.rnn")) /* xproj[T, B, ..] -> [T, B, H], and states [B, H] */
        return r.dim == 1 ? at(k ? 0 : 1, r.inner) : r.dim >= 0 ? mixed : r;
    if (!strcmp(name, "prim.sort"))
        return r.dim >= 0 && r.dim < wf_rank_of(g, n->out) - 1 ? r : r.dim >= 0 ? mixed : r;
    if (along)
        return r.dim >= 0 && r.dim == n->args[1].i ? mixed : r;
    if (!strcmp(name, "prim.conv") || !strcmp(name, "prim.attention") || !strcmp(name, "nn.max_pool") ||
        !strcmp(name, "prim.fold") || !strcmp(name, "nn.normalize")) {
        bool kept = r.dim >= 0 && wf_rank_of(g, n->out + (WfVal)k) > r.dim &&
                    wf_size_of(g, n->out + (WfVal)k, r.dim) == wf_size_of(g, wf_tensor(n, 0), r.dim);
        return r.dim < 0 || kept ? r : mixed;
    }
    WfVal in[WF_MAX_RESULTS]; /* anything else: is there a row in it at all? */
    int count = wf_operands(n, in, WF_MAX_RESULTS);
    bool pointwise = n->op->family == WF_POINTWISE || !strncmp(name, "nn.bce", 6) || !strcmp(name, "prim.graft") ||
                     !strcmp(name, "dist.all_reduce") || !strcmp(name, "dist.broadcast");
    r = none;
    for (int i = 0; i < count && i < WF_MAX_RESULTS; i++)
        r = merge(r, rows[in[i]]);
    return r.dim >= 0 && !pointwise ? mixed : r;
}

WfRows *wf_rows(WfGraph *g, WfDim batch)
{
    WfRows *rows = WF_NEWN(g->arena, WfRows, (size_t)g->values.n + 1);
    for (int i = 0; i < g->values.n; i++)
        rows[i] = none;
    for (int i = 0; i < g->inputs.n; i++) {
        const WfInput *in = &g->inputs.at[i];
        const WfValue *v = wf_value(g, in->val);
        if (in->role == WF_IN_USER && v->rank)
            rows[in->val] = wf_dims_equal(g, v->shape[0], batch) ? at(0, 1) : mixed;
    }
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        for (int k = 0; k < n->n_out; k++)
            rows[n->out + (WfVal)k] = n->op->family == WF_VIEW     ? view(g, n, rows, batch)
                                      : n->op->family == WF_REDUCE ? reduced(n, rows[wf_tensor(n, 0)])
                                      : !strcmp(n->schema->name, "prim.matmul")        ? product_rows(g, n, rows)
                                      : !strcmp(n->schema->name, "nn.cross_entropy") ? class_rows(g, n, rows)
                                                                                     : other(g, n, k, rows);
    }
    return rows;
}

WfVal wf_rows_below(WfGraph *g, WfRows r, WfVal like, WfDim batch, WfVal count)
{
    WfDim size = wf_size_of(g, like, r.dim), lead[WF_MAX_RANK], all = wf_emul(E(g), batch, r.inner);
    WfDim parts[3] = {wf_efloordiv(E(g), size, all), batch, r.inner}, row[3] = {1, batch, 1};
    WfVal below = wf_binary(g, "prim.lt", wf_iota(g, WF_I64, 1, &batch, 0), count);
    int rank = wf_rank_of(g, like);
    for (int i = 0; i < rank; i++)
        lead[i] = i == r.dim ? size : 1;
    below = wf_reshape(g, wf_expand(g, wf_reshape(g, below, 3, row), 3, parts), 1, &size);
    return wf_expand_like(g, wf_reshape(g, below, rank, lead), like);
}
