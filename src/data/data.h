/* data: from files to batches. Opens what --data names, whatever its format, and hands out rows as the model's inputs.
 * Knows no graph and no session. */
#ifndef WF_DATA_H
#define WF_DATA_H

#include "base/base.h"

/* One input that a dataset must fill. Its first dimension is the batch. */
typedef struct {
    const char *name;
    WfDtype dtype;
    int rank;            /* with the batch dimension; 1 at least */
    int64_t shape[8];    /* shape[0] is not looked at; -1: any size */
    int64_t usual[8];    /* where shape says -1: the size of the export's example; 0: not known */
    const char *help;    /* what it must be, where the model's graph alone does not say it; NULL: nothing more */
} WfDataInput;

/* An input and what feeds it. */
typedef struct {
    const WfDataInput *input;
    const char *path;    /* of the first file */
    WfDtype dtype;       /* in the file */
    int rank;
    int64_t shape[8];    /* as the input sees it; shape[0] = samples */
    int64_t sample_elements;
    struct WfFeed *feed; /* private to the room */
} WfColumn;

typedef struct {
    WfCtx *ctx;
    int64_t samples;
    WfColumn *columns;   /* one per input, in the order of the inputs */
    int n;
    uint64_t recipe;     /* hash of the recipe's text; 0: none */
    const char *learned; /* training data: the recipe with the categories and classes that they made; NULL: there is none */
    bool slow;           /* reading it is work, as decoding pictures is */
    int readers;         /* threads that do it, at most: --threads */
} WfDataset;

typedef enum { WF_DATA_TRAIN, WF_DATA_EVAL, WF_DATA_PREDICT } WfDataUse;

/* What weft train leaves beside the weights: the dataset's `learned`. */
#define WF_RECIPE_FILE "recipe.yaml"

/* Opens the files of --data (of --eval-data for WF_DATA_EVAL) with --recipe; docs/data.md says what they may be. They live as
 * long as the arena. Random crops and flips are for WF_DATA_TRAIN. WF_DATA_PREDICT takes the recipe that lies beside --weights,
 * or the categories of that one, and passes over files for inputs that are not among those asked for. Raises WEFT_ERR_DATA with the input's name, what was found and what was expected (a missing or
 * unknown input, another dtype or shape, different numbers of samples), WEFT_ERR_FILE for what is damaged, WEFT_ERR_USAGE
 * for a wrong recipe. `inputs` must outlive the dataset. */
WfDataset *wf_dataset_open(WfCtx *ctx, WfArena *a, const WfOptions *o, WfDataUse use, const WfDataInput *inputs, int n);
/* One line per input that says where it comes from and what is done to it, for the banner. */
void wf_dataset_describe(const WfDataset *d, WfStr *out);
/* Tells other data of the same size apart, cheaply: a hash of types, shapes and what 16 samples spread over the files hold, before
 * the recipe. Raises what reading them does. */
uint64_t wf_dataset_fingerprint(const WfDataset *d);
/* "sample 17 of FILE": where a sample of column c comes from, counted from 0 in its file. */
void wf_dataset_place(const WfDataset *d, int c, int64_t sample, WfStr *out);
/* Raises WEFT_ERR_DATA at the first value of a floating-point column that is not finite, naming sample and element. */
void wf_dataset_check_finite(const WfDataset *d);

/* Why rows could not be read: written by whatever thread reads, raised by the loop. */
typedef struct {
    int kind;  /* of errors.list; 0: nothing happened */
    char place[512], message[512];
    const char *hint;    /* NULL, or a literal */
} WfDataFault;
void wf_data_raise(WfCtx *ctx, const WfDataFault *f) WF_NORETURN;

/* Copies samples index[0..count) of column c, converted, to `out` (count * sample_elements elements of the input's dtype).
 * `epoch` (from 0) chooses random crops and flips. Indices must be below `samples`. Any thread may call it: false and *fault
 * when the files cannot be read or hold what they must not. */
bool wf_dataset_read(const WfDataset *d, int c, int64_t epoch, const int64_t *index, int64_t count, void *out, WfDataFault *fault);
/* The same for the thread of the context, raising: for evaluation and predictions. */
void wf_dataset_gather(const WfDataset *d, int c, const int64_t *index, int64_t count, void *out);

/* Order of visits: a permutation of [0, n) that needs no memory. */
typedef struct {
    uint64_t n, mask;
    int half;            /* bits of one half of the Feistel network */
    uint64_t key[6];
    bool shuffle;
} WfOrder;

/* The order of epoch `epoch` (from 0) under `seed`; without shuffling, the order of the file. n >= 1. */
WfOrder wf_order(int64_t n, uint64_t seed, int64_t epoch, bool shuffle);
int64_t wf_order_at(const WfOrder *o, int64_t i);
/* Indices of batch `batch` (from 0) of `size` samples; returns how many there are (less than `size` at the end; the others
 * repeat the first, the epoch's where the batch has none). */
int64_t wf_order_batch(const WfOrder *o, int64_t batch, int64_t size, int64_t *index);

#endif
