/* Shared inside the room: the vector code of each ISA level, the table of kinds, blocks of matrix products.
 */
#ifndef WF_KERNELS_PRIVATE_H
#define WF_KERNELS_PRIVATE_H

#include "kernels/kernels.h"

/* Longest K block; columns of a panel of the right matrix; floats of an edge tile, of packed row panels of
 * the left matrix, and of scratch of `block`. */
enum {
    WF_TAPS = 8, /* most taps of a row of a depthwise convolution at once */
    WF_KC = 256,
    WF_NR = 32,
    WF_EDGE = 14 * WF_NR,
    WF_A_PACKED = 256 * WF_KC,
    WF_BLOCK_SCRATCH = WF_EDGE + WF_A_PACKED
};

/* c[m, n] = (+=) a b over the K blocks first .. last - 1 of `blocks` equal ones; b holds those blocks packed
 * one after the other, each b_width (a multiple of WF_NR) wide, of which the n columns from `column` on are
 * meant; with ldb set, b is not packed: rows ldb apart, n a multiple of 16. pack: a may be packed in the
 * scratch. */
typedef struct {
    int64_t column, m, n, k, blocks, first, last, am, ak, b_width, ldb, ldc;
    const float *a, *b;
    float *c;
    bool add, pack;
} WfBlock;

/* How products become scores: s * scale + mask (may be NULL); causal: row i has first_limit + i columns. */
typedef struct {
    float scale;
    const float *mask;
    int64_t mask_row, mask_col, first_limit;
    bool causal;
} WfScores;

typedef struct {
    int level, nr, mr;
    /* Packs b[k, n] into panels of nr columns: out holds k * (n rounded up to nr) floats. */
    void (*pack_b)(int64_t k, int64_t n, const float *b, int64_t bk, int64_t bn, float *out);
    void (*block)(const WfBlock *g, float *scratch);
    /* The pieces of `block`, for convolutions; see isa.h. `edge` holds WF_EDGE floats. */
    void (*panel)(int rows, bool columns, int64_t n, int64_t k, const float *a, int64_t ld, const float *b,
                  int64_t ldb, int64_t deep, int64_t from, float *c, int64_t ldc, bool add, float *edge);
    void (*pack_a)(int64_t m, int64_t k, const float *a, int64_t ld, int64_t deep, float *out);
    void (*pack_b_row)(int64_t n, const float *row, int64_t deep, int64_t p, float *out);
    void (*packed_block)(int64_t m, int64_t n, int64_t k, int64_t deep, const float *a, const float *b,
                         float *c, int64_t ldc, bool add, float *edge);
    /* Rows, see rows.h; n counts floats and is a multiple of 16 unless it says otherwise. */
    void (*softmax_step)(int64_t rows, int64_t n, float *s, int64_t ld, const WfScores *w, float *max, float *sum,
                         float *o, int64_t ldo, int64_t width);
    void (*probability)(int64_t rows, int64_t n, float *s, int64_t ld, const WfScores *w, const float *lse);
    void (*dots)(int64_t rows, int64_t n, const float *a, int64_t lda, const float *b, int64_t ldb, float *out);
    void (*scale_row)(int64_t n, const float *in, float by, float *out);
    void (*softmax_back)(int64_t rows, int64_t n, const float *p, float *d, int64_t ld, const float *delta,
                         float scale);
    void (*exp)(int64_t n, const float *in, float *out);
    void (*sigmoid)(int64_t n, const float *in, float *out);
    void (*tanh)(int64_t n, const float *in, float *out);
    /* Recurrent cells, see cells.h. */
    void (*cell)(int mode, int64_t n, const float *x, const float *p, const float *bias, float *h, float *c,
                 float *saved, float *work);
    void (*cell_back)(int mode, int64_t n, const float *saved, const float *y, const float *before,
                      const float *c_before, const float *dy, float *dh, float *dc, float *dx, float *dp);
    /* A row of a depthwise weight gradient for 16 channels, 1 to WF_TAPS taps; see taps.h. */
    void (*depthwise_row)(int taps, int64_t n, const float *x, int64_t tap, int64_t step, const float *dy, int64_t dy_step,
                          float *sums);
} WfVec;
extern const WfVec wf_vec_v3, wf_vec_v4;
const WfVec *wf_vec(const WfLibDesc *d);
bool wf_amx(const WfLibDesc *d); /* may the call use AMX? */

/* K is cut into equal blocks of at most WF_KC, as a function of K only. */
static inline int64_t wf_k_blocks(int64_t k)
{
    return (k + WF_KC - 1) / WF_KC;
}
static inline int64_t wf_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* c[m, n] = (+=) a b with strides; b is packed block by block into scratch of wf_product_scratch(n, k)
 * floats. */
void wf_product(const WfVec *vec, int64_t m, int64_t n, int64_t k, const float *a, int64_t am, int64_t ak,
                const float *b, int64_t bk, int64_t bn, float *c, int64_t ldc, bool add, float *scratch);
int64_t wf_product_scratch(int64_t n, int64_t k);
/* The same for any n with scratch of wf_product_scratch(WF_COLUMNS, k) floats, B packed anew for so many columns. */
enum { WF_COLUMNS = 256 };
void wf_product_wide(const WfVec *vec, int64_t m, int64_t n, int64_t k, const float *a, int64_t am, int64_t ak,
                     const float *b, int64_t bk, int64_t bn, float *c, int64_t ldc, bool add, float *scratch);
/* The same with b packed ahead by wf_prepack into wf_prepack_size(k, n) floats; scratch of WF_BLOCK_SCRATCH
 * floats. */
void wf_prepack(const WfVec *vec, int64_t k, int64_t n, const float *b, int64_t bk, int64_t bn, float *out);
/* Only the n columns from `column` (a multiple of WF_NR) on, of `width`. */
void wf_prepack_columns(const WfVec *vec, int64_t k, int64_t column, int64_t n, int64_t width, const float *b,
                        int64_t bk, int64_t bn, float *out);
int64_t wf_prepack_size(int64_t k, int64_t n);
void wf_product_packed(const WfVec *vec, int64_t m, int64_t n, int64_t k, const float *a, int64_t am,
                       int64_t ak, const float *packed, float *c, int64_t ldc, bool add, float *scratch);
/* The n columns from `column` (a multiple of WF_NR) on of a b that was packed with `width` columns. */
void wf_product_columns(const WfVec *vec, int64_t m, int64_t column, int64_t n, int64_t width, int64_t k,
                        const float *a, int64_t am, int64_t ak, const float *packed, float *c, int64_t ldc,
                        bool add, float *scratch);

/* c[m, n] = (+=) a b where b lies in place with rows ldb apart; n and ldb are multiples of 16. */
void wf_product_in_place(const WfVec *vec, int64_t m, int64_t n, int64_t k, const float *a, int64_t am,
                         int64_t ak, const float *b, int64_t ldb, float *c, int64_t ldc, bool add,
                         float *scratch);

/* A kind of call. `sizes` may assume what `accepts` accepted; so may `create`, which fills phases, tiles,
 * run, self. */
typedef struct {
    const char *name;
    bool (*accepts)(const WfLibDesc *d, char *why, size_t size);
    void (*sizes)(const WfLibDesc *d, size_t *workspace, size_t *scratch);
    void (*create)(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib);
} WfKind;
extern const WfKind wf_kind_gemm, wf_kind_conv_fwd, wf_kind_conv_bwd_data, wf_kind_conv_bwd_weight,
    wf_kind_attention_fwd, wf_kind_attention_bwd, wf_kind_rnn_fwd, wf_kind_rnn_bwd, wf_kind_sort,
    wf_kind_cumsum, wf_kind_cumprod, wf_kind_scatter, wf_kind_scatter_full, wf_kind_matrix, wf_kind_ctc;

/* Writes a reason and returns false. */
bool wf_refuse(char *why, size_t size, const char *fmt, ...) WF_PRINTF(3, 4);
static inline bool wf_has(const WfLibDesc *d, int i)
{
    return i < d->n && d->operand[i].dtype;
}
bool wf_dense(const WfOperand *o); /* row-major without gaps; dims of size 1 may have any stride */
/* Refuses unless operand i has this dtype and rank. */
bool wf_want(const WfLibDesc *d, int i, const char *name, WfDtype dtype, int rank, char *why, size_t size);

#endif
