/* Schemas: PyTorch's own schema text, parsed once per op into parameters with types, defaults and alias marks. The
 * grammar is the part of PyTorch's that ATen and Weft's own primitives use:
 *   name(type[?][[n]][?] name[=default], ..., *, ...) -> type | (type name, ...)
 * The registry keeps ops in one table sorted by name. */
#include "ir/ir_private.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPS 2048
static const WfOp *table[MAX_OPS];
static WfSchema *schemas[MAX_OPS];
static int table_n;

typedef struct { const char *p, *text; } Scan;

static WF_NORETURN void broken(const Scan *s, const char *what)
{
    fprintf(stderr, "weft: op schema '%s': %s at '%s'\n", s->text, what, s->p);
    abort(); /* a schema is part of the program text: never user input */
}

static void skip(Scan *s)
{
    while (*s->p == ' ')
        s->p++;
}

static bool eat(Scan *s, const char *token)
{
    skip(s);
    size_t n = strlen(token);
    if (strncmp(s->p, token, n))
        return false;
    s->p += n;
    return true;
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static char *word(Scan *s, bool dots)
{
    skip(s);
    const char *b = s->p;
    while (word_char(*s->p) || (dots && *s->p == '.'))
        s->p++;
    if (s->p == b)
        broken(s, "a name is missing");
    char *w = calloc(1, (size_t)(s->p - b) + 1);
    memcpy(w, b, (size_t)(s->p - b));
    return w;
}

static WfParamType base_type(const char *w)
{
    static const struct { const char *name; WfParamType t; } types[] = {
        {"Tensor", WF_T_TENSOR}, {"int", WF_T_INT},        {"SymInt", WF_T_INT},        {"float", WF_T_FLOAT},
        {"bool", WF_T_BOOL},     {"str", WF_T_STRING},     {"ScalarType", WF_T_DTYPE},  {"Scalar", WF_T_SCALAR},
        {"number", WF_T_SCALAR}, {"Layout", WF_T_IGNORED}, {"Device", WF_T_IGNORED},    {"MemoryFormat", WF_T_IGNORED},
        {"Generator", WF_T_IGNORED}, {"Graph", WF_T_GRAPH}, {"DeviceIndex", WF_T_IGNORED}, {"Any", WF_T_IGNORED},
    };
    for (size_t i = 0; i < WF_LEN(types); i++)
        if (!strcmp(types[i].name, w))
            return types[i].t;
    return WF_T_IGNORED;
}

static WfParamType list_of(WfParamType t)
{
    switch (t) {
    case WF_T_TENSOR: return WF_T_TENSORS;
    case WF_T_INT: return WF_T_INTS;
    case WF_T_FLOAT: case WF_T_SCALAR: return WF_T_FLOATS;
    case WF_T_BOOL: return WF_T_BOOLS;
    default: return t;
    }
}

static WfParamType type(Scan *s, WfParam *p)
{
    char *w = word(s, false);
    WfParamType t = base_type(w);
    free(w);
    if (eat(s, "(")) { /* alias set: (a), (a!), (a -> *) */
        skip(s);
        p->alias = *s->p == '*' ? '*' : *s->p;
        while (*s->p && *s->p != ')') {
            if (*s->p == '!')
                p->mutates = true;
            s->p++;
        }
        if (!eat(s, ")"))
            broken(s, "')' expected");
    }
    if (eat(s, "?"))
        p->optional = true;
    if (eat(s, "[")) {
        if (p->optional) {
            p->optional_items = true;
            p->optional = false;
        }
        p->fixed = (int8_t)strtol(s->p, (char **)&s->p, 10);
        if (!eat(s, "]"))
            broken(s, "']' expected");
        t = list_of(t);
        if (eat(s, "?"))
            p->optional = true;
    }
    return t;
}

static void fallback(Scan *s, WfParam *p)
{
    WfArg *a = &p->fallback;
    p->has_default = true;
    skip(s);
    if (eat(s, "None")) {
        a->kind = WF_ARG_NONE;
    } else if (eat(s, "True") || eat(s, "False")) {
        a->kind = WF_ARG_BOOL;
        a->b = s->p[-2] == 'u';
    } else if (*s->p == '"' || *s->p == '\'') {
        char q = *s->p++;
        const char *b = s->p;
        while (*s->p != q)
            s->p++;
        a->kind = WF_ARG_STRING;
        a->s = strndup(b, (size_t)(s->p++ - b));
    } else if (eat(s, "[")) {
        a->kind = p->type == WF_T_FLOATS ? WF_ARG_FLOATS : p->type == WF_T_BOOLS ? WF_ARG_BOOLS : WF_ARG_INTS;
        a->ints = calloc(8, sizeof(WfDim));
        while (!eat(s, "]")) {
            if (a->n == 8)
                broken(s, "default list too long");
            if (a->kind == WF_ARG_INTS)
                a->ints[a->n++] = strtoll(s->p, (char **)&s->p, 10);
            else if (a->kind == WF_ARG_BOOLS)
                a->bools[a->n++] = eat(s, "True") ? true : (eat(s, "False"), false);
            else
                a->floats[a->n++] = strtod(s->p, (char **)&s->p);
            eat(s, ",");
        }
    } else if (eat(s, "Mean")) {
        a->kind = WF_ARG_INT, a->i = 1;
    } else if (eat(s, "contiguous_format")) {
        a->kind = WF_ARG_NONE;
    } else if (word_char(*s->p) && !(*s->p >= '0' && *s->p <= '9') && !eat(s, "inf")) {
        free(word(s, false)); /* an enumerator Weft ignores */
        a->kind = WF_ARG_NONE;
    } else {
        char *e1, *e2;
        double f = strtod(s->p, &e1);
        long long i = strtoll(s->p, &e2, 10);
        if (e1 == s->p)
            broken(s, "default expected");
        if (e1 == e2 && p->type != WF_T_FLOAT) { /* negative literals are put into expressions at use */
            a->kind = WF_ARG_INT;
            a->i = i;
        } else {
            a->kind = WF_ARG_FLOAT;
            a->f = f;
        }
        s->p = e1;
    }
}

static WfSchema *parse_schema(const char *text)
{
    Scan s = {text, text};
    WfSchema *c = calloc(1, sizeof *c);
    WfParam tmp[64];
    int n = 0;
    c->name = word(&s, true);
    if (!eat(&s, "("))
        broken(&s, "'(' expected");
    while (!eat(&s, ")")) {
        if (eat(&s, "*")) {
            eat(&s, ",");
            continue;
        }
        if (n == 64)
            broken(&s, "too many parameters");
        WfParam *p = &tmp[n++];
        memset(p, 0, sizeof *p);
        p->type = type(&s, p);
        p->name = word(&s, false);
        if (eat(&s, "="))
            fallback(&s, p);
        c->mutates |= p->mutates;
        eat(&s, ",");
    }
    c->params = calloc((size_t)n + 1, sizeof *c->params);
    memcpy(c->params, tmp, (size_t)n * sizeof *tmp);
    c->n_params = n;
    if (!eat(&s, "->"))
        broken(&s, "'->' expected");
    bool tuple = eat(&s, "(");
    while (*s.p && !eat(&s, ")")) {
        WfParam r = {0};
        WfParamType t = type(&s, &r);
        skip(&s);
        if (tuple && word_char(*s.p))
            free(word(&s, false));
        if (c->n_ret == 16)
            broken(&s, "too many results");
        c->ret[c->n_ret].type = t;
        c->ret[c->n_ret].alias = r.alias;
        c->ret[c->n_ret++].mutates = r.mutates;
        c->view |= r.alias && !r.mutates;
        eat(&s, ",");
        skip(&s);
    }
    return c;
}

static int find(const char *name, bool *hit)
{
    int lo = 0, hi = table_n;
    while (lo < hi) {
        int mid = (lo + hi) / 2, c = strcmp(schemas[mid]->name, name);
        if (!c) {
            *hit = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *hit = false;
    return lo;
}

void wf_register(const WfOp *ops)
{
    for (; ops->schema; ops++) {
        WfSchema *c = parse_schema(ops->schema);
        bool hit;
        int at = find(c->name, &hit);
        if (hit || table_n == MAX_OPS) {
            fprintf(stderr, "weft: op %s is defined twice, or the table is full\n", c->name);
            abort();
        }
        memmove(table + at + 1, table + at, (size_t)(table_n - at) * sizeof *table);
        memmove(schemas + at + 1, schemas + at, (size_t)(table_n - at) * sizeof *schemas);
        table[at] = ops;
        schemas[at] = c;
        table_n++;
    }
}

static const WfOp *find_op(const char *name, int *at)
{
    bool hit;
    int i = find(name, &hit);
    *at = i;
    return hit ? table[i] : NULL;
}

const WfOp *wf_op_find(const char *name)
{
    int at;
    if (!strncmp(name, "torch.ops.", 10))
        name += 10;
    const WfOp *op = find_op(name, &at);
    size_t n = strlen(name);
    if (!op && n > 8 && !strcmp(name + n - 8, ".default")) {
        char buf[256];
        if (n - 8 >= sizeof buf)
            return NULL;
        memcpy(buf, name, n - 8);
        buf[n - 8] = 0;
        op = find_op(buf, &at);
    }
    return op;
}

const WfSchema *wf_schema_of(const WfOp *op)
{
    const char *end = strchr(op->schema, '(');
    char buf[256];
    size_t n = (size_t)(end - op->schema);
    if (n >= sizeof buf)
        abort();
    memcpy(buf, op->schema, n);
    buf[n] = 0;
    int at;
    if (!find_op(buf, &at))
        abort();
    return schemas[at];
}

int wf_op_count(void) { return table_n; }
const WfOp *wf_op_at(int i) { return table[i]; }
