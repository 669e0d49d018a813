/* In-place operators that are nothing but a schema: functionalize replaces each by its functional twin. A
 * family may have such rows of its own; this table, read last, adds those that no family has, where the twin
 * exists. An operator without a twin stays unknown, so that an import names it among what is missing. */
#include "ops/ops_private.h"

#include <string.h>

static const struct {
    const char *schema, *functional;
} table[] = {
    {"aten.add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", NULL},
    {"aten.add_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)", NULL},
    {"aten.sub_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", NULL},
    {"aten.sub_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)", NULL},
    {"aten.mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.mul_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.div_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.div_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.div_.Tensor_mode(Tensor(a!) self, Tensor other, *, str? rounding_mode) -> Tensor(a!)", NULL},
    {"aten.div_.Scalar_mode(Tensor(a!) self, Scalar other, *, str? rounding_mode) -> Tensor(a!)", NULL},
    {"aten.floor_divide_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", "aten.floor_divide"},
    {"aten.floor_divide_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.remainder_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.remainder_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.fmod_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.fmod_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.true_divide_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.multiply_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.subtract_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", NULL},
    {"aten.divide_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.pow_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)", "aten.pow.Tensor_Scalar"},
    {"aten.pow_.Tensor(Tensor(a!) self, Tensor exponent) -> Tensor(a!)", "aten.pow.Tensor_Tensor"},
    {"aten.float_power_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)", NULL},
    {"aten.arccos_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.arcsin_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.arctan_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.arccosh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.arcsinh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.arctanh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.absolute_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.lgamma_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.digamma_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.deg2rad_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.rad2deg_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.arctan2_(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.heaviside_(Tensor(a!) self, Tensor values) -> Tensor(a!)", NULL},
    {"aten.ldexp_(Tensor(a!) self, Tensor other) -> Tensor(a!)", "aten.ldexp.Tensor"},
    {"aten.greater_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.greater_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.greater_equal_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.greater_equal_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.less_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.less_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.less_equal_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.less_equal_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.not_equal_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.not_equal_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.divide_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.multiply_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.true_divide_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.subtract_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)", NULL},
    {"aten.abs_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.neg_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.negative_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.exp_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.exp2_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.expm1_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.log_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.log2_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.log10_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.log1p_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.sin_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.cos_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.tan_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.asin_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.acos_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.atan_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.sinh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.cosh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.tanh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.asinh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.acosh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.atanh_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.erf_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.erfc_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.erfinv_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.sigmoid_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"_c10d_functional.all_reduce_(Tensor(a!) input, str reduce_op, str group_name) -> Tensor(a!)", NULL},
    {"_c10d_functional.broadcast_(Tensor(a!) input, int src, str group_name) -> Tensor(a!)", NULL},
    {"aten.sqrt_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.rsqrt_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.square_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.reciprocal_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.floor_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.ceil_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.round_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.round_.decimals(Tensor(a!) self, *, int decimals) -> Tensor(a!)", NULL},
    {"aten.trunc_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.fix_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.frac_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.sign_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.sgn_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.sinc_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.logit_(Tensor(a!) self, float? eps=None) -> Tensor(a!)", NULL},
    {"aten.nan_to_num_(Tensor(a!) self, float? nan=None, float? posinf=None, float? "
     "neginf=None) -> Tensor(a!)",
     NULL},
    {"aten.atan2_(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.hypot_(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.lerp_.Scalar(Tensor(a!) self, Tensor end, Scalar weight) -> Tensor(a!)", NULL},
    {"aten.lerp_.Tensor(Tensor(a!) self, Tensor end, Tensor weight) -> Tensor(a!)", NULL},
    {"aten.addcmul_(Tensor(a!) self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> "
     "Tensor(a!)",
     NULL},
    {"aten.addcdiv_(Tensor(a!) self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> "
     "Tensor(a!)",
     NULL},
    {"aten.copysign_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.copysign_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.xlogy_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.xlogy_.Scalar_Other(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.clamp_(Tensor(a!) self, Scalar? min=None, Scalar? max=None) -> Tensor(a!)", NULL},
    {"aten.clamp_.Tensor(Tensor(a!) self, Tensor? min=None, Tensor? max=None) -> Tensor(a!)", NULL},
    {"aten.clamp_min_(Tensor(a!) self, Scalar min) -> Tensor(a!)", NULL},
    {"aten.clamp_min_.Tensor(Tensor(a!) self, Tensor min) -> Tensor(a!)", NULL},
    {"aten.clamp_max_(Tensor(a!) self, Scalar max) -> Tensor(a!)", NULL},
    {"aten.clamp_max_.Tensor(Tensor(a!) self, Tensor max) -> Tensor(a!)", NULL},
    {"aten.clip_(Tensor(a!) self, Scalar? min=None, Scalar? max=None) -> Tensor(a!)", NULL},
    {"aten.clip_.Tensor(Tensor(a!) self, Tensor? min=None, Tensor? max=None) -> Tensor(a!)", NULL},
    {"aten.relu_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.relu6_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.leaky_relu_(Tensor(a!) self, Scalar negative_slope=0.01) -> Tensor(a!)", NULL},
    {"aten.elu_(Tensor(a!) self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> "
     "Tensor(a!)",
     NULL},
    {"aten.selu_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.celu_(Tensor(a!) self, Scalar alpha=1.) -> Tensor(a!)", NULL},
    {"aten.silu_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.mish_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.gelu_(Tensor(a!) self, *, str approximate=\"none\") -> Tensor(a!)", NULL},
    {"aten.hardtanh_(Tensor(a!) self, Scalar min_val=-1, Scalar max_val=1) -> Tensor(a!)", NULL},
    {"aten.hardswish_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.hardsigmoid_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.threshold_(Tensor(a!) self, Scalar threshold, Scalar value) -> Tensor(a!)", NULL},
    {"aten.dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", NULL},
    {"aten.feature_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", NULL},
    {"aten.alpha_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", NULL},
    {"aten.rrelu_(Tensor(a!) self, Scalar lower=0.125, Scalar upper=0.33333333333333331, "
     "bool training=False, Generator? generator=None) -> Tensor(a!)",
     NULL},
    {"aten.eq_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.eq_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.ne_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.ne_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.lt_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.lt_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.le_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.le_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.gt_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.gt_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.ge_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.ge_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.logical_and_(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.logical_or_(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.logical_xor_(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.logical_not_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.bitwise_and_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.bitwise_or_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.bitwise_xor_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.bitwise_and_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.bitwise_or_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.bitwise_xor_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", NULL},
    {"aten.bitwise_not_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.__iand__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", "aten.__and__.Tensor"},
    {"aten.__ior__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", "aten.__or__.Tensor"},
    {"aten.__ixor__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", "aten.__xor__.Tensor"},
    {"aten.__iand__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", "aten.__and__.Scalar"},
    {"aten.__ior__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", "aten.__or__.Scalar"},
    {"aten.__ixor__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", "aten.__xor__.Scalar"},
    {"aten.bitwise_left_shift_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.bitwise_right_shift_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", NULL},
    {"aten.copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)", NULL},
    {"aten.fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)", NULL},
    {"aten.fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)", NULL},
    {"aten.zero_(Tensor(a!) self) -> Tensor(a!)", NULL},
    {"aten.masked_fill_.Scalar(Tensor(a!) self, Tensor mask, Scalar value) -> Tensor(a!)", NULL},
    {"aten.masked_fill_.Tensor(Tensor(a!) self, Tensor mask, Tensor value) -> Tensor(a!)", NULL},
    {"aten.masked_scatter_(Tensor(a!) self, Tensor mask, Tensor source) -> Tensor(a!)", NULL},
    {"aten.index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool "
     "accumulate=False) -> Tensor(a!)",
     NULL},
    {"aten._index_put_impl_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool "
     "accumulate=False, bool unsafe=False) -> Tensor(a!)",
     "aten.index_put"},
    {"aten.index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar "
     "alpha=1) -> Tensor(a!)",
     NULL},
    {"aten.index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)", NULL},
    {"aten.index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, Scalar value) -> "
     "Tensor(a!)",
     NULL},
    {"aten.index_fill_.int_Tensor(Tensor(a!) self, int dim, Tensor index, Tensor value) -> "
     "Tensor(a!)",
     NULL},
    {"aten.scatter_.src(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)", NULL},
    {"aten.scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)", NULL},
    {"aten.scatter_.reduce(Tensor(a!) self, int dim, Tensor index, Tensor src, *, str "
     "reduce) -> Tensor(a!)",
     NULL},
    {"aten.scatter_.value_reduce(Tensor(a!) self, int dim, Tensor index, Scalar value, *, "
     "str reduce) -> Tensor(a!)",
     NULL},
    {"aten.scatter_add_(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)", NULL},
    {"aten.scatter_reduce_.two(Tensor(a!) self, int dim, Tensor index, Tensor src, str "
     "reduce, *, bool include_self=True) -> Tensor(a!)",
     NULL},
    {"aten.index_reduce_(Tensor(a!) self, int dim, Tensor index, Tensor source, str "
     "reduce, *, bool include_self=True) -> Tensor(a!)",
     NULL},
    {"aten.put_(Tensor(a!) self, Tensor index, Tensor source, bool accumulate=False) -> Tensor(a!)", NULL},
    {"aten.tril_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)", NULL},
    {"aten.triu_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)", NULL},
    {"aten.cumsum_(Tensor(a!) self, int dim, *, ScalarType? dtype=None) -> Tensor(a!)", NULL},
    {"aten.cumprod_(Tensor(a!) self, int dim, *, ScalarType? dtype=None) -> Tensor(a!)", NULL},
    {"aten.addmm_(Tensor(a!) self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar "
     "alpha=1) -> Tensor(a!)",
     NULL},
    {"aten.addmv_(Tensor(a!) self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar "
     "alpha=1) -> Tensor(a!)",
     NULL},
    {"aten.addr_(Tensor(a!) self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar "
     "alpha=1) -> Tensor(a!)",
     NULL},
    {"aten.addbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar "
     "alpha=1) -> Tensor(a!)",
     NULL},
    {"aten.baddbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, "
     "Scalar alpha=1) -> Tensor(a!)",
     NULL},
    {"aten.renorm_(Tensor(a!) self, Scalar p, int dim, Scalar maxnorm) -> Tensor(a!)", NULL},
    {"aten.bernoulli_.Tensor(Tensor(a!) self, Tensor p, *, Generator? generator=None) -> Tensor(a!)", NULL},
    {"aten.bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> "
     "Tensor(a!)",
     "aten.bernoulli.p"},
    {"aten.uniform_(Tensor(a!) self, float from=0., float to=1., *, Generator? "
     "generator=None) -> Tensor(a!)",
     NULL},
    {"aten.normal_(Tensor(a!) self, float mean=0., float std=1., *, Generator? "
     "generator=None) -> Tensor(a!)",
     "aten.normal_functional"},
    {"aten.exponential_(Tensor(a!) self, float lambd=1., *, Generator? generator=None) -> "
     "Tensor(a!)",
     NULL},
    {"aten.random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)", NULL},
    {"aten.random_.from(Tensor(a!) self, int from, int? to, *, Generator? generator=None) "
     "-> Tensor(a!)",
     NULL},
    {"aten.random_.to(Tensor(a!) self, int to, *, Generator? generator=None) -> Tensor(a!)", NULL},
    {"aten.log_normal_(Tensor(a!) self, float mean=1., float std=2., *, Generator? "
     "generator=None) -> Tensor(a!)",
     NULL},
    {"aten.cauchy_(Tensor(a!) self, float median=0., float sigma=1., *, Generator? "
     "generator=None) -> Tensor(a!)",
     NULL},
    {"aten.geometric_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)", NULL},
    {"aten.embedding_renorm_(Tensor(a!) self, Tensor indices, float max_norm, float norm_type) -> Tensor(a!)", NULL},
    /* results written into a tensor that is given (spectral norm: normalize(..., out=u)) */
    {"aten.add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", "aten.add.Tensor"},
    {"aten.sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", "aten.sub.Tensor"},
    {"aten.mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", "aten.mul.Tensor"},
    {"aten.div.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", "aten.div.Tensor"},
    {"aten.mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", "aten.mm"},
    {"aten.mv.out(Tensor self, Tensor vec, *, Tensor(a!) out) -> Tensor(a!)", "aten.mv"},
    {"aten.bmm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", "aten.bmm"},
    {"aten.matmul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", "aten.matmul"},
    {"aten.cat.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out) -> Tensor(a!)", "aten.cat"},
    {"aten.exp.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten.exp"},
    {"aten.neg.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten.neg"},
    {"aten.abs.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten.abs"},
    {"aten.sqrt.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten.sqrt"},
    {"aten.sigmoid.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten.sigmoid"},
    {"aten.tanh.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten.tanh"},
    {"aten.clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out) -> Tensor(a!)", "aten.clamp"},
};

/* aten.add_.Tensor -> aten.add.Tensor */
static const WfOp *twin(const char *schema, const char *functional)
{
    char name[256];
    size_t n = strcspn(schema, "(");
    if (functional)
        return wf_op_find(functional);
    if (n >= sizeof name)
        return NULL;
    memcpy(name, schema, n);
    name[n] = 0;
    char *base = strchr(name, '.'), *end = base ? strchr(base + 1, '.') : NULL;
    end = end ? end : name + n;
    if (end[-1] != '_')
        return NULL;
    memmove(end - 1, end, strlen(end) + 1);
    return wf_op_find(name);
}

const WfOp *wf_functional_twin(const WfOp *op)
{
    return twin(op->schema, op->functional);
}

void wf_ops_inplace(void)
{
    static WfOp rows[WF_LEN(table)][2]; /* each ends with an empty row */
    for (size_t i = 0; i < WF_LEN(table); i++) {
        char name[256];
        size_t n = strcspn(table[i].schema, "(");
        memcpy(name, table[i].schema, n);
        name[n] = 0;
        if (wf_op_find(name) || !twin(table[i].schema, table[i].functional))
            continue;
        rows[i][0] =
            (WfOp){.schema = table[i].schema, .family = WF_COMPOSITE, .functional = table[i].functional};
        wf_register(rows[i]);
    }
}
