/* From a loop nest to C. The nest's loops are ordered, merged and cut (nest_loops.c), which makes it one of
 * three kinds: a row kernel, whose vector loop is reduced; a column kernel, whose vector loop is kept while
 * others are reduced; a pointwise kernel, which reduces nothing. Tiles of the kept loops are the unit of
 * parallel work: the function gets a range of them, and its text is a loop over tiles around the text of one
 * (nest_pass.c). What depends on no loop at all is computed before the first tile. */
#include "emit/nest.h"

#define BLOCK 4096 /* elements of a tile of a flat pointwise kernel */

/* Returns whether the vector loop is cut into blocks: then a tile is less than one value of the others. */
static bool tile_loop(Em *m, int wide, WfKernelText *t, WfStr *fn)
{
    /* tile index -> kept loops, slowest first; the vector loop, when kept, is cut into blocks */
    int kept[WF_MAX_RANK], n = 0;
    WfDim tiles = 1, blocks = 1;
    bool blocked = m->vec >= 0 && !m->loop[m->vec].reduced;
    for (int i = 0; i < m->n_loops; i++)
        if (!m->loop[i].reduced && i != m->vec)
            kept[n++] = i;
    for (int i = 0; i < n; i++)
        tiles = wf_emul(m->e, tiles, m->loop[kept[i]].size);
    if (blocked) {
        WfDim size = m->loop[m->vec].size;
        int64_t block = m->column ? LANES * wide : n == 0 || wf_em_at_least(m, tiles) < 64 ? BLOCK : 1 << 30;
        blocks = wf_efloordiv(m->e, wf_eadd(m->e, size, block - 1), block);
        tiles = wf_emul(m->e, tiles, blocks);
        wf_str_puts(fn, "for (long t = lo; t < hi; t++) {\n");
        if (blocks == 1)
            wf_str_puts(fn, "const long u = t, vb = 0;\n");
        else
            wf_str_printf(fn, "const long u = t / (%s), vb = t %% (%s) * %lldL;\n", wf_em_text(m, blocks),
                          wf_em_text(m, blocks), (long long)block);
        if (m->column)
            wf_str_printf(fn, "long %s = vb;\n", m->loop[m->vec].name);
        if (blocks == 1)
            wf_str_printf(fn, "const long ve = %s; (void)u; (void)ve;\n", wf_em_text(m, size));
        else
            wf_str_printf(fn, "const long ve = vb + %lldL < %s ? vb + %lldL : %s; (void)u; (void)ve;\n",
                          (long long)block, wf_em_text(m, size), (long long)block, wf_em_text(m, size));
    } else {
        wf_str_puts(fn, "for (long t = lo; t < hi; t++) {\nconst long u = t; (void)u;\n");
    }
    WfDim below = 1;
    for (int i = n - 1; i >= 0; i--) {
        Loop *l = &m->loop[kept[i]];
        if (i == 0)
            wf_str_printf(fn, "const long %s = u / (%s);\n", l->name, wf_em_text(m, below));
        else
            wf_str_printf(fn, "const long %s = u / (%s) %% (%s);\n", l->name, wf_em_text(m, below),
                          wf_em_text(m, l->size));
        below = wf_emul(m->e, below, l->size);
    }
    t->tiles = tiles;
    return blocks != 1;
}

/* A tile of a column kernel: all its vectors at once, or where the columns end one by one, or lanes. */
static void column_tiles(Em *m, int wide, WfStr *tiles)
{
    int64_t size;
    bool lit = wf_elit(m->e, m->loop[m->vec].size, &size);
    const char *v = wf_arena_strdup(m->a, m->loop[m->vec].name), *end = wf_em_text(m, m->loop[m->vec].size);
    m->tail = false;
    if (wide > 1) {
        wf_em_tile_text(m, wide);
        wf_str_printf(tiles, "if (%s + %d <= %s) {\n%s%s = ve;\n}\n", v, LANES * wide, end, m->tile.at, v);
    }
    if (wide == 1 || size % (LANES * wide)) {
        if (wide > 1)
            wf_str_printf(tiles, "for (; %s < ve; %s += 16) {\n", v, v);
        if (!lit || size >= LANES) {
            wf_em_tile_text(m, 1);
            wf_str_printf(tiles, "if (%s + 16 <= %s) {\n%s}\n", v, end, m->tile.at);
        }
        if (!lit || size % LANES) {
            m->tail = true;
            wf_em_tile_text(m, 1);
            wf_str_printf(tiles, "if (%s + 16 > %s) { const int m = (int)(%s - %s); (void)m;\n%s}\n", v, end,
                          end, v, m->tile.at);
        }
        if (wide > 1)
            wf_str_puts(tiles, "}\n");
    }
}

/* The nest's graph, sizes and loops, in the order of its dimensions. */
static Em *begin(WfGraph *g, const WfNode *n, WfKernelText *t)
{
    Em *m = WF_NEW(g->arena, Em);
    m->g = n->args[1].graph;
    m->e = g->exprs;
    m->a = g->arena;
    m->rank = n->args[2].n;
    for (int i = 0; i < n->args[3].n; i++)
        m->reduced |= 1u << n->args[3].ints[i];
    t->elements = 1;
    for (int i = 0; i < m->rank; i++) {
        WfDim size = n->args[2].ints[i];
        WfStr name = {.arena = m->a};
        wf_str_printf(&name, "n%d_%llx", i, (unsigned long long)size);
        m->shape[i] = size;
        m->var[i] = size == 1 ? 0 : wf_sym_bounded(m->e, name.at, size);
        t->elements = wf_emul(m->e, t->elements, size);
        if (!(m->reduced >> i & 1)) {
            m->row_shape[m->row_rank] = size;
            m->row_ix[m->row_rank++] = m->var[i];
        }
        if (size != 1)
            m->loop[m->n_loops++] = (Loop){.var = m->var[i], .size = size, .reduced = m->reduced >> i & 1};
    }
    m->loads = wf_arena_alloc(m->a, ((size_t)m->g->inputs.n + 1) * sizeof *m->loads);
    return m;
}

/* The function's first lines: its arguments by name. */
static void function_head(Em *m, WfStr *fn)
{
    wf_str_puts(
        fn,
        "void KERNEL(void *const *b, const long *s, long *st, long lo, long hi)\n{\n(void)s; (void)st;\n");
    for (int i = 0; i < m->g->inputs.n; i++)
        wf_str_printf(fn, "const t_%s *a%d = b[%d];\n",
                      wf_dtype_name(wf_value(m->g, m->g->inputs.at[i].val)->dtype), i, i);
    for (int k = 0; k < m->n_out; k++)
        wf_str_printf(fn, "t_%s *o%d = b[%d];\n", wf_dtype_name(wf_value(m->g, m->out[k].v)->dtype), k,
                      m->g->inputs.n + k);
}

WfKernelText *wf_emit_nest(WfGraph *g, const WfNode *n, const int *symbols, int n_symbols)
{
    WfKernelText *t = WF_NEW(g->arena, WfKernelText);
    Em *m = begin(g, n, t);
    m->symbols = symbols;
    m->n_symbols = n_symbols;
    wf_em_arrange(m);
    WfStr fn = {.arena = m->a}, tiles = {.arena = m->a}, pre = {.arena = m->a};
    function_head(m, &fn);
    m->head = (WfStr){.arena = m->a};
    m->scope[0] = &m->head;
    wf_em_reset_cache(m, 0);
    int wide = wf_em_column_width(m);
    bool blocks = tile_loop(m, wide, t, &tiles);
    if (m->column) {
        column_tiles(m, wide, &tiles);
    } else {
        wf_em_tile_text(m, 1);
        wf_str_puts(&tiles, m->tile.at ? m->tile.at : "");
    }
    wf_str_puts(&fn, m->head.at ? m->head.at : "");
    wf_str_puts(&fn, tiles.at);
    wf_str_puts(&fn, "}\n}\n");
    t->text = fn.at;
    t->n_in = m->g->inputs.n;
    t->n_out = m->n_out;
    t->checks = m->checks.at;
    t->n_checks = m->checks.n;
    wf_em_find_inplace(m, t);
    wf_em_find_rows(m, t, blocks);
    wf_emit_prelude(&pre, t->text);
    t->prelude = pre.at;
    return t;
}
