/* plan: calls in order, buffers with lifetimes. From a graph of level loop to an executable's program. */
#ifndef WF_PLAN_H
#define WF_PLAN_H

#include "exe/exe.h"
#include "ir/ir.h"

/* What must be known of a generated kernel (filled by emit). */
typedef struct {
    const char *name;        /* its C function */
    WfDim tiles, elements;
    bool *inplace;           /* [output * inputs + input]: may the result take over that input's memory? */
    bool *by_tile;           /* by input: does tile t read only the t-th of `tiles` equal parts of its memory? */
    const WfExeCheck *checks; /* its k-th run-time check */
    int n_checks;
} WfKernelInfo;

/* Fills x->symbols, once: every symbol of the arguments' sizes and the dimension that tells its value. Raises when a
 * symbol stands in no size alone or as a multiple plus a constant. */
void wf_plan_symbols(WfPassEnv *env, const WfGraph *g, WfExe *x);

/* What a check node (prim.check, prim.gather) inside the nest checks, for WfKernelInfo. */
WfExeCheck wf_plan_check(WfGraph *g, const WfNode *nest, const WfNode *check);

/* Makes program `kind` of x from g. kernel[id] describes nest node id. Buffers of graph inputs are added to x->inputs
 * by name, so that programs share them. */
void wf_plan_program(WfPassEnv *env, WfGraph *g, WfKernelInfo *const *kernel, WfExe *x, WfProgramKind kind);

#endif
