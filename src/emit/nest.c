/* From a loop nest to C. The nest's loops are put into memory order, neighbours that every address walks together are
 * merged, and one loop becomes the vector loop: the fastest reduced one (row kernels), or a kept one (pointwise and
 * column kernels). Tiles of the kept loops are the unit of parallel work. Each reduction ends a *pass* over the
 * reduced loops; what depends on its result is computed in a later pass.
 *
 * Every value is a vector of 16 lanes. An instance of a node is (node, index): its text goes to the outermost scope
 * where all loops it depends on are open, so that whatever does not vary in the vector loop is computed outside. The
 * vector loop's text is written twice when its extent is no multiple of 16: with whole vectors and with `m` lanes. */
#include "emit/emit.h"
#include "fuse/fuse.h"

#include <math.h>
#include <string.h>

#define LANES 16
#define MAX_GUARDS 12
#define MAX_CUTS 8
#define MAX_ACC 64
#define WIDE 8               /* most vectors side by side in a tile of a column kernel */
#define BLOCK 4096           /* elements of a tile of a flat pointwise kernel */
#define CHAIN 64             /* float32 additions in a row, then the partial sum is put aside */

typedef enum { C_F, C_D, C_I, C_L, C_B } Class;   /* f32, f64, int32, int64 lanes; truth values (int32 0, -1) */
static const char suffix[] = {'f', 'd', 'i', 'l', 'i'};

typedef struct { WfDim value, lo, hi; } Guard;
typedef struct { Guard at[MAX_GUARDS]; int n; } Guards;

typedef struct { WfDim var, size; bool reduced; int depth; char name[12]; WfDim weight; } Loop;
typedef struct { int id; Class cls; int depth; } Val;  /* C variable v<id> */

typedef struct { WfDim addr; int pass; bool guarded; } Access;
typedef struct { WfVal v; WfDim addr; bool full; int stage; } Out;

typedef struct {
    WfGraph *g;              /* the body */
    WfExprs *e;
    WfArena *a;
    Loop loop[WF_MAX_RANK];
    int n_loops;
    int vec;                 /* index of the vector loop; -1: none (every loop has size 1) */
    bool column;             /* the vector loop is kept and reductions run inside */
    int rank;                /* original loops */
    WfDim shape[WF_MAX_RANK], var[WF_MAX_RANK];
    WfDim row_shape[WF_MAX_RANK], row_ix[WF_MAX_RANK];
    int row_rank;
    uint32_t reduced;
    int n_from;              /* merged loops: from[i] stands for to[i] */
    WfDim from[WF_MAX_RANK], to[WF_MAX_RANK];
    int *stage;              /* by value */
    Out out[64];
    int n_out, n_pass;
    const int *symbols;
    int n_symbols;
    /* text */
    WfStr head, tile, *scope[WF_MAX_RANK + 3];
    int deepest;
    bool tail;
    int pass;
    int next;
    WfMap *cache[WF_MAX_RANK + 3];   /* by depth */
    struct { int id; int depth; Val val; WfDim sym; } data[256];
    int n_data;
    WF_VEC(WfNodeId) checks;
    struct { WF_VEC(Access) at; } *loads;    /* by input */
    WfMap *reductions;       /* value -> Val of its result, ... */
    WfMap *each[WIDE];       /* ... by vector of a wide tile */
    WF_VEC(WfDim) touched;   /* dry run: every address, guard and index expression */
    WF_VEC(Guard) guards;    /* dry run: every bound of a padding or a join */
    bool dry;
    int64_t cut[MAX_CUTS];   /* where the vector loop is cut so that bounds hold or fail for whole pieces of it */
    int n_cut;
    int64_t lo, hi;          /* the piece whose text is written; hi 0: no such piece */
    int wide;                /* column kernels: vectors side by side in a tile */
    int flush, flush_every;  /* the loop that puts partial sums aside, after how many turns; -1: none does */
} Em;

static Class class_of(WfDtype t)
{
    switch (t) {
    case WF_F64: return C_D;
    case WF_I64: return C_L;
    case WF_BOOL: return C_B;
    case WF_I32: case WF_I16: case WF_I8: case WF_U8: return C_I;
    default: return C_F;
    }
}

/* ---- expressions as C text ---- */

static const char *symbol_name(void *user, int id)
{
    Em *m = user;
    WfDim sym = wf_esym_at(m->e, id);
    for (int i = 0; i < m->n_loops; i++)
        if (m->loop[i].var == sym)
            return m->loop[i].name;
    for (int i = 0; i < m->n_data; i++)
        if (m->data[i].sym == sym)
            return wf_arena_printf(m->a, m->data[i].val.depth == m->deepest + 100 ? "d%d[l]" : "d%d", m->data[i].id);
    for (int i = 0; i < m->n_symbols; i++)
        if (m->symbols[i] == id)
            return wf_arena_printf(m->a, "s[%d]", WF_S_SYMBOLS + i);
    wf_fail(m->g->ctx, WEFT_ERR_INTERNAL, "a kernel depends on unknown symbol %s", wf_esym_name(m->e, id));
}

static WfDim merged(Em *m, WfDim d)
{
    return m->n_from ? wf_esubst_all(m->e, d, m->n_from, m->from, m->to) : d;
}

static void put(Em *m, WfStr *s, WfDim d) { wf_eprint_c(m->e, d, s, symbol_name, m); }

static char *text(Em *m, WfDim d)
{
    WfStr s = {.arena = m->a};
    put(m, &s, d);
    return s.at;
}

static bool lane_data(Em *m, WfDim d) /* depends on an index vector read from data */
{
    for (int i = 0; i < m->n_data; i++)
        if (m->data[i].val.depth == m->deepest + 100 && wf_edepends(m->e, d, m->data[i].sym))
            return true;
    return false;
}

static bool on_vector(Em *m, WfDim d)
{
    return (m->vec >= 0 && wf_edepends(m->e, d, m->loop[m->vec].var)) || lane_data(m, d);
}

static int depth_of(Em *m, WfDim d)
{
    int depth = 0;
    for (int i = 0; i < m->n_loops; i++)
        if (m->loop[i].depth > depth && wf_edepends(m->e, d, m->loop[i].var))
            depth = m->loop[i].depth;
    for (int i = 0; i < m->n_data; i++)
        if (wf_edepends(m->e, d, m->data[i].sym)) {
            int dd = m->data[i].val.depth >= m->deepest + 100 ? m->data[i].depth : m->data[i].val.depth;
            depth = dd > depth ? dd : depth;
        }
    return depth;
}

static WfStr *at(Em *m, int depth) { return m->scope[depth]; }
static const char *lanes(const Em *m) { return m->tail ? "m" : "16"; }

/* ---- values ---- */

static Val fresh(Em *m, Class c, int depth) { return (Val){m->next++, c, depth}; }

static void define(Em *m, Val v, const char *fmt, ...) WF_PRINTF(3, 4);
static void define(Em *m, Val v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    wf_str_printf(at(m, v.depth), "v%c v%d = %s;\n", suffix[v.cls], v.id, wf_arena_vprintf(m->a, fmt, ap));
    va_end(ap);
}

static int guards_depth(Em *m, const Guards *gd)
{
    int depth = 0;
    for (int i = 0; i < gd->n; i++) {
        int d = depth_of(m, gd->at[i].value), lo = depth_of(m, gd->at[i].lo), hi = depth_of(m, gd->at[i].hi);
        depth = d > depth ? d : depth;
        depth = lo > depth ? lo : depth;
        depth = hi > depth ? hi : depth;
    }
    return depth;
}

/* C condition of the guards; `where` replaces the vector variable (NULL: itself). on: only guards that vary (1) or do
 * not vary (0) in the vector loop; 2: all. */
static char *condition(Em *m, const Guards *gd, int on, const char *where)
{
    WfStr s = {.arena = m->a};
    char saved[12];
    if (where && m->vec >= 0) {
        memcpy(saved, m->loop[m->vec].name, sizeof saved);
        snprintf(m->loop[m->vec].name, sizeof saved, "%s", where);
    }
    for (int i = 0; i < gd->n; i++) {
        WfDim v = gd->at[i].value;
        if (on != 2 && on_vector(m, v) != (on == 1))
            continue;
        wf_str_puts(&s, s.n ? " && " : "");
        int64_t lo, a, b;
        bool low = wf_elit(m->e, gd->at[i].lo, &lo) && wf_erange(m->e, v, &a, &b) && a >= lo;
        if (low) {
            wf_str_printf(&s, "%s < %s", text(m, v), text(m, gd->at[i].hi));
        } else {
            wf_str_printf(&s, "%s >= %s && ", text(m, v), text(m, gd->at[i].lo));
            wf_str_printf(&s, "%s < %s", text(m, v), text(m, gd->at[i].hi));
        }
    }
    if (where && m->vec >= 0)
        memcpy(m->loop[m->vec].name, saved, sizeof saved);
    if (!s.n)
        wf_str_putc(&s, '1');
    return s.at;
}

/* Do all varying guards move linearly with the vector loop, so that its end lanes decide? */
static bool monotonic(Em *m, const Guards *gd)
{
    for (int i = 0; i < gd->n; i++) {
        WfDim c, r;
        if (!on_vector(m, gd->at[i].value))
            continue;
        if (lane_data(m, gd->at[i].value) || !wf_elinear(m->e, gd->at[i].value, m->loop[m->vec].var, &c, &r) ||
            on_vector(m, gd->at[i].lo) || on_vector(m, gd->at[i].hi))
            return false;
    }
    return true;
}

/* Can a value of this scope differ between lanes? */
static bool may_vary(const Em *m, int depth) { return m->column ? depth >= 1 : depth == m->deepest; }

static const char *vname(const Em *m) { return m->vec >= 0 ? m->loop[m->vec].name : "0"; }

/* for each lane l with vector variable vv: statement */
static void lane_loop(Em *m, WfStr *s, const char *cond, const char *fmt, ...) WF_PRINTF(4, 5);
static void lane_loop(Em *m, WfStr *s, const char *cond, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    wf_str_printf(s, "for (int l = 0; l < %s; l++) { long vv = %s + l; (void)vv; if (%s) %s; }\n", lanes(m), vname(m),
                  cond ? cond : "1", wf_arena_vprintf(m->a, fmt, ap));
    va_end(ap);
}

static char *text_vv(Em *m, WfDim d) /* with vv for the vector variable */
{
    if (m->vec < 0)
        return text(m, d);
    char saved[12];
    memcpy(saved, m->loop[m->vec].name, sizeof saved);
    snprintf(m->loop[m->vec].name, sizeof saved, "vv");
    char *t = text(m, d);
    memcpy(m->loop[m->vec].name, saved, sizeof saved);
    return t;
}

static void touch(Em *m, WfDim d)
{
    if (m->dry)
        WF_PUSH(m->a, &m->touched, d);
}

/* ---- loads ---- */

static Val load(Em *m, WfVal v, const WfDim *ix, const Guards *gd)
{
    const WfInput *in = wf_input_of(m->g, v);
    const WfValue *x = wf_value(m->g, v);
    int k = (int)(in - m->g->inputs.at);
    WfDim stride[WF_MAX_RANK], addr = 0;
    wf_memory_strides(m->g, v, stride);
    for (int i = 0; i < x->rank; i++)
        addr = wf_eadd(m->e, addr, wf_emul(m->e, ix[i], stride[i]));
    touch(m, addr);
    addr = merged(m, addr);
    int da = depth_of(m, addr), dg = guards_depth(m, gd), depth = da > dg ? da : dg;
    Val r = fresh(m, class_of(x->dtype), depth);
    if (!m->tail || m->hi)
        WF_PUSH(m->a, &m->loads[k].at, ((Access){addr, m->pass, gd->n > 0}));
    const char *dt = wf_dtype_name(x->dtype);
    char *uniform = condition(m, gd, 0, NULL);
    if (!on_vector(m, addr)) { /* one element for all lanes; varying guards are applied by the selection above it */
        if (gd->n)
            define(m, r, "%s ? splat_%s(a%d[%s]) : zero_%c()", uniform, dt, k, text(m, addr), suffix[r.cls]);
        else
            define(m, r, "splat_%s(a%d[%s])", dt, k, text(m, addr));
        return r;
    }
    WfDim coef = 0, rest = 0;
    bool linear = !lane_data(m, addr) && wf_elinear(m->e, addr, m->loop[m->vec].var, &coef, &rest) &&
                  !on_vector(m, coef);
    WfStr *s = at(m, depth);
    char *varying = condition(m, gd, 1, "vv");
    bool varies = strcmp(varying, "1");
    if (!linear || (varies && (!monotonic(m, gd) || coef != 1))) {
        define(m, r, "zero_%c()", suffix[r.cls]);
        wf_str_printf(s, "if (%s) ", uniform);
        lane_loop(m, s, varying, "v%d[l] = get_%s(a%d + %s)", r.id, dt, k, text_vv(m, addr));
        return r;
    }
    char *fast = coef == 1 ? wf_arena_printf(m->a, m->tail ? "ldp_%s(a%d + %s, m)" : "ld_%s(a%d + %s)", dt, k,
                                             text(m, addr))
                           : wf_arena_printf(m->a, "lds_%s(a%d + %s, %s, %s)", dt, k, text(m, addr), text(m, coef),
                                             lanes(m));
    if (!varies) {
        if (gd->n)
            define(m, r, "%s ? %s : zero_%c()", uniform, fast, suffix[r.cls]);
        else
            define(m, r, "%s", fast);
        return r;
    }
    char last[24];
    snprintf(last, sizeof last, "(%s+%s-1)", vname(m), lanes(m));
    define(m, r, "zero_%c()", suffix[r.cls]);
    wf_str_printf(s, "if (%s) { if (%s && %s) v%d = %s; else ", uniform, condition(m, gd, 1, NULL),
                  condition(m, gd, 1, last), r.id, fast);
    lane_loop(m, s, varying, "v%d[l] = get_%s(a%d + %s)", r.id, dt, k, text_vv(m, addr));
    wf_str_puts(s, "}\n");
    return r;
}

static Val eval(Em *m, WfVal v, const WfDim *ix, const Guards *gd);

/* ---- views ---- */

/* Mask of the guards that a view itself adds. */
static Val mask(Em *m, const Guards *own)
{
    int depth = guards_depth(m, own);
    Val k = fresh(m, C_B, depth);
    char *varying = condition(m, own, 1, "vv"), *uniform = condition(m, own, 0, NULL);
    if (!strcmp(varying, "1")) {
        define(m, k, "splat_i(-(%s))", uniform);
        return k;
    }
    if (monotonic(m, own)) {
        WfStr s = {.arena = m->a};
        for (int i = 0; i < own->n; i++) {
            WfDim c, r;
            if (!on_vector(m, own->at[i].value))
                continue;
            wf_elinear(m->e, own->at[i].value, m->loop[m->vec].var, &c, &r);
            char *value = wf_arena_printf(m->a, "(splat_i(%s) + splat_i(%s) * iota_i())", text(m, own->at[i].value),
                                          text(m, c));
            wf_str_printf(&s, "%s(%s >= splat_i(%s)) & ", s.n ? " & " : "", value, text(m, own->at[i].lo));
            wf_str_printf(&s, "(%s < splat_i(%s))", value, text(m, own->at[i].hi));
        }
        define(m, k, "splat_i(-(%s)) & %s", uniform, s.at);
        return k;
    }
    define(m, k, "zero_i()");
    wf_str_printf(at(m, depth), "if (%s) ", uniform);
    lane_loop(m, at(m, depth), varying, "v%d[l] = -1", k.id);
    return k;
}

static int max3(int a, int b, int c) { return a > b ? (a > c ? a : c) : b > c ? b : c; }

static char *literal(Em *m, double v, Class c)
{
    if (c == C_L || c == C_I || c == C_B) {
        if (v >= 9.2e18)
            return "0x7fffffffffffffffL";
        if (v <= -9.2e18)
            return "(-0x7fffffffffffffffL - 1)";
        return wf_arena_printf(m->a, "%lldL", (long long)(c == C_B ? -(v != 0) : (int64_t)v));
    }
    if (isnan(v))
        return c == C_F ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
    if (isinf(v))
        return v > 0 ? (c == C_F ? "__builtin_inff()" : "__builtin_inf()")
                     : (c == C_F ? "-__builtin_inff()" : "-__builtin_inf()");
    WfStr s = {.arena = m->a};
    wf_str_float(&s, c == C_F ? (double)(float)v : v);
    if (!strpbrk(s.at, ".en"))
        wf_str_puts(&s, ".0");
    return wf_arena_printf(m->a, "%s%s", s.at, c == C_F ? "f" : "");
}

static bool provable(Em *m, const Guard *g)
{
    return wf_eprove_le(m->e, g->lo, g->value) && wf_eprove_lt(m->e, g->value, g->hi);
}

/* A bound lo <= i + rest < hi on the vector variable i alone, as first <= i < end. */
static bool on_vector_only(Em *m, const Guard *g, int64_t *first, int64_t *end)
{
    int64_t c, rest, lo, hi;
    WfDim coef, other;
    if (m->vec < 0 || !wf_elinear(m->e, g->value, m->loop[m->vec].var, &coef, &other) || !wf_elit(m->e, coef, &c) ||
        c != 1 || !wf_elit(m->e, other, &rest) || !wf_elit(m->e, g->lo, &lo) || !wf_elit(m->e, g->hi, &hi))
        return false;
    *first = lo - rest, *end = hi - rest;
    return true;
}

/* 1: holds in the whole piece of the vector loop, 0: nowhere in it, -1: unknown. */
static int in_piece(Em *m, const Guard *g)
{
    int64_t first, end;
    if (!m->hi || !on_vector_only(m, g, &first, &end))
        return -1;
    return first <= m->lo && m->hi <= end ? 1 : m->hi <= first || end <= m->lo ? 0 : -1;
}

static Val view(Em *m, const WfNode *n, const WfDim *ix, const Guards *gd)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    Val acc = {0};
    for (int i = 0; i < k; i++) {
        WfIndex x = {.operand = i};
        memcpy(x.at, ix, sizeof x.at);
        n->op->index(m->g, n, &x);
        Guards inner = *gd, own = {.n = 0};
        bool nowhere = false;
        for (int j = 0; j < x.n_guards; j++) {
            Guard gg = {x.guard[j].value, x.guard[j].lo, x.guard[j].hi};
            touch(m, gg.value);
            if (m->dry)
                WF_PUSH(m->a, &m->guards, gg);
            gg.value = merged(m, gg.value);
            int known = in_piece(m, &gg);
            nowhere |= known == 0;
            if (known == 1 || provable(m, &gg))
                continue;
            if (inner.n == MAX_GUARDS)
                wf_fail_node(m->g, n, WEFT_ERR_UNSUPPORTED, "too many nested paddings in one kernel");
            inner.at[inner.n++] = own.at[own.n++] = gg;
        }
        if (nowhere) {
            if (i == 0) {
                acc = fresh(m, class_of(wf_value(m->g, n->out)->dtype), 0);
                define(m, acc, "splat_%c(%s)", suffix[acc.cls], literal(m, x.fill, acc.cls));
            }
            continue;
        }
        Val v = eval(m, in[i], x.at, &inner);
        if (!own.n) {
            acc = v;
            continue;
        }
        Val c = mask(m, &own);
        if (i == 0) {
            Val r = fresh(m, v.cls, max3(v.depth, c.depth, 0));
            define(m, r, "sel_%c(v%d, v%d, splat_%c(%s))", suffix[v.cls], c.id, v.id, suffix[v.cls],
                   literal(m, x.fill, v.cls));
            acc = r;
        } else {
            Val r = fresh(m, v.cls, max3(v.depth, c.depth, acc.depth));
            define(m, r, "sel_%c(v%d, v%d, v%d)", suffix[v.cls], c.id, v.id, acc.id);
            acc = r;
        }
    }
    return acc;
}

/* ---- sources, gathers, pointwise ---- */

/* An index expression as int64 lanes. */
static Val index_value(Em *m, WfDim d)
{
    touch(m, d);
    d = merged(m, d);
    Val r = fresh(m, C_L, depth_of(m, d));
    WfDim c, rest;
    if (!on_vector(m, d)) {
        define(m, r, "splat_l(%s)", text(m, d));
    } else if (!lane_data(m, d) && wf_elinear(m->e, d, m->loop[m->vec].var, &c, &rest) && !on_vector(m, c)) {
        define(m, r, "splat_l(%s) + splat_l(%s) * iota_l()", text(m, d), text(m, c));
    } else {
        define(m, r, "zero_l()");
        lane_loop(m, at(m, r.depth), NULL, "v%d[l] = %s", r.id, text_vv(m, d));
    }
    return r;
}

static bool small_index(Em *m, WfDim d)
{
    int64_t lo, hi;
    WfDim c, r, x = merged(m, d);
    return wf_erange(m->e, x, &lo, &hi) && lo >= 0 && hi < INT32_MAX &&
           (!on_vector(m, x) || (!lane_data(m, x) && wf_elinear(m->e, x, m->loop[m->vec].var, &c, &r) && !on_vector(m, c)));
}

/* An index expression that fits 32 bits, as int32 lanes: half the registers of index_value. */
static Val short_index(Em *m, WfDim d)
{
    touch(m, d);
    d = merged(m, d);
    Val r = fresh(m, C_I, depth_of(m, d));
    WfDim c, rest;
    if (!on_vector(m, d))
        define(m, r, "splat_i(%s)", text(m, d));
    else if (wf_elinear(m->e, d, m->loop[m->vec].var, &c, &rest))
        define(m, r, "splat_i(%s) + splat_i(%s) * iota_i()", text(m, d), text(m, c));
    return r;
}

static Val convert(Em *m, Val v, WfDtype from, WfDtype to)
{
    Class c = class_of(to);
    char code = "fdilb"[v.cls], want = "fdilb"[c];
    if (v.cls == c && (c != C_I || wf_dtype_size(to) >= wf_dtype_size(from)) && to != WF_BF16 && to != WF_F16)
        return v;
    Val r = fresh(m, c, v.depth);
    if (v.cls == c && c == C_F)
        define(m, r, "round_%s(v%d)", wf_dtype_name(to), v.id);
    else if (c == C_I && to != WF_I32)
        define(m, r, "wrap_%s(cvt_%c%c(v%d))", wf_dtype_name(to), code, want, v.id);
    else if (v.cls == c)
        define(m, r, "v%d", v.id);
    else if (to == WF_BF16 || to == WF_F16)
        define(m, r, "round_%s(cvt_%c%c(v%d))", wf_dtype_name(to), code, want, v.id);
    else
        define(m, r, "cvt_%c%c(v%d)", code, want, v.id);
    return r;
}

static Val source(Em *m, const WfNode *n, const WfDim *ix)
{
    const WfValue *y = wf_value(m->g, n->out);
    const char *name = n->schema->name + 5;
    if (!strcmp(name, "full")) {
        Val r = fresh(m, class_of(y->dtype), 0);
        double v;
        v = n->args[1].kind == WF_ARG_FLOAT ? n->args[1].f : (double)n->args[1].i;
        define(m, r, "splat_%c(%s)", suffix[r.cls], literal(m, v, r.cls));
        return r;
    }
    if (!strcmp(name, "iota") && y->dtype == WF_I32 && small_index(m, ix[n->args[1].i]))
        return short_index(m, ix[n->args[1].i]);
    if (!strcmp(name, "iota"))
        return convert(m, index_value(m, ix[n->args[1].i]), WF_I64, y->dtype);
    if (!strcmp(name, "size"))
        return convert(m, index_value(m, wf_int(n, 0)), WF_I64, y->dtype);
    Val i = index_value(m, wf_flatten(m->e, y->rank, y->shape, ix));
    Val r = fresh(m, C_F, i.depth);
    define(m, r, "philox_f(s[%d], s[%d], s[%d], %lld, v%d)", WF_S_SEED, WF_S_STEP, WF_S_ITERATION,
           (long long)n->args[1].i, i.id);
    return r;
}

static int add_check(Em *m, const WfNode *n)
{
    WfNodeId id = (WfNodeId)(n - m->g->nodes.at);
    for (int i = 0; i < m->checks.n; i++)
        if (m->checks.at[i] == id)
            return i;
    WF_PUSH(m->a, &m->checks, id);
    return m->checks.n - 1;
}

static Val gather(Em *m, const WfNode *n, const WfDim *ix, const Guards *gd)
{
    WfVal x = wf_tensor(n, 0), index = wf_tensor(n, 2);
    int dim = (int)n->args[1].i;
    Val i = eval(m, index, ix, gd);
    bool varies = may_vary(m, i.depth);
    if (m->n_data == 256)
        wf_fail_node(m->g, n, WEFT_ERR_UNSUPPORTED, "too many gathers in one kernel");
    WfStr name = {.arena = m->a};
    wf_str_printf(&name, "data%d", m->n_data);
    int k = m->n_data++;
    WfDim size = wf_value(m->g, x)->shape[dim];
    m->data[k].id = m->next++;
    m->data[k].sym = wf_sym(m->e, name.at, 0, INT64_MAX);
    int g_depth = guards_depth(m, gd), depth = i.depth > g_depth ? i.depth : g_depth;
    m->data[k].depth = depth;
    m->data[k].val = i;
    m->data[k].val.depth = varies ? m->deepest + 100 : depth;
    WfStr *s = at(m, depth);
    int check = add_check(m, n);
    char *uniform = condition(m, gd, 0, NULL);
    if (varies) {
        wf_str_printf(s, "vl d%d = cvt_%cl(v%d);\n", m->data[k].id, "fdilb"[i.cls], i.id);
        lane_loop(m, s, wf_arena_printf(m->a, "(unsigned long)d%d[l] >= (unsigned long)(%s)", m->data[k].id,
                                        text(m, size)),
                  "{ if (%s && %s && !st[0]) st[1] = d%d[l], st[0] = %d; d%d[l] = 0; }", uniform,
                  condition(m, gd, 1, "vv"), m->data[k].id, check + 1, m->data[k].id);
    } else {
        wf_str_printf(s, "long d%d = v%d[0];\n", m->data[k].id, i.id);
        wf_str_printf(s, "if ((unsigned long)d%d >= (unsigned long)(%s)) { if (%s && !st[0]) st[1] = d%d, st[0] = %d; "
                         "d%d = 0; }\n", m->data[k].id, text(m, size), uniform, m->data[k].id, check + 1,
                      m->data[k].id);
    }
    WfDim to[WF_MAX_RANK];
    memcpy(to, ix, sizeof to);
    to[dim] = m->data[k].sym;
    return eval(m, x, to, gd);
}

static void check(Em *m, const WfNode *n, Val v)
{
    int k = add_check(m, n);
    WfStr *s = at(m, v.depth);
    int64_t ignore = 0;
    wf_elit(m->e, wf_int(n, 3), &ignore);
    if (!may_vary(m, v.depth)) {
        wf_str_printf(s, "if ((v%d[0] < %s || v%d[0] >= %s) && v%d[0] != %lldL && !st[0]) st[1] = v%d[0], st[0] = %d;\n",
                      v.id, text(m, wf_int(n, 1)), v.id, text(m, wf_int(n, 2)), v.id, (long long)ignore, v.id, k + 1);
        return;
    }
    lane_loop(m, s, wf_arena_printf(m->a, "(v%d[l] < %s || v%d[l] >= %s) && v%d[l] != %lldL", v.id,
                                    text(m, wf_int(n, 1)), v.id, text(m, wf_int(n, 2)), v.id, (long long)ignore),
              "{ if (!st[0]) st[1] = v%d[l], st[0] = %d; }", v.id, k + 1);
}

static Val pointwise(Em *m, const WfNode *n, const WfDim *ix, const Guards *gd)
{
    WfVal in[16];
    Val a[16];
    int k = wf_operands(n, in, 16), depth = 0;
    for (int i = 0; i < k; i++) {
        a[i] = eval(m, in[i], ix, gd);
        depth = a[i].depth > depth ? a[i].depth : depth;
    }
    WfDtype xt = wf_value(m->g, in[k - 1])->dtype, yt = wf_value(m->g, n->out)->dtype;
    if (!strcmp(n->schema->name, "prim.cast"))
        return convert(m, a[0], xt, yt);
    Class c = a[k - 1].cls;
    const char *tpl = c == C_B ? n->op->c_bool : c == C_F || c == C_D ? n->op->c_float : n->op->c_int;
    if (!tpl)
        wf_fail_node(m->g, n, WEFT_ERR_UNSUPPORTED, "not defined for %s", wf_dtype_name(xt));
    if (!strcmp(tpl, "%0")) {
        if (!strcmp(n->schema->name, "prim.check"))
            check(m, n, a[0]);
        return a[0];
    }
    WfStr s = {.arena = m->a};
    for (const char *p = tpl; *p; p++) {
        if (*p != '%') {
            wf_str_putc(&s, *p);
        } else if (*++p == 't') {
            wf_str_putc(&s, suffix[c]);
        } else {
            wf_str_printf(&s, "v%d", a[*p - '0'].id);
        }
    }
    Class rc = class_of(yt);
    Val r = fresh(m, rc, depth);
    bool narrow = rc == C_I && yt != WF_I32, compare = rc == C_B && (c == C_D || c == C_L);
    if (compare)
        define(m, r, "mask_%c(%s)", suffix[c], s.at);
    else if (narrow)
        define(m, r, "wrap_%s(%s)", wf_dtype_name(yt), s.at);
    else if (yt == WF_BF16 || yt == WF_F16)
        define(m, r, "round_%s(%s)", wf_dtype_name(yt), s.at);
    else
        define(m, r, "%s", s.at);
    return r;
}

static Val eval(Em *m, WfVal v, const WfDim *ix, const Guards *gd)
{
    const WfNode *n = wf_producer(m->g, v);
    int rank = wf_value(m->g, v)->rank;
    if (n && n->op->family == WF_REDUCE) {
        int64_t hit;
        if (!wf_map_get_bytes(m->reductions, &v, sizeof v, &hit))
            wf_fail_node(m->g, n, WEFT_ERR_INTERNAL, "a reduction is read before its pass");
        return *(Val *)(intptr_t)hit;
    }
    struct { WfVal v; int n; WfDim ix[WF_MAX_RANK]; Guard gd[MAX_GUARDS]; } key;
    memset(&key, 0, sizeof key);
    key.v = v;
    key.n = gd->n;
    memcpy(key.ix, ix, (size_t)rank * sizeof *ix);
    memcpy(key.gd, gd->at, (size_t)gd->n * sizeof *gd->at);
    for (int d = 0; d <= m->deepest; d++) {
        int64_t hit;
        if (wf_map_get_bytes(m->cache[d], &key, sizeof key, &hit))
            return *(Val *)(intptr_t)hit;
    }
    Val r;
    if (!n)
        r = load(m, v, key.ix, gd);
    else if (n->op->family == WF_VIEW)
        r = view(m, n, key.ix, gd);
    else if (n->op->family == WF_SOURCE)
        r = source(m, n, key.ix);
    else if (n->op->family == WF_GATHER)
        r = gather(m, n, key.ix, gd);
    else
        r = pointwise(m, n, key.ix, gd);
    Val *keep = WF_NEW(m->a, Val);
    *keep = r;
    /* what holds in one piece of the vector loop need not hold in the next, even where it does not vary */
    wf_map_put_bytes(m->cache[m->hi ? m->deepest : r.depth], &key, sizeof key, (int64_t)(intptr_t)keep);
    return r;
}

/* ---- analysis ---- */

static bool candidate(Em *m, int rank, const WfDim *shape, bool row, WfDim *ix)
{
    int from = row ? m->row_rank : m->rank;
    const WfDim *fs = row ? m->row_shape : m->shape, *fi = row ? m->row_ix : m->var;
    if (from == rank && !memcmp(fs, shape, (size_t)rank * sizeof *shape)) {
        memcpy(ix, fi, (size_t)rank * sizeof *fi);
        return true;
    }
    WfDim a = 1, b = 1;
    for (int i = 0; i < from; i++)
        a = wf_emul(m->e, a, fs[i]);
    for (int i = 0; i < rank; i++)
        b = wf_emul(m->e, b, shape[i]);
    if (a != b)
        return false;
    wf_unflatten(m->e, rank, shape, wf_flatten(m->e, from, fs, fi), ix);
    return true;
}

/* Does the value depend on a full-level quantity outside reductions (so that it needs the reduced loops)? Decided by
 * shape: row-level values have the element count of the kept loops. */
static bool is_full(Em *m, WfVal v, WfDim *ix)
{
    const WfValue *x = wf_value(m->g, v);
    if (wf_producer(m->g, v) && wf_producer(m->g, v)->op->family == WF_REDUCE) {
        candidate(m, x->rank, x->shape, true, ix);
        return false;
    }
    if (candidate(m, x->rank, x->shape, false, ix))
        return true;
    if (!candidate(m, x->rank, x->shape, true, ix))
        wf_fail(m->g->ctx, WEFT_ERR_INTERNAL, "a kernel's result %s does not fit its loops",
                wf_shape_text(m->g, v));
    return false;
}

static void stages(Em *m)
{
    WfGraph *g = m->g;
    m->stage = WF_NEWN(m->a, int, (size_t)g->values.n);
    WfVal in[WF_MAX_RESULTS];
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        int k = wf_operands(n, in, WF_MAX_RESULTS), st = 0;
        for (int j = 0; j < k; j++)
            st = in[j] && m->stage[in[j]] > st ? m->stage[in[j]] : st;
        if (n->op->family == WF_REDUCE)
            st++;
        for (int j = 0; j < n->n_out; j++)
            m->stage[n->out + (WfVal)j] = st;
    }
    for (int i = 0; i < g->outputs.n; i++) {
        WfVal v = g->outputs.at[i].val;
        WfDim ix[WF_MAX_RANK] = {0}, stride[WF_MAX_RANK], addr = 0;
        Out *o = &m->out[m->n_out++];
        o->v = v;
        o->full = is_full(m, v, ix) || !m->reduced;
        o->stage = m->stage[v];
        wf_memory_strides(g, v, stride);
        for (int d = 0; d < wf_value(g, v)->rank; d++)
            addr = wf_eadd(m->e, addr, wf_emul(m->e, ix[d], stride[d]));
        o->addr = addr;
        int last = o->full ? o->stage + 1 : o->stage;
        m->n_pass = last > m->n_pass ? last : m->n_pass;
    }
    for (int i = 1; i < g->nodes.n; i++)
        if (wf_node(g, (WfNodeId)i)->op->family == WF_REDUCE && m->stage[wf_node(g, (WfNodeId)i)->out] > m->n_pass)
            m->n_pass = m->stage[wf_node(g, (WfNodeId)i)->out];
}

static WfDim size_weight(Em *m, WfDim coef)
{
    int64_t lo, hi;
    if (!wf_erange(m->e, coef, &lo, &hi))
        return 1;
    return lo < 0 ? -lo : lo;
}

/* Orders loops from slow to fast by the address of the access that uses most loops. */
static void order_loops(Em *m, WfDim reference)
{
    WfDim stores = 0;
    int most = 0;
    for (int k = 0; k < m->n_out; k++) { /* kept loops follow the result that walks most of them */
        int used = 0;
        for (int i = 0; i < m->n_loops; i++)
            used += !m->loop[i].reduced && wf_edepends(m->e, m->out[k].addr, m->loop[i].var);
        if (used > most)
            most = used, stores = m->out[k].addr;
    }
    for (int i = 0; i < m->n_loops; i++) {
        WfDim c, r, by = !m->loop[i].reduced && most ? stores : reference;
        m->loop[i].weight = wf_elinear(m->e, by, m->loop[i].var, &c, &r) ? size_weight(m, c) : (WfDim)(m->n_loops - i);
    }
    for (int i = 1; i < m->n_loops; i++) /* stable insertion: kept loops first, then by weight */
        for (int k = i; k > 0; k--) {
            Loop *a = &m->loop[k - 1], *b = &m->loop[k];
            bool swap = a->reduced != b->reduced ? a->reduced && !b->reduced : a->weight < b->weight;
            if (!swap)
                break;
            Loop t = *a;
            *a = *b;
            *b = t;
        }
}

static bool mergeable(Em *m, const Loop *a, const Loop *b)
{
    if (a->reduced != b->reduced)
        return false;
    for (int i = 0; i < m->touched.n; i++) {
        WfDim ca, cb, ra, rb, d = merged(m, m->touched.at[i]);
        bool da = wf_edepends(m->e, d, a->var), db = wf_edepends(m->e, d, b->var);
        if (!da && !db)
            continue;
        if (!da || !db || !wf_elinear(m->e, d, a->var, &ca, &ra) || !wf_elinear(m->e, d, b->var, &cb, &rb))
            return false;
        if (ca != wf_emul(m->e, cb, b->size) || wf_edepends(m->e, ca, b->var) || wf_edepends(m->e, cb, a->var))
            return false;
    }
    return true;
}

static void merge_loops(Em *m)
{
    for (int i = 0; i + 1 < m->n_loops;) {
        Loop *a = &m->loop[i], *b = &m->loop[i + 1];
        if (!mergeable(m, a, b)) {
            i++;
            continue;
        }
        WfDim size = wf_emul(m->e, a->size, b->size);
        WfStr name = {.arena = m->a};
        wf_str_printf(&name, "c%d_%llx", i, (unsigned long long)size);
        WfDim var = wf_sym_bounded(m->e, name.at, size);
        /* earlier substitutions may mention a or b */
        WfDim olds[2] = {a->var, b->var}, news[2] = {0, var};
        for (int k = 0; k < m->n_from; k++)
            m->to[k] = wf_esubst_all(m->e, m->to[k], 2, olds, news);
        for (int k = 0; k < 2; k++) {
            m->from[m->n_from] = olds[k];
            m->to[m->n_from++] = news[k];
        }
        a->var = var;
        a->size = size;
        memmove(b, b + 1, (size_t)(m->n_loops - i - 2) * sizeof *b);
        m->n_loops--;
    }
}

static int64_t at_least(Em *m, WfDim d)
{
    int64_t lo, hi;
    return wf_erange(m->e, d, &lo, &hi) ? lo : 1;
}

/* The loop that most accesses walk with stride one. */
static void choose_vector(Em *m)
{
    int kept = -1, red = -1, best = -1;
    long score = -1;
    for (int i = 0; i < m->n_loops; i++)
        *(m->loop[i].reduced ? &red : &kept) = i;
    for (int pick = 0; pick < 2; pick++) {
        int i = pick ? kept : red;
        long sc = 1;
        if (i < 0)
            continue;
        for (int k = 0; k < m->touched.n; k++) {
            WfDim c, r, d = merged(m, m->touched.at[k]);
            if (!wf_edepends(m->e, d, m->loop[i].var))
                sc += 1;
            else if (wf_elinear(m->e, d, m->loop[i].var, &c, &r) && c == 1)
                sc += 4;
        }
        int64_t size = at_least(m, m->loop[i].size);
        if (size < 8)
            sc = sc * size / 8;
        if (sc > score)
            best = i, score = sc;
    }
    m->vec = best;
    m->column = m->reduced && best >= 0 && !m->loop[best].reduced;
}

/* Paddings and joins along the vector loop: instead of asking in every vector which part it lies in, the loop is cut
 * at the bounds, and each piece holds the text of its part only. */
static void find_cuts(Em *m)
{
    int64_t size;
    m->n_cut = 0;
    if (m->vec < 0 || m->column || !wf_elit(m->e, m->loop[m->vec].size, &size))
        return;
    for (int i = 0; i < m->guards.n; i++) {
        Guard g = m->guards.at[i];
        int64_t bound[2];
        g.value = merged(m, g.value);
        if (provable(m, &g) || !on_vector_only(m, &g, &bound[0], &bound[1]))
            continue;
        for (int b = 0; b < 2; b++) {
            int at = 0;
            while (at < m->n_cut && m->cut[at] < bound[b])
                at++;
            if (bound[b] <= 0 || bound[b] >= size || (at < m->n_cut && m->cut[at] == bound[b]))
                continue;
            if (m->n_cut == MAX_CUTS) {
                m->n_cut = 0;
                return;
            }
            memmove(m->cut + at + 1, m->cut + at, (size_t)(m->n_cut++ - at) * sizeof *m->cut);
            m->cut[at] = bound[b];
        }
    }
}

/* ---- assembling ---- */

static void reset_cache(Em *m, int from)
{
    for (int d = from; d < (int)WF_LEN(m->cache); d++)
        m->cache[d] = wf_map_new(m->a);
}

static const char *neutral(Em *m, const WfNode *n, Class c)
{
    double init = n->op->init;
    if (isinf(init) && (c == C_I || c == C_L))
        return init > 0 ? (c == C_I ? "0x7fffffff" : "0x7fffffffffffffffL")
                        : (c == C_I ? "(-0x7fffffff - 1)" : "(-0x7fffffffffffffffL - 1)");
    if (c == C_B)
        return init > 0 && isinf(init) ? "-1" : "0";
    return literal(m, init, c);
}

static bool is_arg(const WfNode *n) { return !strncmp(n->schema->name, "prim.arg", 8); }

typedef struct { const WfNode *n; int acc; Class cls; } Acc;

static WfDim reduce_position(Em *m, const WfNode *n, const WfDim *ix) /* index along the reduced dims, row-major */
{
    const WfValue *x = wf_value(m->g, wf_tensor(n, 0));
    WfDim flat = 0;
    for (int d = 0; d < x->rank; d++)
        for (int k = 0; k < n->args[1].n; k++)
            if (n->args[1].ints[k] == d)
                flat = wf_eadd(m->e, wf_emul(m->e, flat, x->shape[d]), ix[d]);
    return flat;
}

/* Where a reduction's operand is nothing but padding with the neutral element, the iteration is skipped: guards that do
 * not vary by lane become `continue` in the loop that decides them. Only for a pass with one accumulator. */
static void skip_padding(Em *m, const WfNode *n, WfVal x, const WfDim *index)
{
    WfDim ix[WF_MAX_RANK];
    memcpy(ix, index, sizeof ix);
    for (const WfNode *v = wf_producer(m->g, x); v && v->op->family == WF_VIEW && wf_operand_count(v) == 1;
         v = wf_producer(m->g, wf_tensor(v, 0))) {
        WfIndex w = {0};
        memcpy(w.at, ix, sizeof ix);
        v->op->index(m->g, v, &w);
        if (w.n_guards && w.fill != n->op->init)
            return;
        for (int j = 0; j < w.n_guards; j++) {
            Guards g = {.n = 1, .at = {{merged(m, w.guard[j].value), w.guard[j].lo, w.guard[j].hi}}};
            int depth = guards_depth(m, &g);
            if (!provable(m, &g.at[0]) && !on_vector(m, g.at[0].value) && depth >= 2 && depth < m->deepest + m->column)
                wf_str_printf(at(m, depth), "if (!(%s)) continue;\n", condition(m, &g, 2, NULL));
        }
        memcpy(ix, w.at, sizeof ix);
    }
}

static void accumulate(Em *m, Acc *acc, bool only, const Guards *none)
{
    const WfNode *n = acc->n;
    WfVal x = wf_tensor(n, 0);
    WfDim ix[WF_MAX_RANK] = {0};
    candidate(m, wf_value(m->g, x)->rank, wf_value(m->g, x)->shape, false, ix);
    if (only && !is_arg(n) && !m->tail)
        skip_padding(m, n, x, ix);
    Val v = eval(m, x, ix, none);
    WfStr *s = at(m, m->deepest);
    bool row_tail = m->tail && !m->column;
    if (is_arg(n)) {
        Val pos = index_value(m, reduce_position(m, n, ix));
        wf_str_printf(s, "arg%s_%c(&r%d, &p%d, v%d, v%d, %s);\n", n->op->init < 0 ? "max" : "min", suffix[acc->cls],
                      acc->acc, acc->acc, v.id, pos.id, row_tail ? "m" : "16");
        return;
    }
    char *value = wf_arena_printf(m->a, "v%d", v.id);
    if (row_tail)
        value = wf_arena_printf(m->a, "sel_%c(iota_i() < splat_i(m), v%d, splat_%c(%s))", suffix[acc->cls], v.id,
                                suffix[acc->cls], neutral(m, n, acc->cls));
    const char *tpl = acc->cls == C_B ? n->op->c_bool : acc->cls <= C_D ? n->op->c_float : n->op->c_int;
    if (!tpl)
        wf_fail_node(m->g, n, WEFT_ERR_UNSUPPORTED, "not defined for %s", wf_dtype_name(wf_value(m->g, x)->dtype));
    wf_str_printf(s, "r%d = ", acc->acc);
    for (const char *p = tpl; *p; p++) {
        if (*p != '%')
            wf_str_putc(s, *p);
        else if (*++p == 't')
            wf_str_putc(s, suffix[acc->cls]);
        else if (*p == '0')
            wf_str_printf(s, "r%d", acc->acc);
        else
            wf_str_puts(s, value);
    }
    wf_str_puts(s, ";\n");
}

static void store(Em *m, Out *o, int k, const Guards *none)
{
    const WfValue *x = wf_value(m->g, o->v);
    WfDim ix[WF_MAX_RANK] = {0}, c, r;
    if (o->full)
        candidate(m, x->rank, x->shape, false, ix);
    else
        is_full(m, o->v, ix);
    Val v = eval(m, o->v, ix, none);
    WfDim addr = merged(m, o->addr);
    int depth = depth_of(m, addr);
    if (o->full && !m->column)
        depth = m->deepest;
    depth = v.depth > depth ? v.depth : depth;
    WfStr *s = at(m, depth);
    const char *dt = wf_dtype_name(x->dtype);
    if (!on_vector(m, addr))
        wf_str_printf(s, "put_%s(o%d + %s, v%d[0]);\n", dt, k, text(m, addr), v.id);
    else if (wf_elinear(m->e, addr, m->loop[m->vec].var, &c, &r) && c == 1)
        wf_str_printf(s, m->tail ? "stp_%s(o%d + %s, v%d, m);\n" : "st_%s(o%d + %s, v%d);\n", dt, k, text(m, addr),
                      v.id);
    else
        lane_loop(m, s, NULL, "put_%s(o%d + %s, v%d[l])", dt, k, text_vv(m, addr), v.id);
}

/* All results of the pass: every value first, then the stores, so that a store may go to memory that was read. */
static void store_pass(Em *m, const Guards *none)
{
    for (int write = 0; write < 2; write++)
        for (int k = 0; k < m->n_out; k++) {
            if (!m->out[k].full || m->out[k].stage != m->pass)
                continue;
            if (write) {
                store(m, &m->out[k], k, none);
                continue;
            }
            WfDim ix[WF_MAX_RANK] = {0};
            const WfValue *x = wf_value(m->g, m->out[k].v);
            candidate(m, x->rank, x->shape, false, ix);
            eval(m, m->out[k].v, ix, none);
        }
}

/* ---- long sums: a running float32 sum loses with every addition, so a long one is a compensated sum of short ones ---- */

static bool in_parts(const Em *m, const Acc *acc)
{
    return m->flush >= 0 && acc->cls == C_F && !strcmp(acc->n->schema->name, "prim.sum");
}

/* Chooses the loop after whose turns partial sums are put aside: the innermost one that, with the loops inside it, makes
 * more than CHAIN additions. loops: the reduced ones around the vector loop, slowest first. */
static void find_flush(Em *m, const int *loops, int n, const Acc *acc, int n_acc)
{
    int64_t inside = 1, size;
    m->flush = -1;
    for (int k = m->vec < 0 || m->column ? n - 1 : n; k >= 0 && m->flush < 0; k--) {
        int i = k == n ? m->vec : loops[k];
        bool lit = wf_elit(m->e, m->loop[i].size, &size);
        size = i == m->vec ? (size + LANES - 1) / LANES : size;
        if (lit && size <= CHAIN / inside) {
            inside *= size;
            continue;
        }
        m->flush = i;
        m->flush_every = (int)(CHAIN / inside);
    }
    bool any = false;
    for (int i = 0; i < n_acc; i++)
        if (in_parts(m, &acc[i])) {
            wf_str_printf(&m->tile, "vf r%ds = splat_f(0), r%de = splat_f(0);\n", acc[i].acc, acc[i].acc);
            any = true;
        }
    if (!any)
        m->flush = -1;
}

static void put_aside(Em *m, const Acc *acc, int n_acc, WfStr *s)
{
    for (int i = 0; i < n_acc; i++)
        if (in_parts(m, &acc[i]))
            wf_str_printf(s, "aside_f(&r%ds, &r%de, &r%d);\n", acc[i].acc, acc[i].acc, acc[i].acc);
}

/* One of the reduced loops around the vector loop. */
static void wrap_loop(Em *m, int i, const Acc *acc, int n_acc, const char *body, WfStr *s)
{
    const char *v = m->loop[i].name, *size = text(m, m->loop[i].size);
    if (i != m->flush) {
        wf_str_printf(s, "for (long %s = 0; %s < %s; %s++) {\n%s}\n", v, v, size, v, body);
        return;
    }
    wf_str_printf(s, "for (long %sb = 0; %sb < %s; %sb += %d) {\nconst long %se = %sb + %d < %s ? %sb + %d : %s;\n", v, v,
                  size, v, m->flush_every, v, v, m->flush_every, size, v, m->flush_every, size);
    wf_str_printf(s, "for (long %s = %sb; %s < %se; %s++) {\n%s}\n", v, v, v, v, v, body);
    put_aside(m, acc, n_acc, s);
    wf_str_puts(s, "}\n");
}

/* The loop over one piece of the vector loop, or over all of it: whole vectors, then the lanes that are left. */
static void vector_piece(Em *m, Acc *acc, int n_acc, bool any, const char *begin, const char *end, WfStr *into)
{
    Guards none = {.n = 0};
    int64_t size = m->hi - m->lo;
    bool lit = m->hi || m->vec < 0 || wf_elit(m->e, m->loop[m->vec].size, &size);
    bool blocks = m->hi && !m->loop[m->vec].reduced && !m->reduced; /* may begin and end anywhere in the piece */
    bool whole = m->vec >= 0 && (!lit || size >= LANES), rest = m->vec < 0 || !lit || blocks || size % LANES;
    bool saved = m->tail;
    WfStr bodies[2] = {{.arena = m->a}, {.arena = m->a}};
    WfStr *outer = m->scope[m->deepest];
    for (int t = 0; t < 2; t++) {
        if (!(t ? rest : whole))
            continue;
        m->tail = t;
        reset_cache(m, m->deepest);
        m->scope[m->deepest] = &bodies[t];
        for (int i = 0; i < n_acc; i++)
            accumulate(m, &acc[i], n_acc == 1 && !any, &none);
        store_pass(m, &none);
    }
    m->tail = saved;
    m->scope[m->deepest] = outer;
    if (m->vec < 0) {
        wf_str_printf(into, "{ const int m = 1; (void)m;\n%s}\n", bodies[1].at ? bodies[1].at : "");
        return;
    }
    const char *v = m->loop[m->vec].name, *stop = end;
    wf_str_printf(into, "{ long %s = %s;\n", v, begin);
    if (whole && m->flush == m->vec) {
        int step = LANES * m->flush_every;
        stop = "stop";
        wf_str_printf(into, "while (%s + 16 <= %s) {\nconst long stop = %s + %d < %s ? %s + %d : %s;\n", v, end, v, step,
                      end, v, step, end);
    }
    if (whole)
        wf_str_printf(into, "for (; %s + 16 <= %s; %s += 16) {\n%s}\n", v, stop, v, bodies[0].at ? bodies[0].at : "");
    if (stop != end) {
        put_aside(m, acc, n_acc, into);
        wf_str_puts(into, "}\n");
    }
    if (rest)
        wf_str_printf(into, "if (%s < %s) { const int m = (int)(%s - %s);\n%s}\n", v, end, end, v,
                      bodies[1].at ? bodies[1].at : "");
    wf_str_puts(into, "}\n");
}

static void vector_body(Em *m, Acc *acc, int n_acc, bool any, WfStr *into)
{
    const Loop *v = m->vec < 0 ? NULL : &m->loop[m->vec];
    bool all = v && (v->reduced || m->reduced);
    const char *begin = all ? "0" : "vb", *end = all ? text(m, v->size) : "ve";
    int64_t size;
    if (!m->n_cut || !wf_elit(m->e, v->size, &size)) {
        vector_piece(m, acc, n_acc, any, begin, end, into);
        return;
    }
    for (int i = 0; i <= m->n_cut; i++) {
        m->lo = i ? m->cut[i - 1] : 0;
        m->hi = i < m->n_cut ? m->cut[i] : size;
        char lo[32], hi[32];
        snprintf(lo, sizeof lo, "%lld", (long long)m->lo);
        snprintf(hi, sizeof hi, "%lld", (long long)m->hi);
        if (!all)
            wf_str_printf(into, "{ const long pb = vb > %s ? vb : %s, pe = ve < %s ? ve : %s;\n", lo, lo, hi, hi);
        vector_piece(m, acc, n_acc, any, all ? lo : "pb", all ? hi : "pe", into);
        if (!all)
            wf_str_puts(into, "}\n");
    }
    m->lo = m->hi = 0;
}

static void finish_reduction(Em *m, const Acc *acc)
{
    if (in_parts(m, acc))
        wf_str_printf(&m->tile, "r%d = joined_f(r%ds, r%de, r%d);\n", acc->acc, acc->acc, acc->acc, acc->acc);
    Val r = fresh(m, is_arg(acc->n) ? C_L : acc->cls, 1);
    const char *name = acc->n->schema->name + 5;
    if (m->column && is_arg(acc->n))
        define(m, r, "p%d", acc->acc);
    else if (m->column)
        define(m, r, "r%d", acc->acc);
    else if (is_arg(acc->n))
        define(m, r, "splat_l(harg%s_%c(r%d, p%d))", acc->n->op->init < 0 ? "max" : "min", suffix[acc->cls], acc->acc,
               acc->acc);
    else
        define(m, r, "splat_%c(h%s_%c(r%d))", suffix[acc->cls], name, acc->cls == C_B ? 'b' : suffix[acc->cls], acc->acc);
    Val *keep = WF_NEW(m->a, Val);
    *keep = r;
    wf_map_put_bytes(m->reductions, &acc->n->out, sizeof acc->n->out, (int64_t)(intptr_t)keep);
}

/* Turns to vector `unit` of a wide tile: its name in the text, its reductions, nothing computed yet. */
static void turn_to(Em *m, int unit)
{
    if (m->wide == 1)
        return;
    m->reductions = m->each[unit];
    snprintf(m->loop[m->vec].name, sizeof m->loop[m->vec].name, unit ? "(i%d+%d)" : "i%d", m->vec, LANES * unit);
    reset_cache(m, 1);
}

/* The reductions of this pass, their accumulators declared in the tile's text. */
static int begin_reductions(Em *m, Acc *acc)
{
    int n_acc = 0;
    for (int i = 1; i < m->g->nodes.n; i++) {
        const WfNode *n = wf_node(m->g, (WfNodeId)i);
        if (n->op->family != WF_REDUCE || m->stage[n->out] != m->pass + 1 || n_acc == MAX_ACC)
            continue;
        Acc *a = &acc[n_acc++];
        a->n = n;
        a->acc = m->next++;
        a->cls = class_of(wf_value(m->g, wf_tensor(n, 0))->dtype);
        wf_str_printf(&m->tile, "v%c r%d = splat_%c(%s);\n", suffix[a->cls], a->acc, suffix[a->cls],
                      neutral(m, n, a->cls));
        if (is_arg(n))
            wf_str_printf(&m->tile, "vl p%d = splat_l(-1);\n", a->acc);
    }
    return n_acc;
}

static void one_pass(Em *m)
{
    Acc acc[WIDE * MAX_ACC]; /* by vector of the tile */
    Guards none = {.n = 0};
    int n_acc = 0, loops[WF_MAX_RANK], n = 0;
    bool any = false;
    for (int i = 0; i < m->n_loops; i++)
        if (m->loop[i].reduced && i != m->vec)
            loops[n++] = i;
    for (int u = 0; u < m->wide; u++) {
        turn_to(m, u);
        n_acc = begin_reductions(m, acc + u * n_acc);
    }
    for (int k = 0; k < m->n_out; k++)
        any |= m->out[k].full && m->out[k].stage == m->pass;
    if (!n_acc && !any)
        return;
    find_flush(m, loops, n, acc, n_acc * m->wide);
    /* scopes of the reduced loops outside the vector loop */
    WfStr inner = {.arena = m->a}, body[WF_MAX_RANK];
    for (int i = 0; i < n; i++) {
        body[i] = (WfStr){.arena = m->a};
        m->scope[2 + i] = &body[i];
    }
    reset_cache(m, 2);
    for (int u = 0; m->column && u < m->wide; u++) {
        turn_to(m, u);
        for (int i = 0; i < n_acc; i++)
            accumulate(m, &acc[u * n_acc + i], n_acc == 1 && !any, &none);
        store_pass(m, &none);
    }
    if (!m->column)
        vector_body(m, acc, n_acc, any, &inner);
    WfStr whole = inner;
    for (int i = n - 1; i >= 0; i--) {
        WfStr s = {.arena = m->a};
        wf_str_puts(&body[i], whole.at ? whole.at : "");
        wrap_loop(m, loops[i], acc, n_acc * m->wide, body[i].at ? body[i].at : "", &s);
        whole = s;
    }
    wf_str_puts(&m->tile, whole.at ? whole.at : "");
    for (int u = 0; u < m->wide; u++) {
        turn_to(m, u);
        for (int i = 0; i < n_acc; i++)
            finish_reduction(m, &acc[u * n_acc + i]);
    }
}

/* The text of a tile of `wide` vectors (1, except in column kernels). */
static void tile_text(Em *m, int wide)
{
    Guards none = {.n = 0};
    m->wide = wide;
    m->tile = (WfStr){.arena = m->a};
    m->scope[0] = &m->head;
    m->scope[1] = &m->tile;
    reset_cache(m, 1);
    for (int u = 0; u < wide; u++)
        m->each[u] = wf_map_new(m->a);
    m->reductions = m->each[0];
    for (m->pass = 0; m->pass < m->n_pass; m->pass++)
        one_pass(m);
    for (int u = 0; u < wide; u++) {
        turn_to(m, u);
        for (int k = 0; k < m->n_out; k++)
            if (!m->out[k].full) {
                reset_cache(m, 2);
                store(m, &m->out[k], k, &none);
            }
    }
    turn_to(m, 0);
}

/* Vectors side by side in a tile of a column kernel: a row of memory is then read in longer runs. As many as
 * leave eight tiles to share out, and their accumulators in registers. */
static int column_width(Em *m)
{
    int n_acc = 0, wide = WIDE;
    int64_t size;
    for (int i = 1; i < m->g->nodes.n; i++) {
        const WfNode *n = wf_node(m->g, (WfNodeId)i);
        if (n->op->family == WF_GATHER)
            return 1;
        n_acc += n->op->family == WF_REDUCE ? is_arg(n) ? 3 : 1 : 0;
    }
    if (!m->column || !wf_elit(m->e, m->loop[m->vec].size, &size) || m->g->nodes.n > 100)
        return 1;
    while (wide > 1 && (size < 8 * LANES * wide || n_acc * wide > 16))
        wide /= 2;
    return wide;
}

/* Dry run: gathers every index expression before loops are merged. */
static void gather_touched(Em *m)
{
    m->dry = true;
    m->vec = -1;
    for (int i = 0; i < m->n_loops; i++)
        m->loop[i].depth = m->loop[i].reduced ? 2 : 1;
    m->deepest = 2;
    WfStr sink = {.arena = m->a};
    Em saved = *m;
    m->scope[0] = m->scope[1] = m->scope[2] = &sink;
    m->head = sink;
    reset_cache(m, 0);
    m->reductions = wf_map_new(m->a);
    Guards none = {.n = 0};
    for (m->pass = 0; m->pass <= m->n_pass; m->pass++) {
        for (int i = 1; i < m->g->nodes.n; i++) {
            const WfNode *n = wf_node(m->g, (WfNodeId)i);
            if (n->op->family != WF_REDUCE || m->stage[n->out] != m->pass + 1)
                continue;
            WfVal x = wf_tensor(n, 0);
            WfDim ix[WF_MAX_RANK] = {0};
            if (!candidate(m, wf_value(m->g, x)->rank, wf_value(m->g, x)->shape, false, ix))
                wf_fail_node(m->g, n, WEFT_ERR_INTERNAL, "a reduction does not fit its kernel's loops");
            eval(m, x, ix, &none);
            if (is_arg(n))
                touch(m, reduce_position(m, n, ix));
            Val *keep = WF_NEW(m->a, Val);
            *keep = (Val){m->next++, C_F, 1};
            keep->cls = is_arg(n) ? C_L : class_of(wf_value(m->g, x)->dtype);
            wf_map_put_bytes(m->reductions, &n->out, sizeof n->out, (int64_t)(intptr_t)keep);
        }
        for (int k = 0; k < m->n_out; k++)
            if (m->out[k].stage == m->pass) {
                WfDim ix[WF_MAX_RANK] = {0};
                is_full(m, m->out[k].v, ix);
                eval(m, m->out[k].v, ix, &none);
                touch(m, m->out[k].addr);
            }
    }
    saved.guards.at = m->guards.at;
    saved.guards.n = m->guards.n;
    saved.guards.cap = m->guards.cap;
    saved.touched.at = m->touched.at;
    saved.touched.n = m->touched.n;
    saved.touched.cap = m->touched.cap;
    *m = saved;
    m->dry = false;
}

static WfDim reference_address(Em *m)
{
    WfDim best = 0;
    int most = -1;
    for (int i = m->touched.n - 1; i >= 0; i--) { /* outputs last: they win ties */
        int k = 0;
        for (int l = 0; l < m->n_loops; l++)
            k += wf_edepends(m->e, m->touched.at[i], m->loop[l].var);
        if (k > most)
            most = k, best = m->touched.at[i];
    }
    return best;
}

/* Which inputs' memory each result may take over: read nowhere but at the very element that is written, and not after. */
static void find_inplace(Em *m, WfKernelText *t)
{
    int n_in = m->g->inputs.n;
    t->inplace = WF_NEWN(m->a, bool, (size_t)(m->n_out * n_in + 1));
    for (int k = 0; k < m->n_out; k++) {
        const WfValue *y = wf_value(m->g, m->out[k].v);
        WfDim addr = merged(m, m->out[k].addr);
        for (int i = 0; i < n_in && m->out[k].full; i++) {
            const WfValue *x = wf_value(m->g, m->g->inputs.at[i].val);
            bool ok = x->dtype == y->dtype && m->loads[i].at.n > 0 &&
                      wf_numel(m->g, m->g->inputs.at[i].val) == wf_numel(m->g, m->out[k].v);
            for (int j = 0; ok && j < m->loads[i].at.n; j++) {
                const Access *a = &m->loads[i].at.at[j];
                ok = !a->guarded && a->addr == addr && a->pass <= m->out[k].stage;
            }
            t->inplace[k * n_in + i] = ok;
        }
    }
}

/* Which inputs are read by a tile only in its own part: the tile is then the index of a row. */
static void find_rows(Em *m, WfKernelText *t, bool blocks)
{
    int kept = -1, n = 0;
    t->by_tile = WF_NEWN(m->a, bool, (size_t)m->g->inputs.n + 1);
    for (int i = 0; i < m->n_loops; i++)
        if (!m->loop[i].reduced && i != m->vec)
            kept = i, n++;
    if (n != 1 || blocks)
        return;
    for (int i = 0; i < m->g->inputs.n; i++) {
        int64_t size, rows, lo, hi, step;
        bool ok = m->loads[i].at.n > 0 && wf_elit(m->e, wf_numel(m->g, m->g->inputs.at[i].val), &size) &&
                  wf_elit(m->e, m->loop[kept].size, &rows) && rows > 0 && size % rows == 0;
        for (int j = 0; ok && j < m->loads[i].at.n; j++) {
            WfDim c, rest;
            ok = wf_elinear(m->e, m->loads[i].at.at[j].addr, m->loop[kept].var, &c, &rest) && wf_elit(m->e, c, &step) &&
                 step == size / rows && wf_erange(m->e, rest, &lo, &hi) && lo >= 0 && hi < step;
        }
        t->by_tile[i] = ok;
    }
}

/* Returns whether the vector loop is cut into blocks, so that a tile is less than one value of the other loops. */
static bool tile_loop(Em *m, int wide, WfKernelText *t, WfStr *fn)
{
    /* tile index -> kept loops, slowest first; the vector loop, when kept, is cut into blocks */
    int kept[WF_MAX_RANK], n = 0;
    WfDim tiles = 1, blocks = 1;
    bool blocked = m->vec >= 0 && !m->loop[m->vec].reduced;
    for (int i = 0; i < m->n_loops; i++)
        if (!m->loop[i].reduced && i != m->vec)
            kept[n++] = i;
    for (int i = 0; i < n; i++)
        tiles = wf_emul(m->e, tiles, m->loop[kept[i]].size);
    if (blocked) {
        WfDim size = m->loop[m->vec].size;
        int64_t block = m->column ? LANES * wide : n == 0 || at_least(m, tiles) < 64 ? BLOCK : 1 << 30;
        blocks = wf_efloordiv(m->e, wf_eadd(m->e, size, block - 1), block);
        tiles = wf_emul(m->e, tiles, blocks);
        wf_str_puts(fn, "for (long t = lo; t < hi; t++) {\n");
        if (blocks == 1)
            wf_str_puts(fn, "const long u = t, vb = 0;\n");
        else
            wf_str_printf(fn, "const long u = t / (%s), vb = t %% (%s) * %lldL;\n", text(m, blocks), text(m, blocks),
                          (long long)block);
        if (m->column)
            wf_str_printf(fn, "long %s = vb;\n", m->loop[m->vec].name);
        if (blocks == 1)
            wf_str_printf(fn, "const long ve = %s; (void)u; (void)ve;\n", text(m, size));
        else
            wf_str_printf(fn, "const long ve = vb + %lldL < %s ? vb + %lldL : %s; (void)u; (void)ve;\n",
                          (long long)block, text(m, size), (long long)block, text(m, size));
    } else {
        wf_str_puts(fn, "for (long t = lo; t < hi; t++) {\nconst long u = t; (void)u;\n");
    }
    WfDim below = 1;
    for (int i = n - 1; i >= 0; i--) {
        Loop *l = &m->loop[kept[i]];
        if (i == 0)
            wf_str_printf(fn, "const long %s = u / (%s);\n", l->name, text(m, below));
        else
            wf_str_printf(fn, "const long %s = u / (%s) %% (%s);\n", l->name, text(m, below), text(m, l->size));
        below = wf_emul(m->e, below, l->size);
    }
    t->tiles = tiles;
    return blocks != 1;
}

/* A tile of a column kernel: all its vectors at once, or one by one where the columns end, or the lanes left. */
static void column_tiles(Em *m, int wide, WfStr *tiles)
{
    int64_t size;
    bool lit = wf_elit(m->e, m->loop[m->vec].size, &size);
    const char *v = wf_arena_strdup(m->a, m->loop[m->vec].name), *end = text(m, m->loop[m->vec].size);
    m->tail = false;
    if (wide > 1) {
        tile_text(m, wide);
        wf_str_printf(tiles, "if (%s + %d <= %s) {\n%s%s = ve;\n}\n", v, LANES * wide, end, m->tile.at, v);
    }
    if (wide == 1 || size % (LANES * wide)) {
        if (wide > 1)
            wf_str_printf(tiles, "for (; %s < ve; %s += 16) {\n", v, v);
        if (!lit || size >= LANES) {
            tile_text(m, 1);
            wf_str_printf(tiles, "if (%s + 16 <= %s) {\n%s}\n", v, end, m->tile.at);
        }
        if (!lit || size % LANES) {
            m->tail = true;
            tile_text(m, 1);
            wf_str_printf(tiles, "if (%s + 16 > %s) { const int m = (int)(%s - %s); (void)m;\n%s}\n", v, end, end, v,
                          m->tile.at);
        }
        if (wide > 1)
            wf_str_puts(tiles, "}\n");
    }
}

WfKernelText *wf_emit_nest(WfGraph *g, const WfNode *n, const int *symbols, int n_symbols)
{
    Em *m = WF_NEW(g->arena, Em);
    m->g = n->args[1].graph;
    m->e = g->exprs;
    m->a = g->arena;
    m->symbols = symbols;
    m->n_symbols = n_symbols;
    m->rank = n->args[2].n;
    for (int i = 0; i < n->args[3].n; i++)
        m->reduced |= 1u << n->args[3].ints[i];
    WfKernelText *t = WF_NEW(m->a, WfKernelText);
    t->elements = 1;
    for (int i = 0; i < m->rank; i++) {
        WfDim size = n->args[2].ints[i];
        WfStr name = {.arena = m->a};
        wf_str_printf(&name, "n%d_%llx", i, (unsigned long long)size);
        m->shape[i] = size;
        m->var[i] = size == 1 ? 0 : wf_sym_bounded(m->e, name.at, size);
        t->elements = wf_emul(m->e, t->elements, size);
        if (!(m->reduced >> i & 1)) {
            m->row_shape[m->row_rank] = size;
            m->row_ix[m->row_rank++] = m->var[i];
        }
        if (size != 1)
            m->loop[m->n_loops++] = (Loop){.var = m->var[i], .size = size, .reduced = m->reduced >> i & 1};
    }
    m->loads = wf_arena_alloc(m->a, ((size_t)m->g->inputs.n + 1) * sizeof *m->loads);
    for (int i = 0; i < m->n_loops; i++)
        snprintf(m->loop[i].name, sizeof m->loop[i].name, "i%d", i);
    stages(m);
    gather_touched(m);
    memset(m->loads, 0, ((size_t)m->g->inputs.n + 1) * sizeof *m->loads);
    m->next = m->n_data = 0;
    order_loops(m, reference_address(m));
    merge_loops(m);
    choose_vector(m);
    find_cuts(m);
    m->deepest = m->column ? 1 : 2;
    for (int i = 0, d = 2; i < m->n_loops; i++) {
        snprintf(m->loop[i].name, sizeof m->loop[i].name, "i%d", i);
        if (!m->loop[i].reduced)
            m->loop[i].depth = 1;
        else if (i != m->vec)
            m->loop[i].depth = d++, m->deepest = m->column ? d - 1 : d;
    }
    if (m->vec >= 0 && !m->column)
        m->loop[m->vec].depth = m->deepest;
    WfStr fn = {.arena = m->a};
    wf_str_puts(&fn, "void KERNEL(void *const *b, const long *s, long *st, long lo, long hi)\n{\n(void)s; (void)st;\n");
    for (int i = 0; i < m->g->inputs.n; i++)
        wf_str_printf(&fn, "const t_%s *a%d = b[%d];\n", wf_dtype_name(wf_value(m->g, m->g->inputs.at[i].val)->dtype),
                      i, i);
    for (int k = 0; k < m->n_out; k++)
        wf_str_printf(&fn, "t_%s *o%d = b[%d];\n", wf_dtype_name(wf_value(m->g, m->out[k].v)->dtype), k,
                      m->g->inputs.n + k);
    m->head = (WfStr){.arena = m->a};
    m->scope[0] = &m->head;
    reset_cache(m, 0);
    WfStr tiles = {.arena = m->a};
    int wide = column_width(m);
    bool blocks = tile_loop(m, wide, t, &tiles);
    if (m->column) {
        column_tiles(m, wide, &tiles);
    } else {
        tile_text(m, 1);
        wf_str_puts(&tiles, m->tile.at ? m->tile.at : "");
    }
    wf_str_puts(&fn, m->head.at ? m->head.at : "");
    wf_str_puts(&fn, tiles.at);
    wf_str_puts(&fn, "}\n}\n");
    t->text = fn.at;
    t->n_in = m->g->inputs.n;
    t->n_out = m->n_out;
    t->checks = m->checks.at;
    t->n_checks = m->checks.n;
    find_inplace(m, t);
    find_rows(m, t, blocks);
    WfStr pre = {.arena = m->a};
    wf_emit_prelude(&pre, t->text);
    t->prelude = pre.at;
    return t;
}
