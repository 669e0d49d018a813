/* Linear algebra on batches of small matrices, and CTC: base's functions in double precision, a tile for each matrix or
 * sample, whose numbers are copied to and from scratch memory. */
#include <math.h>
#include <string.h>

#include "kernels/private.h"

static bool is_real(WfDtype t) { return t == WF_F32 || t == WF_F64; }

static bool dense_operands(const WfLibDesc *d, int n, char *why, size_t size)
{
    if (d->n != n)
        return wf_refuse(why, size, "%s takes %d operands", d->kind, n);
    if (!is_real(d->operand[0].dtype) || d->operand[0].rank != 3)
        return wf_refuse(why, size, "%s wants three dimensions of f32 or f64", d->kind);
    for (int i = 0; i < n; i++)
        if (!wf_dense(&d->operand[i]))
            return wf_refuse(why, size, "operand %d is not dense: copy it", i);
    return true;
}

static void load(WfDtype t, const void *from, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = t == WF_F32 ? ((const float *)from)[i] : ((const double *)from)[i];
}
static void store(WfDtype t, const double *from, int64_t n, void *to)
{
    for (int64_t i = 0; i < n; i++)
        if (t == WF_F32)
            ((float *)to)[i] = (float)from[i];
        else
            ((double *)to)[i] = from[i];
}

/* ---- matrices ---- */

enum { RESULTS = 3 };
static const int results_of[] = {3, 1, 2, 2};
typedef struct {
    WfDtype dtype;
    int what;
    int64_t batch, m, n, size[1 + RESULTS]; /* numbers of one matrix: of a, of each result */
} Matrix;

static void matrix_plan(const WfLibDesc *d, Matrix *p)
{
    const WfOperand *a = &d->operand[0];
    *p = (Matrix){a->dtype, (int)d->param[0], a->shape[0], a->shape[1], a->shape[2], {0}};
    for (int i = 0; i < d->n; i++) {
        p->size[i] = 1;
        for (int k = 1; k < d->operand[i].rank; k++)
            p->size[i] *= d->operand[i].shape[k];
    }
}

static bool matrix_accepts(const WfLibDesc *d, char *why, size_t size)
{
    if (d->param[0] < 0 || d->param[0] > WF_MATRIX_QR)
        return wf_refuse(why, size, "factorisation %lld is unknown", (long long)d->param[0]);
    if (!dense_operands(d, 1 + results_of[d->param[0]], why, size))
        return false;
    const int64_t *a = d->operand[0].shape, k = a[1] < a[2] ? a[1] : a[2];
    const int64_t square = a[2] * a[2], want[][RESULTS] = {{square, 1, 1}, {square}, {a[2], square}, {a[1] * k, k * a[2]}};
    Matrix p;
    matrix_plan(d, &p);
    if (d->param[0] != WF_MATRIX_QR && a[1] != a[2])
        return wf_refuse(why, size, "the matrices are not square");
    for (int i = 1; i < d->n; i++)
        if (d->operand[i].dtype != p.dtype || d->operand[i].rank < 1 || d->operand[i].shape[0] != a[0] ||
            p.size[i] != want[d->param[0]][i - 1])
            return wf_refuse(why, size, "operand %d does not fit the matrices", i);
    return true;
}

static void matrix_sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    Matrix p;
    matrix_plan(d, &p);
    *workspace = *scratch = 0;
    for (int i = 0; i < d->n; i++)
        *scratch += (size_t)p.size[i] * sizeof(double);
}

static void matrix_run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace, void *scratch,
                       int thread)
{
    const Matrix *p = lib->self;
    (void)phase, (void)workspace, (void)thread;
    size_t each = wf_dtype_size(p->dtype);
    double *a = scratch, *result[RESULTS], *at = a + p->size[0];
    for (int i = 0; i < results_of[p->what]; i++) {
        result[i] = at;
        at += p->size[i + 1];
    }
    load(p->dtype, (const char *)operand[0] + (size_t)(tile * p->size[0]) * each, p->size[0], a);
    wf_matrix(p->what, p->m, p->n, a, result);
    for (int i = 0; i < results_of[p->what]; i++)
        store(p->dtype, result[i], p->size[i + 1], (char *)operand[i + 1] + (size_t)(tile * p->size[i + 1]) * each);
}

static void matrix_create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    (void)ctx, (void)threads;
    Matrix *p = WF_NEW(arena, Matrix);
    matrix_plan(d, p);
    lib->self = p;
    lib->run = matrix_run;
    lib->n_phases = 1;
    lib->tiles[0] = p->batch;
}

/* ---- ctc ---- */

enum { LOGP, LABELS, AT, FRAMES, COUNT, NLL, GRAD, OPERANDS };
typedef struct {
    WfDtype dtype;
    int64_t t, n, c, labels, blank, most;
} Ctc;

static void ctc_plan(const WfLibDesc *d, Ctc *p)
{
    const int64_t *s = d->operand[LOGP].shape;
    *p = (Ctc){d->operand[LOGP].dtype, s[0], s[1], s[2], d->operand[LABELS].shape[0], d->param[0], d->param[1]};
}

static bool ctc_accepts(const WfLibDesc *d, char *why, size_t size)
{
    if (!dense_operands(d, OPERANDS, why, size))
        return false;
    Ctc p;
    ctc_plan(d, &p);
    for (int i = LABELS; i <= COUNT; i++)
        if (!wf_want(d, i, "list", WF_I64, 1, why, size) || (i > LABELS && d->operand[i].shape[0] != p.n))
            return wf_refuse(why, size, "operand %d is no list of i64 with one of each sample", i);
    if (!wf_want(d, NLL, "nll", p.dtype, 1, why, size) || d->operand[NLL].shape[0] != p.n ||
        !wf_want(d, GRAD, "grad", p.dtype, 3, why, size) ||
        memcmp(d->operand[GRAD].shape, d->operand[LOGP].shape, 3 * sizeof(int64_t)))
        return wf_refuse(why, size, "results do not fit the scores");
    if (p.blank < 0 || p.blank >= p.c || p.most < 0 || p.most > p.labels)
        return wf_refuse(why, size, "the blank must be one of the classes");
    return true;
}

static void ctc_sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    Ctc p;
    ctc_plan(d, &p);
    *workspace = 0;
    *scratch = ((size_t)(2 * p.t * p.c) + wf_ctc_work(p.t, p.c, p.most)) * sizeof(double);
}

static void ctc_run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace, void *scratch,
                    int thread)
{
    const Ctc *p = lib->self;
    (void)phase, (void)workspace, (void)thread;
    int64_t at = ((const int64_t *)operand[AT])[tile], frames = ((const int64_t *)operand[FRAMES])[tile];
    int64_t count = ((const int64_t *)operand[COUNT])[tile];
    const int64_t *labels = (const int64_t *)operand[LABELS] + at;
    size_t each = wf_dtype_size(p->dtype);
    double *logp = scratch, *grad = logp + p->t * p->c, *work = grad + p->t * p->c, nll = NAN;
    bool fits = frames >= 0 && frames <= p->t && count >= 0 && count <= p->most && at >= 0 && at <= p->labels - count;
    for (int64_t i = 0; fits && i < count; i++)
        fits = labels[i] >= 0 && labels[i] < p->c;
    memset(grad, 0, (size_t)(p->t * p->c) * sizeof *grad);
    for (int64_t t = 0; t < p->t; t++)
        load(p->dtype, (const char *)operand[LOGP] + (size_t)((t * p->n + tile) * p->c) * each, p->c, logp + t * p->c);
    if (fits)
        nll = wf_ctc(frames, p->c, p->c, logp, count, labels, p->blank, grad, work);
    store(p->dtype, &nll, 1, (char *)operand[NLL] + (size_t)tile * each);
    for (int64_t t = 0; t < p->t; t++)
        store(p->dtype, grad + t * p->c, p->c, (char *)operand[GRAD] + (size_t)((t * p->n + tile) * p->c) * each);
}

static void ctc_create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    (void)ctx, (void)threads;
    Ctc *p = WF_NEW(arena, Ctc);
    ctc_plan(d, p);
    lib->self = p;
    lib->run = ctc_run;
    lib->n_phases = 1;
    lib->tiles[0] = p->n;
}

const WfKind wf_kind_matrix = {"matrix", matrix_accepts, matrix_sizes, matrix_create};
const WfKind wf_kind_ctc = {"ctc", ctc_accepts, ctc_sizes, ctc_create};
