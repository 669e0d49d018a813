/* run: executes an executable. A session owns the state (weights, buffers, optimiser state), the slab and the threads;
 * per binding of the symbols it holds offsets, library primitives and pointers, made once. Stepping allocates
 * nothing. */
#ifndef WF_RUN_H
#define WF_RUN_H

#include "comm/comm.h"
#include "exe/exe.h"
#include "kernels/kernels.h"

typedef struct WfSession WfSession;

/* Where start values come from: writes the dense value of the named tensor to `to`; false: unknown name. */
typedef struct { bool (*fn)(void *user, const char *name, void *to, size_t bytes); void *user; } WfWeightSource;

/* threads 0: as many as the machine has. Weights come from `weights` (fn may be NULL), else from x->weights, else they
 * are zeros; optimiser state starts at its fill. isa: the highest level that it may run at (WfIsaLevel; 0: any); the
 * executable and the machine may allow less. */
WfSession *wf_session_new(WfCtx *ctx, const WfExe *x, int threads, int isa, WfWeightSource weights);
void wf_session_free(WfSession *s);      /* NULL is fine; also done by the context */

/* Makes the session a rank of the world, before its first step: its gradients are reduced with those of the others. */
void wf_session_join(WfSession *s, WfComm *comm);
/* Takes rank 0's weights, buffers and optimiser state. Every rank calls it. */
void wf_session_sync(WfSession *s);
/* Compares the weights, buffers and optimiser state of all ranks; raises WEFT_ERR_RANK naming the first tensor that
 * differs and the ranks that differ from rank 0. Every rank calls it. `buffers`: those that a step changes, too. */
void wf_session_compare(WfSession *s, bool buffers);

/* Hands in user input i of the next run: dense row-major memory of the input's dtype, read in place if 64-byte
 * aligned... in any case only during the run. NULL: it is not fed any more. Raises WEFT_ERR_DATA when name, dtype or shape do not fit. */
void wf_session_feed(WfSession *s, const char *name, const WfTensor *t);
/* Of the next run only the first `rows` rows count, the others are padding; that run raises WEFT_ERR_USAGE unless its step
 * was compiled with --last-batch=pad. With short, and several ranks or micro-batches, 0: the rows fed are anybody's. */
void wf_session_set_rows(WfSession *s, int64_t rows);
int64_t wf_session_rows(const WfSession *s);                    /* what was set for the next run; -1: nothing, all count */
/* What input i of the executable was fed last; no data: nothing, or it is no user input. */
WfTensor wf_session_fed(const WfSession *s, int i);
bool wf_session_masks(const WfSession *s, WfProgramKind kind);  /* can any number of that program's rows be padding? */
/* Runs a micro-batch of a step compiled with --accumulate K: forward and backward, its gradients kept. K - 1 of them come
 * before each wf_session_step, which takes the last one; raises WEFT_ERR_USAGE otherwise, changing nothing. After any other
 * failure of either call the micro-batches of the step are dropped: it begins again with its first. */
void wf_session_micro(WfSession *s);
int wf_session_micro_batches(const WfSession *s);        /* K; 1 without accumulation */
/* K of the steps to come, of a step compiled for any number (--micro-batch). Raises WEFT_ERR_USAGE for another, and between
 * the micro-batches of a step. */
void wf_session_set_micro_batches(WfSession *s, int k);
/* Runs the step: forward, backward, commit. Raises WEFT_ERR_DATA for values out of range (node and value named),
 * WEFT_ERR_NUMERIC under check_finite; then no state has changed. */
void wf_session_step(WfSession *s);
/* Runs the step program up to the commit point, or the evaluation program: no state changes. */
void wf_session_forward(WfSession *s, bool eval);

/* What WF_E_INDEX_RANGE was raised for: the user input that holds the value (NULL: not known), the row of what was fed (-1: not
 * known), the value, and what is allowed, lo .. hi - 1 (hi == lo: not known). */
typedef struct { const char *input; int64_t row, value, lo, hi; } WfIndexFault;
const WfIndexFault *wf_session_fault(const WfSession *s);
/* Its message; where: in place of "row N of the batch", where the row is known. May be NULL. */
void wf_index_fault_text(const WfIndexFault *f, const char *where, WfStr *out);

/* A half of an executable made with option halves. Everything is the caller's: inputs in the order of the executable's (NULL: the
 * session's own, of those that have memory), outputs in the order of the program's outputs of role USER or GRAD, the
 * frame. Raises WEFT_ERR_USAGE when something is missing or does not fit; before the commit point nothing of the caller's but
 * outputs and frame is written. */
typedef struct {
    const int64_t *symbols;
    uint64_t seed;               /* forward */
    void *const *inputs;         /* of roles PARAM, BUFFER, USER */
    void *const *cotangents;     /* backward */
    void *const *outputs;
    void *frame;
} WfHalfRun;
void wf_session_half(WfSession *s, WfProgramKind kind, const WfHalfRun *r);
int64_t wf_session_frame(const WfSession *s, const int64_t *symbols);  /* bytes; 0: nothing to keep */

/* What the next commit uses. */
void wf_session_set_lr(WfSession *s, double lr);         /* of the first group; others keep their ratio */
void wf_session_set_seed(WfSession *s, uint64_t seed);
void wf_session_set_check_finite(WfSession *s, bool on);
/* false: a step leaves its collectives out, and replicas drift; for measuring what they cost. */
void wf_session_set_reduce(WfSession *s, bool on);
void wf_session_set_step(WfSession *s, int64_t step);    /* steps done so far: counts for bias corrections and random numbers; drops the micro-batches of an unfinished one */
int64_t wf_session_steps(const WfSession *s);

/* Memory of an input's tensor (parameter, buffer, state), by name or alias; false if there is none. */
bool wf_session_tensor(WfSession *s, const char *name, WfTensor *out);
/* Replaces its memory by the caller's. */
void wf_session_replace(WfSession *s, const char *name, void *memory);
/* Output k of the last run program: data in the slab, dense only if `dense` comes back true; shape evaluated. */
int wf_session_outputs(const WfSession *s, WfProgramKind kind);
void wf_session_output(WfSession *s, WfProgramKind kind, int k, WfTensor *out);
double wf_session_loss(WfSession *s);                    /* of the last run; NaN when the program has none */
/* METRIC outputs of a program's last run. */
bool wf_session_metric(WfSession *s, WfProgramKind kind, const char *name, double *out);
int64_t wf_session_slab_bytes(const WfSession *s);       /* planned peak of the current binding, scratch included */
int64_t wf_session_state_bytes(const WfSession *s);
int wf_session_threads(const WfSession *s);
int wf_session_isa(const WfSession *s); /* WfIsaLevel */
/* Bytes that a program needs under these symbols: slab, scratch, gradients that travel. Takes none of them. What of that the
 * session holds now; and giving the slab back, until the next run (outputs of the last one are gone). */
int64_t wf_session_needs(WfSession *s, WfProgramKind kind, const int64_t *symbols);
int64_t wf_session_holds(const WfSession *s);
void wf_session_release(WfSession *s);
/* Makes the binding for these values of the executable's symbols now, so that the first run finds it. */
void wf_session_prepare(WfSession *s, WfProgramKind kind, const int64_t *symbols);

/* ---- schedules ---- */

/* Learning rate of step `step` (from 1) of `total`; options total-steps takes the place of `total` when given. Steps
 * after the end keep the last value. */
double wf_schedule_lr(const WfOptions *o, int64_t step, int64_t total);
/* The same for a parameter group whose own learning rate is `base`; min-lr and max-lr scale with it. */
double wf_schedule_lr_from(const WfOptions *o, double base, int64_t step, int64_t total);

#endif
