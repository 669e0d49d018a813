/* fuse: which primitives share a kernel. A graph of level prim becomes one of level loop: every computing node is
 * inside a `loop.nest` (a sub-graph that becomes one generated kernel) or is a library call; views stay as nodes and
 * cost nothing. */
#ifndef WF_FUSE_H
#define WF_FUSE_H

#include "ir/ir.h"

/* Splits long reductions with few results into two, so that they can be spread over threads: the cut depends on the
 * shapes only. prim -> prim */
WfGraph *wf_fuse_split(WfPassEnv *env, WfGraph *g);
/* Groups primitives into loop nests. prim -> loop */
WfGraph *wf_fuse_group(WfPassEnv *env, WfGraph *g);

/* ---- index tracing: from a value's index down to the stored values it reads ---- */

typedef struct WfWalk WfWalk;
struct WfWalk {
    WfGraph *g;
    const bool *stored;        /* by value: where the walk ends (graph inputs always do) */
    /* A stored value is read at ix; guarded: only where a view's guards hold. Returns false to end the walk. */
    bool (*leaf)(WfWalk *w, WfVal v, const WfDim *ix, bool guarded);
    void *user;
    WfMap *seen;
    int steps;
};
/* Walks from v (itself not taken as a leaf) at index ix. False when leaf() ended it. */
bool wf_walk(WfWalk *w, WfVal v, const WfDim *ix);
/* Row-major flat position of ix in v's shape, and back. */
WfDim wf_flatten(WfExprs *e, int rank, const WfDim *shape, const WfDim *ix);
void wf_unflatten(WfExprs *e, int rank, const WfDim *shape, WfDim flat, WfDim *ix);

#endif
