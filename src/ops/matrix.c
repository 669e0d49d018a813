/* Primitives on batches of small matrices, [B, m, n], and CTC, which kernels compute whole. They have no gradients: what
 * is made of them (aten_linalg.c, aten_ctc.c) says its gradient in terms of their results. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

static void dense(WfLibraryCall *c, WfVal v)
{
    c->at[c->n].dense = true;
    c->at[c->n++].v = v;
}

/* ---- matrices ---- */

static int what_of(const WfNode *n)
{
    const char *name = n->schema->name;
    return !strcmp(name, "prim.inverse")    ? WF_MATRIX_INVERSE
           : !strcmp(name, "prim.cholesky") ? WF_MATRIX_CHOLESKY
           : !strcmp(name, "prim.eigh")     ? WF_MATRIX_EIGH
                                            : WF_MATRIX_QR;
}

static void matrix_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *a = wf_value(g, wf_tensor(n, 0));
    WfDim b = a->shape[0], rows = a->shape[1], columns = a->shape[2], less = wf_emin(g->exprs, rows, columns);
    WfDtype t = a->dtype;
    int what = what_of(n);
    if (a->rank != 3 || !(t == WF_F32 || t == WF_F64) || (what != WF_MATRIX_QR && !wf_dims_equal(g, rows, columns)))
        wf_fail_node(g, n, WF_E_BUG, "the operand does not fit");
    if (what == WF_MATRIX_QR) {
        wf_set_result(g, n, 0, t, 3, (WfDim[]){b, rows, less});
        wf_set_result(g, n, 1, t, 3, (WfDim[]){b, less, columns});
        return;
    }
    if (what == WF_MATRIX_EIGH) {
        wf_set_result(g, n, 0, t, 2, (WfDim[]){b, columns});
        wf_set_result(g, n, 1, t, 3, (WfDim[]){b, rows, columns});
        return;
    }
    wf_set_result(g, n, 0, t, 3, (WfDim[]){b, rows, columns});
    for (int i = 1; what == WF_MATRIX_INVERSE && i < 3; i++)
        wf_set_result(g, n, i, t, 1, &b);
}

static void matrix_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    (void)g;
    c->kind = "matrix";
    c->param[0] = what_of(n);
    dense(c, wf_tensor(n, 0));
    for (int i = 0; i < n->n_out; i++)
        dense(c, n->out + (WfVal)i);
}

static void matrix_eval(WfOracle *o, const WfNode *n)
{
    int64_t s[3], each[3];
    double *result[3], *a;
    wf_oracle_shape(o, wf_tensor(n, 0), s);
    a = WF_NEWN(o->arena, double, (size_t)(s[1] * s[2]) + 1);
    for (int i = 0; i < n->n_out; i++) {
        result[i] = wf_oracle_new(o, n->out + (WfVal)i);
        each[i] = s[0] ? wf_oracle_numel(o, n->out + (WfVal)i) / s[0] : 0;
    }
    for (int64_t b = 0; b < s[0]; b++) {
        memcpy(a, o->val[wf_tensor(n, 0)] + b * s[1] * s[2], (size_t)(s[1] * s[2]) * sizeof *a);
        wf_matrix(what_of(n), s[1], s[2], a, result);
        for (int i = 0; i < n->n_out; i++)
            result[i] += each[i];
    }
}

/* ---- ctc(logp[T, N, C], labels[L], at[N], frames[N], count[N], blank, most) -> nll[N], grad[T, N, C] ---- */

static void ctc_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    WfDim shape[3] = {x->shape[0], x->shape[1], x->shape[2]}, rows = x->shape[1];
    WfDtype t = x->dtype;
    wf_set_result(g, n, 0, t, 1, &rows);
    wf_set_result(g, n, 1, t, 3, shape);
}

static void ctc_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    c->kind = "ctc";
    for (int i = 0; i < 5; i++)
        dense(c, wf_tensor(n, i));
    dense(c, n->out);
    dense(c, n->out + 1);
    c->param[0] = wf_lit(g, n, 5);
    c->param[1] = wf_lit(g, n, 6);
}

static void ctc_eval(WfOracle *o, const WfNode *n)
{
    int64_t s[3], blank = wf_lit(o->g, n, 5), most = wf_lit(o->g, n, 6), all = wf_oracle_numel(o, wf_tensor(n, 1));
    wf_oracle_shape(o, wf_tensor(n, 0), s);
    const double *list[5];
    for (int i = 0; i < 5; i++)
        list[i] = o->val[wf_tensor(n, i)];
    double *nll = wf_oracle_new(o, n->out), *grad = wf_oracle_new(o, n->out + 1);
    double *work = WF_NEWN(o->arena, double, wf_ctc_work(s[0], s[2], most));
    int64_t *labels = WF_NEWN(o->arena, int64_t, (size_t)most + 1);
    for (int64_t i = 0; i < s[1]; i++) {
        int64_t at = (int64_t)list[2][i], count = (int64_t)list[4][i];
        bool fits = count >= 0 && count <= most && at >= 0 && at <= all - count && list[3][i] >= 0 && list[3][i] <= (double)s[0];
        for (int64_t k = 0; fits && k < count; k++) {
            labels[k] = (int64_t)list[1][at + k];
            fits = labels[k] >= 0 && labels[k] < s[2];
        }
        nll[i] = !fits ? NAN
                       : wf_ctc((int64_t)list[3][i], s[2], s[1] * s[2], list[0] + i * s[2], count, labels, blank,
                                grad + i * s[2], work);
    }
}

#define MATRIX(text) {.schema = "prim." text, .family = WF_LIBRARY, .infer = matrix_infer, .describe = matrix_call, .eval = matrix_eval}

static const WfOp ops[] = {
    MATRIX("inverse(Tensor a) -> (Tensor, Tensor, Tensor)"), /* a^-1, log |det a|, the sign of det a */
    MATRIX("cholesky(Tensor a) -> Tensor"),
    MATRIX("eigh(Tensor a) -> (Tensor, Tensor)"), /* values, vectors */
    MATRIX("qr(Tensor a) -> (Tensor, Tensor)"),
    {.schema = "prim.ctc(Tensor logp, Tensor labels, Tensor at, Tensor frames, Tensor count, int blank, int most) -> (Tensor, Tensor)",
     .family = WF_LIBRARY, .infer = ctc_infer, .describe = ctc_call, .eval = ctc_eval},
    {0}};

void wf_ops_matrix(void) { wf_register(ops); }
