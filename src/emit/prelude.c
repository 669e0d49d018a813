/* The prelude of generated C: vector types and the small functions that kernels call. Only the snippets that a kernel
 * names are written before it, since every line costs compile time; nothing is included from the system.
 *
 * Class suffixes: f 16 floats, d 16 doubles, i 16 int32, l 16 int64; truth values are int32 0 or -1. Storage types are
 * the dtypes' names. In templates @S is the storage dtype, @C the class, @E the element type of the class. */
#include "emit/emit.h"
#include "emit/math.h"

#include <string.h>

typedef struct { const char *name, *text; } Snippet;

#define FN "static inline __attribute__((always_inline)) "

/* One per storage dtype. */
static const Snippet by_dtype[] = {
    {"ld_", FN "v@C ld_@S(const t_@S *p) { return @L(*(const u_@S *)p); }\n"},
    {"ldp_", FN "v@C ldp_@S(const t_@S *p, int m) { u_@S x = {0}; __builtin_memcpy(&x, p, (unsigned long)m * "
             "sizeof *p); return @L(x); }\n"},
    {"lds_", FN "v@C lds_@S(const t_@S *p, long step, int m) { u_@S x = {0}; for (int l = 0; l < m; l++) x[l] = "
             "p[l * step]; return @L(x); }\n"},
    {"get_", FN "@E get_@S(const t_@S *p) { return @G(*p); }\n"},
    {"splat_", FN "v@C splat_@S(t_@S x) { return splat_@C(@G(x)); }\n"},
    {"st_", FN "void st_@S(t_@S *p, v@C x) { *(u_@S *)p = @W(x); }\n"},
    {"stp_", FN "void stp_@S(t_@S *p, v@C x, int m) { u_@S y = @W(x); __builtin_memcpy(p, &y, (unsigned long)m * "
             "sizeof *p); }\n"},
    {"put_", FN "void put_@S(t_@S *p, @E x) { *p = @P(x); }\n"},
    {"t_", "typedef @T t_@S;\n"},
    {"u_", "typedef @T u_@S __attribute__((vector_size(16 * sizeof(@T)), aligned(@A), may_alias));\n"},
    {"wrap_", FN "vi wrap_@S(vi x) { typedef @T n __attribute__((vector_size(16 * sizeof(@T)))); return "
              "__builtin_convertvector(__builtin_convertvector(x, n), vi); }\n"},
};

/* One per class. */
static const Snippet by_class[] = {
    {"v", "typedef @E v@C __attribute__((vector_size(16 * sizeof(@E))));\n"},
    {"splat_", FN "v@C splat_@C(@E x) { return (v@C){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }\n"},
    {"zero_", FN "v@C zero_@C(void) { return (v@C){0}; }\n"},
    {"iota_", FN "v@C iota_@C(void) { return (v@C){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }\n"},
    {"sel_", FN "v@C sel_@C(vi k, v@C a, v@C b) { @M c = @K(k); return (v@C)((c & (@M)a) | (~c & (@M)b)); }\n"},
    {"mask_", FN "vi mask_@C(@M k) { return __builtin_convertvector(k, vi); }\n"},
    {"abs_", FN "v@C abs_@C(v@C x) { @M k = x < 0; return (v@C)((k & (@M)-x) | (~k & (@M)x)); }\n"},
    {"sign_", FN "v@C sign_@C(v@C x) { return __builtin_convertvector((x < 0) - (x > 0), v@C); }\n"},
    /* NaN in either operand is the result. */
    {"max_", FN "v@C max_@C(v@C a, v@C b) { @M k = (a > b) | (a != a); return (v@C)((k & (@M)a) | (~k & (@M)b)); }\n"},
    {"min_", FN "v@C min_@C(v@C a, v@C b) { @M k = (a < b) | (a != a); return (v@C)((k & (@M)a) | (~k & (@M)b)); }\n"},
    /* The fixed tree over the 16 lanes: 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
    {"hsum_", FN "@E hsum_@C(v@C x) { for (int n = 8; n; n /= 2) for (int l = 0; l < n; l++) x[l] = x[l] + x[l + n]; "
              "return x[0]; }\n"},
    {"hprod_", FN "@E hprod_@C(v@C x) { for (int n = 8; n; n /= 2) for (int l = 0; l < n; l++) x[l] = x[l] * x[l + n]; "
               "return x[0]; }\n"},
    {"hamax_", FN "@E hamax_@C(v@C x) { @E r = x[0]; for (int l = 1; l < 16; l++) if (!(r != r) && !(x[l] <= r)) r = "
               "x[l]; return r; }\n"},
    {"hamin_", FN "@E hamin_@C(v@C x) { @E r = x[0]; for (int l = 1; l < 16; l++) if (!(r != r) && !(x[l] >= r)) r = "
               "x[l]; return r; }\n"},
    /* Best value and its position by lane; the first NaN, else the first extremum, wins. */
    {"argmax_", FN "void argmax_@C(v@C *r, vl *p, v@C x, vl at, int m) { vi k = @N((x > *r) | ((x != x) & (*r == *r))); k "
                "= (k | __builtin_convertvector(*p < 0, vi)) & (iota_i() < m); *r = sel_@C(k, x, *r); *p = sel_l(k, at, *p); "
                "}\n"},
    {"argmin_", FN "void argmin_@C(v@C *r, vl *p, v@C x, vl at, int m) { vi k = @N((x < *r) | ((x != x) & (*r == *r))); k "
                "= (k | __builtin_convertvector(*p < 0, vi)) & (iota_i() < m); *r = sel_@C(k, x, *r); *p = sel_l(k, at, *p); "
                "}\n"},
    {"hargmax_", FN "long hargmax_@C(v@C r, vl p) { int b = 0; for (int l = 1; l < 16; l++) { if (p[l] < 0) continue; int "
                 "nb = r[b] != r[b], nl = r[l] != r[l]; if (nl != nb ? nl : nl || r[l] == r[b] ? p[l] < p[b] : r[l] > "
                 "r[b]) b = l; } return p[b]; }\n"},
    {"hargmin_", FN "long hargmin_@C(v@C r, vl p) { int b = 0; for (int l = 1; l < 16; l++) { if (p[l] < 0) continue; int "
                 "nb = r[b] != r[b], nl = r[l] != r[l]; if (nl != nb ? nl : nl || r[l] == r[b] ? p[l] < p[b] : r[l] < "
                 "r[b]) b = l; } return p[b]; }\n"},
    {"div_", FN "v@C div_@C(v@C a, v@C b) { v@C r; for (int l = 0; l < 16; l++) r[l] = b[l] == 0 ? 0 : b[l] == -1 ? "
             "(@E)(0 - (unsigned @E)a[l]) : a[l] / b[l]; return r; }\n"},
    {"rem_", FN "v@C rem_@C(v@C a, v@C b) { v@C r; for (int l = 0; l < 16; l++) r[l] = b[l] == 0 || b[l] == -1 ? 0 : "
             "a[l] % b[l]; return r; }\n"},
    {"shl_", FN "v@C shl_@C(v@C a, v@C b) { v@C r; for (int l = 0; l < 16; l++) r[l] = b[l] < 0 || b[l] >= 8 * "
             "(int)sizeof(@E) ? 0 : (@E)((unsigned @E)a[l] << b[l]); return r; }\n"},
    {"shr_", FN "v@C shr_@C(v@C a, v@C b) { v@C r; for (int l = 0; l < 16; l++) r[l] = b[l] < 0 || b[l] >= 8 * "
             "(int)sizeof(@E) ? (a[l] < 0 ? -1 : 0) : a[l] >> b[l]; return r; }\n"},
};

static const Snippet plain[] = {
    /* Partial sums of a long sum: added to the sum so far, with what the addition rounds off kept beside it. What
     * infinities and NaN leave there counts for nothing. */
    {"aside_f", FN "void aside_f(vf *sum, vf *lost, vf *part) { vf s = *sum + *part, b = s - *sum; *lost += (*sum - (s - "
                "b)) + (*part - b); *sum = s; *part = splat_f(0); }\n"},
    {"joined_f", FN "vf joined_f(vf sum, vf lost, vf part) { aside_f(&sum, &lost, &part); return sum + sel_f(lost == lost, "
                 "lost, part); }\n"},
    {"hamax_b", FN "int hamax_b(vi x) { int r = 0; for (int l = 0; l < 16; l++) r |= x[l]; return r; }\n"},
    {"hamin_b", FN "int hamin_b(vi x) { int r = -1; for (int l = 0; l < 16; l++) r &= x[l]; return r; }\n"},
    {"cvt_ff", FN "vf cvt_ff(vf x) { return x; }\n"},
    {"cvt_ll", FN "vl cvt_ll(vl x) { return x; }\n"},
    {"cvt_ii", FN "vi cvt_ii(vi x) { return x; }\n"},
    {"cvt_dd", FN "vd cvt_dd(vd x) { return x; }\n"},
    {"round_bf16", FN "vf round_bf16(vf x) { vi b = (vi)x, r = b + 0x7fff + ((b >> 16) & 1), n = x != x; b = (n & (b | "
                   "0x400000)) | (~n & r); return (vf)(b & (int)0xffff0000); }\n"},
    {"philox_f",
     /* Philox4x32-10 (Salmon et al., 2011), one counter an element; the top 24 bits of the first word. The counter
      * holds the element, the low word of the step, and in one word the rest of the step (12 bits) and the iteration. */
     FN "vf philox_f(long seed, long step, long iteration, long stream, vl at) { typedef unsigned vu __attribute__((vector_size(64))); "
        "typedef unsigned long vw __attribute__((vector_size(128))); vu k0 = (vu)splat_i((int)seed), k1 = "
        "(vu)splat_i((int)(((unsigned long)seed >> 32) ^ ((unsigned long)stream * 0x9E3779B9UL))); vu c0 = "
        "__builtin_convertvector((vw)at, vu), c1 = __builtin_convertvector((vw)at >> 32, vu), c2 = "
        "(vu)splat_i((int)step), c3 = (vu)splat_i((int)(((unsigned long)step >> 32) ^ ((unsigned long)iteration << 12))); "
        "for (int r = 0; r < 10; r++) {\n"
        "#if defined(__AVX512F__) && !defined(__clang__)\n"
        /* gcc would multiply 64 by 64 bits, in three instructions. Even lanes and odd ones apart. */
        "typedef unsigned long vq __attribute__((vector_size(64))); typedef long long q8 __attribute__((vector_size(64))); const vq high = "
        "(vq){0} + 0xffffffff00000000UL;\n"
        "#define TIMES(x, k) (vq)__builtin_ia32_pmuludq512_mask((vi)(x), splat_i((int)k), (q8){0}, 255)\n"
        "vq a = TIMES(c0, 0xD2511F53U), b = TIMES(c2, 0xCD9E8D57U), c = TIMES((vq)c0 >> 32, 0xD2511F53U), d = TIMES((vq)c2 >> 32, "
        "0xCD9E8D57U);\n"
        "vu n0 = (vu)((b >> 32) | (d & high)) ^ c1 ^ k0, n1 = (vu)((b & ~high) | (d << 32)), n2 = (vu)((a >> 32) | (c & high)) ^ c3 ^ k1, "
        "n3 = (vu)((a & ~high) | (c << 32));\n"
        "#undef TIMES\n"
        "#else\n"
        "vw a = __builtin_convertvector(c0, vw) * 0xD2511F53UL, b = __builtin_convertvector(c2, vw) * 0xCD9E8D57UL; vu n0 = "
        "__builtin_convertvector(b >> 32, vu) ^ c1 ^ k0, n1 = __builtin_convertvector(b, vu), n2 = "
        "__builtin_convertvector(a >> 32, vu) ^ c3 ^ k1, n3 = __builtin_convertvector(a, vu);\n"
        "#endif\n"
        "c0 = n0, c1 = n1, c2 = n2, c3 = n3; k0 += 0x9E3779B9U, k1 += 0xBB67AE85U; } return __builtin_convertvector((vi)(c0 >> 8), vf) * "
        "0x1p-24f; }\n"},
    {"wf_floordiv", NULL}, /* the last four: from base's expression printer */
    {"wf_mod", NULL},
    {"wf_min", NULL},
    {"wf_max", NULL},
};

static const struct { const char *dtype, *type, *align; char cls; const char *load, *get, *pack, *put; } dtypes[] = {
    {"f32", "float", "4", 'f', "", "", "", ""},
    {"f64", "double", "8", 'd', "", "", "", ""},
    {"i64", "long", "8", 'l', "", "", "", ""},
    {"i32", "int", "4", 'i', "", "", "", ""},
    {"i16", "short", "2", 'i', "widen_i16", "", "narrow_i16", ""},
    {"i8", "signed char", "1", 'i', "widen_i8", "", "narrow_i8", ""},
    {"u8", "unsigned char", "1", 'i', "widen_u8", "", "narrow_u8", ""},
    {"bool", "unsigned char", "1", 'i', "widen_bool", "truth", "narrow_bool", "untruth"},
    {"bf16", "unsigned short", "2", 'f', "widen_bf16", "float_bf16", "narrow_bf16", "pack_bf16"},
    {"f16", "unsigned short", "2", 'f', "widen_f16", "float_f16", "narrow_f16", "pack_f16"},
};

static const Snippet convert[] = {
    {"widen_i16", FN "vi widen_i16(u_i16 x) { return __builtin_convertvector(x, vi); }\n"},
    {"widen_i8", FN "vi widen_i8(u_i8 x) { return __builtin_convertvector(x, vi); }\n"},
    {"widen_u8", FN "vi widen_u8(u_u8 x) { return __builtin_convertvector(x, vi); }\n"},
    {"widen_bool", FN "vi widen_bool(u_bool x) { return __builtin_convertvector(x, vi) != 0; }\n"},
    {"narrow_i16", FN "u_i16 narrow_i16(vi x) { return __builtin_convertvector(x, u_i16); }\n"},
    {"narrow_i8", FN "u_i8 narrow_i8(vi x) { return __builtin_convertvector(x, u_i8); }\n"},
    {"narrow_u8", FN "u_u8 narrow_u8(vi x) { return __builtin_convertvector(x, u_u8); }\n"},
    {"narrow_bool", FN "u_bool narrow_bool(vi x) { return __builtin_convertvector(x & 1, u_bool); }\n"},
    {"truth", FN "int truth(unsigned char x) { return -(x != 0); }\n"},
    {"untruth", FN "unsigned char untruth(int x) { return x & 1; }\n"},
    {"widen_bf16", FN "vf widen_bf16(u_bf16 x) { return (vf)(__builtin_convertvector(x, vi) << 16); }\n"},
    {"float_bf16", FN "float float_bf16(unsigned short x) { return splat_bits((int)((unsigned)x << 16)); }\n"},
    {"splat_bits", FN "float splat_bits(int x) { float f; __builtin_memcpy(&f, &x, 4); return f; }\n"},
    {"narrow_bf16",
     FN "u_bf16 narrow_bf16(vf x) { return __builtin_convertvector((vi)round_bf16(x) >> 16, u_bf16); }\n"},
    {"pack_bf16", FN "unsigned short pack_bf16(float x) { return narrow_bf16(splat_f(x))[0]; }\n"},
    {"float_f16", FN "float float_f16(unsigned short h) { int e = h >> 10 & 31, m = h & 1023, s = (h & 0x8000) << 16; if "
                  "(e == 31) return splat_bits(s | 0x7f800000 | m << 13); if (e) return splat_bits(s | (e + 112) << 23 | "
                  "m << 13); float f = (float)m * 0x1p-24f; return s ? -f : f; }\n"},
    {"widen_f16", FN "vf widen_f16(u_f16 x) { vf r; for (int l = 0; l < 16; l++) r[l] = float_f16(x[l]); return r; }\n"},
    {"pack_f16",
     FN "unsigned short pack_f16(float x) { int b; __builtin_memcpy(&b, &x, 4); int s = b >> 16 & 0x8000; b &= "
        "0x7fffffff; if (b > 0x7f800000) return (unsigned short)(s | 0x7e00); if (b >= 0x477ff000) return (unsigned "
        "short)(s | 0x7c00); if (b < 0x38800000) { float f; __builtin_memcpy(&f, &b, 4); f = f * 0x1p24f; int m = "
        "(int)f; float r = f - (float)m; m += r > 0.5f || (r == 0.5f && (m & 1)); return (unsigned short)(s | m); } int "
        "r = b + 0xfff + (b >> 13 & 1) - 0x38000000; return (unsigned short)(s | r >> 13); }\n"},
    {"narrow_f16",
     FN "u_f16 narrow_f16(vf x) { u_f16 r; for (int l = 0; l < 16; l++) r[l] = pack_f16(x[l]); return r; }\n"},
    {"round_f16", FN "vf round_f16(vf x) { return widen_f16(narrow_f16(x)); }\n"},
};

static const struct { char cls; const char *elem, *mask, *widen, *narrow; } classes[] = {
    {'f', "float", "vi", "", ""}, {'d', "double", "vl", "mask_wide", "mask_d"}, {'i', "int", "vi", "", ""},
    {'l', "long", "vl", "mask_wide", "mask_l"}};

static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/* Writes a template with the placeholders of one dtype or class filled in. */
static char *fill(WfArena *a, const char *t, int dtype, int cls)
{
    WfStr s = {.arena = a};
    for (; *t; t++) {
        if (*t != '@') {
            wf_str_putc(&s, *t);
            continue;
        }
        switch (*++t) {
        case 'S': wf_str_puts(&s, dtypes[dtype].dtype); break;
        case 'T': wf_str_puts(&s, dtypes[dtype].type); break;
        case 'A': wf_str_puts(&s, dtypes[dtype].align); break;
        case 'L': wf_str_puts(&s, *dtypes[dtype].load ? dtypes[dtype].load : "(v@)"); break;
        case 'G': wf_str_puts(&s, dtypes[dtype].get); break;
        case 'W': wf_str_puts(&s, *dtypes[dtype].pack ? dtypes[dtype].pack : "(u@)"); break;
        case 'P': wf_str_puts(&s, *dtypes[dtype].put ? dtypes[dtype].put : "(p@)"); break;
        case 'C': wf_str_putc(&s, classes[cls].cls); break;
        case 'E': wf_str_puts(&s, classes[cls].elem); break;
        case 'M': wf_str_puts(&s, classes[cls].mask); break;
        case 'K': wf_str_puts(&s, classes[cls].widen); break;
        case 'N': wf_str_puts(&s, classes[cls].narrow); break;
        default: break;
        }
        if (s.n >= 2 && s.at[s.n - 2] == '@') { /* "(v@)": a plain cast to the class's or dtype's type */
            char what = s.at[s.n - 3];
            s.n -= 2;
            s.at[s.n] = 0;
            if (what == 'v')
                wf_str_printf(&s, "%c)", classes[cls].cls);
            else if (what == 'u')
                wf_str_printf(&s, "_%s)", dtypes[dtype].dtype);
            else {
                s.n -= 1;
                s.at[s.n] = 0;
                wf_str_printf(&s, "t_%s)", dtypes[dtype].dtype);
            }
        }
    }
    return s.at;
}

static int class_index(char c)
{
    for (int i = 0; i < 4; i++)
        if (classes[i].cls == c)
            return i;
    return -1;
}

/* The text that defines `name`, or NULL when it is no snippet. */
static const char *definition(WfArena *a, const char *name)
{
    for (size_t i = 0; i < WF_LEN(plain); i++)
        if (!strcmp(plain[i].name, name))
            return plain[i].text ? plain[i].text : wf_expr_c_prelude;
    for (size_t i = 0; i < WF_LEN(convert); i++)
        if (!strcmp(convert[i].name, name))
            return convert[i].text;
    const char *math = wf_math_snippet(name);
    if (math)
        return math;
    if (!strcmp(name, "mask_wide"))
        return FN "vl mask_wide(vi k) { return __builtin_convertvector(k, vl); }\n";
    if (!strncmp(name, "cvt_", 4) && strlen(name) == 6) {
        char from = name[4], to = name[5];
        const char *op = from == 'b' ? "-x" : "x";
        char fs = from == 'b' ? 'i' : from, ts = to == 'b' ? 'i' : to;
        if (to == 'b' && (from == 'd' || from == 'l'))
            return wf_arena_printf(a, FN "vi cvt_%cb(v%c x) { return __builtin_convertvector(x != 0, vi); }\n", from, fs);
        if (to == 'b')
            return wf_arena_printf(a, FN "vi cvt_%cb(v%c x) { return x != 0; }\n", from, fs);
        return wf_arena_printf(a, FN "v%c cvt_%c%c(v%c x) { return __builtin_convertvector(%s, v%c); }\n", ts, from, to,
                               fs, op, ts);
    }
    for (size_t i = 0; i < WF_LEN(by_dtype); i++) {
        size_t n = strlen(by_dtype[i].name);
        for (size_t d = 0; !strncmp(name, by_dtype[i].name, n) && d < WF_LEN(dtypes); d++)
            if (!strcmp(name + n, dtypes[d].dtype))
                return fill(a, by_dtype[i].text, (int)d, class_index(dtypes[d].cls));
    }
    for (size_t i = 0; i < WF_LEN(by_class); i++) {
        size_t n = strlen(by_class[i].name);
        if (!strncmp(name, by_class[i].name, n) && strlen(name) == n + 1 && class_index(name[n]) >= 0)
            return fill(a, by_class[i].text, 0, class_index(name[n]));
    }
    return NULL;
}

/* Writes the definitions that text needs, dependencies first. */
static void need(WfStr *out, WfMap *done, const char *text)
{
    char word[64];
    for (const char *p = text; *p;) {
        if (!letter(*p) || (*p >= '0' && *p <= '9')) {
            p++;
            continue;
        }
        const char *b = p;
        while (letter(*p))
            p++;
        size_t n = (size_t)(p - b);
        if (n >= sizeof word)
            continue;
        memcpy(word, b, n);
        word[n] = 0;
        if (wf_map_get(done, word, NULL))
            continue;
        const char *d = definition(out->arena, word);
        if (!d)
            continue;
        wf_map_put(done, word, 1);
        if (!strcmp(d, wf_expr_c_prelude)) { /* one text for four names */
            for (const char *const *f = (const char *const[]){"wf_floordiv", "wf_mod", "wf_min", "wf_max", NULL}; *f; f++)
                wf_map_put(done, *f, 1);
        }
        need(out, done, d);
        wf_str_puts(out, d);
    }
}

void wf_emit_prelude(WfStr *out, const char *text)
{
    need(out, wf_map_new(out->arena), text);
}
