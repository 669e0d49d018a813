/* The value of a node at an index as C text. Every value is a vector of 16 lanes. An instance is (node,
 * index, guards) and is written once per scope: its text goes to the outermost scope where all loops it
 * depends on are open. Views change the index and add guards; a load whose guards vary by lane reads whole
 * vectors where both end lanes are inside, and lane by lane elsewhere. */
#include "emit/nest.h"
#include "fuse/fuse.h"

/* ---- loads ---- */

/* Vectors begin at multiples of their length. Where each lane's address is then the first lane's and a constant, as of groups of
 * channels: these constants. */
static bool lane_steps(Em *m, WfDim addr, int64_t step[LANES])
{
    if (m->tail || wf_em_lane_data(m, addr) || (m->hi && m->lo % LANES))
        return false;
    WfDim var = m->loop[m->vec].var, q = wf_sym(m->e, "vector", 0, INT64_MAX / LANES - 1);
    WfDim begin = wf_emul(m->e, q, LANES), first = wf_esubst(m->e, addr, var, begin);
    for (int l = 0; l < LANES; l++)
        if (!wf_elit(m->e, wf_esub(m->e, wf_esubst(m->e, addr, var, wf_eadd(m->e, begin, l)), first), &step[l]))
            return false;
    return true;
}

static char *lane_elements(Em *m, const char *dt, int k, WfDim addr, const int64_t step[LANES])
{
    WfStr s = {.arena = m->a};
    char *first = wf_em_text(m, addr);
    for (int l = 0; l < LANES; l++)
        wf_str_printf(&s, "%sget_%s(a%d + %s + %lldL)", l ? ", " : "", dt, k, first, (long long)step[l]);
    return s.at;
}

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
    addr = wf_em_merged(m, addr);
    int da = wf_em_depth_of(m, addr), dg = wf_em_guards_depth(m, gd), depth = da > dg ? da : dg;
    Val r = fresh(m, class_of(x->dtype), depth);
    if (!m->tail || m->hi)
        WF_PUSH(m->a, &m->loads[k].at, ((Access){addr, m->pass, gd->n > 0}));
    const char *dt = wf_dtype_name(x->dtype);
    char *uniform = wf_em_condition(m, gd, 0, NULL);
    if (!wf_em_on_vector(m,
                         addr)) { /* one element for all lanes; the selection above applies varying guards */
        if (gd->n)
            wf_em_define(m, r, "%s ? splat_%s(a%d[%s]) : zero_%c()", uniform, dt, k, wf_em_text(m, addr),
                         suffix[r.cls]);
        else
            wf_em_define(m, r, "splat_%s(a%d[%s])", dt, k, wf_em_text(m, addr));
        return r;
    }
    WfDim coef = 0, rest = 0;
    bool linear = !wf_em_lane_data(m, addr) && wf_elinear(m->e, addr, m->loop[m->vec].var, &coef, &rest) &&
                  !wf_em_on_vector(m, coef);
    WfStr *s = at(m, depth);
    char *varying = wf_em_condition(m, gd, 1, "vv");
    bool varies = strcmp(varying, "1");
    int64_t step[LANES];
    if (!linear && !varies && lane_steps(m, addr, step)) {
        char *elements = lane_elements(m, dt, k, addr, step);
        if (gd->n)
            wf_em_define(m, r, "%s ? (v%c){%s} : zero_%c()", uniform, suffix[r.cls], elements, suffix[r.cls]);
        else
            wf_em_define(m, r, "(v%c){%s}", suffix[r.cls], elements);
        return r;
    }
    if (!linear || (varies && (!wf_em_monotonic(m, gd) || coef != 1))) {
        wf_em_define(m, r, "zero_%c()", suffix[r.cls]);
        wf_str_printf(s, "if (%s) ", uniform);
        wf_em_lane_loop(m, s, varying, "v%d[l] = get_%s(a%d + %s)", r.id, dt, k, wf_em_text_vv(m, addr));
        return r;
    }
    char *fast = coef == 1 ? wf_arena_printf(m->a, m->tail ? "ldp_%s(a%d + %s, m)" : "ld_%s(a%d + %s)", dt, k,
                                             wf_em_text(m, addr))
                           : wf_arena_printf(m->a, "lds_%s(a%d + %s, %s, %s)", dt, k, wf_em_text(m, addr),
                                             wf_em_text(m, coef), lanes(m));
    if (!varies) {
        if (gd->n)
            wf_em_define(m, r, "%s ? %s : zero_%c()", uniform, fast, suffix[r.cls]);
        else
            wf_em_define(m, r, "%s", fast);
        return r;
    }
    char last[sizeof m->loop[0].name];
    snprintf(last, sizeof last, "(%s+%s-1)", vname(m), lanes(m));
    wf_em_define(m, r, "zero_%c()", suffix[r.cls]);
    wf_str_printf(s, "if (%s) { if (%s && %s) v%d = %s; else ", uniform, wf_em_condition(m, gd, 1, NULL),
                  wf_em_condition(m, gd, 1, last), r.id, fast);
    wf_em_lane_loop(m, s, varying, "v%d[l] = get_%s(a%d + %s)", r.id, dt, k, wf_em_text_vv(m, addr));
    wf_str_puts(s, "}\n");
    return r;
}

/* ---- views ---- */

/* Mask of the guards that a view itself adds. */
static Val mask(Em *m, const Guards *own)
{
    int depth = wf_em_guards_depth(m, own);
    Val k = fresh(m, C_B, depth);
    char *varying = wf_em_condition(m, own, 1, "vv"), *uniform = wf_em_condition(m, own, 0, NULL);
    if (!strcmp(varying, "1")) {
        wf_em_define(m, k, "splat_i(-(%s))", uniform);
        return k;
    }
    if (wf_em_monotonic(m, own)) {
        WfStr s = {.arena = m->a};
        for (int i = 0; i < own->n; i++) {
            WfDim c, r;
            if (!wf_em_on_vector(m, own->at[i].value))
                continue;
            wf_elinear(m->e, own->at[i].value, m->loop[m->vec].var, &c, &r);
            char *value = wf_arena_printf(m->a, "(splat_i(%s) + splat_i(%s) * iota_i())",
                                          wf_em_text(m, own->at[i].value), wf_em_text(m, c));
            wf_str_printf(&s, "%s(%s >= splat_i(%s)) & ", s.n ? " & " : "", value,
                          wf_em_text(m, own->at[i].lo));
            wf_str_printf(&s, "(%s < splat_i(%s))", value, wf_em_text(m, own->at[i].hi));
        }
        wf_em_define(m, k, "splat_i(-(%s)) & %s", uniform, s.at);
        return k;
    }
    wf_em_define(m, k, "zero_i()");
    wf_str_printf(at(m, depth), "if (%s) ", uniform);
    wf_em_lane_loop(m, at(m, depth), varying, "v%d[l] = -1", k.id);
    return k;
}

static int max3(int a, int b, int c)
{
    return a > b ? (a > c ? a : c) : b > c ? b : c;
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
            gg.value = wf_em_merged(m, gg.value);
            int known = wf_em_in_piece(m, &gg);
            nowhere |= known == 0;
            if (known == 1 || wf_em_provable(m, &gg))
                continue;
            if (inner.n == MAX_GUARDS)
                wf_fail_node(m->g, n, WF_E_OP_FORM, "too many nested paddings in one kernel");
            inner.at[inner.n++] = own.at[own.n++] = gg;
        }
        if (nowhere) {
            if (i == 0) {
                acc = fresh(m, class_of(wf_value(m->g, n->out)->dtype), 0);
                wf_em_define(m, acc, "splat_%c(%s)", suffix[acc.cls], wf_em_literal(m, x.fill, acc.cls));
            }
            continue;
        }
        Val v = wf_em_eval(m, in[i], x.at, &inner);
        if (!own.n) {
            acc = v;
            continue;
        }
        Val c = mask(m, &own);
        if (i == 0) {
            Val r = fresh(m, v.cls, max3(v.depth, c.depth, 0));
            wf_em_define(m, r, "sel_%c(v%d, v%d, splat_%c(%s))", suffix[v.cls], c.id, v.id, suffix[v.cls],
                         wf_em_literal(m, x.fill, v.cls));
            acc = r;
        } else {
            Val r = fresh(m, v.cls, max3(v.depth, c.depth, acc.depth));
            wf_em_define(m, r, "sel_%c(v%d, v%d, v%d)", suffix[v.cls], c.id, v.id, acc.id);
            acc = r;
        }
    }
    return acc;
}

/* ---- sources, gathers, pointwise ---- */

Val wf_em_index_value(Em *m, WfDim d)
{
    touch(m, d);
    d = wf_em_merged(m, d);
    Val r = fresh(m, C_L, wf_em_depth_of(m, d));
    WfDim c, rest;
    if (!wf_em_on_vector(m, d)) {
        wf_em_define(m, r, "splat_l(%s)", wf_em_text(m, d));
    } else if (!wf_em_lane_data(m, d) && wf_elinear(m->e, d, m->loop[m->vec].var, &c, &rest) &&
               !wf_em_on_vector(m, c)) {
        wf_em_define(m, r, "splat_l(%s) + splat_l(%s) * iota_l()", wf_em_text(m, d), wf_em_text(m, c));
    } else {
        int64_t step[LANES];
        WfStr steps = {.arena = m->a};
        if (lane_steps(m, d, step)) {
            for (int l = 0; l < LANES; l++)
                wf_str_printf(&steps, "%s%lldL", l ? ", " : "", (long long)step[l]);
            wf_em_define(m, r, "splat_l(%s) + (vl){%s}", wf_em_text(m, d), steps.at);
            return r;
        }
        wf_em_define(m, r, "zero_l()");
        wf_em_lane_loop(m, at(m, r.depth), NULL, "v%d[l] = %s", r.id, wf_em_text_vv(m, d));
    }
    return r;
}

static bool small_index(Em *m, WfDim d)
{
    int64_t lo, hi;
    WfDim c, r, x = wf_em_merged(m, d);
    return wf_erange(m->e, x, &lo, &hi) && lo >= 0 && hi < INT32_MAX &&
           (!wf_em_on_vector(m, x) ||
            (!wf_em_lane_data(m, x) && wf_elinear(m->e, x, m->loop[m->vec].var, &c, &r) &&
             !wf_em_on_vector(m, c)));
}

/* An index expression that fits 32 bits, as int32 lanes: half the registers of index_value. */
static Val short_index(Em *m, WfDim d)
{
    touch(m, d);
    d = wf_em_merged(m, d);
    Val r = fresh(m, C_I, wf_em_depth_of(m, d));
    WfDim c, rest;
    if (!wf_em_on_vector(m, d))
        wf_em_define(m, r, "splat_i(%s)", wf_em_text(m, d));
    else if (wf_elinear(m->e, d, m->loop[m->vec].var, &c, &rest))
        wf_em_define(m, r, "splat_i(%s) + splat_i(%s) * iota_i()", wf_em_text(m, d), wf_em_text(m, c));
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
        wf_em_define(m, r, "round_%s(v%d)", wf_dtype_name(to), v.id);
    else if (c == C_I && to != WF_I32)
        wf_em_define(m, r, "wrap_%s(cvt_%c%c(v%d))", wf_dtype_name(to), code, want, v.id);
    else if (v.cls == c)
        wf_em_define(m, r, "v%d", v.id);
    else if (to == WF_BF16 || to == WF_F16)
        wf_em_define(m, r, "round_%s(cvt_%c%c(v%d))", wf_dtype_name(to), code, want, v.id);
    else
        wf_em_define(m, r, "cvt_%c%c(v%d)", code, want, v.id);
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
        wf_em_define(m, r, "splat_%c(%s)", suffix[r.cls], wf_em_literal(m, v, r.cls));
        return r;
    }
    if (!strcmp(name, "iota") && y->dtype == WF_I32 && small_index(m, ix[n->args[1].i]))
        return short_index(m, ix[n->args[1].i]);
    if (!strcmp(name, "iota"))
        return convert(m, wf_em_index_value(m, ix[n->args[1].i]), WF_I64, y->dtype);
    if (!strcmp(name, "size"))
        return convert(m, wf_em_index_value(m, wf_int(n, 0)), WF_I64, y->dtype);
    Val i = wf_em_index_value(m, wf_flatten(m->e, y->rank, y->shape, ix));
    Val r = fresh(m, C_F, i.depth);
    wf_em_define(m, r, "philox_f(s[%d], s[%d], s[%d], %lld, v%d)", WF_S_SEED, WF_S_STEP, WF_S_ITERATION,
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
    Val i = wf_em_eval(m, index, ix, gd);
    bool varies = may_vary(m, i.depth);
    if (m->n_data == 256)
        wf_fail_node(m->g, n, WF_E_OP_FORM, "too many gathers in one kernel");
    WfStr name = {.arena = m->a};
    wf_str_printf(&name, "data%d", m->n_data);
    int k = m->n_data++;
    WfDim size = wf_value(m->g, x)->shape[dim];
    m->data[k].id = m->next++;
    m->data[k].sym = wf_sym(m->e, name.at, 0, INT64_MAX);
    int g_depth = wf_em_guards_depth(m, gd), depth = i.depth > g_depth ? i.depth : g_depth;
    m->data[k].depth = depth;
    m->data[k].val = i;
    m->data[k].val.depth = varies ? m->deepest + 100 : depth;
    WfStr *s = at(m, depth);
    int check = add_check(m, n);
    char *uniform = wf_em_condition(m, gd, 0, NULL);
    if (varies) {
        wf_str_printf(s, "vl d%d = cvt_%cl(v%d);\n", m->data[k].id, "fdilb"[i.cls], i.id);
        wf_em_lane_loop(m, s,
                        wf_arena_printf(m->a, "(unsigned long)d%d[l] >= (unsigned long)(%s)", m->data[k].id,
                                        wf_em_text(m, size)),
                        "{ if (%s && %s && !st[0]) st[1] = d%d[l], st[0] = %d; d%d[l] = 0; }", uniform,
                        wf_em_condition(m, gd, 1, "vv"), m->data[k].id, check + 1, m->data[k].id);
    } else {
        wf_str_printf(s, "long d%d = v%d[0];\n", m->data[k].id, i.id);
        wf_str_printf(
            s,
            "if ((unsigned long)d%d >= (unsigned long)(%s)) { if (%s && !st[0]) st[1] = d%d, st[0] = %d; "
            "d%d = 0; }\n",
            m->data[k].id, wf_em_text(m, size), uniform, m->data[k].id, check + 1, m->data[k].id);
    }
    WfDim to[WF_MAX_RANK];
    memcpy(to, ix, sizeof to);
    to[dim] = m->data[k].sym;
    return wf_em_eval(m, x, to, gd);
}

static void check(Em *m, const WfNode *n, Val v)
{
    int k = add_check(m, n);
    WfStr *s = at(m, v.depth);
    int64_t ignore = 0;
    wf_elit(m->e, wf_int(n, 3), &ignore);
    if (!may_vary(m, v.depth)) {
        wf_str_printf(
            s,
            "if ((v%d[0] < %s || v%d[0] >= %s) && v%d[0] != %lldL && !st[0]) st[1] = v%d[0], st[0] = %d;\n",
            v.id, wf_em_text(m, wf_int(n, 1)), v.id, wf_em_text(m, wf_int(n, 2)), v.id, (long long)ignore,
            v.id, k + 1);
        return;
    }
    wf_em_lane_loop(m, s,
                    wf_arena_printf(m->a, "(v%d[l] < %s || v%d[l] >= %s) && v%d[l] != %lldL", v.id,
                                    wf_em_text(m, wf_int(n, 1)), v.id, wf_em_text(m, wf_int(n, 2)), v.id,
                                    (long long)ignore),
                    "{ if (!st[0]) st[1] = v%d[l], st[0] = %d; }", v.id, k + 1);
}

static Val pointwise(Em *m, const WfNode *n, const WfDim *ix, const Guards *gd)
{
    WfVal in[16];
    Val a[16];
    int k = wf_operands(n, in, 16), depth = 0;
    for (int i = 0; i < k; i++) {
        a[i] = wf_em_eval(m, in[i], ix, gd);
        depth = a[i].depth > depth ? a[i].depth : depth;
    }
    WfDtype xt = wf_value(m->g, in[k - 1])->dtype, yt = wf_value(m->g, n->out)->dtype;
    if (!strcmp(n->schema->name, "prim.cast"))
        return convert(m, a[0], xt, yt);
    Class c = a[k - 1].cls;
    const char *tpl = c == C_B ? n->op->c_bool : c == C_F || c == C_D ? n->op->c_float : n->op->c_int;
    if (!tpl)
        wf_fail_node(m->g, n, WF_E_OP_FORM, "not defined for %s", wf_dtype_name(xt));
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
        wf_em_define(m, r, "mask_%c(%s)", suffix[c], s.at);
    else if (narrow)
        wf_em_define(m, r, "wrap_%s(%s)", wf_dtype_name(yt), s.at);
    else if (yt == WF_BF16 || yt == WF_F16)
        wf_em_define(m, r, "round_%s(%s)", wf_dtype_name(yt), s.at);
    else
        wf_em_define(m, r, "%s", s.at);
    return r;
}

Val wf_em_eval(Em *m, WfVal v, const WfDim *ix, const Guards *gd)
{
    const WfNode *n = wf_producer(m->g, v);
    int rank = wf_value(m->g, v)->rank;
    if (n && n->op->family == WF_REDUCE) {
        int64_t hit;
        if (!wf_map_get_bytes(m->reductions, &v, sizeof v, &hit))
            wf_fail_node(m->g, n, WF_E_BUG, "a reduction is read before its pass");
        return *(Val *)(intptr_t)hit;
    }
    struct {
        WfVal v;
        int n;
        WfDim ix[WF_MAX_RANK];
        Guard gd[MAX_GUARDS];
    } key;
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

void wf_em_reset_cache(Em *m, int from)
{
    for (int d = from; d < (int)WF_LEN(m->cache); d++)
        m->cache[d] = wf_map_new(m->a);
}
