/* Nodes of the file's graph into raw nodes of level aten. Arguments are found by the schema's parameter names
 * (those of higher-order operators, which the file does not name, by position), and their kinds checked
 * against the schema, so that no rule of an op meets an argument it does not expect. Results take the shapes
 * that the file claims; simplify compares them with what the rules infer. */
#include "import/private.h"

#include <string.h>

enum { MAX_NODES = 1 << 20, MAX_GRAPH_DEPTH = 16, MAX_LIST = 1 << 16 };

void imp_scope(Imp *m, Scope *s, WfGraph *g, const json_t *graph)
{
    memset(s, 0, sizeof *s);
    s->g = g;
    s->tensors = wf_map_new(m->a);
    s->ints = wf_map_new(m->a);
    s->opaque = wf_map_new(m->a);
    s->tensor_values = imp_get(m, graph, "tensor_values", JSON_OBJECT);
    s->int_values = imp_opt(m, graph, "sym_int_values", JSON_OBJECT);
    WF_PUSH(m->a, &m->graphs, g);
}

void imp_define(Imp *m, Scope *s, const char *name, WfVal v)
{
    if (wf_map_get(s->tensors, name, NULL) || wf_map_get(s->ints, name, NULL))
        bad(m, "'%.60s' is defined twice", name);
    wf_map_put(s->tensors, name, v);
}

WfVal imp_tensor(Imp *m, Scope *s, const char *name)
{
    int64_t v;
    if (!wf_map_get(s->tensors, name, &v))
        bad(m, "'%.60s' is used before it is defined", name);
    if (!v)
        bad(m, "'%.60s' is used, but has no value", name);
    return (WfVal)v;
}

WfDim imp_dim_arg(Imp *m, Scope *s, const json_t *v)
{
    const json_t *x;
    const char *tag = imp_tag(m, v, &x);
    if (!strcmp(tag, "as_int") && json_is_integer(x))
        return wf_econst(m->e, json_integer_value(x));
    if (strcmp(tag, "as_name") || !json_is_string(x))
        bad(m, "damaged model description: a size of kind '%.40s'", tag);
    const char *name = json_string_value(x);
    int64_t d;
    if (!wf_map_get(s->ints, name, &d))
        bad(m, "'%.60s' is used before it is defined", name);
    return d;
}

/* ---- operators ---- */

static bool dropped(const char *t)
{
    static const char *const prefixes[] = {"torch.ops.aten._assert_", "torch.ops.aten.sym_constrain_range"};
    for (size_t i = 0; i < WF_LEN(prefixes); i++)
        if (!strncmp(t, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

static bool is_size_node(const char *t)
{
    return !strncmp(t, "_operator.", 10) || !strncmp(t, "torch.sym_", 10) || !strncmp(t, "math.", 5) ||
           !strcmp(t, "torch.ops.aten.sym_size.int") || !strcmp(t, "torch.ops.aten.sym_numel.default");
}

static bool known(const char *target)
{
    const WfOp *op = wf_op_find(target);
    return op && (!wf_schema_of(op)->mutates || wf_functional_twin(op));
}

bool wf_import_knows(const char *target) { return dropped(target) || is_size_node(target) || known(target); }

typedef struct {
    const char *name, *place;
    int count;
} Missing;
typedef WF_VEC(Missing) MissingList;

static void find_missing(Imp *m, const json_t *graph, MissingList *list, WfMap *index, int depth)
{
    const json_t *nodes = imp_get(m, graph, "nodes", JSON_ARRAY), *inputs;
    if (depth > MAX_GRAPH_DEPTH)
        unsupported(m, "sub-graphs lie more than %d deep in one another", MAX_GRAPH_DEPTH);
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i), *v;
        const char *target = imp_string(m, node, "target");
        if (++m->nodes > MAX_NODES)
            unsupported(m, "the model has more than %d nodes", MAX_NODES);
        inputs = imp_get(m, node, "inputs", JSON_ARRAY);
        for (size_t k = 0; k < json_array_size(inputs); k++)
            if ((v = json_object_get(json_object_get(json_array_get(inputs, k), "arg"), "as_graph")))
                find_missing(m, imp_get(m, v, "graph", JSON_OBJECT), list, index, depth + 1);
        if (dropped(target) || is_size_node(target) || known(target))
            continue;
        int64_t at;
        if (wf_map_get(index, target, &at)) {
            list->at[at].count++;
            continue;
        }
        wf_map_put(index, target, list->n);
        const char *shown = strncmp(target, "torch.ops.", 10) ? target : target + 10;
        Missing x = {shown, imp_place(m, shown, NULL, imp_source(m, node)), 1};
        WF_PUSH(m->a, list, x);
    }
}

void imp_check_ops(Imp *m, const json_t *graph)
{
    enum { SHOWN = 40 };
    MissingList list = {0};
    find_missing(m, graph, &list, wf_map_new(m->a), 0);
    if (!list.n)
        return;
    WfStr names = {.arena = m->a}, places = {.arena = m->a};
    for (int i = 0; i < list.n && i < SHOWN; i++) {
        wf_str_printf(&names, "%s%.120s", i ? ", " : "", list.at[i].name);
        wf_str_printf(&places, "%s%s", i ? "\n  " : "", list.at[i].place);
        if (list.at[i].count > 1)
            wf_str_printf(&places, "  (%d times)", list.at[i].count);
    }
    if (list.n > SHOWN)
        wf_str_printf(&names, " and %d more", list.n - SHOWN);
    m->place = places.at;
    imp_fail(m, WF_E_OP_UNKNOWN, NULL,
                list.n == 1 ? "the model needs an operator that Weft does not have: %s"
                            : "the model needs operators that Weft does not have: %s",
                names.at);
}

/* ---- arguments ---- */

static WfGraph *sub_graph(Imp *m, const json_t *v);

static double number(Imp *m, const json_t *v)
{
    if (json_is_number(v))
        return json_number_value(v);
    const char *s = json_string_value(v);
    if (s && !strcmp(s, "Infinity"))
        return __builtin_inf();
    if (s && !strcmp(s, "-Infinity"))
        return -__builtin_inf();
    if (s && !strcmp(s, "NaN"))
        return __builtin_nan("");
    bad(m, "damaged model description: a number is expected");
}

static size_t length(Imp *m, const json_t *v)
{
    if (!json_is_array(v) || json_array_size(v) > MAX_LIST)
        bad(m, "damaged model description: a list is expected");
    return json_array_size(v);
}

static void tensor_list(Imp *m, Scope *s, const json_t *v, bool optional, WfArg *a)
{
    size_t n = length(m, v);
    if (n > WF_MAX_RESULTS)
        unsupported(m, "a list of %zu tensors (Weft goes up to %d)", n, WF_MAX_RESULTS);
    a->kind = WF_ARG_TENSORS;
    a->n = (int)n;
    a->vals = WF_NEWN(m->a, WfVal, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        const char *tag = optional ? imp_tag(m, x, &x) : "as_tensor";
        if (!strcmp(tag, "as_tensor"))
            a->vals[i] = imp_tensor(m, s, imp_tensor_name(m, x));
        else if (strcmp(tag, "as_none"))
            bad(m, "damaged model description: a tensor of kind '%.40s'", tag);
    }
}

static void int_list(Imp *m, Scope *s, const json_t *v, bool symbolic, WfArg *a)
{
    size_t n = length(m, v);
    a->kind = WF_ARG_INTS;
    a->n = (int)n;
    a->ints = WF_NEWN(m->a, WfDim, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        if (symbolic)
            a->ints[i] = imp_dim_arg(m, s, x);
        else if (json_is_integer(x))
            a->ints[i] = wf_econst(m->e, json_integer_value(x));
        else
            bad(m, "damaged model description: an integer is expected in a list");
    }
}

static void simple_list(Imp *m, const json_t *v, bool floats, WfArg *a)
{
    size_t n = length(m, v);
    a->n = (int)n;
    a->kind = floats ? WF_ARG_FLOATS : WF_ARG_BOOLS;
    if (floats)
        a->floats = WF_NEWN(m->a, double, n + 1);
    else
        a->bools = WF_NEWN(m->a, bool, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        if (floats)
            a->floats[i] = number(m, x);
        else if (json_is_boolean(x))
            a->bools[i] = json_is_true(x);
        else
            bad(m, "damaged model description: a truth value is expected in a list");
    }
}

/* A number or truth value computed from sizes: only its literal form can be compiled. */
static void computed(Imp *m, const char *tag, const json_t *v, WfArg *a)
{
    const json_t *x;
    const char *kind = imp_tag(m, v, &x);
    if (!strcmp(kind, "as_float")) {
        a->kind = WF_ARG_FLOAT;
        a->f = number(m, x);
    } else if (!strcmp(kind, "as_bool") && json_is_boolean(x)) {
        a->kind = WF_ARG_BOOL;
        a->b = json_is_true(x);
    } else {
        imp_fail(m, WF_E_SIZE_FORM, "export with that size fixed, or compute it with tensor operations",
                 "a %s computed from sizes is used as an argument",
                 strstr(tag, "float") ? "floating-point number" : "condition");
    }
}

static void argument(Imp *m, Scope *s, const json_t *arg, WfArg *a)
{
    const json_t *v;
    const char *tag = imp_tag(m, arg, &v);
    memset(a, 0, sizeof *a);
    if (!strcmp(tag, "as_none") || !strcmp(tag, "as_device") || !strcmp(tag, "as_layout") ||
        !strcmp(tag, "as_memory_format")) {
        a->kind = WF_ARG_NONE;
    } else if (!strcmp(tag, "as_tensor")) {
        a->kind = WF_ARG_TENSOR;
        a->val = imp_tensor(m, s, imp_tensor_name(m, v));
    } else if (!strcmp(tag, "as_tensors") || !strcmp(tag, "as_optional_tensors")) {
        tensor_list(m, s, v, *(tag + 3) == 'o', a);
    } else if (!strcmp(tag, "as_optional_tensor")) {
        argument(m, s, v, a);
        if (a->kind != WF_ARG_TENSOR && a->kind != WF_ARG_NONE)
            bad(m, "damaged model description: an optional tensor is something else");
    } else if (!strcmp(tag, "as_int") && json_is_integer(v)) {
        a->kind = WF_ARG_INT;
        a->i = wf_econst(m->e, json_integer_value(v));
    } else if (!strcmp(tag, "as_sym_int")) {
        const json_t *name = json_is_object(v) ? json_object_get(v, "as_name") : NULL;
        if (json_is_string(name) && wf_map_get(s->opaque, json_string_value(name), NULL))
            computed(m, "as_sym_float", v, a);
        a->kind = WF_ARG_INT;
        a->i = imp_dim_arg(m, s, v);
    } else if (!strcmp(tag, "as_ints") || !strcmp(tag, "as_sym_ints")) {
        int_list(m, s, v, tag[3] == 's', a);
    } else if (!strcmp(tag, "as_float")) {
        a->kind = WF_ARG_FLOAT;
        a->f = number(m, v);
    } else if (!strcmp(tag, "as_floats")) {
        simple_list(m, v, true, a);
    } else if (!strcmp(tag, "as_bool") && json_is_boolean(v)) {
        a->kind = WF_ARG_BOOL;
        a->b = json_is_true(v);
    } else if (!strcmp(tag, "as_bools")) {
        simple_list(m, v, false, a);
    } else if (!strcmp(tag, "as_sym_float") || !strcmp(tag, "as_sym_bool")) {
        computed(m, tag, v, a);
    } else if (!strcmp(tag, "as_string") && json_is_string(v)) {
        a->kind = WF_ARG_STRING;
        a->s = wf_arena_strdup(m->a, json_string_value(v));
    } else if (!strcmp(tag, "as_scalar_type") && json_is_integer(v)) {
        a->kind = WF_ARG_DTYPE;
        a->dtype = imp_dtype(m, json_integer_value(v));
    } else if (!strcmp(tag, "as_graph")) {
        a->kind = WF_ARG_GRAPH;
        a->graph = sub_graph(m, v);
    } else if (!strcmp(tag, "as_complex")) {
        unsupported(m, "complex numbers are not supported");
    } else {
        unsupported(m, "an argument of kind '%.40s' is not supported", tag);
    }
}

/* Does the schema's parameter take a value of that kind? Tensor parameters but the first may hold a number.
 */
static bool fits(const WfParam *p, int index, const WfArg *a)
{
    bool number = a->kind == WF_ARG_INT || a->kind == WF_ARG_FLOAT || a->kind == WF_ARG_BOOL;
    if (a->kind == WF_ARG_NONE || p->type == WF_T_IGNORED)
        return true;
    switch (p->type) {
    case WF_T_TENSOR:
        return a->kind == WF_ARG_TENSOR || (index > 0 && number && !p->mutates);
    case WF_T_TENSORS:
        for (int i = 0; a->kind == WF_ARG_TENSORS && i < a->n; i++)
            if (!a->vals[i] && !p->optional_items)
                return false;
        return a->kind == WF_ARG_TENSORS || a->kind == WF_ARG_TENSOR || (a->kind == WF_ARG_INTS && !a->n);
    case WF_T_INT:
        return a->kind == WF_ARG_INT || a->kind == WF_ARG_BOOL;
    case WF_T_INTS:
        return a->kind == WF_ARG_INTS || a->kind == WF_ARG_INT || (a->kind == WF_ARG_TENSORS && !a->n);
    case WF_T_FLOAT:
        return number;
    case WF_T_FLOATS:
        return a->kind == WF_ARG_FLOATS || a->kind == WF_ARG_INTS;
    case WF_T_BOOL:
        return a->kind == WF_ARG_BOOL;
    case WF_T_BOOLS:
        return a->kind == WF_ARG_BOOLS;
    case WF_T_STRING:
        return a->kind == WF_ARG_STRING;
    case WF_T_DTYPE:
        return a->kind == WF_ARG_DTYPE;
    case WF_T_SCALAR:
        return number;
    case WF_T_GRAPH:
        return a->kind == WF_ARG_GRAPH;
    default:
        return false;
    }
}

static void put_argument(Imp *m, const WfSchema *c, int at, WfArg *a, WfArg *args)
{
    const WfParam *p = &c->params[at];
    if (!fits(p, at, a))
        bad(m, "argument '%s' is of a kind that %s does not take", p->name, c->name);
    if (p->type == WF_T_IGNORED)
        a->kind = WF_ARG_NONE;
    if (p->type == WF_T_FLOAT && a->kind == WF_ARG_INT) {
        int64_t v;
        if (!wf_elit(m->e, a->i, &v))
            unsupported(m, "argument '%s' of %s must be a fixed number", p->name, c->name);
        a->kind = WF_ARG_FLOAT;
        a->f = (double)v;
    }
    args[at] = *a;
}

/* Unnamed arguments fill the parameters in order; tensors beyond the last one are collected in it. */
static void positional(Imp *m, const WfSchema *c, int index, WfArg *a, WfArg *args)
{
    int last = c->n_params - 1;
    bool collects = last >= 0 && c->params[last].type == WF_T_TENSORS;
    if (index < last || (index == last && !(collects && a->kind == WF_ARG_TENSOR))) {
        put_argument(m, c, index, a, args);
        return;
    }
    WfArg *l = &args[last];
    if (!collects || (a->kind != WF_ARG_TENSOR && a->kind != WF_ARG_TENSORS && a->kind != WF_ARG_INT))
        bad(m, "%s has too many arguments, or one of a strange kind", c->name);
    if (a->kind == WF_ARG_INT)
        return; /* a size: the sub-graph knows it by its own expression */
    int n = a->kind == WF_ARG_TENSOR ? 1 : a->n;
    if (l->n + n > WF_MAX_RESULTS)
        unsupported(m, "%s has more than %d operands", c->name, WF_MAX_RESULTS);
    WfVal *all = WF_NEWN(m->a, WfVal, (size_t)(l->n + n) + 1);
    if (l->n)
        memcpy(all, l->vals, (size_t)l->n * sizeof *all);
    memcpy(all + l->n, a->kind == WF_ARG_TENSOR ? &a->val : a->vals, (size_t)n * sizeof *all);
    l->kind = WF_ARG_TENSORS;
    l->vals = all;
    l->n += n;
}

static void arguments(Imp *m, Scope *s, const json_t *node, const WfSchema *c, WfArg *args)
{
    const json_t *inputs = imp_get(m, node, "inputs", JSON_ARRAY);
    uint64_t seen = 0;
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        const char *name = imp_string(m, in, "name");
        WfArg a;
        argument(m, s, imp_get(m, in, "arg", JSON_OBJECT), &a);
        if (!*name) {
            positional(m, c, (int)i, &a, args);
            continue;
        }
        int at = 0;
        while (at < c->n_params && strcmp(c->params[at].name, name))
            at++;
        if (at == c->n_params && a.kind == WF_ARG_NONE)
            continue; /* an optional argument of a newer PyTorch, not given */
        if (at == c->n_params)
            unsupported(m, "%s has no argument '%.60s'", c->name, name);
        if (seen >> at & 1)
            bad(m, "argument '%s' is given twice", name);
        seen |= 1ull << at;
        put_argument(m, c, at, &a, args);
    }
    int operands = 0;
    for (int i = 0; i < c->n_params; i++)
        operands += args[i].kind == WF_ARG_TENSORS ? args[i].n : args[i].kind == WF_ARG_TENSOR;
    if (operands > WF_MAX_RESULTS)
        unsupported(m, "%s has more than %d operands", c->name, WF_MAX_RESULTS);
}

/* ---- results ---- */

typedef struct {
    const char *names[WF_MAX_RESULTS];
    int n;
} Results; /* NULL: an undefined result */

static void add_result(Imp *m, Results *r, const char *name)
{
    if (r->n == WF_MAX_RESULTS)
        unsupported(m, "a node has more than %d results", WF_MAX_RESULTS);
    r->names[r->n++] = name;
}

static void read_results(Imp *m, const json_t *node, const WfSchema *c, Results *r)
{
    const json_t *outs = imp_get(m, node, "outputs", JSON_ARRAY);
    bool list = c->n_ret == 1 && c->ret[0].type == WF_T_TENSORS;
    r->n = 0;
    for (size_t i = 0; i < json_array_size(outs); i++) {
        const json_t *v;
        const char *tag = imp_tag(m, json_array_get(outs, i), &v);
        if (!strcmp(tag, "as_tensor"))
            add_result(m, r, imp_tensor_name(m, v));
        else if (!strcmp(tag, "as_none"))
            add_result(m, r, NULL);
        else if (!strcmp(tag, "as_tensors") && list)
            for (size_t k = 0; k < length(m, v); k++)
                add_result(m, r, imp_tensor_name(m, json_array_get(v, k)));
        else
            unsupported(m, "a result of kind '%.40s' is not supported", tag);
    }
    if (!list && r->n != c->n_ret)
        bad(m, "%s has %d results instead of %d", c->name, r->n, c->n_ret);
}

static void define_results(Imp *m, Scope *s, const WfNode *n, const Results *r)
{
    WfVal first = n->out;
    for (int i = 0; i < r->n; i++) {
        WfDim shape[WF_MAX_RANK];
        int rank;
        bool contiguous;
        const char *name = r->names[i];
        if (!name)
            continue;
        WfDtype t = imp_meta(m, imp_get(m, s->tensor_values, name, JSON_OBJECT), &rank, shape, &contiguous);
        WfValue *v = wf_value(s->g, first + (WfVal)i);
        v->dtype = t;
        v->rank = (int8_t)rank;
        memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
        v->contiguous = contiguous;
        wf_name_value(s->g, first + (WfVal)i, name);
        imp_define(m, s, name, first + (WfVal)i);
    }
}

/* ---- graphs ---- */

/* Operators that hold a graph are recorded without a line: the first one inside stands for them. */
static uint32_t inner_source(const WfSchema *c, const WfArg *args)
{
    for (int i = 0; i < c->n_params; i++)
        for (int k = 1; args[i].kind == WF_ARG_GRAPH && k < args[i].graph->nodes.n; k++)
            if (args[i].graph->nodes.at[k].source)
                return args[i].graph->nodes.at[k].source;
    return 0;
}

static void read_node(Imp *m, Scope *s, const json_t *node)
{
    const char *target = imp_string(m, node, "target");
    const json_t *name = imp_opt(m, node, "name", JSON_STRING);
    if (dropped(target))
        return;
    uint32_t source = imp_source(m, node);
    m->place = imp_place(m, strncmp(target, "torch.ops.", 10) ? target : target + 10, json_string_value(name),
                         source);
    if (imp_size_node(m, s, target, node))
        return;
    const WfOp *op = wf_op_find(target);
    if (!op)
        imp_fail(m, WF_E_OP_UNKNOWN, NULL, "the operator %.120s is not supported", target);
    const WfSchema *c = wf_schema_of(op);
    WfArg given[64], args[64];
    memset(given, 0, sizeof given);
    arguments(m, s, node, c, given);
    wf_complete_args(s->g, op, given, args);
    Results *r = WF_NEW(m->a, Results);
    read_results(m, node, c, r);
    s->g->source = source ? source : inner_source(c, args);
    define_results(m, s, wf_append_raw(s->g, op, args, r->n), r);
}

void imp_nodes(Imp *m, Scope *s, const json_t *graph)
{
    const json_t *nodes = imp_get(m, graph, "nodes", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        if (i % 1024 == 0)
            wf_check_cancel(m->ctx);
        read_node(m, s, json_array_get(nodes, i));
    }
}

void imp_tensor_input(Imp *m, Scope *s, const json_t *v)
{
    const char *name = imp_tensor_name(m, v);
    WfDim shape[WF_MAX_RANK];
    int rank;
    bool contiguous;
    WfDtype t = imp_meta(m, imp_get(m, s->tensor_values, name, JSON_OBJECT), &rank, shape, &contiguous);
    WfVal x = wf_add_input(s->g, WF_IN_USER, name, t, rank, shape);
    wf_value(s->g, x)->contiguous = contiguous;
    imp_define(m, s, name, x);
}

static void sub_inputs(Imp *m, Scope *s, const json_t *graph)
{
    const json_t *inputs = imp_get(m, graph, "inputs", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *v;
        const char *tag = imp_tag(m, json_array_get(inputs, i), &v);
        if (!strcmp(tag, "as_sym_int")) {
            const json_t *name = imp_get(m, v, "as_name", JSON_STRING), *claim;
            claim = s->int_values ? json_object_get(s->int_values, json_string_value(name)) : NULL;
            if (!claim)
                bad(m, "a size that a sub-graph takes is not described");
            wf_map_put(s->ints, json_string_value(name), imp_symint(m, claim));
            continue;
        }
        if (strcmp(tag, "as_tensor"))
            unsupported(m, "a sub-graph takes an input of kind '%.40s'", tag);
        imp_tensor_input(m, s, v);
    }
}

static WfGraph *sub_graph(Imp *m, const json_t *v)
{
    const json_t *graph = imp_get(m, v, "graph", JSON_OBJECT);
    if (++m->depth > MAX_GRAPH_DEPTH)
        unsupported(m, "sub-graphs lie more than %d deep in one another", MAX_GRAPH_DEPTH);
    const char *place = m->place;
    Scope s;
    imp_scope(m, &s, wf_graph_new(m->ctx, m->a, m->e, WF_ATEN), graph);
    s.g->sources.at = m->sources.at; /* for messages; the final table is set at the end */
    s.g->sources.n = m->sources.n;
    sub_inputs(m, &s, graph);
    imp_nodes(m, &s, graph);
    const json_t *outs = imp_get(m, graph, "outputs", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(outs); i++) {
        const json_t *x;
        const char *tag = imp_tag(m, json_array_get(outs, i), &x);
        if (!strcmp(tag, "as_tensor"))
            wf_add_output(s.g, WF_OUT_USER, wf_arena_printf(m->a, "%zu", i),
                          imp_tensor(m, &s, imp_tensor_name(m, x)), 0);
        else if (!strcmp(tag, "as_none"))
            wf_add_output(s.g, WF_OUT_USER, wf_arena_printf(m->a, "%zu", i), 0, 0);
        else
            unsupported(m, "a sub-graph returns a value of kind '%.40s'", tag);
    }
    m->depth--;
    m->place = place;
    return s.g;
}
