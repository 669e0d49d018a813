/* weave: what binds a step to memory and to other ranks. */
#ifndef WF_WEAVE_H
#define WF_WEAVE_H

#include "ir/ir.h"

/* Gives every value the memory order that the library kernels around it want, and copies where they cannot agree.
 * prim -> prim */
WfGraph *wf_weave_layout(WfPassEnv *env, WfGraph *g);

#endif
