/* train: what surrounds the step: batches and the loop that feeds sessions. Knows no graph. */
#ifndef WF_TRAIN_H
#define WF_TRAIN_H

#include "data/data.h"
#include "exchange/exchange.h"
#include "report/report.h"

/* ---- reading ahead ---- */

/* Whose batches of an epoch: those of rank `rank` of `ranks`, which takes `micro` batches in a row for each step. The k-th
 * of its own is the wf_share_batch-th of the epoch's. */
typedef struct { int64_t rank, ranks, micro; } WfShare;
static inline int64_t wf_share_batch(WfShare s, int64_t k) { return (k / s.micro * s.ranks + s.rank) * s.micro + k % s.micro; }

/* A thread that gathers the training batches from, from + 1, .. total - 1 of `batch` samples, per_epoch from each epoch's order, one
 * ahead of the step. first and second: a buffer per column
 * each. Ends with the arena, at the latest after the column that it is at. NULL when the system gives no thread: gather in
 * place then. Its own message about files that cannot be read comes when their batch is asked for. */
typedef struct WfAhead WfAhead;
WfAhead *wf_ahead_new(WfCtx *ctx, WfArena *a, const WfDataset *d, const WfOptions *o, int64_t batch, int64_t per_epoch,
                      int64_t from, int64_t total, WfShare share, void **first, void **second);
/* Buffers of the next batch, in order; the caller's until it calls again. Raises WEFT_ERR_CANCELLED, what went wrong in
 * reading it, and WEFT_ERR_IO with the file's name when the batch has not come for ten minutes. */
void **wf_ahead_next(WfAhead *h);

/* ---- the loop ---- */

typedef struct WfTraining {
    WfCtx *ctx;
    WfArena *arena;
    const WfExe *exe;
    WfSession *session;
    const WfOptions *options;
    double lr;                   /* of the first group */
    void (*save)(void *user, const char *path);  /* writes the current weights atomically */
    void *user;
    bool terminal;               /* progress may rewrite its line */
    const char *model;           /* what the banner calls it; NULL: no banner */
    const char *compiled;        /* how the step came about, for the banner */
    WfComm *comm;                /* the ranks that train together; NULL: this process alone */
    double *step_ms;             /* gets the time of every step of `--steps`; may be NULL */
} WfTraining;

/* ---- micro-batches by memory ---- */

typedef struct {
    WfMicroTable *table;
    bool automatic, begun, told;
    int at;              /* the row in use */
    int64_t *chosen;     /* by rank: rows of its micro-batches in the present step */
} WfMicro;
/* For --micro-batch; NULL without it. Raises WEFT_ERR_USAGE for a size that does not divide the batch or that the export
 * does not allow. */
WfMicro *wf_micro_new(WfCtx *ctx, WfArena *a, const WfTraining *t, const WfDataset *d, int64_t batch);
/* Before step `step` (from 0): chooses the row, tells the other ranks (every rank calls it), sets the session up for it. */
const WfMicroRow *wf_micro_begin(WfMicro *m, WfTraining *t, int64_t step);

/* Of a bench without reductions: does step i have them nevertheless? Every second one, so that both kinds have either kind before
 * them. */
static inline bool wf_bench_reduces(int64_t i) { return i % 4 == 1 || i % 4 == 2; }

/* Compares model (the bytes that identify it; NULL: a compiled step) and options before anything is compiled; raises
 * WEFT_ERR_RANK on every rank, naming what differs. */
void wf_ranks_compare(WfCtx *ctx, WfComm *comm, const WfOptions *o, const uint8_t *model, size_t model_size);
/* Compares what else the ranks are about to do (plan, sequence of collectives, data); raises like it. Then all start from rank 0's state, or, without --init-sync, compare
 * theirs. */
void wf_ranks_agree(WfTraining *t, const WfDataset *d, int64_t batch);
/* How many ranks of the training share this host's memory. */
int wf_ranks_here(const WfTraining *t);
/* wf_check_cancel, at the same step on all ranks. */
void wf_ranks_check_cancel(WfTraining *t);

/* A failure that was caught, in the run's arena: others may happen before it is raised again. */
typedef struct { weft_status status; int kind; char *message, *place, *hint; bool told; } WfCaught;
WfCaught wf_train_failure(WfTraining *t, weft_status s);
/* Raises it; an index that is out of range with its sample of d (index: the samples of the rows that were fed). d may be NULL. */
void wf_train_fail(WfTraining *t, const WfCaught *f, const WfDataset *d, const int64_t *index) WF_NORETURN;
/* Trains as the options say (data, steps or epochs, schedule, out). Stops cleanly when the context is cancelled, or when data
 * or values do not let it go on: the weights of the last finished step are saved, then that is raised. */
void wf_train(WfTraining *t);
/* Raises WEFT_ERR_USAGE when --out is taken, by a run that --resume does not go on with, or by a file. Nothing is changed. */
void wf_train_check_out(WfCtx *ctx, const WfOptions *o);
/* The file `name` in the folder --out. */
char *wf_train_path(WfArena *a, const char *out, const char *name);
/* Runs the evaluation form over all rows of a dataset, the last batch padded and the padding not counted: --metrics. */
WfMetrics *wf_evaluate(WfTraining *t, const WfDataset *d);
/* Runs the evaluation form over all rows of --data, in their order, and writes the tensor `predictions` to the
 * safetensors file `path`. Only inputs that the predictions depend on need data. Returns the number of rows. */
int64_t wf_predict(WfTraining *t, const char *path);
/* Gives --sample bytes, drawn one after the other from the predictions of a model of bytes, to put. Raises WEFT_ERR_USAGE when
 * the model is not one: integers [batch, context] in, scores of 256 bytes at each place out. */
void wf_sample(WfTraining *t, void (*put)(void *user, uint8_t byte), void *user);
/* The user inputs of an executable as a dataset must fill them; *n of them, in the arena. */
WfDataInput *wf_train_inputs(WfArena *a, const WfExe *x, int *n);
/* Values of an executable's symbols for batches of `rows`; other sizes are those of the data (NULL: the usual ones). */
void wf_train_symbols(const WfExe *x, const WfDataset *d, int64_t rows, int64_t *symbols);
/* Zeroed memory of a batch, aligned for kernels; the arena's. */
void *wf_batch_memory(WfArena *a, size_t bytes);
/* A batch of zeros for an input that gets no data, its name and shape with it. Raises WEFT_ERR_DATA when another size than the batch's is
 * open. */
WfTensor wf_batch_zeros(const WfTraining *t, const WfExeInput *in, int64_t batch);

#endif
