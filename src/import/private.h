/* Private to import. */
#ifndef WF_IMPORT_PRIVATE_H
#define WF_IMPORT_PRIVATE_H

#include <jansson.h>

#include "import/import.h"
#include "ops/ops.h"

/* One tensor of a weights or constants table. */
typedef struct {
    const char *fqn, *file; /* file: name of its raw storage in the archive */
    WfDtype dtype;
    int rank;
    int64_t sizes[WF_MAX_RANK], strides[WF_MAX_RANK];
    int64_t offset;     /* elements */
    int64_t first, end; /* bytes it may touch in its storage; end == first when it is empty */
    const void *data;
    bool is_param, requires_grad;
    int input; /* index of the graph input that stands for it, -1 before there is one */
} Weight;

/* Names of one graph; a sub-graph has its own. Integers are values of type WfDim and no nodes; `opaque` holds
 * names of booleans and floats computed from sizes, which nothing may use but assertions. */
typedef struct {
    WfGraph *g;
    WfMap *tensors, *ints, *opaque;
    const json_t *tensor_values, *int_values;
} Scope;

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    const char *path;
    const WfZip *zip;
    const char *root, *name; /* "model/", "model" */
    WfExprs *e;
    WfGraph *top;
    WF_VEC(WfSource) sources;
    WfMap *source_ids;
    WF_VEC(WfGraph *) graphs; /* all, so that they share the final source table */
    WF_VEC(Weight) weights;
    WfMap *by_fqn;
    const char *place; /* of the node being read, for messages */
    int depth, nodes;
} Imp;

/* Failures: the file's name in front, the node's place behind. */
void imp_fail(Imp *m, int kind, const char *hint, const char *fmt, ...) WF_NORETURN WF_PRINTF(4, 5);
#define bad(m, ...)         imp_fail(m, WF_E_PT2_DAMAGED, NULL, __VA_ARGS__)
#define unsupported(m, ...) imp_fail(m, WF_E_MODEL_FORM, NULL, __VA_ARGS__)

/* ---- typed JSON; each raises when the file differs ---- */
const json_t *imp_get(Imp *m, const json_t *o, const char *key, json_type type);
const json_t *imp_opt(Imp *m, const json_t *o, const char *key,
                      json_type type); /* NULL when absent or null */
const char *imp_string(Imp *m, const json_t *o, const char *key);
int64_t imp_int(Imp *m, const json_t *o, const char *key);
bool imp_bool(Imp *m, const json_t *o, const char *key, bool fallback);
const char *imp_tag(Imp *m, const json_t *u, const json_t **value); /* the key of a one-key object */
const char *imp_tensor_name(Imp *m, const json_t *v);               /* {"name": ...} */

/* ---- archive ---- */
const WfZipEntry *imp_entry(Imp *m, const char *fmt, ...) WF_PRINTF(2, 3);
void imp_open(Imp *m, const WfFile *f); /* checks the container, sets zip, root, name */
void imp_weights(Imp *m);               /* reads both tables */
WfDtype imp_dtype(Imp *m, int64_t code);
/* Refuses overlapping trainable tensors that are not the same one. */
void imp_check_overlaps(Imp *m);
bool imp_same_tensor(const Weight *a, const Weight *b);

/* ---- sizes ---- */
void imp_symbols(Imp *m, const json_t *range_constraints);
WfDim imp_expr(Imp *m, const char *srepr);
WfDim imp_symint(Imp *m, const json_t *v); /* {"as_int"} or {"as_expr"} */
/* Shape of a TensorMeta; contiguous (may be NULL): as its strides claim. */
WfDtype imp_meta(Imp *m, const json_t *meta, int *rank, WfDim *shape, bool *contiguous);
/* True when the node computes sizes only; then its results are known names of the scope. */
bool imp_size_node(Imp *m, Scope *s, const char *target, const json_t *node);

/* ---- sources ---- */
uint32_t imp_source(Imp *m, const json_t *node);
char *imp_place(Imp *m, const char *op, const char *name, uint32_t source);

/* ---- graphs ---- */
void imp_check_ops(Imp *m, const json_t *graph); /* names all operators that are missing */
void imp_nodes(Imp *m, Scope *s, const json_t *graph);
WfVal imp_tensor(Imp *m, Scope *s, const char *name); /* raises when unknown */
WfDim imp_dim_arg(Imp *m, Scope *s, const json_t *v); /* {"as_name"} or {"as_int"} */
void imp_define(Imp *m, Scope *s, const char *name, WfVal v);
void imp_tensor_input(Imp *m, Scope *s, const json_t *v);           /* {"name": ...}: an input of the graph */
void imp_scope(Imp *m, Scope *s, WfGraph *g, const json_t *graph);
void imp_signature(Imp *m, Scope *s, const json_t *graph, const json_t *signature);
void imp_outputs(Imp *m, Scope *s, const json_t *graph, const json_t *signature);

#endif
