/* Tests of base: expressions over symbolic sizes. */
#include "base_fixture.h"

/* ---- expressions ---- */

static WfExprs *ex;
static WfArena *ex_arena;

static const char *text_of(WfExprs *e, WfDim d)
{
    WfStr s = { .arena = ex_arena };
    wf_eprint(e, d, &s);
    return s.at;
}

static WfDim expr(const char *text)
{
    const char *end;
    WfDim d = wf_eparse(ex, text, &end);
    assert_string_equal(end, "");
    return d;
}

static void is(const char *text, const char *expected)
{
    const char *got = text_of(ex, expr(text));
    if (strcmp(got, expected))
        fail_msg("%s gives %s instead of %s", text, got, expected);
}

static void expr_setup(void)
{
    ex_arena = wf_arena_new(ctx);
    ex = wf_exprs_new(ctx, ex_arena);
    WfDim s0 = wf_sym(ex, "s0", 1, 1024), s1 = wf_sym(ex, "s1", 1, INT64_MAX);
    wf_sym(ex, "n", INT64_MIN, INT64_MAX);
    wf_sym_bounded(ex, "i", s0);
    wf_sym_bounded(ex, "j", 64);
    wf_sym_bounded(ex, "x", wf_emul(ex, s0, 64));
    wf_sym_bounded(ex, "y", wf_emul(ex, s0, s1));
    wf_sym_bounded(ex, "r", s0);
}

static void test_expr_form(void **state)
{
    (void)state;
    expr_setup();
    is("1 + 2*s0*4", "8*s0+1");
    is("(s0+1)*(s0-1)", "s0*s0-1");
    is("s1*s0 - s0*s1", "0");
    is("-s0", "-s0");
    is("3-5", "-2");
    is("n//-4", "((-n)//4)");
    is("-(n%-4)", "((-n)%4)");
    is("-7//2", "-4");
    is("-7%3", "2");
    is("7%-3", "-2");
    is("-9223372036854775808", "-9223372036854775808");
    is("min(3,7)+max(3,7)", "10");
    is("min(n,min(s0,n))", "min(n,s0)");
    assert_int_equal(expr("2*(s0+s1)"), expr("s1+s0+s1+s0"));
    assert_int_equal(wf_econst(ex, 5), 5);
    assert_int_equal(wf_econst(ex, -5), expr("2-7"));
    int64_t v;
    assert_true(wf_elit(ex, expr("0-100000"), &v) && v == -100000);
    assert_false(wf_elit(ex, expr("s0"), &v));
    wf_arena_free(ex_arena);
}

static void test_expr_division(void **state)
{
    (void)state;
    expr_setup();
    is("(64*i+j)//64", "i");
    is("(64*i+j)%64", "j");
    is("(i*64+j)//(64*s0)", "0");
    is("(i*64+j)%(s0*64)", "64*i+j");
    is("x//64*64+x%64", "x");
    is("(x//64)//s0", "0");
    is("(x//64)%s0", "(x//64)");
    is("(x%128)//64", "((x//64)%2)");
    is("((x//64)%2)*64+x%64", "(x%128)");
    is("x//12*12+(x//4)%3*4+x%4", "x");
    is("y//s1*s1+y%s1", "y");
    is("(y//s1)//s0", "0");
    is("(j*s0+i)//s0", "j");
    is("(j*s0+i)%s0", "i");
    is("(j*s0*s1+i*s1+5*s1)//s1", "j*s0+i+5");
    is("(n//2)//3", "(n//6)");
    is("n%8%4", "(n%4)");
    is("(n%8+s0)%4", "((n+s0)%4)");
    is("(8*s0+1)%8", "1");
    is("(2*s0+1)//2", "s0");
    is("(6*n+4)//4", "n+(n//2)+1");
    is("(s0*(s1+1))//(s1+1)", "s0");
    is("(i*(s0+1)+r)//(s0+1)", "i");
    is("(i*(s0+1)+r)%(s0+1)", "r");
    is("(8*i-1)//8", "i-1");
    is("n//1+n%1", "n");
    is("(s0-1-i)//s0", "0");
    is("min(i,s0)", "i");
    is("max(i+1,s0)", "s0");
    is("((j//8)*(8*s0)+(j%8)*s0+i)//s0", "j");
    is("((j//8)*(8*s0)+(j%8)*s0+i)//(8*s0)", "(j//8)");
    wf_arena_free(ex_arena);
}

static void test_expr_queries(void **state)
{
    (void)state;
    expr_setup();
    assert_true(wf_eprove_lt(ex, expr("i*64+j"), expr("s0*64")));
    assert_false(wf_eprove_lt(ex, expr("i*64+j+1"), expr("s0*64")));
    assert_true(wf_eprove_lt(ex, expr("x//64"), expr("s0")));
    assert_true(wf_eprove_lt(ex, expr("y//s1"), expr("s0")));
    assert_true(wf_eprove_lt(ex, expr("i*s1+y%s1"), expr("s0*s1")));
    assert_true(wf_eprove_ge0(ex, expr("x-x%64")));
    assert_true(wf_eprove_ge0(ex, expr("(s0+3)//4*4-s0")));
    assert_true(wf_eprove_le(ex, expr("min(i*64,x)"), expr("64*s0-64")));
    assert_false(wf_eprove_ge0(ex, expr("n")));
    int64_t lo, hi, v;
    assert_true(wf_erange(ex, expr("3*s0-j"), &lo, &hi));
    assert_int_equal(lo, 3 - 63);
    assert_int_equal(hi, 3 * 1024);
    assert_false(wf_erange(ex, expr("s1-1"), &lo, &hi));
    assert_true(lo == 0 && hi == INT64_MAX);
    WfDim i = expr("i"), c, r;
    assert_true(wf_edepends(ex, expr("s0+(i//2)"), i));
    assert_false(wf_edepends(ex, expr("s0+j"), i));
    assert_int_equal(wf_esubst(ex, expr("i*64+(i%2)+j"), i, 4), expr("256+j"));
    WfDim syms[] = { i, expr("r") }, withs[] = { expr("r"), i };
    assert_int_equal(wf_esubst_all(ex, expr("2*i+r"), 2, syms, withs), expr("2*r+i"));
    assert_true(wf_elinear(ex, expr("3*i*s0+2*i+j-5"), i, &c, &r));
    assert_int_equal(c, expr("3*s0+2"));
    assert_int_equal(r, expr("j-5"));
    assert_true(wf_elinear(ex, expr("j"), i, &c, &r) && c == 0);
    assert_false(wf_elinear(ex, expr("i*i"), i, &c, &r));
    assert_false(wf_elinear(ex, expr("i+i//2"), i, &c, &r));
    int64_t values[8] = { 10, INT64_MAX, 0, 3 };
    assert_true(wf_eeval(ex, expr("s0*3+i"), values, &v) && v == 33);
    assert_false(wf_eeval(ex, expr("2*s1"), values, &v));
    assert_false(wf_eeval(ex, expr("5//n"), values, &v));
    assert_int_equal(wf_esym_id(ex, i), 3);
    assert_string_equal(wf_esym_name(ex, 3), "i");
    assert_true(wf_esym_below(ex, 3, &c) && c == expr("s0"));
    assert_true(wf_esym_count(ex) == 8 && wf_esym_at(ex, 3) == i && wf_sym_find(ex, "i", &c) && c == i);
    WfStr s = { .arena = ex_arena };
    wf_eprint_c(ex, expr("(x//64)*3-n//4+min(i,j)-5000000000"), &s, NULL, NULL);
    assert_string_equal(s.at, "-wf_floordiv(n, 4) + 3*(x / 64) + wf_min(i, j) - 5000000000LL");
    wf_arena_free(ex_arena);
}

static void parse_bad(void *arg)
{
    wf_eparse(ex, arg, NULL);
}

static void redeclare(void *arg)
{
    wf_sym(ex, arg, 2, 3);
}

static void test_expr_errors(void **state)
{
    (void)state;
    expr_setup();
    expect(WEFT_ERR_FILE, "known size", parse_bad, "2*q");
    expect(WEFT_ERR_FILE, "')'", parse_bad, "(2");
    expect(WEFT_ERR_FILE, "64-bit", parse_bad, "9223372036854775808");
    expect(WEFT_ERR_FILE, "a number", parse_bad, "");
    expect(WEFT_ERR_UNSUPPORTED, "zero", parse_bad, "n//(2-2)");
    expect(WEFT_ERR_UNSUPPORTED, "64 bits", parse_bad, "9223372036854775807*s0*2");
    char deep[1000];
    memset(deep, '(', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = 0;
    expect(WEFT_ERR_FILE, "nesting", parse_bad, deep);
    expect(WEFT_ERR_USAGE, "twice", redeclare, "s0");
    expect(WEFT_ERR_USAGE, "cannot be the name", redeclare, "a b");
    expect(WEFT_ERR_USAGE, "cannot be the name", redeclare, "min");
    is("s0+1", "s0+1"); /* the table works on after failures */
    wf_arena_free(ex_arena);
}

/* Random expressions: a tree of its own, evaluated directly, against the simplified form. */
typedef struct Tree { char op; int64_t v; struct Tree *a, *b; } Tree;
static Tree trees[4000];
static int tree_count;

static Tree *tree(char op, int64_t v, Tree *a, Tree *b)
{
    Tree *t = &trees[tree_count++];
    *t = (Tree){ op, v, a, b };
    return t;
}

enum { RANDOM_SYMS = 6 };

static Tree *random_tree(int depth)
{
    static const int64_t consts[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 63, 64, 128, -1, -2, -3, -4, -7 };
    static const int64_t divisors[] = { 1, 2, 3, 4, 8, 16, 32, 64, 12, 6, -2, -4 };
    if (depth == 0 || below(5) == 0)
        return below(5) < 3 ? tree('s', below(RANDOM_SYMS), NULL, NULL) : tree('c', consts[below(21)], NULL, NULL);
    char op = "+++--****//////%%%%%<>"[below(22)];
    Tree *a = random_tree(depth - 1), *b;
    bool divides = (op == '/' || op == '%') && below(4), plain = divides && below(3);
    if (divides) { /* by a constant, or by a constant times a size */
        b = tree('c', divisors[below(plain ? 12 : 10)], NULL, NULL);
        if (!plain)
            b = tree('*', 0, b, tree('s', below(3) / 2, NULL, NULL));
    } else {
        b = random_tree(depth - 1);
    }
    return tree(op, 0, a, b);
}

static bool value_of(const Tree *t, const int64_t *v, int64_t *out)
{
    int64_t x, y;
    if (t->op == 'c' || t->op == 's') {
        *out = t->op == 'c' ? t->v : v[t->v];
        return true;
    }
    if (!value_of(t->a, v, &x) || !value_of(t->b, v, &y))
        return false;
    if (t->op == '+')
        return wf_add_ok(x, y, out);
    if (t->op == '-')
        return !__builtin_sub_overflow(x, y, out);
    if (t->op == '*')
        return wf_mul_ok(x, y, out);
    if (t->op == '<' || t->op == '>') {
        *out = (t->op == '<') == (x < y) ? x : y;
        return true;
    }
    if (y == 0)
        return false;
    int64_t q = x / y, r = x % y;
    if (r && (r < 0) != (y < 0)) {
        q--;
        r += y;
    }
    *out = t->op == '/' ? q : r;
    return true;
}

static WfDim build_tree(WfExprs *e, const Tree *t, const WfDim *s)
{
    if (t->op == 'c' || t->op == 's')
        return t->op == 'c' ? wf_econst(e, t->v) : s[t->v];
    WfDim a = build_tree(e, t->a, s), b = build_tree(e, t->b, s);
    switch (t->op) {
    case '+': return wf_eadd(e, a, b);
    case '-': return wf_esub(e, a, b);
    case '*': return wf_emul(e, a, b);
    case '/': return wf_efloordiv(e, a, b);
    case '%': return wf_emod(e, a, b);
    case '<': return wf_emin(e, a, b);
    default: return wf_emax(e, a, b);
    }
}

static void random_syms(WfExprs *e, WfDim *s, bool reversed)
{
    for (int k = 0; k < 3; k++) {
        int i = reversed ? 2 - k : k;
        s[i] = i == 0 ? wf_sym(e, "s0", 1, 64) : i == 1 ? wf_sym(e, "s1", 0, INT64_MAX) : wf_sym(e, "n", -50, 50);
    }
    s[3] = wf_sym_bounded(e, "i", s[0]);
    s[4] = wf_sym_bounded(e, "j", 64);
    s[5] = wf_sym_bounded(e, "k", wf_eadd(e, wf_emul(e, s[0], 4), s[3]));
}

typedef struct { uint64_t seed; int depth; int64_t checks, proved; } Random;

static void random_case(void *arg)
{
    Random *q = arg;
    WfArena *a = ex_arena = wf_arena_scratch(ctx);
    WfExprs *e = wf_exprs_new(ctx, a), *f = wf_exprs_new(ctx, a);
    WfDim s[RANDOM_SYMS], z[RANDOM_SYMS];
    random_syms(e, s, false);
    random_syms(f, z, true);
    random_state = q->seed * 1000003;
    for (int round = 0; round < 4; round++) {
        tree_count = 0;
        const Tree *t = random_tree(q->depth);
        WfDim d = build_tree(e, t, s);
        const char *text = text_of(e, d), *end;
        if (wf_eparse(e, text, &end) != d || *end)
            fail_msg("seed %llu: %s does not read back", (unsigned long long)q->seed, text);
        if (strcmp(text_of(f, build_tree(f, t, z)), text))
            fail_msg("seed %llu: %s in one table, %s in another", (unsigned long long)q->seed, text,
                     text_of(f, build_tree(f, t, z)));
        bool ge0 = wf_eprove_ge0(e, d);
        q->proved += ge0;
        int64_t lo, hi, x, y;
        wf_erange(e, d, &lo, &hi);
        for (int k = 0; k < 30; k++) {
            int64_t s0 = 1 + below(k < 5 ? 2 : 64), i = k % 3 ? below((int)s0) : s0 - 1, top = 4 * s0 + i;
            int64_t v[] = { s0, k ? below(300) : 0, below(101) - 50, i, k % 4 ? below(64) : 63,
                            k % 5 ? below((int)top) : top - 1 };
            if (!value_of(t, v, &x))
                continue;
            q->checks++;
            if (!wf_eeval(e, d, v, &y) || x != y || x < lo || x > hi || (ge0 && x < 0))
                fail_msg("seed %llu: %s is %lld, directly %lld, range %lld..%lld, proved >= 0: %d",
                         (unsigned long long)q->seed, text, (long long)y, (long long)x, (long long)lo, (long long)hi, ge0);
        }
    }
    wf_arena_free(a);
}

static void test_expr_random(void **state)
{
    (void)state;
    Random q = { .depth = 4 };
    int raised = 0;
    for (q.seed = 1; q.seed <= 3000; q.seed++) {
        q.depth = 3 + (int)(q.seed % 3);
        weft_status st = wf_guard(ctx, random_case, &q);
        if (st && st != WEFT_ERR_UNSUPPORTED) /* a constant zero divisor */
            fail_msg("seed %llu: %s", (unsigned long long)q.seed, ctx->diag.message);
        raised += st != 0;
    }
    print_message("expressions: %lld values compared, %lld proofs, %d of 3000 divide by zero\n", (long long)q.checks,
                  (long long)q.proved, raised);
    assert_true(q.checks > 100000 && q.proved > 500 && raised < 1000);
}

static void make_exprs(void *arg)
{
    (void)arg;
    WfArena *a = wf_arena_scratch(ctx);
    WfExprs *e = wf_exprs_new(ctx, a);
    WfDim s = wf_sym(e, "s0", 1, INT64_MAX), i = wf_sym_bounded(e, "i", s);
    WfDim d = wf_efloordiv(e, wf_eadd(e, wf_emul(e, i, 64), wf_emod(e, s, 64)), 64);
    for (int k = 0; k < 200; k++)
        d = wf_eadd(e, wf_emul(e, i, k), wf_emod(e, d, 1000 + k));
    wf_arena_free(a);
}

static void test_expr_memory(void **state)
{
    (void)state;
    inject(make_exprs, NULL, WF_SEAM_ALLOC, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expr_form),
        cmocka_unit_test(test_expr_division),
        cmocka_unit_test(test_expr_queries),
        cmocka_unit_test(test_expr_errors),
        cmocka_unit_test(test_expr_random),
        cmocka_unit_test(test_expr_memory),
    };
    return cmocka_run_group_tests_name("expr", tests, setup, teardown);
}
