/* exchange: weights and optimiser state between a session and files that other programs write and read. docs/exchange.md is
 * the formats' description. */
#ifndef WF_EXCHANGE_H
#define WF_EXCHANGE_H

#include "run/run.h"

/* Weights as one table: a safetensors file; or an index (`*.index.json`, as Hugging Face writes them: {"metadata": {..},
 * "weight_map": {tensor: file}}) with the files that it names, each of which lies beside it and is opened once; or a folder
 * that holds model.safetensors.index.json or model.safetensors. Raises WEFT_ERR_IO, and WEFT_ERR_FILE for what is damaged
 * or contradicts the index. */
WfTensors *wf_weights_open(WfCtx *ctx, WfArena *a, const char *path);

/* A tensor that a model wants from a file, under its name or one of the others of a tied one. */
typedef struct {
    const char *name;
    const char *const *aliases;
    int n_aliases;
    WfDtype dtype;
    int rank;
    int64_t shape[8];
    const WfTensor *from;    /* set by wf_weights_fit; NULL: the file has none */
} WfWanted;

/* Finds what is wanted. Raises WEFT_ERR_FILE with a list of all that does not fit: another shape or dtype (floating-point
 * types fit each other), names of a tied tensor with different values, and, under `strict`, tensors that are missing or
 * unexpected; without it these are logged and left. `what`: "weights", "optimiser state". */
void wf_weights_fit(WfCtx *ctx, const WfTensors *file, WfWanted *w, int n, bool strict, const char *what);
/* Writes what was found to `to`, in the wanted dtype: floating-point values rounded once, to nearest even. */
void wf_weights_copy(const WfWanted *w, void *to);
/* Says how many of the tensors were converted, if any were. */
void wf_weights_tell(WfCtx *ctx, const WfTensors *file, const WfWanted *w, int n);

/* Parameters and persistent buffers of a session, from wf_weights_open's formats. Nothing changes unless all fits. */
void wf_weights_load(WfCtx *ctx, const WfExe *x, WfSession *s, const char *path, bool strict);
/* To one safetensors file, atomically, under every name, tied ones too. */
void wf_weights_save(WfCtx *ctx, const WfExe *x, WfSession *s, const char *path);

/* The optimiser's state and the number of steps that it has done: tensors `exp_avg/fc.weight` and the i64 scalar `step`. */
void wf_optimizer_load(WfCtx *ctx, const WfExe *x, WfSession *s, const char *path, bool strict);
void wf_optimizer_save(WfCtx *ctx, const WfExe *x, WfSession *s, const char *path);

#endif
