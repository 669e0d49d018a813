/* Element types. Conversions to the 16-bit floats start from the double's bits, so that a value is rounded
 * once (via float it would be rounded twice and ties would come out wrong). Loads and stores go through
 * memcpy: data in files need not be aligned. */
#include <math.h>
#include <string.h>

#include "base/inner.h"

static const struct { const char *name, *torch, *other; size_t size; } info[WF_DTYPES] = {
    [WF_F32] = { "f32", "float32", "float", 4 },   [WF_F64] = { "f64", "float64", "double", 8 },
    [WF_F16] = { "f16", "float16", "half", 2 },    [WF_BF16] = { "bf16", "bfloat16", "bfloat16", 2 },
    [WF_I64] = { "i64", "int64", "long", 8 },      [WF_I32] = { "i32", "int32", "int", 4 },
    [WF_I16] = { "i16", "int16", "short", 2 },     [WF_I8] = { "i8", "int8", "char", 1 },
    [WF_U8] = { "u8", "uint8", "byte", 1 },        [WF_BOOL] = { "bool", "bool", "bool", 1 },
};

size_t wf_dtype_size(WfDtype t)
{
    return t > 0 && t < WF_DTYPES ? info[t].size : 0;
}

const char *wf_dtype_name(WfDtype t)
{
    return t > 0 && t < WF_DTYPES ? info[t].name : "?";
}

WfDtype wf_dtype_parse(const char *name)
{
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (int t = 1; t < WF_DTYPES; t++)
        if (!strcmp(name, info[t].name) || !strcmp(name, info[t].torch) || !strcmp(name, info[t].other))
            return (WfDtype)t;
    return (WfDtype)0;
}

bool wf_dtype_is_float(WfDtype t)
{
    return t == WF_F32 || t == WF_F64 || t == WF_F16 || t == WF_BF16;
}

bool wf_dtype_is_int(WfDtype t)
{
    return t == WF_I64 || t == WF_I32 || t == WF_I16 || t == WF_I8 || t == WF_U8;
}

/* IEEE format of 1 + ebits + mbits bits, to nearest even, overflow to infinity; nan keeps its upper payload.
 * */
static uint16_t pack_float(double v, int ebits, int mbits)
{
    uint64_t b;
    memcpy(&b, &v, 8);
    int bias = (1 << (ebits - 1)) - 1;
    uint32_t sign = (uint32_t)(b >> 63) << (ebits + mbits), inf = ((1u << ebits) - 1) << mbits;
    int exp = (int)(b >> 52 & 0x7ff);
    uint64_t man = b & 0xfffffffffffffull;
    if (exp == 0x7ff)
        return (uint16_t)(sign | inf | (man ? 1u << (mbits - 1) | (uint32_t)(man >> (52 - mbits)) : 0));
    if (exp == 0)
        return (uint16_t)sign; /* zero, or a double so small that it rounds to zero */
    int e = exp - 1023, shift = 52 - mbits;
    bool normal = e >= 1 - bias;
    if (!normal)
        shift += 1 - bias - e;
    if (shift >= 54)
        return (uint16_t)sign;
    man |= 1ull << 52;
    uint64_t q = man >> shift, rest = man & ((1ull << shift) - 1), half = 1ull << (shift - 1);
    if (rest > half || (rest == half && (q & 1)))
        q++; /* a carry runs into the exponent, which is what it should do */
    uint64_t out = normal ? ((uint64_t)(e + bias) << mbits) + q - (1ull << mbits) : q;
    return (uint16_t)(sign | (out > inf ? inf : out));
}

static double unpack_f16(uint16_t h)
{
    int exp = h >> 10 & 31, man = h & 1023;
    double v = exp == 31 ? (man ? NAN : INFINITY) : exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);
    return h >> 15 ? -v : v;
}

static double unpack_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

double wf_load_f64(WfDtype t, const void *p)
{
    uint16_t h;
    float f;
    double d;
    switch (t) {
    case WF_F32: memcpy(&f, p, 4); return f;
    case WF_F64: memcpy(&d, p, 8); return d;
    case WF_F16: memcpy(&h, p, 2); return unpack_f16(h);
    case WF_BF16: memcpy(&h, p, 2); return unpack_bf16(h);
    default: return (double)wf_load_i64(t, p);
    }
}

static int64_t truncate(double v)
{
    if (isnan(v))
        return 0;
    if (v >= 9223372036854775808.0)
        return INT64_MAX;
    if (v < -9223372036854775808.0)
        return INT64_MIN;
    return (int64_t)v;
}

int64_t wf_load_i64(WfDtype t, const void *p)
{
    int64_t i64;
    int32_t i32;
    int16_t i16;
    switch (t) {
    case WF_I64: memcpy(&i64, p, 8); return i64;
    case WF_I32: memcpy(&i32, p, 4); return i32;
    case WF_I16: memcpy(&i16, p, 2); return i16;
    case WF_I8: return *(const int8_t *)p;
    case WF_U8: return *(const uint8_t *)p;
    case WF_BOOL: return *(const uint8_t *)p != 0;
    case WF_F32: case WF_F64: case WF_F16: case WF_BF16: return truncate(wf_load_f64(t, p));
    default: return 0;
    }
}

void wf_store_f64(WfDtype t, void *p, double v)
{
    uint16_t h;
    float f;
    switch (t) {
    case WF_F32: f = (float)v; memcpy(p, &f, 4); break;
    case WF_F64: memcpy(p, &v, 8); break;
    case WF_F16: h = pack_float(v, 5, 10); memcpy(p, &h, 2); break;
    case WF_BF16: h = pack_float(v, 8, 7); memcpy(p, &h, 2); break;
    case WF_BOOL: *(uint8_t *)p = v != 0; break;
    default: wf_store_i64(t, p, truncate(v)); break;
    }
}

/* A double that rounds to any shorter format as v itself would: beyond 53 bits the lost ones are kept as one
 * sticky bit below the precision of every format that this is used for. */
static double sticky_double(int64_t v)
{
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    if (u >> 53)
        u = (u & ~2047ull) | (u & 2047 ? 2048 : 0);
    return v < 0 ? -(double)u : (double)u;
}

void wf_store_i64(WfDtype t, void *p, int64_t v)
{
    int32_t i32;
    int16_t i16;
    double d;
    float f;
    switch (t) {
    case WF_F32: f = (float)v; memcpy(p, &f, 4); break;
    case WF_F64: d = (double)v; memcpy(p, &d, 8); break;
    case WF_F16: case WF_BF16: wf_store_f64(t, p, sticky_double(v)); break;
    case WF_I64: memcpy(p, &v, 8); break;
    case WF_I32: i32 = (int32_t)v; memcpy(p, &i32, 4); break;
    case WF_I16: i16 = (int16_t)v; memcpy(p, &i16, 2); break;
    case WF_I8: *(int8_t *)p = (int8_t)v; break;
    case WF_U8: *(uint8_t *)p = (uint8_t)v; break;
    case WF_BOOL: *(uint8_t *)p = v != 0; break;
    default: break;
    }
}
