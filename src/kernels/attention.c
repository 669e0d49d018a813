/* Attention without the T x T matrix.
 *
 * Forward, a tile is one (batch, head) or a range of its queries. It lays the keys out once as packed
 * transposed blocks of 256 and the values as dense rows, then takes some queries at a time through the blocks
 * of keys: scores by the matrix product, running softmax (maximum and sum per query, the output scaled when
 * the maximum grows), output added by a second product. Blocks that causality hides are not visited. lse =
 * max + log(sum) is kept for the backward.
 *
 * Backward, a tile is one (batch, kv head) with all its query heads, so that dk and dv have one writer. For a
 * block of keys and some queries: P = exp(S - lse), dV += P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O))
 * scale, dQ += dS K, dK += dS^T Q. (FlashAttention-2's formulas, Dao 2023.)
 *
 * A query that sees no key (all -inf) gets output 0, lse -inf and gradients 0, as PyTorch's safe softmax
 * does. */
#include <math.h>
#include <string.h>

#include "kernels/private.h"

/* Keys of a block. A row of scores is LS floats apart from the next, so that the lines of a column are not
 * all in the same few sets of the first-level cache. */
enum { BK = 256, LS = BK + 16 };

typedef struct {
    const WfVec *vec;
    bool causal, backward;
    float scale;
    int64_t b, h, hkv, tq, tk, d, dv, dp, dvp; /* dp, dvp: padded to 16 */
    int64_t bq;                                /* queries of a block */
    int64_t ranges;                            /* of queries, forward */
    int64_t s[9][3]; /* strides over B, H, T of q k v o do dq dk dv, and of the mask */
    int64_t mask_col;
    int mask, lse, q, k, v, o, grad_o, dq, dk, grad_v; /* operand numbers; mask -1: none */
} Attention;
enum { Q, K, V, O, DO, DQ, DK, DV, MASK };

static bool fits(const WfLibDesc *d, int i, const char *name, int64_t b, int64_t h, int64_t t, int64_t e,
                 char *why, size_t size)
{
    if (!wf_want(d, i, name, WF_F32, 4, why, size))
        return false;
    const WfOperand *x = &d->operand[i];
    if (x->shape[0] != b || x->shape[1] != h || x->shape[2] != t || x->shape[3] != e)
        return wf_refuse(why, size, "%s has a wrong shape", name);
    if (x->shape[3] > 1 && x->stride[3] != 1)
        return wf_refuse(why, size, "the last stride of %s is not 1: copy it", name);
    return true;
}

static bool accepts(const WfLibDesc *d, char *why, size_t size)
{
    bool back = !strcmp(d->kind, "attention_bwd");
    if (d->n != (back ? 10 : 6))
        return wf_refuse(why, size, "%s takes %d operands", d->kind, back ? 10 : 6);
    if (!wf_want(d, 0, "q", WF_F32, 4, why, size) || !wf_want(d, 1, "k", WF_F32, 4, why, size) ||
        !wf_want(d, 2, "v", WF_F32, 4, why, size))
        return false;
    int64_t b = d->operand[0].shape[0], h = d->operand[0].shape[1], tq = d->operand[0].shape[2];
    int64_t e = d->operand[0].shape[3], hkv = d->operand[1].shape[1], tk = d->operand[1].shape[2];
    int64_t ev = d->operand[2].shape[3];
    int mask = back ? 6 : 3, lse = 5;
    if (hkv < 1 || h % hkv)
        return wf_refuse(why, size, "%lld query heads do not divide among %lld kv heads", (long long)h,
                         (long long)hkv);
    if (e < 1 || ev < 1)
        return wf_refuse(why, size, "the head size is 0");
    if (!fits(d, 0, "q", b, h, tq, e, why, size) || !fits(d, 1, "k", b, hkv, tk, e, why, size) ||
        !fits(d, 2, "v", b, hkv, tk, ev, why, size) || !fits(d, back ? 3 : 4, "o", b, h, tq, ev, why, size))
        return false;
    if (back && (!fits(d, 4, "do", b, h, tq, ev, why, size) || !fits(d, 7, "dq", b, h, tq, e, why, size) ||
                 !fits(d, 8, "dk", b, hkv, tk, e, why, size) || !fits(d, 9, "dv", b, hkv, tk, ev, why, size)))
        return false;
    if (!wf_want(d, lse, "lse", WF_F32, 3, why, size))
        return false;
    if (!wf_dense(&d->operand[lse]))
        return wf_refuse(why, size, "lse is not dense");
    if (!wf_has(d, mask))
        return true;
    const WfOperand *m = &d->operand[mask];
    if (!wf_want(d, mask, "mask", WF_F32, 4, why, size))
        return false;
    if ((m->shape[0] != b && m->shape[0] != 1) || (m->shape[1] != h && m->shape[1] != 1) ||
        (m->shape[2] != tq && m->shape[2] != 1) || (m->shape[3] != tk && m->shape[3] != 1))
        return wf_refuse(why, size, "mask has a wrong shape");
    return true;
}

static void plan(const WfLibDesc *d, Attention *a)
{
    memset(a, 0, sizeof *a);
    const WfOperand *q = &d->operand[0], *k = &d->operand[1], *v = &d->operand[2];
    a->vec = wf_vec(d);
    a->backward = !strcmp(d->kind, "attention_bwd");
    a->causal = d->param[0] != 0;
    a->b = q->shape[0], a->h = q->shape[1], a->tq = q->shape[2], a->d = q->shape[3];
    a->hkv = k->shape[1], a->tk = k->shape[2], a->dv = v->shape[3];
    a->dp = wf_up(a->d, 16), a->dvp = wf_up(a->dv, 16);
    a->scale = (float)(d->fparam[0] != 0 ? d->fparam[0] : 1 / sqrt((double)a->d));
    int at[9] = {0, 1, 2, 4, -1, -1, -1, -1, 3};
    if (a->backward)
        memcpy(at, (int[]){0, 1, 2, 3, 4, 7, 8, 9, 6}, sizeof at);
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 3 && at[i] >= 0; j++) {
            const WfOperand *x = &d->operand[at[i]];
            a->s[i][j] = i == MASK && x->shape[j] == 1 ? 0 : x->stride[j];
        }
    a->mask = wf_has(d, at[MASK]) ? at[MASK] : -1;
    a->mask_col = d->operand[at[MASK]].shape[3] == 1 && a->tk != 1 ? 0 : d->operand[at[MASK]].stride[3];
    a->lse = 5;
    a->o = at[O], a->grad_o = at[DO], a->dq = at[DQ], a->dk = at[DK], a->grad_v = at[DV];
    a->bq = a->causal ? 32 : 112; /* few where causality hides keys of a block from its first queries: their
                                     scores are computed for nothing */
    a->ranges = 1;
    while (a->b * a->h * a->ranges < 16 && a->tq / a->ranges >= 512)
        a->ranges *= 2;
}

static int64_t scratch_floats(const Attention *a)
{
    int64_t tk = wf_up(a->tk, BK), tq = wf_up(a->tq, a->bq), common = WF_BLOCK_SCRATCH + 2 * a->bq * LS;
    if (!a->backward)
        return common + tk * (a->d + a->dvp) + a->bq * (a->dvp + 32);
    return common + tk * (a->d + a->dv + 2 * a->dp + a->dvp) + tq * (2 * a->dp + a->dvp + 32);
}

static void sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    Attention a;
    plan(d, &a);
    *workspace = 0;
    *scratch = (size_t)scratch_floats(&a) * sizeof(float);
}

static float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += wf_up(n, 16);
    return p;
}

static float *place(const Attention *a, void *const *operand, int number, int which, int64_t b, int64_t h)
{
    return number < 0 ? NULL : (float *)operand[number] + b * a->s[which][0] + h * a->s[which][1];
}

/* Dense rows of width `to`, zero beyond `width`. */
static void copy_rows(int64_t n, int64_t width, const float *from, int64_t stride, float *out, int64_t to)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(out + i * to, from + i * stride, (size_t)width * sizeof(float));
        memset(out + i * to + width, 0, (size_t)(to - width) * sizeof(float));
    }
}

static void store_rows(int64_t n, int64_t width, const float *from, int64_t stride, float *out, int64_t to)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * to, from + i * stride, (size_t)width * sizeof(float));
}

/* Packs x[tk, d]^T in blocks of BK keys. */
static void pack_keys(const Attention *a, const float *x, int64_t stride, int64_t d, float *out)
{
    for (int64_t k0 = 0; k0 < a->tk; k0 += BK) {
        int64_t n = a->tk - k0 < BK ? a->tk - k0 : BK;
        wf_prepack(a->vec, d, n, x + k0 * stride, 1, stride, out + k0 * d);
    }
}

/* Keys of the block from k0 on that queries up to i1 - 1 can see, in whole panels; 0: none. */
static int64_t visible(const Attention *a, int64_t k0, int64_t i1)
{
    int64_t n = a->tk - k0 < BK ? a->tk - k0 : BK;
    if (!a->causal)
        return n;
    int64_t see = i1 - k0;
    return see <= 0 ? 0 : wf_up(see, WF_NR) < n ? wf_up(see, WF_NR) : n;
}

/* s[rows, n] = the products of queries and keys; w: how they become scores. */
static void score_block(const Attention *a, int64_t rows, int64_t i0, int64_t k0, int64_t n, const float *q,
                        int64_t q_stride, const float *keys, const float *mask, float *s, WfScores *w,
                        float *work)
{
    int64_t width = a->tk - k0 < BK ? a->tk - k0 : BK;
    wf_product_columns(a->vec, rows, 0, n, width, a->d, q + i0 * q_stride, q_stride, 1, keys + k0 * a->d, s,
                       LS, false, work);
    *w = (WfScores){.scale = a->scale, .causal = a->causal, .first_limit = i0 + 1 - k0};
    if (mask)
        w->mask = mask + i0 * a->s[MASK][2] + k0 * a->mask_col;
    w->mask_row = a->s[MASK][2], w->mask_col = a->mask_col;
}

static void forward(const Attention *a, int64_t tile, void *const *operand, float *scratch)
{
    int64_t range = tile % a->ranges, h = tile / a->ranges % a->h, b = tile / a->ranges / a->h;
    int64_t hk = h / (a->h / a->hkv), first = a->tq * range / a->ranges,
            last = a->tq * (range + 1) / a->ranges;
    const float *q = place(a, operand, 0, Q, b, h), *mask = place(a, operand, a->mask, MASK, b, h);
    float *o = place(a, operand, a->o, O, b, h), *lse = (float *)operand[a->lse] + (b * a->h + h) * a->tq;
    float *at = scratch, *work = take(&at, WF_BLOCK_SCRATCH), *s = take(&at, a->bq * LS),
          *acc = take(&at, a->bq * a->dvp);
    float *max = take(&at, a->bq), *sum = take(&at, a->bq);
    float *keys = take(&at, wf_up(a->tk, BK) * a->d), *values = take(&at, wf_up(a->tk, BK) * a->dvp);
    pack_keys(a, place(a, operand, 1, K, b, hk), a->s[K][2], a->d, keys);
    copy_rows(a->tk, a->dv, place(a, operand, 2, V, b, hk), a->s[V][2], values, a->dvp);
    for (int64_t i0 = first; i0 < last; i0 += a->bq) {
        int64_t rows = last - i0 < a->bq ? last - i0 : a->bq;
        memset(acc, 0, (size_t)(a->bq * a->dvp) * sizeof(float));
        for (int64_t i = 0; i < rows; i++)
            max[i] = -INFINITY, sum[i] = 0;
        for (int64_t k0 = 0; k0 < a->tk; k0 += BK) {
            int64_t n = visible(a, k0, i0 + rows);
            if (!n)
                break;
            WfScores w;
            score_block(a, rows, i0, k0, n, q, a->s[Q][2], keys, mask, s, &w, work);
            a->vec->softmax_step(rows, n, s, LS, &w, max, sum, acc, a->dvp, a->dvp);
            wf_product_in_place(a->vec, rows, a->dvp, n, s, LS, 1, values + k0 * a->dvp, a->dvp, acc, a->dvp,
                                true, work);
        }
        for (int64_t i = 0; i < rows; i++) {
            a->vec->scale_row(a->dv, acc + i * a->dvp, sum[i] == 0 ? 0 : 1 / sum[i],
                              o + (i0 + i) * a->s[O][2]);
            lse[i0 + i] = sum[i] == 0 ? -INFINITY : max[i] + logf(sum[i]);
        }
    }
}

/* What a backward tile works on: laid out once per head. */
typedef struct {
    float *work, *p, *ds, *keys, *values, *k_rows, *q_rows, *do_rows, *dk, *dv, *dq, *delta;
    const float *mask, *lse;
} Back;

static void back_block(const Attention *a, Back *w, int64_t i0, int64_t rows, int64_t k0, int64_t n)
{
    int64_t width = a->tk - k0 < BK ? a->tk - k0 : BK;
    const float *grad = w->do_rows + i0 * a->dvp;
    WfScores how;
    score_block(a, rows, i0, k0, n, w->q_rows, a->dp, w->keys, w->mask, w->p, &how, w->work);
    a->vec->probability(rows, n, w->p, LS, &how, w->lse + i0);
    wf_product_in_place(a->vec, n, a->dvp, rows, w->p, 1, LS, grad, a->dvp, w->dv + k0 * a->dvp, a->dvp, true,
                        w->work);
    wf_product_columns(a->vec, rows, 0, n, width, a->dv, grad, a->dvp, 1, w->values + k0 * a->dv, w->ds, LS,
                       false, w->work);
    for (int64_t i = 0; n % 16 && i < rows; i++)
        memset(w->ds + i * LS + n, 0, (size_t)(wf_up(n, 16) - n) * sizeof(float));
    a->vec->softmax_back(rows, wf_up(n, 16), w->p, w->ds, LS, w->delta + i0, a->scale);
    wf_product_in_place(a->vec, rows, a->dp, n, w->ds, LS, 1, w->k_rows + k0 * a->dp, a->dp,
                        w->dq + i0 * a->dp, a->dp, true, w->work);
    wf_product_in_place(a->vec, n, a->dp, rows, w->ds, 1, LS, w->q_rows + i0 * a->dp, a->dp,
                        w->dk + k0 * a->dp, a->dp, true, w->work);
}

static void back_head(const Attention *a, Back *w, int64_t b, int64_t h, void *const *operand)
{
    const float *o = place(a, operand, a->o, O, b, h);
    w->mask = place(a, operand, a->mask, MASK, b, h);
    w->lse = (const float *)operand[a->lse] + (b * a->h + h) * a->tq;
    copy_rows(a->tq, a->d, place(a, operand, 0, Q, b, h), a->s[Q][2], w->q_rows, a->dp);
    copy_rows(a->tq, a->dv, place(a, operand, a->grad_o, DO, b, h), a->s[DO][2], w->do_rows, a->dvp);
    memset(w->dq, 0, (size_t)(a->tq * a->dp) * sizeof(float));
    a->vec->dots(a->tq, a->dv, w->do_rows, a->dvp, o, a->s[O][2], w->delta);
    for (int64_t k0 = 0; k0 < a->tk; k0 += BK)
        for (int64_t i0 = 0; i0 < a->tq; i0 += a->bq) {
            int64_t rows = a->tq - i0 < a->bq ? a->tq - i0 : a->bq, n = visible(a, k0, i0 + rows);
            if (n)
                back_block(a, w, i0, rows, k0, n);
        }
    store_rows(a->tq, a->d, w->dq, a->dp, place(a, operand, a->dq, DQ, b, h), a->s[DQ][2]);
}

static void backward(const Attention *a, int64_t tile, void *const *operand, float *scratch)
{
    int64_t hk = tile % a->hkv, b = tile / a->hkv, tk = wf_up(a->tk, BK), tq = wf_up(a->tq, a->bq);
    float *at = scratch;
    Back w = {0};
    w.work = take(&at, WF_BLOCK_SCRATCH), w.p = take(&at, a->bq * LS), w.ds = take(&at, a->bq * LS);
    w.keys = take(&at, tk * a->d), w.values = take(&at, tk * a->dv), w.k_rows = take(&at, tk * a->dp);
    w.dk = take(&at, tk * a->dp), w.dv = take(&at, tk * a->dvp);
    w.q_rows = take(&at, tq * a->dp), w.do_rows = take(&at, tq * a->dvp), w.dq = take(&at, tq * a->dp);
    w.delta = take(&at, tq);
    const float *k = place(a, operand, 1, K, b, hk), *v = place(a, operand, 2, V, b, hk);
    pack_keys(a, k, a->s[K][2], a->d, w.keys);
    pack_keys(a, v, a->s[V][2], a->dv, w.values);
    copy_rows(a->tk, a->d, k, a->s[K][2], w.k_rows, a->dp);
    memset(w.dk, 0, (size_t)(tk * a->dp) * sizeof(float));
    memset(w.dv, 0, (size_t)(tk * a->dvp) * sizeof(float));
    int64_t group = a->h / a->hkv;
    for (int64_t h = hk * group; h < (hk + 1) * group; h++)
        back_head(a, &w, b, h, operand);
    store_rows(a->tk, a->d, w.dk, a->dp, place(a, operand, a->dk, DK, b, hk), a->s[DK][2]);
    store_rows(a->tk, a->dv, w.dv, a->dvp, place(a, operand, a->grad_v, DV, b, hk), a->s[DV][2]);
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                void *scratch, int thread)
{
    const Attention *a = lib->self;
    (void)phase;
    (void)workspace;
    (void)thread;
    if (a->backward)
        backward(a, tile, operand, scratch);
    else
        forward(a, tile, operand, scratch);
}

static void create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    (void)ctx;
    (void)threads;
    Attention *a = WF_NEW(arena, Attention);
    plan(d, a);
    lib->self = a;
    lib->run = run;
    lib->n_phases = 1;
    lib->tiles[0] = a->backward ? a->b * a->hkv : a->b * a->h * a->ranges;
}

const WfKind wf_kind_attention_fwd = {"attention_fwd", accepts, sizes, create};
const WfKind wf_kind_attention_bwd = {"attention_bwd", accepts, sizes, create};
