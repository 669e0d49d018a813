/* ir: the one graph representation, from the export to the planned step.
 *
 * A graph is a list of nodes in topological order, in SSA form and without side effects: a node is an op, arguments in
 * the order of the op's schema, and results. Mutation of a parameter, buffer or optimiser state is an *output* that
 * names the input it updates. Passes do not edit: they walk a graph and build the next one (wf_emit), so an old handle
 * never dangles. The builder infers shapes, folds trivial nodes, shares equal ones and, when the graph's level does
 * not admit an op, expands it on the spot; "lowering to a level" is therefore copying into a graph of that level.
 * This room defines what an op is and walks ops; it names none (those that the builder itself needs to know, such as
 * the view primitives, are recognised by their family). */
#ifndef WF_IR_H
#define WF_IR_H

#include <string.h>

#include "base/base.h"

#define WF_MAX_RANK 8
#define WF_MAX_RESULTS 512

typedef uint32_t WfVal;     /* a value of one graph; 0 is none */
typedef uint32_t WfNodeId;  /* a node of one graph; 0 is none */
typedef struct WfGraph WfGraph;
typedef struct WfOp WfOp;
typedef struct WfNode WfNode;
typedef struct WfOracle WfOracle;

/* What may stand in a graph; see docs/ir.md. */
typedef enum { WF_ATEN, WF_FUNC, WF_OP, WF_JOINT, WF_DIST, WF_PRIM, WF_LOOP, WF_PLANNED, WF_LEVELS } WfLevel;
const char *wf_level_name(WfLevel l);

/* ---- arguments ---- */

typedef enum { WF_ARG_NONE, WF_ARG_TENSOR, WF_ARG_TENSORS, WF_ARG_INT, WF_ARG_INTS, WF_ARG_FLOAT, WF_ARG_FLOATS,
               WF_ARG_BOOL, WF_ARG_BOOLS, WF_ARG_STRING, WF_ARG_DTYPE, WF_ARG_GRAPH } WfArgKind;

/* Which member counts is said by kind, and the kind by the value, not by the schema: a Tensor parameter may hold an
 * int or a float (`x * 2`). Integers are symbolic (WfDim). In TENSORS an absent optional tensor is 0. */
typedef struct {
    WfArgKind kind;
    int n;                 /* length of the list kinds */
    union {
        WfVal val;
        WfVal *vals;
        WfDim i;
        WfDim *ints;
        double f;
        double *floats;
        bool b;
        bool *bools;
        const char *s;
        WfDtype dtype;
        WfGraph *graph;
    };
} WfArg;

/* ---- schema: PyTorch's own text, parsed once ---- */

typedef enum { WF_T_TENSOR, WF_T_TENSORS, WF_T_INT, WF_T_INTS, WF_T_FLOAT, WF_T_FLOATS, WF_T_BOOL, WF_T_BOOLS,
               WF_T_STRING, WF_T_DTYPE, WF_T_SCALAR, WF_T_GRAPH, WF_T_IGNORED } WfParamType;
typedef struct {
    const char *name;
    WfParamType type;
    bool optional;         /* T? */
    bool optional_items;   /* Tensor?[] */
    int8_t fixed;          /* int[2]: a single int stands for that many; 0 otherwise */
    char alias;            /* 'a' in Tensor(a) and Tensor(a!); 0 otherwise */
    bool mutates;          /* Tensor(a!) */
    bool has_default;
    WfArg fallback;
} WfParam;
typedef struct {
    const char *name;      /* "aten.add.Tensor"; ".default" is left out */
    WfParam *params;
    int n_params;
    struct { WfParamType type; char alias; bool mutates; } ret[16];
    int n_ret;
    bool mutates;          /* any parameter is Tensor(x!) */
    bool view;             /* a result aliases an unmutated argument */
} WfSchema;

/* ---- ops ---- */

typedef enum {
    WF_COMPOSITE,   /* only a decomposition (and perhaps a VJP) */
    WF_POINTWISE,   /* every result element from the same element of operands of one shape */
    WF_SOURCE,      /* pointwise without operands: full, iota, rand */
    WF_VIEW,        /* an index map: result elements are operand elements (or a fill value) elsewhere */
    WF_GATHER,      /* an index map read from data */
    WF_REDUCE,
    WF_LIBRARY,     /* a named kernel of src/kernels */
    WF_COLLECTIVE,  /* between the ranks of a group; reads and writes stored values */
    WF_LOOPNEST,    /* a fused kernel: its body is a sub-graph (level loop) */
    WF_HOP          /* holds sub-graphs: cond, scan, regions */
} WfFamily;

typedef struct WfIndex WfIndex; /* see "index maps" below */

/* A library call in terms of values: operands in the kernel's order, inputs then outputs. */
enum { WF_CALL_OPERANDS = 16, WF_CALL_PARAMS = 32 };
#define WF_STATUS ((WfVal)-1)  /* the executor's status word stands for this operand */
typedef struct {
    const char *kind;      /* of src/kernels */
    int n;
    struct {
        WfVal v;           /* 0: absent */
        bool dense;        /* must be dense, in `order` when ordered, else row-major */
        bool ordered;      /* outputs: the memory order the kernel writes; inputs: the order it wants */
        int8_t order[WF_MAX_RANK];
        int rank;          /* > 0: seen by the kernel in this shape instead (dense row-major only) */
        WfDim shape[WF_MAX_RANK];
    } at[WF_CALL_OPERANDS];
    int64_t param[WF_CALL_PARAMS];
    double fparam[8];
} WfLibraryCall;

/* What travels between a start and its wait. */
typedef struct {
    WfCollective kind;
    bool in_place;         /* the results are the operands' memory, of which several may travel as one */
    bool to_root;          /* REDUCE_SCATTER: all of it goes to the root, the others get zeros */
    double traffic;        /* bytes moved for each byte of the larger side; of an all_reduce: 1 */
} WfTravel;

struct WfOp {
    const char *schema;    /* "aten.linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor" */
    WfFamily family;
    /* Sets dtype and shape of every result (wf_set_result), raising if the operands do not fit. NULL: by family
     * (POINTWISE: the operands' shape, `result` dtype), or by the decomposition. */
    void (*infer)(WfGraph *g, const WfNode *n);
    WfDtype result;        /* POINTWISE: the result's dtype when it is not the first operand's (comparisons: bool) */
    /* Builds the results from simpler ops in g; returns how many (out has room for WF_MAX_RESULTS). */
    int (*decompose)(WfGraph *g, const WfNode *n, WfVal *out);
    /* Vector-Jacobian product. dy[i] is the cotangent of result i (0: none); sets dx[p] for operand slot p (slots
     * count tensors in argument order, list members one each; 0: no gradient). wf_wants(g, n, p) says whether the
     * caller needs it. Results are n's own values, to be read as saved activations. */
    void (*vjp)(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx);
    /* Trivial cases: returns the value to use instead of a new node, or 0. Sees a node that is not in the graph. */
    WfVal (*fold)(WfGraph *g, const WfNode *n);
    /* POINTWISE: text of the result in generated C over vector values: %0, %1.. operands; by class of the computing
     * dtype. NULL where the dtype class is not supported. */
    const char *c_float, *c_int, *c_bool;
    /* POINTWISE: one element in double (floats) or int64 (integers and bool), for the oracle and constant folding. */
    double (*eval_f)(const double *x);
    int64_t (*eval_i)(const int64_t *x);
    double (*reduce)(double acc, double x); /* REDUCE: combine, for the oracle */
    double init;                            /* REDUCE: the neutral element */
    /* VIEW: maps the result's index to operand k's index; see WfIndex. */
    void (*index)(WfGraph *g, const WfNode *n, WfIndex *ix);
    /* Any family: slow evaluation in double precision for the oracle; NULL: by family or decomposition. */
    void (*eval)(WfOracle *o, const WfNode *n);
    /* LIBRARY: the call of src/kernels that computes it. */
    void (*describe)(WfGraph *g, const WfNode *n, WfLibraryCall *call);
    uint32_t mutated_args; /* bit p: argument p is mutated although the schema does not say so (batch_norm) ... */
    const char *functional;/* ... and this op returns the new values after its ordinary results. Also the functional
                            * twin of an in-place op when it is not the same name without the underscore. */
    /* Turns the arguments of a training node into those of its evaluation form (dropout, batch_norm, ...); NULL: the
     * same. */
    void (*evaluation)(WfGraph *g, WfArg *args);
    int8_t predictions;    /* losses: 1 + the argument that holds the predictions */
    /* COLLECTIVE: the op that begins it, with the same arguments over a list of tensors; dist.wait ends it. NULL: this is
     * such a start, which says how it travels, or the wait. */
    const char *start;
    const WfTravel *travel;
    bool pure_random;      /* never shared: draws random numbers, its stream being part of its arguments; or a copy */
};

/* ---- nodes, values, graphs ---- */

struct WfNode {
    const WfOp *op;
    const WfSchema *schema;
    WfArg *args;           /* schema->n_params of them */
    WfVal out;             /* first result; results are consecutive values */
    int n_out;
    uint32_t source;       /* index into the graph's sources; 0 unknown */
    bool no_grad;          /* inside a no_grad region: its results are constants to the backward pass */
};

typedef struct {
    WfDtype dtype;
    int8_t rank;
    WfDim shape[WF_MAX_RANK];
    const char *name;      /* without the %; unique in its graph once printed */
    WfNodeId node;         /* 0: a graph input */
    int index;             /* which result of node, or which input */
    /* Memory order of a materialised value (level loop and later): dims from outermost to innermost. */
    int8_t order[WF_MAX_RANK];
    bool ordered;
    uint8_t sure;          /* layout pass: 0 no order yet, 1 suggested by a broadcast operand, 2 follows memory */
    /* aten level only: the export's claim, which functionalisation uses to tell views from copies */
    bool contiguous;
} WfValue;

typedef struct {
    const char *file, *code, *module; /* Python file, text of the line, module path; any may be NULL */
    int line;
} WfSource;

typedef enum { WF_IN_PARAM, WF_IN_BUFFER, WF_IN_CONST, WF_IN_USER, WF_IN_STATE, WF_IN_SCALAR,
               WF_IN_ACCUM, /* gathers over the micro-batches of one step; no part of the saved state */
               WF_IN_COTANGENT, WF_IN_SAVED /* of the backward half: of an output; what the forward half kept */ } WfInRole;
typedef struct {
    WfInRole role;
    const char *name;      /* user-visible: "l.0.weight", "x"; state: "l.0.weight.exp_avg" */
    WfVal val;
    bool trainable;        /* PARAM; in halves also USER: backward gives its gradient */
    bool persistent;       /* BUFFER */
    const char **aliases;  /* further names of the same tensor (tied weights) */
    int n_aliases;
    /* Start value, for PARAM, BUFFER, CONST: dense in `shape` order after wf_input_data; owned by the model's arena or
     * mapping. NULL: zeros (STATE). Strides in elements, as stored. */
    const void *data;
    int64_t strides[WF_MAX_RANK];
    double fill;           /* STATE: start value */
    const char *of;        /* STATE, ACCUM: name of its parameter */
} WfInput;

typedef enum { WF_OUT_USER, WF_OUT_LOSS, WF_OUT_UPDATE, WF_OUT_GRAD, WF_OUT_METRIC,
               WF_OUT_SAVED /* of the forward half: kept for the backward half */ } WfOutRole;
typedef struct {
    WfOutRole role;
    const char *name;      /* USER: pytree path or index; UPDATE, GRAD: the input's name; METRIC: "grad_norm" */
    WfVal val;
    int input;             /* UPDATE, GRAD: index of the input it belongs to */
} WfOutput;

struct WfGraph {
    WfCtx *ctx;
    WfArena *arena;
    WfExprs *exprs;        /* symbols and their ranges; shared by graphs derived from one another */
    WfLevel level;
    bool expand;           /* wf_emit expands ops that `level` does not admit */
    WF_VEC(WfNode) nodes;  /* nodes.at[0] is unused */
    WF_VEC(WfValue) values;
    WF_VEC(WfInput) inputs;
    WF_VEC(WfOutput) outputs;
    WF_VEC(WfSource) sources;
    WfMap *shared;         /* builder: node key -> node */
    WfMap *names;          /* names given so far */
    uint32_t source;       /* given to new nodes */
    bool no_grad;          /* given to new nodes */
    bool agree;            /* batch statistics are those of all ranks' batches together */
    int streams;           /* random streams handed out */
    const bool *wants;     /* during a vjp: operand slots whose gradient is needed */
    int *uses, uses_n;     /* wf_is_used's count */
    int depth;             /* expansion depth, against runaway decompositions */
    const WfNode *expanding; /* the outermost node being expanded: what a failure below is about */
};

WfGraph *wf_graph_new(WfCtx *ctx, WfArena *a, WfExprs *exprs /* NULL: new */, WfLevel level);
/* An empty graph that shares exprs and sources with `from`. */
WfGraph *wf_graph_like(const WfGraph *from, WfLevel level);
static inline WfNode *wf_node(const WfGraph *g, WfNodeId id) { return &g->nodes.at[id]; }
static inline WfValue *wf_value(const WfGraph *g, WfVal v) { return &g->values.at[v]; }
static inline bool wf_is(const WfNode *n, const char *op)       /* a node, and of that op? */
{
    return n && !strcmp(n->schema->name, op);
}
static inline WfNode *wf_producer(const WfGraph *g, WfVal v)   /* NULL for an input */
{
    return g->values.at[v].node ? &g->nodes.at[g->values.at[v].node] : NULL;
}
const WfInput *wf_input_of(const WfGraph *g, WfVal v);         /* NULL when v is a node's result */

/* ---- the registry ---- */

/* Families register arrays of ops; ends with a NULL schema. Thread-safe, done once per process by wf_ops_init. */
void wf_register(const WfOp *ops);
const WfOp *wf_op_find(const char *name);      /* NULL if unknown; takes "torch.ops.aten.add.Tensor" too */
const WfSchema *wf_schema_of(const WfOp *op);
int wf_op_count(void);
const WfOp *wf_op_at(int i);                   /* in order of name */

/* ---- building ---- */

WfVal wf_add_input(WfGraph *g, WfInRole role, const char *name, WfDtype t, int rank, const WfDim *shape);
void wf_add_output(WfGraph *g, WfOutRole role, const char *name, WfVal v, int input);

/* Builds one node. `fmt` holds a letter per argument, in schema order; missing ones take the schema's default:
 *   v WfVal (0: None)   V const WfVal *, int n     i WfDim   d int   I const WfDim *, int n   f double   b int
 *   F const double *, int n   t WfDtype   s const char *   n None    G WfGraph *    a const WfArg * (copied)
 * Returns the first result; wf_emit_multi gives them all. */
WfVal wf_emit(WfGraph *g, const char *op, const char *fmt, ...);
void wf_emit_multi(WfGraph *g, WfVal *out, const char *op, const char *fmt, ...);
/* The same from an argument array (schema->n_params entries). out gets schema->n_ret values (or for Tensor[] results
 * as many as there are; *n_out says how many and may be NULL). */
void wf_emit_args(WfGraph *g, const WfOp *op, const WfArg *args, WfVal *out, int *n_out);
/* Fills args (schema->n_params, at most 64) from `given`: defaults, single ints where lists are wanted, empty lists of
 * the right kind. Raises when an argument is missing. Raw nodes carry complete arguments. */
void wf_complete_args(WfGraph *g, const WfOp *op, const WfArg *given, WfArg *args);
/* Appends a node as it is, with n_out results whose shapes the caller sets (import: the export's claims). */
WfNode *wf_append_raw(WfGraph *g, const WfOp *op, const WfArg *args, int n_out);
/* Infers the results' dtypes and shapes of a raw node: by its rule, or from its decomposition in a scratch graph. */
void wf_infer(WfGraph *g, WfNode *n);
void wf_set_result(WfGraph *g, const WfNode *n, int i, WfDtype t, int rank, const WfDim *shape);
void wf_name_value(WfGraph *g, WfVal v, const char *name);     /* made unique */
const char *wf_value_name(const WfGraph *g, WfVal v);          /* as in the text, without the % */
bool wf_wants(const WfGraph *g, int slot);
/* True when `level` admits the op as a node. */
bool wf_admits(WfLevel level, const WfOp *op);

/* Arguments of a node. */
static inline bool wf_has(const WfNode *n, int i) { return n->args[i].kind != WF_ARG_NONE; }
WfVal wf_tensor(const WfNode *n, int i);       /* 0 when None or not a tensor */
WfDim wf_int(const WfNode *n, int i);          /* from int or bool; symbolic allowed */
int64_t wf_lit(WfGraph *g, const WfNode *n, int i); /* a literal int, else raises "must be static" */
double wf_float(WfGraph *g, const WfNode *n, int i);/* from float, int or bool */
bool wf_bool(const WfNode *n, int i);
const WfArg *wf_arg(const WfNode *n, const char *name); /* by parameter name; must exist */

/* Calls fn for every tensor operand slot in order; the copy in *v may be changed by wf_map_operands only. */
int wf_operands(const WfNode *n, WfVal *out, int max);          /* returns the count, also when out is too small */
int wf_operand_count(const WfNode *n);

/* Failure that names the node and the user's line: "aten.linear: <message>". */
void wf_fail_node(WfGraph *g, const WfNode *n, int kind, const char *fmt, ...) WF_NORETURN WF_PRINTF(4, 5);
char *wf_node_place(WfGraph *g, const WfNode *n);               /* "at %x = ...  from net.py:31  code" */

/* ---- shapes ---- */

WfDim wf_numel(WfGraph *g, WfVal v);
bool wf_same_shape(WfGraph *g, WfVal a, WfVal b);
bool wf_dims_equal(WfGraph *g, WfDim a, WfDim b);
int wf_dim_index(WfGraph *g, const WfNode *n, WfDim dim, int rank); /* wraps negatives, raises when out of range */
char *wf_shape_text(WfGraph *g, WfVal v);      /* "f32[s0, 128]" */
/* NumPy broadcasting of two shapes; raises through n when they do not fit. */
void wf_broadcast_shape(WfGraph *g, const WfNode *n, int ra, const WfDim *a, int rb, const WfDim *b, int *rank,
                        WfDim *out);

/* ---- index maps: what fusion needs to know of a view ---- */

/* In: the result's index, one expression per dimension. Out: the operand chosen and its index; when `guards` is set
 * the element is `fill` unless every lo <= expr < hi holds (pad, unwindow) — for cat, one call per operand k. */
struct WfIndex {
    WfDim at[WF_MAX_RANK];     /* in: result index; out: operand index */
    int operand;               /* in: which operand slot is asked for */
    struct { WfDim value, lo, hi; } guard[2 * WF_MAX_RANK]; /* lo <= value < hi */
    int n_guards;
    double fill;
};

/* ---- memory ---- */

/* A library operand: a stored value seen through views, as strides. */
typedef struct {
    WfVal base;
    WfDim offset;            /* elements, in base's memory */
    int rank;
    WfDim shape[WF_MAX_RANK], stride[WF_MAX_RANK];
} WfStrided;
/* Resolves v through views to memory. False when some view is no affine map (v must then be copied). stored may be
 * NULL: every value that is not a view is. */
bool wf_strided(WfGraph *g, WfVal v, const bool *stored, WfStrided *out);
/* Strides of a stored value's memory: its `order`, or row-major. */
void wf_memory_strides(WfGraph *g, WfVal v, WfDim *stride);
/* Operand k of a call as the kernel sees it; false when its memory is not what the call wants. */
bool wf_call_operand(WfGraph *g, const WfLibraryCall *c, int k, const bool *stored, WfStrided *out);

/* A few distinct values: what a computation reads. n stays at WF_LEAVES once there are more. */
enum { WF_LEAVES = 13 };
typedef struct { int n; WfVal at[WF_LEAVES]; } WfLeaves;
static inline void wf_leaves_add(WfLeaves *s, WfVal v)
{
    for (int i = 0; i < s->n; i++)
        if (s->at[i] == v)
            return;
    if (s->n < WF_LEAVES)
        s->at[s->n++] = v;
}

/* ---- walking ---- */

/* Copies `from` into `to` (inputs first, then the nodes that outputs need), expanding whatever `to` does not admit.
 * map[v] of from becomes the value of to; map may be NULL. Names and sources are kept. */
void wf_graph_copy(const WfGraph *from, WfGraph *to, WfVal *map);
/* Copies inputs only (with role, data, names). */
void wf_copy_inputs(const WfGraph *from, WfGraph *to, WfVal *map);
/* Re-emits one node of `from` in `to` through map. */
void wf_copy_node(const WfGraph *from, const WfNode *n, WfGraph *to, WfVal *map);
void wf_copy_outputs(const WfGraph *from, WfGraph *to, const WfVal *map);
/* The value that single-operand views of it lead back to. */
WfVal wf_behind_views(const WfGraph *g, WfVal v);
/* Marks live nodes (those that outputs need): an array of n nodes, in the graph's arena. */
bool *wf_live_nodes(const WfGraph *g);
/* Number of uses of each value by live nodes and outputs. */
int *wf_use_counts(const WfGraph *g);
/* Does any node, live or not, or any output read v? For graphs that are complete. */
bool wf_is_used(WfGraph *g, WfVal v);

/* ---- text ---- */

/* docs/ir.md is the grammar. Deterministic; parse(print(g)) is the identical graph. */
void wf_print(const WfGraph *g, WfStr *out);
void wf_print_source(const WfSource *src, WfStr *out); /* "  from file:line  code  (module path)", what is known */
void wf_print_node_short(const WfGraph *g, const WfNode *n, WfStr *out); /* sub-graphs left out */
WfGraph *wf_parse(WfCtx *ctx, WfArena *a, const char *text, const char *what);
/* Parses "%1, [2, 3], x=4.0" against a schema; values resolved by `find`. For weft_graph_node. */
void wf_parse_args(WfGraph *g, const WfOp *op, const char *text, WfVal (*find)(void *, const char *), void *user,
                   WfArg *args);
/* SHA-256 over the canonical form: ops, attributes, shapes and edges in topological order; no names. */
void wf_signature(const WfGraph *g, char hex[65]);
/* Raises WEFT_ERR_INTERNAL with pass name and node when the graph breaks a rule of its level. */
void wf_verify(const WfGraph *g, const char *after);

/* ---- passes ---- */

typedef struct WfPassEnv WfPassEnv;
typedef enum { WF_WHOLE, WF_HALF_FORWARD, WF_HALF_BACKWARD } WfHalf;
typedef WfGraph *(*WfPassFn)(WfPassEnv *env, WfGraph *g);
typedef struct {
    const char *name;          /* "simplify/functionalize" */
    WfPassFn run;
    WfLevel from, to;
    const char *what;          /* one line for --help and dumps */
    bool (*when)(const WfPassEnv *env); /* NULL: always */
} WfPass;
struct WfPassEnv {
    WfCtx *ctx;
    WfArena *arena;
    const WfOptions *options;
    bool eval;                 /* building the evaluation form */
    bool micro;                /* building the form of all micro-batches but a step's last */
    WfHalf half;               /* building one of two programs, forward and backward */
    void *out;                 /* what a pass hands to the next room besides the graph */
};

/* ---- oracle: slow, plain, double precision, primitives only ---- */

/* Evaluates the whole graph. inputs[i]: dense doubles of input i (integers exact up to 2^53), or NULL for its start
 * value. Leaves arrays by value id (NULL for values not computed). */
struct WfOracle {
    WfGraph *g;
    WfArena *arena;
    double **val;              /* by value id */
    const int64_t *symbols;    /* value of each symbol by id */
    uint64_t seed;
    int64_t step;
};
void wf_oracle_run(WfOracle *o, const double *const *inputs);
int64_t wf_oracle_numel(const WfOracle *o, WfVal v);
int64_t wf_oracle_dim(const WfOracle *o, WfDim d);
int64_t wf_oracle_shape(const WfOracle *o, WfVal v, int64_t *shape); /* returns the element count */
double *wf_oracle_new(WfOracle *o, WfVal v);   /* zeros for value v, entered in o->val: for eval functions */

#endif
