/* Tests of base: arenas, contexts, strings, maps, hashes, dtypes, packing. */
#include "base_fixture.h"

/* ---- arena, context ---- */

static void test_arena(void **state)
{
    (void)state;
    WfArena *a = wf_arena_new(ctx);
    char *p = wf_arena_alloc(a, 10), *q = wf_arena_alloc(a, 100000), *r = wf_arena_alloc(a, 0);
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_int_equal((uintptr_t)q % 16, 0);
    assert_non_null(r);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(q[i], 0);
    char *g = wf_arena_strdup(a, "abc");
    g = wf_arena_grow(a, g, 4, 5000);
    assert_string_equal(g, "abc");
    assert_int_equal(g[4999], 0);
    WF_VEC(int) v = { NULL, 0, 0 };
    for (int i = 0; i < 1000; i++)
        WF_PUSH(a, &v, i * i);
    assert_int_equal(v.n, 1000);
    assert_int_equal(v.at[999], 998001);
    assert_string_equal(wf_arena_printf(a, "%d-%s", 7, "x"), "7-x");
    assert_true(wf_mul_size(SIZE_MAX / 2, 3) == SIZE_MAX);
    int64_t out;
    assert_false(wf_mul_ok(INT64_MAX, 2, &out));
    assert_false(wf_add_ok(INT64_MAX, 1, &out));
    assert_true(wf_add_ok(40, 2, &out) && out == 42);
    wf_arena_free(a);
    wf_arena_free(NULL);
}

static void ask_too_much(void *arg)
{
    WfArena *a = wf_arena_scratch(ctx);
    WF_NEWN(a, int64_t, *(size_t *)arg);
}

static size_t embedder_bytes;

static void *embedder_alloc(void *user, size_t n)
{
    (void)user;
    embedder_bytes += n;
    void *p = malloc(n);
    if (p)
        memset(p, 0xee, n);
    return p;
}

static void embedder_release(void *user, void *p, size_t n)
{
    (void)user;
    embedder_bytes -= n;
    free(p);
}

static void test_arena_limits(void **state)
{
    (void)state;
    expect(WEFT_ERR_MEMORY, "too large", ask_too_much, &(size_t){ SIZE_MAX });
    expect(WEFT_ERR_MEMORY, NULL, ask_too_much, &(size_t){ (size_t)1 << 59 });
    WfCtx *own = wf_ctx_new();
    own->alloc = embedder_alloc;
    own->release = embedder_release;
    WfArena *a = wf_arena_new(own);
    unsigned char *p = wf_arena_alloc(a, 50000);
    assert_int_equal(p[0] | p[49999], 0);
    assert_true(embedder_bytes > 50000);
    wf_ctx_free(own); /* frees the arena too */
    assert_int_equal(embedder_bytes, 0);
}

static int trace[8], traced;

static void note(void *p)
{
    trace[traced++] = (int)(intptr_t)p;
}

static void inner_fails(void *arg)
{
    (void)arg;
    wf_defer(ctx, note, (void *)2);
    WfDefer *d = wf_defer(ctx, note, (void *)3);
    wf_defer_keep(wf_defer(ctx, note, (void *)9));
    wf_defer(ctx, note, (void *)4);
    wf_defer_run(d);
    wf_fail_at(ctx, WEFT_ERR_DATA, "here", "do that", "value %d is wrong", 5);
}

static void outer_fails(void *arg)
{
    wf_defer(ctx, note, (void *)1);
    weft_status st = wf_guard(ctx, inner_fails, arg);
    assert_int_equal(st, WEFT_ERR_DATA);
    assert_int_equal(traced, 3);
    wf_fail(ctx, WEFT_ERR_FILE, "outer: %s", ctx->diag.message); /* quotes the present diagnostic */
}

static void stop_now(void *arg)
{
    ctx->cancel = arg;
    wf_check_cancel(ctx);
}

static void break_it(void *arg)
{
    WF_ASSERT(ctx, arg == NULL && traced == -1);
}

static char logged[2000];

static void take_log(void *user, WfLogLevel level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(logged, sizeof(logged), "%s", line);
}

static void test_ctx(void **state)
{
    (void)state;
    traced = 0;
    expect(WEFT_ERR_FILE, "outer: value 5 is wrong", outer_fails, NULL);
    assert_null(ctx->diag.place);
    assert_int_equal(traced, 4);
    int order[] = { 3, 4, 2, 1 };
    assert_memory_equal(trace, order, sizeof(order));
    traced = 0;
    expect(WEFT_ERR_DATA, NULL, inner_fails, NULL);
    assert_string_equal(ctx->diag.place, "here");
    assert_string_equal(ctx->diag.hint, "do that");
    volatile int flag = 0;
    expect(WEFT_OK, NULL, stop_now, (void *)&flag);
    flag = 1;
    expect(WEFT_ERR_CANCELLED, NULL, stop_now, (void *)&flag);
    ctx->cancel = NULL;
    expect(WEFT_ERR_INTERNAL, "test_base.c", break_it, NULL);
    ctx->log = take_log;
    wf_log(ctx, WF_LOG_INFO, "%01500d", 7);
    assert_int_equal(strlen(logged), 1500);
    ctx->log = NULL;
    assert_string_equal(wf_status_name(WEFT_ERR_NUMERIC), "numeric");
}

static void test_clock(void **state)
{
    (void)state;
    double now = wf_now(), start = wf_process_start();
    assert_true(start <= wf_now() && start > now - 3600);
    assert_true(wf_now() >= now);
    char *p = wf_sys_map(5 << 20, true);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % (2 << 20), 0);
    assert_int_equal(p[(5 << 20) - 1], 0);
    wf_sys_unmap(p, 5 << 20);
}

/* ---- strings, maps, hashes, environment ---- */

static const char *float_text(WfArena *a, double v)
{
    WfStr s = { .arena = a };
    wf_str_float(&s, v);
    return s.at;
}

static void test_str(void **state)
{
    (void)state;
    WfArena *a = wf_arena_new(ctx);
    WfStr s = { .arena = a };
    for (int i = 0; i < 1000; i++)
        wf_str_printf(&s, "%d,", i);
    wf_str_putc(&s, 'x');
    wf_str_puts(&s, "yz");
    assert_int_equal(s.n, 10 + 90 * 2 + 900 * 3 + 1000 + 3);
    assert_memory_equal(s.at, "0,1,2,", 6);
    assert_string_equal(s.at + s.n - 3, "xyz");
    assert_string_equal(float_text(a, 0.1), "0.1");
    assert_string_equal(float_text(a, 1.0 / 3), "0.3333333333333333");
    assert_string_equal(float_text(a, -0.0), "-0");
    assert_string_equal(float_text(a, 5e-324), "5e-324");
    assert_string_equal(float_text(a, INFINITY), "inf");
    assert_string_equal(float_text(a, -INFINITY), "-inf");
    assert_string_equal(float_text(a, NAN), "nan");
    for (int i = 0; i < 1000; i++) {
        double v = ldexp((double)((int64_t)i * 7919 * 104729 + 1), i - 500);
        assert_true(strtod(float_text(a, v), NULL) == v);
    }
    const char *words[] = { "learning-rate", "batch", "epochs" };
    assert_string_equal(wf_nearest("btach", words, 3), "batch");
    assert_string_equal(wf_nearest("Epoch", words, 3), "epochs");
    assert_null(wf_nearest("zzz", words, 3));
    wf_arena_free(a);
}

static void test_map(void **state)
{
    (void)state;
    WfArena *a = wf_arena_new(ctx);
    WfMap *m = wf_map_new(a);
    char key[32];
    int64_t v;
    assert_false(wf_map_get(m, "", &v));
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        wf_map_put(m, key, i);
    }
    wf_map_put(m, "key7", -7);
    assert_int_equal(wf_map_count(m), 5000);
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        assert_true(wf_map_get(m, key, &v));
        assert_int_equal(v, i == 7 ? -7 : i);
        size_t n;
        assert_string_equal(wf_map_at(m, i, &n, &v), key);
        assert_int_equal(n, strlen(key));
    }
    assert_false(wf_map_get(m, "key5000", NULL));
    wf_map_put_bytes(m, "a\0b", 3, 1);
    assert_true(wf_map_get_bytes(m, "a\0b", 3, &v));
    assert_false(wf_map_get_bytes(m, "a\0c", 3, &v));
    wf_map_put(m, "", 5);
    assert_true(wf_map_get(m, "", &v) && v == 5);
    wf_arena_free(a);
}

static void test_hash(void **state)
{
    (void)state;
    WfArena *a = wf_arena_new(ctx);
    WfSha *h = wf_sha_new(ctx, a);
    char hex[65];
    wf_sha_add(h, "a", 1);
    wf_sha_add(h, "bc", 2);
    wf_sha_hex(h, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(wf_hash64(NULL, 0, 0) == 0x2d06800538d394c2ull); /* XXH3 of nothing */
    assert_true(wf_hash64("x", 1, 0) != wf_hash64("x", 1, 1));
    wf_arena_free(a);
    setenv("WEFT_CC", "mycc", 1);
    setenv("WEFT_UNLISTED", "1", 1);
    assert_string_equal(wf_env("WEFT_CC"), "mycc");
    assert_null(wf_env("WEFT_UNLISTED"));
    unsetenv("WEFT_CC");
    assert_null(wf_env("WEFT_CC"));
}

/* ---- dtypes ---- */

static uint16_t half(WfDtype t, double v)
{
    uint16_t h;
    wf_store_f64(t, &h, v);
    return h;
}

static void test_dtype(void **state)
{
    (void)state;
    assert_int_equal(wf_dtype_parse("torch.bfloat16"), WF_BF16);
    assert_int_equal(wf_dtype_parse("i64"), WF_I64);
    assert_int_equal(wf_dtype_parse("complex64"), 0);
    assert_string_equal(wf_dtype_name(WF_BOOL), "bool");
    assert_int_equal(wf_dtype_size(WF_I16), 2);
    for (uint32_t i = 0; i < 0x10000; i++) { /* every 16-bit value there and back */
        uint16_t h = (uint16_t)i;
        bool nan16 = (i & 0x7c00) == 0x7c00 && (i & 0x3ff), nanb = (i & 0x7f80) == 0x7f80 && (i & 0x7f);
        double f = wf_load_f64(WF_F16, &h), b = wf_load_f64(WF_BF16, &h);
        if (nan16)
            assert_true(isnan(f) && isnan(wf_load_f64(WF_F16, &(uint16_t){ half(WF_F16, f) })));
        else
            assert_int_equal(half(WF_F16, f), h);
        if (nanb)
            assert_true(isnan(b));
        else
            assert_int_equal(half(WF_BF16, b), h);
    }
    assert_int_equal(half(WF_F16, 65519.999), 0x7bff);
    assert_int_equal(half(WF_F16, 65520), 0x7c00);
    assert_int_equal(half(WF_F16, 1 + 0x1p-11), 0x3c00);              /* tie: to even */
    assert_int_equal(half(WF_F16, 1 + 3 * 0x1p-11), 0x3c02);          /* tie: to even, upwards */
    assert_int_equal(half(WF_F16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);    /* a float in between would lose this */
    assert_int_equal(half(WF_F16, 0x1p-25), 0);
    assert_int_equal(half(WF_F16, 0x1.8p-25), 1);
    assert_int_equal(half(WF_F16, -0x1p-24), 0x8001);
    assert_int_equal(half(WF_BF16, 1 + 0x1p-8), 0x3f80);
    assert_int_equal(half(WF_BF16, 1 + 0x1p-8 + 0x1p-50), 0x3f81);
    assert_int_equal(half(WF_BF16, 1e300), 0x7f80);
    uint16_t h;
    wf_store_i64(WF_BF16, &h, ((int64_t)0x101 << 54) + 1); /* just above a tie, which 53 bits cannot tell */
    assert_int_equal(h, half(WF_BF16, 0x1.02p62));
    int8_t i8;
    uint8_t u8;
    wf_store_f64(WF_I8, &i8, -1.9);
    assert_int_equal(i8, -1);
    wf_store_i64(WF_U8, &u8, 257);
    assert_int_equal(u8, 1);
    wf_store_f64(WF_BOOL, &u8, 0.25);
    assert_int_equal(u8, 1);
    assert_int_equal(wf_load_i64(WF_F64, &(double){ -2.7 }), -2);
    assert_true(wf_load_i64(WF_F64, &(double){ 1e30 }) == INT64_MAX);
    assert_int_equal(wf_load_i64(WF_F64, &(double){ NAN }), 0);
}

/* ---- packing ---- */

static void check_packing(const WfPackItem *it, int n, int64_t slab, int64_t align)
{
    for (int i = 0; i < n; i++) {
        assert_true(it[i].offset >= 0 && it[i].offset % align == 0 && it[i].offset + it[i].size <= slab);
        for (int j = 0; j < i; j++) {
            bool meet = it[i].first <= it[j].last && it[j].first <= it[i].last;
            bool apart = it[i].offset + it[i].size <= it[j].offset || it[j].offset + it[j].size <= it[i].offset;
            assert_true(!meet || apart || !it[i].size || !it[j].size);
        }
    }
}

static void test_pack(void **state)
{
    (void)state;
    WfArena *a = wf_arena_new(ctx);
    WfPackItem three[] = { { 100, 0, 1, 0 }, { 50, 2, 3, 0 }, { 64, 1, 2, 0 } };
    assert_int_equal(wf_pack(a, three, 3, 64), 192);
    check_packing(three, 3, 192, 64);
    assert_int_equal(wf_pack(a, NULL, 0, 64), 0);
    for (uint64_t seed = 1; seed < 60; seed++) {
        random_state = seed;
        int n = 1 + below(60);
        WfPackItem it[64], again[64];
        for (int i = 0; i < n; i++) {
            int first = below(40);
            it[i] = (WfPackItem){ below(1000), first, first + below(10), -1 };
            again[i] = it[i];
        }
        int64_t slab = wf_pack(a, it, n, 16);
        check_packing(it, n, slab, 16);
        assert_int_equal(wf_pack(a, again, n, 16), slab);
        assert_memory_equal(it, again, sizeof(*it) * (size_t)n);
    }
    int n = 4000; /* the shape of a training step: activations live until their backward */
    WfPackItem *big = WF_NEWN(a, WfPackItem, n);
    int64_t sum = 0;
    random_state = 7;
    for (int i = 0; i < n; i++) {
        big[i] = (WfPackItem){ 64 * (1 + below(5000)), i, i % 3 ? i + 1 + below(4) : 2 * n - i, 0 };
        sum += i % 3 ? 0 : big[i].size;
    }
    double t = wf_now();
    int64_t slab = wf_pack(a, big, n, 64);
    print_message("packing %d items: %.2f s, slab / kept sum = %.3f\n", n, wf_now() - t, (double)slab / (double)sum);
    check_packing(big, n, slab, 64);
    assert_true((double)slab < 1.05 * (double)sum);
    wf_arena_free(a);
}

/* ---- kinds of errors ---- */

static void raise_kind(void *arg)
{
    wf_fail_at(ctx, *(int *)arg, "there", NULL, "said");
}

static void test_errors(void **state)
{
    (void)state;
    int n = 0;
    for (const WfErrorKind *k = wf_error_table; k->kind; k++, n++) {
        assert_true(k == wf_error_table || k->kind > k[-1].kind);
        assert_ptr_equal(wf_error_find(k->kind), k);
        assert_int_equal(strtol(k->code + 1, NULL, 10), k->kind);
        assert_true(strlen(k->code) == 5 && k->code[0] == 'W' && k->code[1] == '0');
        assert_true(k->status > WEFT_OK && k->status <= WEFT_ERR_RANK && strlen(k->title) > 8 && strlen(k->text) >= 30);
        int kind = k->kind;
        expect(k->status, "said", raise_kind, &kind);
        assert_int_equal(ctx->diag.kind, kind);
        assert_string_equal(weft_code((weft_context *)ctx), k->code);
    }
    assert_true(n > 100);
    int plain = WEFT_ERR_DATA; /* a status stands for itself and has no code */
    expect(WEFT_ERR_DATA, "said", raise_kind, &plain);
    assert_string_equal(weft_code((weft_context *)ctx), "");
    assert_null(wf_error_find(0));
    assert_null(wf_error_find(99));
    assert_null(wf_error_find(9999));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_limits),
        cmocka_unit_test(test_ctx),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_dtype),
        cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests_name("base", tests, setup, teardown);
}
