/* The one interface of all library calls: finds the kind, checks, creates, and the pieces that kinds share.
 */
#include <omp.h>
#include <string.h>

#include "kernels/amx.h"
#include "kernels/private.h"

static const WfKind *const kinds[] = {
    &wf_kind_gemm,          &wf_kind_attention_fwd,
    &wf_kind_attention_bwd, &wf_kind_conv_fwd,
    &wf_kind_conv_bwd_data, &wf_kind_conv_bwd_weight,
    &wf_kind_rnn_fwd,       &wf_kind_rnn_bwd,
    &wf_kind_sort,          &wf_kind_cumsum,
    &wf_kind_cumprod,       &wf_kind_scatter,
    &wf_kind_scatter_full,  &wf_kind_matrix,
    &wf_kind_ctc,           NULL,
};

static const WfKind *find(const char *name)
{
    for (int i = 0; kinds[i]; i++)
        if (!strcmp(kinds[i]->name, name))
            return kinds[i];
    return NULL;
}

bool wf_lib_accepts(const WfLibDesc *desc, char *why, size_t size)
{
    const WfKind *kind = find(desc->kind);
    if (size)
        why[0] = 0;
    if (!kind)
        return wf_refuse(why, size, "no library call is named '%s'", desc->kind);
    int64_t level = desc->param[WF_LIB_ISA];
    if (level != 0 && (level < WF_ISA_LEVEL_V3 || level > WF_ISA_LEVEL_AMX))
        return wf_refuse(why, size, "ISA level %lld is unknown", (long long)level);
    if (desc->n < 0 || desc->n > WF_LIB_OPERANDS)
        return wf_refuse(why, size, "%d operands", desc->n);
    for (int i = 0; i < desc->n; i++) {
        const WfOperand *o = &desc->operand[i];
        int64_t total = 1;
        for (int j = 0; o->dtype && j < o->rank; j++)
            if (o->shape[j] < 0 || !wf_mul_ok(total, o->shape[j], &total))
                return wf_refuse(why, size, "operand %d has an impossible shape", i);
    }
    return kind->accepts(desc, why, size);
}

size_t wf_lib_workspace(const WfLibDesc *desc)
{
    size_t workspace = 0, scratch = 0;
    const WfKind *kind = find(desc->kind);
    if (kind)
        kind->sizes(desc, &workspace, &scratch);
    return (workspace + 63) / 64 * 64;
}

size_t wf_lib_scratch(const WfLibDesc *desc)
{
    size_t workspace = 0, scratch = 0;
    const WfKind *kind = find(desc->kind);
    if (kind)
        kind->sizes(desc, &workspace, &scratch);
    return (scratch + 63) / 64 * 64;
}

WfLib *wf_lib_create(WfCtx *ctx, WfArena *arena, const WfLibDesc *desc, int threads)
{
    char why[256];
    if (!wf_lib_accepts(desc, why, sizeof why))
        wf_fail(ctx, WF_E_OP_FORM, "%s: %s", desc->kind, why);
    if (desc->param[WF_LIB_ISA] > wf_isa_level())
        wf_fail(ctx, WF_E_STEP_ISA, "%s was planned for %s, which this machine is not", desc->kind,
                wf_isa_name((int)desc->param[WF_LIB_ISA]));
    WfLib *lib = WF_NEW(arena, WfLib);
    lib->kind = find(desc->kind)->name;
    find(desc->kind)->create(ctx, arena, desc, threads, lib);
    return lib;
}

typedef struct {
    const WfLib *lib;
    WfTeam *team;
    void *const *operand;
    void *workspace;
    char *scratch;
    size_t scratch_each;
    int64_t next[WF_LIB_PHASES];
} TeamRun;

static void team_member(void *arg, int thread, int n)
{
    TeamRun *r = arg;
    for (int phase = 0; phase < r->lib->n_phases; phase++) {
        for (;;) {
            int64_t tile = __atomic_fetch_add(&r->next[phase], 1, __ATOMIC_RELAXED);
            if (tile >= r->lib->tiles[phase])
                break;
            wf_lib_run(r->lib, phase, tile, r->operand, r->workspace,
                       r->scratch + r->scratch_each * (size_t)thread, thread);
        }
        if (n > 1 && phase + 1 < r->lib->n_phases)
            wf_team_barrier(r->team);
    }
}

void wf_lib_run_team(const WfLib *lib, WfTeam *team, void *const *operand, void *workspace, void *scratch,
                     size_t scratch_each)
{
    TeamRun r = {lib, team, operand, workspace, scratch, scratch_each, {0}};
    wf_team_run(team, team_member, &r);
}

int wf_isa_level(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    return v3 && v4 && wf_amx_available() ? WF_ISA_LEVEL_AMX : v3 && v4 ? WF_ISA_LEVEL_V4 : v3 ? WF_ISA_LEVEL_V3 : 0;
#else
    return WF_ISA_LEVEL_V4;
#endif
}

const char *wf_isa_name(int level)
{
    return level == WF_ISA_LEVEL_AMX  ? "x86-64-v4 with AMX"
           : level == WF_ISA_LEVEL_V4 ? "x86-64-v4"
           : level == WF_ISA_LEVEL_V3 ? "x86-64-v3"
                                      : "x86-64";
}

static int level_of(const WfLibDesc *d)
{
    int level = wf_isa_level();
    return d->param[WF_LIB_ISA] ? (int)d->param[WF_LIB_ISA] : level < WF_ISA_LEVEL_V4 ? level : WF_ISA_LEVEL_V4;
}

const WfVec *wf_vec(const WfLibDesc *d)
{
    return level_of(d) >= WF_ISA_LEVEL_V4 ? &wf_vec_v4 : &wf_vec_v3;
}

bool wf_amx(const WfLibDesc *d)
{
    return level_of(d) >= WF_ISA_LEVEL_AMX;
}

/* What `#pragma omp parallel` compiles to, without asking the compiler for OpenMP (clang would bring a runtime of its own). */
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);

static void in_parallel(int n, void (*body)(void *), void *data) { GOMP_parallel(body, data, (unsigned)n, 0); }

const WfHostThreads wf_kernels_openmp = {in_parallel, omp_get_thread_num, omp_get_num_threads};

int wf_kernels_threads(int threads)
{
    int was = omp_get_max_threads();
    omp_set_num_threads(threads);
    return was;
}

bool wf_refuse(char *why, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (size)
        vsnprintf(why, size, fmt, ap);
    va_end(ap);
    return false;
}

bool wf_dense(const WfOperand *o)
{
    int64_t stride = 1;
    for (int i = o->rank - 1; i >= 0; i--) {
        if (o->shape[i] != 1 && o->stride[i] != stride)
            return false;
        stride *= o->shape[i];
    }
    return true;
}

bool wf_want(const WfLibDesc *d, int i, const char *name, WfDtype dtype, int rank, char *why, size_t size)
{
    if (!wf_has(d, i))
        return wf_refuse(why, size, "operand %d (%s) is missing", i, name);
    const WfOperand *o = &d->operand[i];
    if (o->dtype != dtype)
        return wf_refuse(why, size, "%s is %s, expected %s", name, wf_dtype_name(o->dtype),
                         wf_dtype_name(dtype));
    if (o->rank != rank)
        return wf_refuse(why, size, "%s has %d dimensions, expected %d", name, o->rank, rank);
    return true;
}
