/* Grouping. First it is decided which values are stored: library operands and results, reductions, outputs, and
 * pointwise values that several kernels would have to compute again at a real cost; all else is computed inside the
 * kernels that use it. Then every stored value is placed, in topological order, into an existing group whose loops
 * produce it at the same loop point, or into a group of its own. A group has loops over one full shape, some of them
 * reduced; a value in it has a *canonical index* over those loops. Joining is allowed only if everything the
 * newcomer reads of the group is read exactly at its canonical index, and if no path through another group leads
 * back (groups keep the set of their ancestors). */
#include "fuse/fuse.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define MAX_MEMBERS 48
#define REPEAT_COST 32   /* operations that are cheaper to repeat than to store and load */
#define REPEAT_READS 2   /* loads beyond the one of a stored value, over all further users */
#define MAX_COST 400     /* above this a value is stored even for one user: code size */
#define MAX_PADS 10      /* bounds to be checked around one load: emit's limit, less a reader's own */

typedef struct { WfVal v; WfDim ix[WF_MAX_RANK]; bool row; } Member;

typedef struct {
    int rank;                    /* the loops: the full shape */
    WfDim shape[WF_MAX_RANK], var[WF_MAX_RANK];
    WfDim row_shape[WF_MAX_RANK], row_ix[WF_MAX_RANK];
    int row_rank;
    uint32_t reduced;            /* loops that are summed over; 0: pointwise */
    bool column;                 /* the fastest loop is kept */
    bool library, late;
    bool backward;               /* its first member belongs to the backward pass */
    bool repeats;                /* holds what the backward pass computes again */
    Member at[MAX_MEMBERS];
    int n, loads;
    uint64_t *ancestors;
    WfMap *reads;                /* (value, index) of every stored value that members read */
    bool done;
} Group;

typedef struct {
    WfGraph *g;
    WfExprs *e;
    int *uses;
    bool *live;
    bool *stored, *late;         /* late: leads to new state only, so belongs behind the commit point */
    int *cost;                   /* by value: operations to compute it from stored values, ... */
    int *pads;                   /* and bounds that paddings and joins check on the way to them */
    WfLeaves *reads;             /* ... and which stored values of about its size that reads */
    int *group_of;               /* by value; -1 none */
    Group **groups;
    int n_groups, cap_groups;
    int words;
    WfNodeId backward;           /* the first node of the backward pass that is known for one; 0: none */
} Fuse;

static const WfNode *node_of(const Fuse *f, WfVal v) { return wf_producer(f->g, v); }

/* ---- what is stored ---- */

/* Computed by one call on stored values. */
static bool calls(const WfNode *n) { return n->op->family == WF_LIBRARY || n->op->family == WF_COLLECTIVE; }

static bool through(const WfNode *n) { return n && n->op->family == WF_VIEW; }

/* The values that a library call reads, as its kernel wants them (constants that it makes itself left out). */
static int call_inputs(WfGraph *g, const WfNode *n, WfVal *in)
{
    WfLibraryCall c = {0};
    int k = 0;
    if (n->op->family == WF_COLLECTIVE)
        return wf_operands(n, in, WF_MAX_RESULTS);
    n->op->describe(g, n, &c);
    for (int i = 0; i < c.n; i++)
        if (c.at[i].v && c.at[i].v != WF_STATUS && (c.at[i].v < n->out || c.at[i].v >= n->out + (WfVal)n->n_out))
            in[k++] = c.at[i].v;
    return k;
}

/* Marks the value behind single-operand views as stored when it computes something: the library reads it in place. */
static void store_operand(Fuse *f, WfVal v)
{
    while (through(node_of(f, v)) && wf_operand_count(node_of(f, v)) == 1)
        v = wf_tensor(node_of(f, v), 0);
    f->stored[v] = true;
}

static int own_cost(const WfNode *n)
{
    const char *c = n->op->c_float ? n->op->c_float : n->op->c_int ? n->op->c_int : "";
    if (n->op->family == WF_GATHER)
        return 3;
    if (n->op->family == WF_SOURCE)
        return strcmp(n->schema->name, "prim.rand") ? 0 : 20;
    if (n->op->family != WF_POINTWISE)
        return 0;
    if (!strncmp(c, "exp_", 4) || !strncmp(c, "log", 3) || !strncmp(c, "tanh", 4) || !strncmp(c, "sigmoid", 7))
        return 6;
    if (!strncmp(c, "erf", 3) || !strncmp(c, "sin", 3) || !strncmp(c, "cos", 3) || !strncmp(c, "pow", 3) ||
        strstr(c, "div_") || strstr(c, "rem_") || strstr(c, "atan") || strstr(c, "asin") || strstr(c, "acos"))
        return 10;
    return strcmp(c, "%0") ? 1 : 0;
}

/* Is v, between stored values, computed a second time for the backward pass (see grad/remat)? */
static bool recomputed(const Fuse *f, WfVal v, int depth)
{
    const WfNode *n = node_of(f, v);
    WfVal in[WF_MAX_RESULTS];
    if (!n || depth > 24 || (n->op->family != WF_POINTWISE && !through(n)))
        return false;
    if (!strcmp(n->schema->name, "prim.recompute"))
        return true;
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        if (in[i] && !f->stored[in[i]] && recomputed(f, in[i], depth + 1))
            return true;
    return false;
}

/* A view that makes many reads of one element: computing behind it again and again must be cheap. */
static int repeats(Fuse *f, const WfNode *n)
{
    int64_t from, to;
    if (!through(n) || wf_operand_count(n) != 1)
        return 1;
    if (!wf_elit(f->e, wf_numel(f->g, wf_tensor(n, 0)), &from) || !wf_elit(f->e, wf_numel(f->g, n->out), &to))
        return 4;
    return from && to > from ? (int)(to / from > 64 ? 64 : to / from) : 1;
}

/* 1 when reading a costs about as much memory traffic as reading b: not for rows, biases and numbers. */
static int comparable(Fuse *f, WfVal a, WfVal b)
{
    int64_t x, y;
    if (!wf_elit(f->e, wf_numel(f->g, a), &x) || !wf_elit(f->e, wf_numel(f->g, b), &y))
        return wf_rank_of(f->g, a) >= wf_rank_of(f->g, b);
    return x >= y / 8;
}

/* Counts the bounds to be checked; an operand behind too many (a mask that was written slice by slice) is stored. */
static void count_pads(Fuse *f, const WfNode *n, const WfVal *in, int k)
{
    int own = 0, most = 0;
    if (through(n)) {
        WfIndex ix = {0};
        n->op->index(f->g, n, &ix);
        own = ix.n_guards;
    }
    for (int j = 0; j < k; j++) {
        if (f->pads[in[j]] && own + f->pads[in[j]] > MAX_PADS) {
            f->stored[in[j]] = true;
            f->pads[in[j]] = f->cost[in[j]] = 0;
        }
        most = f->pads[in[j]] > most ? f->pads[in[j]] : most;
    }
    f->pads[n->out] = own + most;
}

static void decide_stores(Fuse *f)
{
    WfGraph *g = f->g;
    WfVal in[WF_MAX_RESULTS];
    for (int i = 0; i < g->inputs.n; i++)
        f->stored[g->inputs.at[i].val] = true;
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val)
            f->stored[g->outputs.at[i].val] = true;
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!f->live[i])
            continue;
        if (n->op->family == WF_REDUCE || calls(n))
            for (int k = 0; k < n->n_out; k++)
                f->stored[n->out + (WfVal)k] = true;
        if (calls(n)) {
            int k = call_inputs(g, n, in);
            for (int j = 0; j < k; j++)
                store_operand(f, in[j]);
        }
    }
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!f->live[i] || n->op->family == WF_REDUCE || calls(n))
            continue;
        int k = wf_operands(n, in, WF_MAX_RESULTS), cost = own_cost(n), times = repeats(f, n);
        count_pads(f, n, in, k);
        WfLeaves *reads = &f->reads[n->out];
        for (int j = 0; j < k; j++) {
            const WfLeaves self = {1, {in[j]}}, *below = f->stored[in[j]] ? &self : &f->reads[in[j]];
            for (int q = 0; q < below->n; q++) /* what is small beside this result costs nothing */
                if (comparable(f, below->at[q], n->out))
                    wf_leaves_add(reads, below->at[q]);
            if (!f->stored[in[j]]) {
                if (times > 1 && f->cost[in[j]] > 0 && f->cost[in[j]] * times > REPEAT_COST &&
                    node_of(f, in[j])->op->family != WF_SOURCE) {
                    store_operand(f, in[j]);
                    if (f->stored[in[j]])
                        continue;
                }
                cost += f->cost[in[j]];
            }
        }
        f->cost[n->out] = cost > 100000 ? 100000 : cost;
        int more = f->uses[n->out] - 1;
        /* a reduction's result that is only wanted narrower is stored narrow */
        const WfNode *from = n->op->family == WF_POINTWISE && k == 1 ? node_of(f, in[0]) : NULL;
        if (from && from->op->family == WF_REDUCE && f->uses[in[0]] == 1 &&
            wf_dtype_size(wf_dtype_of(f->g, n->out)) < wf_dtype_size(wf_dtype_of(f->g, in[0])))
            f->stored[n->out] = true;
        bool computes = n->op->family == WF_POINTWISE || n->op->family == WF_GATHER;
        if (computes && (cost > MAX_COST || reads->n == WF_LEAVES || cost * (more > 2 ? 2 : more) > REPEAT_COST || (reads->n - 1) * more > REPEAT_READS))
            f->stored[n->out] = true;
        if (f->stored[n->out])
            f->cost[n->out] = f->pads[n->out] = 0;
    }
}

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

static bool has(const Group *p, int id) { return p->ancestors[id >> 6] >> (id & 63) & 1; }

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
    int group;                   /* the group it wants to join; -1: none */
    bool fits;
    bool touches;                /* reads a member of the group */
    bool shares;                 /* reads a stored value at an index at which a member reads it */
    bool record;                 /* write down what is read, in the group's map */
    int loads;
    int leaves[512], n_leaves;   /* groups that it reads from */
} Probe;

static bool probe_leaf(WfWalk *w, WfVal v, const WfDim *ix, bool guarded)
{
    Probe *p = w->user;
    Fuse *f = p->f;
    int h = f->group_of[v];
    p->loads++;
    if (p->group >= 0 && !guarded) {
        struct { WfVal v; WfDim ix[WF_MAX_RANK]; } key;
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
        /* updates of one parameter read the same gradient: one pass over it. What is computed again reads what its
         * gradient reads, and may take its place. Elsewhere sharing alone would only make values live longer. */
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
    bool repeats = !reduce && recomputed(f, v, 0);
    /* newest groups first; a few dozen back is where partners are */
    for (int id = f->n_groups - 1, tried = 0; id >= 0 && tried < 64; id--, tried++) {
        Group *grp = f->groups[id];
        if (grp->library || grp->late != f->late[v] || grp->n == MAX_MEMBERS || grp->loads > 96)
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
    int k = call_inputs(f->g, n, in);
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

/* ---- building the loop level ---- */

typedef struct { Fuse *f; WfGraph *to; WfVal *map, *local; bool *kept; } Build;

/* Which members leave their group: read by another group, a library call through views, or an output. */
typedef struct { Fuse *f; int group; bool *out; } Escape;

static bool escape_leaf(WfWalk *w, WfVal v, const WfDim *ix, bool guarded)
{
    (void)ix, (void)guarded;
    Escape *x = w->user;
    if (x->f->group_of[v] >= 0 && x->f->group_of[v] != x->group)
        x->out[v] = true;
    return true;
}

static void find_escapes(Fuse *f, bool *out)
{
    WfGraph *g = f->g;
    WfDim zero[WF_MAX_RANK] = {0};
    for (int i = 0; i < g->outputs.n; i++)
        out[g->outputs.at[i].val] = true;
    for (WfVal v = 1; v < (WfVal)g->values.n; v++) {
        const WfNode *n = node_of(f, v);
        if (f->group_of[v] < 0 || !n)
            continue;
        Escape x = {.f = f, .group = f->group_of[v], .out = out};
        WfWalk w = {.g = g, .stored = f->stored, .leaf = escape_leaf, .user = &x};
        WfVal in[WF_MAX_RESULTS];
        int k = calls(n) ? call_inputs(g, n, in) : wf_operands(n, in, WF_MAX_RESULTS);
        for (int j = 0; j < k; j++) {
            if (!in[j])
                continue;
            w.seen = wf_map_new(g->arena);
            if (f->stored[in[j]])
                escape_leaf(&w, in[j], zero, false);
            else
                wf_walk(&w, in[j], zero);
        }
    }
}

/* Copies the computation of v into the body; stored values of other groups become body inputs. */
static WfVal body_value(Build *b, WfGraph *body, WfMap *inner, WfVal v, int group, WfVal *ins, int *n_in)
{
    int64_t hit;
    if (wf_map_get_bytes(inner, &v, sizeof v, &hit))
        return (WfVal)hit;
    Fuse *f = b->f;
    const WfNode *n = node_of(f, v);
    WfVal r;
    if (!n || (f->stored[v] && f->group_of[v] != group)) {
        const WfValue *x = wf_value(f->g, v);
        r = wf_add_input(body, WF_IN_USER, "a", x->dtype, x->rank, x->shape);
        WfValue *y = wf_value(body, r);
        y->ordered = x->ordered;
        memcpy(y->order, x->order, sizeof y->order);
        ins[(*n_in)++] = v;
    } else {
        WfVal in[WF_MAX_RESULTS];
        int k = wf_operands(n, in, WF_MAX_RESULTS);
        WfVal mapped[WF_MAX_RESULTS];
        for (int j = 0; j < k; j++)
            mapped[j] = in[j] ? body_value(b, body, inner, in[j], group, ins, n_in) : 0;
        for (int j = 0; j < k; j++)
            if (in[j])
                b->local[in[j]] = mapped[j];
        wf_copy_node(f->g, n, body, b->local);
        r = b->local[v];
    }
    wf_map_put_bytes(inner, &v, sizeof v, r);
    return r;
}

static void build_nest(Build *b, int id)
{
    Fuse *f = b->f;
    Group *grp = f->groups[id];
    WfGraph *body = wf_graph_like(f->g, WF_PRIM);
    body->expand = false;
    WfMap *inner = wf_map_new(f->g->arena);
    WfVal *ins = WF_NEWN(f->g->arena, WfVal, 4096);
    WfVal outs[MAX_MEMBERS];
    int n_in = 0, n_out = 0;
    for (int m = 0; m < grp->n; m++) {
        WfVal v = grp->at[m].v;
        WfVal r = body_value(b, body, inner, v, id, ins, &n_in);
        const WfValue *x = wf_value(f->g, v);
        wf_value(body, r)->ordered = x->ordered;
        memcpy(wf_value(body, r)->order, x->order, sizeof x->order);
        if (b->kept[v]) {
            outs[n_out++] = v;
            wf_add_output(body, WF_OUT_USER, "", r, 0);
        }
    }
    if (!n_out)
        return;
    WfVal *mapped = WF_NEWN(f->g->arena, WfVal, (size_t)n_in + 1);
    for (int i = 0; i < n_in; i++)
        mapped[i] = b->map[ins[i]];
    WfDim reduced[WF_MAX_RANK];
    int n_reduced = 0;
    for (int i = 0; i < grp->rank; i++)
        if (grp->reduced >> i & 1)
            reduced[n_reduced++] = i;
    WfArg args[4] = {{.kind = WF_ARG_TENSORS, .n = n_in, .vals = mapped},
                     {.kind = WF_ARG_GRAPH, .graph = body},
                     {.kind = WF_ARG_INTS, .n = grp->rank, .ints = grp->shape},
                     {.kind = WF_ARG_INTS, .n = n_reduced, .ints = reduced}};
    b->to->source = node_of(f, outs[n_out - 1])->source;
    WfNode *nest = wf_append_raw(b->to, wf_op_find("loop.nest"), args, n_out);
    for (int i = 0; i < n_out; i++) {
        const WfValue *x = wf_value(f->g, outs[i]);
        WfVal r = nest->out + (WfVal)i;
        wf_set_result(b->to, nest, i, x->dtype, x->rank, x->shape);
        wf_value(b->to, r)->ordered = x->ordered;
        memcpy(wf_value(b->to, r)->order, x->order, sizeof x->order);
        if (x->name)
            wf_name_value(b->to, r, x->name);
        b->map[outs[i]] = r;
    }
}

/* The views between a stored value and a library operand stay as nodes. */
static WfVal view_value(Build *b, WfVal v)
{
    if (b->map[v])
        return b->map[v];
    const WfNode *n = node_of(b->f, v);
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int j = 0; j < k; j++)
        if (in[j])
            view_value(b, in[j]);
    wf_copy_node(b->f->g, n, b->to, b->map);
    return b->map[v];
}

static void build_library(Build *b, int id)
{
    Fuse *f = b->f;
    const WfNode *n = node_of(f, f->groups[id]->at[0].v);
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int j = 0; j < k; j++)
        if (in[j])
            view_value(b, in[j]);
    wf_copy_node(f->g, n, b->to, b->map);
    for (int i = 0; i < n->n_out; i++) {
        const WfValue *x = wf_value(f->g, n->out + (WfVal)i);
        WfValue *y = wf_value(b->to, b->map[n->out + (WfVal)i]);
        y->ordered = x->ordered;
        memcpy(y->order, x->order, sizeof x->order);
    }
}

static void emit_group(Build *b, int id)
{
    Fuse *f = b->f;
    Group *grp = f->groups[id];
    if (grp->done)
        return;
    grp->done = true;
    for (int h = 0; h < f->n_groups; h++)
        if (has(grp, h))
            emit_group(b, h);
    if (grp->library)
        build_library(b, id);
    else
        build_nest(b, id);
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
    decide_stores(&f);
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
    Build b = {.f = &f, .to = wf_graph_like(g, WF_LOOP)};
    b.to->expand = false;
    b.map = WF_NEWN(g->arena, WfVal, n);
    b.local = WF_NEWN(g->arena, WfVal, n);
    b.kept = WF_NEWN(g->arena, bool, n);
    find_escapes(&f, b.kept);
    wf_copy_inputs(g, b.to, b.map);
    for (int id = 0; id < f.n_groups; id++)
        emit_group(&b, id);
    wf_copy_outputs(g, b.to, b.map);
    return b.to;
}
