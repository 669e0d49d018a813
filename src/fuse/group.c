/* Grouping. First it is decided which values are stored (group_stores.c); all else is computed inside the
 * kernels that use it. Then every stored value is placed, in topological order, into an existing group whose
 * loops produce it at the same loop point, or into a group of its own. A group has loops over one full shape,
 * some of them reduced; a value in it has a *canonical index* over those loops. Joining is allowed only if
 * everything the newcomer reads of the group is read exactly at its canonical index, and if no path through
 * another group leads back (groups keep the set of their ancestors). */
#include "fuse/group.h"

#include <string.h>

static void find_late(Fuse *f)
{
    WfGraph *g = f->g;
    WfVal in[WF_MAX_RESULTS];
    memset(f->late, 1, (size_t)g->values.n);
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].role != WF_OUT_UPDATE || g->inputs.at[g->outputs.at[i].input].role == WF_IN_ACCUM)
            f->late[g->outputs.at[i].val] = false;
    for (int i = g->nodes.n - 1; i > 0; i--) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        bool late = true;
        for (int k = 0; k < n->n_out; k++)
            late &= f->late[n->out + (WfVal)k];
        int k = late || !f->live[i] ? 0 : wf_operands(n, in, WF_MAX_RESULTS);
        for (int j = 0; j < k; j++)
            f->late[in[j]] = false;
    }
}

/* ---- groups ---- */

static Group *new_group(Fuse *f, bool library)
{
    Group *p = WF_NEW(f->g->arena, Group);
    p->library = library;
    p->reads = wf_map_new(f->g->arena);
    p->ancestors = WF_NEWN(f->g->arena, uint64_t, (size_t)f->words);
    if (f->n_groups == f->cap_groups)
        f->groups = wf_vec_grow(f->g->arena, f->groups, &f->cap_groups, sizeof *f->groups);
    f->groups[f->n_groups++] = p;
    return p;
}

static void add_ancestor(Fuse *f, int of, int id)
{
    if (of == id || has(f->groups[of], id))
        return;
    /* everyone below `of` gains id and id's ancestors */
    for (int h = 0; h < f->n_groups; h++) {
        Group *p = f->groups[h];
        if (h != of && !has(p, of))
            continue;
        p->ancestors[id >> 6] |= 1ull << (id & 63);
        for (int w = 0; w < f->words; w++)
            p->ancestors[w] |= f->groups[id]->ancestors[w];
    }
}

/* What a candidate reads, gathered by walking it. */
typedef struct {
    Fuse *f;
    int group; /* the group it wants to join; -1: none */
    bool fits;
    bool touches; /* reads a member of the group */
    bool shares;  /* reads a stored value at an index at which a member reads it */
    bool record;  /* write down what is read, in the group's map */
    int loads;
    int leaves[512], n_leaves; /* groups that it reads from */
} Probe;

static bool probe_leaf(WfWalk *w, WfVal v, const WfDim *ix, bool guarded)
{
    Probe *p = w->user;
    Fuse *f = p->f;
    int h = f->group_of[v];
    p->loads++;
    if (p->group >= 0 && !guarded) {
        struct {
            WfVal v;
            WfDim ix[WF_MAX_RANK];
        } key;
        memset(&key, 0, sizeof key);
        key.v = v;
        memcpy(key.ix, ix, (size_t)wf_rank_of(f->g, v) * sizeof *ix);
        if (p->record)
            wf_map_put_bytes(f->groups[p->group]->reads, &key, sizeof key, 1);
        else if (wf_rank_of(f->g, v))
            p->shares |= wf_map_get_bytes(f->groups[p->group]->reads, &key, sizeof key, NULL);
    }
    if (p->record)
        return true;
    if (h >= 0 && h == p->group) {
        const Group *grp = f->groups[h];
        int rank = wf_value(f->g, v)->rank;
        for (int m = 0; m < grp->n; m++) {
            if (grp->at[m].v != v)
                continue;
            if (guarded || memcmp(grp->at[m].ix, ix, (size_t)rank * sizeof *ix))
                return p->fits = false;
            p->touches = true;
        }
        return true;
    }
    if (h >= 0) {
        for (int i = 0; i < p->n_leaves; i++)
            if (p->leaves[i] == h)
                return true;
        if (p->n_leaves == 512)
            return p->fits = false;
        p->leaves[p->n_leaves++] = h;
    }
    return true;
}

static bool probe(Fuse *f, Probe *p, WfVal v, const WfDim *ix)
{
    WfWalk w = {.g = f->g, .stored = f->stored, .leaf = probe_leaf, .user = p};
    p->f = f;
    p->fits = true;
    const WfNode *n = node_of(f, v);
    if (n->op->family == WF_REDUCE) { /* ix is over the operand */
        WfVal x = wf_tensor(n, 0);
        if (f->stored[x]) {
            w.seen = wf_map_new(f->g->arena);
            return probe_leaf(&w, x, ix, false) && p->fits;
        }
        return wf_walk(&w, x, ix) && p->fits;
    }
    return wf_walk(&w, v, ix) && p->fits;
}

/* ---- loops ---- */

static void loop_vars(Fuse *f, Group *p, int rank, const WfDim *shape)
{
    p->rank = rank;
    for (int i = 0; i < rank; i++) {
        WfStr name = {.arena = f->g->arena};
        wf_str_printf(&name, "n%d_%llx", i, (unsigned long long)shape[i]);
        p->shape[i] = shape[i];
        p->var[i] = shape[i] == 1 ? 0 : wf_sym_bounded(f->e, name.at, shape[i]);
    }
    p->row_rank = rank;
    memcpy(p->row_shape, p->shape, sizeof p->shape);
    memcpy(p->row_ix, p->var, sizeof p->var);
}

static void set_reduced(Group *p, uint32_t mask)
{
    p->reduced = mask;
    p->row_rank = 0;
    for (int i = 0; i < p->rank; i++)
        if (!(mask >> i & 1)) {
            p->row_shape[p->row_rank] = p->shape[i];
            p->row_ix[p->row_rank++] = p->var[i];
        }
}

static uint32_t reduce_mask(const WfNode *n)
{
    uint32_t m = 0;
    for (int i = 0; i < n->args[1].n; i++)
        m |= 1u << n->args[1].ints[i];
    return m;
}

/* The fastest dimension of the first stored value that a reduction reads: reducing it makes a row kernel. */
static bool is_column(Fuse *f, const WfNode *n)
{
    WfVal x = wf_tensor(n, 0);
    const WfValue *v = wf_value(f->g, x);
    int fast = v->ordered ? v->order[v->rank - 1] : v->rank - 1;
    while (fast > 0 && v->shape[fast] == 1)
        fast--;
    return !(reduce_mask(n) >> fast & 1);
}

/* Index of shape's elements over the group's loops, full or row level, when the element counts agree. */
static bool candidate(Fuse *f, const Group *p, int rank, const WfDim *shape, bool row, WfDim *ix)
{
    int from = row ? p->row_rank : p->rank;
    const WfDim *fs = row ? p->row_shape : p->shape, *fi = row ? p->row_ix : p->var;
    if (from == rank && !memcmp(fs, shape, (size_t)rank * sizeof *shape)) {
        memcpy(ix, fi, (size_t)rank * sizeof *fi);
        return true;
    }
    WfDim a = 1, b = 1;
    for (int i = 0; i < from; i++)
        a = wf_emul(f->e, a, fs[i]);
    for (int i = 0; i < rank; i++)
        b = wf_emul(f->e, b, shape[i]);
    if (a != b)
        return false;
    wf_unflatten(f->e, rank, shape, wf_flatten(f->e, from, fs, fi), ix);
    return true;
}

/* Does index component d depend only on the loops of mask? */
static bool depends_within(Fuse *f, const Group *p, WfDim d, uint32_t mask)
{
    for (int i = 0; i < p->rank; i++)
        if (!(mask >> i & 1) && p->var[i] != 0 && wf_edepends(f->e, d, p->var[i]))
            return false;
    return true;
}

/* The loops that a reduction sums over when its operand is computed at ix; false if that mixes loops. */
static bool reduced_loops(Fuse *f, const Group *p, const WfNode *n, const WfDim *ix, uint32_t *mask)
{
    uint32_t m = reduce_mask(n), loops = 0;
    int rank = wf_rank_of(f->g, wf_tensor(n, 0));
    for (int i = 0; i < p->rank; i++)
        for (int d = 0; d < rank; d++)
            if ((m >> d & 1) && p->var[i] != 0 && wf_edepends(f->e, ix[d], p->var[i]))
                loops |= 1u << i;
    for (int d = 0; d < rank; d++)
        if (!depends_within(f, p, ix[d], m >> d & 1 ? loops : ~loops))
            return false;
    *mask = loops;
    return true;
}

/* ---- joining ---- */

static bool no_cycle(Fuse *f, const Probe *p, int id)
{
    for (int i = 0; i < p->n_leaves; i++)
        if (has(f->groups[p->leaves[i]], id))
            return false;
    return true;
}

/* v joins: computed at `at` (a reduction: its operand), canonical at ix. */
static void join(Fuse *f, int id, WfVal v, const WfDim *at, const WfDim *ix, bool row, const Probe *p)
{
    Probe record = {.group = id, .record = true};
    probe(f, &record, v, at);
    Group *grp = f->groups[id];
    Member *m = &grp->at[grp->n++];
    m->v = v;
    m->row = row;
    memcpy(m->ix, ix, (size_t)wf_rank_of(f->g, v) * sizeof *ix);
    grp->loads += p->loads;
    grp->closed = wf_fuse_rounds(node_of(f, v));
    f->group_of[v] = id;
    for (int i = 0; i < p->n_leaves; i++)
        add_ancestor(f, id, p->leaves[i]);
}

/* So little that living longer costs no memory worth a kernel of its own. */
static bool small(Fuse *f, const WfValue *x)
{
    int64_t n = 1, d;
    for (int i = 0; i < x->rank; i++)
        if (!wf_elit(f->e, x->shape[i], &d) || !wf_mul_ok(n, d, &n))
            return false;
    return n <= 1 << 14;
}

static bool try_reduce(Fuse *f, int id, WfVal v, bool column)
{
    Group *grp = f->groups[id];
    const WfNode *n = node_of(f, v);
    const WfValue *x = wf_value(f->g, wf_tensor(n, 0));
    WfDim ix[WF_MAX_RANK] = {0}, kept[WF_MAX_RANK];
    uint32_t loops;
    if (column != grp->column && grp->reduced)
        return false;
    if (column && !grp->reduced)
        return false;
    if (!candidate(f, grp, x->rank, x->shape, false, ix) || !reduced_loops(f, grp, n, ix, &loops))
        return false;
    if (grp->reduced && loops != grp->reduced)
        return false;
    Probe p = {.group = id};
    if (!probe(f, &p, v, ix) || !no_cycle(f, &p, id) || (!p.touches && !p.shares && !(column && small(f, x))))
        return false;
    if (!grp->reduced)
        set_reduced(grp, loops);
    int r = 0;
    uint32_t m = reduce_mask(n);
    for (int d = 0; d < x->rank; d++)
        if (!(m >> d & 1))
            kept[r++] = ix[d];
    join(f, id, v, ix, kept, true, &p);
    return true;
}

static bool try_pointwise(Fuse *f, int id, WfVal v, bool repeats)
{
    Group *grp = f->groups[id];
    const WfValue *x = wf_value(f->g, v);
    for (int row = 0; row < 2; row++) {
        WfDim ix[WF_MAX_RANK] = {0};
        if (row && !grp->reduced)
            return false;
        if (!row && grp->column && grp->reduced)
            continue; /* storing full tensors by columns would stride through memory */
        if (!candidate(f, grp, x->rank, x->shape, row, ix))
            continue;
        Probe p = {.group = id};
        /* updates of one parameter read the same gradient: one pass over it. What is computed again reads
         * what its gradient reads, and may take its place. Elsewhere sharing alone would only make values
         * live longer. */
        if (!probe(f, &p, v, ix) || !no_cycle(f, &p, id) ||
            !(p.touches || (p.shares && (grp->late || (grp->backward && !row && (repeats || grp->repeats))))))
            continue;
        join(f, id, v, ix, ix, row, &p);
        grp->repeats |= repeats && !row;
        return true;
    }
    return false;
}

static void place(Fuse *f, WfVal v)
{
    const WfNode *n = node_of(f, v);
    bool reduce = n->op->family == WF_REDUCE, column = reduce && is_column(f, n);
    bool repeats = !reduce && wf_fuse_recomputed(f, v, 0);
    /* newest groups first; a few dozen back is where partners are */
    for (int id = f->n_groups - 1, tried = 0; id >= 0 && tried < 64; id--, tried++) {
        Group *grp = f->groups[id];
        if (grp->library || grp->closed || grp->late != f->late[v] || grp->n == MAX_MEMBERS || grp->loads > 96)
            continue;
        if (reduce ? try_reduce(f, id, v, column) : try_pointwise(f, id, v, repeats))
            return;
    }
    Group *grp = new_group(f, false);
    int id = f->n_groups - 1;
    grp->late = f->late[v];
    grp->repeats = repeats;
    grp->backward = f->backward && wf_value(f->g, v)->node > f->backward;
    const WfValue *x = wf_value(f->g, reduce ? wf_tensor(n, 0) : v);
    loop_vars(f, grp, x->rank, x->shape);
    Probe p = {.group = -1};
    probe(f, &p, v, grp->var);
    WfDim ix[WF_MAX_RANK];
    memcpy(ix, grp->var, sizeof ix);
    if (reduce) {
        set_reduced(grp, reduce_mask(n));
        grp->column = column;
        memcpy(ix, grp->row_ix, sizeof ix);
    }
    join(f, id, v, grp->var, ix, reduce, &p);
}

static bool library_leaf(WfWalk *w, WfVal v, const WfDim *ix, bool guarded)
{
    (void)ix, (void)guarded;
    Probe *p = w->user;
    int h = p->f->group_of[v];
    if (h >= 0)
        add_ancestor(p->f, p->group, h);
    return true;
}

static void place_library(Fuse *f, const WfNode *n)
{
    new_group(f, true);
    int id = f->n_groups - 1;
    Group *grp = f->groups[id];
    WfVal in[WF_MAX_RESULTS];
    int k = wf_fuse_call_inputs(f->g, n, in);
    for (int j = 0; j < k; j++) {
        WfDim zero[WF_MAX_RANK] = {0};
        Probe p = {.f = f, .group = id};
        WfWalk w = {.g = f->g, .stored = f->stored, .leaf = library_leaf, .user = &p};
        if (f->stored[in[j]]) {
            w.seen = wf_map_new(f->g->arena);
            library_leaf(&w, in[j], zero, false);
        } else {
            wf_walk(&w, in[j], zero);
        }
    }
    for (int k2 = 0; k2 < n->n_out; k2++) {
        f->group_of[n->out + (WfVal)k2] = id;
        if (grp->n < MAX_MEMBERS)
            grp->at[grp->n++].v = n->out + (WfVal)k2;
    }
}

WfGraph *wf_fuse_group(WfPassEnv *env, WfGraph *g)
{
    (void)env;
    Fuse f = {.g = g, .e = g->exprs, .live = wf_live_nodes(g), .uses = wf_use_counts(g)};
    size_t n = (size_t)g->values.n;
    f.stored = WF_NEWN(g->arena, bool, n);
    f.cost = WF_NEWN(g->arena, int, n);
    f.pads = WF_NEWN(g->arena, int, n);
    f.reads = WF_NEWN(g->arena, WfLeaves, n);
    f.group_of = WF_NEWN(g->arena, int, n);
    memset(f.group_of, -1, n * sizeof(int));
    f.late = WF_NEWN(g->arena, bool, n);
    f.words = g->nodes.n / 64 + 1;
    find_late(&f);
    wf_fuse_decide_stores(&f);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *nd = wf_node(g, (WfNodeId)i);
        if (!f.live[i])
            continue;
        if (!f.backward && !strcmp(nd->schema->name, "prim.recompute"))
            f.backward = (WfNodeId)i;
        if (calls(nd))
            place_library(&f, nd);
        else
            for (int k = 0; k < nd->n_out; k++)
                if (f.stored[nd->out + (WfVal)k])
                    place(&f, nd->out + (WfVal)k);
    }
    return wf_fuse_build(&f);
}
