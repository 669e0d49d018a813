/* Simplification of floor divisions and remainders. Every rule is an identity of Python's integer arithmetic,
 * some under a condition that is first proved from the ranges. For a division by k the numerator is split:
 * multiples of k leave; then for each common divisor g of k and a term, numerator = g*R + rest, and when 0 <=
 * rest < g is proved, the division is R // (k/g); what remains becomes an atom. Remainders go the same way. A
 * rule that fires starts over, so a finished form is a fixed point: building it again from its parts (as the
 * parser does) changes nothing. */
#include <string.h>

#include "base/expr.h"

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
        quot.coef = t.n ? t.coef / k->coef : wf_floor_div(t.coef, k->coef);
        t.coef = t.n ? t.coef % k->coef : wf_floor_mod(t.coef, k->coef);
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
            int64_t q = wf_floor_div(t.coef, g->coef), left = wf_floor_mod(t.coef, g->coef);
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
    *q = wf_e_finish(e, quot);
    *r = wf_e_finish(e, wf_poly_add(e, left, a, 1));
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
        return wf_e_add(e, wf_e_finish(e, q), wf_e_fdiv(e, wf_e_finish(e, r), k));
    if (in_range(e, a, k))
        return 0;
    if (one_below(e, a, k))
        return wf_e_const(e, -1);
    WfDim rest, out;
    if (find_divisor(e, p, &kt, &g, &big, &rest))
        return wf_e_fdiv(e, wf_e_finish(e, big), over(e, &kt, &g));
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
        wf_fail(e->ctx, WF_E_SIZE_EXPRESSION, "a size expression divides by zero");
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
    *out = wf_e_const(e, mod ? wf_floor_mod(x, y) : wf_floor_div(x, y));
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
        return wf_e_mod(e, wf_e_finish(e, r), k);
    if (in_range(e, a, k))
        return a;
    if (one_below(e, a, k))
        return wf_e_add(e, a, k);
    if (strip_mods(e, p, &kt, &r))
        return wf_e_mod(e, wf_e_finish(e, r), k);
    if (find_divisor(e, p, &kt, &g, &big, &rest)) {
        WfDim m = wf_e_mod(e, wf_e_finish(e, big), over(e, &kt, &g));
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
