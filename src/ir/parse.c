/* Reading graph text; docs/ir.md is the grammar. The text is not trusted: every name, count and argument is
 * checked against the op's schema, and a mistake is one error with its line and column. Shapes written in the
 * text must be what inference gives (at level aten, where an op may have no rule, they are mere claims). */
#include "ir/lex.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NESTING 16

static WfGraph *graph(Parser *s);

static WfVal value(Parser *s)
{
    wf_lex_need(s, "%");
    char *name = wf_lex_word(s);
    WfVal v = s->find(s->user, name);
    if (!v)
        wf_lex_bad(s, "there is no value %%%s", name);
    return v;
}

static void list(Parser *s, WfArg *a)
{
    WF_VEC(WfVal) vals = {0};
    WF_VEC(WfDim) ints = {0};
    WF_VEC(double) floats = {0};
    WF_VEC(bool) bools = {0};
    a->kind = WF_ARG_INTS;
    while (!wf_lex_eat(s, "]")) {
        wf_lex_blanks(s);
        if (*s->p == '%' || wf_lex_keyword(s, "None")) {
            a->kind = WF_ARG_TENSORS;
            WF_PUSH(s->a, &vals, *s->p == '%' ? value(s) : 0);
        } else if (wf_lex_keyword(s, "True") || wf_lex_keyword(s, "False")) {
            a->kind = WF_ARG_BOOLS;
            WF_PUSH(s->a, &bools, s->p[-2] == 'u');
        } else if (wf_lex_float_ahead(s->p)) {
            a->kind = WF_ARG_FLOATS;
            WF_PUSH(s->a, &floats, wf_lex_number(s));
        } else {
            WF_PUSH(s->a, &ints, wf_lex_dim(s));
        }
        if (!wf_lex_eat(s, ",") && *s->p != ']')
            wf_lex_bad(s, "',' or ']' is expected");
    }
    int kinds = (vals.n > 0) + (ints.n > 0) + (floats.n > 0) + (bools.n > 0);
    if (kinds > 1)
        wf_lex_bad(s, "a list holds things of one kind");
    a->n = vals.n + ints.n + floats.n + bools.n;
    if (a->kind == WF_ARG_TENSORS)
        a->vals = vals.at;
    else if (a->kind == WF_ARG_FLOATS)
        a->floats = floats.at;
    else if (a->kind == WF_ARG_BOOLS)
        a->bools = bools.at;
    else
        a->ints = ints.at;
}

static void argument(Parser *s, WfArg *a)
{
    wf_lex_blanks(s);
    if (*s->p == '%') {
        a->kind = WF_ARG_TENSOR;
        a->val = value(s);
    } else if (wf_lex_eat(s, "[")) {
        list(s, a);
    } else if (*s->p == '"') {
        a->kind = WF_ARG_STRING;
        a->s = wf_lex_quoted(s);
    } else if (wf_lex_keyword(s, "None")) {
        a->kind = WF_ARG_NONE;
    } else if (wf_lex_keyword(s, "True") || wf_lex_keyword(s, "False")) {
        a->kind = WF_ARG_BOOL;
        a->b = s->p[-2] == 'u';
    } else if (!strncmp(s->p, "graph ", 6)) {
        a->kind = WF_ARG_GRAPH;
        a->graph = graph(s);
    } else if (wf_lex_float_ahead(s->p)) {
        a->kind = WF_ARG_FLOAT;
        a->f = wf_lex_number(s);
    } else {
        const char *b = s->p;
        while (name_char(*s->p))
            s->p++;
        a->dtype = wf_dtype_parse(wf_arena_strndup(s->a, b, (size_t)(s->p - b)));
        if (a->dtype) {
            a->kind = WF_ARG_DTYPE;
            return;
        }
        s->p = b;
        a->kind = WF_ARG_INT;
        a->i = wf_lex_dim(s);
    }
}

static int parameter(const WfSchema *c, const char *name)
{
    for (int i = 0; i < c->n_params; i++)
        if (!strcmp(c->params[i].name, name))
            return i;
    return -1;
}

/* "a, b, name=c)" up to and without the closing character. */
static void arguments(Parser *s, const WfSchema *c, WfArg *args, char close)
{
    bool seen[64] = {false};
    bool named = false;
    int at = 0;
    memset(args, 0, sizeof(WfArg) * (size_t)(c->n_params + 1));
    for (wf_lex_blanks(s); *s->p && *s->p != close; wf_lex_blanks(s)) {
        const char *b = s->p;
        int i = at;
        while (name_char(*s->p))
            s->p++;
        if (s->p > b && *s->p == '=') {
            char *name = wf_arena_strndup(s->a, b, (size_t)(s->p++ - b));
            named = true;
            i = parameter(c, name);
            if (i < 0)
                wf_lex_bad(s, "%s has no argument '%s'", c->name, name);
        } else {
            s->p = b;
            if (named)
                wf_lex_bad(s, "a positional argument follows a named one");
            at++;
        }
        if (i >= c->n_params)
            wf_lex_bad(s, "%s takes %d arguments", c->name, c->n_params);
        if (seen[i])
            wf_lex_bad(s, "argument '%s' is given twice", c->params[i].name);
        seen[i] = true;
        wf_lex_blanks(s);
        bool text = c->params[i].type == WF_T_STRING && name_char(*s->p);
        if (text && !wf_lex_keyword(s, "None"))
            args[i] = (WfArg){.kind = WF_ARG_STRING, .s = wf_lex_word(s)};
        else if (!text)
            argument(s, &args[i]);
        if (!wf_lex_eat(s, ","))
            break;
    }
}

void wf_parse_args(WfGraph *g, const WfOp *op, const char *text, WfVal (*find)(void *, const char *),
                   void *user, WfArg *args)
{
    Parser s = {.ctx = g->ctx,
                .a = g->arena,
                .text = text,
                .p = text,
                .what = "arguments",
                .exprs = g->exprs,
                .find = find,
                .user = user};
    arguments(&s, wf_schema_of(op), args, 0);
    wf_lex_blanks(&s);
    if (*s.p)
        wf_lex_bad(&s, "something follows the arguments");
}

/* ---- graphs ---- */

typedef struct {
    WfDtype dtype;
    int rank;
    WfDim shape[WF_MAX_RANK];
    bool strided, ordered;
    int8_t order[WF_MAX_RANK];
    char *name;
} Typed;

/* %name : dtype[sizes] strided @(order), or, of a result whose type its op gives, %name */
static Typed typed(Parser *s, bool result)
{
    Typed t = {0};
    wf_lex_need(s, "%");
    t.name = wf_lex_word(s);
    wf_lex_blanks(s);
    if (result && (*s->p == '=' || *s->p == ','))
        return t;
    wf_lex_need(s, ":");
    char *type = wf_lex_word(s);
    if (!strcmp(type, "none"))
        return t;
    t.dtype = wf_dtype_parse(type);
    if (!t.dtype)
        wf_lex_bad(s, "'%s' is no dtype", type);
    wf_lex_need(s, "[");
    while (!wf_lex_eat(s, "]")) {
        if (t.rank == WF_MAX_RANK)
            wf_lex_bad(s, "more than %d dimensions", WF_MAX_RANK);
        t.shape[t.rank++] = wf_lex_dim(s);
        if (!wf_lex_eat(s, ",") && *s->p != ']')
            wf_lex_bad(s, "',' or ']' is expected");
    }
    t.strided = wf_lex_keyword(s, "strided");
    if (wf_lex_eat(s, "@(")) {
        uint32_t used = 0;
        t.ordered = true;
        for (int i = 0; i < t.rank; i++) {
            int64_t d;
            if ((i && !wf_lex_eat(s, ",")) || !wf_elit(s->exprs, wf_lex_dim(s), &d) || d < 0 || d >= t.rank ||
                used >> d & 1)
                wf_lex_bad(s, "the memory order is no permutation");
            used |= 1u << d;
            t.order[i] = (int8_t)d;
        }
        wf_lex_need(s, ")");
    }
    return t;
}

static WfVal local(void *user, const char *name)
{
    int64_t v;
    return wf_map_get(((WfGraph *)user)->names, name, &v) ? (WfVal)v : 0;
}

static void set_memory(WfGraph *g, WfVal v, const Typed *t)
{
    wf_value(g, v)->contiguous = g->level == WF_ATEN && !t->strided;
    wf_value(g, v)->ordered = t->ordered;
    memcpy(wf_value(g, v)->order, t->order, sizeof t->order);
}

static void input(Parser *s, WfGraph *g)
{
    static const char *const roles[] = {"param", "buffer", "const", "user", "state", "scalar", "accum", "cotangent", "saved"};
    Typed t = typed(s, false);
    int role = -1;
    wf_lex_need(s, "=");
    char *w = wf_lex_word(s);
    for (size_t i = 0; i < WF_LEN(roles); i++)
        if (!strcmp(roles[i], w))
            role = (int)i;
    if (role < 0 || !t.dtype)
        wf_lex_bad(s, "'%s' is no role of an input", w);
    char *name = wf_lex_quoted(s);
    if (wf_map_get(g->names, t.name, NULL))
        wf_lex_bad(s, "%%%s is defined twice", t.name);
    WfVal v = wf_add_input(g, (WfInRole)role, t.name, t.dtype, t.rank, t.shape);
    WfInput *in = &g->inputs.at[g->inputs.n - 1];
    WF_VEC(const char *) also = {0};
    in->name = name;
    set_memory(g, v, &t);
    in->trainable = role == WF_IN_PARAM;
    in->persistent = role == WF_IN_BUFFER;
    for (;;) {
        if (wf_lex_keyword(s, "frozen"))
            in->trainable = false;
        else if (wf_lex_keyword(s, "wanted"))
            in->trainable = true;
        else if (wf_lex_keyword(s, "transient"))
            in->persistent = false;
        else if (wf_lex_keyword(s, "of"))
            in->of = wf_lex_quoted(s);
        else if (wf_lex_keyword(s, "fill"))
            in->fill = wf_lex_number(s);
        else if (wf_lex_keyword(s, "also"))
            WF_PUSH(s->a, &also, (const char *)wf_lex_quoted(s));
        else
            break;
    }
    in->aliases = also.at;
    in->n_aliases = also.n;
}

static bool same_type(WfGraph *g, WfVal v, const Typed *t)
{
    const WfValue *x = wf_value(g, v);
    return x->dtype == t->dtype && x->rank == t->rank &&
           !memcmp(x->shape, t->shape, (size_t)t->rank * sizeof(WfDim));
}

static bool fits(const WfParam *p, const WfArg *a, WfFamily family)
{
    bool number = a->kind == WF_ARG_INT || a->kind == WF_ARG_FLOAT || a->kind == WF_ARG_BOOL;
    if (a->kind == WF_ARG_NONE)
        return p->optional || p->has_default || p->type == WF_T_IGNORED || family == WF_HOP;
    switch (p->type) {
    case WF_T_TENSOR:
        return a->kind == WF_ARG_TENSOR || (number && family == WF_COMPOSITE);
    case WF_T_TENSORS:
        for (int i = 0; a->kind == WF_ARG_TENSORS && i < a->n; i++)
            if (!a->vals[i] && !p->optional_items && family != WF_HOP)
                return false;
        return a->kind == WF_ARG_TENSORS;
    case WF_T_INT:
        return a->kind == WF_ARG_INT || a->kind == WF_ARG_BOOL;
    case WF_T_INTS:
        return a->kind == WF_ARG_INTS;
    case WF_T_FLOAT:
        return a->kind == WF_ARG_FLOAT || a->kind == WF_ARG_INT;
    case WF_T_FLOATS:
        return a->kind == WF_ARG_FLOATS || (a->kind == WF_ARG_INTS && !a->n);
    case WF_T_BOOL:
        return a->kind == WF_ARG_BOOL;
    case WF_T_BOOLS:
        return a->kind == WF_ARG_BOOLS || (a->kind == WF_ARG_INTS && !a->n);
    case WF_T_STRING:
        return a->kind == WF_ARG_STRING;
    case WF_T_DTYPE:
        return a->kind == WF_ARG_DTYPE;
    case WF_T_SCALAR:
        return number || a->kind == WF_ARG_TENSOR;
    case WF_T_GRAPH:
        return a->kind == WF_ARG_GRAPH;
    case WF_T_IGNORED:
        return true;
    }
    return false;
}

/* Arguments of the kinds that the schema names, and as many results: rules of ops rely on both. */
static void check_node(Parser *s, const WfOp *op, const WfArg *args, int n_out)
{
    const WfSchema *c = wf_schema_of(op);
    int64_t operands = 0;
    for (int i = 0; i < c->n_params; i++) {
        if (!fits(&c->params[i], &args[i], op->family))
            wf_lex_bad(s, "argument '%s' of %s is of the wrong kind", c->params[i].name, c->name);
        operands += args[i].kind == WF_ARG_TENSORS ? args[i].n : 1;
    }
    if (operands > WF_MAX_RESULTS)
        wf_lex_bad(s, "%s has more than %d operands", c->name, WF_MAX_RESULTS);
    if ((!c->n_ret || c->ret[0].type != WF_T_TENSORS) && n_out != c->n_ret)
        wf_lex_bad(s, "%s has %d results, but %d are written", c->name, c->n_ret, n_out);
    const WfArg *inputs = &args[0], *body = &args[1];
    if (op->family == WF_LOOPNEST && (n_out != body->graph->outputs.n || inputs->n != body->graph->inputs.n))
        wf_lex_bad(s, "the body of %s has %d inputs and %d results", c->name, body->graph->inputs.n,
                   body->graph->outputs.n);
    for (int i = 0; op->family == WF_LOOPNEST && i < n_out; i++)
        if (!body->graph->outputs.at[i].val)
            wf_lex_bad(s, "a result of the body of %s is missing", c->name);
}

/* The comment `# FILE:LINE` at the end of a node's line is where the node comes from; any other comment is
 * none. */
static void source(Parser *s, WfGraph *g, WfNodeId id)
{
    const char *p = s->p;
    while (*p == ' ' || *p == '\t')
        p++;
    if (p[0] != '#' || p[1] != ' ')
        return;
    const char *b = p + 2, *end = b + strcspn(b, "\n"), *d = end;
    while (d > b && d[-1] >= '0' && d[-1] <= '9')
        d--;
    if (d == end || end - d > 9 || d - b < 2 || d[-1] != ':')
        return;
    WfSource src = {.file = wf_arena_strndup(s->a, b, (size_t)(d - 1 - b)), .line = atoi(d)};
    const WfSource *last = &s->sources.at[s->sources.n - 1];
    if (s->sources.n == 1 || last->line != src.line || strcmp(last->file, src.file))
        WF_PUSH(s->a, &s->sources, src);
    wf_node(g, id)->source = (uint32_t)s->sources.n - 1;
}

/* A graph and its sub-graphs share one table of sources. */
static void share_sources(const Parser *s, WfGraph *g)
{
    g->sources.at = s->sources.at;
    g->sources.n = g->sources.cap = s->sources.n;
    for (int i = 1; i < g->nodes.n; i++)
        for (int p = 0; p < wf_node(g, (WfNodeId)i)->schema->n_params; p++)
            if (wf_node(g, (WfNodeId)i)->args[p].kind == WF_ARG_GRAPH)
                share_sources(s, wf_node(g, (WfNodeId)i)->args[p].graph);
}

/* Random draws that later passes add must not reuse the streams that the text names. */
static void note_stream(WfGraph *g, const WfNode *n)
{
    int64_t v;
    const WfArg *a = n->op->pure_random ? wf_arg(n, "stream") : NULL;
    if (a && a->kind == WF_ARG_INT && wf_elit(g->exprs, a->i, &v) && v >= g->streams && v < INT32_MAX)
        g->streams = (int)v + 1;
}

static void node(Parser *s, WfGraph *g)
{
    WF_VEC(Typed) results = {0};
    WfArg args[64];
    wf_lex_blanks(s);
    if (*s->p == '%') {
        do {
            Typed t = typed(s, true);
            WF_PUSH(s->a, &results, t);
        } while (wf_lex_eat(s, ","));
        wf_lex_need(s, "=");
    }
    char *name = wf_lex_word(s);
    const WfOp *op = wf_op_find(name);
    if (!op)
        wf_lex_bad(s, "no op is called %s", name);
    wf_lex_need(s, "(");
    s->find = local;
    s->user = g;
    arguments(s, wf_schema_of(op), args, ')');
    wf_lex_need(s, ")");
    s->find = local;
    s->user = g;
    const char *end = s->p;
    bool no_grad = wf_lex_keyword(s, "no_grad");
    s->p = no_grad ? s->p : end; /* a comment may follow, which is read below */
    if (results.n > WF_MAX_RESULTS)
        wf_lex_bad(s, "too many results");
    if (g->level >= WF_OP && g->level < WF_LOOP && !wf_admits(g->level, op))
        wf_lex_bad(s, "%s may not stand at level %s", name, wf_level_name(g->level));
    WfArg full[64];
    wf_complete_args(g, op, args, full);
    check_node(s, op, full, results.n);
    g->no_grad = no_grad;
    WfNode *n = wf_append_raw(g, op, full, results.n);
    g->no_grad = false;
    WfNodeId id = (WfNodeId)(g->nodes.n - 1);
    if (g->level > WF_ATEN && op->family != WF_HOP)
        wf_infer(g, n);
    n = wf_node(g, id);
    for (int i = 0; i < results.n; i++) {
        WfVal v = n->out + (WfVal)i;
        if (wf_map_get(g->names, results.at[i].name, NULL))
            wf_lex_bad(s, "%%%s is defined twice", results.at[i].name);
        if (!wf_value(g, v)->dtype && results.at[i].dtype)
            wf_set_result(g, n, i, results.at[i].dtype, results.at[i].rank, results.at[i].shape);
        else if (results.at[i].dtype && !same_type(g, v, &results.at[i]))
            wf_lex_bad(s, "%%%s is written with another type than its op gives, %s", results.at[i].name,
                       wf_shape_text(g, v));
        wf_name_value(g, v, results.at[i].name);
        set_memory(g, v, &results.at[i]);
    }
    note_stream(g, wf_node(g, id));
    source(s, g, id);
}

static void output(Parser *s, WfGraph *g)
{
    static const char *const roles[] = {"user", "loss", "update", "grad", "metric", "saved"};
    char *w = wf_lex_word(s);
    int role = -1, in = 0;
    for (size_t i = 0; i < WF_LEN(roles); i++)
        if (!strcmp(roles[i], w))
            role = (int)i;
    if (role < 0)
        wf_lex_bad(s, "'%s' is no role of an output", w);
    char *name = wf_lex_quoted(s);
    WfVal v = 0;
    s->find = local;
    s->user = g;
    if (!wf_lex_keyword(s, "None"))
        v = value(s);
    if (role == WF_OUT_UPDATE || role == WF_OUT_GRAD) {
        for (in = 0; in < g->inputs.n && strcmp(g->inputs.at[in].name, name); in++)
            ;
        if (in == g->inputs.n)
            wf_lex_bad(s, "there is no input \"%s\"", name);
    }
    wf_add_output(g, (WfOutRole)role, name, v, in);
}

static WfGraph *graph(Parser *s)
{
    WfVal (*find)(void *, const char *) = s->find;
    void *user = s->user;
    int level = -1;
    if (++s->nesting > MAX_NESTING)
        wf_lex_bad(s, "graphs are nested too deeply");
    wf_lex_need(s, "graph");
    char *w = wf_lex_word(s);
    for (int i = 0; i < WF_LEVELS; i++)
        if (!strcmp(wf_level_name((WfLevel)i), w))
            level = i;
    if (level < 0)
        wf_lex_bad(s, "'%s' is no level", w);
    WfGraph *g = wf_graph_new(s->ctx, s->a, s->exprs, (WfLevel)level);
    s->exprs = g->exprs;
    g->expand = false;
    wf_lex_need(s, "{");
    while (!wf_lex_eat(s, "}")) {
        if (!*s->p)
            wf_lex_bad(s, "'}' is expected");
        if (wf_lex_keyword(s, "symbol")) {
            char *name = wf_lex_word(s);
            wf_lex_need(s, "in");
            wf_lex_need(s, "[");
            int64_t lo = (int64_t)strtoll(s->p, (char **)&s->p, 10);
            wf_lex_need(s, ",");
            wf_lex_blanks(s);
            int64_t hi = INT64_MAX;
            if (!wf_lex_keyword(s, "inf"))
                hi = (int64_t)strtoll(s->p, (char **)&s->p, 10);
            wf_lex_need(s, "]");
            wf_sym(s->exprs, name, lo, hi);
        } else if (wf_lex_keyword(s, "input")) {
            input(s, g);
        } else if (wf_lex_keyword(s, "output")) {
            output(s, g);
        } else {
            node(s, g);
        }
    }
    g->expand = level > WF_ATEN;
    s->find = find;
    s->user = user;
    s->nesting--;
    return g;
}

WfGraph *wf_parse(WfCtx *ctx, WfArena *a, const char *text, const char *what)
{
    Parser s = {.ctx = ctx, .a = a, .text = text, .p = text, .what = what, .exprs = wf_exprs_new(ctx, a)};
    WF_PUSH(a, &s.sources, (WfSource){0});
    WfGraph *g = graph(&s);
    wf_lex_blanks(&s);
    if (*s.p)
        wf_lex_bad(&s, "something follows the graph");
    share_sources(&s, g);
    return g;
}
