/* exe: the cut between compiling and running. An executable is a list of calls over buffers, with everything known:
 * sizes are expressions over the symbols, offsets follow from lifetimes once the symbols have values. It is immutable
 * and may be shared by sessions. It holds no graph and needs no compiler. */
#ifndef WF_EXE_H
#define WF_EXE_H

#include "base/base.h"

enum { WF_EXE_FORMAT = 10, WF_EXE_RANK = 8 };

/* The array that every kernel gets: seed, step, iteration (of micro-batches, from 0), -, then the symbols. */
enum { WF_S_SEED, WF_S_STEP, WF_S_ITERATION, WF_S_SYMBOLS = 4 };

typedef struct {
    const char *name;
    int64_t lo, hi;          /* inclusive */
    int input, dim;          /* where its value is read: a user input's dimension ... */
    int64_t factor, plus;    /* ... whose size is factor * symbol + plus; factor > 0 */
    int64_t hint;            /* the symbol's value in the example of the export; 0: not known */
} WfExeSymbol;

typedef enum { WF_XIN_PARAM, WF_XIN_BUFFER, WF_XIN_CONST, WF_XIN_USER, WF_XIN_STATE, WF_XIN_SCALAR,
               WF_XIN_ACCUM, WF_XIN_COTANGENT } WfExeRole;
typedef struct {
    WfExeRole role;
    const char *name;
    WfDtype dtype;
    int rank;
    WfDim shape[WF_EXE_RANK];
    bool trainable, persistent;
    const char **aliases;    /* further names of the same tensor */
    int n_aliases;
    double fill;             /* STATE: start value */
    const char *of;          /* STATE, ACCUM: the parameter; SCALAR: the parameter group ("0", "1", ...) or NULL */
    int buf;
    bool used;               /* read by some call */
    bool predicts;           /* USER: the predictions depend on it */
} WfExeInput;

typedef enum { WF_XOUT_USER, WF_XOUT_LOSS, WF_XOUT_UPDATE, WF_XOUT_GRAD, WF_XOUT_METRIC, WF_XOUT_SAVED } WfExeOutRole;
typedef struct {
    WfExeOutRole role;
    const char *name;
    int buf;
    int input;               /* UPDATE, GRAD */
} WfExeOutput;

enum { WF_DEVICES = 2 };
/* ARENA: memory that other ranks may read, apart from the slab. GIVEN: the caller's, for an output. FRAME: what the forward half
 * keeps for the backward half, in memory of the caller's, too. */
typedef enum { WF_PLACE_SLAB, WF_PLACE_INPUT, WF_PLACE_ARENA, WF_PLACE_GIVEN, WF_PLACE_FRAME } WfPlace;
typedef struct {
    WfPlace place;
    WfDtype dtype;
    int rank;
    WfDim shape[WF_EXE_RANK];    /* logical shape */
    WfDim stride[WF_EXE_RANK];   /* elements */
    WfDim bytes;                 /* size in memory */
    int input;                   /* INPUT: index; GIVEN: which output of the program; FRAME: which of x->saved */
    int first, last;             /* SLAB: calls between which it lives, inclusive */
    int inside;                  /* ARENA: part of that buffer, a bucket, ...; -1: itself one */
    WfDim at;                    /* ... from that byte on */
    int same_as;                 /* SLAB: takes over that buffer's memory (in place); -1 */
    int device;                  /* 0: the processor's memory, wherever the system puts it; 1: that of x->core */
    const char *name;
} WfExeBuf;

typedef struct { int buf; WfDim offset; int rank; WfDim shape[WF_EXE_RANK], stride[WF_EXE_RANK]; } WfExeOperand;

/* START hands memory to the communication thread, WAIT stands where the next call reads what it brings; START's symbol is
 * the group, param[0] a WfCollective, param[1] a WfCommReduce, param[3] the root. Operands of both: the bucket of what
 * travels in place (ALL_REDUCE, BROADCAST, BARRIER), or what is sent and what is received. REDUCE_SCATTER with param[4]:
 * all of it goes to the root, and the others receive zeros. A WAIT's param[2] is the number of its START. */
typedef enum { WF_CALL_KERNEL, WF_CALL_LIB, WF_CALL_COPY, WF_CALL_START, WF_CALL_WAIT } WfCallKind;
enum { WF_TRAVEL_KIND, WF_TRAVEL_OP, WF_TRAVEL_START, WF_TRAVEL_ROOT, WF_TRAVEL_TO_ROOT };
/* A run-time check of an index: the place for messages, the user input that it comes from (NULL: it is computed, or from
 * several), and what it may be: lo .. hi - 1 (hi 0: not told). */
typedef struct { const char *where, *input; WfDim lo, hi; } WfExeCheck;
static inline bool wf_in_place(int64_t kind) { return kind == WF_ALL_REDUCE || kind == WF_BROADCAST || kind == WF_BARRIER; }
typedef struct {
    WfCallKind kind;
    const char *symbol;          /* KERNEL: function name; LIB: kind for src/kernels */
    int n;                       /* operands: inputs, then outputs; absent optional ones have buf -1 */
    WfExeOperand *operand;       /* KERNEL uses only buf and offset */
    WfDim tiles, elements;       /* KERNEL */
    bool follows;                /* KERNEL: tile t needs only row t of the call before: may run as soon as that row is
                                  * there; the plan keeps the memory of the two apart as if they were one call */
    int64_t param[32];           /* LIB */
    double fparam[8];
    int workspace;               /* LIB: its workspace buffer; -1 none */
    int device;                  /* where all its operands must lie */
    double seconds, growth;      /* predicted, on one thread: seconds, and growth for each unit of the first symbol; START: how
                                  * long the bucket travels */
    const char *name;            /* the node, for messages: "%linear" */
    const char *where;           /* Python file:line and text, may be NULL */
    const char *module;          /* path of the module that it is in, "" the model itself; may be NULL */
    const WfExeCheck *checks;    /* KERNEL: its k-th run-time check; LIB: checks[0] */
    int n_checks;
} WfExeCall;

/* What a run-time scalar holds, computed in double before every commit; see run. */
typedef struct { const char *name; int group; } WfExeScalar;

/* MICRO: a micro-batch of a step, forward and backward, its gradients added to what is gathered; STEP: the last one, and
 * what follows it. Without accumulation a step is STEP alone, and MICRO is empty. FORWARD and BACKWARD: the halves, which
 * stand instead of all others. */
typedef enum { WF_PROG_STEP, WF_PROG_EVAL, WF_PROG_MICRO, WF_PROG_FORWARD, WF_PROG_BACKWARD, WF_PROGRAMS } WfProgramKind;
typedef struct {
    WfExeCall *calls;
    int n_calls;
    int commit;                  /* calls from here on write state: the commit point */
    WfExeBuf *bufs;
    int n_bufs;
    WfExeOutput *outputs;
    int n_outputs;
} WfExeProgram;

/* A value that the forward half keeps; they lie one behind the other in the frame. */
typedef struct {
    WfDim bytes;
    int8_t order[WF_EXE_RANK];   /* in which forward writes it, when ordered; known while backward is compiled */
    bool ordered;
} WfExeSaved;

/* One optimiser parameter group. */
typedef struct {
    const char *optimizer;       /* "sgd", "adam", "adamw", "rmsprop", "adagrad" */
    double lr, betas[2], eps, weight_decay, momentum, dampening, alpha, lr_decay;
    bool nesterov, amsgrad, maximize, centered;
    double lr_scale;             /* this group's lr relative to the general one; < 0: it always is `lr` */
} WfExeGroup;

typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    WfExprs *exprs;
    const char *signature;       /* of the imported graph */
    const char *options;         /* plan-shaping options, canonical text */
    int isa; /* the highest level that it may run at */
    WfExeSymbol *symbols;
    int n_symbols;
    WfExeInput *inputs;
    int n_inputs;
    WfExeGroup *groups;
    int n_groups;
    WfRankGroup *rank_groups;            /* those declared; "dp" is all ranks */
    int n_rank_groups, ranks;            /* in how large a world */
    int core;                            /* of device 1: a core of the machine; -1: there is none */
    int accumulate;              /* micro-batches in a step: accumulate - 1 of MICRO, then STEP; 0: any number */
    WfExeProgram program[WF_PROGRAMS];   /* EVAL may be empty (n_calls 0, n_outputs 0) */
    WfExeSaved *saved;
    int n_saved;
    const uint8_t *object[2];            /* shared objects by ISA: [0] v3, [1] v4; NULL: not compiled for it */
    size_t object_size[2];
    const WfTensors *weights;            /* start values of PARAM, BUFFER, CONST by name; NULL when not inside */
    bool has_loss;
    const char **warnings;               /* what its user should know, whenever it is used */
    int n_warnings;
} WfExe;

static inline double wf_exe_seconds(const WfExeCall *c, const int64_t *symbols) /* symbols: may be NULL when there are none */
{
    return c->seconds + (symbols && c->growth > 0 ? c->growth * (double)symbols[0] : 0);
}
void wf_exe_save(WfCtx *ctx, const WfExe *x, const char *path);       /* a zip of exe.json, objects, weights */
WfExe *wf_exe_load(WfCtx *ctx, WfArena *a, const char *path);         /* raises WEFT_ERR_FILE */
WfExe *wf_exe_open(WfCtx *ctx, WfArena *a, const WfFile *f);           /* the same of bytes that are there; f stays */
/* The same from exe.json alone: without kernels and weights. */
WfExe *wf_exe_parse(WfCtx *ctx, WfArena *a, const uint8_t *json, size_t size, const char *what);
void wf_exe_warn(WfExe *x, const char *text); /* adds a warning; the text stays */
/* Smallest and largest size of the dimension that tells s. */
void wf_exe_sizes(const WfExeSymbol *s, int64_t *lo, int64_t *hi);
/* Its size when nobody chooses one: the export's own, else one near 32 that the range allows. */
int64_t wf_exe_usual(const WfExeSymbol *s);
/* What is wrong with the program's pairs: a start without its wait or the other way round, or memory in flight that
 * another call uses; NULL: nothing. *call: where. */
const char *wf_exe_check_pairs(const WfExeProgram *p, int *call);
/* Rows in a batch: the export's first dimension, or --batch-size where that is symbolic. */
int64_t wf_exe_batch(WfCtx *ctx, const WfExe *x, const WfOptions *o);
/* Can `rows` samples be a batch of their own? */
bool wf_exe_fits(const WfExe *x, int64_t rows);
/* Do ranks speak with each other within the program? */
bool wf_exe_speaks(const WfExe *x, WfProgramKind kind);
/* A plan option as the executable records it, in the arena; "" when there is none of that name. */
const char *wf_exe_option(const WfExe *x, WfArena *a, const char *name);
/* Elements of an input; a symbolic dimension counts as one. */
int64_t wf_exe_elements(const WfExe *x, const WfExeInput *in);
/* Is this input the target of a loss that an option names, and does it hold classes? */
bool wf_exe_classes(const WfExe *x, WfArena *a, const char *input);
/* Is it such a target of any kind? Then what it must be, for an error's help; else NULL. */
const char *wf_exe_target(const WfExe *x, WfArena *a, const char *input);
/* Which output of the evaluation form is called "predictions"; -1: none. */
int wf_exe_predictions(const WfExe *x);
/* Which output holds the predictions: that, or the first that is a tensor. Raises WEFT_ERR_USAGE where there is none. */
int wf_exe_predicted(WfCtx *ctx, const WfExe *x);
/* Evaluates d under symbol values (n_symbols of them); raises when out of int64. */
int64_t wf_exe_eval(const WfExe *x, WfDim d, const int64_t *symbols);

/* Bytes by what they are for. State: weights, buffers (constants too), optimiser, gradients gathered over micro-batches. Memory
 * that travels between ranks. The slab at the call where most of it is alive: gradients, workspace of library calls, and
 * activations, which is everything else. */
typedef struct {
    int64_t weights, buffers, optimiser, gathered, travelling, gradients, workspace, activations;
    int call;                /* -1: the program has none */
} WfExeMemory;
void wf_exe_memory(const WfExe *x, WfArena *a, WfProgramKind kind, const int64_t *symbols, WfExeMemory *out);

#endif
