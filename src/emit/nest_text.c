/* Expressions as C text. A size or index expression is printed over the names of the loops that are open, the
 * symbols of the step and the indices that were read from data; `depth` says in which scope all of these are
 * known. Bounds of paddings and joins become conditions, of which those that vary by lane are kept apart from
 * those that do not. */
#include "emit/nest.h"

#include <math.h>

static const char *symbol_name(void *user, int id)
{
    Em *m = user;
    WfDim sym = wf_esym_at(m->e, id);
    for (int i = 0; i < m->n_loops; i++)
        if (m->loop[i].var == sym)
            return m->loop[i].name;
    for (int i = 0; i < m->n_data; i++)
        if (m->data[i].sym == sym)
            return wf_arena_printf(m->a, m->data[i].val.depth == m->deepest + 100 ? "d%d[l]" : "d%d",
                                   m->data[i].id);
    for (int i = 0; i < m->n_symbols; i++)
        if (m->symbols[i] == id)
            return wf_arena_printf(m->a, "s[%d]", WF_S_SYMBOLS + i);
    wf_fail(m->g->ctx, WF_E_BUG, "a kernel depends on unknown symbol %s", wf_esym_name(m->e, id));
}

WfDim wf_em_merged(Em *m, WfDim d)
{
    return m->n_from ? wf_esubst_all(m->e, d, m->n_from, m->from, m->to) : d;
}

char *wf_em_text(Em *m, WfDim d)
{
    WfStr s = {.arena = m->a};
    wf_eprint_c(m->e, d, &s, symbol_name, m);
    return s.at;
}

char *wf_em_text_vv(Em *m, WfDim d)
{
    if (m->vec < 0)
        return wf_em_text(m, d);
    char saved[sizeof m->loop[0].name];
    memcpy(saved, m->loop[m->vec].name, sizeof saved);
    snprintf(m->loop[m->vec].name, sizeof saved, "vv");
    char *t = wf_em_text(m, d);
    memcpy(m->loop[m->vec].name, saved, sizeof saved);
    return t;
}

bool wf_em_lane_data(Em *m, WfDim d)
{
    for (int i = 0; i < m->n_data; i++)
        if (m->data[i].val.depth == m->deepest + 100 && wf_edepends(m->e, d, m->data[i].sym))
            return true;
    return false;
}

bool wf_em_on_vector(Em *m, WfDim d)
{
    return (m->vec >= 0 && wf_edepends(m->e, d, m->loop[m->vec].var)) || wf_em_lane_data(m, d);
}

int wf_em_depth_of(Em *m, WfDim d)
{
    int depth = 0;
    for (int i = 0; i < m->n_loops; i++)
        if (m->loop[i].depth > depth && wf_edepends(m->e, d, m->loop[i].var))
            depth = m->loop[i].depth;
    for (int i = 0; i < m->n_data; i++)
        if (wf_edepends(m->e, d, m->data[i].sym)) {
            int dd = m->data[i].val.depth >= m->deepest + 100 ? m->data[i].depth : m->data[i].val.depth;
            depth = dd > depth ? dd : depth;
        }
    return depth;
}

/* ---- bounds ---- */

int wf_em_guards_depth(Em *m, const Guards *gd)
{
    int depth = 0;
    for (int i = 0; i < gd->n; i++) {
        int d = wf_em_depth_of(m, gd->at[i].value), lo = wf_em_depth_of(m, gd->at[i].lo),
            hi = wf_em_depth_of(m, gd->at[i].hi);
        depth = d > depth ? d : depth;
        depth = lo > depth ? lo : depth;
        depth = hi > depth ? hi : depth;
    }
    return depth;
}

char *wf_em_condition(Em *m, const Guards *gd, int on, const char *where)
{
    WfStr s = {.arena = m->a};
    char saved[sizeof m->loop[0].name];
    if (where && m->vec >= 0) {
        memcpy(saved, m->loop[m->vec].name, sizeof saved);
        snprintf(m->loop[m->vec].name, sizeof saved, "%s", where);
    }
    for (int i = 0; i < gd->n; i++) {
        WfDim v = gd->at[i].value;
        if (on != 2 && wf_em_on_vector(m, v) != (on == 1))
            continue;
        wf_str_puts(&s, s.n ? " && " : "");
        int64_t lo, a, b;
        bool low = wf_elit(m->e, gd->at[i].lo, &lo) && wf_erange(m->e, v, &a, &b) && a >= lo;
        if (low) {
            wf_str_printf(&s, "%s < %s", wf_em_text(m, v), wf_em_text(m, gd->at[i].hi));
        } else {
            wf_str_printf(&s, "%s >= %s && ", wf_em_text(m, v), wf_em_text(m, gd->at[i].lo));
            wf_str_printf(&s, "%s < %s", wf_em_text(m, v), wf_em_text(m, gd->at[i].hi));
        }
    }
    if (where && m->vec >= 0)
        memcpy(m->loop[m->vec].name, saved, sizeof saved);
    if (!s.n)
        wf_str_putc(&s, '1');
    return s.at;
}

bool wf_em_monotonic(Em *m, const Guards *gd)
{
    for (int i = 0; i < gd->n; i++) {
        WfDim c, r;
        if (!wf_em_on_vector(m, gd->at[i].value))
            continue;
        if (wf_em_lane_data(m, gd->at[i].value) ||
            !wf_elinear(m->e, gd->at[i].value, m->loop[m->vec].var, &c, &r) ||
            wf_em_on_vector(m, gd->at[i].lo) || wf_em_on_vector(m, gd->at[i].hi))
            return false;
    }
    return true;
}

bool wf_em_provable(Em *m, const Guard *g)
{
    return wf_eprove_le(m->e, g->lo, g->value) && wf_eprove_lt(m->e, g->value, g->hi);
}

bool wf_em_on_vector_only(Em *m, const Guard *g, int64_t *first, int64_t *end)
{
    int64_t c, rest, lo, hi;
    WfDim coef, other;
    if (m->vec < 0 || !wf_elinear(m->e, g->value, m->loop[m->vec].var, &coef, &other) ||
        !wf_elit(m->e, coef, &c) || c != 1 || !wf_elit(m->e, other, &rest) || !wf_elit(m->e, g->lo, &lo) ||
        !wf_elit(m->e, g->hi, &hi))
        return false;
    *first = lo - rest, *end = hi - rest;
    return true;
}

int wf_em_in_piece(Em *m, const Guard *g)
{
    int64_t first, end;
    if (!m->hi || !wf_em_on_vector_only(m, g, &first, &end))
        return -1;
    return first <= m->lo && m->hi <= end ? 1 : m->hi <= first || end <= m->lo ? 0 : -1;
}

/* ---- statements and numbers ---- */

void wf_em_define(Em *m, Val v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    wf_str_printf(at(m, v.depth), "v%c v%d = %s;\n", suffix[v.cls], v.id, wf_arena_vprintf(m->a, fmt, ap));
    va_end(ap);
}

void wf_em_lane_loop(Em *m, WfStr *s, const char *cond, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    wf_str_printf(s, "for (int l = 0; l < %s; l++) { long vv = %s + l; (void)vv; if (%s) %s; }\n", lanes(m),
                  vname(m), cond ? cond : "1", wf_arena_vprintf(m->a, fmt, ap));
    va_end(ap);
}

char *wf_em_literal(Em *m, double v, Class c)
{
    if (c == C_L || c == C_I || c == C_B) {
        if (v >= 9.2e18)
            return "0x7fffffffffffffffL";
        if (v <= -9.2e18)
            return "(-0x7fffffffffffffffL - 1)";
        return wf_arena_printf(m->a, "%lldL", (long long)(c == C_B ? -(v != 0) : (int64_t)v));
    }
    if (isnan(v))
        return c == C_F ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
    if (isinf(v))
        return v > 0 ? (c == C_F ? "__builtin_inff()" : "__builtin_inf()")
                     : (c == C_F ? "-__builtin_inff()" : "-__builtin_inf()");
    WfStr s = {.arena = m->a};
    wf_str_float(&s, c == C_F ? (double)(float)v : v);
    if (!strpbrk(s.at, ".en"))
        wf_str_puts(&s, ".0");
    return wf_arena_printf(m->a, "%s%s", s.at, c == C_F ? "f" : "");
}
