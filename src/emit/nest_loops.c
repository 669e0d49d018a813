/* The loops of a nest. A dry run over all values gathers every address, bound and index expression. By them
 * the loops are put into memory order, neighbours that every address walks together are merged, and one loop
 * becomes the vector loop: the fastest reduced one (row kernels), or a kept one (pointwise and column
 * kernels). The loads that the text then made say which memory a result may take over and which inputs are
 * read tile by tile. */
#include "emit/nest.h"
#include "fuse/fuse.h"

/* ---- levels and stages ---- */

bool wf_em_candidate(Em *m, int rank, const WfDim *shape, bool row, WfDim *ix)
{
    int from = row ? m->row_rank : m->rank;
    const WfDim *fs = row ? m->row_shape : m->shape, *fi = row ? m->row_ix : m->var;
    if (from == rank && !memcmp(fs, shape, (size_t)rank * sizeof *shape)) {
        memcpy(ix, fi, (size_t)rank * sizeof *fi);
        return true;
    }
    WfDim a = 1, b = 1;
    for (int i = 0; i < from; i++)
        a = wf_emul(m->e, a, fs[i]);
    for (int i = 0; i < rank; i++)
        b = wf_emul(m->e, b, shape[i]);
    if (a != b)
        return false;
    wf_unflatten(m->e, rank, shape, wf_flatten(m->e, from, fs, fi), ix);
    return true;
}

bool wf_em_is_full(Em *m, WfVal v, WfDim *ix)
{
    const WfValue *x = wf_value(m->g, v);
    if (wf_producer(m->g, v) && wf_producer(m->g, v)->op->family == WF_REDUCE) {
        wf_em_candidate(m, x->rank, x->shape, true, ix);
        return false;
    }
    if (wf_em_candidate(m, x->rank, x->shape, false, ix))
        return true;
    if (!wf_em_candidate(m, x->rank, x->shape, true, ix))
        wf_fail(m->g->ctx, WF_E_BUG, "a kernel's result %s does not fit its loops",
                wf_shape_text(m->g, v));
    return false;
}

static void stages(Em *m)
{
    WfGraph *g = m->g;
    m->stage = WF_NEWN(m->a, int, (size_t)g->values.n);
    WfVal in[WF_MAX_RESULTS];
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        int k = wf_operands(n, in, WF_MAX_RESULTS), st = 0;
        for (int j = 0; j < k; j++)
            st = in[j] && m->stage[in[j]] > st ? m->stage[in[j]] : st;
        if (n->op->family == WF_REDUCE)
            st++;
        for (int j = 0; j < n->n_out; j++)
            m->stage[n->out + (WfVal)j] = st;
    }
    for (int i = 0; i < g->outputs.n; i++) {
        WfVal v = g->outputs.at[i].val;
        WfDim ix[WF_MAX_RANK] = {0}, stride[WF_MAX_RANK], addr = 0;
        Out *o = &m->out[m->n_out++];
        o->v = v;
        o->full = wf_em_is_full(m, v, ix) || !m->reduced;
        o->stage = m->stage[v];
        wf_memory_strides(g, v, stride);
        for (int d = 0; d < wf_value(g, v)->rank; d++)
            addr = wf_eadd(m->e, addr, wf_emul(m->e, ix[d], stride[d]));
        o->addr = addr;
        int last = o->full ? o->stage + 1 : o->stage;
        m->n_pass = last > m->n_pass ? last : m->n_pass;
    }
    for (int i = 1; i < g->nodes.n; i++)
        if (wf_node(g, (WfNodeId)i)->op->family == WF_REDUCE &&
            m->stage[wf_node(g, (WfNodeId)i)->out] > m->n_pass)
            m->n_pass = m->stage[wf_node(g, (WfNodeId)i)->out];
}

/* ---- the dry run ---- */

WfDim wf_em_reduce_position(Em *m, const WfNode *n, const WfDim *ix)
{
    const WfValue *x = wf_value(m->g, wf_tensor(n, 0));
    WfDim flat = 0;
    for (int d = 0; d < x->rank; d++)
        for (int k = 0; k < n->args[1].n; k++)
            if (n->args[1].ints[k] == d)
                flat = wf_eadd(m->e, wf_emul(m->e, flat, x->shape[d]), ix[d]);
    return flat;
}

/* Dry run: gathers every index expression before loops are merged. */
static void gather_touched(Em *m)
{
    m->dry = true;
    m->vec = -1;
    for (int i = 0; i < m->n_loops; i++)
        m->loop[i].depth = m->loop[i].reduced ? 2 : 1;
    m->deepest = 2;
    WfStr sink = {.arena = m->a};
    Em saved = *m;
    m->scope[0] = m->scope[1] = m->scope[2] = &sink;
    m->head = sink;
    wf_em_reset_cache(m, 0);
    m->reductions = wf_map_new(m->a);
    Guards none = {.n = 0};
    for (m->pass = 0; m->pass <= m->n_pass; m->pass++) {
        for (int i = 1; i < m->g->nodes.n; i++) {
            const WfNode *n = wf_node(m->g, (WfNodeId)i);
            if (n->op->family != WF_REDUCE || m->stage[n->out] != m->pass + 1)
                continue;
            WfVal x = wf_tensor(n, 0);
            WfDim ix[WF_MAX_RANK] = {0};
            if (!wf_em_candidate(m, wf_value(m->g, x)->rank, wf_value(m->g, x)->shape, false, ix))
                wf_fail_node(m->g, n, WF_E_BUG, "a reduction does not fit its kernel's loops");
            wf_em_eval(m, x, ix, &none);
            if (is_arg(n))
                touch(m, wf_em_reduce_position(m, n, ix));
            Val *keep = WF_NEW(m->a, Val);
            *keep = (Val){m->next++, C_F, 1};
            keep->cls = is_arg(n) ? C_L : class_of(wf_value(m->g, x)->dtype);
            wf_map_put_bytes(m->reductions, &n->out, sizeof n->out, (int64_t)(intptr_t)keep);
        }
        for (int k = 0; k < m->n_out; k++)
            if (m->out[k].stage == m->pass) {
                WfDim ix[WF_MAX_RANK] = {0};
                wf_em_is_full(m, m->out[k].v, ix);
                wf_em_eval(m, m->out[k].v, ix, &none);
                touch(m, m->out[k].addr);
            }
    }
    saved.guards.at = m->guards.at;
    saved.guards.n = m->guards.n;
    saved.guards.cap = m->guards.cap;
    saved.touched.at = m->touched.at;
    saved.touched.n = m->touched.n;
    saved.touched.cap = m->touched.cap;
    *m = saved;
    m->dry = false;
}

static WfDim reference_address(Em *m)
{
    WfDim best = 0;
    int most = -1;
    for (int i = m->touched.n - 1; i >= 0; i--) { /* outputs last: they win ties */
        int k = 0;
        for (int l = 0; l < m->n_loops; l++)
            k += wf_edepends(m->e, m->touched.at[i], m->loop[l].var);
        if (k > most)
            most = k, best = m->touched.at[i];
    }
    return best;
}

/* ---- order, merging, the vector loop ---- */

static WfDim size_weight(Em *m, WfDim coef)
{
    int64_t lo, hi;
    if (!wf_erange(m->e, coef, &lo, &hi))
        return 1;
    return lo < 0 ? -lo : lo;
}

/* Orders loops from slow to fast by the address of the access that uses most loops. */
static void order_loops(Em *m, WfDim reference)
{
    WfDim stores = 0;
    int most = 0;
    for (int k = 0; k < m->n_out; k++) { /* kept loops follow the result that walks most of them */
        int used = 0;
        for (int i = 0; i < m->n_loops; i++)
            used += !m->loop[i].reduced && wf_edepends(m->e, m->out[k].addr, m->loop[i].var);
        if (used > most)
            most = used, stores = m->out[k].addr;
    }
    for (int i = 0; i < m->n_loops; i++) {
        WfDim c, r, by = !m->loop[i].reduced && most ? stores : reference;
        m->loop[i].weight =
            wf_elinear(m->e, by, m->loop[i].var, &c, &r) ? size_weight(m, c) : (WfDim)(m->n_loops - i);
    }
    for (int i = 1; i < m->n_loops; i++) /* stable insertion: kept loops first, then by weight */
        for (int k = i; k > 0; k--) {
            Loop *a = &m->loop[k - 1], *b = &m->loop[k];
            bool swap = a->reduced != b->reduced ? a->reduced && !b->reduced : a->weight < b->weight;
            if (!swap)
                break;
            Loop t = *a;
            *a = *b;
            *b = t;
        }
}

static bool mergeable(Em *m, const Loop *a, const Loop *b)
{
    if (a->reduced != b->reduced)
        return false;
    for (int i = 0; i < m->touched.n; i++) {
        WfDim ca, cb, ra, rb, d = wf_em_merged(m, m->touched.at[i]);
        bool da = wf_edepends(m->e, d, a->var), db = wf_edepends(m->e, d, b->var);
        if (!da && !db)
            continue;
        if (!da || !db || !wf_elinear(m->e, d, a->var, &ca, &ra) || !wf_elinear(m->e, d, b->var, &cb, &rb))
            return false;
        if (ca != wf_emul(m->e, cb, b->size) || wf_edepends(m->e, ca, b->var) ||
            wf_edepends(m->e, cb, a->var))
            return false;
    }
    return true;
}

/* d = ca * a + cb * b + ..., and does it walk the memory of a and b as one loop would? */
typedef enum { APART, LINEAR, AS_ONE } Walk;
static Walk walk_of(Em *m, WfDim d, const Loop *a, const Loop *b)
{
    int64_t ca, cb, size;
    WfDim x, y, ra, rb;
    if (!wf_elinear(m->e, d, a->var, &x, &ra) || !wf_elinear(m->e, d, b->var, &y, &rb) || !wf_elit(m->e, x, &ca) ||
        !wf_elit(m->e, y, &cb) || !wf_elit(m->e, b->size, &size))
        return APART;
    return cb == 1 && ca == size ? AS_ONE : LINEAR;
}

/* A fast loop that fills a vector only in part, as the channels of a group do, becomes one with the loop around it, although what
 * belongs to the groups does not walk it: that is then read at a fixed distance for each lane (nest_value.c). */
static bool worth_spreading(Em *m, const Loop *a, const Loop *b)
{
    int64_t sa, sb;
    bool as_one = false;
    if (a->reduced || b->reduced || !wf_elit(m->e, a->size, &sa) || !wf_elit(m->e, b->size, &sb) || sb < 2 || sb >= LANES || LANES % sb ||
        sa * sb % LANES)
        return false;
    for (int i = 0; i < m->touched.n; i++) {
        Walk w = walk_of(m, wf_em_merged(m, m->touched.at[i]), a, b);
        if (w == APART)
            return false;
        as_one |= w == AS_ONE;
    }
    for (int k = 0; k < m->n_out; k++)
        if (walk_of(m, wf_em_merged(m, m->out[k].addr), a, b) != AS_ONE)
            return false;
    for (int i = 0; i < m->guards.n; i++) {
        WfDim d = wf_em_merged(m, m->guards.at[i].value);
        if (wf_edepends(m->e, d, a->var) || wf_edepends(m->e, d, b->var))
            return false;
    }
    return as_one;
}

static void merge_loops(Em *m)
{
    for (int i = 0; i + 1 < m->n_loops;) {
        Loop *a = &m->loop[i], *b = &m->loop[i + 1];
        bool whole = mergeable(m, a, b);
        if (!whole && !worth_spreading(m, a, b)) {
            i++;
            continue;
        }
        WfDim size = wf_emul(m->e, a->size, b->size);
        WfStr name = {.arena = m->a};
        wf_str_printf(&name, "c%d_%llx", i, (unsigned long long)size);
        WfDim var = wf_sym_bounded(m->e, name.at, size);
        /* earlier substitutions may mention a or b */
        WfDim olds[2] = {a->var, b->var}, news[2] = {0, var};
        if (!whole)
            news[0] = wf_efloordiv(m->e, var, b->size), news[1] = wf_emod(m->e, var, b->size);
        for (int k = 0; k < m->n_from; k++)
            m->to[k] = wf_esubst_all(m->e, m->to[k], 2, olds, news);
        for (int k = 0; k < 2; k++) {
            m->from[m->n_from] = olds[k];
            m->to[m->n_from++] = news[k];
        }
        a->var = var;
        a->size = size;
        memmove(b, b + 1, (size_t)(m->n_loops - i - 2) * sizeof *b);
        m->n_loops--;
    }
}

int64_t wf_em_at_least(Em *m, WfDim d)
{
    int64_t lo, hi;
    return wf_erange(m->e, d, &lo, &hi) ? lo : 1;
}

/* The loop that most accesses walk with stride one. */
static void choose_vector(Em *m)
{
    int kept = -1, red = -1, best = -1;
    long score = -1;
    for (int i = 0; i < m->n_loops; i++)
        *(m->loop[i].reduced ? &red : &kept) = i;
    for (int pick = 0; pick < 2; pick++) {
        int i = pick ? kept : red;
        long sc = 1;
        if (i < 0)
            continue;
        for (int k = 0; k < m->touched.n; k++) {
            WfDim c, r, d = wf_em_merged(m, m->touched.at[k]);
            if (!wf_edepends(m->e, d, m->loop[i].var))
                sc += 1;
            else if (wf_elinear(m->e, d, m->loop[i].var, &c, &r) && c == 1)
                sc += 4;
        }
        int64_t size = wf_em_at_least(m, m->loop[i].size);
        if (size < 8)
            sc = sc * size / 8;
        if (sc > score)
            best = i, score = sc;
    }
    m->vec = best;
    m->column = m->reduced && best >= 0 && !m->loop[best].reduced;
}

/* Paddings and joins along the vector loop: instead of asking in every vector which part it lies in, the loop
 * is cut at the bounds, and each piece holds the text of its part only. */
static void find_cuts(Em *m)
{
    int64_t size;
    m->n_cut = 0;
    if (m->vec < 0 || m->column || !wf_elit(m->e, m->loop[m->vec].size, &size))
        return;
    for (int i = 0; i < m->guards.n; i++) {
        Guard g = m->guards.at[i];
        int64_t bound[2];
        g.value = wf_em_merged(m, g.value);
        if (wf_em_provable(m, &g) || !wf_em_on_vector_only(m, &g, &bound[0], &bound[1]))
            continue;
        for (int b = 0; b < 2; b++) {
            int at = 0;
            while (at < m->n_cut && m->cut[at] < bound[b])
                at++;
            if (bound[b] <= 0 || bound[b] >= size || (at < m->n_cut && m->cut[at] == bound[b]))
                continue;
            if (m->n_cut == MAX_CUTS || (m->n_cut >= FEW_CUTS && m->n_cut * m->g->nodes.n > PIECES_TEXT)) {
                m->n_cut = 0;
                return;
            }
            memmove(m->cut + at + 1, m->cut + at, (size_t)(m->n_cut++ - at) * sizeof *m->cut);
            m->cut[at] = bound[b];
        }
    }
}

int wf_em_column_width(Em *m)
{
    int n_acc = 0, wide = WIDE;
    int64_t size;
    for (int i = 1; i < m->g->nodes.n; i++) {
        const WfNode *n = wf_node(m->g, (WfNodeId)i);
        if (n->op->family == WF_GATHER)
            return 1;
        n_acc += n->op->family == WF_REDUCE ? is_arg(n) ? 3 : 1 : 0;
    }
    if (!m->column || !wf_elit(m->e, m->loop[m->vec].size, &size) || m->g->nodes.n > 100)
        return 1;
    while (wide > 1 && (size < 8 * LANES * wide || n_acc * wide > 16))
        wide /= 2;
    return wide;
}

void wf_em_arrange(Em *m)
{
    for (int i = 0; i < m->n_loops; i++)
        snprintf(m->loop[i].name, sizeof m->loop[i].name, "i%d", i);
    stages(m);
    gather_touched(m);
    memset(m->loads, 0, ((size_t)m->g->inputs.n + 1) * sizeof *m->loads);
    m->next = m->n_data = 0;
    order_loops(m, reference_address(m));
    merge_loops(m);
    choose_vector(m);
    find_cuts(m);
    m->deepest = m->column ? 1 : 2;
    for (int i = 0, d = 2; i < m->n_loops; i++) {
        snprintf(m->loop[i].name, sizeof m->loop[i].name, "i%d", i);
        if (!m->loop[i].reduced)
            m->loop[i].depth = 1;
        else if (i != m->vec)
            m->loop[i].depth = d++, m->deepest = m->column ? d - 1 : d;
    }
    if (m->vec >= 0 && !m->column)
        m->loop[m->vec].depth = m->deepest;
}

/* ---- what the loads allow ---- */

void wf_em_find_inplace(Em *m, WfKernelText *t)
{
    int n_in = m->g->inputs.n;
    t->inplace = WF_NEWN(m->a, bool, (size_t)(m->n_out * n_in + 1));
    for (int k = 0; k < m->n_out; k++) {
        const WfValue *y = wf_value(m->g, m->out[k].v);
        WfDim addr = wf_em_merged(m, m->out[k].addr);
        for (int i = 0; i < n_in && m->out[k].full; i++) {
            const WfValue *x = wf_value(m->g, m->g->inputs.at[i].val);
            bool ok = x->dtype == y->dtype && m->loads[i].at.n > 0 &&
                      wf_numel(m->g, m->g->inputs.at[i].val) == wf_numel(m->g, m->out[k].v);
            for (int j = 0; ok && j < m->loads[i].at.n; j++) {
                const Access *a = &m->loads[i].at.at[j];
                ok = !a->guarded && a->addr == addr && a->pass <= m->out[k].stage;
            }
            t->inplace[k * n_in + i] = ok;
        }
    }
}

void wf_em_find_rows(Em *m, WfKernelText *t, bool blocks)
{
    int kept = -1, n = 0;
    t->by_tile = WF_NEWN(m->a, bool, (size_t)m->g->inputs.n + 1);
    for (int i = 0; i < m->n_loops; i++)
        if (!m->loop[i].reduced && i != m->vec)
            kept = i, n++;
    if (n != 1 || blocks)
        return;
    for (int i = 0; i < m->g->inputs.n; i++) {
        int64_t size, rows, lo, hi, step;
        bool ok = m->loads[i].at.n > 0 && wf_elit(m->e, wf_numel(m->g, m->g->inputs.at[i].val), &size) &&
                  wf_elit(m->e, m->loop[kept].size, &rows) && rows > 0 && size % rows == 0;
        for (int j = 0; ok && j < m->loads[i].at.n; j++) {
            WfDim c, rest;
            ok = wf_elinear(m->e, m->loads[i].at.at[j].addr, m->loop[kept].var, &c, &rest) &&
                 wf_elit(m->e, c, &step) && step == size / rows && wf_erange(m->e, rest, &lo, &hi) &&
                 lo >= 0 && hi < step;
        }
        t->by_tile[i] = ok;
    }
}
