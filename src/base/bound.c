/* Symbols, their ranges, and proofs of inequalities.
 *
 * Intervals come first: every node carries one, computed from its operands with saturating arithmetic. What
 * intervals cannot show is tried by elimination: to prove p >= 0, write p = C*v + R, find the sign of C,
 * replace v by the end of its range that makes p smallest, and go on with the smaller problem. The end may be
 * symbolic (a loop variable's bound minus one), which is how i*64 + j < s0*64 is found from i < s0 and j <
 * 64. Remainders, divisions, minima and maxima have ends of their own. Before any search p is evaluated at a
 * few assignments within the ranges: one negative value refutes it, which keeps hopeless searches cheap. The
 * search has a fixed amount of fuel. */
#include <string.h>

#include "base/expr.h"

/* ---- intervals ---- */

static int64_t sat_add(int64_t a, int64_t b)
{
    int64_t out;
    if (a == INT64_MIN || a == INT64_MAX)
        return a;
    if (b == INT64_MIN || b == INT64_MAX)
        return b;
    return __builtin_add_overflow(a, b, &out) ? (a < 0 ? INT64_MIN : INT64_MAX) : out;
}

static int64_t sat_mul(int64_t a, int64_t b)
{
    int64_t out;
    if (a == 0 || b == 0)
        return 0;
    bool infinite = a == INT64_MIN || a == INT64_MAX || b == INT64_MIN || b == INT64_MAX;
    if (infinite || __builtin_mul_overflow(a, b, &out))
        return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
    return out;
}

/* Floor of a/b for b >= 1, either possibly infinite. */
static int64_t sat_div(int64_t a, int64_t b)
{
    if (a == INT64_MIN || a == INT64_MAX)
        return a; /* too wide when b is infinite too, never too narrow */
    if (b == INT64_MAX)
        return a < 0 ? -1 : 0;
    return a / b - (a % b < 0);
}

static int64_t min2(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max2(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void wf_einterval(const WfExprs *e, WfDim d, int64_t *lo, int64_t *hi)
{
    *lo = *hi = d;
    if (d < 0) {
        const Node *n = wf_enode(e, d);
        *lo = n->lo;
        *hi = n->hi;
    }
}

static void poly_interval(const WfExprs *e, Poly p, int64_t *lo_out, int64_t *hi_out)
{
    int64_t lo = 0, hi = 0;
    for (int i = 0; i < p.n; i++) {
        int64_t a = p.at[i].coef, b = a;
        for (int j = 0; j < p.at[i].n; j++) {
            const Node *x = &e->nodes.at[p.at[i].atoms[j]];
            int64_t v[4] = { sat_mul(a, x->lo), sat_mul(a, x->hi), sat_mul(b, x->lo), sat_mul(b, x->hi) };
            a = min2(min2(v[0], v[1]), min2(v[2], v[3]));
            b = max2(max2(v[0], v[1]), max2(v[2], v[3]));
        }
        /* An infinity of the wrong sign would swallow the right one. */
        lo = lo == INT64_MIN || a == INT64_MIN ? INT64_MIN : sat_add(lo, a);
        hi = hi == INT64_MAX || b == INT64_MAX ? INT64_MAX : sat_add(hi, b);
    }
    *lo_out = lo;
    *hi_out = hi;
}

void wf_enode_range(const WfExprs *e, Node *n)
{
    int64_t al, ah, bl, bh;
    n->lo = INT64_MIN;
    n->hi = INT64_MAX;
    if (n->kind == E_CONST) {
        n->lo = n->hi = n->a;
        return;
    }
    if (n->kind == E_SYM) {
        n->lo = e->syms.at[n->sym].lo;
        n->hi = e->syms.at[n->sym].hi;
        return;
    }
    if (n->kind == E_POLY) {
        poly_interval(e, n->poly, &n->lo, &n->hi);
        return;
    }
    wf_einterval(e, n->a, &al, &ah);
    wf_einterval(e, n->b, &bl, &bh);
    if (n->kind == E_MIN) {
        n->lo = min2(al, bl);
        n->hi = min2(ah, bh);
    } else if (n->kind == E_MAX) {
        n->lo = max2(al, bl);
        n->hi = max2(ah, bh);
    } else if (bl < 0) {
        return;
    } else if (n->kind == E_MOD) { /* a divisor of 0 gives no value to bound */
        n->lo = 0;
        n->hi = bh == INT64_MAX ? bh : max2(bh, 1) - 1;
        if (al >= 0)
            n->hi = min2(n->hi, ah);
    } else {
        bl = max2(bl, 1);
        bh = max2(bh, 1);
        n->lo = min2(sat_div(al, bl), sat_div(al, bh));
        n->hi = max2(sat_div(ah, bl), sat_div(ah, bh));
    }
}

bool wf_erange(const WfExprs *e, WfDim d, int64_t *lo, int64_t *hi)
{
    int64_t a, b;
    wf_einterval(e, d, &a, &b);
    if (lo)
        *lo = a;
    if (hi)
        *hi = b;
    return a != INT64_MIN && b != INT64_MAX;
}

/* ---- symbols ---- */

static bool good_name(const char *name)
{
    if (!strcmp(name, "min") || !strcmp(name, "max"))
        return false;
    for (const char *p = name; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
        bool inner = (*p >= '0' && *p <= '9') || *p == '.';
        if (!letter && !(inner && p != name))
            return false;
    }
    return *name != 0;
}

/* A value of [lo, hi] for sample s: the low end, the high end, and odd ones between, all small where
 * possible. */
static int64_t sample_value(int s, const char *name, int64_t lo, int64_t hi)
{
    int64_t id = (int64_t)(wf_hash64(name, strlen(name), 0) % 997);
    static const int64_t step[SAMPLES] = { 0, 1, 7, 61, 1009, 30011 };
    if (lo == INT64_MIN)
        lo = hi == INT64_MAX ? (s % 2 ? -step[s] : 0) : sat_add(hi, -100000);
    int64_t v = sat_add(lo, s ? step[s] + (id * 37 + s * 11) % (step[s] + 1) : 0);
    if (v > hi)
        v = s == 1 || s == 5 || hi == lo ? hi
                                         : lo + (int64_t)((uint64_t)step[s] % ((uint64_t)hi - (uint64_t)lo));
    return v;
}

static WfDim new_symbol(WfExprs *e, const char *name, Symbol s)
{
    if (!good_name(name))
        wf_fail(e->ctx, WF_E_SIZE_NAME, "'%s' cannot be the name of a size: letters, digits and '_' are allowed",
                name);
    int id = e->syms.n;
    s.name = wf_arena_strdup(e->arena, name);
    WF_PUSH(e->arena, &e->syms, s);
    if (s.bounded && s.below < 0)
        for (int i = 0; i < id; i++)
            if (wf_edepends(e, s.below, e->syms.at[i].dim) && e->syms.at[i].level >= e->syms.at[id].level)
                e->syms.at[id].level = e->syms.at[i].level + 1;
    WfDim d = wf_eatom(e, E_SYM, id, 0);
    e->syms.at[id].dim = d;
    wf_map_put(e->names, name, id);
    for (int k = 0; k < SAMPLES; k++) {
        int64_t lo = s.lo, hi = s.hi, below;
        if (s.bounded && e->sample_ok[k]) {
            e->sample_ok[k] = wf_eeval(e, s.below, e->samples[k].at, &below) && below >= 1;
            hi = below - 1;
        }
        int64_t v = e->sample_ok[k] ? sample_value(k, name, lo, hi) : 0;
        WF_PUSH(e->arena, &e->samples[k], v);
    }
    return d;
}

WfDim wf_sym(WfExprs *e, const char *name, int64_t lo, int64_t hi)
{
    int64_t id;
    wf_e_begin(e);
    if (lo > hi)
        wf_fail(e->ctx, WF_E_SIZE_NAME, "the size '%s' has an empty range: %lld to %lld", name, (long long)lo,
                (long long)hi);
    if (!wf_map_get(e->names, name, &id))
        return new_symbol(e, name, (Symbol){ .lo = lo, .hi = hi });
    const Symbol *s = &e->syms.at[id];
    if (s->bounded || s->lo != lo || s->hi != hi)
        wf_fail(e->ctx, WF_E_SIZE_NAME, "the size '%s' is declared twice, with different ranges", name);
    return s->dim;
}

WfDim wf_sym_bounded(WfExprs *e, const char *name, WfDim below)
{
    int64_t id, lo, hi;
    wf_e_begin(e);
    if (wf_map_get(e->names, name, &id)) {
        const Symbol *s = &e->syms.at[id];
        if (!s->bounded || s->below != below)
            wf_fail(e->ctx, WF_E_SIZE_NAME, "the loop variable '%s' is declared twice, with different bounds", name);
        return s->dim;
    }
    wf_einterval(e, below, &lo, &hi);
    hi = hi == INT64_MAX ? hi : hi < 1 ? 0 : hi - 1;
    return new_symbol(e, name, (Symbol){ .hi = hi, .bounded = true, .below = below });
}

bool wf_sym_find(const WfExprs *e, const char *name, WfDim *out)
{
    int64_t id;
    if (!wf_map_get(e->names, name, &id))
        return false;
    *out = e->syms.at[id].dim;
    return true;
}

int wf_esym_count(const WfExprs *e)
{
    return e->syms.n;
}

WfDim wf_esym_at(const WfExprs *e, int id)
{
    return e->syms.at[id].dim;
}

int wf_esym_id(const WfExprs *e, WfDim d)
{
    if (d >= 0)
        return -1;
    const Node *n = wf_enode(e, d);
    return n->kind == E_SYM ? n->sym : -1;
}

const char *wf_esym_name(const WfExprs *e, int id)
{
    return e->syms.at[id].name;
}

void wf_esym_range(const WfExprs *e, int id, int64_t *lo, int64_t *hi)
{
    *lo = e->syms.at[id].lo;
    *hi = e->syms.at[id].hi;
}

void wf_esym_set_hint(WfExprs *e, int id, int64_t value) { e->syms.at[id].hint = value; }
int64_t wf_esym_hint(const WfExprs *e, int id) { return e->syms.at[id].hint; }

bool wf_esym_below(const WfExprs *e, int id, WfDim *below)
{
    if (e->syms.at[id].bounded)
        *below = e->syms.at[id].below;
    return e->syms.at[id].bounded;
}

/* ---- proofs ---- */

static bool prove(WfExprs *e, WfDim p);

static bool refuted(const WfExprs *e, WfDim p)
{
    int64_t v;
    for (int s = 0; s < SAMPLES; s++)
        if (e->sample_ok[s] && wf_eeval(e, p, e->samples[s].at, &v) && v < 0)
            return true;
    return false;
}

/* -1, 1, or 0 when the sign is not known (a zero coefficient counts as 1). */
static int sign(WfExprs *e, WfDim c)
{
    int64_t lo, hi;
    wf_einterval(e, c, &lo, &hi);
    if (lo >= 0)
        return 1;
    if (hi <= 0)
        return -1;
    if (prove(e, c))
        return 1;
    return prove(e, wf_e_sub(e, 0, c)) ? -1 : 0;
}

/* C*end + R >= 0? */
static bool with_end(WfExprs *e, WfDim c, WfDim end, WfDim r)
{
    return prove(e, wf_e_add(e, wf_e_mul(e, c, end), r));
}

/* x with every loop variable of its own terms at the value that makes x largest (up) or smallest; false if
 * there is none, or one of them has a coefficient of unknown sign. */
static bool symbolic_end(WfExprs *e, WfDim x, bool up, WfDim *out)
{
    bool changed = false;
    for (int id = e->syms.n - 1; id >= 0; id--) { /* bounds hold only earlier symbols */
        Symbol s = e->syms.at[id];
        if (!s.bounded || x >= 0 || !(wf_enode(e, x)->mask & 1ull << (id & 63)))
            continue;
        WfDim c, r;
        wf_e_split(e, x, ID(s.dim), &c, &r);
        int64_t lo, hi;
        wf_einterval(e, c, &lo, &hi);
        if (c == 0)
            continue;
        if (lo < 0 && hi > 0)
            return false;
        bool top = (lo >= 0) == up;
        x = top ? wf_e_add(e, wf_e_mul(e, c, wf_e_sub(e, s.below, 1)), r) : r;
        changed = true;
    }
    *out = x;
    return changed;
}

/* p = c*F + r with F = x//m, m >= 1. */
static bool eliminate_fdiv(WfExprs *e, const Node *n, int sg, WfDim c, WfDim r)
{
    WfDim end, x = n->a, m = n->b;
    if (symbolic_end(e, x, sg < 0, &end) && with_end(e, c, wf_e_fdiv(e, end, m), r))
        return true;
    /* (x-m+1)/m <= F <= x/m: multiply by m. */
    if (sg > 0)
        x = wf_e_add(e, wf_e_sub(e, x, m), 1);
    return prove(e, wf_e_add(e, wf_e_mul(e, c, x), wf_e_mul(e, m, r)));
}

/* Tries to prove p >= 0 by replacing one atom. */
static bool eliminate(WfExprs *e, WfDim p, int32_t atom)
{
    WfDim c, r;
    Node n = *wf_enode(e, DIM(atom));
    wf_e_split(e, p, atom, &c, &r);
    int sg = sign(e, c);
    if (!sg || e->overflow)
        return false;
    int64_t end = sg > 0 ? n.lo : n.hi, lo, hi;
    if (n.kind == E_SYM) {
        Symbol s = e->syms.at[n.sym];
        if (s.bounded && sg < 0)
            return with_end(e, c, wf_e_sub(e, s.below, 1), r);
    } else if (n.kind == E_MIN || n.kind == E_MAX) {
        bool one = with_end(e, c, n.a, r);
        bool either = (n.kind == E_MIN) == (sg < 0); /* the atom is on the good side of both operands */
        if (one == either)
            return one;
        return with_end(e, c, n.b, r);
    } else {
        wf_einterval(e, n.b, &lo, &hi);
        if (lo < 0) /* 0 gives no value, so this is m >= 1 */
            return false;
        if (n.kind == E_FDIV && eliminate_fdiv(e, &n, sg, c, r))
            return true;
        if (n.kind == E_MOD && sg < 0) {
            if (with_end(e, c, wf_e_sub(e, n.b, 1), r))
                return true;
            wf_einterval(e, n.a, &lo, &hi);
            if (lo >= 0 && with_end(e, c, n.a, r))
                return true;
        }
    }
    return end != INT64_MIN && end != INT64_MAX && with_end(e, c, wf_e_const(e, end), r);
}

/* The order of trials: loop variables with symbolic bounds, those first whose bounds rest on others; then
 * compound atoms; then the rest. Nothing in it depends on what was created when. */
static int rank_of(const WfExprs *e, int32_t atom)
{
    const Node *n = &e->nodes.at[atom];
    if (n->kind != E_SYM)
        return 1;
    const Symbol *s = &e->syms.at[n->sym];
    return s->bounded && s->below < 0 ? 1 + s->level : 0;
}

static bool prove(WfExprs *e, WfDim p)
{
    int64_t lo, hi;
    wf_einterval(e, p, &lo, &hi);
    if (e->overflow || lo >= 0)
        return !e->overflow;
    if (hi < 0 || refuted(e, p))
        return false;
    if (--e->fuel < 0 || e->depth >= MAX_DEPTH) {
        e->limited = true;
        return false;
    }
    Poly q = wf_epoly(e, p);
    WF_VEC(int32_t) atoms = { NULL, 0, 0 };
    for (int i = 0; i < q.n; i++) {
        for (int j = 0; j < q.at[i].n; j++) {
            int32_t a = q.at[i].atoms[j];
            bool seen = false;
            for (int k = 0; k < atoms.n; k++)
                seen |= atoms.at[k] == a;
            if (!seen)
                WF_PUSH(e->scratch, &atoms, a);
        }
    }
    for (int i = 1; i < atoms.n; i++) {
        int32_t a = atoms.at[i];
        int at = i;
        for (; at > 0 && rank_of(e, atoms.at[at - 1]) < rank_of(e, a); at--)
            atoms.at[at] = atoms.at[at - 1];
        atoms.at[at] = a;
    }
    bool done = false;
    e->depth++;
    for (int i = 0; i < atoms.n && !done && e->fuel > 0; i++) {
        done = eliminate(e, p, atoms.at[i]) && !e->overflow;
        e->overflow = false; /* only this way failed */
    }
    e->depth--;
    return done;
}

bool wf_e_ge0(WfExprs *e, WfDim p)
{
    WfDim known;
    int64_t lo, hi;
    wf_einterval(e, p, &lo, &hi);
    if (e->overflow)
        return false;
    if (lo >= 0 || hi < 0)
        return lo >= 0;
    if (wf_e_memo(e, '>', p, 0, &known))
        return known;
    if (e->proving) { /* part of another proof, out of its fuel */
        bool done = prove(e, p);
        e->overflow = false; /* a proof that overflows has failed, and that is all */
        wf_e_remember(e, '>', p, 0, done);
        return done;
    }
    /* Every proof of its own starts alike, so that its outcome does not depend on where it was asked for. */
    bool limited = e->limited;
    int depth = e->depth;
    e->fuel = FUEL;
    e->proving = true;
    e->depth = 0;
    bool done = prove(e, p);
    e->proving = e->overflow = e->limited = false;
    e->depth = depth;
    wf_e_remember(e, '>', p, 0, done);
    e->limited = limited;
    return done;
}

bool wf_eprove_ge0(WfExprs *e, WfDim d)
{
    wf_e_begin(e);
    return wf_e_ge0(e, d);
}

bool wf_eprove_le(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    WfDim d = wf_e_sub(e, b, a);
    return !e->overflow && wf_e_ge0(e, d);
}

bool wf_eprove_lt(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    WfDim d = wf_e_sub(e, wf_e_sub(e, b, a), 1);
    return !e->overflow && wf_e_ge0(e, d);
}
