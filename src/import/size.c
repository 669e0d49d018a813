/* Symbolic sizes. The file writes them as sympy's srepr, function notation over symbols; they become
 * expressions of the graph's table, which keeps canonical forms, so that equal sizes are equal values. Nodes
 * that only compute sizes (sym_size, operator.mul, ...) are evaluated here and leave no trace in the graph.
 */
#include "import/private.h"

#include <string.h>

enum { MAX_EXPR_DEPTH = 64 };

typedef struct {
    Imp *m;
    const char *p, *text;
    int depth;
    bool truncated;
} Scan; /* truncated: directly below a truncation */

static WF_NORETURN void broken(Scan *s)
{
    bad(s->m, "the size expression '%.120s' cannot be read", s->text);
}

static void blank(Scan *s)
{
    while (*s->p == ' ')
        s->p++;
}

static bool eat(Scan *s, char c)
{
    blank(s);
    if (*s->p != c)
        return false;
    s->p++;
    return true;
}

static int word(Scan *s, char *out, int max)
{
    blank(s);
    int n = 0;
    while ((*s->p >= 'a' && *s->p <= 'z') || (*s->p >= 'A' && *s->p <= 'Z') ||
           (*s->p >= '0' && *s->p <= '9') || *s->p == '_') {
        if (n == max - 1)
            broken(s);
        out[n++] = *s->p++;
    }
    out[n] = 0;
    return n;
}

static int64_t number(Scan *s)
{
    blank(s);
    bool minus = eat(s, '-');
    int64_t v = 0;
    if (*s->p < '0' || *s->p > '9')
        broken(s);
    while (*s->p >= '0' && *s->p <= '9')
        if (!wf_mul_ok(v, 10, &v) || !wf_add_ok(v, *s->p++ - '0', &v))
            broken(s);
    return minus ? -v : v;
}

static WfDim expr(Scan *s);

/* Symbol('s77', positive=True, integer=True), after the opening parenthesis. */
static WfDim symbol(Scan *s)
{
    char name[64];
    if (!eat(s, '\''))
        broken(s);
    int n = word(s, name, sizeof name);
    if (!n || !eat(s, '\''))
        broken(s);
    while (!eat(s, ')'))
        if (!*s->p++)
            broken(s);
    if (name[0] == 'u' && name[1] >= '0' && name[1] <= '9')
        imp_fail(s->m, WF_E_DATA_DEPENDENT,
                 "replace nonzero(), item() and boolean indexing by masks, or pad to a "
                 "fixed size",
                 "a size here depends on the values of a tensor, not on the sizes of the inputs");
    WfDim d;
    if (wf_sym_find(s->m->e, name, &d))
        return d;
    if (name[0] >= '0' && name[0] <= '9')
        broken(s);
    return wf_sym(s->m->e, name, 0, INT64_MAX);
}

static int arguments(Scan *s, WfDim *out, int max)
{
    int n = 0;
    while (!eat(s, ')')) {
        if (n == max || (n && !eat(s, ',')))
            broken(s);
        out[n++] = expr(s);
    }
    return n;
}

static WfDim fold(Scan *s, WfDim (*f)(WfExprs *, WfDim, WfDim))
{
    WfDim v = expr(s);
    while (eat(s, ','))
        v = f(s->m->e, v, expr(s));
    if (!eat(s, ')'))
        broken(s);
    return v;
}

static WfDim pow_small(Imp *m, WfDim base, WfDim power)
{
    int64_t n;
    if (!wf_elit(m->e, power, &n) || n < 0 || n > 16)
        imp_fail(m, WF_E_SIZE_FORM, NULL, "a size is raised to a power that is not a small constant");
    WfDim v = 1;
    for (; n > 0; n--)
        v = wf_emul(m->e, v, base);
    return v;
}

/* Division that the export knows, or truncates, to be integral: the floor for a >= 0, b > 0. */
static WfDim divide(Imp *m, WfDim a, WfDim b)
{
    if (!wf_eprove_ge0(m->e, a) || !wf_eprove_lt(m->e, 0, b))
        imp_fail(m, WF_E_SIZE_FORM, NULL, "a size is a truncated division of numbers that may be negative");
    return wf_efloordiv(m->e, a, b);
}

static WfDim call(Scan *s, const char *f)
{
    WfExprs *e = s->m->e;
    WfDim a[2];
    if (!strcmp(f, "Symbol"))
        return symbol(s);
    if (!strcmp(f, "Integer")) {
        WfDim v = wf_econst(e, number(s));
        if (!eat(s, ')'))
            broken(s);
        return v;
    }
    if (!strcmp(f, "Add"))
        return fold(s, wf_eadd);
    if (!strcmp(f, "Mul"))
        return fold(s, wf_emul);
    if (!strcmp(f, "Max"))
        return fold(s, wf_emax);
    if (!strcmp(f, "Min"))
        return fold(s, wf_emin);
    if (!strcmp(f, "TruncToInt") || !strcmp(f, "ToFloat") || !strcmp(f, "FloorToInt")) {
        s->truncated = *f != 'T' || f[1] != 'o';
        if (arguments(s, a, 1) != 1)
            broken(s);
        return a[0];
    }
    bool two = !strcmp(f, "FloorDiv") || !strcmp(f, "Mod") || !strcmp(f, "PythonMod") ||
               !strcmp(f, "CleanDiv") || !strcmp(f, "CeilDiv") || !strcmp(f, "IntTrueDiv") ||
               !strcmp(f, "Pow") || !strcmp(f, "PowByNatural");
    if (!two)
        imp_fail(s->m, WF_E_SIZE_FORM, NULL, "a size is computed with %s, which is not supported", f);
    if (arguments(s, a, 2) != 2)
        broken(s);
    if (!strcmp(f, "FloorDiv"))
        return wf_efloordiv(e, a[0], a[1]);
    if (!strcmp(f, "Mod") || !strcmp(f, "PythonMod"))
        return wf_emod(e, a[0], a[1]);
    if (!strcmp(f, "CeilDiv"))
        return wf_esub(e, 0, wf_efloordiv(e, wf_esub(e, 0, a[0]), a[1]));
    if (!strncmp(f, "Pow", 3))
        return pow_small(s->m, a[0], a[1]);
    return *f == 'C' ? wf_efloordiv(e, a[0], a[1]) : divide(s->m, a[0], a[1]);
}

static WfDim expr(Scan *s)
{
    char f[32];
    if (++s->depth > MAX_EXPR_DEPTH)
        broken(s);
    blank(s);
    WfDim v;
    if ((*s->p >= '0' && *s->p <= '9') || *s->p == '-') {
        v = wf_econst(s->m->e, number(s));
    } else {
        if (!word(s, f, sizeof f) || !eat(s, '('))
            broken(s);
        if (!strcmp(f, "IntTrueDiv") && !s->truncated)
            imp_fail(s->m, WF_E_SIZE_FORM, NULL, "a size is a fraction");
        s->truncated = false;
        v = call(s, f);
    }
    s->depth--;
    return v;
}

WfDim imp_expr(Imp *m, const char *srepr)
{
    Scan s = {.m = m, .p = srepr, .text = srepr};
    WfDim d = expr(&s);
    blank(&s);
    if (*s.p)
        broken(&s);
    return d;
}

/* The size that the example of the export had, where it is a symbol's own. */
static void take_hint(Imp *m, WfDim d, const json_t *x)
{
    const json_t *h = json_object_get(json_object_get(x, "hint"), "as_int");
    int id = wf_esym_id(m->e, d);
    int64_t lo, hi, v = json_is_integer(h) ? json_integer_value(h) : 0;
    if (id < 0 || v < 1)
        return;
    wf_esym_range(m->e, id, &lo, &hi);
    if (v >= lo && v <= hi)
        wf_esym_set_hint(m->e, id, v);
}

WfDim imp_symint(Imp *m, const json_t *v)
{
    const json_t *x;
    const char *tag = imp_tag(m, v, &x);
    if (!strcmp(tag, "as_int") && json_is_integer(x))
        return wf_econst(m->e, json_integer_value(x));
    if (!strcmp(tag, "as_expr")) {
        WfDim d = imp_expr(m, imp_string(m, x, "expr_str"));
        take_hint(m, d, x);
        return d;
    }
    bad(m, "damaged model description: a size of kind '%.40s'", tag);
}

static bool is_name(const char *s)
{
    for (const char *c = s; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_' ||
              (c > s && *c >= '0' && *c <= '9')))
            return false;
    return *s;
}

void imp_symbols(Imp *m, const json_t *ranges)
{
    const char *name;
    json_t *r;
    json_object_foreach((json_t *)ranges, name, r)
    {
        if (name[0] == 'u') /* data dependent: an error where a size uses it */
            continue;
        const json_t *lo = imp_opt(m, r, "min_val", JSON_INTEGER),
                     *hi = imp_opt(m, r, "max_val", JSON_INTEGER);
        int64_t a = lo ? json_integer_value(lo) : 0, b = hi ? json_integer_value(hi) : INT64_MAX;
        if (a < 0)
            a = 0; /* sizes */
        if (b >= INT64_MAX - 1)
            b = INT64_MAX;
        if (!is_name(name)) /* the range of a whole expression follows from those of its symbols */
            continue;
        if (a > b || strlen(name) > 60 || !strcmp(name, "min") || !strcmp(name, "max"))
            bad(m, "the range of the size '%.40s' is empty or damaged", name);
        wf_sym(m->e, name, a, b);
    }
}

WfDtype imp_meta(Imp *m, const json_t *meta, int *rank, WfDim *shape, bool *contiguous)
{
    const json_t *sizes = imp_get(m, meta, "sizes", JSON_ARRAY),
                 *strides = imp_get(m, meta, "strides", JSON_ARRAY);
    WfDtype t = imp_dtype(m, imp_int(m, meta, "dtype"));
    const json_t *layout = imp_opt(m, meta, "layout", JSON_INTEGER);
    size_t r = json_array_size(sizes);
    if (layout && json_integer_value(layout) != 7)
        unsupported(m, "a sparse tensor");
    if (r > WF_MAX_RANK)
        unsupported(m, "a tensor has %zu dimensions; Weft goes up to %d", r, WF_MAX_RANK);
    if (json_array_size(strides) != r)
        bad(m, "a tensor has another number of strides than of sizes");
    *rank = (int)r;
    bool dense = true, empty = false;
    WfDim want = 1;
    for (int i = (int)r - 1; i >= 0; i--) {
        shape[i] = imp_symint(m, json_array_get(sizes, (size_t)i));
        int64_t v;
        if (wf_elit(m->e, shape[i], &v) && v < 0)
            bad(m, "a tensor has a negative size");
        if (contiguous && shape[i] != 1)
            dense &= imp_symint(m, json_array_get(strides, (size_t)i)) == want;
        empty |= shape[i] == 0;
        want = wf_emul(m->e, want, shape[i]);
    }
    if (contiguous)
        *contiguous = dense || empty;
    return t;
}

/* ---- nodes that compute sizes ---- */

static const json_t *input_at(Imp *m, const json_t *node, size_t i)
{
    const json_t *in = imp_get(m, node, "inputs", JSON_ARRAY);
    if (i >= json_array_size(in))
        bad(m, "a size computation lacks an argument");
    return imp_get(m, json_array_get(in, i), "arg", JSON_OBJECT);
}

/* An integer operand; false for anything else (a float or boolean in between). */
static bool operand(Imp *m, Scope *s, const json_t *node, size_t i, WfDim *out)
{
    const json_t *v;
    const char *tag = imp_tag(m, input_at(m, node, i), &v);
    if (!strcmp(tag, "as_int") && json_is_integer(v)) {
        *out = wf_econst(m->e, json_integer_value(v));
        return true;
    }
    if (strcmp(tag, "as_sym_int"))
        return false;
    const json_t *name = imp_opt(m, v, "as_name", JSON_STRING);
    if (name && wf_map_get(s->opaque, json_string_value(name), NULL))
        return false;
    *out = imp_dim_arg(m, s, v);
    return true;
}

static bool compute(Imp *m, Scope *s, const char *op, const json_t *node, WfDim *out)
{
    static const struct {
        const char *name;
        WfDim (*f)(WfExprs *, WfDim, WfDim);
    } table[] = {{"_operator.add", wf_eadd},           {"_operator.sub", wf_esub}, {"_operator.mul", wf_emul},
                 {"_operator.floordiv", wf_efloordiv}, {"_operator.mod", wf_emod}, {"torch.sym_max", wf_emax},
                 {"torch.sym_min", wf_emin},           {"_operator.pow", NULL}};
    WfDim a, b;
    if (!strcmp(op, "torch.ops.aten.sym_size.int") || !strcmp(op, "torch.ops.aten.sym_numel.default")) {
        const json_t *v;
        if (strcmp(imp_tag(m, input_at(m, node, 0), &v), "as_tensor"))
            bad(m, "the size of something that is no tensor");
        WfVal x = imp_tensor(m, s, imp_tensor_name(m, v));
        const WfValue *value = wf_value(s->g, x);
        int64_t d;
        if (strstr(op, "numel")) {
            *out = wf_numel(s->g, x);
            return true;
        }
        if (!operand(m, s, node, 1, &a) || !wf_elit(m->e, a, &d) || d < -value->rank || d >= value->rank)
            bad(m, "the size of a dimension that is not there");
        *out = value->shape[d < 0 ? d + value->rank : d];
        return true;
    }
    if (!strcmp(op, "_operator.neg") && operand(m, s, node, 0, &a)) {
        *out = wf_esub(m->e, 0, a);
        return true;
    }
    for (size_t i = 0; i < WF_LEN(table); i++)
        if (!strcmp(op, table[i].name) && operand(m, s, node, 0, &a) && operand(m, s, node, 1, &b)) {
            *out = table[i].f ? table[i].f(m->e, a, b) : pow_small(m, a, b);
            return true;
        }
    return false;
}

static void define_int(Imp *m, Scope *s, const char *name, WfDim d)
{
    if (wf_map_get(s->ints, name, NULL) || wf_map_get(s->tensors, name, NULL))
        bad(m, "'%.60s' is defined twice", name);
    wf_map_put(s->ints, name, d);
}

bool imp_size_node(Imp *m, Scope *s, const char *target, const json_t *node)
{
    const json_t *outs = imp_get(m, node, "outputs", JSON_ARRAY), *v;
    bool sym = !strncmp(target, "_operator.", 10) || !strncmp(target, "torch.sym_", 10) ||
               !strncmp(target, "math.", 5) || !strcmp(target, "torch.ops.aten.sym_size.int") ||
               !strcmp(target, "torch.ops.aten.sym_numel.default");
    if (!sym)
        return false;
    if (json_array_size(outs) != 1)
        bad(m, "a size computation has %zu results", json_array_size(outs));
    const char *tag = imp_tag(m, json_array_get(outs, 0), &v);
    const char *name = json_is_object(v) ? json_string_value(json_object_get(v, "as_name")) : NULL;
    if (!name)
        return true; /* a literal */
    if (strcmp(tag, "as_sym_int")) {
        wf_map_put(s->opaque, name, 1);
        return true;
    }
    WfDim d;
    const json_t *claim;
    if (compute(m, s, target, node, &d))
        define_int(m, s, name, d);
    else if (s->int_values && (claim = json_object_get(s->int_values, name)))
        define_int(m, s, name, imp_symint(m, claim));
    else
        imp_fail(m, WF_E_SIZE_FORM, NULL, "the size computation %.60s is not supported", target);
    return true;
}
