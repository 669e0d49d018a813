/* Private to run. */
#ifndef WF_RUN_PRIVATE_H
#define WF_RUN_PRIVATE_H

#include "comm/comm.h"
#include "run/run.h"

#include <string.h>

/* Value of a run-time scalar at step t (1-based) for a group; false if the name is unknown. */
bool wf_scalar_value(const char *name, const WfExeGroup *g, double lr_now, int64_t t, double *out);

enum { ALL_ROWS = INT32_MAX, MOST_MICRO = 65536 };

typedef void (*WfKernelFn)(void *const *b, const long *s, long *st, long lo, long hi);

/* ---- devices: memory.c ---- */

/* Memory of one core. NULL stands for the processor's, wherever the system puts it. */
typedef struct WfPool WfPool;
/* Raises WEFT_ERR_USAGE when there is no such core. Ends with the arena. */
WfPool *wf_pool_open(WfCtx *ctx, WfArena *a, int core);
/* Zero pages of the pool, as wf_sys_map gives them (NULL on failure). Raises WEFT_ERR_ENVIRONMENT when they cannot be bound. */
void *wf_pool_map(WfPool *p, size_t size, bool huge);
void wf_pool_unmap(const WfPool *p, void *at, size_t size);
/* Makes a mapping of somebody else a part of the pool, and the contrary. */
void wf_pool_take(WfPool *p, void *at, size_t size);
void wf_pool_give(const WfPool *p, const void *at);
/* The core in whose pool (of any session of the process) p lies; -1: in none, it is the processor's memory. */
int wf_core_at(const void *p);
const char *wf_core_name(WfArena *a, int core); /* "cpu", "core:1" */

typedef struct { uint8_t *at; int64_t size; } WfStretch;

/* One call made concrete: every pointer, size and tile count known. */
typedef struct {
    WfCallKind kind;
    WfKernelFn fn;
    WfLib *lib;
    void **pointer;          /* operands; entries of inputs are filled before each run */
    long tiles;
    bool follows;            /* runs row by row inside the call before */
    bool serial;             /* too small to be worth a second thread */
    size_t copy_bytes;
    void *workspace;
    WfGroup *group;          /* START: NULL when the session is alone */
    int64_t *counts;         /* START: blocks, when they differ; else NULL */
} WfBoundCall;

typedef struct {
    WfArena *arena;
    WfSession *session;
    WfProgramKind kind;
    int64_t *symbols;
    WfBoundCall *calls;
    int64_t *offset;         /* by buffer, in the slab or the arena; -1 for inputs */
    int64_t slab_bytes[WF_DEVICES];  /* buffers; scratch follows those of the last device */
    int64_t arena_bytes[WF_DEVICES];
    WfTicket *ticket;        /* by call: of what it started */
    bool speaks;             /* some collective has more ranks than one */
    size_t scratch_each;
    /* where pointers must be refreshed before a run: operands of calls in memory that may be another then */
    struct { void **slot; void *const *base; int64_t offset; int call; const char *name; } *patch;
    int n_patch;
    long *values;            /* the kernels' array s */
    uint64_t used;
    double *spent;           /* under profile: seconds by call, of the runs that count */
    int64_t runs, counted;
    bool counts, silent;     /* under profile: does this run count; were there runs without reductions? */
} WfBinding;

typedef struct { long word[8]; } WfStatusLine; /* a cache line per thread: code, value, call + 1 */

struct WfSession {
    WfCtx *ctx;
    WfArena *arena;
    const WfExe *x;
    int isa, threads;
    WfTeam *team;
    void *object;            /* dlopen handle */
    int object_fd;           /* its file; -1: none */
    void **input;            /* memory of every input; user inputs: what was fed */
    bool *borrowed;          /* the memory is the caller's */
    void **given;            /* of a half: where its outputs go, by output */
    void *frame;             /* of a half: what passes between the two */
    int64_t *fed_shape;      /* user inputs: n_inputs * 8 sizes, where input is not NULL */
    uint8_t *state;
    int64_t state_bytes;
    size_t state_mapped;     /* and the scalars */
    int64_t *state_offset;   /* by input; -1 */
    WfPool *pool[WF_DEVICES]; /* [0]: NULL */
    int device;              /* of state, scalars and what is fed: the executable's last */
    WfStretch slab[WF_DEVICES];
    WfStretch *staged;       /* by input: what was fed, copied to the device when it is a core's */
    const void **fed;        /* by input: what was fed, where the caller has it */
    WfComm *comm;            /* NULL: one rank, whose collectives are the identity */
    WfGroup **groups;        /* by x->rank_groups: the one that this rank is in */
    WfStretch shared[WF_DEVICES]; /* the arenas of what travels */
    weft_status lost;        /* what a collective of the present run failed with */
    WfBinding *bindings[8];
    int n_bindings;
    WfBinding *last[WF_PROGRAMS];
    uint64_t clock;
    double lr;
    int64_t steps;
    int64_t rows;            /* of the next run, how many count */
    int chosen;              /* micro-batches in a step, where the executable leaves it open */
    int micro;               /* micro-batches of the present step done so far */
    bool torn;               /* one of them failed: what is gathered is worth nothing */
    uint64_t seed;
    bool check_finite, reduce;
    WfStatusLine *status;    /* by thread */
    /* of the current run */
    WfBinding *now;
    int from, to;
    bool stop;
    WfIndexFault fault;      /* of the last index that was out of range */
    int bad_call, bad_operand;
    bool profile;            /* WEFT_PROFILE: per-call times of the first thread */
    double *scalars;         /* one slot per input, of its dtype; used for SCALAR inputs */
};

/* Where a buffer of the slab or the arena lies. */
uint8_t *wf_buffer_memory(const WfSession *s, const WfBinding *b, const WfExeProgram *p, int buf);
void wf_release_arena(WfSession *s, int device);
WfBinding *wf_bind(WfSession *s, WfProgramKind kind);
WfBinding *wf_bind_half(WfSession *s, WfProgramKind kind, const int64_t *symbols);
int64_t wf_frame_offset(const WfSession *s, const int64_t *symbols, int saved); /* x->n_saved: the frame's size */
void wf_report_profile(WfSession *s, const WfBinding *b);
/* Raises WEFT_ERR_USAGE, naming the call, when its operand at p does not lie on the device that it is planned for. `what`:
 * the operand's name, may be NULL. */
void wf_check_device(const WfSession *s, const WfExeCall *k, const char *what, const void *p);
/* Raises WF_E_INDEX_RANGE for the value of a check that failed in the run of b, with the input and row that hold it. */
void wf_raise_index(WfSession *s, const WfBinding *b, const WfExeCheck *c, int64_t value) WF_NORETURN;
void wf_execute(WfSession *s, WfBinding *b, int from, int to);

#endif
