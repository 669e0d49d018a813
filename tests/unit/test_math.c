/* Error bounds of the elementary functions in generated C, as src/emit/math.c states them: each is compiled as a kernel
 * would be, run over a dense sweep of arguments (every exponent, 4096 mantissas, both signs), and compared with the
 * double precision function in units of the last place of the float result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emit/emit.h"
#include "kernels/kernels.h"

typedef void (*Fn)(const float *x, float *y, long n);

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const struct { const char *name; double (*exact)(double); double lo, hi, ulp; } rows[] = {
    {"exp", exp, -87.3, 88.7, 2},       {"log", log, 1.2e-38, 3e38, 2},   {"tanh", tanh, -20, 20, 3},
    {"erf", erf, -6, 6, 3},             {"sin", sin, -1e6, 1e6, 2},       {"cos", cos, -1e6, 1e6, 2},
    {"expm1", expm1, -80, 88.7, 4},     {"log1p", log1p, -0.999, 1e30, 3}, {"sigmoid", sigmoid, -80, 80, 4},
    {"sqrt", sqrt, 0, 3e38, 0.5001},    {"floor", floor, -1e9, 1e9, 0},   {"ceil", ceil, -1e9, 1e9, 0},
    {"trunc", trunc, -1e9, 1e9, 0},     {"round", nearbyint, -1e9, 1e9, 0},
};

static double ulps(float got, double want)
{
    if (got == (float)want || (isnan(got) && isnan(want)))
        return got == want || isnan(want) ? 0 : fabs((double)got - want) / ldexp(1, ilogb(want) - 23);
    float near = (float)want;
    double unit = fabs((double)near) < 1.2e-38 ? ldexp(1, -149) : ldexp(1, ilogb(near) - 23);
    return fabs((double)got - want) / unit;
}

static Fn load(const uint8_t *object, size_t size, const char *name)
{
    int fd = memfd_create("math", 0);
    char path[64];
    assert_true(fd >= 0 && write(fd, object, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(fd);
    assert_non_null(h);
    return (Fn)dlsym(h, name);
}

typedef struct { WfCtx *ctx; int isa; const uint8_t *object; size_t size; } Build;

static void build(void *v)
{
    Build *b = v;
    WfArena *a = b->ctx->arena;
    WfKernelSource k[WF_LEN(rows)];
    int compiled;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        WfStr pre = {.arena = a};
        k[i].name = wf_arena_printf(a, "test_%s", rows[i].name);
        k[i].text = wf_arena_printf(a, "void %s(const float *x, float *y, long n) { for (long i = 0; i < n; i += 16) st_f32(y "
                                       "+ i, %s_f(ld_f32(x + i))); }\n", k[i].name, rows[i].name);
        wf_emit_prelude(&pre, k[i].text);
        k[i].prelude = pre.at;
    }
    wf_compile_kernels(b->ctx, a, k, WF_LEN(rows), b->isa, NULL, &b->object, &b->size, &compiled);
}

static void sweep(const char *name, Fn f, double (*exact)(double), double lo, double hi, double bound)
{
    enum { N = 4096 };
    static float x[N], y[N];
    double worst = 0, at = 0;
    for (int sign = 0; sign < 2; sign++)
        for (int e = 1; e < 255; e++) {
            int n = 0;
            for (uint32_t m = 0; m < N; m++) {
                uint32_t bits = (uint32_t)sign << 31 | (uint32_t)e << 23 | m * 2047;
                memcpy(&x[m], &bits, 4);
                if (x[m] < lo || x[m] > hi)
                    x[m] = (float)(sign ? lo / 2 : hi / 2);
                else
                    n++;
            }
            if (!n)
                continue;
            f(x, y, N);
            for (int i = 0; i < N; i++) {
                double u = ulps(y[i], exact(x[i]));
                if (u > worst || isnan(u))
                    worst = u, at = x[i];
            }
        }
    printf("%-8s worst %.3f ulp at %.9g, allowed %.1f\n", name, worst, at, bound);
    assert_true(worst <= bound);
}

static void bounds_hold(void **state)
{
    (void)state;
    WfCtx *ctx = wf_ctx_new();
    for (int isa = 3; isa <= wf_isa_level(); isa++) {
        Build b = {.ctx = ctx, .isa = isa};
        if (wf_guard(ctx, build, &b) != WEFT_OK)
            fail_msg("%s", ctx->diag.message);
        for (size_t i = 0; i < WF_LEN(rows); i++) {
            char name[64];
            snprintf(name, sizeof name, "test_%s", rows[i].name);
            sweep(rows[i].name, load(b.object, b.size, name), rows[i].exact, rows[i].lo, rows[i].hi, rows[i].ulp);
        }
    }
    wf_ctx_free(ctx);
}

static void special_values(void **state)
{
    (void)state;
    WfCtx *ctx = wf_ctx_new();
    Build b = {.ctx = ctx, .isa = 3};
    assert_int_equal(wf_guard(ctx, build, &b), WEFT_OK);
    float x[16] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, -1e-40f, 200.0f, -200.0f, 3e38f, -3e38f, 1, -1, 2.5f, 3.5f, -2.5f};
    float y[16];
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        char name[64];
        snprintf(name, sizeof name, "test_%s", rows[i].name);
        load(b.object, b.size, name)(x, y, 16);
        for (int k = 0; k < 16; k++) {
            float want = (float)rows[i].exact(x[k]);
            bool ok = isnan(want) ? isnan(y[k]) : isinf(want) || want == 0 ? y[k] == want || fabsf(y[k]) < 1.2e-38f
                                                                            : fabsf(y[k] - want) <= 1e-6f * fabsf(want) + 1.2e-38f;
            if (fabsf(x[k]) > 1e6f && rows[i].hi == 1e6)
                ok = isnan(want) ? isnan(y[k]) : fabsf(y[k] - want) < 1e-5f;
            if (!ok)
                fail_msg("%s(%g) is %g, expected %g", rows[i].name, x[k], y[k], want);
        }
    }
    wf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_hold), cmocka_unit_test(special_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
