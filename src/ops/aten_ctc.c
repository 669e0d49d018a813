/* CTC loss. The kernel gives the loss and its gradient at once; the loss is a constant to autograd, and the gradient the
 * factor of (scores - scores without gradient), which is zero. */
#include "ops/ops_private.h"

#include <math.h>

/* A list of one length for each sample: a tensor, or numbers of the export; each checked to be 0 .. most. */
static WfVal lengths(WfGraph *g, const WfNode *n, int arg, WfDim rows, WfDim most)
{
    const WfArg *a = &n->args[arg];
    WfVal v = a->kind == WF_ARG_TENSOR ? wf_cast(g, a->val, WF_I64) : 0;
    if (!v) {
        WfVal at = wf_iota(g, WF_I64, 1, &rows, 0);
        v = wf_full(g, WF_I64, 1, &rows, 0);
        for (int i = 0; i < a->n; i++)
            v = wf_where(g, wf_binary(g, "prim.eq", at, wf_scalar(g, WF_I64, i)), wf_dim_scalar(g, WF_I64, a->ints[i]), v);
    }
    v = wf_reshape(g, v, 1, &rows);
    return wf_emit(g, "prim.check", "viii", v, (WfDim)0, wf_eadd(g->exprs, most, 1), wf_econst(g->exprs, INT64_MIN + 1));
}

/* log_probs[T, N, C] or [T, C], targets[N, S] or all of them in a row, input_lengths, target_lengths, blank, reduction,
 * zero_infinity */
static int ctc_loss(WfGraph *g, const WfNode *n, WfVal *out)
{
    WfVal x = wf_tensor(n, 0), labels = wf_cast(g, wf_tensor(n, 1), WF_I64), r[2], at;
    WfExprs *e = g->exprs;
    WfDtype t = wf_dtype_of(g, x);
    int64_t most, reduction = wf_lit(g, n, 5);
    bool single = wf_rank_of(g, x) == 2, table = wf_rank_of(g, labels) == 2;
    if (single)
        x = wf_unsqueeze(g, x, 1);
    if (wf_rank_of(g, x) != 3 || !(t == WF_F32 || t == WF_F64) || wf_rank_of(g, labels) > 2)
        wf_fail_node(g, n, WF_E_SHAPES, "%s and %s do not fit: scores are [T, N, C], labels [N, S] or [all]",
                     wf_shape_text(g, wf_tensor(n, 0)), wf_shape_text(g, labels));
    WfDim rows = wf_size_of(g, x, 1), longest = wf_size_of(g, labels, -1), all = wf_numel(g, labels);
    if (!wf_elit(e, longest, &most))
        wf_fail_node(g, n, WF_E_OP_FORM, "the number of labels must be known at compile time");
    WfVal frames = lengths(g, n, 2, rows, wf_size_of(g, x, 0)), count = lengths(g, n, 3, rows, longest);
    labels = wf_reshape(g, labels, 1, &all);
    if (table)
        at = wf_mul(g, wf_iota(g, WF_I64, 1, &rows, 0), wf_dim_scalar(g, WF_I64, longest));
    else
        at = wf_sub(g, wf_emit(g, "prim.cumsum", "vd", count, 0), count);
    wf_emit_multi(g, r, "prim.ctc", "vvvvvii", wf_detach(g, x), labels, at, frames, count, wf_int(n, 4), (WfDim)most);
    WfVal nll = wf_detach(g, r[0]), grad = wf_detach(g, r[1]), zero = wf_like(g, x, 0);
    if (wf_bool(n, 6)) {
        WfVal none = wf_binary(g, "prim.eq", nll, wf_like(g, nll, INFINITY));
        grad = wf_where(g, wf_unsqueeze(g, none, 1), zero, grad);
        nll = wf_where(g, none, zero, nll);
    }
    WfVal step = wf_mul(g, wf_sub(g, x, wf_detach(g, x)), grad);
    nll = wf_add(g, nll, wf_sum(g, step, 1u << 0 | 1u << 2, false));
    if (reduction == 1) { /* of each sample by its length, then over samples */
        WfVal by = wf_cast(g, wf_binary(g, "prim.max", count, wf_like(g, count, 1)), t);
        nll = wf_mean(g, wf_div(g, nll, by), 1, false);
    } else if (reduction == 2) {
        nll = wf_sum(g, nll, 1, false);
    } else if (single) {
        nll = wf_squeeze(g, nll, 0);
    }
    out[0] = nll;
    return 1;
}

#define REST ", int blank=0, int reduction=1, bool zero_infinity=False) -> Tensor"

static const WfOp ops[] = {
    ROW("ctc_loss.IntList(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths" REST, ctc_loss),
    ROW("ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths" REST, ctc_loss),
    {0}};

void wf_ops_aten_ctc(void)
{
    wf_register(ops);
}
