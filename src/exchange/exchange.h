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

/* What torch.optim calls a state tensor of a parameter: "exp_avg", "momentum_buffer", ... */
const char *wf_optimizer_kind(const WfExeInput *in);

/* ---- checkpoints: layout and guarantees in checkpoint.c ---- */

/* Where a run stands. */
typedef struct {
    int64_t step;                /* steps done */
    int64_t samples, step_rows;  /* of the training data; rows of a step, all ranks and micro-batches together; 0: not known */
    int64_t epoch_steps;         /* steps of an epoch */
    int64_t total;               /* steps of the run: the length of its schedule */
    uint64_t data, recipe;       /* fingerprints of the training data and of what is done to them */
    char job[33];                /* which run it is; "": rank 0 makes one up at its first checkpoint */
    int64_t before;              /* steps that the optimiser had done when the run began (--optimizer-state) */
    const int64_t *micro_batch;  /* by rank: rows of the last step's micro-batches; NULL: always the same */
    double best;                 /* of the best evaluation: its score, more is better */
    const char *best_metric;     /* of what; NULL: there was none */
    int64_t best_step, stale;    /* after which step; evaluations since */
    bool evaluated;              /* there was one */
    bool evaluation_due;         /* the epoch is over, and its evaluation is still to come */
} WfMark;

/* The run that is kept: a session, its ranks (NULL: this process alone), what it was given, its folder, checkpoints that stay. What a
 * mark names lies in the arena. */
typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    const WfExe *exe;
    WfSession *session;
    WfComm *comm;
    const WfOptions *options;
    const char *folder;
    int keep;
} WfRun;

/* Writes FOLDER/checkpoints/step-N of all ranks; every rank calls it. Raises WEFT_ERR_IO; earlier checkpoints are untouched then. */
void wf_checkpoint_save(const WfRun *t, WfMark *m);
/* Restores the newest whole checkpoint of the folder; every rank calls it, after the ranks agreed. False: there is none, nothing was
 * changed. Raises WEFT_ERR_USAGE when the newest is of another run (*m says what this one is: samples, 0 where the caller visits
 * them, step_rows, epoch_steps). */
bool wf_checkpoint_load(const WfRun *t, WfMark *m);

/* The steps of a folder's checkpoints, newest first; returns how many. */
int wf_checkpoint_list(WfArena *a, const char *folder, int64_t **steps);

/* The options that shape what a run learns, as members of a JSON object: `"options": {"lr": "0.001", ..}, `. */
void wf_origin_print(const WfRun *t, WfStr *out);
/* Says which of them differ from those of a checkpoint (WfJson: the object). */
void wf_origin_compare(const WfRun *t, const WfJson *was);

#endif
