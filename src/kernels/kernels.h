/* kernels: the library calls of a static plan, behind one interface.
 *
 * A call is described once (WfLibDesc: kind, operand dtypes, shapes and strides, parameters). The planner
 * asks what memory it needs and which operand layouts it takes; wf_lib_create makes everything that can be
 * made ahead (oneDNN primitives, tables, tile cuts); the executor then runs its phases. A phase is a number
 * of tiles that may run in any order on any threads; the next phase starts when all tiles of the one before
 * are done. Running allocates nothing.
 *
 * Bits. Tile cuts and the order of every sum depend on the description only, never on the number of threads,
 * and no two tiles of a phase write the same memory: results are the same bits for any thread count. The f32
 * sums of gemm, attention and rnn are fused multiply-adds in one fixed order, the same at x86-64-v3 and v4; with AMX,
 * large products are added in another order, to a smaller error (amx.h).
 *
 * Optional operands that are absent have dtype 0 in the description and NULL as pointer; trailing ones may
 * also be left out by a smaller n where the table says so. Shapes are logical (PyTorch's order), strides
 * count elements. All kinds take param[31] = ISA level (WfIsaLevel; 0: the best of this machine but AMX).
 * */
/* clang-format off */
/* kind             operands (inputs, then outputs)                      parameters
 *
 * gemm             A[b..,M,K] B[b..,K,N] bias[N]? D[b..,M,N]            p0 = 1: add to D. f32 or f64
 *                                                                       p1 = 1: complete rows of D if possible
 *     D = A B (+ bias) (+ D). Up to 4 batch dims with any strides (0 broadcasts). Of the last two dims of A,
 *     and of B, one has stride 1; the last dim of D has stride 1. Three operands: no bias.
 * conv_fwd         x[N,C,s..] w[O,C/g,k..] bias[O]? y[N,O,s..]          p0 groups, p1 stride, p4 dilation,
 * conv_bwd_data    dy w dx                                              p7 padding, three each
 * conv_bwd_weight  x dy dw dbias?                                       f32 or f64; spatial rank 1 to 3
 *     Activations dense channels-last, w dense in any order of its dims.
 * attention_fwd    q[B,H,Tq,D] k[B,Hkv,Tk,D] v[B,Hkv,Tk,Dv] mask? o lse p0: causal; f0: scale, 0 = 1/sqrt(D)
 * attention_bwd    q k v o do lse mask? dq dk dv                        the same
 *     Any strides but 1 on the last dim. mask f32 [B|1,H|1,Tq|1,Tk|1] is added; lse[B,H,Tq] dense. Query
 *     head h reads kv head h/(H/Hkv). Causal: query i sees key j when j <= i (as PyTorch's is_causal). A
 *     query that sees no key has output 0, lse -inf and gradients 0 (PyTorch's safe softmax).
 * rnn_fwd          xproj[T,B,GH] w_hh[GH,H] b_hh[GH]? h0[B,H] c0?       p0 mode (WfRnnMode), p1 reverse
 *                  y[T,B,H] hT[B,H] cT? saved[T,B,SH]?                  f32 or f64
 * rnn_bwd          w_hh h0 c0? y saved? dy? dhT? dcT?                   the same
 *                  dxproj[T,B,GH] dhproj[T,B,3H]? dh0[B,H] dc0?
 *     G = wf_rnn_gates(mode), S = wf_rnn_saved(mode). c0, cT, dcT, dc0: LSTM only. saved: LSTM and GRU only
 *     (may be left out of rnn_fwd in evaluation). dhproj, the gradient on the hidden side of the gates: GRU
 *     only, elsewhere it equals dxproj. dW_hh = dhproj^T h', db_hh = sum dhproj, dW_ih = dxproj^T x.
 * sort             x[..,n] values[..,n] indices[..,n]                   p0: descending. Any dtype, dense
 *     Stable; NaN is the largest.
 * cumsum, cumprod  x[outer,n,inner] y[outer,n,inner]                    p0 = 1: from the end. f32 f64 i64
 * scatter          x? index[outer|1,R] src[outer,R,inner]               p0 WfScatterOp, p1 the caller's id
 *                  out[outer,V,inner] status[2]                         f32 f64 i64 i32
 * scatter_full     x? index[outer,R,i'] src out status                  the same; torch.scatter along dim 1
 *     out = x (or zeros; mul, max and min need x), then the rows of src in order of r. x may be out itself.
 *     An index outside 0..V-1 is left out and sets status to {1 + p1, index}, unless it is set already.
 * matrix           a[B,m,n] results..                                   p0 of WF_MATRIX_*. f32 or f64, dense
 *     wf_matrix of every matrix; results with B in front.
 * ctc              logp[T,N,C] labels[L] at[N] frames[N] count[N]       p0 the blank, p1 the most labels of a sample
 *                  nll[N] grad[T,N,C]                                   f32 or f64, lists i64; dense
 *     wf_ctc of every sample, whose labels are labels[at .. at + count]; a sample that does not fit has nll NaN. */
/* clang-format on */
#ifndef WF_KERNELS_H
#define WF_KERNELS_H

#include "base/base.h"

typedef struct {
    WfDtype dtype;
    int rank;
    int64_t shape[8], stride[8];
} WfOperand;

enum { WF_LIB_OPERANDS = 16, WF_LIB_PARAMS = 32, WF_LIB_PHASES = 32, WF_LIB_ISA = 31 };
typedef struct {
    const char *kind;
    int n; /* operands */
    WfOperand operand[WF_LIB_OPERANDS];
    int64_t param[WF_LIB_PARAMS];
    double fparam[8];
} WfLibDesc;

typedef enum { WF_RNN_LSTM, WF_RNN_GRU, WF_RNN_TANH, WF_RNN_RELU } WfRnnMode;
typedef enum { WF_SCATTER_SET, WF_SCATTER_ADD, WF_SCATTER_MUL, WF_SCATTER_MAX, WF_SCATTER_MIN } WfScatterOp;
int wf_rnn_gates(int mode); /* G: 4, 3, 1, 1 */
int wf_rnn_saved(int mode); /* S: 5, 4, 0, 0 (an operand of S = 0 is absent) */

/* May the planner hand these operands over as they are? If not, `why` says which operand must be copied to
 * which layout. True with a text that starts with "slow:" means: allowed, but the library has only a
 * reference implementation for it. The other calls want a description that was accepted. */
bool wf_lib_accepts(const WfLibDesc *desc, char *why, size_t size);
/* Bytes, 64-byte aligned: shared by all tiles of a call (need not be kept between calls); per thread. */
size_t wf_lib_workspace(const WfLibDesc *desc);
size_t wf_lib_scratch(const WfLibDesc *desc);

typedef struct WfLib WfLib;
struct WfLib {
    const char *kind;
    int n_phases;
    int64_t tiles[WF_LIB_PHASES];
    void (*run)(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                void *scratch, int thread);
    /* The rows of the result (its last dimension makes a row) that a tile of the last phase completes: first, end.
     * NULL: no tile completes rows. */
    void (*rows)(const WfLib *lib, int64_t tile, int64_t *first, int64_t *end);
    int64_t n_rows;
    void *self;
};
/* Raises WEFT_ERR_UNSUPPORTED when wf_lib_accepts says no, WEFT_ERR_MEMORY, WEFT_ERR_ENVIRONMENT. `threads`
 * bounds the thread numbers that will run it. Foreign handles are released with the arena. */
WfLib *wf_lib_create(WfCtx *ctx, WfArena *arena, const WfLibDesc *desc, int threads);
static inline void wf_lib_run(const WfLib *lib, int phase, int64_t tile, void *const *operand,
                              void *workspace, void *scratch, int thread)
{
    lib->run(lib, phase, tile, operand, workspace, scratch, thread);
}
/* Runs all phases on a team; for tests, the benchmark and callers without an executor of their own. `scratch`
 * holds one block of wf_lib_scratch bytes (rounded up to 64) per thread. */
void wf_lib_run_team(const WfLib *lib, WfTeam *team, void *const *operand, void *workspace, void *scratch,
                     size_t scratch_each);

/* What the processor can do. AMX: x86-64-v4 and matrix tiles, which generated kernels do not use. */
typedef enum { WF_ISA_LEVEL_V3 = 3, WF_ISA_LEVEL_V4 = 4, WF_ISA_LEVEL_AMX = 5 } WfIsaLevel;
int wf_isa_level(void); /* of this machine; 0: below x86-64-v3 */
const char *wf_isa_name(int level);
extern const WfHostThreads wf_kernels_openmp; /* the threads that a host's own OpenMP regions keep busy or spinning */
int wf_kernels_threads(int threads); /* a WfThreadMode: with 1, library calls on this thread stay on it */

#endif
