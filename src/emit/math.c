/* Elementary functions of generated C, as text. Single precision is computed by polynomials over 16 lanes (fitted by
 * least squares at Chebyshev nodes), without branches and without calls; double precision, and the rarer functions,
 * call the C library lane by lane. Error bounds against the exact value, over all finite arguments that give a normal
 * result, held by tests/unit/test_math.c:
 *   exp 2 ulp   log 2 ulp   tanh 3 ulp   erf 3 ulp   sin, cos 2 ulp (|x| <= 1e6)   expm1 4 ulp   log1p 3 ulp
 *   sigmoid 4 ulp   sqrt, floor, ceil, trunc, round exact */
#include "emit/math.h"

#include <stddef.h>
#include <string.h>

#define FN "static inline __attribute__((always_inline)) "
#define LANES(type, name, call, suffix)                                                                               \
    {#name suffix, FN type " " #name suffix "(" type " x) { for (int l = 0; l < 16; l++) x[l] = " call "(x[l]); return x; }\n"}
#define LIBM_D(name) LANES("vd", name, "__builtin_" #name, "_d")
#define LIBM_F(name) LANES("vf", name, "__builtin_" #name "f", "_f")
#define LANES2(name)                                                                                                  \
    {#name "_f", FN "vf " #name "_f(vf x, vf y) { for (int l = 0; l < 16; l++) x[l] = __builtin_" #name               \
                    "f(x[l], y[l]); return x; }\n"},                                                                  \
    {#name "_d", FN "vd " #name "_d(vd x, vd y) { for (int l = 0; l < 16; l++) x[l] = __builtin_" #name               \
                    "(x[l], y[l]); return x; }\n"}

static const struct { const char *name, *text; } rows[] = {
    /* Instructions that vector extensions have no operator for. */
    {"sqrt_f",
     "#ifdef __AVX512F__\n" FN "vf sqrt_f(vf x) { vf r; __asm__(\"vsqrtps %1, %0\" : \"=v\"(r) : \"v\"(x)); return r; }\n"
     "#elif defined(__AVX__)\ntypedef float vh __attribute__((vector_size(32)));\n" FN
     "vf sqrt_f(vf x) { union { vf f; vh h[2]; } u; u.f = x; __asm__(\"vsqrtps %1, %0\" : \"=x\"(u.h[0]) : \"x\"(u.h[0])); "
     "__asm__(\"vsqrtps %1, %0\" : \"=x\"(u.h[1]) : \"x\"(u.h[1])); return u.f; }\n#else\n" FN
     "vf sqrt_f(vf x) { for (int l = 0; l < 16; l++) x[l] = __builtin_sqrtf(x[l]); return x; }\n#endif\n"},
    LIBM_D(sqrt),
    /* Below 2^23 adding and taking away 1.5 * 2^23 rounds to the nearest even integer; above, all are integers. */
    {"round_f", FN "vf round_f(vf x) { vf r = (x + 12582912.0f) - 12582912.0f; vi big = ~(abs_f(x) < 4194304.0f); vi s = "
                   "(vi)x & (int)0x80000000; r = (vf)((vi)r | s); for (int l = 0; l < 16; l++) if (big[l]) r[l] = "
                   "__builtin_rintf(x[l]); return r; }\n"},
    {"floor_f", FN "vf floor_f(vf x) { vf r = round_f(x); return r - sel_f(r > x, splat_f(1), splat_f(0)); }\n"},
    {"ceil_f", FN "vf ceil_f(vf x) { vf r = round_f(x), y = r + sel_f(r < x, splat_f(1), splat_f(0)); return (vf)((vi)y | "
                  "((vi)x & (int)0x80000000)); }\n"},
    {"trunc_f", FN "vf trunc_f(vf x) { vf r = round_f(abs_f(x)); r = r - sel_f(r > abs_f(x), splat_f(1), splat_f(0)); return "
                   "(vf)((vi)r | ((vi)x & (int)0x80000000)); }\n"},
    LIBM_D(floor), LIBM_D(ceil), LIBM_D(trunc), LANES("vd", round, "__builtin_rint", "_d"),
    /* x = n ln2 + r, |r| <= ln2 / 2; 2^n in two factors, so that results near the ends stay right. */
    {"exp_f",
     FN "vf exp_f(vf x) { vf t = sel_f(x > 89.0f, splat_f(89.0f), sel_f(x < -104.0f, "
        "splat_f(-104.0f), x)); vf n = (t * 1.44269504f + 12582912.0f) - 12582912.0f; vf r = t - n * 0.693359375f; r = r + n "
        "* 2.12194440e-4f; vf p = 0.001394858118146658f * r + 0.008375128731131554f; p = p * r + 0.041666217148303986f; p = "
        "p * r + 0.16666415333747864f; p = p * r + 0.5f; p = p * (r * r) + r + 1.0f; vi k = __builtin_convertvector(n, vi), "
        "a = k >> 1, b = k - a; vf y = p * (vf)((a + 127) << 23) * (vf)((b + 127) << 23); return sel_f(x != x, x, y); }\n"},
    {"log_f", /* x = m 2^e, m in [sqrt 1/2, sqrt 2); log(1 + f) = f - f^2 / 2 + f^3 P(f) */
     FN "vf log_f(vf x) { vi tiny = x < 0x1p-126f; vf s = sel_f(tiny, x * 0x1p25f, x); vi b = (vi)s, e = ((b - 0x3f3504f3) "
        ">> 23); vf m = (vf)(b - (e << 23)), f = m - 1.0f; vf d = __builtin_convertvector(e - (tiny & 25), vf); vf p = "
        "0.07149729132652283f * f - 0.11571209877729416f; p = p * f + 0.11661525815725327f; p = p * f - "
        "0.12411049753427505f; p = p * f + 0.14249934256076813f; p = p * f - 0.1666848063468933f; p = p * f + "
        "0.20000708103179932f; p = p * f - 0.24999989569187164f; p = p * f + 0.3333333134651184f; vf z = f * f; vf y = p * f "
        "* z; y = y - d * 2.12194440e-4f; y = y - 0.5f * z; y = f + y; y = y + d * 0.693359375f; y = sel_f(x == 0, "
        "splat_f(-__builtin_inff()), y); y = sel_f((x < 0) | (x != x), splat_f(__builtin_nanf(\"\")), y); return sel_f(x == "
        "splat_f(__builtin_inff()), x, y); }\n"},
    {"expm1_f", FN "vf expm1_f(vf x) { vf p = 2.4939741706475616e-05f * x + 0.00019962186343036592f; p = p * x + "
                   "0.001388867269270122f; p = p * x + 0.008333181962370872f; p = p * x + 0.0416666679084301f; p = p * x + "
                   "0.1666666716337204f; p = p * x + 0.5f; p = p * x * x + x; return sel_f(abs_f(x) < 0.5f, p, exp_f(x) - "
                   "1.0f); }\n"},
    {"log1p_f", /* log(u) x / (u - 1), u = 1 + x: the rounding of u cancels */
     FN "vf log1p_f(vf x) { vf u = 1.0f + x, d = u - 1.0f; vf y = log_f(u) * (x / d); y = sel_f(d == 0, x, y); return "
        "sel_f((u == splat_f(__builtin_inff())) | (x == -1.0f), log_f(u), y); }\n"},
    {"tanh_f", FN "vf tanh_f(vf x) { vf u = x * x; vf p = 0.002105262130498886f * u - 0.008134002797305584f; p = p * u + "
                  "0.02168174646794796f; p = p * u - 0.053942855447530746f; p = p * u + 0.13333167135715485f; p = p * u - "
                  "0.333333283662796f; p = p * u * x + x; vf a = abs_f(x), y = 1.0f - 2.0f / (exp_f(a + a) + 1.0f); y = "
                  "(vf)((vi)y | ((vi)x & (int)0x80000000)); return sel_f(x != x, x, sel_f(a < 0.625f, p, y)); }\n"},
    {"sigmoid_f", FN "vf sigmoid_f(vf x) { vf e = exp_f(-abs_f(x)), y = 1.0f / (1.0f + e); return sel_f(x < 0, e * y, y); }\n"},
    {"erf_f", /* |x| < 1: x P(x^2); else 1 - exp(-x^2) Q(1 / (1 + 0.3275911 x)) */
     FN "vf erf_f(vf x) { vf u = x * x; vf p = -9.673591193859465e-06f * u + 0.00011268253729213029f; p = p * u - "
        "0.0008484396385028958f; p = p * u + 0.005221053492277861f; p = p * u - 0.026865437626838684f; p = p * u + "
        "0.11283782869577408f; p = p * u - 0.37612637877464294f; p = p * u + 1.128379225730896f; p = p * x; vf a = abs_f(x), "
        "t = 1.0f / (0.3275911f * a + 1.0f); vf q = -0.16842252016067505f * t + 0.6195913553237915f; q = q * t - "
        "0.64273601770401f; q = q * t + 0.7080579400062561f; q = q * t - 0.14187762141227722f; q = q * t + "
        "0.2745077908039093f; q = q * t + 0.16356250643730164f; q = q * t + 0.18744967877864838f; q = q * t - "
        "0.0001430885895388201f; vf y = 1.0f - exp_f(-u) * q; y = sel_f(a > 4.0f, splat_f(1.0f), y); y = (vf)((vi)y | "
        "((vi)x & (int)0x80000000)); return sel_f(x != x, x, sel_f(a < 1.0f, p, y)); }\n"},
    {"trig_f", /* sin(x + q pi/2): the argument is reduced in double, then one of two polynomials by quadrant */
     FN "vf trig_f(vf x, int q) { vd d = __builtin_convertvector(x, vd); vd n = (d * 0.63661977236758134308 + "
        "6755399441055744.0) - 6755399441055744.0; vd r = d - n * 1.57079632673412561417; r = r - n * "
        "6.07710050650619224932e-11; vf f = __builtin_convertvector(r, vf), u = f * f; vl k = __builtin_convertvector(n, vl) "
        "+ q; vi i = __builtin_convertvector(k & 3, vi); vf s = 2.716968083404936e-06f * u - 0.00019839161541312933f; s = s "
        "* u + 0.008333329111337662f; s = s * u - 0.1666666716337204f; s = s * u * f + f; vf c = -2.716962796966982e-07f * u "
        "+ 2.4798875529086217e-05f; c = c * u - 0.0013888879911974072f; c = c * u + 0.0416666679084301f; c = c * u * u - "
        "0.5f * u + 1.0f; vf y = sel_f((i & 1) != 0, c, s); y = (vf)((vi)y ^ ((i & 2) << 30)); vi far = ~(abs_f(x) < 1e6f); "
        "for (int l = 0; l < 16; l++) if (far[l]) y[l] = q ? __builtin_cosf(x[l]) : __builtin_sinf(x[l]); return y; }\n"},
    {"sin_f", FN "vf sin_f(vf x) { return trig_f(x, 0); }\n"},
    {"cos_f", FN "vf cos_f(vf x) { return trig_f(x, 1); }\n"},
    LIBM_D(exp), LIBM_D(log), LIBM_D(expm1), LIBM_D(log1p), LIBM_D(sin), LIBM_D(cos), LIBM_D(tanh), LIBM_D(erf),
    {"sigmoid_d", FN "vd sigmoid_d(vd x) { return 1 / (1 + exp_d(-x)); }\n"},
    LIBM_F(atan), LIBM_F(asin), LIBM_F(acos), LIBM_D(atan), LIBM_D(asin), LIBM_D(acos), LANES2(pow), LANES2(fmod),
    LANES2(atan2)};

const char *wf_math_snippet(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name))
            return rows[i].text;
    return NULL;
}
