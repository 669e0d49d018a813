/* A matrix product as its description says it; shared by the two ways of computing one (gemm.c, gemm_amx.c). */
#ifndef WF_KERNELS_GEMM_H
#define WF_KERNELS_GEMM_H

#include "kernels/private.h"

typedef struct {
    const WfVec *vec;
    bool f64, add, shared; /* shared: B is packed whole by a phase of its own */
    bool whole;            /* a tile takes all columns of its rows, so that what follows finds them in the cache */
    int bias, out;         /* operand numbers; bias 0: none */
    int n_batch;
    int64_t batch[4], a_batch[4], b_batch[4], d_batch[4], n_batches;
    int64_t m, n, k, am, ak, bk, bn, dm, bias_stride;
    int64_t m_tiles, n_tiles, k_splits, group; /* group: batch entries of one tile, when they are small */
} WfGemm;

/* Sets the block to the bias (when D is not added to), or adds the bias to it. */
static inline void wf_gemm_bias_rows(const WfGemm *g, int64_t m, int64_t n, const float *bias, float *c)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * g->dm + j] = (g->add ? c[i * g->dm + j] : 0) + bias[j * g->bias_stride];
}

bool wf_gemm_amx_takes(const WfLibDesc *d, const WfGemm *g);
void wf_gemm_amx_sizes(const WfLibDesc *d, const WfGemm *g, size_t *workspace, size_t *scratch);
void wf_gemm_amx_create(WfArena *arena, const WfLibDesc *d, const WfGemm *g, WfLib *lib);

#endif
