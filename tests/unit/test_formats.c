/* Tests of base: files and what lies in them: zip, JSON, safetensors, IDX. */
#include "base_fixture.h"

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
    WfZip *z = wf_zip_open(ctx, a, &f, b->crc ? WF_ZIP_CHECK : 0);
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
    WfZipEntry e[] = { { .name = "first", .at = (const uint8_t *)"content", .size = 7 }, { .name = "dir/empty" },
                       { .name = "big", .at = big, .size = 100000 } };
    wf_zip_write(ctx, arg, e, 3);
    wf_defer_run(d);
}

static void check_zip(void *arg)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfFile *f = wf_file_map(ctx, a, arg);
    WfZip *z = wf_zip_open(ctx, a, f, WF_ZIP_CHECK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_zip_read),
        cmocka_unit_test(test_zip_write),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_safetensors_parse),
        cmocka_unit_test(test_safetensors_file),
        cmocka_unit_test(test_idx),
    };
    return cmocka_run_group_tests_name("formats", tests, setup, teardown);
}
