/* Graphs: tables of nodes, values, inputs, outputs and sources in one arena, and the questions asked of them. */
#include "ir/ir_private.h"

#include <string.h>

const char *wf_level_name(WfLevel l)
{
    static const char *const names[] = {"aten", "func", "op", "joint", "dist", "prim", "loop", "planned"};
    return l < WF_LEVELS ? names[l] : "?";
}

WfGraph *wf_graph_new(WfCtx *ctx, WfArena *a, WfExprs *exprs, WfLevel level)
{
    WfGraph *g = WF_NEW(a, WfGraph);
    g->ctx = ctx;
    g->arena = a;
    g->exprs = exprs ? exprs : wf_exprs_new(ctx, a);
    g->level = level;
    g->expand = level > WF_ATEN;
    g->shared = wf_map_new(a);
    g->names = wf_map_new(a);
    WF_PUSH(a, &g->nodes, (WfNode){0});   /* id 0 is none */
    WF_PUSH(a, &g->values, (WfValue){0});
    WF_PUSH(a, &g->sources, (WfSource){0});
    return g;
}

WfGraph *wf_graph_like(const WfGraph *from, WfLevel level)
{
    WfGraph *g = wf_graph_new(from->ctx, from->arena, from->exprs, level);
    g->sources.at = from->sources.at; /* shared: only the importer adds sources */
    g->sources.n = g->sources.cap = from->sources.n;
    g->streams = from->streams;
    return g;
}

const WfInput *wf_input_of(const WfGraph *g, WfVal v)
{
    const WfValue *x = wf_value(g, v);
    return v && !x->node ? &g->inputs.at[x->index] : NULL;
}

WfVal wf_add_input(WfGraph *g, WfInRole role, const char *name, WfDtype t, int rank, const WfDim *shape)
{
    WfValue v = {.dtype = t, .rank = (int8_t)rank, .index = g->inputs.n};
    if (rank)
        memcpy(v.shape, shape, (size_t)rank * sizeof *shape);
    WF_PUSH(g->arena, &g->values, v);
    WfVal id = (WfVal)g->values.n - 1;
    WfInput in = {.role = role, .name = wf_arena_strdup(g->arena, name), .val = id};
    WF_PUSH(g->arena, &g->inputs, in);
    wf_name_value(g, id, name);
    return id;
}

void wf_add_output(WfGraph *g, WfOutRole role, const char *name, WfVal v, int input)
{
    WfOutput o = {.role = role, .name = name ? wf_arena_strdup(g->arena, name) : NULL, .val = v, .input = input};
    WF_PUSH(g->arena, &g->outputs, o);
}

/* Names are [A-Za-z_][A-Za-z0-9_.]*; anything else becomes '_'. */
void wf_name_value(WfGraph *g, WfVal v, const char *name)
{
    char *clean = wf_arena_strdup(g->arena, name && *name ? name : "v");
    for (char *c = clean; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_' ||
              *c == '.'))
            *c = '_';
    if (*clean >= '0' && *clean <= '9')
        clean = wf_arena_printf(g->arena, "_%s", clean);
    int64_t n = 1;
    char *unique = clean;
    while (wf_map_get(g->names, unique, NULL))
        unique = wf_arena_printf(g->arena, "%s_%lld", clean, (long long)++n);
    wf_map_put(g->names, unique, v);
    wf_value(g, v)->name = unique;
}

const char *wf_value_name(const WfGraph *g, WfVal v)
{
    WfValue *x = wf_value(g, v);
    if (!x->name)
        wf_name_value((WfGraph *)g, v, wf_arena_printf(g->arena, "t%u", v));
    return x->name;
}

void wf_set_result(WfGraph *g, const WfNode *n, int i, WfDtype t, int rank, const WfDim *shape)
{
    if (rank > WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "a result has %d dimensions; Weft goes up to %d", rank, WF_MAX_RANK);
    WfValue *v = wf_value(g, n->out + (WfVal)i);
    v->dtype = t;
    v->rank = (int8_t)rank;
    if (rank)
        memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
}

WfVal wf_tensor(const WfNode *n, int i) { return n->args[i].kind == WF_ARG_TENSOR ? n->args[i].val : 0; }

WfDim wf_int(const WfNode *n, int i)
{
    const WfArg *a = &n->args[i];
    return a->kind == WF_ARG_BOOL ? a->b : a->kind == WF_ARG_FLOAT ? (WfDim)a->f : a->i;
}

int64_t wf_lit(WfGraph *g, const WfNode *n, int i)
{
    int64_t v;
    WfDim d = wf_int(n, i);
    if ((n->args[i].kind != WF_ARG_INT && n->args[i].kind != WF_ARG_BOOL) || !wf_elit(g->exprs, d, &v))
        wf_fail_node(g, n, WF_E_OP_FORM, "argument '%s' must be a static integer", n->schema->params[i].name);
    return v;
}

double wf_float(WfGraph *g, const WfNode *n, int i)
{
    const WfArg *a = &n->args[i];
    if (a->kind == WF_ARG_FLOAT)
        return a->f;
    return (double)wf_lit(g, n, i);
}

bool wf_bool(const WfNode *n, int i) { return n->args[i].kind == WF_ARG_BOOL ? n->args[i].b : n->args[i].i != 0; }

const WfArg *wf_arg(const WfNode *n, const char *name)
{
    for (int i = 0; i < n->schema->n_params; i++)
        if (!strcmp(n->schema->params[i].name, name))
            return &n->args[i];
    return NULL;
}

int wf_operands(const WfNode *n, WfVal *out, int max)
{
    int k = 0;
    for (int i = 0; i < n->schema->n_params; i++) {
        const WfArg *a = &n->args[i];
        if (a->kind == WF_ARG_TENSOR) {
            if (k < max)
                out[k] = a->val;
            k++;
        } else if (a->kind == WF_ARG_TENSORS) {
            for (int j = 0; j < a->n; j++, k++)
                if (k < max)
                    out[k] = a->vals[j];
        }
    }
    return k;
}

int wf_operand_count(const WfNode *n) { return wf_operands(n, NULL, 0); }

char *wf_node_place(WfGraph *g, const WfNode *n)
{
    WfStr s = {.arena = g->arena};
    wf_str_puts(&s, "at ");
    wf_print_node_short(g, n, &s);
    if (n->source)
        wf_print_source(&g->sources.at[n->source], &s);
    return s.at;
}

void wf_fail_node(WfGraph *g, const WfNode *n, int kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *m = wf_arena_vprintf(g->arena, fmt, ap);
    va_end(ap);
    const WfNode *user = g->expanding ? g->expanding : n; /* what the user wrote, not what became of it */
    bool inner = user->op != n->op;
    wf_fail_at(g->ctx, kind, wf_node_place(g, user), NULL, "%s%s%s: %s", user->schema->name, inner ? ": " : "",
               inner ? n->schema->name : "", m);
}

WfDim wf_numel(WfGraph *g, WfVal v)
{
    const WfValue *x = wf_value(g, v);
    WfDim n = 1;
    for (int i = 0; i < x->rank; i++)
        n = wf_emul(g->exprs, n, x->shape[i]);
    return n;
}

bool wf_dims_equal(WfGraph *g, WfDim a, WfDim b)
{
    (void)g;
    return a == b; /* canonical forms are shared */
}

bool wf_same_shape(WfGraph *g, WfVal a, WfVal b)
{
    const WfValue *x = wf_value(g, a), *y = wf_value(g, b);
    if (x->rank != y->rank)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (!wf_dims_equal(g, x->shape[i], y->shape[i]))
            return false;
    return true;
}

int wf_dim_index(WfGraph *g, const WfNode *n, WfDim dim, int rank)
{
    int64_t d;
    if (!wf_elit(g->exprs, dim, &d))
        wf_fail_node(g, n, WF_E_OP_FORM, "a dimension number must be static");
    int64_t r = rank ? rank : 1; /* PyTorch lets 0-d tensors be addressed by dim 0 and -1 */
    if (d < -r || d >= r)
        wf_fail_node(g, n, WF_E_SHAPES, "dimension %lld is out of range for %d dimensions", (long long)d, rank);
    return (int)(d < 0 ? d + r : d);
}

static void shape_text(WfGraph *g, WfStr *s, int rank, const WfDim *shape)
{
    wf_str_putc(s, '[');
    for (int i = 0; i < rank; i++) {
        if (i)
            wf_str_puts(s, ", ");
        wf_eprint(g->exprs, shape[i], s);
    }
    wf_str_putc(s, ']');
}

char *wf_shape_text(WfGraph *g, WfVal v)
{
    WfStr s = {.arena = g->arena};
    const WfValue *x = wf_value(g, v);
    wf_str_puts(&s, wf_dtype_name(x->dtype));
    shape_text(g, &s, x->rank, x->shape);
    return s.at;
}

void wf_broadcast_shape(WfGraph *g, const WfNode *n, int ra, const WfDim *a, int rb, const WfDim *b, int *rank,
                        WfDim *out)
{
    int r = ra > rb ? ra : rb;
    for (int i = 0; i < r; i++) {
        WfDim x = i < r - ra ? 1 : a[i - (r - ra)], y = i < r - rb ? 1 : b[i - (r - rb)];
        if (x != y && x != 1 && y != 1) {
            WfStr s = {.arena = g->arena};
            shape_text(g, &s, ra, a);
            wf_str_puts(&s, " and ");
            shape_text(g, &s, rb, b);
            n = n ? n : g->expanding;
            if (n)
                wf_fail_node(g, n, WF_E_SHAPES, "shapes %s do not broadcast", s.at);
            wf_fail(g->ctx, WF_E_BUG, "shapes %s do not broadcast", s.at);
        }
        out[i] = x == 1 ? y : x;
    }
    *rank = r;
}

WfVal wf_behind_views(const WfGraph *g, WfVal v)
{
    const WfNode *n;
    while ((n = wf_producer(g, v)) && n->op->family == WF_VIEW && wf_operand_count(n) == 1)
        v = wf_tensor(n, 0);
    return v;
}

bool *wf_live_nodes(const WfGraph *g)
{
    bool *live = WF_NEWN(g->arena, bool, (size_t)g->nodes.n);
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val)
            live[wf_value(g, g->outputs.at[i].val)->node] = true;
    WfVal ops[WF_MAX_RESULTS];
    for (int i = g->nodes.n - 1; i > 0; i--) {
        if (!live[i])
            continue;
        int k = wf_operands(&g->nodes.at[i], ops, WF_MAX_RESULTS);
        for (int j = 0; j < k; j++)
            if (ops[j])
                live[wf_value(g, ops[j])->node] = true;
    }
    live[0] = false;
    return live;
}

int *wf_use_counts(const WfGraph *g)
{
    bool *live = wf_live_nodes(g);
    int *uses = WF_NEWN(g->arena, int, (size_t)g->values.n);
    WfVal ops[WF_MAX_RESULTS];
    for (int i = 1; i < g->nodes.n; i++) {
        int k = live[i] ? wf_operands(&g->nodes.at[i], ops, WF_MAX_RESULTS) : 0;
        for (int j = 0; j < k; j++)
            uses[ops[j]]++;
    }
    for (int i = 0; i < g->outputs.n; i++)
        uses[g->outputs.at[i].val]++;
    return uses;
}

void wf_copy_inputs(const WfGraph *from, WfGraph *to, WfVal *map)
{
    for (int i = 0; i < from->inputs.n; i++) {
        const WfInput *in = &from->inputs.at[i];
        const WfValue *v = wf_value(from, in->val);
        WfVal nv = wf_add_input(to, in->role, in->name, v->dtype, v->rank, v->shape);
        WfInput *copy = &to->inputs.at[to->inputs.n - 1];
        WfVal val = copy->val;
        *copy = *in;
        copy->val = val;
        wf_value(to, nv)->ordered = v->ordered; /* what the forward half kept lies as that wrote it */
        memcpy(wf_value(to, nv)->order, v->order, sizeof v->order);
        map[in->val] = nv;
    }
}

void wf_copy_node(const WfGraph *from, const WfNode *n, WfGraph *to, WfVal *map)
{
    WfArg args[64];
    WfVal *vals = NULL;
    for (int i = 0; i < n->schema->n_params; i++) {
        args[i] = n->args[i];
        if (args[i].kind == WF_ARG_TENSOR) {
            args[i].val = map[args[i].val];
        } else if (args[i].kind == WF_ARG_TENSORS) {
            vals = WF_NEWN(to->arena, WfVal, (size_t)args[i].n + 1);
            for (int j = 0; j < args[i].n; j++)
                vals[j] = map[args[i].vals[j]];
            args[i].vals = vals;
        }
    }
    WfVal out[WF_MAX_RESULTS];
    int n_out;
    uint32_t source = to->source;
    bool no_grad = to->no_grad;
    to->source = n->source;
    to->no_grad = n->no_grad;
    int before = to->values.n;
    wf_emit_args(to, n->op, args, out, &n_out);
    to->source = source;
    to->no_grad = no_grad;
    if (n_out < n->n_out)
        wf_fail_node((WfGraph *)from, n, WF_E_BUG, "copying gave %d results instead of %d", n_out, n->n_out);
    for (int i = 0; i < n->n_out; i++) {
        map[n->out + (WfVal)i] = out[i];
        const char *name = wf_value(from, n->out + (WfVal)i)->name;
        if (name && out[i] && (int)out[i] >= before && !wf_value(to, out[i])->name && wf_value(to, out[i])->node)
            wf_name_value(to, out[i], name);
    }
}

void wf_copy_outputs(const WfGraph *from, WfGraph *to, const WfVal *map)
{
    for (int i = 0; i < from->outputs.n; i++) {
        const WfOutput *o = &from->outputs.at[i];
        wf_add_output(to, o->role, o->name, map[o->val], o->input);
    }
}

void wf_graph_copy(const WfGraph *from, WfGraph *to, WfVal *map)
{
    if (!map)
        map = WF_NEWN(to->arena, WfVal, (size_t)from->values.n);
    bool *live = wf_live_nodes(from);
    wf_copy_inputs(from, to, map);
    for (int i = 1; i < from->nodes.n; i++)
        if (live[i])
            wf_copy_node(from, &from->nodes.at[i], to, map);
    wf_copy_outputs(from, to, map);
}

bool wf_is_used(WfGraph *g, WfVal v)
{
    if (!g->uses || g->uses_n != g->nodes.n) { /* counted once for a graph that grows no more */
        WfVal in[WF_MAX_RESULTS];
        g->uses = WF_NEWN(g->arena, int, (size_t)g->values.n);
        g->uses_n = g->nodes.n;
        for (int i = 1; i < g->nodes.n; i++) {
            int k = wf_operands(&g->nodes.at[i], in, WF_MAX_RESULTS);
            for (int j = 0; j < k; j++)
                g->uses[in[j]]++;
        }
        for (int i = 0; i < g->outputs.n; i++)
            g->uses[g->outputs.at[i].val]++;
    }
    return g->uses[v] > 0;
}
