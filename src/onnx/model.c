/* A model of ONNX under construction: nodes in the graph's order. The numbers are those of onnx.proto. */
#include "onnx/private.h"

#include <string.h>

enum { ATTR_FLOAT = 1, ATTR_INT = 2, ATTR_STRING = 3, ATTR_INTS = 7, ATTR_STRINGS = 8 };

int onnx_type(WfDtype t)
{
    static const int types[WF_DTYPES] = {[WF_F32] = 1, [WF_F64] = 11, [WF_F16] = 10, [WF_BF16] = 16, [WF_I64] = 7,
                                         [WF_I32] = 6, [WF_I16] = 5,  [WF_I8] = 3,   [WF_U8] = 2,    [WF_BOOL] = 9};
    return types[t];
}

void onnx_refuse(Onnx *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = wf_arena_vprintf(x->a, fmt, ap);
    va_end(ap);
    wf_fail_node(x->g, x->at, WF_E_ONNX, "ONNX export: %s", text);
}

/* ---- nodes ---- */

void onnx_begin(Onnx *x, const char *op)
{
    WF_ASSERT(x->ctx, x->depth < (int)WF_LEN(x->open));
    x->open[x->depth].op = op;
    x->open[x->depth].node = (WfStr){.arena = x->a};
    x->open[x->depth++].attributes = (WfStr){.arena = x->a};
}

/* An operand of a node that is being written. */
static void operand(Onnx *x, WfStr *node, const char *name)
{
    pb_text(node, 1, name);
    wf_map_put(x->read, name, 1);
}

void onnx_in(Onnx *x, const char *name) { operand(x, &x->open[x->depth - 1].node, name ? name : ""); }

static void attribute(Onnx *x, const char *name, int type, WfStr *value)
{
    WfStr s = {.arena = x->a};
    pb_text(&s, 1, name);
    wf_str_putn(&s, value->n ? value->at : "", value->n);
    pb_int(&s, 20, type);
    pb_message(&x->open[x->depth - 1].attributes, 5, &s);
}

void onnx_attr_int(Onnx *x, const char *name, int64_t v)
{
    WfStr s = {.arena = x->a};
    pb_int(&s, 3, v);
    attribute(x, name, ATTR_INT, &s);
}

void onnx_attr_ints(Onnx *x, const char *name, const int64_t *v, int n)
{
    WfStr s = {.arena = x->a};
    for (int i = 0; i < n; i++)
        pb_int(&s, 8, v[i]);
    attribute(x, name, ATTR_INTS, &s);
}

void onnx_attr_float(Onnx *x, const char *name, double v)
{
    WfStr s = {.arena = x->a};
    pb_float(&s, 2, (float)v);
    attribute(x, name, ATTR_FLOAT, &s);
}

void onnx_attr_text(Onnx *x, const char *name, const char *v)
{
    WfStr s = {.arena = x->a};
    pb_text(&s, 4, v);
    attribute(x, name, ATTR_STRING, &s);
}

void onnx_attr_texts(Onnx *x, const char *name, const char *v)
{
    WfStr s = {.arena = x->a};
    pb_text(&s, 9, v);
    attribute(x, name, ATTR_STRINGS, &s);
}

void onnx_end_many(Onnx *x, const char **out, int n)
{
    WfStr place = {.arena = x->a}, *node = &x->open[--x->depth].node, *attributes = &x->open[x->depth].attributes;
    for (int i = 0; i < n; i++)
        pb_text(node, 2, out[i] = wf_arena_printf(x->a, "v%d", ++x->fresh));
    pb_text(node, 3, wf_arena_printf(x->a, "%s_%d", x->open[x->depth].op, x->fresh));
    pb_text(node, 4, x->open[x->depth].op);
    wf_str_putn(node, attributes->n ? attributes->at : "", attributes->n);
    if (x->at)
        wf_print_source(&x->g->sources.at[x->at->source], &place);
    if (place.n > sizeof "  from " - 1)
        pb_text(node, 6, place.at + sizeof "  from " - 1);
    pb_message(&x->nodes, 1, node);
}

const char *onnx_end(Onnx *x)
{
    const char *out;
    onnx_end_many(x, &out, 1);
    return out;
}

const char *onnx_node(Onnx *x, const char *op, const char *a, const char *b, const char *c)
{
    onnx_begin(x, op);
    onnx_in(x, a);
    if (b)
        onnx_in(x, b);
    if (c)
        onnx_in(x, c);
    return onnx_end(x);
}

/* ---- constants ---- */

const char *onnx_constant(Onnx *x, WfDtype t, int rank, const int64_t *shape, const void *data, size_t bytes)
{
    WfStr key = {.arena = x->a};
    int64_t at;
    wf_str_printf(&key, "%d %d ", (int)t, rank);
    wf_str_putn(&key, (const char *)shape, (size_t)rank * sizeof *shape);
    wf_str_putn(&key, data, bytes);
    if (wf_map_get_bytes(x->constants, key.at, key.n, &at))
        return x->initializers.at[at].name;
    Initializer c = {.name = wf_arena_printf(x->a, "c%d", ++x->fresh), .dtype = t, .rank = rank, .bytes = bytes};
    uint8_t *copy = wf_arena_alloc(x->a, bytes);
    memcpy(copy, data, bytes);
    memcpy(c.shape, shape, (size_t)rank * sizeof *shape);
    c.data = copy;
    wf_map_put_bytes(x->constants, key.at, key.n, x->initializers.n);
    WF_PUSH(x->a, &x->initializers, c);
    return c.name;
}

const char *onnx_ints(Onnx *x, const int64_t *v, int n)
{
    int64_t size = n;
    return onnx_constant(x, WF_I64, 1, &size, v, (size_t)n * sizeof *v);
}

const char *onnx_scalar(Onnx *x, WfDtype t, double v)
{
    uint8_t bytes[16] = {0};
    int64_t none = 0;
    wf_store_f64(t, bytes, v);
    return onnx_constant(x, t, 0, &none, bytes, wf_dtype_size(t));
}

/* ---- sizes ---- */

int64_t onnx_literal(Onnx *x, WfDim d)
{
    int64_t v;
    if (!wf_elit(x->g->exprs, d, &v))
        onnx_refuse(x, "it needs a size that is known beforehand");
    return v;
}

/* A plain symbol, or a line in it, is some input's size: that is where it is read. */
static const char *measured(Onnx *x, int symbol)
{
    WfExprs *e = x->g->exprs;
    WfDim s = wf_esym_at(e, symbol), factor, plus;
    for (int i = 0; i < x->g->inputs.n; i++) {
        const WfInput *in = &x->g->inputs.at[i];
        const WfValue *v = wf_value(x->g, in->val);
        for (int d = 0; in->role == WF_IN_USER && d < v->rank; d++) {
            if (!wf_elinear(e, v->shape[d], s, &factor, &plus) || !wf_elit(e, factor, NULL) || factor == 0 || !wf_elit(e, plus, NULL))
                continue;
            int64_t axis = d, f = onnx_literal(x, factor), p = onnx_literal(x, plus);
            const char *n = onnx_node(x, "Gather", onnx_node(x, "Shape", onnx_value(x, in->val), NULL, NULL), onnx_ints(x, &axis, 1), NULL);
            n = p ? onnx_node(x, "Sub", n, onnx_ints(x, &p, 1), NULL) : n;
            return f != 1 ? onnx_node(x, "Div", n, onnx_ints(x, &f, 1), NULL) : n;
        }
    }
    onnx_refuse(x, "no input has the size %s", wf_esym_name(e, symbol));
}

const char *onnx_size(Onnx *x, WfDim d)
{
    WfExprs *e = x->g->exprs;
    int64_t v, at;
    if (wf_elit(e, d, &v))
        return onnx_ints(x, &v, 1);
    WfStr key = {.arena = x->a};
    wf_eprint(e, d, &key);
    if (wf_map_get(x->sizes, key.at, &at))
        return x->size_names.at[at];
    const char *name = NULL;
    for (int i = 0; i < wf_esym_count(e) && !name; i++) {
        WfDim s = wf_esym_at(e, i), factor, rest;
        if (!wf_edepends(e, d, s))
            continue;
        if (!wf_elinear(e, d, s, &factor, &rest))
            onnx_refuse(x, "the size %s is no sum of products of the inputs' sizes", key.at);
        name = measured(x, i);
        if (!wf_elit(e, factor, &v) || v != 1)
            name = onnx_node(x, "Mul", name, onnx_size(x, factor), NULL);
        if (!wf_elit(e, rest, &v) || v != 0)
            name = onnx_node(x, "Add", name, onnx_size(x, rest), NULL);
    }
    wf_map_put(x->sizes, key.at, x->size_names.n);
    WF_PUSH(x->a, &x->size_names, name);
    return name;
}

const char *onnx_sizes(Onnx *x, const WfDim *d, int n)
{
    int64_t v[2 * WF_MAX_RANK];
    const char *part[2 * WF_MAX_RANK];
    bool known = true;
    for (int i = 0; i < n; i++)
        known &= wf_elit(x->g->exprs, d[i], &v[i]);
    if (known)
        return onnx_ints(x, v, n);
    for (int i = 0; i < n; i++)
        part[i] = onnx_size(x, d[i]);
    onnx_begin(x, "Concat");
    for (int i = 0; i < n; i++)
        onnx_in(x, part[i]);
    onnx_attr_int(x, "axis", 0);
    return onnx_end(x);
}

const char *onnx_range(Onnx *x, WfDim n)
{
    int64_t v;
    if (wf_elit(x->g->exprs, n, &v) && v <= 1 << 20) {
        int64_t *all = WF_NEWN(x->a, int64_t, (size_t)v + 1);
        for (int64_t i = 0; i < v; i++)
            all[i] = i;
        return onnx_ints(x, all, (int)v);
    }
    int64_t none = 0;
    const char *empty = onnx_constant(x, WF_I64, 1, &none, "", 0); /* the shape of a scalar */
    return onnx_node(x, "Range", onnx_scalar(x, WF_I64, 0), onnx_node(x, "Reshape", onnx_size(x, n), empty, NULL),
                     onnx_scalar(x, WF_I64, 1));
}

const char *onnx_reshape(Onnx *x, const char *v, const WfDim *shape, int rank)
{
    WfDim to[WF_MAX_RANK];
    int open = 0;
    bool zero = false;
    for (int i = 0; i < rank; i++) {
        bool known = wf_elit(x->g->exprs, shape[i], NULL);
        zero |= shape[i] == 0;
        to[i] = known ? shape[i] : wf_econst(x->g->exprs, -1);
        open += !known;
    }
    return onnx_node(x, "Reshape", v, open > 1 || zero ? onnx_sizes(x, shape, rank) : onnx_sizes(x, to, rank), NULL);
}

/* ---- values ---- */

void onnx_set(Onnx *x, const WfNode *n, int result, const char *name) { x->name[n->out + (WfVal)result] = name; }

static const char *input_name(Onnx *x, const WfInput *in)
{
    const WfValue *v = wf_value(x->g, in->val);
    if (in->role == WF_IN_USER) {
        x->used[in - x->g->inputs.at] = true;
        return in->name;
    }
    Initializer c = {.name = in->name, .dtype = v->dtype, .rank = v->rank, .bytes = wf_dtype_size(v->dtype)};
    for (int d = 0; d < v->rank; d++) {
        c.shape[d] = onnx_literal(x, v->shape[d]);
        c.bytes = wf_mul_size(c.bytes, (size_t)c.shape[d]);
    }
    c.data = x->data.fn(x->data.user, in->name, c.bytes);
    if (!c.data)
        wf_fail(x->ctx, WF_E_BUG, "the value of %s is not known", in->name);
    WF_PUSH(x->a, &x->initializers, c);
    return c.name;
}

const char *onnx_value(Onnx *x, WfVal v)
{
    const char *thin;
    int rank;
    WfDim shape[WF_MAX_RANK];
    const WfValue *t = wf_value(x->g, v);
    if (x->name[v])
        return x->name[v];
    const WfInput *in = wf_input_of(x->g, v);
    if (in)
        return x->name[v] = input_name(x, in);
    if (onnx_thin(x, v, &thin, &rank, shape))
        return x->name[v] = onnx_node(x, "Expand", thin, onnx_sizes(x, t->shape, t->rank), NULL);
    wf_fail_node(x->g, wf_producer(x->g, v), WF_E_ONNX, "ONNX export: its result %d has no ONNX form", t->index);
}

/* ---- the graph ---- */

static void value_info(Onnx *x, WfStr *graph, int field, const char *name, const WfValue *v)
{
    WfStr shape = {.arena = x->a}, tensor = {.arena = x->a}, type = {.arena = x->a}, info = {.arena = x->a};
    for (int d = 0; d < v->rank; d++) {
        WfStr dim = {.arena = x->a}, text = {.arena = x->a};
        int64_t size;
        if (wf_elit(x->g->exprs, v->shape[d], &size)) {
            pb_int(&dim, 1, size);
        } else {
            wf_eprint(x->g->exprs, v->shape[d], &text);
            pb_text(&dim, 2, text.at);
        }
        pb_message(&shape, 1, &dim);
    }
    pb_int(&tensor, 1, onnx_type(v->dtype));
    pb_message(&tensor, 2, &shape);
    pb_message(&type, 1, &tensor);
    pb_text(&info, 1, name);
    pb_message(&info, 2, &type);
    pb_message(graph, field, &info);
}

static void write_nodes(Onnx *x)
{
    bool *live = wf_live_nodes(x->g);
    for (int i = 1; i < x->g->nodes.n; i++) {
        const WfNode *n = x->at = wf_node(x->g, (WfNodeId)i);
        const OnnxRow *row = live[i] ? onnx_row(n->schema->name) : NULL;
        if (live[i] && !row)
            onnx_refuse(x, "ONNX has no operator for it");
        if (row && row->write)
            row->write(x, n, row->op);
    }
    x->at = NULL;
}

/* ---- from level func: rows of the table are kept, the rest is taken apart ---- */

static void keep(const WfGraph *g, const WfNode *n, WfGraph *to, WfVal *map)
{
    WfArg *args = WF_NEWN(g->arena, WfArg, (size_t)n->schema->n_params + 1);
    memcpy(args, n->args, (size_t)n->schema->n_params * sizeof *args);
    for (int p = 0; p < n->schema->n_params; p++)
        if (args[p].kind == WF_ARG_TENSOR)
            args[p].val = map[args[p].val];
    to->source = n->source;
    WfNode *c = wf_append_raw(to, n->op, args, n->n_out);
    for (int r = 0; r < n->n_out; r++) {
        const WfValue *v = wf_value(g, n->out + (WfVal)r);
        wf_set_result(to, c, r, v->dtype, v->rank, v->shape);
        map[n->out + (WfVal)r] = c->out + (WfVal)r;
    }
}

static WfGraph *lower(WfGraph *g)
{
    WfGraph *to = wf_graph_like(g, WF_OP);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n), result = 0;
    for (int i = g->outputs.n - 1; i >= 0; i--) { /* predictions; without a loss, the model's first output */
        const WfOutput *o = &g->outputs.at[i];
        if (o->role == WF_OUT_USER && (!strcmp(o->name, "predictions") || (!result && !strcmp(o->name, "0"))))
            result = o->val;
    }
    if (!result)
        wf_fail(g->ctx, WF_E_ONNX, "the model has no tensor output to predict");
    g->outputs.n = 0;
    wf_add_output(g, WF_OUT_USER, "predictions", result, 0);
    bool *live = wf_live_nodes(g);
    wf_copy_inputs(g, to, map);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        const OnnxRow *row = live[i] ? onnx_row(n->schema->name) : NULL;
        if (row && row->keep && row->keep(g, n))
            keep(g, n, to, map);
        else if (live[i])
            wf_copy_node(g, n, to, map);
    }
    wf_copy_outputs(g, to, map);
    return to;
}

void wf_onnx_write(WfCtx *ctx, WfGraph *func, WfOnnxData data, const char *path)
{
    WfGraph *g = lower(func);
    WfArena *a = g->arena;
    Onnx x = {.ctx = ctx, .a = a, .g = g, .data = data, .nodes.arena = a, .constants = wf_map_new(a), .read = wf_map_new(a), .sizes = wf_map_new(a)};
    WfStr rest = {.arena = a};
    x.name = WF_NEWN(a, const char *, (size_t)g->values.n + 1);
    x.used = WF_NEWN(a, bool, (size_t)g->inputs.n + 1);
    write_nodes(&x);
    pb_text(&rest, 2, "weft");
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *out = &g->outputs.at[i];
        if (out->role != WF_OUT_USER || !out->val)
            continue;
        WfStr node = {.arena = a}; /* gives the result its name */
        operand(&x, &node, onnx_value(&x, out->val));
        pb_text(&node, 2, out->name);
        pb_text(&node, 4, "Identity");
        pb_message(&x.nodes, 1, &node);
        value_info(&x, &rest, 12, out->name, wf_value(g, out->val));
    }
    for (int i = 0; i < g->inputs.n; i++)
        if (x.used[i])
            value_info(&x, &rest, 11, g->inputs.at[i].name, wf_value(g, g->inputs.at[i].val));
    onnx_write_file(&x, &rest, path);
}
