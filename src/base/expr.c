/* The expression engine: sums and products in canonical form, minima and maxima, the table, and what is asked
 * of a finished expression. Sums put back together what reshapes take apart: k*(x//k) + x%k is x. Products
 * and divisions are remembered by operation and operands. Divisions are in divide.c, proofs in bound.c, text
 * in notation.c. */
#include <string.h>

#include "base/expr.h"

int64_t wf_floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t wf_floor_mod(int64_t a, int64_t b)
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
WfDim wf_e_finish(WfExprs *e, Poly p)
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
    return wf_e_finish(e, wf_poly_add(e, wf_epoly(e, a), wf_epoly(e, b), factor));
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
    out = wf_e_finish(e, wf_poly_mul(e, wf_epoly(e, a), wf_epoly(e, b)));
    wf_e_remember(e, '*', a, b, out);
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
    for (int64_t v = -1; v >= -128; v--) {
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
        wf_fail(e->ctx, WF_E_SIZE_EXPRESSION, "a size expression is too large: a coefficient leaves 64 bits or it has "
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
    *coef = wf_e_finish(e, c);
    *rest = wf_e_finish(e, r);
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
    *out = n->kind == E_FDIV ? wf_floor_div(x, y) : wf_floor_mod(x, y);
    return true;
}
