/* report: what can be said of a step before and after it runs: its plan as text, the micro-batches that it can be taken in, the
 * metrics of an evaluation. Knows no graph and no data files. */
#ifndef WF_REPORT_H
#define WF_REPORT_H

#include "run/run.h"

/* ---- the plan ---- */

/* Memory, largest buffers, calls, buckets between ranks, micro-batches and modules of every program, for --batch-size. Makes
 * sessions of its own. Raises WEFT_ERR_USAGE for a batch size that the export does not allow. */
void wf_report_plan(WfCtx *ctx, const WfExe *x, const WfOptions *o, WfStr *out);

/* ---- micro-batches ---- */

typedef struct { int64_t rows, count, bytes; double seconds; } WfMicroRow; /* count micro-batches of `rows`; memory; predicted */
typedef struct { WF_VEC(WfMicroRow) rows; } WfMicroTable;                   /* largest micro-batch first */

/* How a step of `batch` rows can be taken: in any number of micro-batches that the export allows, or, where the executable
 * fixes it (any: false) or the batch is static, in one way. symbols: for the whole batch. */
WfMicroTable *wf_micro_table(WfArena *a, WfSession *s, const WfExe *x, const int64_t *symbols, int64_t batch, bool any);
/* The table as text; others: bytes that every row needs besides. */
void wf_micro_print(const WfMicroTable *t, const char *device, int64_t others, WfStr *out);

/* ---- metrics ---- */

/* What an evaluation found: one value a metric; NaN where there is none. */
typedef struct WfMetrics WfMetrics;

/* A batch of an evaluation: what is fed, by input of the executable (no data: is not), of `count` rows. The first `given` lie there, and the
 * first `valid` are samples. Where given < count the memory is the evaluation's, which fills it up. `ignore`: the label that stands for
 * none. */
typedef struct { const WfExe *exe; const WfTensor *inputs; int64_t count, given, valid, ignore; } WfMeasured;

/* names: "loss,f1", NULL: loss and accuracy; best: which to watch (NULL: accuracy where there is one, else the loss). Raises
 * WEFT_ERR_USAGE for a name that is none. */
WfMetrics *wf_metrics_new(WfCtx *ctx, WfArena *a, const char *names, const char *best);
void wf_metrics_begin(WfMetrics *m);
/* The label that --loss leaves out of its mean. */
int64_t wf_metrics_ignored(const WfExe *x, WfArena *a);
/* Runs the evaluation form over the batch and adds its samples, their predictions and their loss. */
void wf_metrics_run(WfMetrics *m, WfSession *s, const WfMeasured *b);
/* Adds up the ranks (NULL: this process alone). Raises WEFT_ERR_USAGE when a metric that was asked for has nothing that it could be
 * computed from. */
void wf_metrics_finish(WfMetrics *m, WfComm *comm);
int wf_metrics_count(const WfMetrics *m);
const char *wf_metrics_name(const WfMetrics *m, int i);
double wf_metrics_value(const WfMetrics *m, int i);
/* Of the metric to watch, signed so that more is better, and its name. */
double wf_metrics_score(const WfMetrics *m, const char **name);

#endif
