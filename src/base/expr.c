/* The expression engine: simplification of sums, floor divisions, remainders, minima and maxima into
 * canonical form.
 *
 * Every rule is an identity of Python's integer arithmetic, some under a condition that is first proved from
 * the ranges. For a division by k the numerator is split three ways: multiples of k leave; then for each
 * common divisor g of k and a term, numerator = g*R + rest, and when 0 <= rest < g is proved, the division is
 * R // (k/g); what remains becomes an atom. Remainders go the same way. A rule that fires starts over, so a
 * finished form is a fixed point: building it again from its parts (as the parser does) changes nothing. Sums
 * put back together what reshapes take apart: k*(x//k) + x%k is x. Results are remembered by operation and
 * operands. */
#include <string.h>

#include "base/expr.h"

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t r = a % b;
    return r && (r < 0) != (b < 0) ? r + b : r;
}

bool wf_e_memo(WfExprs *e, int op, WfDim a, WfDim b, WfDim *out)
{
    int64_t key[3] = { op, a, b };
    return wf_map_get_bytes(e->memo, key, sizeof(key), out);
}

void wf_e_remember(WfExprs *e, int op, WfDim a, WfDim b, WfDim v)
{
    int64_t key[3] = { op, a, b };
    if (!e->overflow && !e->limited)
        wf_map_put_bytes(e->memo, key, sizeof(key), v);
}

/* ---- sums ---- */

/* Is q the cofactor of a pair (c*m*q-atom, c*mod(y, m)) that is one simpler thing? F = y // m. Then *out is
 * what c multiplies. */
static bool joins(WfExprs *e, int32_t q, WfDim y, WfDim m, WfDim f, WfDim *out)
{
    if (DIM(q) == f) {
        *out = y;
        return true;
    }
    const Node *n = wf_enode(e, DIM(q));
    int64_t lo_m, lo_n, hi;
    if (n->kind != E_MOD || n->a != f)
        return false;
    wf_einterval(e, m, &lo_m, &hi);
    wf_einterval(e, n->b, &lo_n, &hi);
    if (lo_m < 0 || lo_n < 0) /* positive, or without a value */
        return false;
    WfDim size = wf_e_mul(e, m, n->b);
    if (e->overflow)
        return false;
    *out = wf_e_mod(e, y, size); /* m*((y//m) % n) + y%m = y % (m*n) */
    return true;
}

/* One step of m*(y//m) + y%m = y, for any factor c of both; false when nothing joins. */
static bool join_step(WfExprs *e, Poly *p)
{
    for (int i = 0; i < p->n; i++) {
        for (int j = 0; j < p->at[i].n; j++) {
            const Node *mod = wf_enode(e, DIM(p->at[i].atoms[j]));
            if (mod->kind != E_MOD || wf_epoly(e, mod->b).n != 1)
                continue;
            WfDim y = mod->a, m = mod->b, whole;
            Term one = { 1, 1, &p->at[i].atoms[j] }, cof, m_term = wf_epoly(e, m).at[0];
            if (!wf_term_divide_atoms(e, &p->at[i], &one, &cof))
                continue;
            cof.coef = p->at[i].coef;
            Poly target = wf_poly_scale(e, (Poly){ &m_term, 1 }, &cof);
            if (e->overflow) {
                e->overflow = false;
                continue;
            }
            WfDim f = 1; /* computed only when a partner is there */
            for (int t = 0; t < p->n; t++) {
                Term q;
                if (t == i || p->at[t].coef != target.at[0].coef ||
                    !wf_term_divide_atoms(e, &p->at[t], &target.at[0], &q) || q.n != 1)
                    continue;
                if (f == 1)
                    f = wf_e_fdiv(e, y, m);
                bool joined = joins(e, q.atoms[0], y, m, f, &whole);
                if (e->overflow || !joined) {
                    e->overflow = false;
                    continue;
                }
                Poly rest = wf_poly_add(e, *p, (Poly){ &p->at[i], 1 }, -1);
                rest = wf_poly_add(e, rest, (Poly){ &p->at[t], 1 }, -1);
                *p = wf_poly_add(e, rest, wf_poly_scale(e, wf_epoly(e, whole), &cof), 1);
                return true;
            }
        }
    }
    return false;
}

/* Terms -> dim, with joined pairs. */
static WfDim finish(WfExprs *e, Poly p)
{
    if (e->overflow)
        return 0;
    bool has_mod = false;
    for (int i = 0; i < p.n && !has_mod; i++)
        for (int j = 0; j < p.at[i].n && !has_mod; j++)
            has_mod = wf_enode(e, DIM(p.at[i].atoms[j]))->kind == E_MOD;
    if (has_mod && p.n >= 2 && e->depth < MAX_DEPTH) {
        e->depth++;
        for (int steps = 0; steps < 64 && p.n >= 2 && join_step(e, &p);)
            steps++;
        e->depth--;
    }
    return wf_emake(e, p);
}

static WfDim add_scaled(WfExprs *e, WfDim a, WfDim b, int64_t factor)
{
    if (a >= 0 && b >= 0 && factor == 1 && a <= INT64_MAX - b)
        return a + b;
    if (b == 0)
        return a;
    return finish(e, wf_poly_add(e, wf_epoly(e, a), wf_epoly(e, b), factor));
}

WfDim wf_e_add(WfExprs *e, WfDim a, WfDim b)
{
    return add_scaled(e, a, b, 1);
}

WfDim wf_e_sub(WfExprs *e, WfDim a, WfDim b)
{
    return add_scaled(e, a, b, -1);
}

WfDim wf_e_mul(WfExprs *e, WfDim a, WfDim b)
{
    if (a == 1 || b == 0)
        return b;
    if (b == 1 || a == 0)
        return a;
    WfDim out;
    if (wf_e_memo(e, '*', a, b, &out))
        return out;
    out = finish(e, wf_poly_mul(e, wf_epoly(e, a), wf_epoly(e, b)));
    wf_e_remember(e, '*', a, b, out);
    return out;
}

static WfDim neg(WfExprs *e, WfDim a)
{
    return wf_e_sub(e, 0, a);
}

/* ---- splitting a numerator ---- */

/* a = q*k + r for a one-term k: every term that holds k's atoms gives its multiple; coefficients are cut
 * towards zero, so that no term grows, the constant towards minus infinity, so that it ends in [0, k). */
static bool take_multiples(WfExprs *e, Poly a, const Term *k, Poly *q, Poly *r)
{
    Term *qs = WF_NEWN(e->scratch, Term, (size_t)a.n), *rs = WF_NEWN(e->scratch, Term, (size_t)a.n);
    int nq = 0, nr = 0;
    for (int i = 0; i < a.n; i++) {
        Term t = a.at[i], quot;
        if (!wf_term_divide_atoms(e, &t, k, &quot)) {
            rs[nr++] = t;
            continue;
        }
        quot.coef = t.n ? t.coef / k->coef : floor_div(t.coef, k->coef);
        t.coef = t.n ? t.coef % k->coef : floor_mod(t.coef, k->coef);
        if (quot.coef)
            qs[nq++] = quot;
        if (t.coef)
            rs[nr++] = t;
    }
    *q = (Poly){ qs, nq };
    *r = (Poly){ rs, nr };
    return nq > 0;
}

/* a = g*R + rest with all that g divides in R. */
static void take_divisible(WfExprs *e, Poly a, const Term *g, Poly *big, Poly *rest)
{
    Term *bs = WF_NEWN(e->scratch, Term, (size_t)a.n), *rs = WF_NEWN(e->scratch, Term, (size_t)a.n);
    int nb = 0, nr = 0;
    for (int i = 0; i < a.n; i++) {
        Term t = a.at[i], quot;
        if (t.n == 0 && g->n == 0) { /* a constant may be cut */
            int64_t q = floor_div(t.coef, g->coef), left = floor_mod(t.coef, g->coef);
            if (q)
                bs[nb++] = (Term){ q, 0, NULL };
            if (left)
                rs[nr++] = (Term){ left, 0, NULL };
        } else if (t.coef % g->coef == 0 && wf_term_divide_atoms(e, &t, g, &quot)) {
            quot.coef = t.coef / g->coef;
            bs[nb++] = quot;
        } else {
            rs[nr++] = t;
        }
    }
    *big = (Poly){ bs, nb };
    *rest = (Poly){ rs, nr };
}

/* 0 <= d < k? */
static bool in_range(WfExprs *e, WfDim d, WfDim k)
{
    int64_t lo, hi, klo, khi;
    wf_einterval(e, d, &lo, &hi);
    wf_einterval(e, k, &klo, &khi);
    if (lo >= 0 && hi < klo)
        return true;
    if (hi < 0 || (lo >= khi && khi != INT64_MAX) || !wf_e_ge0(e, d))
        return false;
    bool saved = e->overflow;
    bool yes = wf_e_ge0(e, wf_e_sub(e, wf_e_sub(e, k, d), 1));
    e->overflow = saved;
    return yes;
}

/* -k <= d < 0? */
static bool one_below(WfExprs *e, WfDim d, WfDim k)
{
    int64_t lo, hi;
    wf_einterval(e, d, &lo, &hi);
    if (lo >= 0)
        return false;
    bool saved = e->overflow;
    bool yes = wf_e_ge0(e, wf_e_sub(e, 0, wf_e_add(e, d, 1))) && wf_e_ge0(e, wf_e_add(e, d, k));
    e->overflow = saved; /* a bound that overflows is only not proved */
    return yes;
}

/* For divisors this means positive: where they are 0 the whole has no value, and rules may assume that it
 * has. */
static bool not_negative(const WfExprs *e, WfDim d)
{
    int64_t lo, hi;
    wf_einterval(e, d, &lo, &hi);
    return lo >= 0;
}

/* k / g for one-term k and a g that divides it. */
static WfDim over(WfExprs *e, const Term *k, const Term *g)
{
    Term q;
    bool fits = wf_term_divide_atoms(e, k, g, &q);
    WF_ASSERT(e->ctx, fits && k->coef % g->coef == 0);
    q.coef = k->coef / g->coef;
    return wf_emake(e, (Poly){ &q, 1 });
}

/* Finds a divisor g of k with a = g*R + rest, and rest = 0, or 0 <= rest < g and k/g > 0 proved. Larger
 * first. */
static bool find_divisor(WfExprs *e, Poly a, const Term *k, Term *g_out, Poly *big, WfDim *rest_out)
{
    Term *gs = WF_NEWN(e->scratch, Term, (size_t)a.n);
    int n = 0;
    for (int i = 0; i < a.n; i++) {
        Term g = a.at[i].n == 0 ? (Term){ 1, 0, NULL } : wf_term_gcd(e, &a.at[i], k);
        if (a.at[i].n == 0 && a.n == 1)
            g = wf_term_gcd(e, &a.at[i], k);
        if (g.n == 0 && g.coef == 1)
            continue;
        int at = n++; /* insertion sort: degree, then coefficient, falling */
        for (; at > 0 && (gs[at - 1].n < g.n || (gs[at - 1].n == g.n && gs[at - 1].coef < g.coef)); at--)
            gs[at] = gs[at - 1];
        gs[at] = g;
    }
    for (int i = 0; i < n; i++) {
        Poly rest;
        if (i && gs[i].n == gs[i - 1].n && gs[i].coef == gs[i - 1].coef &&
            (gs[i].n == 0 || !memcmp(gs[i].atoms, gs[i - 1].atoms, (size_t)gs[i].n * sizeof(int32_t))))
            continue;
        take_divisible(e, a, &gs[i], big, &rest);
        WfDim r = wf_emake(e, rest);
        bool splits = r == 0 || (not_negative(e, over(e, k, &gs[i])) &&
                                 in_range(e, r, wf_emake(e, (Poly){ &gs[i], 1 })));
        if (splits) {
            *g_out = gs[i];
            *rest_out = r;
            return true;
        }
    }
    return false;
}

/* The greatest term that divides all terms of both. */
static Term common(WfExprs *e, Poly a, Poly b)
{
    Term g = b.at[0];
    g.coef = g.coef < 0 ? (g.coef == INT64_MIN ? 1 : -g.coef) : g.coef;
    for (int i = 1; i < b.n; i++)
        g = wf_term_gcd(e, &g, &b.at[i]);
    for (int i = 0; i < a.n; i++)
        g = wf_term_gcd(e, &g, &a.at[i]);
    return g;
}

static WfDim divide_all(WfExprs *e, Poly a, const Term *g)
{
    Poly big, rest;
    take_divisible(e, a, g, &big, &rest);
    return wf_emake(e, big);
}

/* Long division by leading terms for a k of several terms: a = q*k + r. */
static void long_division(WfExprs *e, Poly a, Poly k, WfDim *q, WfDim *r)
{
    Poly quot = { NULL, 0 }, left = { NULL, 0 };
    for (int steps = 0; a.n && steps < 64 && !e->overflow; steps++) {
        Term t;
        Poly lead = { &a.at[0], 1 };
        if (a.at[0].coef % k.at[0].coef == 0 && wf_term_divide_atoms(e, &a.at[0], &k.at[0], &t)) {
            t.coef = a.at[0].coef / k.at[0].coef;
            quot = wf_poly_add(e, quot, (Poly){ &t, 1 }, 1);
            a = wf_poly_add(e, a, wf_poly_scale(e, k, &t), -1);
        } else {
            left = wf_poly_add(e, left, lead, 1);
            a = (Poly){ a.at + 1, a.n - 1 };
        }
    }
    *q = finish(e, quot);
    *r = finish(e, wf_poly_add(e, left, a, 1));
}

/* n / k exactly for one-term n and k, quotient positive. */
static bool divides(WfExprs *e, WfDim n, WfDim k, WfDim *q)
{
    Poly pn = wf_epoly(e, n), pk = wf_epoly(e, k);
    Term t;
    if (pn.n != 1 || pk.n != 1 || pn.at[0].coef % pk.at[0].coef ||
        !wf_term_divide_atoms(e, &pn.at[0], &pk.at[0], &t))
        return false;
    t.coef = pn.at[0].coef / pk.at[0].coef;
    *q = wf_emake(e, (Poly){ &t, 1 });
    return not_negative(e, *q);
}

/* ---- floor division ---- */

/* x//m under another division, and (x % (k*b)) // k = (x//k) % b. */
static bool fdiv_of_atom(WfExprs *e, WfDim a, WfDim k, WfDim *out)
{
    Poly p = wf_epoly(e, a);
    int64_t c = 0, m;
    if (!not_negative(e, k) || p.n == 0 || p.n > 2 || p.at[0].n != 1 || p.at[0].coef != 1)
        return false;
    if (p.n == 2) {
        if (p.at[1].n)
            return false;
        c = p.at[1].coef;
    }
    const Node *n = wf_enode(e, DIM(p.at[0].atoms[0]));
    WfDim x = n->a, by = n->b, b;
    if (n->kind == E_MOD && c == 0 && divides(e, by, k, &b)) {
        *out = wf_e_mod(e, wf_e_fdiv(e, x, k), b);
        return true;
    }
    if (n->kind != E_FDIV || (c && !wf_elit(e, by, &m)))
        return false;
    bool saved = e->overflow;
    e->overflow = false;
    WfDim num = c ? wf_e_add(e, x, wf_e_mul(e, wf_e_const(e, c), by)) : x;
    WfDim den = wf_e_mul(e, by, k);
    bool fits = !e->overflow;
    e->overflow = saved;
    if (fits)
        *out = wf_e_fdiv(e, num, den); /* floor(floor(x/m)/k) = floor(x/(m*k)) for k > 0 */
    return fits;
}

static WfDim fdiv_by_term(WfExprs *e, WfDim a, WfDim k)
{
    Poly p = wf_epoly(e, a), q, r, big;
    Term kt = wf_epoly(e, k).at[0], g;
    if (take_multiples(e, p, &kt, &q, &r))
        return wf_e_add(e, finish(e, q), wf_e_fdiv(e, finish(e, r), k));
    if (in_range(e, a, k))
        return 0;
    if (one_below(e, a, k))
        return wf_e_const(e, -1);
    WfDim rest, out;
    if (find_divisor(e, p, &kt, &g, &big, &rest))
        return wf_e_fdiv(e, finish(e, big), over(e, &kt, &g));
    return fdiv_of_atom(e, a, k, &out) ? out : wf_eatom(e, E_FDIV, a, k);
}

static WfDim fdiv_by_sum(WfExprs *e, WfDim a, WfDim k)
{
    Poly p = wf_epoly(e, a), pk = wf_epoly(e, k);
    if (a == k)
        return 1;
    if (in_range(e, a, k))
        return 0;
    if (one_below(e, a, k))
        return wf_e_const(e, -1);
    Term g = common(e, p, pk);
    if (g.n || g.coef != 1)
        return wf_e_fdiv(e, divide_all(e, p, &g), divide_all(e, pk, &g));
    bool saved = e->overflow;
    e->overflow = false;
    WfDim q, r, out = 0;
    long_division(e, p, pk, &q, &r);
    bool done = !e->overflow && q != 0;
    if (done && (r == 0 || in_range(e, r, k)))
        out = q;
    else if (done && one_below(e, r, k))
        out = wf_e_sub(e, q, 1);
    else
        done = false;
    done = done && !e->overflow;
    e->overflow = saved;
    if (done)
        return out;
    return fdiv_of_atom(e, a, k, &out) ? out : wf_eatom(e, E_FDIV, a, k);
}

/* Is the divisor to be turned positive? Its leading coefficient decides, which is a convention for symbolic
 * ones. */
static bool negative(WfExprs *e, WfDim k)
{
    Poly p = wf_epoly(e, k);
    return p.n && p.at[0].coef < 0;
}

/* The part of both divisions that needs no rule. */
static bool divide_constants(WfExprs *e, WfDim a, WfDim k, bool mod, WfDim *out)
{
    int64_t x, y;
    if (k == 0)
        wf_fail(e->ctx, WEFT_ERR_UNSUPPORTED, "a size expression divides by zero");
    if (k == 1 || a == 0) {
        *out = mod ? 0 : a;
        return true;
    }
    if (!wf_elit(e, k, &y) || !wf_elit(e, a, &x))
        return false;
    if (y == -1) { /* the one case that can overflow */
        *out = mod ? 0 : neg(e, a);
        return true;
    }
    *out = wf_e_const(e, mod ? floor_mod(x, y) : floor_div(x, y));
    return true;
}

WfDim wf_e_fdiv(WfExprs *e, WfDim a, WfDim k)
{
    WfDim out;
    if (divide_constants(e, a, k, false, &out) || wf_e_memo(e, '/', a, k, &out))
        return out;
    if (e->depth >= MAX_DEPTH || e->overflow) {
        e->limited = true;
        return wf_eatom(e, E_FDIV, a, k);
    }
    e->depth++;
    if (negative(e, k))
        out = wf_e_fdiv(e, neg(e, a), neg(e, k));
    else
        out = wf_epoly(e, k).n == 1 ? fdiv_by_term(e, a, k) : fdiv_by_sum(e, a, k);
    e->depth--;
    wf_e_remember(e, '/', a, k, out);
    return out;
}

/* ---- remainder ---- */

/* c*(x % n) modulo k is c*x modulo k when k divides c*n: such remainders go. */
static bool strip_mods(WfExprs *e, Poly p, const Term *k, Poly *out)
{
    for (int i = 0; i < p.n; i++) {
        for (int j = 0; j < p.at[i].n; j++) {
            const Node *m = wf_enode(e, DIM(p.at[i].atoms[j]));
            if (m->kind != E_MOD)
                continue;
            Poly pn = wf_epoly(e, m->b);
            Term one = { 1, 1, &p.at[i].atoms[j] }, cof, unused;
            WfDim x = m->a;
            if (pn.n != 1 || !wf_term_divide_atoms(e, &p.at[i], &one, &cof))
                continue;
            cof.coef = p.at[i].coef;
            bool saved = e->overflow;
            e->overflow = false;
            Poly whole = wf_poly_scale(e, pn, &cof);
            Poly rest = wf_poly_add(e, p, (Poly){ &p.at[i], 1 }, -1);
            bool fits = !e->overflow && whole.at[0].coef % k->coef == 0 &&
                        wf_term_divide_atoms(e, &whole.at[0], k, &unused);
            *out = wf_poly_add(e, rest, wf_poly_scale(e, wf_epoly(e, x), &cof), 1);
            fits = fits && !e->overflow;
            e->overflow = saved;
            if (fits)
                return true;
        }
    }
    return false;
}

static WfDim mod_by_term(WfExprs *e, WfDim a, WfDim k)
{
    Poly p = wf_epoly(e, a), q, r, big;
    Term kt = wf_epoly(e, k).at[0], g;
    WfDim rest;
    if (take_multiples(e, p, &kt, &q, &r))
        return wf_e_mod(e, finish(e, r), k);
    if (in_range(e, a, k))
        return a;
    if (one_below(e, a, k))
        return wf_e_add(e, a, k);
    if (strip_mods(e, p, &kt, &r))
        return wf_e_mod(e, finish(e, r), k);
    if (find_divisor(e, p, &kt, &g, &big, &rest)) {
        WfDim m = wf_e_mod(e, finish(e, big), over(e, &kt, &g));
        return wf_e_add(e, wf_e_mul(e, wf_emake(e, (Poly){ &g, 1 }), m), rest);
    }
    return wf_eatom(e, E_MOD, a, k);
}

static WfDim mod_by_sum(WfExprs *e, WfDim a, WfDim k)
{
    Poly p = wf_epoly(e, a), pk = wf_epoly(e, k);
    if (a == k)
        return 0;
    if (in_range(e, a, k))
        return a;
    if (one_below(e, a, k))
        return wf_e_add(e, a, k);
    Term g = common(e, p, pk);
    if (g.n || g.coef != 1)
        return wf_e_mul(e, wf_emake(e, (Poly){ &g, 1 }),
                        wf_e_mod(e, divide_all(e, p, &g), divide_all(e, pk, &g)));
    bool saved = e->overflow;
    e->overflow = false;
    WfDim q, r, out = 0;
    long_division(e, p, pk, &q, &r);
    bool done = !e->overflow && q != 0;
    if (done && (r == 0 || in_range(e, r, k)))
        out = r;
    else if (done && one_below(e, r, k))
        out = wf_e_add(e, r, k);
    else
        done = false;
    done = done && !e->overflow;
    e->overflow = saved;
    return done ? out : wf_eatom(e, E_MOD, a, k);
}

WfDim wf_e_mod(WfExprs *e, WfDim a, WfDim k)
{
    WfDim out;
    if (divide_constants(e, a, k, true, &out) || wf_e_memo(e, '%', a, k, &out))
        return out;
    if (e->depth >= MAX_DEPTH || e->overflow) {
        e->limited = true;
        return wf_eatom(e, E_MOD, a, k);
    }
    e->depth++;
    if (negative(e, k))
        out = neg(e, wf_e_mod(e, neg(e, a), neg(e, k)));
    else
        out = wf_epoly(e, k).n == 1 ? mod_by_term(e, a, k) : mod_by_sum(e, a, k);
    e->depth--;
    wf_e_remember(e, '%', a, k, out);
    return out;
}

/* ---- minimum, maximum ---- */

typedef WF_VEC(WfDim) DimVec;

/* Adds d to the operands unless another one makes it redundant; drops those that d makes redundant. */
static void add_operand(WfExprs *e, ExprKind kind, DimVec *v, WfDim d)
{
    int kept = 0;
    for (int i = 0; i < v->n; i++) {
        WfDim less = kind == E_MIN ? v->at[i] : d, more = kind == E_MIN ? d : v->at[i];
        if (v->at[i] == d || wf_e_ge0(e, wf_e_sub(e, more, less))) /* v[i] wins everywhere */
            return;
    }
    for (int i = 0; i < v->n; i++) {
        WfDim less = kind == E_MIN ? d : v->at[i], more = kind == E_MIN ? v->at[i] : d;
        if (!wf_e_ge0(e, wf_e_sub(e, more, less)))
            v->at[kept++] = v->at[i];
    }
    v->n = kept;
    WF_PUSH(e->scratch, v, d);
}

static void add_operands(WfExprs *e, ExprKind kind, DimVec *v, WfDim d)
{
    while (d < 0 && wf_enode(e, d)->kind == kind) {
        add_operands(e, kind, v, wf_enode(e, d)->a);
        d = wf_enode(e, d)->b;
    }
    add_operand(e, kind, v, d);
}

/* Chains are flattened, cleaned, sorted and rebuilt to the right: min(a, min(b, c)). */
WfDim wf_e_minmax(WfExprs *e, ExprKind kind, WfDim a, WfDim b)
{
    DimVec v = { NULL, 0, 0 };
    bool saved = e->overflow;
    add_operands(e, kind, &v, a);
    add_operands(e, kind, &v, b);
    e->overflow = saved; /* a difference that overflows is only not provable */
    for (int i = 1; i < v.n; i++) {
        WfDim d = v.at[i];
        int at = i;
        for (; at > 0 && wf_e_compare(e, v.at[at - 1], d) > 0; at--)
            v.at[at] = v.at[at - 1];
        v.at[at] = d;
    }
    WfDim out = v.at[v.n - 1];
    for (int i = v.n - 2; i >= 0; i--)
        out = wf_eatom(e, kind, v.at[i], out);
    return out;
}

/* ---- the table and its public face ---- */

const Node *wf_enode(const WfExprs *e, WfDim d)
{
    WF_ASSERT(e->ctx, d < 0 && d >= -1 - (WfDim)INT32_MAX && ID(d) < e->nodes.n);
    return &e->nodes.at[ID(d)];
}

static void free_scratch(void *p)
{
    WfExprs *e = p;
    wf_arena_free(e->scratch);
}

WfExprs *wf_exprs_new(WfCtx *ctx, WfArena *arena)
{
    WfExprs *e = WF_NEW(arena, WfExprs);
    e->ctx = ctx;
    e->arena = arena;
    e->names = wf_map_new(arena);
    e->interned = wf_map_new(arena);
    e->memo = wf_map_new(arena);
    for (int s = 0; s < SAMPLES; s++)
        e->sample_ok[s] = true;
    wf_arena_at_free(arena, free_scratch, e);
    e->scratch = wf_arena_new(ctx);
    /* Small negative constants are made first, so that their handles equal their values: C code may write -1.
     * */
    for (int64_t v = -1; v >= -64; v--) {
        WfDim d = wf_e_const(e, v);
        WF_ASSERT(ctx, d == v);
    }
    return e;
}

void wf_e_begin(WfExprs *e)
{
    e->overflow = e->limited = e->proving = false; /* also after a failure that left in the middle */
    e->depth = 0;
    if (wf_arena_bytes(e->scratch) > (4 << 20)) {
        wf_arena_free(e->scratch);
        e->scratch = NULL;
        e->scratch = wf_arena_new(e->ctx);
    }
}

WfDim wf_e_end(WfExprs *e, WfDim d)
{
    if (e->overflow)
        wf_fail(e->ctx, WEFT_ERR_UNSUPPORTED, "a size expression is too large: a coefficient leaves 64 bits or it has "
                "more than %d terms", MAX_TERMS);
    return d;
}

WfDim wf_econst(WfExprs *e, int64_t v)
{
    wf_e_begin(e);
    return wf_e_const(e, v);
}

WfDim wf_eadd(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    return wf_e_end(e, wf_e_add(e, a, b));
}

WfDim wf_esub(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    return wf_e_end(e, wf_e_sub(e, a, b));
}

WfDim wf_emul(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    return wf_e_end(e, wf_e_mul(e, a, b));
}

WfDim wf_efloordiv(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    return wf_e_end(e, wf_e_fdiv(e, a, b));
}

WfDim wf_emod(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    return wf_e_end(e, wf_e_mod(e, a, b));
}

WfDim wf_emin(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    return wf_e_end(e, wf_e_minmax(e, E_MIN, a, b));
}

WfDim wf_emax(WfExprs *e, WfDim a, WfDim b)
{
    wf_e_begin(e);
    return wf_e_end(e, wf_e_minmax(e, E_MAX, a, b));
}

bool wf_elit(const WfExprs *e, WfDim d, int64_t *v)
{
    if (d < 0) {
        const Node *n = wf_enode(e, d);
        if (n->kind != E_CONST)
            return false;
        d = n->a;
    }
    if (v)
        *v = d;
    return true;
}

/* ---- replacing, taking apart, evaluating ---- */

static bool holds(const WfExprs *e, WfDim d, WfDim sym, uint64_t mask)
{
    if (d >= 0)
        return false;
    const Node *n = wf_enode(e, d);
    if (d == sym)
        return true;
    if (!(n->mask & mask) || n->kind == E_CONST || n->kind == E_SYM)
        return false;
    if (n->kind != E_POLY)
        return holds(e, n->a, sym, mask) || holds(e, n->b, sym, mask);
    for (int i = 0; i < n->poly.n; i++)
        for (int j = 0; j < n->poly.at[i].n; j++)
            if (holds(e, DIM(n->poly.at[i].atoms[j]), sym, mask))
                return true;
    return false;
}

static const Node *check_symbol(const WfExprs *e, WfDim sym)
{
    const Node *n = wf_enode(e, sym);
    WF_ASSERT(e->ctx, n->kind == E_SYM);
    return n;
}

bool wf_edepends(const WfExprs *e, WfDim d, WfDim sym)
{
    return holds(e, d, sym, check_symbol(e, sym)->mask);
}

typedef struct { int n; const WfDim *syms, *withs; uint64_t mask; WfMap *seen; } Subst;

static WfDim subst(WfExprs *e, WfDim d, const Subst *s)
{
    if (d >= 0 || !(wf_enode(e, d)->mask & s->mask))
        return d;
    Node n = *wf_enode(e, d);
    WfDim out = 0;
    if (n.kind == E_SYM) {
        for (int i = 0; i < s->n; i++)
            if (s->syms[i] == d)
                return s->withs[i];
        return d;
    }
    if (wf_map_get_bytes(s->seen, &d, sizeof(d), &out))
        return out;
    if (n.kind == E_POLY) {
        for (int i = 0; i < n.poly.n; i++) {
            WfDim t = wf_e_const(e, n.poly.at[i].coef);
            for (int j = 0; j < n.poly.at[i].n; j++)
                t = wf_e_mul(e, t, subst(e, DIM(n.poly.at[i].atoms[j]), s));
            out = wf_e_add(e, out, t);
        }
    } else {
        WfDim a = subst(e, n.a, s), b = subst(e, n.b, s);
        out = n.kind == E_FDIV ? wf_e_fdiv(e, a, b) : n.kind == E_MOD ? wf_e_mod(e, a, b)
                                                                      : wf_e_minmax(e, n.kind, a, b);
    }
    wf_map_put_bytes(s->seen, &d, sizeof(d), out);
    return out;
}

WfDim wf_esubst_all(WfExprs *e, WfDim d, int n, const WfDim *syms, const WfDim *withs)
{
    wf_e_begin(e);
    Subst s = { n, syms, withs, 0, NULL };
    for (int i = 0; i < n; i++)
        s.mask |= check_symbol(e, syms[i])->mask;
    if (d >= 0 || !(wf_enode(e, d)->mask & s.mask))
        return d;
    s.seen = wf_map_new(e->scratch);
    return wf_e_end(e, subst(e, d, &s));
}

WfDim wf_esubst(WfExprs *e, WfDim d, WfDim sym, WfDim with)
{
    return wf_esubst_all(e, d, 1, &sym, &with);
}

void wf_e_split(WfExprs *e, WfDim d, int32_t atom, WfDim *coef, WfDim *rest)
{
    Poly p = wf_epoly(e, d), c = { NULL, 0 }, r = { NULL, 0 };
    Term one = { 1, 1, &atom }, q;
    for (int i = 0; i < p.n; i++) {
        if (wf_term_divide_atoms(e, &p.at[i], &one, &q)) {
            q.coef = p.at[i].coef;
            c = wf_poly_add(e, c, (Poly){ &q, 1 }, 1);
        } else {
            r = wf_poly_add(e, r, (Poly){ &p.at[i], 1 }, 1);
        }
    }
    *coef = finish(e, c);
    *rest = finish(e, r);
}

bool wf_elinear(WfExprs *e, WfDim d, WfDim sym, WfDim *coef, WfDim *rest)
{
    wf_e_begin(e);
    uint64_t mask = check_symbol(e, sym)->mask;
    WfDim c, r;
    wf_e_split(e, d, ID(sym), &c, &r);
    if (e->overflow || holds(e, c, sym, mask) || holds(e, r, sym, mask))
        return false;
    *coef = c;
    *rest = r;
    return true;
}

bool wf_eeval(const WfExprs *e, WfDim d, const int64_t *values, int64_t *out)
{
    int64_t x, y, sum = 0;
    if (d >= 0) {
        *out = d;
        return true;
    }
    const Node *n = wf_enode(e, d);
    if (n->kind == E_CONST || n->kind == E_SYM) {
        *out = n->kind == E_CONST ? n->a : values[n->sym];
        return true;
    }
    if (n->kind == E_POLY) {
        for (int i = 0; i < n->poly.n; i++) {
            int64_t t = n->poly.at[i].coef;
            for (int j = 0; j < n->poly.at[i].n; j++)
                if (!wf_eeval(e, DIM(n->poly.at[i].atoms[j]), values, &x) || !wf_mul_ok(t, x, &t))
                    return false;
            if (!wf_add_ok(sum, t, &sum))
                return false;
        }
        *out = sum;
        return true;
    }
    if (!wf_eeval(e, n->a, values, &x) || !wf_eeval(e, n->b, values, &y))
        return false;
    if (n->kind == E_MIN || n->kind == E_MAX) {
        *out = (n->kind == E_MIN) == (x < y) ? x : y;
        return true;
    }
    if (y == 0 || (y == -1 && x == INT64_MIN))
        return false;
    *out = n->kind == E_FDIV ? floor_div(x, y) : floor_mod(x, y);
    return true;
}
