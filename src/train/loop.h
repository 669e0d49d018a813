/* The training loop: batches in, metrics and weights out. It knows sessions and datasets, no graph. */
#ifndef WF_TRAIN_LOOP_H
#define WF_TRAIN_LOOP_H

#include "run/run.h"
#include "train/train.h"

typedef struct {
    double loss, accuracy;       /* NaN where there is none */
    int64_t samples;
} WfEvaluation;

typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    const WfExe *exe;
    WfSession *session;
    const WfOptions *options;
    double lr;                   /* of the first group */
    void (*save)(void *user, const char *path);  /* writes the current weights atomically */
    void *user;
    bool terminal;               /* progress may rewrite its line */
} WfTraining;

/* Trains as the options say (data, steps or epochs, schedule, out). Stops cleanly when the context is cancelled: the
 * weights of the last finished step are saved, then WEFT_ERR_CANCELLED is raised. */
void wf_train(WfTraining *t);
/* Runs the evaluation form over all rows of a dataset, the last batch padded and the padding not counted. */
WfEvaluation wf_evaluate(WfTraining *t, const WfDataset *d);
/* The user inputs of an executable as a dataset must fill them; *n of them, in the arena. */
WfDataInput *wf_train_inputs(WfArena *a, const WfExe *x, int *n);
/* Rows in a batch: the export's first dimension, or --batch-size where that is symbolic. */
int64_t wf_train_batch(WfCtx *ctx, const WfExe *x, const WfOptions *o);

#endif
