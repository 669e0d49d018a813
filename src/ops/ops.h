/* ops: what every op is, one const struct in its family's file. */
#ifndef WF_OPS_H
#define WF_OPS_H

#include "ir/ir.h"

void wf_ops_init(void);                      /* registers all families, once per process, from any thread */

/* The op that computes what an in-place one (or one with implicit updates) writes; NULL if there is none. */
const WfOp *wf_functional_twin(const WfOp *op);

/* ---- helpers for decompositions and VJPs: thin faces of wf_emit over primitives ---- */

/* Pointwise, after broadcasting both operands to one shape; dtypes must agree. */
WfVal wf_add(WfGraph *g, WfVal a, WfVal b);
WfVal wf_sub(WfGraph *g, WfVal a, WfVal b);
WfVal wf_mul(WfGraph *g, WfVal a, WfVal b);
WfVal wf_div(WfGraph *g, WfVal a, WfVal b);
WfVal wf_binary(WfGraph *g, const char *prim, WfVal a, WfVal b);   /* any binary primitive, broadcasting */
WfVal wf_unary(WfGraph *g, const char *prim, WfVal a);
WfVal wf_where(WfGraph *g, WfVal cond, WfVal a, WfVal b);          /* broadcasting */
WfVal wf_neg(WfGraph *g, WfVal a);
WfVal wf_cast(WfGraph *g, WfVal a, WfDtype t);                     /* a itself when it is of dtype t */
WfVal wf_detach(WfGraph *g, WfVal a);
/* Constants in the dtype of `like`: a scalar (rank 0), to be broadcast. */
WfVal wf_scalar(WfGraph *g, WfDtype t, double v);
WfVal wf_like(WfGraph *g, WfVal like, double v);                   /* rank-0 constant of like's dtype */
WfVal wf_full(WfGraph *g, WfDtype t, int rank, const WfDim *shape, double v);
WfVal wf_zeros_like(WfGraph *g, WfVal like);
WfVal wf_dim_scalar(WfGraph *g, WfDtype t, WfDim d);               /* a symbolic integer as a rank-0 value */
WfVal wf_iota(WfGraph *g, WfDtype t, int rank, const WfDim *shape, int dim);
/* Add a (or multiply by) a C number. */
WfVal wf_adds(WfGraph *g, WfVal a, double v);
WfVal wf_muls(WfGraph *g, WfVal a, double v);

/* Views. */
WfVal wf_reshape(WfGraph *g, WfVal a, int rank, const WfDim *shape);
WfVal wf_expand(WfGraph *g, WfVal a, int rank, const WfDim *shape); /* NumPy broadcasting to shape */
WfVal wf_expand_like(WfGraph *g, WfVal a, WfVal like);
WfVal wf_permute(WfGraph *g, WfVal a, const int *perm);
WfVal wf_transpose(WfGraph *g, WfVal a, int d0, int d1);
WfVal wf_slice(WfGraph *g, WfVal a, int dim, WfDim start, WfDim end, int64_t step); /* 0 <= start <= end <= size */
WfVal wf_squeeze(WfGraph *g, WfVal a, int dim);                    /* removes a dim of size 1 */
WfVal wf_unsqueeze(WfGraph *g, WfVal a, int dim);
WfVal wf_pad(WfGraph *g, WfVal a, const WfDim *lo, const WfDim *hi, double fill);
WfVal wf_pad_dim(WfGraph *g, WfVal a, int dim, WfDim lo, WfDim hi, double fill);
WfVal wf_cat(WfGraph *g, const WfVal *v, int n, int dim);
/* Puts `part` into the place that wf_slice(whole, dim, start, end, step) reads. */
WfVal wf_slice_scatter(WfGraph *g, WfVal whole, WfVal part, int dim, WfDim start, WfDim end, int64_t step);
WfVal wf_flip(WfGraph *g, WfVal a, const int *dims, int n);

/* Reductions over dims (a bit mask), result without them; keep: with size 1. */
WfVal wf_reduce(WfGraph *g, const char *prim, WfVal a, uint32_t dims, bool keep);
WfVal wf_sum(WfGraph *g, WfVal a, uint32_t dims, bool keep);
WfVal wf_mean(WfGraph *g, WfVal a, uint32_t dims, bool keep);
/* Sums a down to `shape`: the VJP of expanding shape to a's. */
WfVal wf_sum_to(WfGraph *g, WfVal a, int rank, const WfDim *shape);
WfVal wf_keep_dims(WfGraph *g, WfVal reduced, WfVal full, uint32_t dims); /* puts size-1 dims back */
WfDim wf_count(WfGraph *g, WfVal a, uint32_t dims);                /* product of those sizes */
uint32_t wf_dims_mask(WfGraph *g, const WfNode *n, int arg, int rank); /* int[]? dim argument; None or []: all */

WfVal wf_matmul(WfGraph *g, WfVal a, WfVal b);                     /* prim.matmul: equal batch dims */
WfVal wf_gather(WfGraph *g, WfVal x, int dim, WfVal index);        /* torch.gather */
WfVal wf_take_rows(WfGraph *g, WfVal x, int dim, WfVal index);     /* index of any rank replaces dim */

/* torch.scatter of src at index along dim; mode set, add, mul, max or min; index and src have one shape, equal to x's
 * but for dim. */
WfVal wf_scatter(WfGraph *g, WfVal x, int dim, WfVal index, WfVal src, const char *mode);

/* Argument as a tensor: a tensor is cast to t, a number becomes a rank-0 constant of t. */
WfVal wf_operand(WfGraph *g, const WfNode *n, int arg, WfDtype t);
/* PyTorch's type promotion over the given argument positions (tensors, 0-d tensors, Python numbers). */
WfDtype wf_promote(WfGraph *g, const WfNode *n, const int *args, int n_args);
WfDtype wf_promote_types(WfDtype a, WfDtype b); /* torch.promote_types; 0 is no type */
WfDtype wf_promote_float(WfGraph *g, const WfNode *n, const int *args, int n_args); /* integers become f32 */
WfDtype wf_dtype_of(WfGraph *g, WfVal v);
int wf_rank_of(WfGraph *g, WfVal v);
WfDim wf_size_of(WfGraph *g, WfVal v, int dim);                    /* negative dim from the end */
/* ---- rows: which sample of the batch an element belongs to ---- */

/* Along dimension dim, index i belongs to row i / inner % batch. NONE: the value does not depend on the batch; MIXED: not on
 * one row each, or on which is not known. */
enum { WF_ROWS_NONE = -1, WF_ROWS_MIXED = -2 };
typedef struct { int dim; WfDim inner; } WfRows;
/* By value, of a graph of level op or joint whose user inputs have `batch` rows in their first dimension. */
WfRows *wf_rows(WfGraph *g, WfDim batch);
/* A bool of like's shape, whose rows lie as r says: does the element belong to one of the first `count` (an i64) rows? */
WfVal wf_rows_below(WfGraph *g, WfRows r, WfVal like, WfDim batch, WfVal count);

#define WF_ALL_DIMS(rank) ((uint32_t)((1ull << (rank)) - 1))

#endif
