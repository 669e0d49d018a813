/* The text of a tile: pass by pass the reductions, each over the reduced loops, and the stores. Each
 * reduction ends a pass; what depends on its result is computed in a later one. The vector loop's text is
 * written twice when its extent is no multiple of 16, with whole vectors and with `m` lanes, and once more
 * for every piece that paddings and joins cut it into. A running float32 sum loses with every addition, so a
 * long one is a compensated sum of short ones. */
#include "emit/nest.h"

#include <math.h>

#define MAX_ACC 64
#define CHAIN   64 /* float32 additions in a row, then the partial sum is put aside */

typedef struct {
    const WfNode *n;
    int acc;
    Class cls;
} Acc; /* C variable r<acc> */

/* ---- reductions and stores ---- */

static const char *neutral(Em *m, const WfNode *n, Class c)
{
    double init = n->op->init;
    if (isinf(init) && (c == C_I || c == C_L))
        return init > 0 ? (c == C_I ? "0x7fffffff" : "0x7fffffffffffffffL")
                        : (c == C_I ? "(-0x7fffffff - 1)" : "(-0x7fffffffffffffffL - 1)");
    if (c == C_B)
        return init > 0 && isinf(init) ? "-1" : "0";
    return wf_em_literal(m, init, c);
}

/* Where a reduction's operand is nothing but padding with the neutral element, the iteration is skipped:
 * guards that do not vary by lane become `continue` in the loop that decides them. For passes with one. */
static void skip_padding(Em *m, const WfNode *n, WfVal x, const WfDim *index)
{
    WfDim ix[WF_MAX_RANK];
    memcpy(ix, index, sizeof ix);
    for (const WfNode *v = wf_producer(m->g, x); v && v->op->family == WF_VIEW && wf_operand_count(v) == 1;
         v = wf_producer(m->g, wf_tensor(v, 0))) {
        WfIndex w = {0};
        memcpy(w.at, ix, sizeof ix);
        v->op->index(m->g, v, &w);
        if (w.n_guards && w.fill != n->op->init)
            return;
        for (int j = 0; j < w.n_guards; j++) {
            Guards g = {.n = 1, .at = {{wf_em_merged(m, w.guard[j].value), w.guard[j].lo, w.guard[j].hi}}};
            int depth = wf_em_guards_depth(m, &g);
            if (!wf_em_provable(m, &g.at[0]) && !wf_em_on_vector(m, g.at[0].value) && depth >= 2 &&
                depth < m->deepest + m->column)
                wf_str_printf(at(m, depth), "if (!(%s)) continue;\n", wf_em_condition(m, &g, 2, NULL));
        }
        memcpy(ix, w.at, sizeof ix);
    }
}

static void accumulate(Em *m, Acc *acc, bool only, const Guards *none)
{
    const WfNode *n = acc->n;
    WfVal x = wf_tensor(n, 0);
    WfDim ix[WF_MAX_RANK] = {0};
    wf_em_candidate(m, wf_value(m->g, x)->rank, wf_value(m->g, x)->shape, false, ix);
    if (only && !is_arg(n) && !m->tail)
        skip_padding(m, n, x, ix);
    Val v = wf_em_eval(m, x, ix, none);
    WfStr *s = at(m, m->deepest);
    bool row_tail = m->tail && !m->column;
    if (is_arg(n)) {
        Val pos = wf_em_index_value(m, wf_em_reduce_position(m, n, ix));
        wf_str_printf(s, "arg%s_%c(&r%d, &p%d, v%d, v%d, %s);\n", n->op->init < 0 ? "max" : "min",
                      suffix[acc->cls], acc->acc, acc->acc, v.id, pos.id, row_tail ? "m" : "16");
        return;
    }
    char *value = wf_arena_printf(m->a, "v%d", v.id);
    if (row_tail)
        value = wf_arena_printf(m->a, "sel_%c(iota_i() < splat_i(m), v%d, splat_%c(%s))", suffix[acc->cls],
                                v.id, suffix[acc->cls], neutral(m, n, acc->cls));
    const char *tpl = acc->cls == C_B ? n->op->c_bool : acc->cls <= C_D ? n->op->c_float : n->op->c_int;
    if (!tpl)
        wf_fail_node(m->g, n, WF_E_OP_FORM, "not defined for %s",
                     wf_dtype_name(wf_value(m->g, x)->dtype));
    wf_str_printf(s, "r%d = ", acc->acc);
    for (const char *p = tpl; *p; p++) {
        if (*p != '%')
            wf_str_putc(s, *p);
        else if (*++p == 't')
            wf_str_putc(s, suffix[acc->cls]);
        else if (*p == '0')
            wf_str_printf(s, "r%d", acc->acc);
        else
            wf_str_puts(s, value);
    }
    wf_str_puts(s, ";\n");
}

static void store(Em *m, Out *o, int k, const Guards *none)
{
    const WfValue *x = wf_value(m->g, o->v);
    WfDim ix[WF_MAX_RANK] = {0}, c, r;
    if (o->full)
        wf_em_candidate(m, x->rank, x->shape, false, ix);
    else
        wf_em_is_full(m, o->v, ix);
    Val v = wf_em_eval(m, o->v, ix, none);
    WfDim addr = wf_em_merged(m, o->addr);
    int depth = wf_em_depth_of(m, addr);
    if (o->full && !m->column)
        depth = m->deepest;
    depth = v.depth > depth ? v.depth : depth;
    WfStr *s = at(m, depth);
    const char *dt = wf_dtype_name(x->dtype);
    if (!wf_em_on_vector(m, addr))
        wf_str_printf(s, "put_%s(o%d + %s, v%d[0]);\n", dt, k, wf_em_text(m, addr), v.id);
    else if (wf_elinear(m->e, addr, m->loop[m->vec].var, &c, &r) && c == 1)
        wf_str_printf(s, m->tail ? "stp_%s(o%d + %s, v%d, m);\n" : "st_%s(o%d + %s, v%d);\n", dt, k,
                      wf_em_text(m, addr), v.id);
    else
        wf_em_lane_loop(m, s, NULL, "put_%s(o%d + %s, v%d[l])", dt, k, wf_em_text_vv(m, addr), v.id);
}

/* The pass's results: first every value, then the stores, so that a store may go to memory that was read. */
static void store_pass(Em *m, const Guards *none)
{
    for (int write = 0; write < 2; write++)
        for (int k = 0; k < m->n_out; k++) {
            if (!m->out[k].full || m->out[k].stage != m->pass)
                continue;
            if (write) {
                store(m, &m->out[k], k, none);
                continue;
            }
            WfDim ix[WF_MAX_RANK] = {0};
            const WfValue *x = wf_value(m->g, m->out[k].v);
            wf_em_candidate(m, x->rank, x->shape, false, ix);
            wf_em_eval(m, m->out[k].v, ix, none);
        }
}

/* ---- long sums ---- */

static bool in_parts(const Em *m, const Acc *acc)
{
    return m->flush >= 0 && acc->cls == C_F && !strcmp(acc->n->schema->name, "prim.sum");
}

/* Chooses the loop after whose turns partial sums are put aside: the innermost one that, with the loops
 * inside it, makes more than CHAIN additions. loops: the reduced ones but for it, slow to fast. */
static void find_flush(Em *m, const int *loops, int n, const Acc *acc, int n_acc)
{
    int64_t inside = 1, size;
    m->flush = -1;
    for (int k = m->vec < 0 || m->column ? n - 1 : n; k >= 0 && m->flush < 0; k--) {
        int i = k == n ? m->vec : loops[k];
        bool lit = wf_elit(m->e, m->loop[i].size, &size);
        size = i == m->vec ? (size + LANES - 1) / LANES : size;
        if (lit && size <= CHAIN / inside) {
            inside *= size > 1 ? size : 1; /* none: of what has no elements */
            continue;
        }
        m->flush = i;
        m->flush_every = (int)(CHAIN / inside);
    }
    bool any = false;
    for (int i = 0; i < n_acc; i++)
        if (in_parts(m, &acc[i])) {
            wf_str_printf(&m->tile, "vf r%ds = splat_f(0), r%de = splat_f(0);\n", acc[i].acc, acc[i].acc);
            any = true;
        }
    if (!any)
        m->flush = -1;
}

static void put_aside(Em *m, const Acc *acc, int n_acc, WfStr *s)
{
    for (int i = 0; i < n_acc; i++)
        if (in_parts(m, &acc[i]))
            wf_str_printf(s, "aside_f(&r%ds, &r%de, &r%d);\n", acc[i].acc, acc[i].acc, acc[i].acc);
}

/* ---- loops ---- */

/* One of the reduced loops around the vector loop. */
static void wrap_loop(Em *m, int i, const Acc *acc, int n_acc, const char *body, WfStr *s)
{
    const char *v = m->loop[i].name, *size = wf_em_text(m, m->loop[i].size);
    if (i != m->flush) {
        wf_str_printf(s, "for (long %s = 0; %s < %s; %s++) {\n%s}\n", v, v, size, v, body);
        return;
    }
    wf_str_printf(
        s, "for (long %sb = 0; %sb < %s; %sb += %d) {\nconst long %se = %sb + %d < %s ? %sb + %d : %s;\n", v,
        v, size, v, m->flush_every, v, v, m->flush_every, size, v, m->flush_every, size);
    wf_str_printf(s, "for (long %s = %sb; %s < %se; %s++) {\n%s}\n", v, v, v, v, v, body);
    put_aside(m, acc, n_acc, s);
    wf_str_puts(s, "}\n");
}

/* The loop over one piece of the vector loop, or over all of it: whole vectors, then the lanes left. */
static void vector_piece(Em *m, Acc *acc, int n_acc, bool any, const char *begin, const char *end,
                         WfStr *into)
{
    Guards none = {.n = 0};
    int64_t size = m->hi - m->lo;
    bool lit = m->hi || m->vec < 0 || wf_elit(m->e, m->loop[m->vec].size, &size);
    bool blocks = m->hi && !m->loop[m->vec].reduced && !m->reduced; /* they begin and end anywhere in it */
    bool whole = m->vec >= 0 && (!lit || size >= LANES), rest = m->vec < 0 || !lit || blocks || size % LANES;
    bool saved = m->tail;
    WfStr bodies[2] = {{.arena = m->a}, {.arena = m->a}};
    WfStr *outer = m->scope[m->deepest];
    for (int t = 0; t < 2; t++) {
        if (!(t ? rest : whole))
            continue;
        m->tail = t;
        wf_em_reset_cache(m, m->deepest);
        m->scope[m->deepest] = &bodies[t];
        for (int i = 0; i < n_acc; i++)
            accumulate(m, &acc[i], n_acc == 1 && !any, &none);
        store_pass(m, &none);
    }
    m->tail = saved;
    m->scope[m->deepest] = outer;
    if (m->vec < 0) {
        wf_str_printf(into, "{ const int m = 1; (void)m;\n%s}\n", bodies[1].at ? bodies[1].at : "");
        return;
    }
    const char *v = m->loop[m->vec].name, *stop = end;
    wf_str_printf(into, "{ long %s = %s;\n", v, begin);
    if (whole && m->flush == m->vec) {
        int step = LANES * m->flush_every;
        stop = "stop";
        wf_str_printf(into, "while (%s + 16 <= %s) {\nconst long stop = %s + %d < %s ? %s + %d : %s;\n", v,
                      end, v, step, end, v, step, end);
    }
    if (whole)
        wf_str_printf(into, "for (; %s + 16 <= %s; %s += 16) {\n%s}\n", v, stop, v,
                      bodies[0].at ? bodies[0].at : "");
    if (stop != end) {
        put_aside(m, acc, n_acc, into);
        wf_str_puts(into, "}\n");
    }
    if (rest)
        wf_str_printf(into, "if (%s < %s) { const int m = (int)(%s - %s);\n%s}\n", v, end, end, v,
                      bodies[1].at ? bodies[1].at : "");
    wf_str_puts(into, "}\n");
}

static void vector_body(Em *m, Acc *acc, int n_acc, bool any, WfStr *into)
{
    const Loop *v = m->vec < 0 ? NULL : &m->loop[m->vec];
    bool all = v && (v->reduced || m->reduced);
    const char *begin = all ? "0" : "vb", *end = all ? wf_em_text(m, v->size) : "ve";
    int64_t size;
    if (!m->n_cut || !wf_elit(m->e, v->size, &size)) {
        vector_piece(m, acc, n_acc, any, begin, end, into);
        return;
    }
    for (int i = 0; i <= m->n_cut; i++) {
        m->lo = i ? m->cut[i - 1] : 0;
        m->hi = i < m->n_cut ? m->cut[i] : size;
        char lo[32], hi[32];
        snprintf(lo, sizeof lo, "%lld", (long long)m->lo);
        snprintf(hi, sizeof hi, "%lld", (long long)m->hi);
        if (!all)
            wf_str_printf(into, "{ const long pb = vb > %s ? vb : %s, pe = ve < %s ? ve : %s;\n", lo, lo, hi,
                          hi);
        vector_piece(m, acc, n_acc, any, all ? lo : "pb", all ? hi : "pe", into);
        if (!all)
            wf_str_puts(into, "}\n");
    }
    m->lo = m->hi = 0;
}

/* ---- passes ---- */

static void finish_reduction(Em *m, const Acc *acc)
{
    if (in_parts(m, acc))
        wf_str_printf(&m->tile, "r%d = joined_f(r%ds, r%de, r%d);\n", acc->acc, acc->acc, acc->acc, acc->acc);
    Val r = fresh(m, is_arg(acc->n) ? C_L : acc->cls, 1);
    const char *name = acc->n->schema->name + 5;
    if (m->column && is_arg(acc->n))
        wf_em_define(m, r, "p%d", acc->acc);
    else if (m->column)
        wf_em_define(m, r, "r%d", acc->acc);
    else if (is_arg(acc->n))
        wf_em_define(m, r, "splat_l(harg%s_%c(r%d, p%d))", acc->n->op->init < 0 ? "max" : "min",
                     suffix[acc->cls], acc->acc, acc->acc);
    else
        wf_em_define(m, r, "splat_%c(h%s_%c(r%d))", suffix[acc->cls], name,
                     acc->cls == C_B ? 'b' : suffix[acc->cls], acc->acc);
    Val *keep = WF_NEW(m->a, Val);
    *keep = r;
    wf_map_put_bytes(m->reductions, &acc->n->out, sizeof acc->n->out, (int64_t)(intptr_t)keep);
}

/* Turns to vector `unit` of a wide tile: its name in the text, its reductions, nothing computed yet. */
static void turn_to(Em *m, int unit)
{
    if (m->wide == 1)
        return;
    m->reductions = m->each[unit];
    snprintf(m->loop[m->vec].name, sizeof m->loop[m->vec].name, unit ? "(i%d+%d)" : "i%d", m->vec,
             LANES * unit);
    wf_em_reset_cache(m, 1);
}

/* The reductions of this pass, their accumulators declared in the tile's text. */
static int begin_reductions(Em *m, Acc *acc)
{
    int n_acc = 0;
    for (int i = 1; i < m->g->nodes.n; i++) {
        const WfNode *n = wf_node(m->g, (WfNodeId)i);
        if (n->op->family != WF_REDUCE || m->stage[n->out] != m->pass + 1 || n_acc == MAX_ACC)
            continue;
        Acc *a = &acc[n_acc++];
        a->n = n;
        a->acc = m->next++;
        a->cls = class_of(wf_value(m->g, wf_tensor(n, 0))->dtype);
        wf_str_printf(&m->tile, "v%c r%d = splat_%c(%s);\n", suffix[a->cls], a->acc, suffix[a->cls],
                      neutral(m, n, a->cls));
        if (is_arg(n))
            wf_str_printf(&m->tile, "vl p%d = splat_l(-1);\n", a->acc);
    }
    return n_acc;
}

static void one_pass(Em *m)
{
    Acc acc[WIDE * MAX_ACC]; /* by vector of the tile */
    Guards none = {.n = 0};
    int n_acc = 0, loops[WF_MAX_RANK], n = 0;
    bool any = false;
    for (int i = 0; i < m->n_loops; i++)
        if (m->loop[i].reduced && i != m->vec)
            loops[n++] = i;
    for (int u = 0; u < m->wide; u++) {
        turn_to(m, u);
        n_acc = begin_reductions(m, acc + u * n_acc);
    }
    for (int k = 0; k < m->n_out; k++)
        any |= m->out[k].full && m->out[k].stage == m->pass;
    if (!n_acc && !any)
        return;
    find_flush(m, loops, n, acc, n_acc * m->wide);
    /* scopes of the reduced loops outside the vector loop */
    WfStr inner = {.arena = m->a}, body[WF_MAX_RANK];
    for (int i = 0; i < n; i++) {
        body[i] = (WfStr){.arena = m->a};
        m->scope[2 + i] = &body[i];
    }
    wf_em_reset_cache(m, 2);
    for (int u = 0; m->column && u < m->wide; u++) {
        turn_to(m, u);
        for (int i = 0; i < n_acc; i++)
            accumulate(m, &acc[u * n_acc + i], n_acc == 1 && !any, &none);
        store_pass(m, &none);
    }
    if (!m->column)
        vector_body(m, acc, n_acc, any, &inner);
    WfStr whole = inner;
    for (int i = n - 1; i >= 0; i--) {
        WfStr s = {.arena = m->a};
        wf_str_puts(&body[i], whole.at ? whole.at : "");
        wrap_loop(m, loops[i], acc, n_acc * m->wide, body[i].at ? body[i].at : "", &s);
        whole = s;
    }
    wf_str_puts(&m->tile, whole.at ? whole.at : "");
    for (int u = 0; u < m->wide; u++) {
        turn_to(m, u);
        for (int i = 0; i < n_acc; i++)
            finish_reduction(m, &acc[u * n_acc + i]);
    }
}

void wf_em_tile_text(Em *m, int wide)
{
    Guards none = {.n = 0};
    m->wide = wide;
    m->tile = (WfStr){.arena = m->a};
    m->scope[0] = &m->head;
    m->scope[1] = &m->tile;
    wf_em_reset_cache(m, 1);
    for (int u = 0; u < wide; u++)
        m->each[u] = wf_map_new(m->a);
    m->reductions = m->each[0];
    for (m->pass = 0; m->pass < m->n_pass; m->pass++)
        one_pass(m);
    for (int u = 0; u < wide; u++) {
        turn_to(m, u);
        for (int k = 0; k < m->n_out; k++)
            if (!m->out[k].full) {
                wf_em_reset_cache(m, 2);
                store(m, &m->out[k], k, &none);
            }
    }
    turn_to(m, 0);
}
