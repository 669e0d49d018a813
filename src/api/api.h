/* api: weft.h for both libraries, and the same things one level lower for the program `weft`. */
#ifndef WF_API_H
#define WF_API_H

#include "exchange/exchange.h"

/* What a run reads in place of what the caller fed, by input of the executable: batches of fewer rows than the export's are filled up,
 * and what only the loss reads need not be fed for predictions. */
typedef struct {
    WfTensor *inputs;
    WfTensor *given;    /* what was fed, and is again afterwards */
    void **room;        /* memory of the session for either */
    size_t *room_bytes;
    int64_t *symbols;   /* sizes of blank inputs */
} WfStandIn;

typedef struct WfModelRef WfModelRef; /* what the compiler half keeps of an import */

struct weft_program {
    WfCtx *ctx;
    WfArena *arena;
    WfOptions options;
    const char *path;            /* of the .pt2 or .weft; NULL for a built graph */
    struct WfGraph *graph;       /* level aten; NULL for a compiled step */
    const uint8_t *identity;     /* bytes that identify the model in cache keys */
    size_t identity_size;
    const WfExe *exe;            /* NULL: not compiled yet */
    bool loaded;                 /* came from a .weft */
    bool hushed;                 /* compiled for others, who say what it warns of */
    bool from_cache;
    const WfFile *entry;         /* the cache's file of exe; NULL: it holds none */
    double compile_s;
    void *build;                 /* graph under construction */
    weft_session *sessions, *spare; /* running; memory of freed ones */
    WfArena *text;               /* of the last text that was asked for */
};

struct weft_session {
    weft_program *program;
    WfSession *run;
    WfProgramKind last;          /* which program's outputs are current */
    double step_s;
    double lr;
    WfComm *comm;                /* the ranks that it joined; NULL */
    char job[33];                /* the name of the run in its checkpoints; "": none yet */
    WfArena *arena;              /* of the evaluation */
    WfArena *rooms;              /* of stand_in; NULL: nothing had to stand in yet */
    WfStandIn *stand_in;
    struct WfEvaluation *measured; /* NULL: none has begun */
    weft_session *next;
};

/* The compiler half; in libweft-run these raise WEFT_ERR_USAGE. */
void wf_program_open_model(weft_program *p, const char *path);
void wf_program_compile(weft_program *p);          /* p->exe afterwards; uses the cache */
bool wf_program_cached(weft_program *p);           /* would it come from the cache? Nothing is read */
/* The same by rank 0, unless it has the step, for all ranks of a world, which take it: one compiles, or reads the cache. */
void wf_program_compile_together(weft_program *p, WfComm *comm);
bool wf_program_weight(void *program, const char *name, void *to, size_t bytes); /* a WfWeightSource */
void wf_program_save(weft_program *p, const char *path);

/* Raising versions of the public calls, for the program `weft`. */
weft_program *wf_open(WfCtx *ctx, const char *path);
weft_session *wf_start(weft_program *p);
void wf_program_warn(const weft_program *p);       /* logs the compiled step's warnings; compiling does it, too */
void wf_need_training(const weft_program *p);      /* raises when the compiled step is the evaluation form alone */
/* A text in the place of the last one. */
WfStr wf_program_text(weft_program *p);
/* wf_weights_save and wf_weights_load for a session. */
void wf_save_weights(weft_session *s, const char *path);
void wf_load_weights(weft_session *s, const char *path);
/* Where compiled steps are kept: --cache-dir, WEFT_CACHE_DIR, XDG_CACHE_HOME/weft, HOME/.cache/weft; NULL: nowhere. */
const char *wf_cache_dir(WfCtx *ctx, WfArena *a, const WfOptions *o);

#endif
