/* The text form of graphs; docs/ir.md is the grammar. One line a node; arguments in schema order, those that
 * equal the schema's default left out at the end and named after the first gap (a collective's are all said, by
 * name). Only symbols that the text
 * mentions are declared, since a table of expressions outlives the passes whose loop variables it holds.
 * Printing is deterministic. */
#include "ir/lex.h"

#include <string.h>

static void put_string(WfStr *s, const char *t)
{
    wf_str_putc(s, '"');
    for (; *t; t++) {
        if (*t == '"' || *t == '\\')
            wf_str_putc(s, '\\');
        if (*t == '\n')
            wf_str_puts(s, "\\n");
        else if ((unsigned char)*t < 32)
            wf_str_printf(s, "\\x%02x", *t);
        else
            wf_str_putc(s, *t);
    }
    wf_str_putc(s, '"');
}

/* A string argument: without quotes when it is a word. */
static void put_word(WfStr *s, const char *t)
{
    bool plain = *t && strcmp(t, "None");
    for (const char *c = t; *c; c++)
        plain &= name_char(*c);
    if (plain)
        wf_str_puts(s, t);
    else
        put_string(s, t);
}

static void put_float(WfStr *s, double f)
{
    size_t before = s->n;
    wf_str_float(s, f);
    if (!strpbrk(s->at + before, ".einf"))
        wf_str_puts(s, ".0"); /* so that it reads back as a float */
}

static void put_value(const WfGraph *g, WfStr *s, WfVal v)
{
    if (!v)
        wf_str_puts(s, "None");
    else
        wf_str_printf(s, "%%%s", wf_value_name(g, v));
}

static void print_graph(const WfGraph *g, WfStr *s, int indent);

static void put_arg(const WfGraph *g, WfStr *s, const WfArg *a, int indent)
{
    switch (a->kind) {
    case WF_ARG_NONE:
        wf_str_puts(s, "None");
        return;
    case WF_ARG_TENSOR:
        put_value(g, s, a->val);
        return;
    case WF_ARG_INT:
        wf_eprint(g->exprs, a->i, s);
        return;
    case WF_ARG_FLOAT:
        put_float(s, a->f);
        return;
    case WF_ARG_BOOL:
        wf_str_puts(s, a->b ? "True" : "False");
        return;
    case WF_ARG_STRING:
        put_word(s, a->s);
        return;
    case WF_ARG_DTYPE:
        wf_str_puts(s, wf_dtype_name(a->dtype));
        return;
    case WF_ARG_GRAPH:
        if (indent < 0) /* a message has no room for it */
            wf_str_puts(s, "graph {...}");
        else
            print_graph(a->graph, s, indent);
        return;
    default:
        break;
    }
    wf_str_putc(s, '[');
    for (int i = 0; i < a->n; i++) {
        if (i)
            wf_str_puts(s, ", ");
        if (a->kind == WF_ARG_TENSORS)
            put_value(g, s, a->vals[i]);
        else if (a->kind == WF_ARG_INTS)
            wf_eprint(g->exprs, a->ints[i], s);
        else if (a->kind == WF_ARG_FLOATS)
            put_float(s, a->floats[i]);
        else
            wf_str_puts(s, a->bools[i] ? "True" : "False");
    }
    wf_str_putc(s, ']');
}

static bool is_default(const WfArg *a, const WfParam *p)
{
    if (!p->has_default)
        return a->kind == WF_ARG_NONE && (p->optional || p->type == WF_T_IGNORED);
    const WfArg *d = &p->fallback;
    if (a->kind != d->kind)
        return false;
    switch (a->kind) {
    case WF_ARG_NONE:
        return true;
    case WF_ARG_INT:
        return a->i == d->i;
    case WF_ARG_FLOAT:
        return a->f == d->f;
    case WF_ARG_BOOL:
        return a->b == d->b;
    case WF_ARG_STRING:
        return !strcmp(a->s, d->s);
    case WF_ARG_INTS:
        return a->n == d->n && !memcmp(a->ints, d->ints, (size_t)a->n * sizeof *a->ints);
    default:
        return false;
    }
}

/* What is known of the value's memory: at level aten whether the export says dense, later the order of
 * dimensions. */
static void put_memory(const WfGraph *g, WfStr *s, const WfValue *x)
{
    if (g->level == WF_ATEN && x->dtype && !x->contiguous)
        wf_str_puts(s, " strided");
    if (x->ordered) {
        wf_str_puts(s, " @(");
        for (int d = 0; d < x->rank; d++)
            wf_str_printf(s, "%s%d", d ? "," : "", x->order[d]);
        wf_str_putc(s, ')');
    }
}

static void put_results(const WfGraph *g, const WfNode *n, WfStr *s)
{
    for (int i = 0; i < n->n_out; i++) {
        WfVal v = n->out + (WfVal)i;
        const WfValue *x = wf_value(g, v);
        wf_str_printf(s, "%s%%%s : %s", i ? ", " : "", wf_value_name(g, v),
                      x->dtype ? wf_shape_text((WfGraph *)g, v) : "none");
        put_memory(g, s, x);
    }
}

static void print_node(const WfGraph *g, const WfNode *n, WfStr *s, int indent)
{
    put_results(g, n, s);
    wf_str_printf(s, "%s%s(", n->n_out ? " = " : "", n->schema->name);
    bool named = false, first = true, whole = n->op->family == WF_COLLECTIVE; /* group and kind are always said */
    for (int i = 0; i < n->schema->n_params; i++) {
        if (!whole && is_default(&n->args[i], &n->schema->params[i])) {
            named = true;
            continue;
        }
        if (!first)
            wf_str_puts(s, ", ");
        first = false;
        if (named || (whole && i))
            wf_str_printf(s, "%s=", n->schema->params[i].name);
        put_arg(g, s, &n->args[i], indent);
    }
    wf_str_putc(s, ')');
    if (n->no_grad)
        wf_str_puts(s, " no_grad");
}

void wf_print_source(const WfSource *src, WfStr *out)
{
    if (src->file)
        wf_str_printf(out, src->line ? "  from %s:%d" : "  from %s", src->file, src->line);
    if (src->code)
        wf_str_printf(out, "  %s", src->code);
    if (src->module && *src->module)
        wf_str_printf(out, "  (module %s)", src->module);
}

void wf_print_node_short(const WfGraph *g, const WfNode *n, WfStr *out)
{
    print_node(g, n, out, -1);
}

static void pad(WfStr *s, int n)
{
    for (int i = 0; i < n; i++)
        wf_str_putc(s, ' ');
}

static void put_input(const WfGraph *g, const WfInput *in, WfStr *s)
{
    static const char *const roles[] = {"param", "buffer", "const", "user", "state", "scalar", "accum", "cotangent", "saved"};
    wf_str_printf(s, "input %%%s : %s", wf_value_name(g, in->val), wf_shape_text((WfGraph *)g, in->val));
    put_memory(g, s, wf_value(g, in->val));
    wf_str_printf(s, " = %s ", roles[in->role]);
    put_string(s, in->name);
    if (in->role == WF_IN_PARAM && !in->trainable)
        wf_str_puts(s, " frozen");
    if (in->role == WF_IN_USER && in->trainable)
        wf_str_puts(s, " wanted");
    if (in->role == WF_IN_BUFFER && !in->persistent)
        wf_str_puts(s, " transient");
    if (in->of) {
        wf_str_puts(s, " of ");
        put_string(s, in->of);
    }
    if (in->fill != 0) {
        wf_str_puts(s, " fill ");
        put_float(s, in->fill);
    }
    for (int i = 0; i < in->n_aliases; i++) {
        wf_str_puts(s, " also ");
        put_string(s, in->aliases[i]);
    }
}

static void put_source(const WfGraph *g, uint32_t id, WfStr *s)
{
    const WfSource *src = &g->sources.at[id];
    if (!id || !src->file)
        return;
    wf_str_puts(s, "  # ");
    for (const char *c = src->file; *c; c++) /* the name comes from the export: it must not end the line */
        wf_str_putc(s, (unsigned char)*c < 32 ? '?' : *c);
    wf_str_printf(s, ":%d", src->line);
}

/* ---- symbols ---- */

static void mark_dim(const WfGraph *g, WfDim d, bool *used)
{
    if (d >= 0 || wf_elit(g->exprs, d, NULL))
        return;
    int n = wf_esym_count(g->exprs), id = wf_esym_id(g->exprs, d);
    for (int i = 0; id < 0 && i < n; i++)
        used[i] |= !used[i] && wf_edepends(g->exprs, d, wf_esym_at(g->exprs, i));
    if (id >= 0)
        used[id] = true;
}

static void mark_symbols(const WfGraph *g, bool *used)
{
    for (int v = 1; v < g->values.n; v++)
        for (int d = 0; d < g->values.at[v].rank; d++)
            mark_dim(g, g->values.at[v].shape[d], used);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = &g->nodes.at[i];
        for (int p = 0; p < n->schema->n_params; p++) {
            const WfArg *a = &n->args[p];
            if (a->kind == WF_ARG_INT)
                mark_dim(g, a->i, used);
            for (int k = 0; a->kind == WF_ARG_INTS && k < a->n; k++)
                mark_dim(g, a->ints[k], used);
            if (a->kind == WF_ARG_GRAPH)
                mark_symbols(a->graph, used);
        }
    }
}

static void put_symbols(const WfGraph *g, WfStr *s)
{
    int n = wf_esym_count(g->exprs);
    bool *used = WF_NEWN(s->arena, bool, (size_t)n + 1);
    mark_symbols(g, used);
    for (int i = 0; i < n; i++) {
        int64_t lo, hi;
        if (!used[i])
            continue;
        wf_esym_range(g->exprs, i, &lo, &hi);
        wf_str_printf(s, "  symbol %s in [%lld, ", wf_esym_name(g->exprs, i), (long long)lo);
        if (hi == INT64_MAX)
            wf_str_puts(s, "inf]\n");
        else
            wf_str_printf(s, "%lld]\n", (long long)hi);
    }
}

static void print_graph(const WfGraph *g, WfStr *s, int indent)
{
    static const char *const outs[] = {"user", "loss", "update", "grad", "metric", "saved"};
    wf_str_printf(s, "graph %s {\n", wf_level_name(g->level));
    if (indent == 0)
        put_symbols(g, s);
    for (int i = 0; i < g->inputs.n; i++) {
        pad(s, indent + 2);
        put_input(g, &g->inputs.at[i], s);
        wf_str_putc(s, '\n');
    }
    for (int i = 1; i < g->nodes.n; i++) {
        pad(s, indent + 2);
        print_node(g, &g->nodes.at[i], s, indent + 2);
        put_source(g, g->nodes.at[i].source, s);
        wf_str_putc(s, '\n');
    }
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        pad(s, indent + 2);
        wf_str_printf(s, "output %s ", outs[o->role]);
        put_string(s, o->name ? o->name : "");
        wf_str_putc(s, ' ');
        put_value(g, s, o->val);
        wf_str_putc(s, '\n');
    }
    pad(s, indent);
    wf_str_puts(s, "}");
}

void wf_print(const WfGraph *g, WfStr *out)
{
    print_graph(g, out, 0);
    wf_str_putc(out, '\n');
}
