/* Lookups. Rows are read with prim.gather, which checks the indices; the gradient adds whole rows. A padding
 * row takes part with its value but not with its gradient. Bags are sums over the rows of a bag by
 * prim.scatter_rows, whose index (which bag a position belongs to) is counted from the offsets. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

/* idx == padding, broadcast over trailing dimensions of `like`. */
static WfVal is_padding(WfGraph *g, WfVal index, WfDim padding, int trailing)
{
    WfVal hit = wf_binary(g, "prim.eq", index, wf_dim_scalar(g, wf_dtype_of(g, index), padding));
    for (int i = 0; i < trailing; i++)
        hit = wf_unsqueeze(g, hit, wf_rank_of(g, hit));
    return hit;
}

/* rows of w, whose gradient is divided by how often their index occurs (scale_grad_by_freq) */
static WfVal shared_gradient(WfGraph *g, WfVal w, WfVal index, WfVal rows)
{
    WfDtype t = wf_dtype_of(g, w);
    WfDim classes = wf_size_of(g, w, 0), count = wf_numel(g, index);
    WfVal ones = wf_full(g, t, 3, (WfDim[]){1, count, 1}, 1), zeros = wf_full(g, t, 3, (WfDim[]){1, classes, 1}, 0);
    WfVal times = wf_emit(g, "prim.scatter_rows", "vvvs", zeros, wf_reshape(g, wf_cast(g, index, WF_I64), 1, &count), ones,
                          "add");
    times = wf_take_rows(g, wf_reshape(g, times, 1, &classes), 0, index);
    WfVal step = wf_sub(g, rows, wf_detach(g, rows));
    return wf_add(g, wf_detach(g, rows), wf_div(g, step, wf_unsqueeze(g, times, wf_rank_of(g, times))));
}

static int embedding(DECOMPOSE)
{
    WfVal w = T(0), index = T(1);
    if (wf_rank_of(g, w) != 2 || !wf_dtype_is_int(wf_dtype_of(g, index)))
        wf_fail_node(g, n, WF_E_SHAPES, "weight %s and indices %s do not fit", wf_shape_text(g, w),
                     wf_shape_text(g, index));
    WfVal rows = wf_take_rows(g, w, 0, index);
    if (wf_bool(n, 3))
        rows = shared_gradient(g, w, index, rows);
    if (wf_int(n, 2) != wf_econst(g->exprs, -1))
        rows = wf_where(g, is_padding(g, index, wf_int(n, 2), 1), wf_detach(g, rows), rows);
    out[0] = rows;
    return 1;
}

/* ---- bags: weight, indices[N], offsets[B], scale_grad_by_freq, mode, sparse, per_sample_weights,
 * include_last_offset, padding_idx ---- */

typedef struct {
    WfVal id, counts, ones;
    WfDim n, bags;
} Bags; /* id[N]: its bag; counts[B]: elements that count */

static Bags bags_of(WfGraph *g, const WfNode *n, WfVal index, WfVal offsets, WfVal padding)
{
    Bags b = {.n = wf_size_of(g, index, 0), .bags = wf_size_of(g, offsets, 0)};
    if (wf_bool(n, 7)) { /* the last offset is the end */
        b.bags = wf_esub(g->exprs, b.bags, 1);
        offsets = wf_slice(g, offsets, 0, 0, b.bags, 1);
    }
    WfVal at = wf_iota(g, WF_I64, 2, (WfDim[]){b.n, 1}, 0);
    WfVal begun = wf_binary(g, "prim.le", wf_unsqueeze(g, wf_cast(g, offsets, WF_I64), 0), at);
    b.id = wf_adds(g, wf_sum(g, wf_cast(g, begun, WF_I64), 2, false), -1);
    WfVal one = wf_full(g, WF_F32, 1, &b.n, 1);
    b.ones = padding ? wf_where(g, padding, wf_scalar(g, WF_F32, 0), one) : one;
    WfVal zeros = wf_full(g, WF_F32, 3, (WfDim[]){1, b.bags, 1}, 0);
    WfVal c = wf_emit(g, "prim.scatter_rows", "vvvs", zeros, b.id,
                      wf_reshape(g, b.ones, 3, (WfDim[]){1, b.n, 1}), "add");
    b.counts = wf_reshape(g, c, 1, &b.bags);
    return b;
}

/* Largest element of each bag and column; of equals the first. Empty bags give 0. */
static WfVal bag_max(WfGraph *g, const Bags *b, WfVal rows, WfVal padding)
{
    WfVal bag = wf_iota(g, WF_I64, 3, (WfDim[]){b->bags, 1, 1}, 0);
    WfVal member = wf_binary(g, "prim.eq", wf_reshape(g, b->id, 3, (WfDim[]){1, b->n, 1}), bag);
    if (padding)
        member = wf_binary(g, "prim.and", member,
                           wf_unary(g, "prim.not", wf_reshape(g, padding, 3, (WfDim[]){1, b->n, 1})));
    WfVal v = wf_where(g, member, wf_unsqueeze(g, rows, 0), wf_like(g, rows, -INFINITY));
    WfVal y = wf_gather(g, rows, 0, wf_reduce(g, "prim.argmax", v, 2, false));
    WfVal none = wf_binary(g, "prim.eq", wf_unsqueeze(g, b->counts, 1), wf_scalar(g, WF_F32, 0));
    return wf_where(g, none, wf_like(g, y, 0), y);
}

static int embedding_bag(DECOMPOSE)
{
    WfVal w = T(0), index = T(1), offsets = T(2), scales = T(6), padding = 0, y;
    int64_t mode = wf_lit(g, n, 4);
    if (wf_rank_of(g, index) != 1 || wf_rank_of(g, offsets) != 1)
        wf_fail_node(g, n, WF_E_SHAPES, "indices %s and offsets %s must be vectors",
                     wf_shape_text(g, index), wf_shape_text(g, offsets));
    WfDtype t = wf_dtype_of(g, w);
    /* -1 is none in _embedding_bag, but the last row where the index may be None */
    bool wraps = n->schema->n_params > 8 && n->schema->params[8].optional;
    if (n->schema->n_params > 8 && wf_has(n, 8) && (wraps || wf_int(n, 8) != wf_econst(g->exprs, -1))) {
        WfDim pad = wf_int(n, 8);
        int64_t lit;
        if (wf_elit(g->exprs, pad, &lit) && lit < 0)
            pad = wf_eadd(g->exprs, pad, wf_size_of(g, w, 0));
        padding = is_padding(g, index, pad, 0);
    }
    Bags b = bags_of(g, n, index, offsets, padding);
    WfVal rows = wf_take_rows(g, w, 0, index);
    if (wf_bool(n, 3))
        rows = shared_gradient(g, w, index, rows);
    WfDim width = wf_size_of(g, w, 1);
    if (mode == 2) {
        y = bag_max(g, &b, rows, padding);
    } else {
        if (scales)
            rows = wf_mul(g, rows, wf_unsqueeze(g, wf_cast(g, scales, t), 1));
        if (padding)
            rows = wf_where(g, wf_unsqueeze(g, padding, 1), wf_like(g, rows, 0), rows);
        WfVal zeros = wf_full(g, t, 3, (WfDim[]){1, b.bags, width}, 0);
        y = wf_emit(g, "prim.scatter_rows", "vvvs", zeros, b.id,
                    wf_reshape(g, rows, 3, (WfDim[]){1, b.n, width}), "add");
        y = wf_reshape(g, y, 2, (WfDim[]){b.bags, width});
        if (mode == 1) {
            WfVal c = wf_binary(g, "prim.max", b.counts, wf_scalar(g, WF_F32, 1));
            y = wf_div(g, y, wf_unsqueeze(g, wf_cast(g, c, t), 1));
        }
    }
    out[0] = y;
    out[1] = b.id; /* PyTorch's bookkeeping for its own backward; nothing reads it */
    out[2] = wf_cast(g, b.counts, WF_I64);
    out[3] = wf_full(g, WF_I64, 1, &b.bags, 0);
    return 4;
}

/* Rows named by `indices` whose norm exceeds max_norm are scaled to it; the others stay. */
static int embedding_renorm(DECOMPOSE)
{
    WfVal w = T(0), index = T(1), norm, a = wf_unary(g, "prim.abs", w);
    WfDtype t = wf_dtype_of(g, w);
    double most = wf_float(g, n, 2), p = wf_float(g, n, 3);
    WfDim rows = wf_size_of(g, w, 0), count = wf_numel(g, index);
    if (wf_rank_of(g, w) != 2)
        wf_fail_node(g, n, WF_E_SHAPES, "weight %s is no matrix", wf_shape_text(g, w));
    if (isinf(p))
        norm = wf_reduce(g, "prim.amax", a, 2, true);
    else if (p == 2)
        norm = wf_unary(g, "prim.sqrt", wf_sum(g, wf_mul(g, w, w), 2, true));
    else
        norm = wf_binary(g, "prim.pow", wf_sum(g, wf_binary(g, "prim.pow", a, wf_like(g, a, p)), 2, true),
                         wf_like(g, a, 1 / p));
    WfVal zeros = wf_full(g, t, 3, (WfDim[]){1, rows, 1}, 0), ones = wf_full(g, t, 3, (WfDim[]){1, count, 1}, 1);
    WfVal named = wf_emit(g, "prim.scatter_rows", "vvvs", zeros,
                          wf_reshape(g, wf_cast(g, index, WF_I64), 1, &count), ones, "set");
    named = wf_reshape(g, named, 2, (WfDim[]){rows, 1});
    WfVal over = wf_binary(g, "prim.and", wf_binary(g, "prim.gt", norm, wf_like(g, norm, most)),
                           wf_binary(g, "prim.gt", named, wf_like(g, named, 0)));
    WfVal scale = wf_div(g, wf_like(g, norm, most), wf_adds(g, norm, 1e-7));
    out[0] = wf_mul(g, w, wf_where(g, over, scale, wf_like(g, scale, 1)));
    return 1;
}

static int one_hot(DECOMPOSE)
{
    int64_t classes = wf_lit(g, n, 1);
    int r = wf_rank_of(g, T(0));
    if (classes < 1)
        wf_fail_node(g, n, WF_E_DATA_DEPENDENT,
                     "the number of classes must be given, as in one_hot(x, num_classes=10): without it the result's shape "
                     "depends on the data");
    WfDim shape[WF_MAX_RANK + 1];
    memcpy(shape, wf_value(g, T(0))->shape, (size_t)r * sizeof *shape);
    shape[r] = classes;
    WfVal x = wf_emit(g, "prim.check", "viii", wf_cast(g, T(0), WF_I64), (WfDim)0, (WfDim)classes, (WfDim)0);
    WfVal hit = wf_binary(g, "prim.eq", wf_unsqueeze(g, x, r), wf_iota(g, WF_I64, r + 1, shape, r));
    out[0] = wf_cast(g, hit, WF_I64);
    return 1;
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define BAG                                                                                           \
    "Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool " \
    "sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False"
#define FOUR ") -> (Tensor, Tensor, Tensor, Tensor)"

static const WfOp ops[] = {
    NAME(
        "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool "
        "sparse=False) -> Tensor",
        embedding),
    NAME("embedding_bag(" BAG FOUR, embedding_bag),
    NAME("embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, "
         "int mode, "
         "bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx" FOUR,
         embedding_bag),
    NAME("_embedding_bag(" BAG ", int padding_idx=-1" FOUR, embedding_bag),
    NAME("_embedding_bag_forward_only(" BAG ", int padding_idx=-1" FOUR, embedding_bag),
    NAME("embedding_renorm(Tensor self, Tensor indices, float max_norm, float norm_type) -> Tensor", embedding_renorm),
    NAME("one_hot(Tensor self, int num_classes=-1) -> Tensor", one_hot),
    {0}};

void wf_ops_aten_embed(void)
{
    wf_register(ops);
}
