/* Private to emit: the state of one loop nest on its way to C, and what its files share. nest_loops.c orders,
 * merges and cuts the loops; nest_text.c writes index expressions and their bounds; nest_value.c writes the
 * value of a node at an index; nest_pass.c writes reductions, stores and the loops around them; nest.c puts
 * the function together. */
#ifndef WF_EMIT_NEST_H
#define WF_EMIT_NEST_H

#include <string.h>

#include "emit/emit.h"

#define LANES       16
#define MAX_GUARDS  12
#define MAX_CUTS    64
#define FEW_CUTS    8   /* more only where the pieces are short: ... */
#define PIECES_TEXT 512 /* ... nodes of the body, once per piece */
#define WIDE        8 /* most vectors side by side in a tile of a column kernel */

typedef enum { C_F, C_D, C_I, C_L, C_B } Class; /* f32, f64, int32, int64 lanes; truth values (int32 0, -1) */
static const char suffix[] = {'f', 'd', 'i', 'l', 'i'};

typedef struct {
    WfDim value, lo, hi;
} Guard; /* lo <= value < hi */
typedef struct {
    Guard at[MAX_GUARDS];
    int n;
} Guards;

typedef struct {
    WfDim var, size;
    bool reduced;
    int depth;
    char name[32]; /* in the text; of a vector of a wide tile "(i1+16)", of its last lane "((i1+16)+16-1)" */
    WfDim weight;
} Loop;
typedef struct {
    int id; /* C variable v<id> */
    Class cls;
    int depth;
} Val;

typedef struct {
    WfDim addr;
    int pass;
    bool guarded;
} Access;
typedef struct {
    WF_VEC(Access) at;
} Loads;
typedef struct {
    WfVal v;
    WfDim addr;
    bool full;
    int stage;
} Out;

typedef struct {
    WfGraph *g; /* the body */
    WfExprs *e;
    WfArena *a;
    Loop loop[WF_MAX_RANK];
    int n_loops;
    int vec;     /* index of the vector loop; -1: none (every loop has size 1) */
    bool column; /* the vector loop is kept and reductions run inside */
    int rank;    /* original loops */
    WfDim shape[WF_MAX_RANK], var[WF_MAX_RANK];
    WfDim row_shape[WF_MAX_RANK], row_ix[WF_MAX_RANK];
    int row_rank;
    uint32_t reduced;
    int n_from; /* merged loops: from[i] stands for to[i] */
    WfDim from[WF_MAX_RANK], to[WF_MAX_RANK];
    int *stage; /* by value */
    Out out[64];
    int n_out, n_pass;
    const int *symbols;
    int n_symbols;
    /* text */
    WfStr head, tile, *scope[WF_MAX_RANK + 3];
    int deepest;
    bool tail;
    int pass;
    int next;
    WfMap *cache[WF_MAX_RANK + 3]; /* by depth */
    struct {
        int id, depth;
        Val val;
        WfDim sym;
    } data[256]; /* indices read from data, each a symbol of its own */
    int n_data;
    WF_VEC(WfNodeId) checks;
    Loads *loads;          /* by input */
    WfMap *reductions;     /* value -> Val of its result, ... */
    WfMap *each[WIDE];     /* ... by vector of a wide tile */
    WF_VEC(WfDim) touched; /* dry run: every address, guard and index expression */
    WF_VEC(Guard) guards;  /* dry run: every bound of a padding or a join */
    bool dry;
    int64_t cut[MAX_CUTS]; /* where the vector loop is cut: bounds hold or fail for whole pieces */
    int n_cut;
    int64_t lo, hi;         /* the piece whose text is written; hi 0: no such piece */
    int wide;               /* column kernels: vectors side by side in a tile */
    int flush, flush_every; /* the loop that puts partial sums aside, every so many turns; -1: none */
} Em;

/* ---- nest_loops.c ---- */

/* Finds stages and passes, then orders, merges, cuts and numbers the loops and chooses the vector loop.
 * Expects the graph, the shapes and one loop per dimension that is not 1. */
void wf_em_arrange(Em *m);
/* The index of shape's elements over all loops (row: the kept ones), when the element counts agree. */
bool wf_em_candidate(Em *m, int rank, const WfDim *shape, bool row, WfDim *ix);
/* Does the value depend on a full-level quantity outside reductions, so that it needs the reduced loops?
 * Decided by shape: row-level values have the element count of the kept loops. ix: its index over them. */
bool wf_em_is_full(Em *m, WfVal v, WfDim *ix);
/* The index along the dims that n reduces, row-major. */
WfDim wf_em_reduce_position(Em *m, const WfNode *n, const WfDim *ix);
int64_t wf_em_at_least(Em *m, WfDim d); /* a lower bound of d, 1 when none is known */
/* Vectors side by side in a tile of a column kernel: a row of memory is then read in longer runs. As many as
 * leave eight tiles to share out, and their accumulators in registers. */
int wf_em_column_width(Em *m);
/* Which inputs' memory each result may take over: read nowhere but at the very element that is written, and
 * not after it. */
void wf_em_find_inplace(Em *m, WfKernelText *t);
/* Which inputs are read by a tile only in its own part: the tile is then the index of a row. */
void wf_em_find_rows(Em *m, WfKernelText *t, bool blocks);

/* ---- nest_text.c ---- */

WfDim wf_em_merged(Em *m, WfDim d); /* d over the merged loops */
char *wf_em_text(Em *m, WfDim d);
char *wf_em_text_vv(Em *m, WfDim d);  /* with vv for the vector variable */
bool wf_em_lane_data(Em *m, WfDim d); /* depends on an index vector read from data */
bool wf_em_on_vector(Em *m, WfDim d); /* may differ between lanes */
int wf_em_depth_of(Em *m, WfDim d);   /* of the outermost scope where all that d depends on is known */
int wf_em_guards_depth(Em *m, const Guards *gd);
/* C condition of the guards; `where` replaces the vector variable (NULL: itself). on: only guards that vary
 * (1) or do not vary (0) in the vector loop; 2: all. */
char *wf_em_condition(Em *m, const Guards *gd, int on, const char *where);
/* Do all varying guards move linearly with the vector loop, so that its end lanes decide? */
bool wf_em_monotonic(Em *m, const Guards *gd);
bool wf_em_provable(Em *m, const Guard *g);
/* A bound lo <= i + rest < hi on the vector variable i alone, as first <= i < end. */
bool wf_em_on_vector_only(Em *m, const Guard *g, int64_t *first, int64_t *end);
/* 1: holds in the whole piece of the vector loop, 0: nowhere in it, -1: unknown. */
int wf_em_in_piece(Em *m, const Guard *g);
/* Writes the definition of v into the scope of its depth. */
void wf_em_define(Em *m, Val v, const char *fmt, ...) WF_PRINTF(3, 4);
/* Appends to s: for each lane l with vector variable vv where cond (NULL: always) holds, the statement. */
void wf_em_lane_loop(Em *m, WfStr *s, const char *cond, const char *fmt, ...) WF_PRINTF(4, 5);
char *wf_em_literal(Em *m, double v, Class c);

/* ---- nest_value.c ---- */

/* The value at ix, computed only where the guards hold; its text goes where all it depends on is known. */
Val wf_em_eval(Em *m, WfVal v, const WfDim *ix, const Guards *gd);
Val wf_em_index_value(Em *m, WfDim d);   /* an index expression as int64 lanes */
void wf_em_reset_cache(Em *m, int from); /* forgets what is known at depth `from` and deeper */

/* ---- nest_pass.c ---- */

/* The text of a tile of `wide` vectors (1, except in column kernels), into m->tile. */
void wf_em_tile_text(Em *m, int wide);

/* ---- one-liners ---- */

static inline Class class_of(WfDtype t)
{
    switch (t) {
    case WF_F64:
        return C_D;
    case WF_I64:
        return C_L;
    case WF_BOOL:
        return C_B;
    case WF_I32:
    case WF_I16:
    case WF_I8:
    case WF_U8:
        return C_I;
    default:
        return C_F;
    }
}

static inline WfStr *at(Em *m, int depth)
{
    return m->scope[depth];
}

static inline const char *lanes(const Em *m)
{
    return m->tail ? "m" : "16";
}

static inline Val fresh(Em *m, Class c, int depth)
{
    return (Val){m->next++, c, depth};
}

/* Can a value of this scope differ between lanes? */
static inline bool may_vary(const Em *m, int depth)
{
    return m->column ? depth >= 1 : depth == m->deepest;
}

/* The vector variable. */
static inline const char *vname(const Em *m)
{
    return m->vec >= 0 ? m->loop[m->vec].name : "0";
}

static inline void touch(Em *m, WfDim d)
{
    if (m->dry)
        WF_PUSH(m->a, &m->touched, d);
}

static inline bool is_arg(const WfNode *n)
{
    return !strncmp(n->schema->name, "prim.arg", 8);
}

#endif
