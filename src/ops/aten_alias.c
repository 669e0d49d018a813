/* Second names: ops whose arguments and meaning are those of another one. */
#include "ops/ops_private.h"

#define UNARY(name, of)  {"aten." name "(Tensor self) -> Tensor", "aten." of}
#define BINARY(name, of) {"aten." name "(Tensor self, Tensor other) -> Tensor", "aten." of}
#define SCALAR(name, of) {"aten." name "(Tensor self, Scalar other) -> Tensor", "aten." of}
#define COMPARE(name, of) BINARY(name ".Tensor", of ".Tensor"), SCALAR(name ".Scalar", of ".Scalar")

static const struct {
    const char *schema, *of;
} table[] = {
    UNARY("arccos", "acos"),
    UNARY("arcsin", "asin"),
    UNARY("arctan", "atan"),
    UNARY("arccosh", "acosh"),
    UNARY("arcsinh", "asinh"),
    UNARY("arctanh", "atanh"),
    UNARY("negative", "neg"),
    UNARY("absolute", "abs"),
    UNARY("fix", "trunc"),
    UNARY("sgn", "sign"),
    UNARY("inverse", "linalg_inv"),
    UNARY("det", "linalg_det"),
    UNARY("special_erf", "erf"),
    UNARY("special_erfc", "erfc"),
    UNARY("special_erfinv", "erfinv"),
    UNARY("special_exp2", "exp2"),
    UNARY("special_expm1", "expm1"),
    UNARY("special_log1p", "log1p"),
    UNARY("special_expit", "sigmoid"),
    UNARY("special_sinc", "sinc"),
    UNARY("special_gammaln", "lgamma"),
    UNARY("special_digamma", "digamma"),
    UNARY("special_psi", "digamma"),
    BINARY("arctan2", "atan2"),
    BINARY("special_xlogy", "xlogy.Tensor"),
    BINARY("divide.Tensor", "div.Tensor"),
    SCALAR("divide.Scalar", "div.Scalar"),
    BINARY("true_divide.Tensor", "div.Tensor"),
    SCALAR("true_divide.Scalar", "div.Scalar"),
    BINARY("multiply.Tensor", "mul.Tensor"),
    SCALAR("multiply.Scalar", "mul.Scalar"),
    {"aten.divide.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor", "aten.div.Tensor_mode"},
    {"aten.divide.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor", "aten.div.Scalar_mode"},
    COMPARE("greater", "gt"),
    COMPARE("greater_equal", "ge"),
    COMPARE("less", "lt"),
    COMPARE("less_equal", "le"),
    COMPARE("not_equal", "ne"),
    SCALAR("bitwise_left_shift.Tensor_Scalar", "bitwise_left_shift.Tensor"),
    SCALAR("bitwise_right_shift.Tensor_Scalar", "bitwise_right_shift.Tensor"),
    BINARY("__lshift__.Tensor", "bitwise_left_shift.Tensor"),
    BINARY("__rshift__.Tensor", "bitwise_right_shift.Tensor"),
    {"aten.subtract.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", "aten.sub.Tensor"},
    {"aten.subtract.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", "aten.sub.Scalar"},
    {"aten.special_logit(Tensor self, float? eps=None) -> Tensor", "aten.logit"},
    {"aten.special_round(Tensor self, *, int decimals=0) -> Tensor", "aten.round.decimals"},
    {"aten.special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", "aten.logsumexp"},
    {"aten.special_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", "aten.softmax.int"},
    {"aten.special_log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", "aten.log_softmax.int"},
    {"aten.clip.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", "aten.clamp.Tensor"},
    {"aten.row_stack(Tensor[] tensors) -> Tensor", "aten.vstack"},
    {"aten.matrix_power(Tensor self, int n) -> Tensor", "aten.linalg_matrix_power"},
    {"aten.linalg_matmul(Tensor self, Tensor other) -> Tensor", "aten.matmul"},
};

static int other_name(WfGraph *g, const WfNode *n, WfVal *out)
{
    int count = 0;
    for (size_t i = 0; i < WF_LEN(table); i++)
        if (table[i].schema == n->op->schema)
            wf_emit_args(g, wf_op_find(table[i].of), n->args, out, &count);
    return count;
}

void wf_ops_aten_alias(void)
{
    static WfOp rows[WF_LEN(table) + 1]; /* ends with an empty row */
    for (size_t i = 0; i < WF_LEN(table); i++)
        rows[i] = (WfOp){.schema = table[i].schema, .family = WF_COMPOSITE, .decompose = other_name};
    wf_register(rows);
}
