/* Private to onnx. */
#ifndef WF_ONNX_PRIVATE_H
#define WF_ONNX_PRIVATE_H

#include "onnx/onnx.h"
#include "ops/ops.h"

/* ---- protobuf, as far as it is needed: proto.c ---- */

void pb_int(WfStr *s, int field, int64_t v);
void pb_float(WfStr *s, int field, float v);
void pb_bytes(WfStr *s, int field, const void *p, size_t n);
void pb_text(WfStr *s, int field, const char *text);
void pb_message(WfStr *s, int field, const WfStr *inner);
/* The head of a field of n bytes that follow. */
void pb_head(WfStr *s, int field, uint64_t n);

/* ---- a model under construction: model.c ---- */

typedef struct { const char *name; WfDtype dtype; int rank; int64_t shape[WF_MAX_RANK]; const void *data; size_t bytes;
                 uint64_t place; /* in the second file; 0: inside the model */ } Initializer;

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    WfGraph *g;
    WfOnnxData data;
    WfStr nodes;             /* NodeProtos, as fields of the graph */
    WF_VEC(Initializer) initializers;
    WfMap *read;             /* names of nodes' operands */
    WfMap *constants;        /* content -> index of its initializer */
    WfMap *sizes;            /* text of a symbolic size -> 1 + index in size_names */
    WF_VEC(const char *) size_names;
    const char **name;       /* by value; NULL: it has none (yet) */
    bool *used;              /* by input of the graph: user inputs that the model has */
    int fresh;
    const WfNode *at;        /* being written */
    /* the nodes under construction: what an operand needs is written while its reader waits */
    struct { WfStr node, attributes; const char *op; } open[8];
    int depth;
} Onnx;

int onnx_type(WfDtype t);    /* TensorProto.DataType */
void WF_NORETURN WF_PRINTF(2, 3) onnx_refuse(Onnx *x, const char *fmt, ...); /* about the node at x->at */

/* One node: begin, its inputs (NULL: left out) and attributes, end, which returns the name of its first result. */
void onnx_begin(Onnx *x, const char *op);
void onnx_in(Onnx *x, const char *name);
void onnx_attr_int(Onnx *x, const char *name, int64_t v);
void onnx_attr_ints(Onnx *x, const char *name, const int64_t *v, int n);
void onnx_attr_float(Onnx *x, const char *name, double v);
void onnx_attr_text(Onnx *x, const char *name, const char *v);
void onnx_attr_texts(Onnx *x, const char *name, const char *v);
const char *onnx_end(Onnx *x);
void onnx_end_many(Onnx *x, const char **out, int n);
/* Of up to three inputs and no attributes. */
const char *onnx_node(Onnx *x, const char *op, const char *a, const char *b, const char *c);

/* Constants, each content once. */
const char *onnx_ints(Onnx *x, const int64_t *v, int n);          /* i64 [n] */
const char *onnx_scalar(Onnx *x, WfDtype t, double v);            /* [] */
const char *onnx_constant(Onnx *x, WfDtype t, int rank, const int64_t *shape, const void *data, size_t bytes);

/* Sizes as tensors: i64 [1], and i64 [n]. */
const char *onnx_size(Onnx *x, WfDim d);
const char *onnx_sizes(Onnx *x, const WfDim *d, int n);
int64_t onnx_literal(Onnx *x, WfDim d); /* refuses a symbolic one */
const char *onnx_range(Onnx *x, WfDim n); /* i64 [n]: 0, 1, .. */

const char *onnx_value(Onnx *x, WfVal v);
void onnx_set(Onnx *x, const WfNode *n, int result, const char *name);
const char *onnx_reshape(Onnx *x, const char *v, const WfDim *shape, int rank);

/* ---- file.c ---- */

void onnx_write_file(Onnx *x, const WfStr *rest, const char *path); /* rest: the graph's fields but nodes and initializers */

/* ---- one row an op: ops.c ---- */

/* Writes a node of the graph; op: the operator that its row names. */
#define RULE Onnx *x, const WfNode *n, const char *op
#define IN(i) onnx_value(x, wf_tensor(n, i))
#define SHAPE(v) wf_value(x->g, v)->shape
#define RANK(v) wf_value(x->g, v)->rank

typedef struct {
    const char *name, *op;
    void (*write)(RULE);     /* NULL: a broadcast, which waits for a reader */
    bool (*keep)(WfGraph *g, const WfNode *n); /* an op of level func that is not taken apart; NULL: one of level op */
} OnnxRow;
void onnx_matmul(RULE), onnx_conv(RULE), onnx_conv_transposed(RULE), onnx_attention(RULE), onnx_normalize(RULE), onnx_max_pool(RULE), onnx_rnn(RULE);
void onnx_conv_bias(RULE), onnx_batch_norm(RULE);
bool onnx_keep_conv(WfGraph *g, const WfNode *n), onnx_keep_batch_norm(WfGraph *g, const WfNode *n);
const OnnxRow *onnx_row(const char *name);
/* Sizes of a broadcast are left to its readers: the value before it, and its shape. False: v is no broadcast. */
bool onnx_thin(Onnx *x, WfVal v, const char **name, int *rank, WfDim *shape);

#endif
