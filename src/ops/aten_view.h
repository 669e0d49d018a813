/* Private to ops: what the files of the view family share. */
#ifndef WF_OPS_ATEN_VIEW_H
#define WF_OPS_ATEN_VIEW_H
#include "ops/ops_private.h"

typedef struct {
    WfDim start, end;
    int64_t step;
} WfRange; /* 0 <= start <= end <= size */

void wf_need_rank(WfGraph *g, const WfNode *n, int rank);       /* raises above WF_MAX_RANK */
int wf_dim_arg(WfGraph *g, const WfNode *n, int arg, int rank); /* a literal dimension number, wrapped */
/* Python's slice of a dimension: bounds from three arguments, wrapped and clamped. */
WfRange wf_slice_range(WfGraph *g, const WfNode *n, int start, int end, int step, WfDim size);
WfDim wf_select_index(WfGraph *g, const WfNode *n, int arg, WfDim size);
WfVal wf_atleast(WfGraph *g, WfVal v, int rank); /* torch.atleast_{1,2,3}d */
WfVal wf_diagonal(WfGraph *g, const WfNode *n, WfVal v, int64_t offset, int dim1,
                  int dim2); /* new last dimension */

#endif
