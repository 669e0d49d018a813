/* From groups to the loop level. A group becomes one nest whose body holds its members and what they compute
 * from stored values of other groups; only members that leave the group are results. The views between stored
 * values and library operands stay as nodes. */
#include "fuse/group.h"

#include <string.h>

typedef struct {
    Fuse *f;
    WfGraph *to;
    WfVal *map, *local;
    bool *kept;
} Build;

/* Which members leave their group: read by another group, a library call through views, or an output. */
typedef struct {
    Fuse *f;
    int group;
    bool *out;
} Escape;

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
        int k = calls(n) ? wf_fuse_call_inputs(g, n, in) : wf_operands(n, in, WF_MAX_RESULTS);
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

WfGraph *wf_fuse_build(Fuse *f)
{
    WfGraph *g = f->g;
    size_t n = (size_t)g->values.n;
    Build b = {.f = f, .to = wf_graph_like(g, WF_LOOP)};
    b.to->expand = false;
    b.map = WF_NEWN(g->arena, WfVal, n);
    b.local = WF_NEWN(g->arena, WfVal, n);
    b.kept = WF_NEWN(g->arena, bool, n);
    find_escapes(f, b.kept);
    wf_copy_inputs(g, b.to, b.map);
    for (int id = 0; id < f->n_groups; id++)
        emit_group(&b, id);
    wf_copy_outputs(g, b.to, b.map);
    return b.to;
}
