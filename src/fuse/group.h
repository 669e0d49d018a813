/* Private to fuse: groups of values that share a kernel, while they are made. group_stores.c decides what is
 * stored, group.c places stored values into groups, group_build.c makes the graph of level loop from them. */
#ifndef WF_FUSE_GROUP_H
#define WF_FUSE_GROUP_H

#include "fuse/fuse.h"
#include "ops/ops.h"

#define MAX_MEMBERS 48

typedef struct {
    WfVal v;
    WfDim ix[WF_MAX_RANK];
    bool row;
} Member;

typedef struct {
    int rank; /* the loops: the full shape */
    WfDim shape[WF_MAX_RANK], var[WF_MAX_RANK];
    WfDim row_shape[WF_MAX_RANK], row_ix[WF_MAX_RANK];
    int row_rank;
    uint32_t reduced; /* loops that are summed over; 0: pointwise */
    bool column;      /* the fastest loop is kept */
    bool library, late;
    bool backward; /* its first member belongs to the backward pass */
    bool closed;   /* ends with a value that is stored for its bits: nothing joins behind it */
    bool repeats;  /* holds what the backward pass computes again */
    Member at[MAX_MEMBERS];
    int n, loads;
    uint64_t *ancestors;
    WfMap *reads; /* (value, index) of every stored value that members read */
    bool done;
} Group;

typedef struct {
    WfGraph *g;
    WfExprs *e;
    int *uses;
    bool *live;
    bool *stored, *late; /* late: leads to new state only, so belongs behind the commit point */
    int *cost;           /* by value: operations to compute it from stored values, ... */
    int *pads;           /* and bounds that paddings and joins check on the way to them */
    WfLeaves *reads;     /* ... and which stored values of about its size that reads */
    int *group_of;       /* by value; -1 none */
    Group **groups;
    int n_groups, cap_groups;
    int words;
    WfNodeId backward; /* the first node of the backward pass that is known for one; 0: none */
} Fuse;

static inline const WfNode *node_of(const Fuse *f, WfVal v)
{
    return wf_producer(f->g, v);
}

/* Computed by one call on stored values. */
static inline bool calls(const WfNode *n)
{
    return n->op->family == WF_LIBRARY || n->op->family == WF_COLLECTIVE;
}

/* Must group `id` run before p? */
static inline bool has(const Group *p, int id)
{
    return p->ancestors[id >> 6] >> (id & 63) & 1;
}

/* Fills `stored` and what it is decided by: cost, pads, reads. */
void wf_fuse_decide_stores(Fuse *f);
/* The values that a library call reads, as its kernel wants them (constants that it makes itself left out);
 * returns how many. */
int wf_fuse_call_inputs(WfGraph *g, const WfNode *n, WfVal *in);
/* prim.rounded: stored, and the last of its kernel, so that what computes it does not depend on what reads it. */
bool wf_fuse_rounds(const WfNode *n);
/* Is v, between stored values, computed a second time for the backward pass (see grad/remat)? depth: 0. */
bool wf_fuse_recomputed(const Fuse *f, WfVal v, int depth);

/* The loop level: a nest or a library call for every group, in an order that respects what they read. */
WfGraph *wf_fuse_build(Fuse *f);

#endif
