/* Private to ops: the families, and what their files share. */
#ifndef WF_OPS_PRIVATE_H
#define WF_OPS_PRIVATE_H
#include "ops/ops.h"

#define WF_FAMILY(name) void wf_ops_##name(void);
#include "ops/ops.list"
#undef WF_FAMILY

/* True, with the number, when v is a constant fill (through views). */
bool wf_constant(WfGraph *g, WfVal v, double *out);

#endif
