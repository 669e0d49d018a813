/* Recurrent layers: one layer, one direction, the part that is sequential.
 *
 * The input products x W_ih^T + b_ih come in ready, and the graph computes dW_hh, dW_ih and dx by ordinary matrix products from
 * what the backward hands out; here is only what needs the step before. A tile is a range of the batch and walks the whole
 * sequence, so that no barrier stands between steps. The recurrent weights are packed once per call by a phase of their own, for
 * AMX tiles where they are there and the batch fills them; a step whose values are not finite multiplies without them. float64 has
 * a file of its own (rnn_f64.c). Formulas and gate order are PyTorch's:
 *
 *   LSTM  gates i f g o, c = f c' + i g, h = o tanh c; saves i f g o c
 *
 *   GRU   gates r z n, n = tanh(xn + r (Whn h' + bhn)), h = (1 - z) n + z h'; saves r z n and Whn h' + bhn
 *
 *   RNN   h = tanh(x + W h' + b) or relu; saves nothing, y tells
 *
 * Saved values of one step and sample are S blocks of H. Rows are padded to 16 in scratch. */
#include <string.h>

#include "kernels/amx.h"
#include "kernels/rnn.h"

int wf_rnn_gates(int mode)
{
    return mode == WF_RNN_LSTM ? 4 : mode == WF_RNN_GRU ? 3 : 1;
}

int wf_rnn_saved(int mode)
{
    return mode == WF_RNN_LSTM ? 5 : mode == WF_RNN_GRU ? 4 : 0;
}

typedef WfRnn Rnn;

static void plan(const WfLibDesc *d, Rnn *r)
{
    memset(r, 0, sizeof *r);
    r->backward = !strcmp(d->kind, "rnn_bwd");
    r->vec = wf_vec(d);
    r->mode = (int)d->param[0];
    r->reverse = d->param[1] != 0;
    const WfOperand *y = &d->operand[r->backward ? BY : Y];
    r->f64 = y->dtype == WF_F64;
    r->t = y->shape[0], r->b = y->shape[1], r->h = y->shape[2];
    r->g = wf_rnn_gates(r->mode), r->s = wf_rnn_saved(r->mode), r->hp = wf_up(r->h, 16);
    for (int i = 0; i < d->n; i++) {
        r->has[i] = wf_has(d, i);
        for (int j = 0; j < 3; j++)
            r->stride[i][j] = d->operand[i].stride[j];
    }
    r->tiles = 1;
    while (r->tiles < 8 && r->b / r->tiles >= 32) /* a register tile's worth of rows in each */
        r->tiles *= 2;
    r->amx = !r->f64 && wf_amx(d) && r->h >= 32 && r->b / r->tiles >= 8;
}

static bool fits(const WfLibDesc *d, int i, const char *name, int rank, const int64_t *shape, bool optional,
                 char *why, size_t size)
{
    if (optional && !wf_has(d, i))
        return true;
    WfDtype t = d->operand[!strcmp(d->kind, "rnn_bwd") ? BY : Y].dtype;
    if (!wf_want(d, i, name, t, rank, why, size))
        return false;
    for (int j = 0; j < rank; j++)
        if (d->operand[i].shape[j] != shape[j])
            return wf_refuse(why, size, "dimension %d of %s is %lld, expected %lld", j, name,
                             (long long)d->operand[i].shape[j], (long long)shape[j]);
    if (shape[rank - 1] > 1 && d->operand[i].stride[rank - 1] != 1)
        return wf_refuse(why, size, "the last stride of %s is not 1: copy it", name);
    return true;
}

static bool accepts(const WfLibDesc *d, char *why, size_t size)
{
    bool back = !strcmp(d->kind, "rnn_bwd");
    if (d->n != (back ? BWD_N : FWD_N))
        return wf_refuse(why, size, "%s takes %d operands", d->kind, back ? BWD_N : FWD_N);
    if (d->param[0] < WF_RNN_LSTM || d->param[0] > WF_RNN_RELU)
        return wf_refuse(why, size, "mode %lld is unknown", (long long)d->param[0]);
    int y_at = back ? BY : Y;
    if (!wf_want(d, y_at, "y", d->operand[y_at].dtype == WF_F64 ? WF_F64 : WF_F32, 3, why, size))
        return false;
    Rnn r;
    plan(d, &r);
    bool lstm = r.mode == WF_RNN_LSTM, gru = r.mode == WF_RNN_GRU;
    int64_t gates[] = {r.t, r.b, r.g * r.h}, w[] = {r.g * r.h, r.h}, bias[] = {r.g * r.h},
            state[] = {r.b, r.h};
    int64_t saved[] = {r.t, r.b, r.s * r.h}, y[] = {r.t, r.b, r.h};
    if (!back)
        return fits(d, XPROJ, "xproj", 3, gates, false, why, size) &&
               fits(d, W_HH, "w_hh", 2, w, false, why, size) &&
               fits(d, B_HH, "b_hh", 1, bias, true, why, size) &&
               fits(d, H0, "h0", 2, state, false, why, size) &&
               fits(d, C0, "c0", 2, state, !lstm, why, size) && fits(d, Y, "y", 3, y, false, why, size) &&
               fits(d, HT, "hT", 2, state, false, why, size) &&
               fits(d, CT, "cT", 2, state, !lstm, why, size) &&
               fits(d, SAVED, "saved", 3, saved, true, why, size);
    return fits(d, BW_HH, "w_hh", 2, w, false, why, size) && fits(d, BH0, "h0", 2, state, false, why, size) &&
           fits(d, BC0, "c0", 2, state, !lstm, why, size) && fits(d, BY, "y", 3, y, false, why, size) &&
           fits(d, BSAVED, "saved", 3, saved, r.s == 0, why, size) &&
           fits(d, DY, "dy", 3, y, true, why, size) && fits(d, DHT, "dhT", 2, state, true, why, size) &&
           fits(d, DCT, "dcT", 2, state, true, why, size) &&
           fits(d, DXPROJ, "dxproj", 3, gates, false, why, size) &&
           fits(d, DHPROJ, "dhproj", 3, gates, !gru, why, size) &&
           fits(d, DH0, "dh0", 2, state, false, why, size) && fits(d, DC0, "dc0", 2, state, !lstm, why, size);
}

static int64_t tile_samples(const Rnn *r)
{
    return (r->b + r->tiles - 1) / r->tiles;
}

/* Columns of the weights, as the right matrix of a step's product, that are packed as one tile; those tiles. */
enum { PACK_COLUMNS = 128 };

static int64_t pack_tiles(const Rnn *r)
{
    return ((r->backward ? r->h : r->g * r->h) + PACK_COLUMNS - 1) / PACK_COLUMNS;
}

/* Floats for a step's product: a state packed for AMX, or a block of the weights. */
static int64_t product_scratch(const Rnn *r)
{
    if (!r->amx)
        return WF_BLOCK_SCRATCH;
    int64_t depth = r->backward ? r->g * r->h : r->h, packed = wf_amx_bytes(tile_samples(r), depth) / 4;
    int64_t plain = wf_product_scratch(WF_COLUMNS, depth);
    return packed > plain ? packed : plain;
}

static void sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    Rnn r;
    plan(d, &r);
    if (r.f64) {
        *scratch = wf_rnn_f64_scratch(&r);
        return;
    }
    int64_t depth = r.backward ? r.g * r.h : r.h, columns = r.backward ? r.h : r.g * r.h;
    *workspace = r.amx ? (size_t)(wf_up(pack_tiles(&r), 16) * 4 + wf_amx_bytes(columns, depth))
                       : (size_t)wf_prepack_size(depth, columns) * sizeof(float);
    /* gates of the step, two states, rows of a cell */
    *scratch =
        (size_t)(product_scratch(&r) + tile_samples(&r) * (r.g * r.h + 2 * r.h) + 4 * r.hp + 64) * sizeof(float);
}

static float *at3(const Rnn *r, void *const *operand, int i, int64_t t, int64_t b)
{
    return (float *)operand[i] + t * r->stride[i][0] + b * r->stride[i][1];
}

static float *at2(const Rnn *r, void *const *operand, int i, int64_t b)
{
    return (float *)operand[i] + b * r->stride[i][0];
}

/* ---- the product of a step ---------------------------------------------------------------------- */

/* The weights as the right matrix: forward W^T, [h, g h]; backward W, [g h, h]. */
static void pack(const Rnn *r, int64_t tile, void *const *operand, void *workspace)
{
    const float *w = operand[r->backward ? BW_HH : W_HH];
    int64_t row = r->stride[r->backward ? BW_HH : W_HH][0];
    int64_t k = r->backward ? r->g * r->h : r->h, n = r->backward ? r->h : r->g * r->h;
    int64_t along_k = r->backward ? row : 1, along_n = r->backward ? 1 : row;
    int64_t j = tile * PACK_COLUMNS, columns = n - j < PACK_COLUMNS ? n - j : PACK_COLUMNS;
    if (!r->amx) {
        wf_prepack_columns(r->vec, k, j, columns, n, w, along_k, along_n, workspace);
        return;
    }
    char *to = (char *)workspace + wf_up(pack_tiles(r), 16) * 4 + wf_amx_bytes(j, k);
    ((int32_t *)workspace)[tile] =
        wf_amx_pack_b(columns, k, w + j * along_n, along_n, along_k, to);
}

/* out[m, n] (+)= x W for the states or gates x of a step. */
static void product(const Rnn *r, int64_t m, const float *x, void *const *operand, const void *workspace, float *out,
                    bool add, float *scratch)
{
    int64_t k = r->backward ? r->g * r->h : r->h, n = r->backward ? r->h : r->g * r->h;
    if (!r->amx) {
        wf_product_packed(r->vec, m, n, k, x, k, 1, workspace, out, n, add, scratch);
        return;
    }
    bool finite = true;
    for (int64_t i = 0; i < pack_tiles(r); i++)
        finite = finite && ((const int32_t *)workspace)[i];
    if (finite && wf_amx_pack_a(m, k, x, k, 1, scratch)) {
        wf_amx_multiply(m, n, k, scratch, (const char *)workspace + wf_up(pack_tiles(r), 16) * 4, out, n, add, NULL, 0);
        return;
    }
    int64_t row = r->stride[r->backward ? BW_HH : W_HH][0];
    wf_product_wide(r->vec, m, n, k, x, k, 1, operand[r->backward ? BW_HH : W_HH], r->backward ? row : 1,
                    r->backward ? 1 : row, out, n, add, scratch);
}

/* ---- forward ------------------------------------------------------------------------------------ */

static void forward(const Rnn *r, int64_t tile, void *const *operand, const void *workspace, float *scratch)
{
    int64_t b0 = r->b * tile / r->tiles, b1 = r->b * (tile + 1) / r->tiles, n = r->h, gn = r->g * n;
    float *work = scratch + product_scratch(r), *p = work + 4 * r->hp, *h = p + (b1 - b0) * gn,
          *c = h + (b1 - b0) * n;
    for (int64_t b = b0; b < b1; b++) {
        memcpy(h + (b - b0) * n, at2(r, operand, H0, b), (size_t)n * sizeof(float));
        if (r->mode == WF_RNN_LSTM)
            memcpy(c + (b - b0) * n, at2(r, operand, C0, b), (size_t)n * sizeof(float));
    }
    for (int64_t i = 0; i < r->t; i++) {
        int64_t t = r->reverse ? r->t - 1 - i : i;
        product(r, b1 - b0, h, operand, workspace, p, false, scratch);
        for (int64_t b = b0; b < b1; b++) {
            float *state = h + (b - b0) * n;
            r->vec->cell(r->mode, n, at3(r, operand, XPROJ, t, b), p + (b - b0) * gn,
                         r->has[B_HH] ? operand[B_HH] : NULL, state, c + (b - b0) * n,
                         r->s && r->has[SAVED] ? at3(r, operand, SAVED, t, b) : NULL, work);
            memcpy(at3(r, operand, Y, t, b), state, (size_t)n * sizeof(float));
        }
    }
    for (int64_t b = b0; b < b1; b++) {
        memcpy(at2(r, operand, HT, b), h + (b - b0) * n, (size_t)n * sizeof(float));
        if (r->mode == WF_RNN_LSTM)
            memcpy(at2(r, operand, CT, b), c + (b - b0) * n, (size_t)n * sizeof(float));
    }
}

/* ---- backward ----------------------------------------------------------------------------------- */

static void backward(const Rnn *r, int64_t tile, void *const *operand, const void *workspace, float *scratch)
{
    int64_t b0 = r->b * tile / r->tiles, b1 = r->b * (tile + 1) / r->tiles, n = r->h, gn = r->g * n,
            m = b1 - b0;
    float *dp = scratch + product_scratch(r), *dh = dp + m * gn, *dc = dh + m * n;
    bool lstm = r->mode == WF_RNN_LSTM;
    memset(dh, 0, (size_t)(2 * m * n) * sizeof(float));
    for (int64_t b = b0; b < b1; b++) {
        if (r->has[DHT])
            memcpy(dh + (b - b0) * n, at2(r, operand, DHT, b), (size_t)n * sizeof(float));
        if (lstm && r->has[DCT])
            memcpy(dc + (b - b0) * n, at2(r, operand, DCT, b), (size_t)n * sizeof(float));
    }
    for (int64_t i = r->t - 1; i >= 0; i--) {
        int64_t t = r->reverse ? r->t - 1 - i : i, previous = r->reverse ? t + 1 : t - 1;
        for (int64_t b = b0; b < b1; b++) {
            const float *dy = r->has[DY] ? at3(r, operand, DY, t, b) : NULL;
            const float *before = i ? at3(r, operand, BY, previous, b) : at2(r, operand, BH0, b),
                        *c_before = NULL;
            if (lstm)
                c_before = i ? at3(r, operand, BSAVED, previous, b) + 4 * n : at2(r, operand, BC0, b);
            float *grads = dp + (b - b0) * gn;
            r->vec->cell_back(r->mode, n, r->s ? at3(r, operand, BSAVED, t, b) : NULL,
                              at3(r, operand, BY, t, b), before, c_before, dy, dh + (b - b0) * n, dc + (b - b0) * n,
                              at3(r, operand, DXPROJ, t, b), grads);
            if (r->has[DHPROJ])
                memcpy(at3(r, operand, DHPROJ, t, b), grads, (size_t)gn * sizeof(float));
        }
        product(r, m, dp, operand, workspace, dh, true, scratch);
    }
    for (int64_t b = b0; b < b1; b++) {
        memcpy(at2(r, operand, DH0, b), dh + (b - b0) * n, (size_t)n * sizeof(float));
        if (lstm)
            memcpy(at2(r, operand, DC0, b), dc + (b - b0) * n, (size_t)n * sizeof(float));
    }
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                void *scratch, int thread)
{
    const Rnn *r = lib->self;
    (void)thread;
    if (phase == 0)
        pack(r, tile, operand, workspace);
    else if (r->backward)
        backward(r, tile, operand, workspace, scratch);
    else
        forward(r, tile, operand, workspace, scratch);
}

static void create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    (void)ctx;
    (void)threads;
    Rnn *r = WF_NEW(arena, Rnn);
    plan(d, r);
    lib->self = r;
    if (r->f64) {
        wf_rnn_f64_create(r, lib);
        return;
    }
    lib->run = run;
    lib->n_phases = 2;
    lib->tiles[0] = pack_tiles(r);
    lib->tiles[1] = r->b ? r->tiles : 0;
}

const WfKind wf_kind_rnn_fwd = {"rnn_fwd", accepts, sizes, create};
const WfKind wf_kind_rnn_bwd = {"rnn_bwd", accepts, sizes, create};
