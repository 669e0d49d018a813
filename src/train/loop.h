/* Shared by the files of the loop: its state, its batches (batch.c), what it writes and shows (report.c). */
#ifndef WF_TRAIN_LOOP_H
#define WF_TRAIN_LOOP_H

#include "train/train.h"

#include <stdio.h>

typedef struct { const char *tag; double value; } WfScalar;
typedef struct WfEvents WfEvents;

/* What the progress line told last, and what has gathered since. */
typedef struct {
    double at, ms, data_ms;          /* when; since then */
    int64_t steps;
    double first_ms, all_ms;         /* the first step; all others */
    bool line;                       /* a line of the terminal is open */
} WfShown;

typedef struct {
    WfTraining *t;
    WfDataset *data, *eval;
    WfDataInput *inputs;
    int n_inputs;
    int64_t batch, per_epoch, total; /* rows read at once; steps */
    int64_t micro;                   /* such batches in a step */
    WfMicro *schedule;               /* a batch is taken in parts of so many rows; NULL: whole */
    int64_t parts, rows;
    bool cut;                        /* an epoch's last batch may have fewer rows */
    int64_t epoch;                   /* from 0 */
    struct { const WfDataset *data; WfOrder order; int64_t batch, first; } fed; /* the rows fed last; order.n 0: those of index */
    int64_t *index;
    void **buffer;  /* by input */
    WfAhead *ahead; /* NULL: batches are gathered in place */
    FILE *metrics;
    WfEvents *events;    /* NULL: none */
    double first_step;   /* when its batch was there */
    double waited;       /* seconds that the present step waited for data */
    WfShown shown;
    double best_value;   /* of the metric that was watched, at this process's best evaluation; NaN: there was none */
    WfMark mark;         /* where the run stands */
    int64_t from, saved; /* the step after which this process began; that of the newest checkpoint */
    bool together;       /* all ranks are at the same place, or there is one */
    WfMetrics *measured; /* of the last evaluation */
    bool told_nan;       /* that the loss is not finite */
    bool stopped;        /* --early-stop: its patience is over */
    int rank, ranks;     /* rank 0 speaks and writes */
} WfLoop;

void wf_loop_allocate(WfLoop *l); /* index and buffers of a batch */
/* Gathers batches ahead when they are large enough to pay for a thread, which ends with the arena. */
void wf_loop_start_ahead(WfLoop *l, WfArena *a);
/* Gathers `count` rows. */
void wf_loop_read(WfLoop *l, const WfDataset *d, int64_t count);
/* Feeds `count` of the rows in the buffers, from row `first` on. */
void wf_loop_hand_in(WfLoop *l, const WfDataset *d, int64_t first, int64_t count);
/* The samples of the rows fed last, for messages. */
const int64_t *wf_loop_fed(WfLoop *l);
/* The first `count` rows in the buffers, by input of the executable. */
void wf_loop_tensors(const WfLoop *l, const WfDataset *d, int64_t count, WfTensor *out);

/* Does the model's forward pass speak with that of other ranks? They then take the same number of batches, of one size. */
bool wf_loop_speaks(const WfLoop *l);
/* Evaluates, when there is data for it: a line of metrics, best.safetensors, and whether to stop. Every rank calls it. */
void wf_loop_evaluate(WfLoop *l);
/* Before the first step: are the metrics asked for there? Evaluates a batch, and raises WEFT_ERR_USAGE. */
void wf_loop_try_metrics(WfLoop *l);
void wf_loop_check_patience(WfLoop *l); /* sets l->stopped when --early-stop says so */

char *wf_loop_path(WfLoop *l, const char *name); /* in --out */
extern const char *const wf_loop_files[];        /* what a run keeps there, up to NULL */
void wf_loop_open_out(WfLoop *l);                /* --out and its metrics.jsonl, on rank 0 */
/* A number of a metrics line; a whole one is written as an integer: a reader takes 1e+01 for a floating-point
 * step. */
void wf_loop_number(WfStr *s, const char *key, double v);
void wf_loop_metrics(WfLoop *l, WfStr *s); /* ends the line and writes it */
double wf_loop_rss_mb(void);
void wf_loop_banner(const WfLoop *l);
void wf_loop_break_line(WfLoop *l); /* before another line: ends one that is rewritten */
void wf_loop_summary(WfLoop *l);
/* An event file in the folder `out` for a run that goes on after step `step`. Raises WEFT_ERR_IO, as adding does. */
WfEvents *wf_events_open(WfCtx *ctx, WfArena *a, const char *out, int64_t step);
/* NULL is fine. Too soon after the last values these are left out, unless they must be there. */
void wf_events_add(WfEvents *e, int64_t step, const WfScalar *values, int n, bool must);
void wf_events_close(WfEvents *e); /* removes a file without values; NULL is fine */
void wf_loop_progress(WfLoop *l, double loss, double norm, double lr, double ms);

#endif
