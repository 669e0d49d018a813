/* Integer polynomials over atoms: the canonical form of the expression engine. Terms are kept in graded
 * lexicographic order, which multiplication by a monomial preserves, so sums are merges and products are sums
 * of shifted copies. Atoms are compared by structure and name, never by id: the form, and its text, do not
 * depend on what was built before. Interning a form by its bytes makes equal polynomials the same number. */
#include <string.h>

#include "base/expr.h"

static int cmp_dim(const WfExprs *e, WfDim a, WfDim b);

static int cmp_int(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int cmp_atoms(const WfExprs *e, const Term *s, const Term *t)
{
    for (int i = 0; i < s->n && i < t->n; i++) {
        int c = cmp_dim(e, DIM(s->atoms[i]), DIM(t->atoms[i]));
        if (c)
            return c;
    }
    return 0;
}

/* Order of the terms in a form: higher degree first. */
static int cmp_term(const WfExprs *e, const Term *s, const Term *t)
{
    return s->n != t->n ? (s->n > t->n ? -1 : 1) : cmp_atoms(e, s, t);
}

static int cmp_dim(const WfExprs *e, WfDim a, WfDim b)
{
    if (a == b)
        return 0;
    if (a >= 0 || b >= 0)
        return a >= 0 && b >= 0 ? cmp_int(a, b) : a >= 0 ? -1 : 1;
    const Node *x = wf_enode(e, a), *y = wf_enode(e, b);
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->kind == E_CONST)
        return cmp_int(x->a, y->a);
    if (x->kind == E_SYM)
        return strcmp(e->syms.at[x->sym].name, e->syms.at[y->sym].name);
    if (x->kind != E_POLY) {
        int c = cmp_dim(e, x->a, y->a);
        return c ? c : cmp_dim(e, x->b, y->b);
    }
    for (int i = 0; i < x->poly.n && i < y->poly.n; i++) {
        int c = cmp_term(e, &x->poly.at[i], &y->poly.at[i]);
        if (!c)
            c = cmp_int(x->poly.at[i].coef, y->poly.at[i].coef);
        if (c)
            return c;
    }
    return cmp_int(x->poly.n, y->poly.n);
}

/* ---- terms ---- */

static const int32_t *merge_atoms(WfExprs *e, const Term *s, const Term *t)
{
    int32_t *out = WF_NEWN(e->scratch, int32_t, (size_t)(s->n + t->n));
    int i = 0, j = 0, n = 0;
    while (i < s->n || j < t->n) {
        bool first = j == t->n || (i < s->n && cmp_dim(e, DIM(s->atoms[i]), DIM(t->atoms[j])) <= 0);
        out[n++] = first ? s->atoms[i++] : t->atoms[j++];
    }
    return out;
}

static Term mul_term(WfExprs *e, const Term *s, const Term *t)
{
    Term out = { 0, s->n + t->n, NULL };
    if (!wf_mul_ok(s->coef, t->coef, &out.coef))
        e->overflow = true, out.coef = 1;
    out.atoms = !s->n ? t->atoms : !t->n ? s->atoms : merge_atoms(e, s, t);
    return out;
}

Term wf_term_gcd(WfExprs *e, const Term *s, const Term *t)
{
    uint64_t a = s->coef < 0 ? 0 - (uint64_t)s->coef : (uint64_t)s->coef;
    uint64_t b = t->coef < 0 ? 0 - (uint64_t)t->coef : (uint64_t)t->coef;
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    int32_t *atoms = WF_NEWN(e->scratch, int32_t, (size_t)s->n);
    Term out = { a > INT64_MAX ? 1 : (int64_t)a, 0, atoms };
    for (int i = 0, j = 0; i < s->n && j < t->n;) {
        int c = cmp_dim(e, DIM(s->atoms[i]), DIM(t->atoms[j]));
        if (c == 0) {
            atoms[out.n++] = s->atoms[i];
            i++, j++;
        } else if (c < 0) {
            i++;
        } else {
            j++;
        }
    }
    return out;
}

/* s / t over the atoms alone (coefficients are the caller's); false if t has an atom that s lacks. */
bool wf_term_divide_atoms(WfExprs *e, const Term *s, const Term *t, Term *out)
{
    if (t->n > s->n)
        return false;
    int32_t *atoms = WF_NEWN(e->scratch, int32_t, (size_t)s->n);
    int n = 0, j = 0;
    for (int i = 0; i < s->n; i++) {
        if (j < t->n && s->atoms[i] == t->atoms[j])
            j++;
        else
            atoms[n++] = s->atoms[i];
    }
    *out = (Term){ 1, n, atoms };
    return j == t->n;
}

/* ---- polynomials ---- */

Poly wf_epoly(WfExprs *e, WfDim d)
{
    if (d < 0)
        return wf_enode(e, d)->poly;
    if (d == 0)
        return (Poly){ NULL, 0 };
    Term *t = WF_NEW(e->scratch, Term);
    t->coef = d;
    return (Poly){ t, 1 };
}

/* x + factor * y, where factor is one term. */
static Poly add_scaled(WfExprs *e, Poly x, Poly y, const Term *factor)
{
    Term *out = WF_NEWN(e->scratch, Term, (size_t)x.n + (size_t)y.n);
    int i = 0, j = 0, n = 0;
    Term t = { 0, 0, NULL };
    bool have = false;
    while (i < x.n || j < y.n || have) {
        if (!have && j < y.n) {
            t = mul_term(e, &y.at[j++], factor);
            have = true;
        }
        int c = i == x.n ? 1 : !have ? -1 : cmp_term(e, &x.at[i], &t);
        if (c < 0) {
            out[n++] = x.at[i++];
        } else if (c > 0) {
            out[n++] = t;
            have = false;
        } else {
            if (!wf_add_ok(t.coef, x.at[i].coef, &t.coef))
                e->overflow = true;
            i++;
            if (t.coef)
                out[n++] = t;
            have = false;
        }
    }
    return (Poly){ out, n };
}

Poly wf_poly_add(WfExprs *e, Poly x, Poly y, int64_t factor)
{
    return add_scaled(e, x, y, &(Term){ factor, 0, NULL });
}

Poly wf_poly_mul(WfExprs *e, Poly x, Poly y)
{
    Poly sum = { NULL, 0 };
    for (int i = 0; i < x.n; i++) {
        sum = add_scaled(e, sum, y, &x.at[i]);
        if (sum.n > MAX_TERMS || e->overflow) {
            e->overflow = true;
            return (Poly){ NULL, 0 };
        }
    }
    return sum;
}

Poly wf_poly_scale(WfExprs *e, Poly x, const Term *factor)
{
    return add_scaled(e, (Poly){ NULL, 0 }, x, factor);
}

/* ---- interning ---- */

/* Looks the bytes up; a new node gets its interval, mask and polynomial. */
static WfDim intern(WfExprs *e, const int64_t *key, size_t n, Node node)
{
    int64_t id;
    if (wf_map_get_bytes(e->interned, key, n * sizeof(*key), &id))
        return DIM(id);
    id = e->nodes.n;
    if (node.kind == E_POLY) {
        Term *terms = WF_NEWN(e->arena, Term, (size_t)node.poly.n);
        for (int i = 0; i < node.poly.n; i++) {
            terms[i] = node.poly.at[i];
            int32_t *atoms = WF_NEWN(e->arena, int32_t, (size_t)terms[i].n);
            for (int j = 0; j < terms[i].n; j++) {
                const Node *atom = &e->nodes.at[terms[i].atoms[j]];
                atoms[j] = terms[i].atoms[j];
                node.mask |= atom->mask;
                node.has_mod |= atom->kind == E_MOD;
            }
            terms[i].atoms = atoms;
        }
        node.poly.at = terms;
    } else {
        Term *t = WF_NEW(e->arena, Term);
        int32_t *self = WF_NEW(e->arena, int32_t);
        *self = (int32_t)id;
        *t = node.kind == E_CONST ? (Term){ node.a, 0, NULL } : (Term){ 1, 1, self };
        node.poly = (Poly){ t, 1 };
        node.has_mod = node.kind == E_MOD;
        if (node.kind != E_CONST && node.kind != E_SYM) {
            node.mask |= node.a < 0 ? wf_enode(e, node.a)->mask : 0;
            node.mask |= node.b < 0 ? wf_enode(e, node.b)->mask : 0;
        }
    }
    wf_enode_range(e, &node);
    WF_PUSH(e->arena, &e->nodes, node);
    wf_map_put_bytes(e->interned, key, n * sizeof(*key), id);
    return DIM(id);
}

WfDim wf_eatom(WfExprs *e, ExprKind kind, WfDim a, WfDim b)
{
    Node n = { .kind = kind, .a = a, .b = b };
    if (kind == E_SYM) {
        n.sym = (int)a;
        n.mask = 1ull << (a & 63);
    }
    int64_t key[3] = { (int64_t)kind, a, b };
    return intern(e, key, 3, n);
}

WfDim wf_e_const(WfExprs *e, int64_t v)
{
    return v >= 0 ? v : wf_eatom(e, E_CONST, v, 0);
}

WfDim wf_emake(WfExprs *e, Poly p)
{
    if (p.n == 0 || e->overflow)
        return 0;
    if (p.n == 1 && p.at[0].n == 0)
        return wf_e_const(e, p.at[0].coef);
    if (p.n == 1 && p.at[0].n == 1 && p.at[0].coef == 1)
        return DIM(p.at[0].atoms[0]);
    size_t n = 1;
    for (int i = 0; i < p.n; i++)
        n += 2 + (size_t)p.at[i].n;
    int64_t *key = WF_NEWN(e->scratch, int64_t, n);
    size_t k = 0;
    key[k++] = E_POLY;
    for (int i = 0; i < p.n; i++) {
        key[k++] = p.at[i].coef;
        key[k++] = p.at[i].n;
        for (int j = 0; j < p.at[i].n; j++)
            key[k++] = p.at[i].atoms[j];
    }
    return intern(e, key, n, (Node){ .kind = E_POLY, .poly = p });
}

int wf_e_compare(const WfExprs *e, WfDim a, WfDim b)
{
    return cmp_dim(e, a, b);
}
