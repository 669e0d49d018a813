/* Tests of base, one group per area. Failures are injected through the seam: with the n-th allocation, read
 * or mapping failing, for n = 1, 2, ... until nothing fails any more, every call must end in an error and
 * leave nothing behind (the address sanitizer's leak check is the judge). Random tests print their seed when
 * they fail. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <dirent.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/base.h"

static WfCtx *ctx;
static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[4][400];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, 400, "%s/%s", folder, name);
    return p;
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weft-base-XXXXXX");
    ctx = wf_ctx_new();
    return ctx && mkdtemp(folder) ? 0 : -1;
}

static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int teardown(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            unlink(in_folder(e->d_name));
    closedir(d);
    rmdir(folder);
    wf_ctx_free(ctx);
    return 0;
}

/* Runs fn in a guard and expects this code; the message must hold the text. */
static void expect(weft_status code, const char *text, void (*fn)(void *), void *arg)
{
    weft_status got = wf_guard(ctx, fn, arg);
    if (got != code || (text && !strstr(ctx->diag.message, text)))
        fail_msg("status %d instead of %d, message: %s (expected: %s)", got, code, ctx->diag.message,
                 text ? text : "any");
}

/* Fails the n-th call of each kind until `fn` comes through, in a context of its own each time. */
static void inject(void (*fn)(void *), void *arg, WfSeam kind, int least)
{
    int failures = 0;
    for (int n = 1;; n++) {
        assert_true(n < 10000);
        wf_seam_fail_at(kind, n, n % 2);
        WfCtx *own = wf_ctx_new(), *outer = ctx;
        weft_status st = WEFT_ERR_MEMORY;
        if (own) {
            ctx = own;
            st = wf_guard(ctx, fn, arg);
            if (st)
                assert_non_null(ctx->diag.message);
            ctx = outer;
            wf_ctx_free(own);
        }
        wf_seam_fail_at(kind, 0, false);
        if (!st)
            break;
        failures++;
        assert_true(st == WEFT_ERR_MEMORY || st == WEFT_ERR_IO);
    }
    assert_true(failures >= least);
}

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

/* ---- files ---- */

static void write_hello(void *arg)
{
    wf_write_file(ctx, arg, "hello", 5);
}

static void read_hello(void *arg)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfFile *f = wf_file_map(ctx, a, arg);
    if (f->size != 5 || memcmp(f->at, "hello", 5))
        wf_fail(ctx, WEFT_ERR_DATA, "wrong content");
    wf_arena_free(a);
}

static void start_and_fail(void *arg)
{
    WfOut *o = wf_out_open(ctx, arg);
    wf_out_write(o, "partial", 7);
    wf_fail(ctx, WEFT_ERR_DATA, "on the way");
}

static void make_dirs(void *arg)
{
    wf_mkdirs(ctx, arg);
}

static void test_file(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof(path), "%s/file", folder);
    expect(WEFT_ERR_IO, "No such file", read_hello, path);
    expect(WEFT_OK, NULL, write_hello, path);
    expect(WEFT_OK, NULL, read_hello, path);
    expect(WEFT_ERR_IO, "directory", read_hello, folder);
    expect(WEFT_ERR_IO, "directory", write_hello, folder);
    expect(WEFT_OK, NULL, write_hello, "/dev/null"); /* a device is written to, not replaced */
    struct stat st;
    assert_true(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    assert_int_equal(count_files(), 1);
    expect(WEFT_ERR_DATA, NULL, start_and_fail, path);
    assert_int_equal(count_files(), 1);
    expect(WEFT_OK, NULL, read_hello, path); /* the old content is there */
    WfSeam kinds[] = { WF_SEAM_ALLOC, WF_SEAM_OPEN, WF_SEAM_WRITE, WF_SEAM_SYNC, WF_SEAM_RENAME };
    for (size_t k = 0; k < WF_LEN(kinds); k++) {
        if (kinds[k] != WF_SEAM_OPEN)
            inject(write_hello, path, kinds[k], 1);
        assert_int_equal(count_files(), 1);
    }
    inject(read_hello, path, WF_SEAM_ALLOC, 2);
    inject(read_hello, path, WF_SEAM_OPEN, 1);
    wf_seam_fail_at(WF_SEAM_MAP, 1, false); /* what cannot be mapped is read */
    expect(WEFT_OK, NULL, read_hello, path);
    wf_seam_fail_at(WF_SEAM_WRITE, 1, true);
    expect(WEFT_ERR_IO, "No space left", write_hello, path);
    assert_non_null(strstr(ctx->diag.hint, "space"));
    wf_seam_fail_at(WF_SEAM_WRITE, 0, false);
    char link[128];
    snprintf(link, sizeof(link), "%s/link", folder);
    assert_int_equal(symlink(path, link), 0);
    expect(WEFT_OK, NULL, write_hello, link);
    assert_true(lstat(link, &st) == 0 && S_ISLNK(st.st_mode)); /* the link stays one */
    unlink(link);
    char deep[160];
    snprintf(deep, sizeof(deep), "%s/d/e//f/", folder);
    expect(WEFT_OK, NULL, make_dirs, deep);
    expect(WEFT_OK, NULL, make_dirs, deep);
    assert_true(wf_file_exists(deep));
    snprintf(deep, sizeof(deep), "%s/file/e", folder);
    expect(WEFT_ERR_IO, "director", make_dirs, deep);
    rmdir(in_folder("d/e/f"));
    rmdir(in_folder("d/e"));
    rmdir(in_folder("d"));
    unlink(path);
}

/* ---- zip ---- */

typedef struct { uint8_t at[4096]; size_t n; const char *find; size_t size; bool crc; } Bytes;

static void put(Bytes *b, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        b->at[b->n++] = (uint8_t)(v >> 8 * i);
}

static void puts_(Bytes *b, const char *s)
{
    memcpy(b->at + b->n, s, strlen(s));
    b->n += strlen(s);
}

enum { PLAIN = 0, DESCRIPTOR = 1, WIDE = 2, DEFLATED = 4, BAD_CRC = 8, BAD_SIZE = 16, TWICE = 32, OVERLAP = 64 };

/* A hand-made archive of one entry (two with TWICE or OVERLAP). */
static Bytes make_zip(const char *name, int how)
{
    Bytes b = { .n = 0, .crc = true };
    size_t len = strlen(name);
    uint32_t crc = (uint32_t)crc32(0, (const Bytef *)"content", 7) ^ (how & BAD_CRC ? 1 : 0);
    bool desc = how & DESCRIPTOR, wide = how & WIDE;
    put(&b, 0x04034b50, 4), put(&b, 20, 2), put(&b, desc ? 8 : 0, 2), put(&b, how & DEFLATED ? 8 : 0, 2);
    put(&b, 0, 4), put(&b, desc ? 0 : crc, 4), put(&b, desc ? 0 : 7, 4), put(&b, desc ? 0 : 7, 4);
    put(&b, len, 2), put(&b, 0, 2), puts_(&b, name), puts_(&b, "content");
    if (desc)
        put(&b, 0x08074b50, 4), put(&b, crc, 4), put(&b, 7, 4), put(&b, 7, 4);
    size_t dir = b.n;
    int count = how & (TWICE | OVERLAP) ? 2 : 1;
    for (int i = 0; i < count; i++) {
        uint64_t size = how & BAD_SIZE ? 70000 : 7;
        put(&b, 0x02014b50, 4), put(&b, 45, 2), put(&b, 45, 2), put(&b, desc ? 8 : 0, 2);
        put(&b, how & DEFLATED ? 8 : 0, 2), put(&b, 0, 4), put(&b, crc, 4);
        put(&b, wide ? 0xffffffff : size, 4), put(&b, wide ? 0xffffffff : size, 4), put(&b, len, 2);
        put(&b, wide ? 28 : 0, 2), put(&b, 0, 2), put(&b, 0, 2), put(&b, 0, 2), put(&b, 0, 4);
        put(&b, wide ? 0xffffffff : 0, 4);
        puts_(&b, name);
        if (wide)
            put(&b, 1, 2), put(&b, 24, 2), put(&b, size, 8), put(&b, size, 8), put(&b, 0, 8);
    }
    size_t dir_size = b.n - dir;
    if (wide) {
        size_t at = b.n;
        put(&b, 0x06064b50, 4), put(&b, 44, 8), put(&b, 45, 2), put(&b, 45, 2), put(&b, 0, 8);
        put(&b, count, 8), put(&b, count, 8), put(&b, dir_size, 8), put(&b, dir, 8);
        put(&b, 0x07064b50, 4), put(&b, 0, 4), put(&b, at, 8), put(&b, 1, 4);
    }
    put(&b, 0x06054b50, 4), put(&b, 0, 4), put(&b, wide ? 0xffff : count, 2), put(&b, wide ? 0xffff : count, 2);
    put(&b, wide ? 0xffffffff : dir_size, 4), put(&b, wide ? 0xffffffff : dir, 4), put(&b, 3, 2), puts_(&b, "end");
    b.find = name;
    b.size = 7;
    return b;
}

static void open_zip(void *arg)
{
    Bytes *b = arg;
    WfArena *a = wf_arena_scratch(ctx);
    uint8_t *exact = wf_arena_alloc(a, b->n); /* the sanitizer sees a read behind the end */
    memcpy(exact, b->at, b->n);
    WfFile f = { exact, b->n, "x.zip" };
    WfZip *z = wf_zip_open(ctx, a, &f, b->crc);
    const WfZipEntry *e = wf_zip_find(z, b->find);
    if (!e || e->size != b->size || memcmp(e->at, "content", 7) || wf_zip_find(z, "absent"))
        wf_fail(ctx, WEFT_ERR_DATA, "not found");
    wf_arena_free(a);
}

static void expect_zip(weft_status code, const char *text, const char *name, int how)
{
    Bytes b = make_zip(name, how);
    expect(code, text, open_zip, &b);
}

static void test_zip_read(void **state)
{
    (void)state;
    expect_zip(WEFT_OK, NULL, "a/b.txt", PLAIN);
    expect_zip(WEFT_OK, NULL, "a/b.txt", DESCRIPTOR);
    expect_zip(WEFT_OK, NULL, "a/b.txt", WIDE);
    expect_zip(WEFT_OK, NULL, "a..b/..c", WIDE | DESCRIPTOR);
    expect_zip(WEFT_ERR_UNSUPPORTED, "compressed", "a", DEFLATED);
    expect_zip(WEFT_ERR_FILE, "checksum", "a", BAD_CRC);
    expect_zip(WEFT_ERR_FILE, "content reaches beyond", "a", BAD_SIZE);
    expect_zip(WEFT_ERR_FILE, "content reaches beyond", "a", BAD_SIZE | WIDE);
    expect_zip(WEFT_ERR_FILE, "two entries", "a", TWICE);
    expect_zip(WEFT_ERR_FILE, "absolute", "/etc/x", PLAIN);
    expect_zip(WEFT_ERR_FILE, "absolute", "C:x", PLAIN);
    expect_zip(WEFT_ERR_FILE, "'..'", "a/../x", PLAIN);
    expect_zip(WEFT_ERR_FILE, "'..'", "..", PLAIN);
    expect_zip(WEFT_ERR_FILE, "empty", "", PLAIN);
    Bytes b = make_zip("ab", OVERLAP);
    size_t second = 0;
    for (size_t i = 0; i + 4 < b.n; i++)
        if (!memcmp(b.at + i, "PK\1\2", 4))
            second = i;
    b.at[second + 46] = 'z'; /* another name for the same bytes: the local header betrays it */
    expect(WEFT_ERR_FILE, "does not fit", open_zip, &b);
    for (int how = 0; how < 4; how++) { /* every cut and every changed byte: an error or the same content, no crash */
        Bytes whole = make_zip("a/b", how);
        for (size_t n = 0; n < whole.n; n++) {
            Bytes cut = whole;
            cut.n = n;
            assert_int_not_equal(wf_guard(ctx, open_zip, &cut), WEFT_OK);
            for (int v = 0; v < 3; v++) {
                Bytes bent = whole;
                bent.at[n] = (uint8_t)(v == 0 ? 0xff : v == 1 ? 0 : bent.at[n] + 1);
                wf_guard(ctx, open_zip, &bent);
            }
        }
    }
}

static void write_zip(void *arg)
{
    uint8_t *big = calloc(1, 100000);
    WfDefer *d = wf_defer(ctx, free, big);
    WfZipEntry e[] = { { "first", (const uint8_t *)"content", 7 }, { "dir/empty", NULL, 0 }, { "big", big, 100000 } };
    wf_zip_write(ctx, arg, e, 3);
    wf_defer_run(d);
}

static void check_zip(void *arg)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfFile *f = wf_file_map(ctx, a, arg);
    WfZip *z = wf_zip_open(ctx, a, f, true);
    if (z->n != 3 || wf_zip_find(z, "big")->size != 100000 || wf_zip_find(z, "dir/empty")->size != 0)
        wf_fail(ctx, WEFT_ERR_DATA, "wrong entries");
    for (int i = 0; i < 3; i++)
        if ((z->at[i].at - f->at) % 64)
            wf_fail(ctx, WEFT_ERR_DATA, "entry %d is not aligned", i);
    wf_arena_free(a);
}

static void same_files(const char *x, const char *y)
{
    WfArena *a = wf_arena_new(ctx);
    WfFile *f = wf_file_map(ctx, a, x), *g = wf_file_map(ctx, a, y);
    assert_int_equal(f->size, g->size);
    assert_memory_equal(f->at, g->at, f->size);
    wf_arena_free(a);
}

static void test_zip_write(void **state)
{
    (void)state;
    char x[128], y[128];
    snprintf(x, sizeof(x), "%s/x.zip", folder);
    snprintf(y, sizeof(y), "%s/y.zip", folder);
    expect(WEFT_OK, NULL, write_zip, x);
    expect(WEFT_OK, NULL, write_zip, y);
    expect(WEFT_OK, NULL, check_zip, x);
    same_files(x, y);
    inject(write_zip, y, WF_SEAM_ALLOC, 5);
    inject(write_zip, y, WF_SEAM_WRITE, 2);
    inject(check_zip, x, WF_SEAM_ALLOC, 3);
    inject(check_zip, x, WF_SEAM_OPEN, 1);
    assert_int_equal(count_files(), 2);
}

/* ---- JSON ---- */

static void parse_json(void *arg)
{
    wf_json_parse(ctx, arg, strlen(arg), "x.json");
}

static void test_json(void **state)
{
    (void)state;
    expect(WEFT_OK, NULL, parse_json, "{\"a\": [1, 9223372036854775807, \"x\"]}");
    expect(WEFT_OK, NULL, parse_json, "3");
    expect(WEFT_ERR_FILE, "x.json", parse_json, "{\"a\":\n 1, }");
    assert_string_equal(ctx->diag.place, "line 2, column 5");
    expect(WEFT_ERR_FILE, "duplicate", parse_json, "{\"a\": 1, \"a\": 2}");
    expect(WEFT_ERR_FILE, "JSON", parse_json, "");
    expect(WEFT_ERR_FILE, "JSON", parse_json, "{} x");
    expect(WEFT_ERR_FILE, "big integer", parse_json, "[9223372036854775808]");
}

/* ---- safetensors ---- */

typedef struct { const char *header; size_t data; size_t says; } Safe;

static void parse_safe(void *arg)
{
    Safe *s = arg;
    size_t n = strlen(s->header), total = 8 + n + s->data;
    WfArena *a = wf_arena_scratch(ctx);
    uint8_t *p = wf_arena_alloc(a, total);
    uint64_t says = s->says ? s->says : n;
    memcpy(p, &says, 8);
    memcpy(p + 8, s->header, n);
    wf_safetensors_parse(ctx, a, p, total, "x.safetensors");
    wf_arena_free(a);
}

static void expect_safe(weft_status code, const char *text, const char *header, size_t data)
{
    expect(code, text, parse_safe, &(Safe){ header, data, 0 });
}

static void test_safetensors_parse(void **state)
{
    (void)state;
    expect_safe(WEFT_OK, NULL, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                "\"b\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[24,25]},"
                "\"e\":{\"dtype\":\"I64\",\"shape\":[0,9],\"data_offsets\":[25,25]},\"__metadata__\":{\"k\":\"v\"}}", 25);
    expect_safe(WEFT_OK, NULL, "{}", 0);
    expect_safe(WEFT_ERR_FILE, "do not have", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4);
    expect_safe(WEFT_ERR_FILE, "do not lie", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4);
    expect_safe(WEFT_ERR_FILE, "do not lie", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,1]}}", 4);
    expect_safe(WEFT_ERR_FILE, "not negative", "{\"a\":{\"dtype\":\"U8\",\"shape\":[-2],\"data_offsets\":[0,0]}}", 0);
    expect_safe(WEFT_ERR_FILE, "not negative", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,0]}}", 0);
    expect_safe(WEFT_ERR_FILE, "do not have", "{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904,8],"
                "\"data_offsets\":[0,0]}}", 0);
    expect_safe(WEFT_ERR_FILE, "overlap", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3);
    expect_safe(WEFT_ERR_FILE, "no tensor", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3);
    expect_safe(WEFT_ERR_FILE, "behind the last", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3);
    expect_safe(WEFT_ERR_FILE, "duplicate", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0);
    expect_safe(WEFT_ERR_UNSUPPORTED, "F8_E4M3", "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[],\"data_offsets\":[0,1]}}", 1);
    expect_safe(WEFT_ERR_UNSUPPORTED, "dimensions", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],"
                "\"data_offsets\":[0,1]}}", 1);
    expect_safe(WEFT_ERR_FILE, "needs a dtype", "{\"a\":7}", 0);
    expect_safe(WEFT_ERR_FILE, "strings", "{\"__metadata__\":{\"k\":1}}", 0);
    expect_safe(WEFT_ERR_FILE, "object", "[]", 0);
    expect(WEFT_ERR_FILE, "header should have", parse_safe, &(Safe){ "{}", 0, 1000 });
    expect(WEFT_ERR_FILE, "header should have", parse_safe, &(Safe){ "{}", 0, SIZE_MAX });
}

static void write_safe(void *arg)
{
    float w[6] = { 1, 2, 3, 4, 5, 6 };
    double d = 2.5;
    uint8_t b[3] = { 1, 0, 1 };
    WfTensor t[] = { { "w", WF_F32, 2, { 2, 3 }, w, 24 }, { "a\"\\\n", WF_BOOL, 1, { 3 }, b, 3 },
                     { "z", WF_F64, 0, { 0 }, &d, 8 }, { "none", WF_I64, 1, { 0 }, NULL, 0 } };
    wf_safetensors_write(ctx, arg, t, 4);
}

static void check_safe(void *arg)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfTensors *t = wf_safetensors_open(ctx, a, arg);
    const WfTensor *w = wf_tensors_find(t, "w"), *z = wf_tensors_find(t, "z"), *b = wf_tensors_find(t, "a\"\\\n");
    if (t->n != 4 || !w || !z || !b || wf_tensors_find(t, "q"))
        wf_fail(ctx, WEFT_ERR_DATA, "wrong names");
    if (w->rank != 2 || w->shape[1] != 3 || wf_load_f64(w->dtype, (const float *)w->data + 5) != 6 ||
        *(const double *)z->data != 2.5 || memcmp(b->data, "\1\0\1", 3) || (uintptr_t)z->data % 8)
        wf_fail(ctx, WEFT_ERR_DATA, "wrong values");
    wf_arena_free(a);
}

static void test_safetensors_file(void **state)
{
    (void)state;
    char x[128], y[128];
    snprintf(x, sizeof(x), "%s/x.safetensors", folder);
    snprintf(y, sizeof(y), "%s/y.safetensors", folder);
    expect(WEFT_OK, NULL, write_safe, x);
    expect(WEFT_OK, NULL, write_safe, y);
    same_files(x, y);
    expect(WEFT_OK, NULL, check_safe, x);
    inject(check_safe, x, WF_SEAM_ALLOC, 4);
    inject(check_safe, x, WF_SEAM_OPEN, 1);
    inject(write_safe, y, WF_SEAM_ALLOC, 5);
    inject(write_safe, y, WF_SEAM_SYNC, 1);
    wf_seam_fail_at(WF_SEAM_MAP, 1, true); /* read instead of mapped; then the reads fail too */
    expect(WEFT_OK, NULL, check_safe, x);
    inject(check_safe, x, WF_SEAM_READ, 1);
    wf_seam_fail_at(WF_SEAM_MAP, 0, false);
}

/* ---- IDX ---- */

static void open_idx(void *arg)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfTensor *t = wf_idx_open(ctx, a, arg);
    if (t->dtype != WF_I16 || t->rank != 2 || t->shape[0] != 2 || t->shape[1] != 3 || ((int16_t *)t->data)[5] != -2)
        wf_fail(ctx, WEFT_ERR_DATA, "wrong tensor");
    wf_arena_free(a);
}

static void parse_idx(void *arg)
{
    Bytes *b = arg;
    WfArena *a = wf_arena_scratch(ctx);
    wf_idx_parse(ctx, a, b->at, b->n, "x.idx");
    wf_arena_free(a);
}

static void test_idx(void **state)
{
    (void)state;
    static const uint8_t good[] = { 0, 0, 0x0b, 2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 1, 1, 0, 0, 2, 0, 3, 0, 4, 0xff, 0xfe };
    Bytes b = { .n = sizeof(good) };
    memcpy(b.at, good, sizeof(good));
    char plain[128], gz[128];
    snprintf(plain, sizeof(plain), "%s/plain", folder);
    snprintf(gz, sizeof(gz), "%s/gz", folder);
    wf_write_file(ctx, plain, good, sizeof(good));
    gzFile g = gzopen(gz, "wb");
    gzwrite(g, good, sizeof(good));
    gzclose(g);
    expect(WEFT_OK, NULL, open_idx, plain);
    expect(WEFT_OK, NULL, open_idx, gz);
    inject(open_idx, gz, WF_SEAM_ALLOC, 4);
    inject(open_idx, gz, WF_SEAM_OPEN, 1);
    b.n--;
    expect(WEFT_ERR_FILE, "more than the file can hold", parse_idx, &b);
    b.n += 2;
    expect(WEFT_ERR_FILE, "follow", parse_idx, &b);
    b.n--;
    b.at[2] = 7;
    expect(WEFT_ERR_FILE, "type 0x07", parse_idx, &b);
    memset(b.at + 2, 0xff, 14);
    b.at[2] = 0x0e, b.at[3] = 3; /* 2^96 elements */
    expect(WEFT_ERR_FILE, "too large", parse_idx, &b);
    WfArena *a = wf_arena_new(ctx);
    WfFile *f = wf_file_map(ctx, a, gz);
    for (size_t n = 0; n < f->size; n++) {
        Bytes cut = { .n = n };
        memcpy(cut.at, f->at, n);
        assert_int_equal(wf_guard(ctx, parse_idx, &cut), WEFT_ERR_FILE);
    }
    Bytes more = { .n = f->size + 1 };
    memcpy(more.at, f->at, f->size);
    expect(WEFT_ERR_FILE, "follow the gzip", parse_idx, &more);
    more.n--;
    more.at[more.n - 6] ^= 1;
    expect(WEFT_ERR_FILE, "damaged", parse_idx, &more);
    wf_arena_free(a);
}

/* ---- packing ---- */

static uint64_t random_state;

static int below(int n)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((random_state >> 33) % (uint64_t)n);
}

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
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_limits),
        cmocka_unit_test(test_ctx),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_dtype),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_zip_read),
        cmocka_unit_test(test_zip_write),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_safetensors_parse),
        cmocka_unit_test(test_safetensors_file),
        cmocka_unit_test(test_idx),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_expr_form),
        cmocka_unit_test(test_expr_division),
        cmocka_unit_test(test_expr_queries),
        cmocka_unit_test(test_expr_errors),
        cmocka_unit_test(test_expr_random),
        cmocka_unit_test(test_expr_memory),
    };
    return cmocka_run_group_tests_name("base", tests, setup, teardown);
}
