/* The compiler as a whole: from a model to an executable. */
#ifndef WF_PIPELINE_H
#define WF_PIPELINE_H

#include "exe/exe.h"
#include "ir/ir.h"

/* Compiles graph g (level aten, func or op) for the options. Weights stay with the caller: x->weights is NULL. The
 * kernel cache lies below cache_dir (NULL: none). */
WfExe *wf_compile(WfCtx *ctx, WfArena *a, WfGraph *g, const WfOptions *o, const char *cache_dir);
/* The graph after the named pass ("" or NULL: as given), for `weft graph --after`. `eval`: of the evaluation form. */
WfGraph *wf_compile_until(WfCtx *ctx, WfArena *a, WfGraph *g, const WfOptions *o, const char *after, bool eval);
/* One pass, by its name, over a graph of the level that it takes; then the verifier. `weft opt`. */
WfGraph *wf_run_pass(WfCtx *ctx, WfArena *a, WfGraph *g, const WfOptions *o, const char *name);
extern const WfPass wf_pipeline[];   /* ends with a NULL name */

#endif
