/* The library calls against plain loops in double precision.
 *
 * Every case runs at each ISA level that the machine has and on 1, 2 and 3 threads; outputs must be the same
 * bits for any number of threads, and running must allocate nothing through the seam. Operands have odd sizes
 * and, where the kind takes them, strides with gaps.
 *
 * Tolerances. A sum of K products of numbers near 1 in f32 has an error near sqrt(K) 2^-24 of the largest
 * partial sum; the tests allow 4e-6 of the largest reference value, about 60 roundings, which covers every K
 * here (up to 3000). Attention and recurrences chain two such sums and exponentials that are good to 1.5 ulp:
 * 1e-5. Sorting, scattering sets and integer results are exact. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

enum { GUARD = 64, MAX_DIMS = 8 };

static WfCtx *ctx;
static WfTeam *team[4];
static uint32_t seed = 1;

static float uniform(void) /* in [-1, 1) */
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed / 2147483648.0f;
}

typedef struct {
    WfLibDesc d;
    void *p[WF_LIB_OPERANDS];
    size_t bytes[WF_LIB_OPERANDS];
    bool output[WF_LIB_OPERANDS];
} Case;

/* Adds an operand. order: the dims from outermost to innermost in memory (NULL: row-major); gap: extra
 * elements at the end of the dim second from inside. Floats are filled at random, others with zeros. */
static int add(Case *c, WfDtype t, bool output, int rank, const int64_t *shape, const int *order, int gap)
{
    int n = c->d.n++;
    WfOperand *o = &c->d.operand[n];
    *o = (WfOperand){.dtype = t, .rank = rank};
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        int j = order ? order[i] : i;
        o->shape[j] = shape[j];
        o->stride[j] = stride;
        stride *= shape[j];
        if (i == rank - 1)
            stride += gap;
    }
    c->bytes[n] = (size_t)stride * wf_dtype_size(t) + GUARD;
    c->p[n] = calloc(1, c->bytes[n]);
    c->output[n] = output;
    for (int64_t i = 0; i < stride; i++)
        if (wf_dtype_is_float(t))
            wf_store_f64(t, (char *)c->p[n] + (size_t)i * wf_dtype_size(t), uniform());
    return n;
}
#define SHAPE(...)                                       \
    (int)WF_LEN(((int64_t[]){__VA_ARGS__})), (int64_t[]) \
    {                                                    \
        __VA_ARGS__                                      \
    }
#define IN(c, ...)  add(c, WF_F32, false, SHAPE(__VA_ARGS__), NULL, 0)
#define OUT(c, ...) add(c, WF_F32, true, SHAPE(__VA_ARGS__), NULL, 0)
static void none(Case *c)
{
    c->d.n++;
}

static void release(Case *c)
{
    for (int i = 0; i < c->d.n; i++)
        free(c->p[i]);
}

/* Element at up to five coordinates; missing dims are given as 0. */
static double at(const Case *c, int i, int64_t a, int64_t b, int64_t e, int64_t f, int64_t g)
{
    const WfOperand *o = &c->d.operand[i];
    int64_t x[5] = {a, b, e, f, g}, k = 0;
    for (int j = 0; j < o->rank && j < 5; j++)
        k += x[j] * o->stride[j];
    return wf_load_f64(o->dtype, (char *)c->p[i] + (size_t)k * wf_dtype_size(o->dtype));
}
#define AT2(c, i, a, b)       at(c, i, a, b, 0, 0, 0)
#define AT3(c, i, a, b, e)    at(c, i, a, b, e, 0, 0)
#define AT4(c, i, a, b, e, f) at(c, i, a, b, e, f, 0)

static void once(Case *c, int isa, int threads)
{
    WfArena *arena = wf_arena_new(ctx);
    WfLibDesc d = c->d;
    d.param[WF_LIB_ISA] = isa;
    char why[256];
    if (!wf_lib_accepts(&d, why, sizeof why))
        fail_msg("%s", why);
    WfLib *lib = wf_lib_create(ctx, arena, &d, threads);
    size_t each = (wf_lib_scratch(&d) + 127) / 64 * 64, ws = wf_lib_workspace(&d);
    char *workspace = aligned_alloc(64, ws + 64), *scratch = aligned_alloc(64, each * (size_t)threads);
    memset(workspace, 0x7f, ws + 64); /* nothing may count on zeros */
    memset(scratch, 0x7f, each * (size_t)threads);
    int64_t allocs = wf_seam_count(WF_SEAM_ALLOC), maps = wf_seam_count(WF_SEAM_MAP);
    wf_lib_run_team(lib, team[threads], c->p, workspace, scratch, each);
    assert_int_equal(allocs, wf_seam_count(WF_SEAM_ALLOC));
    assert_int_equal(maps, wf_seam_count(WF_SEAM_MAP));
    for (int i = 0; i < 64; i++)
        assert_int_equal(workspace[ws + (size_t)i], 0x7f);
    for (int t = 0; t < threads; t++)
        for (size_t i = wf_lib_scratch(&d); i < each; i++)
            assert_int_equal(scratch[(size_t)t * each + i], 0x7f);
    free(workspace);
    free(scratch);
    wf_arena_free(arena);
}

/* Runs at one level on 1, 2, 3 threads and compares the bits. Outputs that are also inputs start alike each
 * time. */
static void run(Case *c, int isa)
{
    void *start[WF_LIB_OPERANDS] = {0}, *first[WF_LIB_OPERANDS] = {0};
    for (int i = 0; i < c->d.n; i++)
        if (c->output[i])
            start[i] = memcpy(malloc(c->bytes[i]), c->p[i], c->bytes[i]);
    for (int threads = 1; threads <= 3; threads++) {
        for (int i = 0; i < c->d.n; i++)
            if (c->output[i])
                memcpy(c->p[i], start[i], c->bytes[i]);
        once(c, isa, threads);
        for (int i = 0; i < c->d.n; i++) {
            if (!c->output[i])
                continue;
            if (threads == 1)
                first[i] = memcpy(malloc(c->bytes[i]), c->p[i], c->bytes[i]);
            else
                assert_memory_equal(first[i], c->p[i], c->bytes[i]);
        }
    }
    for (int i = 0; i < c->d.n; i++)
        free(start[i]), free(first[i]);
}

/* Errors relative to the largest reference value. */
typedef struct {
    double worst, scale;
} Error;
static void note(Error *e, double got, double want)
{
    if (isinf(want) || isnan(want)) {
        assert_true(got == want || (isnan(want) && isnan(got)));
        return;
    }
    double d = fabs(got - want);
    e->worst = d > e->worst || isnan(d) ? d : e->worst;
    e->scale = fabs(want) > e->scale ? fabs(want) : e->scale;
}
static void small(const char *what, Error e, double limit)
{
    if (!(e.worst <= limit * (e.scale > 1e-3 ? e.scale : 1e-3)))
        fail_msg("%s: error %g of %g", what, e.worst, e.scale);
}

static int levels(int out[3])
{
    int n = 0;
    if (wf_isa_level() >= 3)
        out[n++] = 3;
    if (wf_isa_level() >= 4)
        out[n++] = 4;
    if (wf_isa_level() >= WF_ISA_LEVEL_AMX)
        out[n++] = WF_ISA_LEVEL_AMX;
    return n;
}
#define EACH_LEVEL(isa) \
    for (int isas_[3], n_ = levels(isas_), i_ = 0, isa; i_ < n_ && (isa = isas_[i_], true); i_++)

/* ---- gemm --------------------------------------------------------------------------------------- */

/* A B in double. */
static double *gemm_reference(const Case *c, int64_t m, int64_t k, int64_t n)
{
    double *want = calloc((size_t)(m * n), sizeof(double));
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++) {
            double a = AT2(c, 0, i, p);
            for (int64_t j = 0; j < n; j++)
                want[i * n + j] += a * AT2(c, 1, p, j);
        }
    return want;
}

static void gemm_case(WfDtype t, int64_t m, int64_t k, int64_t n, bool ta, bool tb, bool bias,
                      bool accumulate, int gap)
{
    static const int swapped[] = {1, 0};
    Case c = {.d = {.kind = "gemm"}};
    c.d.param[0] = accumulate;
    bool repeated = gap < 0; /* B is one row, k times */
    gap = repeated ? 0 : gap;
    add(&c, t, false, SHAPE(m, k), ta ? swapped : NULL, gap);
    add(&c, t, false, SHAPE(k, n), tb ? swapped : NULL, gap);
    if (repeated)
        c.d.operand[1].stride[0] = 0;
    if (bias)
        add(&c, t, false, SHAPE(n), NULL, 0);
    int out = add(&c, t, true, SHAPE(m, n), NULL, gap);
    float *before = memcpy(malloc(c.bytes[out]), c.p[out], c.bytes[out]), *level3 = NULL;
    double *want = gemm_reference(&c, m, k, n);
    EACH_LEVEL(isa)
    {
        Case old = c;
        old.p[out] = before;
        float *start = memcpy(malloc(c.bytes[out]), before, c.bytes[out]);
        memcpy(c.p[out], start, c.bytes[out]);
        run(&c, isa);
        Error e = {0};
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = (accumulate ? AT2(&old, out, i, j) : 0) + (bias ? AT2(&c, 2, j, 0) : 0);
                note(&e, AT2(&c, out, i, j), sum + want[i * n + j]);
            }
        small("gemm", e, t == WF_F64 ? 1e-14 : 4e-6);
        if (level3 && isa < WF_ISA_LEVEL_AMX)
            assert_memory_equal(level3, c.p[out], c.bytes[out]); /* the levels agree, too */
        else if (level3 && t == WF_F32 && m >= 300 && n >= 500 && k >= 48)
            assert_memory_not_equal(level3, c.p[out], c.bytes[out]); /* it did go another way */
        else if (!level3)
            level3 = memcpy(malloc(c.bytes[out]), c.p[out], c.bytes[out]);
        free(start);
    }
    free(before);
    free(want);
    free(level3);
    release(&c);
}

static void test_gemm(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},     {5, 3, 7},     {37, 65, 43},   {129, 300, 75},
                                       {14, 513, 32}, {200, 64, 64}, {300, 257, 90}, {70, 3000, 33},
                                       {33, 40, 600}, {600, 40, 10}, {330, 530, 510}, {310, 50, 630},
                                       {150, 300, 131}, {135, 600, 300}, {129, 1000, 515}};
    for (size_t i = 0; i < WF_LEN(sizes); i++)
        for (int v = 0; v < 4; v++) {
            const int64_t *s = sizes[i];
            gemm_case(WF_F32, s[0], s[1], s[2], v & 1, v & 2, v == 1, v == 2, 0);
            gemm_case(WF_F32, s[0], s[1], s[2], v & 1, v & 2, v == 2, v == 3, 5);
        }
    gemm_case(WF_F64, 37, 65, 43, false, true, true, true, 3);
    gemm_case(WF_F32, 3, 0, 4, false, false, true, false, 0);
    gemm_case(WF_F32, 64, 3, 64, true, false, false, false, -1);
    gemm_case(WF_F32, 203, 108, 6000, false, true, true, true, 0); /* more columns than are packed at a time */
}

/* What cannot be split into bfloat16 spreads as IEEE 754 says: infinities and NaN, in A and in B, only to the elements
 * that read them; values that bfloat16 would round to infinity stay finite; tiny ones keep an absolute error below
 * 1e-36. */
static void test_gemm_special(void **state)
{
    (void)state;
    static const float values[] = {-INFINITY, NAN, 3.4e38F, 1e-39F, 1e-37F};
    enum { M = 310, K = 530, N = 450 };
    for (size_t v = 0; v < WF_LEN(values); v++)
        for (int right = 0; right < 2; right++) {
            Case c = {.d = {.kind = "gemm"}};
            add(&c, WF_F32, false, SHAPE(M, K), NULL, 0);
            add(&c, WF_F32, false, SHAPE(K, N), NULL, 0);
            int out = add(&c, WF_F32, true, SHAPE(M, N), NULL, 0);
            float *x = c.p[right], *y = c.p[!right];
            int64_t row = right ? 505 : 77, column = right ? 77 : 505;
            x[row * (right ? N : K) + column] = values[v];
            for (int64_t i = 0; i < (right ? M : N); i++) /* what it meets is small and never 0 */
                y[right ? i * K + 505 : 505 * N + i] = i % 2 ? 1e-3F : -1e-3F;
            double *want = gemm_reference(&c, M, K, N);
            EACH_LEVEL(isa)
            {
                run(&c, isa);
                Error near = {0}, other = {0};
                for (int64_t i = 0; i < M; i++)
                    for (int64_t j = 0; j < N; j++)
                        note((right ? j : i) == 77 ? &near : &other, AT2(&c, out, i, j), want[i * N + j]);
                small("elements that read it", near, 4e-6);
                small("the other elements", other, 4e-6);
            }
            free(want);
            release(&c);
        }
    if (wf_isa_level() < WF_ISA_LEVEL_AMX)
        print_message("# this machine has no AMX: its products were not tested\n");
}

/* Unless it is asked for, no product goes through tiles: the bits are those of every machine with AVX2. */
static void test_gemm_default(void **state)
{
    (void)state;
    Case c = {.d = {.kind = "gemm"}};
    add(&c, WF_F32, false, SHAPE(330, 530), NULL, 0);
    add(&c, WF_F32, false, SHAPE(530, 510), NULL, 0);
    int out = add(&c, WF_F32, true, SHAPE(330, 510), NULL, 0);
    run(&c, 0);
    void *first = memcpy(malloc(c.bytes[out]), c.p[out], c.bytes[out]);
    EACH_LEVEL(isa)
    {
        run(&c, isa);
        if (isa < WF_ISA_LEVEL_AMX)
            assert_memory_equal(first, c.p[out], c.bytes[out]);
        else
            assert_memory_not_equal(first, c.p[out], c.bytes[out]);
    }
    free(first);
    release(&c);
}

static void test_gemm_batched(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        Case c = {.d = {.kind = "gemm"}};
        int64_t m = 19, k = 23, n = v == 3 ? 33 : 11;
        static const int strided[] = {0, 2, 1, 3}; /* [b, m, h, k]: heads inside rows */
        add(&c, WF_F32, false, SHAPE(3, 5, m, k), v == 1 ? strided : NULL, 0);
        add(&c, WF_F32, false, SHAPE(v == 2 ? 1 : 3, v >= 2 ? 1 : 5, k, n), NULL, 0);
        add(&c, WF_F32, true, SHAPE(3, 5, m, n), v == 1 ? strided : NULL, 0);
        EACH_LEVEL(isa)
        {
            run(&c, isa);
            Error e = {0};
            for (int64_t x = 0; x < 3; x++)
                for (int64_t y = 0; y < 5; y++)
                    for (int64_t i = 0; i < m; i++)
                        for (int64_t j = 0; j < n; j++) {
                            double sum = 0;
                            for (int64_t p = 0; p < k; p++)
                                sum +=
                                    AT4(&c, 0, x, y, i, p) * AT4(&c, 1, v == 2 ? 0 : x, v >= 2 ? 0 : y, p, j);
                            note(&e, AT4(&c, 2, x, y, i, j), sum);
                        }
            small("batched gemm", e, 4e-6);
        }
        release(&c);
    }
}

/* ---- attention ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t b, h, hkv, tq, tk, d, dv;
    bool causal;
    int mask; /* 0 none, 1 full, 2 per key, 3 hides a query */
} Att;

static void attention_case(Att a)
{
    static const int heads_inside[] = {0, 2, 1, 3};
    int64_t group = a.h / a.hkv, nq = a.b * a.h * a.tq;
    Case f = {.d = {.kind = "attention_fwd"}}, w = {.d = {.kind = "attention_bwd"}};
    f.d.param[0] = w.d.param[0] = a.causal;
    add(&f, WF_F32, false, SHAPE(a.b, a.h, a.tq, a.d), heads_inside, 0);
    add(&f, WF_F32, false, SHAPE(a.b, a.hkv, a.tk, a.d), heads_inside, 0);
    add(&f, WF_F32, false, SHAPE(a.b, a.hkv, a.tk, a.dv), NULL, 3);
    if (a.mask == 2)
        IN(&f, 1, 1, 1, a.tk);
    else if (a.mask)
        IN(&f, a.b, 1, a.tq, a.tk);
    else
        none(&f);
    for (int64_t j = 0; a.mask == 3 && j < a.tk; j++)
        ((float *)f.p[3])[a.tk + j] = -INFINITY; /* query 1 of sample 0 sees nothing */
    add(&f, WF_F32, true, SHAPE(a.b, a.h, a.tq, a.dv), heads_inside, 0);
    OUT(&f, a.b, a.h, a.tq);
    double *p = calloc((size_t)(nq * a.tk), sizeof *p), *dp = calloc((size_t)(nq * a.tk), sizeof *dp);
    static const int from[] = {0, 1, 2, 4, -1, 5, 3};
    for (int i = 0; i < 7; i++) {
        w.d.n++;
        if (from[i] >= 0)
            w.d.operand[i] = f.d.operand[from[i]], w.p[i] = f.p[from[i]];
    }
    w.d.n = 4;
    add(&w, WF_F32, false, SHAPE(a.b, a.h, a.tq, a.dv), NULL, 0);
    w.d.n = 7;
    add(&w, WF_F32, true, SHAPE(a.b, a.h, a.tq, a.d), heads_inside, 0);
    add(&w, WF_F32, true, SHAPE(a.b, a.hkv, a.tk, a.d), NULL, 0);
    add(&w, WF_F32, true, SHAPE(a.b, a.hkv, a.tk, a.dv), NULL, 0);
    double scale = 1 / sqrt((double)a.d);
    EACH_LEVEL(isa)
    {
        run(&f, isa);
        run(&w, isa);
        Error eo = {0}, el = {0}, eq = {0}, ek = {0}, ev = {0};
        for (int64_t b = 0; b < a.b; b++)
            for (int64_t h = 0; h < a.h; h++)
                for (int64_t i = 0; i < a.tq; i++) {
                    double *row = p + ((b * a.h + h) * a.tq + i) * a.tk, *grad = dp + (row - p), sum = 0,
                           top = -INFINITY;
                    double delta = 0;
                    for (int64_t j = 0; j < a.tk; j++) {
                        row[j] = 0;
                        for (int64_t k = 0; k < a.d; k++)
                            row[j] += AT4(&f, 0, b, h, i, k) * AT4(&f, 1, b, h / group, j, k) * scale;
                        if (a.mask)
                            row[j] += a.mask == 2 ? AT4(&f, 3, 0, 0, 0, j) : AT4(&f, 3, b, 0, i, j);
                        if (a.causal && j > i)
                            row[j] = -INFINITY;
                        top = fmax(top, row[j]);
                    }
                    for (int64_t j = 0; j < a.tk; j++)
                        sum += row[j] = top == -INFINITY ? 0 : exp(row[j] - top);
                    for (int64_t j = 0; j < a.tk; j++)
                        row[j] /= sum > 0 ? sum : 1;
                    note(&el, AT3(&f, 5, b, h, i), sum > 0 ? top + log(sum) : -INFINITY);
                    for (int64_t k = 0; k < a.dv; k++) {
                        double o = 0;
                        for (int64_t j = 0; j < a.tk; j++)
                            o += row[j] * AT4(&f, 2, b, h / group, j, k);
                        note(&eo, AT4(&f, 4, b, h, i, k), o);
                        delta += o * AT4(&w, 4, b, h, i, k);
                    }
                    for (int64_t j = 0; j < a.tk; j++) {
                        grad[j] = 0;
                        for (int64_t k = 0; k < a.dv; k++)
                            grad[j] += AT4(&w, 4, b, h, i, k) * AT4(&f, 2, b, h / group, j, k);
                        grad[j] = row[j] * (grad[j] - delta) * scale;
                    }
                    for (int64_t k = 0; k < a.d; k++) {
                        double dq = 0;
                        for (int64_t j = 0; j < a.tk; j++)
                            dq += grad[j] * AT4(&f, 1, b, h / group, j, k);
                        note(&eq, AT4(&w, 7, b, h, i, k), dq);
                    }
                }
        for (int64_t b = 0; b < a.b; b++)
            for (int64_t h = 0; h < a.hkv; h++)
                for (int64_t j = 0; j < a.tk; j++) {
                    for (int64_t k = 0; k < (a.d > a.dv ? a.d : a.dv); k++) {
                        double dk = 0, dv = 0;
                        for (int64_t q = h * group; q < (h + 1) * group; q++)
                            for (int64_t i = 0; i < a.tq; i++) {
                                int64_t e = ((b * a.h + q) * a.tq + i) * a.tk + j;
                                dk += k < a.d ? dp[e] * AT4(&f, 0, b, q, i, k) : 0;
                                dv += k < a.dv ? p[e] * AT4(&w, 4, b, q, i, k) : 0;
                            }
                        if (k < a.d)
                            note(&ek, AT4(&w, 8, b, h, j, k), dk);
                        if (k < a.dv)
                            note(&ev, AT4(&w, 9, b, h, j, k), dv);
                    }
                }
        small("attention o", eo, 1e-5), small("attention lse", el, 1e-5), small("attention dq", eq, 1e-5);
        small("attention dk", ek, 1e-5), small("attention dv", ev, 1e-5);
    }
    free(p), free(dp);
    release(&f);
    for (int i = 0; i < 7; i++)
        w.p[i] = i == 4 ? w.p[i] : NULL;
    release(&w);
}

static void test_attention(void **state)
{
    (void)state;
    attention_case((Att){2, 3, 3, 17, 29, 20, 12, false, 0});
    attention_case((Att){1, 4, 2, 70, 300, 16, 33, false, 1});
    attention_case((Att){1, 2, 1, 130, 130, 17, 17, true, 2});
    attention_case((Att){2, 2, 2, 5, 9, 8, 8, false, 3});
    attention_case((Att){1, 1, 1, 600, 40, 8, 8, true, 0});
    attention_case((Att){1, 2, 2, 230, 30, 16, 16, false, 1});
    attention_case((Att){1, 1, 1, 7, 5, 300, 4, true, 0});
}

#include "test_kernels_layers.h"

int main(void)
{
    ctx = wf_ctx_new();
    for (int i = 1; i <= 3; i++)
        team[i] = wf_team_new(ctx, i, wf_kernels_threads);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_gemm_special),
        cmocka_unit_test(test_gemm_default),
        cmocka_unit_test(test_gemm_batched),
        cmocka_unit_test(test_attention),    cmocka_unit_test(test_conv),
        cmocka_unit_test(test_rnn),
        cmocka_unit_test(test_rnn_special),          cmocka_unit_test(test_sort),
        cmocka_unit_test(test_scan),         cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_scatter_full), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_team),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 1; i <= 3; i++)
        wf_team_free(team[i]);
    wf_ctx_free(ctx);
    return failed;
}
