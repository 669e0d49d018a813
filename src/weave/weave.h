/* weave: what binds a step to memory and to other ranks. */
#ifndef WF_WEAVE_H
#define WF_WEAVE_H

#include "ir/ir.h"

/* Gives every value the memory order that the library kernels around it want, and copies where they cannot agree.
 * prim -> prim */
WfGraph *wf_weave_layout(WfPassEnv *env, WfGraph *g);

/* Data parallelism: every gradient is reduced over the ranks before anything reads it, buffers that a step changes are
 * agreed before it. joint -> joint */
WfGraph *wf_weave_replicate(WfPassEnv *env, WfGraph *g);

/* Collectives become start/wait pairs over buckets, each as soon as its tensors are there. loop -> loop */
WfGraph *wf_weave_bucket(WfPassEnv *env, WfGraph *g);

/* Waits move behind everything that does not read what they wait for. loop -> loop */
WfGraph *wf_weave_overlap(WfPassEnv *env, WfGraph *g);

/* Seconds that a node of level loop takes on one thread: from its FLOPs and the bytes that it moves, under values of the
 * symbols by id. */
double wf_weave_seconds(WfGraph *g, const WfMachine *m, const WfNode *n, const int64_t *symbols);
/* Multiplications and additions of all products, convolutions, attentions and recurrent layers of a graph of level prim. */
double wf_weave_flops(WfGraph *g, const int64_t *symbols);
/* Values that the symbols have when nobody says: the export's example's, else some. */
int64_t *wf_weave_usual(WfGraph *g);

/* Seconds that a start's tensors travel over the link, or those that a collective, alone, would. Sizes that are not known
 * before the run count as a thousand elements. */
double wf_weave_travel(WfGraph *g, const WfLink *link, const WfNode *n);

/* Raises when a collective names a group that is not declared (--group), or one of another size than it says. */
void wf_weave_groups(WfPassEnv *env, WfGraph *g);

/* Raises when a start has no wait or several, a wait waits for what was not started, or a tensor in flight is read, or
 * memory that a collective took over is used again. */
void wf_weave_check(WfGraph *g);

#endif
