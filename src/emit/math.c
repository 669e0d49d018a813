#include "emit/math.h"

#include <stddef.h>
#include <string.h>

#define FN "static inline __attribute__((always_inline)) "
#define LANE1(name, fn) {#name "_f", FN "vf " #name "_f(vf x) { for (int l = 0; l < 16; l++) x[l] = __builtin_" #fn "f(x[l]); return x; }\n"}, \
    {#name "_d", FN "vd " #name "_d(vd x) { for (int l = 0; l < 16; l++) x[l] = __builtin_" #fn "(x[l]); return x; }\n"}
static const struct { const char *name, *text; } rows[] = {
    LANE1(exp, exp), LANE1(log, log), LANE1(expm1, expm1), LANE1(log1p, log1p), LANE1(sin, sin), LANE1(cos, cos),
    LANE1(tanh, tanh), LANE1(atan, atan), LANE1(asin, asin), LANE1(acos, acos), LANE1(erf, erf), LANE1(sqrt, sqrt),
    LANE1(floor, floor), LANE1(ceil, ceil), LANE1(round, rint), LANE1(trunc, trunc),
    {"sigmoid_f", FN "vf sigmoid_f(vf x) { return 1 / (1 + exp_f(-x)); }\n"},
    {"sigmoid_d", FN "vd sigmoid_d(vd x) { return 1 / (1 + exp_d(-x)); }\n"},
    {"pow_f", FN "vf pow_f(vf x, vf y) { for (int l = 0; l < 16; l++) x[l] = __builtin_powf(x[l], y[l]); return x; }\n"},
    {"pow_d", FN "vd pow_d(vd x, vd y) { for (int l = 0; l < 16; l++) x[l] = __builtin_pow(x[l], y[l]); return x; }\n"},
    {"fmod_f", FN "vf fmod_f(vf x, vf y) { for (int l = 0; l < 16; l++) x[l] = __builtin_fmodf(x[l], y[l]); return x; }\n"},
    {"fmod_d", FN "vd fmod_d(vd x, vd y) { for (int l = 0; l < 16; l++) x[l] = __builtin_fmod(x[l], y[l]); return x; }\n"},
    {"atan2_f", FN "vf atan2_f(vf x, vf y) { for (int l = 0; l < 16; l++) x[l] = __builtin_atan2f(x[l], y[l]); return x; }\n"},
    {"atan2_d", FN "vd atan2_d(vd x, vd y) { for (int l = 0; l < 16; l++) x[l] = __builtin_atan2(x[l], y[l]); return x; }\n"},
};

const char *wf_math_snippet(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name))
            return rows[i].text;
    return NULL;
}
