/* One row an op: how it is said in ONNX. Convolutions and batch norms are kept as the model has them, all others are taken
 * apart to level op. Primitives are one node or a few; kept composites (softmax, norms, pools) are the
 * operator that ONNX has for them. A broadcast is left out where its reader broadcasts itself. The rules of products, norms,
 * pools and recurrent layers stand in layers.c. */
#include "onnx/private.h"

#include <string.h>


/* ---- pointwise ---- */

bool onnx_thin(Onnx *x, WfVal v, const char **name, int *rank, WfDim *shape)
{
    const WfNode *n = wf_producer(x->g, v);
    const WfValue *t = wf_value(x->g, v);
    if (wf_is(n, "prim.full")) {
        *name = onnx_scalar(x, t->dtype, wf_float(x->g, n, 1));
        *rank = 0;
        return true;
    }
    if (wf_is(n, "prim.iota")) {
        *rank = t->rank;
        for (int d = 0; d < t->rank; d++)
            shape[d] = d == (int)wf_int(n, 1) ? t->shape[d] : 1;
        const char *range = onnx_range(x, t->shape[wf_int(n, 1)]);
        if (t->dtype != WF_I64) {
            onnx_begin(x, "Cast");
            onnx_in(x, range);
            onnx_attr_int(x, "to", onnx_type(t->dtype));
            range = onnx_end(x);
        }
        *name = t->rank == 1 ? range : onnx_reshape(x, range, shape, *rank);
        return true;
    }
    if (!wf_is(n, "prim.expand"))
        return false;
    if (onnx_thin(x, wf_tensor(n, 0), name, rank, shape))
        return true;
    *name = IN(0);
    *rank = RANK(wf_tensor(n, 0));
    memcpy(shape, SHAPE(wf_tensor(n, 0)), sizeof(WfDim) * (size_t)*rank);
    return true;
}

/* Names of the operands for a node that broadcasts to the result's shape: thin where the others make up for it. */
static int operands(Onnx *x, const WfNode *n, const char **name)
{
    const WfValue *out = wf_value(x->g, n->out);
    bool full[WF_MAX_RANK] = {false}, all = true;
    WfVal v[8];
    int k = wf_operands(n, v, 8);
    for (int i = 0; i < k; i++) {
        WfDim shape[WF_MAX_RANK];
        int rank = RANK(v[i]);
        memcpy(shape, SHAPE(v[i]), sizeof shape);
        if (x->name[v[i]] || !onnx_thin(x, v[i], &name[i], &rank, shape))
            name[i] = onnx_value(x, v[i]);
        for (int d = 0; d < rank; d++)
            full[out->rank - rank + d] |= shape[d] == out->shape[out->rank - rank + d];
    }
    for (int d = 0; d < out->rank; d++)
        all &= full[d] || out->shape[d] == 1;
    if (!all)
        name[0] = onnx_value(x, v[0]);
    return k;
}

static void pointwise(RULE)
{
    const char *name[8];
    int k = operands(x, n, name);
    onnx_begin(x, op);
    for (int i = 0; i < k; i++)
        onnx_in(x, name[i]);
    if (!strcmp(op, "Mod"))
        onnx_attr_int(x, "fmod", 1);
    onnx_set(x, n, 0, onnx_end(x));
}

/* op names the operator of bools; integers have the bitwise one. */
static void bits(RULE)
{
    bool flag = wf_dtype_of(x->g, wf_tensor(n, 0)) == WF_BOOL;
    pointwise(x, n, flag ? op : wf_arena_printf(x->a, "Bitwise%s", op));
}

static void not_equal(RULE)
{
    pointwise(x, n, op);
    onnx_set(x, n, 0, onnx_node(x, "Not", x->name[n->out], NULL, NULL));
}

static void rsqrt(RULE) { onnx_set(x, n, 0, onnx_node(x, op, onnx_node(x, "Sqrt", IN(0), NULL, NULL), NULL, NULL)); }

static const char *one(Onnx *x, const WfNode *n) { return onnx_scalar(x, wf_dtype_of(x->g, n->out), 1); }
static void expm1_rule(RULE) { onnx_set(x, n, 0, onnx_node(x, op, onnx_node(x, "Exp", IN(0), NULL, NULL), one(x, n), NULL)); }
static void log1p_rule(RULE) { onnx_set(x, n, 0, onnx_node(x, op, onnx_node(x, "Add", IN(0), one(x, n), NULL), NULL, NULL)); }

static void truncate_rule(RULE)
{
    const char *whole = onnx_node(x, "Floor", onnx_node(x, "Abs", IN(0), NULL, NULL), NULL, NULL);
    onnx_set(x, n, 0, onnx_node(x, op, onnx_node(x, "Sign", IN(0), NULL, NULL), whole, NULL));
}

static void cast(RULE)
{
    onnx_begin(x, op);
    onnx_in(x, IN(0));
    onnx_attr_int(x, "to", onnx_type(wf_dtype_of(x->g, n->out)));
    onnx_set(x, n, 0, onnx_end(x));
}

static void same(RULE) { (void)op; onnx_set(x, n, 0, IN(0)); } /* for the backward pass, or a check */
static void second(RULE) { (void)op; onnx_set(x, n, 0, IN(1)); }

static void size(RULE)
{
    int64_t none = 0;
    const char *s = onnx_node(x, op, onnx_size(x, wf_int(n, 0)), onnx_constant(x, WF_I64, 1, &none, "", 0), NULL);
    onnx_begin(x, "Cast");
    onnx_in(x, s);
    onnx_attr_int(x, "to", onnx_type(wf_dtype_of(x->g, n->out)));
    onnx_set(x, n, 0, onnx_end(x));
}

/* ---- views ---- */

static void reshape(RULE) { (void)op; onnx_set(x, n, 0, onnx_reshape(x, IN(0), SHAPE(n->out), RANK(n->out))); }

static void permute(RULE)
{
    int64_t dims[WF_MAX_RANK];
    for (int d = 0; d < n->args[1].n; d++)
        dims[d] = n->args[1].ints[d];
    onnx_begin(x, op);
    onnx_in(x, IN(0));
    onnx_attr_ints(x, "perm", dims, n->args[1].n);
    onnx_set(x, n, 0, onnx_end(x));
}

static const char *sliced(Onnx *x, const char *v, const char *from, const char *to, const int64_t *axes, const int64_t *steps, int k)
{
    const char *a = onnx_ints(x, axes, k), *s = onnx_ints(x, steps, k);
    onnx_begin(x, "Slice");
    onnx_in(x, v);
    onnx_in(x, from);
    onnx_in(x, to);
    onnx_in(x, a);
    onnx_in(x, s);
    return onnx_end(x);
}

static void slice(RULE)
{
    int64_t axis = wf_lit(x->g, n, 1), step = wf_lit(x->g, n, 4);
    (void)op;
    onnx_set(x, n, 0, sliced(x, IN(0), onnx_size(x, wf_int(n, 2)), onnx_size(x, wf_int(n, 3)), &axis, &step, 1));
}

static void flip(RULE)
{
    int64_t axes[WF_MAX_RANK], from[WF_MAX_RANK], to[WF_MAX_RANK], steps[WF_MAX_RANK];
    int k = n->args[1].n;
    (void)op;
    for (int i = 0; i < k; i++)
        axes[i] = n->args[1].ints[i], from[i] = -1, to[i] = INT64_MIN + 1, steps[i] = -1;
    onnx_set(x, n, 0, sliced(x, IN(0), onnx_ints(x, from, k), onnx_ints(x, to, k), axes, steps, k));
}

static void pad(RULE)
{
    WfDim all[2 * WF_MAX_RANK];
    int r = n->args[1].n;
    for (int i = 0; i < r; i++)
        all[i] = n->args[1].ints[i], all[r + i] = n->args[2].ints[i];
    const char *v = IN(0), *sizes = onnx_sizes(x, all, 2 * r), *fill = onnx_scalar(x, wf_dtype_of(x->g, n->out), wf_float(x->g, n, 3));
    onnx_set(x, n, 0, onnx_node(x, op, v, sizes, fill));
}

static void cat(RULE)
{
    const char **part = WF_NEWN(x->a, const char *, (size_t)n->args[0].n + 1);
    for (int i = 0; i < n->args[0].n; i++)
        part[i] = onnx_value(x, n->args[0].vals[i]);
    onnx_begin(x, op);
    for (int i = 0; i < n->args[0].n; i++)
        onnx_in(x, part[i]);
    onnx_attr_int(x, "axis", wf_lit(x->g, n, 1));
    onnx_set(x, n, 0, onnx_end(x));
}

/* x[.., s, ..] as [.., windows, .., size]: the windows' places are gathered, and their inside goes last. */
static void window(RULE)
{
    int dim = (int)wf_lit(x->g, n, 1), r = RANK(n->out);
    int64_t k = wf_lit(x->g, n, 2), stride = wf_lit(x->g, n, 3), dilation = wf_lit(x->g, n, 4);
    int64_t count = onnx_literal(x, SHAPE(n->out)[dim]), shape[2] = {count, k}, perm[WF_MAX_RANK];
    int64_t *at = WF_NEWN(x->a, int64_t, wf_mul_size((size_t)count, (size_t)k) + 1);
    for (int64_t i = 0; i < count * k; i++)
        at[i] = i / k * stride + i % k * dilation;
    const char *v = IN(0), *places = onnx_constant(x, WF_I64, 2, shape, at, (size_t)(count * k) * sizeof *at);
    onnx_begin(x, op);
    onnx_in(x, v);
    onnx_in(x, places);
    onnx_attr_int(x, "axis", dim);
    v = onnx_end(x);
    for (int d = 0; d < r; d++)
        perm[d] = d <= dim ? d : d == r - 1 ? dim + 1 : d + 1;
    onnx_begin(x, "Transpose");
    onnx_in(x, v);
    onnx_attr_ints(x, "perm", perm, r);
    onnx_set(x, n, 0, onnx_end(x));
}

/* ---- reductions ---- */

static void reduce(RULE)
{
    int64_t axes[WF_MAX_RANK];
    for (int i = 0; i < n->args[1].n; i++)
        axes[i] = n->args[1].ints[i];
    const char *v = IN(0), *a = onnx_ints(x, axes, n->args[1].n);
    if (!n->args[1].n) {
        onnx_set(x, n, 0, v);
        return;
    }
    onnx_begin(x, op);
    onnx_in(x, v);
    onnx_in(x, a);
    onnx_attr_int(x, "keepdims", 0);
    onnx_set(x, n, 0, onnx_end(x));
}

static void arg_reduce(RULE)
{
    if (n->args[1].n != 1)
        onnx_refuse(x, "the place of an extremum over several dimensions");
    onnx_begin(x, op);
    onnx_in(x, IN(0));
    onnx_attr_int(x, "axis", n->args[1].ints[0]);
    onnx_attr_int(x, "keepdims", 0);
    onnx_set(x, n, 0, onnx_end(x));
}

static void softmax(RULE)
{
    int64_t axis = wf_dim_index(x->g, n, wf_int(n, 1), RANK(n->out));
    const char *v = IN(0);
    onnx_begin(x, op);
    onnx_in(x, v);
    onnx_attr_int(x, "axis", axis);
    onnx_set(x, n, 0, onnx_end(x));
}

static void cumulate(RULE)
{
    const char *v = IN(0), *axis = onnx_scalar(x, WF_I64, (double)wf_lit(x->g, n, 1));
    onnx_begin(x, op);
    onnx_in(x, v);
    onnx_in(x, axis);
    onnx_attr_int(x, "reverse", wf_bool(n, 2));
    onnx_set(x, n, 0, onnx_end(x));
}

static void sort(RULE)
{
    const WfValue *t = wf_value(x->g, n->out);
    const char *v = IN(0), *k = onnx_size(x, t->shape[t->rank - 1]), *out[2];
    onnx_begin(x, op);
    onnx_in(x, v);
    onnx_in(x, k);
    onnx_attr_int(x, "largest", wf_bool(n, 1));
    onnx_end_many(x, out, 2);
    onnx_set(x, n, 0, out[0]);
    onnx_set(x, n, 1, out[1]);
}

/* ---- by data ---- */

/* Rows of a table when the index is one number a row, broadcast over the row. */
static void gather(RULE)
{
    int axis = (int)wf_lit(x->g, n, 1), rank;
    WfVal table = wf_tensor(n, 0), index = wf_tensor(n, 2);
    WfDim shape[WF_MAX_RANK], count = SHAPE(index)[axis];
    const char *v = IN(0), *at;
    bool rows = wf_is(wf_producer(x->g, index), "prim.expand") && onnx_thin(x, index, &at, &rank, shape) && rank == RANK(index);
    for (int d = 0; d < RANK(table); d++)
        rows = rows && (d == axis ? shape[d] == count : shape[d] == 1 && SHAPE(index)[d] == SHAPE(table)[d]);
    at = rows ? onnx_reshape(x, at, &count, 1) : onnx_value(x, index);
    onnx_begin(x, rows ? "Gather" : op);
    onnx_in(x, v);
    onnx_in(x, at);
    onnx_attr_int(x, "axis", axis);
    onnx_set(x, n, 0, onnx_end(x));
}

static void scatter(RULE)
{
    WfVal index = wf_tensor(n, 1), from = wf_tensor(n, 2);
    const char *v = IN(0), *at = onnx_value(x, index), *src = onnx_value(x, from), *mode = n->args[3].s;
    if (RANK(index) == 1) {
        WfDim rows[3] = {1, SHAPE(index)[0], 1};
        at = onnx_node(x, "Expand", onnx_reshape(x, at, rows, 3), onnx_sizes(x, SHAPE(from), 3), NULL);
    }
    onnx_begin(x, op);
    onnx_in(x, v);
    onnx_in(x, at);
    onnx_in(x, src);
    onnx_attr_int(x, "axis", 1);
    onnx_attr_text(x, "reduction", strcmp(mode, "set") ? mode : "none");
    onnx_set(x, n, 0, onnx_end(x));
}

/* ---- the table ---- */

static const OnnxRow rows[] = {
    {"aten._log_softmax", "LogSoftmax", softmax, NULL},
    {"aten._softmax", "Softmax", softmax, NULL},
    {"aten.batch_norm", "BatchNormalization", onnx_batch_norm, onnx_keep_batch_norm},
    {"aten.conv1d", "Conv", onnx_conv_bias, onnx_keep_conv},
    {"aten.conv2d", "Conv", onnx_conv_bias, onnx_keep_conv},
    {"aten.conv3d", "Conv", onnx_conv_bias, onnx_keep_conv},
    {"aten.relu", "Relu", pointwise, NULL},
    {"nn.max_pool", "MaxPool", onnx_max_pool, NULL},
    {"nn.normalize", "LayerNormalization", onnx_normalize, NULL},
    {"prim.abs", "Abs", pointwise, NULL},
    {"prim.acos", "Acos", pointwise, NULL},
    {"prim.add", "Add", pointwise, NULL},
    {"prim.amax", "ReduceMax", reduce, NULL},
    {"prim.amin", "ReduceMin", reduce, NULL},
    {"prim.and", "And", bits, NULL},
    {"prim.argmax", "ArgMax", arg_reduce, NULL},
    {"prim.argmin", "ArgMin", arg_reduce, NULL},
    {"prim.asin", "Asin", pointwise, NULL},
    {"prim.atan", "Atan", pointwise, NULL},
    {"prim.attention", "MatMul", onnx_attention, NULL},
    {"prim.bitnot", "Not", bits, NULL},
    {"prim.cast", "Cast", cast, NULL},
    {"prim.cat", "Concat", cat, NULL},
    {"prim.ceil", "Ceil", pointwise, NULL},
    {"prim.check", NULL, same, NULL},
    {"prim.conv", "Conv", onnx_conv, NULL},
    {"prim.conv_bwd_data", "ConvTranspose", onnx_conv_transposed, NULL},
    {"prim.copy", NULL, same, NULL},
    {"prim.cos", "Cos", pointwise, NULL},
    {"prim.cumsum", "CumSum", cumulate, NULL},
    {"prim.detach", NULL, same, NULL},
    {"prim.div", "Div", pointwise, NULL},
    {"prim.eq", "Equal", pointwise, NULL},
    {"prim.erf", "Erf", pointwise, NULL},
    {"prim.exp", "Exp", pointwise, NULL},
    {"prim.expand", "Expand", NULL, NULL},
    {"prim.expm1", "Sub", expm1_rule, NULL},
    {"prim.flip", "Slice", flip, NULL},
    {"prim.floor", "Floor", pointwise, NULL},
    {"prim.fmod", "Mod", pointwise, NULL},
    {"prim.full", "Expand", NULL, NULL},
    {"prim.gather", "GatherElements", gather, NULL},
    {"prim.ge", "GreaterOrEqual", pointwise, NULL},
    {"prim.graft", NULL, second, NULL},
    {"prim.gt", "Greater", pointwise, NULL},
    {"prim.iota", "Range", NULL, NULL},
    {"prim.isnan", "IsNaN", pointwise, NULL},
    {"prim.le", "LessOrEqual", pointwise, NULL},
    {"prim.log", "Log", pointwise, NULL},
    {"prim.log1p", "Log", log1p_rule, NULL},
    {"prim.lt", "Less", pointwise, NULL},
    {"prim.matmul", "MatMul", onnx_matmul, NULL},
    {"prim.max", "Max", pointwise, NULL},
    {"prim.min", "Min", pointwise, NULL},
    {"prim.mul", "Mul", pointwise, NULL},
    {"prim.ne", "Equal", not_equal, NULL},
    {"prim.neg", "Neg", pointwise, NULL},
    {"prim.not", "Not", pointwise, NULL},
    {"prim.or", "Or", bits, NULL},
    {"prim.pad", "Pad", pad, NULL},
    {"prim.permute", "Transpose", permute, NULL},
    {"prim.pow", "Pow", pointwise, NULL},
    {"prim.prod", "ReduceProd", reduce, NULL},
    {"prim.reciprocal", "Reciprocal", pointwise, NULL},
    {"prim.recompute", NULL, same, NULL},
    {"prim.reshape", "Reshape", reshape, NULL},
    {"prim.rnn", "LSTM", onnx_rnn, NULL},
    {"prim.round", "Round", pointwise, NULL},
    {"prim.rounded", NULL, same, NULL},
    {"prim.rsqrt", "Reciprocal", rsqrt, NULL},
    {"prim.scatter", "ScatterElements", scatter, NULL},
    {"prim.scatter_rows", "ScatterElements", scatter, NULL},
    {"prim.sigmoid", "Sigmoid", pointwise, NULL},
    {"prim.sign", "Sign", pointwise, NULL},
    {"prim.sin", "Sin", pointwise, NULL},
    {"prim.size", "Reshape", size, NULL},
    {"prim.slice", "Slice", slice, NULL},
    {"prim.sort", "TopK", sort, NULL},
    {"prim.sqrt", "Sqrt", pointwise, NULL},
    {"prim.sub", "Sub", pointwise, NULL},
    {"prim.sum", "ReduceSum", reduce, NULL},
    {"prim.tanh", "Tanh", pointwise, NULL},
    {"prim.trunc", "Mul", truncate_rule, NULL},
    {"prim.where", "Where", pointwise, NULL},
    {"prim.window", "Gather", window, NULL},
    {"prim.xor", "Xor", bits, NULL},
};

const OnnxRow *onnx_row(const char *name)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}
