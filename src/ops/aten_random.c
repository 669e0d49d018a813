/* Random numbers. Every draw is prim.rand with a stream of its own, handed out as the graph is built; what a
 * stream gives depends on seed, step and element only, so a value may be drawn again instead of stored. Draws
 * are f32 whatever the result's dtype. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

WfVal wf_uniform(WfGraph *g, int rank, const WfDim *shape)
{
    WfDim copy[WF_MAX_RANK];
    memcpy(copy, shape, (size_t)rank * sizeof *copy);
    return wf_emit(g, "prim.rand", "Ii", copy, rank, (WfDim)g->streams++);
}

static WfVal uniform_like(WfGraph *g, WfVal x)
{
    const WfValue *v = wf_value(g, x);
    return wf_uniform(g, v->rank, v->shape);
}

static int give(WfVal *out, WfVal v)
{
    out[0] = v;
    return 1;
}

/* Box and Muller (1958); 1 - u is in (0, 1], so the logarithm is finite. */
static WfVal normal_of(WfGraph *g, int rank, const WfDim *shape)
{
    WfVal u = wf_uniform(g, rank, shape), v = wf_uniform(g, rank, shape);
    WfVal radius = wf_unary(g, "prim.log", wf_sub(g, wf_like(g, u, 1), u));
    radius = wf_unary(g, "prim.sqrt", wf_muls(g, radius, -2));
    return wf_mul(g, radius, wf_unary(g, "prim.cos", wf_muls(g, v, 6.283185307179586)));
}

/* ---- dropout ---- */

/* Which elements of `shape` stay, by f32 draws: with probability 1 - p. */
static WfVal stays(WfGraph *g, int rank, const WfDim *shape, double p)
{
    WfVal u = wf_uniform(g, rank, shape);
    return wf_binary(g, "prim.ge", u, wf_like(g, u, p));
}

WfVal wf_dropout(WfGraph *g, WfVal x, double p)
{
    const WfValue *v = wf_value(g, x);
    if (p == 0)
        return x;
    if (p == 1)
        return wf_muls(g, x, 0);
    return wf_where(g, stays(g, v->rank, v->shape, p), wf_muls(g, x, 1 / (1 - p)), wf_like(g, x, 0));
}

static double probability(WfGraph *g, const WfNode *n, int arg)
{
    double p = wf_float(g, n, arg);
    if (!(p >= 0 && p <= 1))
        wf_fail_node(g, n, WF_E_SHAPES, "the probability is %g", p);
    return p;
}

static int dropout(DECOMPOSE)
{
    return give(out, wf_bool(n, 2) ? wf_dropout(g, T(0), probability(g, n, 1)) : T(0));
}

static int native_dropout(DECOMPOSE)
{
    const WfValue *x = wf_value(g, T(0));
    double p = probability(g, n, 1);
    if (wf_has(n, 2) && !wf_bool(n, 2)) {
        out[0] = T(0);
        out[1] = wf_full(g, WF_BOOL, x->rank, x->shape, 1);
        return 2;
    }
    out[1] = stays(g, x->rank, x->shape, p);
    out[0] = wf_where(g, out[1], wf_muls(g, T(0), p < 1 ? 1 / (1 - p) : 0), wf_like(g, T(0), 0));
    return 2;
}

/* Whole channels; alpha: dropped values become SELU's negative saturation, and mean and variance are kept
 * (Klambauer et al., 2017). */
static WfVal drop(WfGraph *g, WfVal x, double p, bool feature, bool alpha)
{
    const WfValue *v = wf_value(g, x);
    WfDim shape[WF_MAX_RANK];
    if (p == 0)
        return x;
    if (p == 1)
        return wf_muls(g, x, 0);
    for (int i = 0; i < v->rank; i++)
        shape[i] = feature && i > 1 ? 1 : v->shape[i];
    WfVal keep = stays(g, v->rank, shape, p);
    if (!alpha)
        return wf_where(g, keep, wf_muls(g, x, 1 / (1 - p)), wf_like(g, x, 0));
    double low = 1.7580993408473766, a = 1 / sqrt((low * low * p + 1) * (1 - p));
    return wf_where(g, keep, wf_adds(g, wf_muls(g, x, a), low * a * p), wf_like(g, x, low * a * (p - 1)));
}

static int alpha_dropout(DECOMPOSE)
{
    return give(out, wf_bool(n, 2) ? drop(g, T(0), probability(g, n, 1), false, true) : T(0));
}

static int feature_dropout(DECOMPOSE)
{
    return give(out, wf_bool(n, 2) ? drop(g, T(0), probability(g, n, 1), true, false) : T(0));
}

static int feature_alpha_dropout(DECOMPOSE)
{
    return give(out, wf_bool(n, 2) ? drop(g, T(0), probability(g, n, 1), true, true) : T(0));
}

/* ---- draws ---- */

static int bernoulli(DECOMPOSE)
{
    WfVal u = uniform_like(g, T(0)), p = wf_cast(g, T(0), WF_F32);
    return give(out, wf_cast(g, wf_binary(g, "prim.lt", u, p), wf_dtype_of(g, T(0))));
}

static int bernoulli_p(DECOMPOSE)
{
    WfVal u = uniform_like(g, T(0)), p = wf_operand(g, n, 1, WF_F32);
    return give(out, wf_cast(g, wf_binary(g, "prim.lt", u, p), wf_dtype_of(g, T(0))));
}

static WfDtype asked(WfGraph *g, const WfNode *n, WfDtype fallback)
{
    const WfArg *a = wf_arg(n, "dtype");
    (void)g;
    return a && a->kind == WF_ARG_DTYPE ? a->dtype : fallback;
}

static int rand_shape(DECOMPOSE)
{
    WfVal u = wf_uniform(g, n->args[0].n, n->args[0].ints);
    return give(out, wf_cast(g, u, asked(g, n, WF_F32)));
}

static int rand_like(DECOMPOSE)
{
    return give(out, wf_cast(g, uniform_like(g, T(0)), asked(g, n, wf_dtype_of(g, T(0)))));
}

static int randn(DECOMPOSE)
{
    return give(out, wf_cast(g, normal_of(g, n->args[0].n, n->args[0].ints), asked(g, n, WF_F32)));
}

static WfVal normal_like(WfGraph *g, WfVal x)
{
    const WfValue *v = wf_value(g, x);
    return normal_of(g, v->rank, v->shape);
}

static int randn_like(DECOMPOSE)
{
    return give(out, wf_cast(g, normal_like(g, T(0)), asked(g, n, wf_dtype_of(g, T(0)))));
}

/* floor(low + u (high - low)); 24 random bits reach ranges of 16 million evenly, and wider ones nearly so. */
static WfVal integers(WfGraph *g, WfVal u, WfDim low, WfDim high, WfDtype t)
{
    WfVal span = wf_dim_scalar(g, WF_F32, wf_esub(g->exprs, high, low));
    WfVal k = wf_cast(g, wf_unary(g, "prim.floor", wf_mul(g, u, span)), WF_I64);
    return wf_cast(g, wf_add(g, k, wf_dim_scalar(g, WF_I64, low)), t);
}

static int randint(DECOMPOSE)
{
    WfVal u = wf_uniform(g, n->args[1].n, n->args[1].ints);
    return give(out, integers(g, u, 0, wf_int(n, 0), asked(g, n, WF_I64)));
}

static int randint_low(DECOMPOSE)
{
    WfVal u = wf_uniform(g, n->args[2].n, n->args[2].ints);
    return give(out, integers(g, u, wf_int(n, 0), wf_int(n, 1), asked(g, n, WF_I64)));
}

static int randint_like(DECOMPOSE)
{
    return give(out, integers(g, uniform_like(g, T(0)), 0, wf_int(n, 1), asked(g, n, wf_dtype_of(g, T(0)))));
}

static int randint_like_low(DECOMPOSE)
{
    WfVal u = uniform_like(g, T(0));
    return give(out, integers(g, u, wf_int(n, 1), wf_int(n, 2), asked(g, n, wf_dtype_of(g, T(0)))));
}

static int normal_functional(DECOMPOSE)
{
    WfVal z = wf_adds(g, wf_muls(g, normal_like(g, T(0)), wf_float(g, n, 2)), wf_float(g, n, 1));
    return give(out, wf_cast(g, z, wf_dtype_of(g, T(0))));
}

static int uniform(DECOMPOSE)
{
    double from = wf_float(g, n, 1), to = wf_float(g, n, 2);
    WfVal u = wf_adds(g, wf_muls(g, uniform_like(g, T(0)), to - from), from);
    return give(out, wf_cast(g, u, wf_dtype_of(g, T(0))));
}

static int exponential(DECOMPOSE)
{
    WfVal u = uniform_like(g, T(0)), e = wf_unary(g, "prim.log", wf_sub(g, wf_like(g, u, 1), u));
    return give(out, wf_cast(g, wf_muls(g, e, -1 / wf_float(g, n, 1)), wf_dtype_of(g, T(0))));
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define IN_PLACE(text)                                 \
    {                                                  \
        .schema = "aten." text, .family = WF_COMPOSITE \
    }
#define DROP(name)                                                     \
    NAME(#name "(Tensor input, float p, bool train) -> Tensor", name), \
        IN_PLACE(#name "_(Tensor(a!) self, float p, bool train) -> Tensor(a!)")
#define PLACE "Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
#define WHERE ", *, ScalarType? dtype=None, " PLACE
#define LIKE                                                                                         \
    ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, " \
    "MemoryFormat? memory_format=None) -> Tensor"
#define BY ", *, Generator? generator=None) -> Tensor"

static const WfOp ops[] = {
    DROP(dropout),
    DROP(alpha_dropout),
    DROP(feature_dropout),
    DROP(feature_alpha_dropout),
    NAME("native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", native_dropout),
    NAME("bernoulli(Tensor self" BY, bernoulli),
    NAME("bernoulli.p(Tensor self, float p" BY, bernoulli_p),
    NAME("bernoulli.Tensor(Tensor self, Tensor p" BY, bernoulli_p),
    {.schema = "aten.bernoulli_.float(Tensor(a!) self, float p=0.5" BY "(a!)",
     .family = WF_COMPOSITE,
     .functional = "aten.bernoulli.p"},
    IN_PLACE("bernoulli_.Tensor(Tensor(a!) self, Tensor p" BY "(a!)"),
    NAME("rand(SymInt[] size" WHERE, rand_shape),
    NAME("rand_like(Tensor self" LIKE, rand_like),
    NAME("randn(SymInt[] size" WHERE, randn),
    NAME("randn_like(Tensor self" LIKE, randn_like),
    NAME("randint(SymInt high, SymInt[] size, *, ScalarType? dtype=4, " PLACE, randint),
    NAME("randint.low(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=4, " PLACE, randint_low),
    NAME("randint_like(Tensor self, SymInt high" LIKE, randint_like),
    NAME("randint_like.low_dtype(Tensor self, SymInt low, SymInt high" LIKE, randint_like_low),
    NAME("normal_functional(Tensor self, float mean=0., float std=1." BY, normal_functional),
    {.schema = "aten.normal_(Tensor(a!) self, float mean=0., float std=1." BY "(a!)",
     .family = WF_COMPOSITE,
     .functional = "aten.normal_functional"},
    NAME("uniform(Tensor self, float from=0., float to=1." BY, uniform),
    IN_PLACE("uniform_(Tensor(a!) self, float from=0., float to=1." BY "(a!)"),
    NAME("exponential(Tensor self, float lambd=1." BY, exponential),
    IN_PLACE("exponential_(Tensor(a!) self, float lambd=1." BY "(a!)"),
    {0}};

void wf_ops_aten_random(void)
{
    wf_register(ops);
}
