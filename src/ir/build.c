/* The builder. wf_emit_args is the only way a node comes into being: it completes the arguments from the schema,
 * folds trivial nodes, expands ops that the graph's level does not admit, shares equal nodes, and infers shapes. */
#include "ir/ir_private.h"

#include <string.h>

#define MAX_DEPTH 64

bool wf_admits(WfLevel level, const WfOp *op)
{
    const WfSchema *c = wf_schema_of(op);
    switch (level) {
    case WF_ATEN: return true;
    case WF_FUNC: return !c->mutates;
    case WF_OP: case WF_JOINT: case WF_DIST: return op->family != WF_COMPOSITE || op->vjp;
    default: return op->family != WF_COMPOSITE;
    }
}

/* ---- arguments ---- */

void wf_complete_args(WfGraph *g, const WfOp *op, const WfArg *given, WfArg *args)
{
    const WfSchema *c = wf_schema_of(op);
    for (int i = 0; i < c->n_params; i++) {
        const WfParam *p = &c->params[i];
        WfArg *a = &args[i];
        *a = given[i];
        if (a->kind == WF_ARG_NONE && p->has_default) {
            *a = p->fallback;
            if (a->kind == WF_ARG_INT)
                a->i = wf_econst(g->exprs, a->i); /* the schema holds plain numbers */
        }
        if (a->kind == WF_ARG_INT && p->type == WF_T_INTS) { /* int[2] takes a single int */
            int n = p->fixed ? p->fixed : 1;
            WfDim d = a->i;
            a->kind = WF_ARG_INTS;
            a->n = n;
            a->ints = WF_NEWN(g->arena, WfDim, (size_t)n);
            for (int j = 0; j < n; j++)
                a->ints[j] = d;
        } else if (a->kind == WF_ARG_INTS && p->fixed > 1 && a->n == 1) {
            WfDim d = a->ints[0];
            a->n = p->fixed;
            a->ints = WF_NEWN(g->arena, WfDim, (size_t)p->fixed);
            for (int j = 0; j < p->fixed; j++)
                a->ints[j] = d;
        } else if (a->kind == WF_ARG_TENSOR && p->type == WF_T_TENSORS) {
            WfVal v = a->val;
            a->kind = WF_ARG_TENSORS;
            a->n = 1;
            a->vals = WF_NEWN(g->arena, WfVal, 1);
            a->vals[0] = v;
        } else if (a->kind == WF_ARG_INTS && p->type == WF_T_FLOATS) {
            WfDim *d = a->ints;
            a->kind = WF_ARG_FLOATS;
            a->floats = WF_NEWN(g->arena, double, (size_t)a->n + 1);
            for (int j = 0; j < a->n; j++)
                a->floats[j] = (double)d[j];
        } else if (a->kind == WF_ARG_INTS && p->type == WF_T_TENSORS && !a->n) {
            a->kind = WF_ARG_TENSORS;
        } else if (a->kind == WF_ARG_TENSORS && p->type == WF_T_INTS && !a->n) {
            a->kind = WF_ARG_INTS;
        }
        if (a->kind == WF_ARG_NONE && !p->optional && !p->has_default && p->type != WF_T_IGNORED &&
            p->type != WF_T_TENSORS)
            wf_fail(g->ctx, WF_E_SHAPES, "%s: argument '%s' is missing", c->name, p->name);
        bool tensor_slot = p->type == WF_T_TENSOR || p->type == WF_T_TENSORS || p->type == WF_T_SCALAR;
        if ((a->kind == WF_ARG_TENSOR || a->kind == WF_ARG_TENSORS) && !tensor_slot && p->type != WF_T_IGNORED)
            wf_fail(g->ctx, WF_E_OP_FORM, "%s: argument '%s' must not be a tensor", c->name, p->name);
    }
}

static void copy_lists(WfGraph *g, const WfSchema *c, WfArg *args)
{
    for (int i = 0; i < c->n_params; i++) {
        WfArg *a = &args[i];
        size_t size = a->kind == WF_ARG_TENSORS ? sizeof(WfVal) : a->kind == WF_ARG_INTS ? sizeof(WfDim)
                    : a->kind == WF_ARG_FLOATS ? sizeof(double) : a->kind == WF_ARG_BOOLS ? sizeof(bool) : 0;
        if (size && a->n) {
            void *copy = wf_arena_alloc(g->arena, (size_t)a->n * size);
            memcpy(copy, a->ints, (size_t)a->n * size);
            a->ints = copy;
        } else if (a->kind == WF_ARG_STRING) {
            a->s = wf_arena_strdup(g->arena, a->s);
        }
    }
}

/* The identity of a node for sharing: op, flag, and every argument's bytes. */
static void node_key(WfStr *s, const WfOp *op, const WfSchema *c, const WfArg *args, bool no_grad)
{
    wf_str_putn(s, (const char *)&op, sizeof op);
    wf_str_putc(s, (char)no_grad);
    for (int i = 0; i < c->n_params; i++) {
        const WfArg *a = &args[i];
        wf_str_putc(s, (char)a->kind);
        wf_str_putn(s, (const char *)&a->n, sizeof a->n);
        switch (a->kind) {
        case WF_ARG_NONE: break;
        case WF_ARG_TENSOR: wf_str_putn(s, (const char *)&a->val, sizeof a->val); break;
        case WF_ARG_TENSORS: wf_str_putn(s, (const char *)a->vals, (size_t)a->n * sizeof *a->vals); break;
        case WF_ARG_INTS: wf_str_putn(s, (const char *)a->ints, (size_t)a->n * sizeof *a->ints); break;
        case WF_ARG_FLOATS: wf_str_putn(s, (const char *)a->floats, (size_t)a->n * sizeof *a->floats); break;
        case WF_ARG_BOOLS: wf_str_putn(s, (const char *)a->bools, (size_t)a->n * sizeof *a->bools); break;
        case WF_ARG_STRING: wf_str_puts(s, a->s); break;
        case WF_ARG_BOOL: wf_str_putc(s, a->b); break;
        case WF_ARG_DTYPE: wf_str_putc(s, (char)a->dtype); break;
        case WF_ARG_INT: case WF_ARG_FLOAT: case WF_ARG_GRAPH: wf_str_putn(s, (const char *)&a->i, 8); break;
        }
    }
}

/* ---- nodes ---- */

WfNode *wf_append_raw(WfGraph *g, const WfOp *op, const WfArg *args, int n_out)
{
    const WfSchema *c = wf_schema_of(op);
    WfNode n = {.op = op, .schema = c, .n_out = n_out, .source = g->source, .no_grad = g->no_grad};
    n.args = WF_NEWN(g->arena, WfArg, (size_t)c->n_params + 1);
    memcpy(n.args, args, (size_t)c->n_params * sizeof *args);
    copy_lists(g, c, n.args);
    n.out = (WfVal)g->values.n;
    WfNodeId id = (WfNodeId)g->nodes.n;
    for (int i = 0; i < n_out; i++) {
        WfValue v = {.node = id, .index = i};
        WF_PUSH(g->arena, &g->values, v);
    }
    WF_PUSH(g->arena, &g->nodes, n);
    return &g->nodes.at[id];
}

static void infer_pointwise(WfGraph *g, const WfNode *n)
{
    WfVal in[64];
    int k = wf_operands(n, in, 64);
    for (int i = 1; i < k; i++)
        if (!wf_same_shape(g, in[0], in[i]))
            wf_fail_node(g, n, WF_E_BUG, "operands %s and %s differ in shape", wf_shape_text(g, in[0]),
                         wf_shape_text(g, in[i]));
    const WfValue *x = wf_value(g, in[0]);
    wf_set_result(g, n, 0, n->op->result ? n->op->result : x->dtype, x->rank, x->shape);
}

/* Expands n in a scratch graph over inputs of the operands' shapes. Returns how many results it has. */
static int expand_aside(WfGraph *g, const WfNode *n, WfGraph **aside, WfVal *out)
{
    WfGraph *scratch = wf_graph_like(g, WF_OP);
    WfArg args[64];
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++) {
        const WfValue *v = wf_value(g, in[i]);
        if (in[i] && !map[in[i]])
            map[in[i]] = wf_add_input(scratch, WF_IN_USER, v->name ? v->name : "x", v->dtype, v->rank, v->shape);
    }
    memcpy(args, n->args, (size_t)n->schema->n_params * sizeof *args);
    for (int i = 0; i < n->schema->n_params; i++) {
        if (args[i].kind == WF_ARG_TENSOR)
            args[i].val = map[args[i].val];
        if (args[i].kind == WF_ARG_TENSORS) {
            args[i].vals = WF_NEWN(g->arena, WfVal, (size_t)args[i].n + 1);
            for (int j = 0; j < args[i].n; j++)
                args[i].vals[j] = map[n->args[i].vals[j]];
        }
    }
    scratch->source = n->source;
    int n_out = 0;
    wf_emit_args(scratch, n->op, args, out, &n_out);
    *aside = scratch;
    return n_out;
}

/* Shapes of an op without a rule. */
static void infer_by_expansion(WfGraph *g, WfNode *n)
{
    WfVal out[WF_MAX_RESULTS] = {0};
    WfGraph *scratch;
    int n_out = expand_aside(g, n, &scratch, out);
    for (int i = 0; i < n->n_out && i < n_out; i++)
        if (out[i]) {
            const WfValue *v = wf_value(scratch, out[i]);
            wf_set_result(g, n, i, v->dtype, v->rank, v->shape);
        }
}

/* An in-place op without a rule: what it returns is the operand that it writes. */
static void infer_written(WfGraph *g, const WfNode *n)
{
    for (int i = 0; i < n->n_out; i++)
        for (int p = 0; p < n->schema->n_params; p++)
            if (n->schema->params[p].mutates && n->schema->params[p].alias == n->schema->ret[i].alias && wf_tensor(n, p)) {
                const WfValue *v = wf_value(g, wf_tensor(n, p));
                WfDim shape[WF_MAX_RANK];
                memcpy(shape, v->shape, sizeof shape);
                wf_set_result(g, n, i, v->dtype, v->rank, shape);
            }
}

void wf_infer(WfGraph *g, WfNode *n)
{
    if (n->op->infer)
        n->op->infer(g, n);
    else if (n->op->family == WF_POINTWISE)
        infer_pointwise(g, n);
    else if (n->op->decompose)
        infer_by_expansion(g, n);
    else if (n->schema->mutates)
        infer_written(g, n);
    else
        wf_fail_node(g, n, WF_E_BUG, "no rule gives its result's shape");
}

static void expand(WfGraph *g, WfNode *n, WfVal *out, int *n_out)
{
    if (!n->op->decompose)
        wf_fail_node(g, n, WF_E_OP_FORM, "this op cannot be compiled at level %s", wf_level_name(g->level));
    if (++g->depth > MAX_DEPTH)
        wf_fail_node(g, n, WF_E_BUG, "its decomposition does not end");
    const WfNode *outer = g->expanding;
    g->expanding = outer ? outer : n;
    int k = n->op->decompose(g, n, out);
    g->expanding = outer;
    g->depth--;
    if (n_out)
        *n_out = k;
}

void wf_emit_args(WfGraph *g, const WfOp *op, const WfArg *given, WfVal *out, int *n_out)
{
    const WfSchema *c = wf_schema_of(op);
    WfArg args[64];
    wf_complete_args(g, op, given, args);
    WfNode tmp = {.op = op, .schema = c, .args = args, .source = g->source, .no_grad = g->no_grad, .n_out = c->n_ret};
    if (g->expand && op->fold) {
        WfVal v = op->fold(g, &tmp);
        if (v) {
            out[0] = v;
            if (n_out)
                *n_out = 1;
            return;
        }
    }
    /* a list of results has no fixed length: such ops stay as nodes at level aten only */
    bool list = c->n_ret && c->ret[0].type == WF_T_TENSORS && op->decompose;
    if (g->expand && (list || !wf_admits(g->level, op))) {
        tmp.args = WF_NEWN(g->arena, WfArg, (size_t)c->n_params + 1);
        memcpy(tmp.args, args, (size_t)c->n_params * sizeof *args);
        expand(g, &tmp, out, n_out);
        return;
    }
    WfStr key = {.arena = g->arena};
    node_key(&key, op, c, args, g->no_grad);
    int64_t hit;
    const WfNode *n;
    /* equal nodes are one only where nothing is written between them */
    if (!op->pure_random && g->level > WF_ATEN && wf_map_get_bytes(g->shared, key.at, key.n, &hit)) {
        n = wf_node(g, (WfNodeId)hit);
    } else {
        WfGraph *scratch;
        WfVal aside[WF_MAX_RESULTS];
        WfNode *fresh = wf_append_raw(g, op, args, list ? expand_aside(g, &tmp, &scratch, aside) : c->n_ret);
        WfNodeId id = (WfNodeId)(g->nodes.n - 1);
        wf_infer(g, fresh);
        wf_map_put_bytes(g->shared, key.at, key.n, id);
        n = wf_node(g, id);
    }
    for (int i = 0; i < n->n_out; i++)
        out[i] = n->out + (WfVal)i;
    if (n_out)
        *n_out = n->n_out;
}

static const WfOp *need(WfGraph *g, const char *name)
{
    const WfOp *op = wf_op_find(name);
    if (!op)
        wf_fail(g->ctx, WF_E_BUG, "no op is called %s", name);
    return op;
}

static int emit_va(WfGraph *g, WfVal *out, const char *name, const char *fmt, va_list ap)
{
    const WfOp *op = need(g, name);
    const WfSchema *c = wf_schema_of(op);
    WfArg args[64];
    memset(args, 0, sizeof(WfArg) * (size_t)c->n_params);
    int i = 0;
    for (; *fmt; fmt++, i++) {
        if (i >= c->n_params)
            wf_fail(g->ctx, WF_E_BUG, "%s: too many arguments", name);
        WfArg *a = &args[i];
        switch (*fmt) {
        case 'v': a->val = va_arg(ap, WfVal); a->kind = a->val ? WF_ARG_TENSOR : WF_ARG_NONE; break;
        case 'V': a->kind = WF_ARG_TENSORS; a->vals = va_arg(ap, WfVal *); a->n = va_arg(ap, int); break;
        case 'i': a->kind = WF_ARG_INT; a->i = va_arg(ap, WfDim); break;
        case 'd': a->kind = WF_ARG_INT; a->i = va_arg(ap, int); break;
        case 'I': a->kind = WF_ARG_INTS; a->ints = va_arg(ap, WfDim *); a->n = va_arg(ap, int); break;
        case 'f': a->kind = WF_ARG_FLOAT; a->f = va_arg(ap, double); break;
        case 'F': a->kind = WF_ARG_FLOATS; a->floats = va_arg(ap, double *); a->n = va_arg(ap, int); break;
        case 'b': a->kind = WF_ARG_BOOL; a->b = va_arg(ap, int); break;
        case 't': a->kind = WF_ARG_DTYPE; a->dtype = (WfDtype)va_arg(ap, int); break;
        case 's': a->kind = WF_ARG_STRING; a->s = va_arg(ap, const char *); break;
        case 'G': a->kind = WF_ARG_GRAPH; a->graph = va_arg(ap, WfGraph *); break;
        case 'a': *a = *va_arg(ap, const WfArg *); break;
        case 'n': a->kind = WF_ARG_NONE; break;
        default: wf_fail(g->ctx, WF_E_BUG, "%s: bad format letter %c", name, *fmt);
        }
    }
    int n_out = 0;
    wf_emit_args(g, op, args, out, &n_out);
    return n_out;
}

WfVal wf_emit(WfGraph *g, const char *op, const char *fmt, ...)
{
    WfVal out[WF_MAX_RESULTS] = {0};
    va_list ap;
    va_start(ap, fmt);
    emit_va(g, out, op, fmt, ap);
    va_end(ap);
    return out[0];
}

void wf_emit_multi(WfGraph *g, WfVal *out, const char *op, const char *fmt, ...)
{
    WfVal all[WF_MAX_RESULTS] = {0};
    va_list ap;
    va_start(ap, fmt);
    int n = emit_va(g, all, op, fmt, ap);
    va_end(ap);
    memcpy(out, all, (size_t)n * sizeof *out);
}

bool wf_wants(const WfGraph *g, int slot) { return !g->wants || g->wants[slot]; }
