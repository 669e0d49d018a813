/* The oracle: evaluates a graph of primitives in double precision, one element at a time, with nothing shared
 * with the code generator but the ops' own rows. Pointwise ops go through their eval functions, views through
 * their index maps (the map is built once with symbols for the result's index and evaluated for every
 * element), reductions through their combine; everything else brings an eval function in its row. Floats are
 * not rounded between nodes, except by conversions and in the 16-bit formats; integers wrap as their dtype
 * does. */
#include "ir/ir_private.h"

#include <math.h>
#include <string.h>

int64_t wf_oracle_dim(const WfOracle *o, WfDim d)
{
    int64_t v;
    if (!wf_eeval(o->g->exprs, d, o->symbols, &v))
        wf_fail(o->g->ctx, WF_E_BUG, "oracle: a size has no value");
    return v;
}

int64_t wf_oracle_shape(const WfOracle *o, WfVal v, int64_t *shape)
{
    const WfValue *x = wf_value(o->g, v);
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++)
        n *= shape[i] = wf_oracle_dim(o, x->shape[i]);
    return n;
}

int64_t wf_oracle_numel(const WfOracle *o, WfVal v)
{
    int64_t shape[WF_MAX_RANK];
    return wf_oracle_shape(o, v, shape);
}

double *wf_oracle_new(WfOracle *o, WfVal v)
{
    return o->val[v] = WF_NEWN(o->arena, double, (size_t)wf_oracle_numel(o, v) + 1);
}

/* A number as dtype t holds it. */
static double as_dtype(WfDtype t, double v)
{
    char tmp[8];
    if (t == WF_F64 || t == WF_I64)
        return t == WF_F64 ? v : (double)(wf_store_f64(t, tmp, v), wf_load_i64(t, tmp));
    wf_store_f64(t, tmp, v);
    return wf_load_f64(t, tmp);
}

static void pointwise(WfOracle *o, const WfNode *n)
{
    WfGraph *g = o->g;
    WfVal in[8];
    int k = wf_operands(n, in, 8);
    int64_t count = wf_oracle_numel(o, n->out);
    double *y = wf_oracle_new(o, n->out);
    WfDtype from = wf_value(g, in[k == 3 ? 1 : 0])->dtype, to = wf_value(g, n->out)->dtype;
    bool floats = wf_dtype_is_float(from);
    bool round = wf_dtype_is_float(to) && (to != from || to == WF_F16 || to == WF_BF16);
    if (floats ? !n->op->eval_f : !n->op->eval_i)
        wf_fail_node(g, n, WF_E_BUG, "oracle: no evaluation for %s", wf_dtype_name(from));
    for (int64_t i = 0; i < count; i++) {
        double f[8];
        int64_t v[8];
        for (int j = 0; j < k; j++) {
            f[j] = o->val[in[j]][i];
            v[j] = floats ? 0 : (int64_t)f[j];
        }
        double r;
        if (floats) {
            r = n->op->eval_f(f);
        } else {
            char tmp[8];
            wf_store_i64(to, tmp, n->op->eval_i(v));
            r = wf_load_f64(to, tmp);
        }
        y[i] = round || (floats && !wf_dtype_is_float(to)) ? as_dtype(to, r) : r;
    }
}

/* Steps a row-major index; false after the last. */
static bool next(int rank, const int64_t *shape, int64_t *at)
{
    for (int d = rank - 1; d >= 0; d--) {
        if (++at[d] < shape[d])
            return true;
        at[d] = 0;
    }
    return false;
}

static void view(WfOracle *o, const WfNode *n)
{
    WfGraph *g = o->g;
    WfVal in[WF_MAX_RESULTS];
    WfDim sym[WF_MAX_RANK];
    int k = wf_operands(n, in, WF_MAX_RESULTS), rank = wf_value(g, n->out)->rank, id[WF_MAX_RANK];
    for (int d = 0; d < rank; d++) {
        char name[16];
        snprintf(name, sizeof name, "oracle.i%d", d);
        sym[d] = wf_sym(g->exprs, name, 0, INT64_MAX);
        id[d] = wf_esym_id(g->exprs, sym[d]);
    }
    int n_sym = wf_esym_count(g->exprs);
    int64_t *values = WF_NEWN(o->arena, int64_t, (size_t)n_sym + 1), shape[WF_MAX_RANK];
    for (int i = 0; o->symbols && i < n_sym; i++)
        if (strncmp(wf_esym_name(g->exprs, i), "oracle.", 7))
            values[i] = o->symbols[i];
    int64_t count = wf_oracle_shape(o, n->out, shape);
    double *y = wf_oracle_new(o, n->out);
    for (int op = 0; op < k; op++) {
        WfIndex ix = {.operand = op};
        memcpy(ix.at, sym, sizeof(WfDim) * (size_t)rank);
        n->op->index(g, n, &ix);
        int64_t at[WF_MAX_RANK] = {0}, in_shape[WF_MAX_RANK];
        wf_oracle_shape(o, in[op], in_shape);
        int in_rank = wf_value(g, in[op])->rank;
        for (int64_t i = 0; i < count; i++, next(rank, shape, at)) {
            bool inside = true;
            int64_t flat = 0;
            for (int d = 0; d < rank; d++)
                values[id[d]] = at[d];
            for (int q = 0; q < ix.n_guards && inside; q++) {
                int64_t v, lo, hi;
                inside = wf_eeval(g->exprs, ix.guard[q].value, values, &v) &&
                         wf_eeval(g->exprs, ix.guard[q].lo, values, &lo) &&
                         wf_eeval(g->exprs, ix.guard[q].hi, values, &hi) && v >= lo && v < hi;
            }
            for (int d = 0; d < in_rank && inside; d++) {
                int64_t v;
                if (!wf_eeval(g->exprs, ix.at[d], values, &v) || v < 0 || v >= in_shape[d])
                    wf_fail_node(g, n, WF_E_BUG, "oracle: the index map leaves dimension %d", d);
                flat = flat * in_shape[d] + v;
            }
            if (inside)
                y[i] = o->val[in[op]][flat];
            else if (k == 1)
                y[i] = ix.fill;
        }
    }
}

static void reduce(WfOracle *o, const WfNode *n)
{
    WfGraph *g = o->g;
    WfVal x = wf_tensor(n, 0);
    int64_t shape[WF_MAX_RANK], at[WF_MAX_RANK] = {0}, n_in = wf_oracle_shape(o, x, shape);
    int64_t n_out = wf_oracle_numel(o, n->out);
    int rank = wf_value(g, x)->rank;
    uint32_t dims = 0;
    for (int i = 0; i < n->args[1].n; i++)
        dims |= 1u << n->args[1].ints[i];
    double *y = wf_oracle_new(o, n->out);
    for (int64_t i = 0; i < n_out; i++)
        y[i] = n->op->init;
    for (int64_t i = 0; i < n_in; i++, next(rank, shape, at)) {
        int64_t to = 0;
        for (int d = 0; d < rank; d++)
            if (!(dims >> d & 1))
                to = to * shape[d] + at[d];
        y[to] = n->op->reduce(y[to], o->val[x][i]);
    }
    WfDtype t = wf_value(g, n->out)->dtype;
    for (int64_t i = 0; i < n_out && t != WF_F32 && t != WF_F64; i++)
        y[i] = as_dtype(t, y[i]);
}

/* An input that the caller does not give has the value it starts with. */
static double *start_value(WfOracle *o, const WfInput *in)
{
    int64_t shape[WF_MAX_RANK], at[WF_MAX_RANK] = {0}, n = wf_oracle_shape(o, in->val, shape);
    const WfValue *v = wf_value(o->g, in->val);
    double *x = WF_NEWN(o->arena, double, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++, next(v->rank, shape, at)) {
        int64_t from = 0;
        for (int d = 0; d < v->rank; d++)
            from += at[d] * in->strides[d];
        x[i] = in->data
                   ? wf_load_f64(v->dtype, (const char *)in->data + (size_t)from * wf_dtype_size(v->dtype))
                   : in->fill;
    }
    return x;
}

void wf_oracle_run(WfOracle *o, const double *const *inputs)
{
    WfGraph *g = o->g;
    o->val = WF_NEWN(o->arena, double *, (size_t)g->values.n);
    for (int i = 0; i < g->inputs.n; i++)
        o->val[g->inputs.at[i].val] = inputs[i] ? (double *)inputs[i] : start_value(o, &g->inputs.at[i]);
    bool *live = wf_live_nodes(g);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!live[i])
            continue;
        if (n->op->eval)
            n->op->eval(o, n);
        else if (n->op->family == WF_POINTWISE)
            pointwise(o, n);
        else if (n->op->family == WF_VIEW && n->op->index)
            view(o, n);
        else if (n->op->family == WF_REDUCE)
            reduce(o, n);
        else
            wf_fail_node(g, n, WF_E_ORACLE, "the oracle cannot evaluate it");
    }
}
