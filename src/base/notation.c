/* Expressions as text. Quotients and remainders carry their own brackets, and every operand that is a sum or
 * a product gets a pair, so the text needs no rule of precedence beyond * before +. The parser accepts
 * Python's rules and builds through the simplifier, which leaves a finished form as it is. */
#include <string.h>

#include "base/expr.h"

enum { MAX_NESTING = 200 };

/* ---- printing ---- */

typedef struct {
    WfExprs *e; /* only read, except for the proofs of C text */
    WfStr *out;
    bool c;     /* C text instead of infix */
    WfSymName name;
    void *user;
} Printer;

static void print_dim(const Printer *p, WfDim d);

static void print_int(const Printer *p, int64_t v)
{
    if (!p->c || (v >= -INT32_MAX && v <= INT32_MAX))
        wf_str_printf(p->out, "%lld", (long long)v);
    else if (v == INT64_MIN)
        wf_str_puts(p->out, "(-9223372036854775807LL - 1)");
    else
        wf_str_printf(p->out, "%lldLL", (long long)v);
}

/* An operand of / or %: in brackets unless it is one thing. */
static void print_operand(const Printer *p, WfDim d)
{
    bool brackets = d < 0 && (wf_enode(p->e, d)->kind == E_POLY || wf_enode(p->e, d)->kind == E_CONST);
    if (brackets)
        wf_str_putc(p->out, '(');
    print_dim(p, d);
    if (brackets)
        wf_str_putc(p->out, ')');
}

static void print_call(const Printer *p, const char *name, WfDim a, WfDim b)
{
    wf_str_puts(p->out, name);
    wf_str_putc(p->out, '(');
    print_dim(p, a);
    wf_str_puts(p->out, p->c ? ", " : ",");
    print_dim(p, b);
    wf_str_putc(p->out, ')');
}

static void print_atom(const Printer *p, const Node *n)
{
    if (n->kind == E_SYM) {
        wf_str_puts(p->out, p->name ? p->name(p->user, n->sym) : p->e->syms.at[n->sym].name);
        return;
    }
    if (n->kind == E_MIN || n->kind == E_MAX) {
        const char *const names[2][2] = { { "min", "max" }, { "wf_min", "wf_max" } };
        print_call(p, names[p->c][n->kind == E_MAX], n->a, n->b);
        return;
    }
    bool fdiv = n->kind == E_FDIV;
    int64_t lo, hi;
    wf_einterval(p->e, n->b, &lo, &hi);
    if (p->c && (lo < 0 || !wf_eprove_ge0(p->e, n->a))) {
        print_call(p, fdiv ? "wf_floordiv" : "wf_mod", n->a, n->b);
        return;
    }
    wf_str_putc(p->out, '(');
    print_operand(p, n->a);
    wf_str_puts(p->out, p->c ? (fdiv ? " / " : " % ") : (fdiv ? "//" : "%"));
    print_operand(p, n->b);
    wf_str_putc(p->out, ')');
}

static void print_dim(const Printer *p, WfDim d)
{
    if (d >= 0) {
        print_int(p, d);
        return;
    }
    Node n = *wf_enode(p->e, d);
    if (n.kind == E_CONST) {
        print_int(p, n.a);
        return;
    }
    if (n.kind != E_POLY) {
        print_atom(p, &n);
        return;
    }
    for (int i = 0; i < n.poly.n; i++) {
        const Term *t = &n.poly.at[i];
        int64_t coef = t->coef;
        bool minus = coef < 0 && coef != INT64_MIN && (i || coef == -1); /* sign apart from the number */
        if (minus) {
            wf_str_puts(p->out, !i ? "-" : p->c ? " - " : "-");
            coef = -coef;
        } else if (i) {
            wf_str_puts(p->out, p->c ? " + " : "+");
        }
        if (coef != 1 || t->n == 0)
            print_int(p, coef);
        for (int j = 0; j < t->n; j++) {
            if (j || coef != 1)
                wf_str_putc(p->out, '*');
            Node atom = *wf_enode(p->e, DIM(t->atoms[j]));
            print_atom(p, &atom);
        }
    }
}

void wf_eprint(const WfExprs *e, WfDim d, WfStr *out)
{
    print_dim(&(Printer){ .e = (WfExprs *)e, .out = out }, d);
}

void wf_eprint_c(WfExprs *e, WfDim d, WfStr *out, WfSymName name, void *user)
{
    print_dim(&(Printer){ e, out, true, name, user }, d);
}

const char wf_expr_c_prelude[] =
    "static inline __attribute__((always_inline)) long wf_floordiv(long a, long b)\n"
    "{ long q = a / b; return q - (a % b != 0 && (a < 0) != (b < 0)); }\n"
    "static inline __attribute__((always_inline)) long wf_mod(long a, long b)\n"
    "{ long r = a % b; return r && (r < 0) != (b < 0) ? r + b : r; }\n"
    "static inline __attribute__((always_inline)) long wf_min(long a, long b) { return a < b ? a : b; }\n"
    "static inline __attribute__((always_inline)) long wf_max(long a, long b) { return a > b ? a : b; }\n";

/* ---- parsing ---- */

typedef struct {
    WfExprs *e;
    const char *text, *at;
    int depth;
} Parser;

static WfDim parse_sum(Parser *p);

static void WF_NORETURN bad_text(const Parser *p, const char *expected)
{
    char place[64];
    snprintf(place, sizeof(place), "column %lld of the expression", (long long)(p->at - p->text) + 1);
    wf_fail_at(p->e->ctx, WF_E_GRAPH_TEXT, place, NULL, "'%.80s' is not an integer expression: %s is expected", p->text,
               expected);
}

static void skip_blanks(Parser *p)
{
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
}

static bool take(Parser *p, char c)
{
    skip_blanks(p);
    if (*p->at != c)
        return false;
    p->at++;
    return true;
}

static bool name_char(char c, bool first)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return letter || (!first && ((c >= '0' && c <= '9') || c == '.'));
}

static WfDim parse_int(Parser *p, bool minus)
{
    int64_t v = 0;
    for (; *p->at >= '0' && *p->at <= '9'; p->at++) {
        int64_t digit = *p->at - '0';
        if (!wf_mul_ok(v, 10, &v) || !wf_add_ok(v, minus ? -digit : digit, &v))
            bad_text(p, "a 64-bit number");
    }
    return wf_e_const(p->e, v);
}

static WfDim parse_name(Parser *p)
{
    const char *start = p->at;
    while (name_char(*p->at, p->at == start))
        p->at++;
    size_t n = (size_t)(p->at - start);
    if (n == 3 && (!memcmp(start, "min", 3) || !memcmp(start, "max", 3))) {
        if (!take(p, '('))
            bad_text(p, "'('");
        WfDim a = parse_sum(p);
        if (!take(p, ','))
            bad_text(p, "','");
        WfDim b = parse_sum(p);
        if (!take(p, ')'))
            bad_text(p, "')'");
        return wf_e_minmax(p->e, start[1] == 'i' ? E_MIN : E_MAX, a, b);
    }
    int64_t id;
    if (!wf_map_get_bytes(p->e->names, start, n, &id)) {
        p->at = start;
        bad_text(p, "the name of a known size");
    }
    return p->e->syms.at[id].dim;
}

static WfDim parse_unary(Parser *p)
{
    WfDim d;
    if (++p->depth > MAX_NESTING)
        bad_text(p, "less nesting");
    skip_blanks(p);
    if (take(p, '-')) {
        skip_blanks(p);
        d = *p->at >= '0' && *p->at <= '9' ? parse_int(p, true) : wf_e_sub(p->e, 0, parse_unary(p));
    } else if (*p->at >= '0' && *p->at <= '9') {
        d = parse_int(p, false);
    } else if (take(p, '(')) {
        d = parse_sum(p);
        if (!take(p, ')'))
            bad_text(p, "')'");
    } else if (name_char(*p->at, true)) {
        d = parse_name(p);
    } else {
        bad_text(p, "a number, a name or '('");
    }
    p->depth--;
    return d;
}

static WfDim parse_product(Parser *p)
{
    WfDim d = parse_unary(p);
    for (;;) {
        skip_blanks(p);
        if (p->at[0] == '/' && p->at[1] == '/') {
            p->at += 2;
            d = wf_e_fdiv(p->e, d, parse_unary(p));
        } else if (take(p, '%')) {
            d = wf_e_mod(p->e, d, parse_unary(p));
        } else if (take(p, '*')) {
            d = wf_e_mul(p->e, d, parse_unary(p));
        } else {
            return d;
        }
        wf_e_end(p->e, d);
    }
}

static WfDim parse_sum(Parser *p)
{
    WfDim d = parse_product(p);
    for (;;) {
        const char *before = p->at;
        if (take(p, '+')) {
            d = wf_e_add(p->e, d, parse_product(p));
        } else if (take(p, '-')) {
            d = wf_e_sub(p->e, d, parse_product(p));
        } else {
            p->at = before; /* blanks behind the expression are not part of it */
            return d;
        }
        wf_e_end(p->e, d);
    }
}

WfDim wf_eparse(WfExprs *e, const char *text, const char **end)
{
    Parser p = { e, text, text, 0 };
    wf_e_begin(e);
    WfDim d = wf_e_end(e, parse_sum(&p));
    if (end)
        *end = p.at;
    return d;
}
