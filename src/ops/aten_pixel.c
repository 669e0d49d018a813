/* ATen's ops that move pixels of images between channels, rows and columns: expansions like aten_view.c. */
#include "ops/aten_view.h"

#include <string.h>

#define E          (g->exprs)
#define X          wf_tensor(n, 0)
#define RULE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)

static int give(WfVal *out, WfVal v)
{
    out[0] = v;
    return 1;
}

/* size / parts, which must be exact. */
static WfDim exact(WfGraph *g, const WfNode *n, WfDim size, WfDim parts)
{
    WfDim q = wf_eprove_lt(E, 0, parts) ? wf_efloordiv(E, size, parts) : 0;
    if (wf_emul(E, q, parts) != size)
        wf_fail_node(g, n, WF_E_SHAPES, "a dimension is not a multiple of what it is divided by");
    return q;
}

RULE(channel_shuffle)
{
    const WfValue *x = wf_value(g, X);
    WfDim shape[WF_MAX_RANK + 1], old[WF_MAX_RANK];
    int rank = x->rank;
    if (rank < 3)
        wf_fail_node(g, n, WF_E_SHAPES, "at least 3 dimensions are needed");
    wf_need_rank(g, n, rank + 1);
    memcpy(old, x->shape, sizeof old);
    shape[0] = old[0];
    shape[1] = wf_int(n, 1);
    shape[2] = exact(g, n, old[1], shape[1]);
    for (int i = 2; i < rank; i++)
        shape[i + 1] = old[i];
    return give(out, wf_reshape(g, wf_transpose(g, wf_reshape(g, X, rank + 1, shape), 1, 2), rank, old));
}

/* The last three dimensions of x cut into five, put into `order`, and joined again to `to`. */
static WfVal regrouped(WfGraph *g, WfVal x, const WfDim five[5], const int order[5], const WfDim to[3])
{
    const WfValue *v = wf_value(g, x);
    int rank = v->rank, lead = rank - 3, perm[WF_MAX_RANK + 2];
    WfDim s[WF_MAX_RANK + 2], y[WF_MAX_RANK];
    memcpy(s, v->shape, sizeof(WfDim) * (size_t)lead);
    memcpy(y, v->shape, sizeof(WfDim) * (size_t)lead);
    memcpy(s + lead, five, 5 * sizeof *five);
    memcpy(y + lead, to, 3 * sizeof *to);
    for (int i = 0; i < rank + 2; i++)
        perm[i] = i < lead ? i : lead + order[i - lead];
    return wf_reshape(g, wf_permute(g, wf_reshape(g, x, rank + 2, s), perm), rank, y);
}

static int64_t pixel_factor(WfGraph *g, const WfNode *n)
{
    int rank = wf_rank_of(g, X);
    int64_t r = wf_lit(g, n, 1);
    if (rank < 3 || r < 1 || r > 4096)
        wf_fail_node(g, n, WF_E_SHAPES, "at least 3 dimensions and a positive factor are needed");
    wf_need_rank(g, n, rank + 2);
    return r;
}

RULE(pixel_shuffle) /* [.., C r r, H, W] -> [.., C, H r, W r] */
{
    int64_t r = pixel_factor(g, n);
    const WfDim *last = wf_value(g, X)->shape + wf_rank_of(g, X) - 3;
    WfDim c = exact(g, n, last[0], r * r), h = last[1], w = last[2];
    return give(out, regrouped(g, X, (WfDim[]){c, r, r, h, w}, (int[]){0, 3, 1, 4, 2},
                               (WfDim[]){c, wf_emul(E, h, r), wf_emul(E, w, r)}));
}

RULE(pixel_unshuffle) /* [.., C, H r, W r] -> [.., C r r, H, W] */
{
    int64_t r = pixel_factor(g, n);
    const WfDim *last = wf_value(g, X)->shape + wf_rank_of(g, X) - 3;
    WfDim c = last[0], h = exact(g, n, last[1], r), w = exact(g, n, last[2], r);
    return give(out, regrouped(g, X, (WfDim[]){c, h, r, w, r}, (int[]){0, 2, 4, 1, 3},
                               (WfDim[]){wf_emul(E, c, r * r), h, w}));
}

/* ---- windows ---- */

typedef struct {
    int64_t kernel[2], dilation[2], padding[2], stride[2];
} Windows;

static void windows(WfGraph *g, const WfNode *n, int first, Windows *w)
{
    int64_t *lists[4] = {w->kernel, w->dilation, w->padding, w->stride};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 2; i++) {
            const WfArg *a = &n->args[first + k];
            if (a->n != 2 || !wf_elit(E, a->ints[i], &lists[k][i]) || lists[k][i] < (k != 2) ||
                lists[k][i] > INT32_MAX)
                wf_fail_node(g, n, WF_E_SHAPES, "argument '%s' must be two fixed numbers",
                             n->schema->params[first + k].name);
        }
}

RULE(im2col) /* [N, C, H, W] -> [N, C kh kw, L] */
{
    Windows w;
    int rank = wf_rank_of(g, X);
    WfVal v = rank == 3 ? wf_unsqueeze(g, X, 0) : X;
    windows(g, n, 1, &w);
    if (rank != 3 && rank != 4)
        wf_fail_node(g, n, WF_E_SHAPES, "an image batch is needed");
    for (int i = 0; i < 2; i++) {
        v = wf_pad_dim(g, v, 2 + i, w.padding[i], w.padding[i], 0);
        v = wf_emit(g, "prim.window", "vdiii", v, 2 + i, w.kernel[i], w.stride[i], w.dilation[i]);
    }
    int perm[6] = {0, 1, 4, 5, 2, 3};
    v = wf_permute(g, v, perm);
    const WfValue *x = wf_value(g, v);
    WfDim shape[3] = {x->shape[0], wf_emul(E, x->shape[1], wf_emul(E, x->shape[2], x->shape[3])),
                      wf_emul(E, x->shape[4], x->shape[5])};
    v = wf_reshape(g, v, 3, shape);
    return give(out, rank == 3 ? wf_squeeze(g, v, 0) : v);
}

RULE(col2im) /* the sum of all windows at their places */
{
    Windows w;
    int rank = wf_rank_of(g, X);
    const WfArg *size = &n->args[1];
    WfVal v = rank == 2 ? wf_unsqueeze(g, X, 0) : X;
    windows(g, n, 2, &w);
    if ((rank != 2 && rank != 3) || size->n != 2)
        wf_fail_node(g, n, WF_E_SHAPES, "columns and an image size are needed");
    WfDim padded[2], count[2];
    for (int i = 0; i < 2; i++) {
        padded[i] = wf_eadd(E, size->ints[i], 2 * w.padding[i]);
        WfDim span = wf_esub(E, padded[i], w.dilation[i] * (w.kernel[i] - 1) + 1);
        if (!wf_eprove_ge0(E, span))
            wf_fail_node(g, n, WF_E_SHAPES, "a window does not fit into the image");
        count[i] = wf_eadd(E, wf_efloordiv(E, span, w.stride[i]), 1);
    }
    WfDim shape[6] = {wf_size_of(g, v, 0),
                      exact(g, n, wf_size_of(g, v, 1), wf_emul(E, w.kernel[0], w.kernel[1])),
                      w.kernel[0],
                      w.kernel[1],
                      count[0],
                      count[1]};
    int perm[6] = {0, 1, 4, 5, 2, 3};
    v = wf_permute(g, wf_reshape(g, v, 6, shape), perm);
    for (int i = 1; i >= 0; i--)
        v = wf_emit(g, "prim.fold", "vdiii", v, 2 + i, padded[i], w.stride[i], w.dilation[i]);
    for (int i = 0; i < 2; i++)
        v = wf_pad_dim(g, v, 2 + i, wf_econst(E, -w.padding[i]), wf_econst(E, -w.padding[i]), 0);
    return give(out, rank == 2 ? wf_squeeze(g, v, 0) : v);
}

static const WfOp ops[] = {
    ROW("channel_shuffle(Tensor self, SymInt groups) -> Tensor", channel_shuffle),
    ROW("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor", pixel_shuffle),
    ROW("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor", pixel_unshuffle),
    ROW("im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
        im2col),
    ROW("col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, "
        "int[2] stride) -> Tensor",
        col2im),
    {0}};

void wf_ops_aten_pixel(void)
{
    wf_register(ops);
}
