/* A product of rows that a lookup repeats: table[index] @ w = (table @ w)[index]. Where there are many more rows than the table
 * has, as in a text of few characters or a graph of more edges than nodes, the product of the table is the lesser work; so are
 * both of its gradients, which are made of the sums over equal rows. */
#include "simplify/private.h"

#include "ops/ops.h"

/* The rows are looked up before the product when there are at least so many for each of the table's. */
enum { LEAST_REPEATS = 2, VIEWS_MOST = 8 };

typedef struct {
    const WfNode *gather;
    WfVal index;                       /* [rows, 1] */
    const WfNode *views[VIEWS_MOST];   /* from the gather's result to the product's operand, last first */
    int n;
} Lookup;

/* Does the view leave rows whole: what its last dimension holds is the last dimension of its operand? */
static bool keeps_rows(WfGraph *g, const WfNode *n)
{
    WfVal x = wf_tensor(n, 0);
    int rank = wf_rank_of(g, x), to = wf_rank_of(g, n->out);
    if (!rank || !to || !wf_dims_equal(g, wf_size_of(g, x, -1), wf_size_of(g, n->out, -1)))
        return false;
    if (wf_is(n, "prim.reshape"))
        return true;
    const WfArg *perm = wf_arg(n, "dims");
    int64_t last;
    return wf_is(n, "prim.permute") && wf_elit(g->exprs, perm->ints[rank - 1], &last) && last == rank - 1;
}

static bool find_lookup(WfGraph *g, WfVal v, Lookup *l)
{
    const WfNode *n = wf_producer(g, v);
    for (l->n = 0; n && keeps_rows(g, n); n = wf_producer(g, v)) {
        if (l->n == VIEWS_MOST)
            return false;
        l->views[l->n++] = n;
        v = wf_tensor(n, 0);
    }
    if (!wf_is(n, "prim.gather") || wf_lit(g, n, 1) != 0 || wf_rank_of(g, wf_tensor(n, 0)) != 2)
        return false;
    const WfNode *expand = wf_producer(g, wf_tensor(n, 2));
    if (!wf_is(expand, "prim.expand"))
        return false;
    l->gather = n;
    l->index = wf_tensor(expand, 0);
    int64_t columns;
    return wf_rank_of(g, l->index) == 2 && wf_elit(g->exprs, wf_size_of(g, l->index, 1), &columns) && columns == 1;
}

static bool worthwhile(WfGraph *g, const Lookup *l)
{
    int64_t table, rows;
    return wf_elit(g->exprs, wf_size_of(g, wf_tensor(l->gather, 0), 0), &table) &&
           wf_elit(g->exprs, wf_size_of(g, l->index, 0), &rows) && rows / LEAST_REPEATS >= table;
}

/* The view of rows of another length. */
static WfVal view_again(WfGraph *g, const WfNode *n, WfGraph *to, WfVal x)
{
    WfDim shape[WF_MAX_RANK];
    int perm[WF_MAX_RANK], rank = wf_rank_of(g, n->out);
    if (wf_is(n, "prim.permute")) {
        for (int d = 0; d < rank; d++)
            perm[d] = (int)wf_arg(n, "dims")->ints[d];
        return wf_permute(to, x, perm);
    }
    for (int d = 0; d < rank - 1; d++)
        shape[d] = wf_size_of(g, n->out, d);
    shape[rank - 1] = wf_size_of(to, x, -1);
    return wf_reshape(to, x, rank, shape);
}

static WfVal exchange(WfGraph *g, const WfNode *product, const Lookup *l, WfGraph *to, const WfVal *map)
{
    to->source = product->source;
    WfVal y = wf_matmul(to, map[wf_tensor(l->gather, 0)], map[wf_tensor(product, 1)]);
    to->source = l->gather->source;
    WfDim shape[2] = {wf_size_of(g, l->index, 0), wf_size_of(to, y, 1)};
    y = wf_gather(to, y, 0, wf_expand(to, map[l->index], 2, shape));
    for (int i = l->n; i-- > 0;) {
        to->source = l->views[i]->source;
        y = view_again(g, l->views[i], to, y);
    }
    const char *name = wf_value(g, product->out)->name;
    if (name && !wf_value(to, y)->name)
        wf_name_value(to, y, name);
    return y;
}

WfGraph *wf_simplify_lookup(WfPassEnv *env, WfGraph *g)
{
    (void)env;
    WfGraph *to = wf_graph_like(g, WF_OP);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    bool any = false;
    wf_copy_inputs(g, to, map);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        Lookup l = {0};
        if (wf_is(n, "prim.matmul") && wf_rank_of(g, n->out) == 2 && find_lookup(g, wf_tensor(n, 0), &l) && worthwhile(g, &l)) {
            map[n->out] = exchange(g, n, &l, to, map);
            any = true;
        } else {
            wf_copy_node(g, n, to, map);
        }
    }
    wf_copy_outputs(g, to, map);
    if (!any)
        return g;
    WfGraph *live = wf_graph_like(to, WF_OP); /* lookups that nobody else reads are left out */
    wf_graph_copy(to, live, NULL);
    return live;
}
