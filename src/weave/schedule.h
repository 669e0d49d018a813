/* Private to weave: a loop-level graph written anew in another order, collectives in pairs. */
#ifndef WF_WEAVE_SCHEDULE_H
#define WF_WEAVE_SCHEDULE_H

#include "weave/weave.h"

/* Copies node n as it is, with its results' types, orders and names. */
void wf_weave_copy_raw(const WfGraph *from, const WfNode *n, WfGraph *to, WfVal *map);

#endif
