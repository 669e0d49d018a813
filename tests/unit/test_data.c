/* Datasets: what is accepted, converted, refused; NumPy's files; orders of visits. The files of tests/unit/data were written by
 * NumPy itself (make.py there). */
#include "data_fixture.h"

static void do_check_finite(void *p)
{
    wf_dataset_check_finite(((Fixture *)p)->d);
}

/* An IDX file of bytes 0, 1, 2, ... */
static char *write_idx(Fixture *f, const char *name, int rank, const int *shape)
{
    char *path = path_of(f, name);
    gzFile out = gzopen(path, strstr(name, ".gz") ? "wb" : "wbT");
    unsigned char header[4 + 4 * 4] = {0, 0, 8, (unsigned char)rank};
    int n = 1;
    for (int i = 0; i < rank; i++) {
        header[4 + 4 * i + 3] = (unsigned char)shape[i];
        n *= shape[i];
    }
    gzwrite(out, header, (unsigned)(4 + 4 * rank));
    for (int i = 0; i < n; i++)
        gzputc(out, i & 255);
    gzclose(out);
    return path;
}

static void images_and_labels(void **state)
{
    static const WfDataInput inputs[] = {{.name = "x", .dtype = WF_F32, .rank = 4, .shape = {-1, 1, 2, 3}}, {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    Fixture *f = *state;
    want(f, inputs, 2);
    char *images = write_idx(f, "images.gz", 3, (int[]){4, 2, 3}), *labels = write_idx(f, "labels", 1, (int[]){4});
    give_named(f, "y", labels);
    give_named(f, "x", images);
    opens(f);
    assert_int_equal(f->d->samples, 4);
    float x[2][6];
    int64_t y[2], index[] = {3, 1};
    wf_dataset_gather(f->d, 0, index, 2, x);
    wf_dataset_gather(f->d, 1, index, 2, y);
    for (int i = 0; i < 6; i++)
        assert_true(x[0][i] == (float)(18 + i) / 255.0f && x[1][i] == (float)(6 + i) / 255.0f);
    assert_true(y[0] == 3 && y[1] == 1);
    WfStr text = {.arena = f->ctx->arena};
    wf_dataset_describe(f->d, &text);
    assert_non_null(strstr(text.at, "bytes divided by 255, with a channel dimension of 1 added"));
    assert_non_null(strstr(text.at, "widened from u8"));

    static const WfDataInput flat[] = {{.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 6}}};
    want(f, flat, 1);
    give_named(f, "x", images);
    opens(f);
    text.n = 0;
    wf_dataset_describe(f->d, &text);
    assert_non_null(strstr(text.at, "each image flattened"));
}

static void named_tensors(void **state)
{
    static const WfDataInput inputs[] = {{.name = "idx", .dtype = WF_I64, .rank = 2, .shape = {-1, 3}}, {.name = "w", .dtype = WF_F32, .rank = 1, .shape = {-1}}};
    Fixture *f = *state;
    int32_t idx[] = {1, 2, 3, -4, 5, 6};
    float w[] = {0.5f, 1.5f}, extra[] = {1};
    WfTensor tensors[] = {{"idx", WF_I32, 2, {2, 3}, idx, sizeof idx}, {"w", WF_F32, 1, {2}, w, sizeof w},
                          {"other", WF_F32, 1, {1}, extra, sizeof extra}};
    want(f, inputs, 2);
    give(f, write_tensors(f, "a.safetensors", tensors, 3));
    opens(f);
    int64_t out[6], index[] = {1, 0};
    wf_dataset_gather(f->d, 0, index, 2, out);
    assert_true(out[0] == -4 && out[2] == 6 && out[3] == 1);
    assert_int_equal(wf_guard(f->ctx, do_check_finite, f), WEFT_OK);
    w[1] = NAN;
    f->o.data.n = 0;
    give(f, write_tensors(f, "b.safetensors", tensors, 3));
    opens(f);
    assert_int_equal(wf_guard(f->ctx, do_check_finite, f), WEFT_ERR_DATA);
    assert_string_equal(f->ctx->diag.message, "data: input w: sample 1, element 0 is nan");
}

static void wrong_files_are_refused(void **state)
{
    static const WfDataInput inputs[] = {{.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 3}}, {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    Fixture *f = *state;
    want(f, inputs, 2);
    float x[6] = {0};
    double xd[6] = {0};
    int64_t y[3] = {0};
    uint8_t bytes[6] = {0};
    WfTensor fx = {"x", WF_F32, 2, {2, 3}, x, sizeof x}, fd = {"x", WF_F64, 2, {2, 3}, xd, sizeof xd},
             wide = {"x", WF_F32, 2, {1, 6}, x, sizeof x}, fb = {"x", WF_U8, 2, {2, 3}, bytes, sizeof bytes},
             y2 = {"y", WF_I64, 1, {2}, y, 16}, y3 = {"y", WF_I64, 1, {3}, y, 24};
    give(f, write_tensors(f, "1.safetensors", &fx, 1));
    refused(f, "data: input y has no data; the files hold x");
    give(f, write_tensors(f, "2.safetensors", (WfTensor[]){fx, y3}, 2));
    refused(f, "data: input y has 3 samples, but input x has 2");
    give(f, write_tensors(f, "3.safetensors", (WfTensor[]){fd, y2}, 2));
    refused(f, "data: input x expects f32[*, 3], but the file holds f64[2, 3]");
    give(f, write_tensors(f, "4.safetensors", (WfTensor[]){wide, y2}, 2));
    refused(f, "data: input x expects f32[*, 3], but the file holds f32[1, 6]");
    give(f, write_tensors(f, "5.safetensors", (WfTensor[]){fb, y2}, 2));
    refused(f, "data: input x expects f32[*, 3], but the file holds u8[2, 3]");
    give_named(f, "z", path_of(f, "1.safetensors"));
    refused(f, "data: the model has no input z; its inputs are x, y");
    give(f, write_idx(f, "labels.gz", 1, (int[]){2}));
    refused(f, "data: an IDX file does not say which input it feeds; the inputs are x, y");
    give_named(f, "x,x", path_of(f, "1.safetensors"));
    refused(f, "data: input x is named twice");
    give(f, write_tensors(f, "7.safetensors", (WfTensor[]){fx, y2}, 2));
    give(f, write_tensors(f, "8.safetensors", &(WfTensor){"z", WF_F32, 1, {2}, x, 8}, 1));
    refused(f, "data: the file feeds no input");
    give(f, path_of(f, "none.safetensors"));
    assert_int_equal(wf_guard(f->ctx, do_open, f), WEFT_ERR_IO);
    WfTensor nothing[] = {{"x", WF_F32, 2, {0, 3}, x, 0}, {"y", WF_I64, 1, {0}, y, 0}};
    f->o.data.n = 0;
    give(f, write_tensors(f, "6.safetensors", nothing, 2));
    refused(f, "data: input x has no samples");
}

/* ---- NumPy's files ---- */

/* Elements of samples 4 and 1, of numbers 0.5 * i - 3, or i for integers. */
static void expect_grid(Fixture *f, WfDtype dtype)
{
    static const int64_t index[] = {4, 1};
    uint8_t got[12 * 8];
    wf_dataset_gather(f->d, 0, index, 2, got);
    for (int i = 0; i < 12; i++) {
        int e = (i < 6 ? 24 : 6) + i % 6;
        double x = wf_dtype_is_float(dtype) ? 0.5 * e - 3 : dtype == WF_BOOL ? e % 3 == 0 : e;
        assert_true(wf_load_f64(dtype, got + (size_t)i * wf_dtype_size(dtype)) == x);
    }
}

static void npy_of_every_type(void **state)
{
    static const struct { const char *file; WfDtype dtype; } cases[] = {
        {"f2.npy", WF_F16}, {"f4.npy", WF_F32}, {"f8.npy", WF_F64}, {"i1.npy", WF_I8},  {"i2.npy", WF_I16}, {"i4.npy", WF_I32},
        {"i8.npy", WF_I64}, {"u1.npy", WF_U8},  {"b1.npy", WF_BOOL}, {"v2.npy", WF_F32}, {"v3.npy", WF_F32}, {"u2.npy", WF_I32},
        {"u4.npy", WF_I64}, {"u2.npy", WF_I64}, {"i1.npy", WF_I64}, {"u1.npy", WF_I32}};
    Fixture *f = *state;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        WfDataInput in = {.name = "x", .dtype = cases[i].dtype, .rank = 3, .shape = {-1, 2, 3}};
        want(f, &in, 1);
        give_named(f, "x", recorded(f, cases[i].file));
        opens(f);
        assert_int_equal(f->d->samples, 5);
        expect_grid(f, cases[i].dtype);
    }
}

static void npz_stored_and_deflated(void **state)
{
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_F32, .rank = 3, .shape = {-1, 2, 3}},
                                     {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    static const char *const files[] = {"stored.npz", "deflated.npz"};
    Fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        want(f, in, 2);
        give(f, recorded(f, files[i]));
        opens(f);
        expect_grid(f, WF_F32);
        int64_t y[2];
        wf_dataset_gather(f->d, 1, (int64_t[]){3, 0}, 2, y);
        assert_true(y[0] == 3 && y[1] == 0);
    }
    want(f, in, 1);
    give_named(f, "x", recorded(f, "one.npz"));
    opens(f);
    expect_grid(f, WF_F32);
    want(f, in, 2);
    give_named(f, "x,y", recorded(f, "one.npz"));
    refused(f, "the file holds 1 arrays, and none is called x");
    give(f, recorded(f, "one.npz"));
    refused(f, "data: input x has no data; the files hold anything");
}

static void npy_that_are_refused(void **state)
{
    static const struct { const char *file, *message; weft_status status; } cases[] = {
        {"fortran.npy", "in Fortran order", WEFT_ERR_UNSUPPORTED},
        {"big.npy", "big-endian ('>f4')", WEFT_ERR_UNSUPPORTED},
        {"object.npy", "holds Python objects ('|O'); Weft reads no pickles", WEFT_ERR_UNSUPPORTED},
        {"structured.npy", "is structured", WEFT_ERR_UNSUPPORTED},
        {"complex.npy", "element type '<c8' is none of", WEFT_ERR_UNSUPPORTED},
        {"scalar.npy", "has no dimensions", WEFT_ERR_DATA},
        {"empty.npy", "input x has no samples", WEFT_ERR_DATA}};
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 3}};
    static const WfDataInput flat = {.name = "x", .dtype = WF_F32, .rank = 1, .shape = {-1}};
    Fixture *f = *state;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        want(f, &in, 1);
        give_named(f, "x", recorded(f, cases[i].file));
        refused_as(f, cases[i].status, cases[i].message);
    }
    want(f, &flat, 1);
    give_named(f, "x", recorded(f, "fortran1.npy")); /* of one dimension: both orders are the same */
    opens(f);
    want(f, &flat, 1);
    give(f, recorded(f, "fortran1.npy"));
    refused(f, "an .npy file does not say which input it feeds; the inputs are x");
}

/* Headers as nobody writes them: groups 54 to 56 of hostile inputs. */
static void npy_headers_that_lie(void **state)
{
    static const struct { const char *header, *message; } cases[] = {
        {"", "is no dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", "a size that is too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", "its shape is too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648, 2147483648, 4), }", "its shape is too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "other than sizes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (100,), }", "describes 400 bytes of data, and 16 follow"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "describes 4 bytes of data, and 16 follow"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,4), }", "more than 8 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)", "is no dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4}", "is no tuple"},
        {"{'descr': '<f4', 'fortran_order': False, }", "is no dict"},
        {"{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (4,), }", "unknown or there twice"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (4,), }", "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'x': 1}", "unknown or there twice"},
        {"{'descr': __import__('os').system('false'), 'fortran_order': False, 'shape': (4,), }", "is structured"},
        {"{'descr': '<f4\\x00', 'fortran_order': False, 'shape': (4,), }", "a string that NumPy does not write"},
        {"{'descr': '<f4", "ends within a string"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), } exit()", "is no dict"},
        {"{'descr': '', 'fortran_order': False, 'shape': (4,), }", "element type '' is none of"}};
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 1, .shape = {-1}};
    Fixture *f = *state;
    for (size_t i = 0; i <= WF_LEN(cases) + 3; i++) {
        uint8_t file[512] = "\x93NUMPY\x01";
        bool listed = i < WF_LEN(cases);
        size_t n = listed ? strlen(cases[i].header) : 0;
        const char *message = listed ? cases[i].message : "";
        file[8] = (uint8_t)n;
        memcpy(file + 10, listed ? cases[i].header : "", n);
        n += 10 + 16;
        if (i == WF_LEN(cases)) { /* 65,535 bytes of header in a file of 100 */
            file[8] = file[9] = 0xff;
            n = 100;
            message = "its header has 65535 bytes; NumPy itself allows 10000";
        } else if (i == WF_LEN(cases) + 1) {
            file[8] = 200;
            n = 100;
            message = "its header ends beyond the file";
        } else if (i == WF_LEN(cases) + 2) {
            file[6] = 4;
            message = "its version is 4.0";
        } else if (i == WF_LEN(cases) + 3) {
            n = 7;
            message = "does not start with NumPy's magic number";
        }
        want(f, &in, 1);
        give_named(f, "x", write_bytes(f, "lie.npy", file, n));
        weft_status s = wf_guard(f->ctx, do_open, f);
        if ((s != WEFT_ERR_FILE && s != WEFT_ERR_UNSUPPORTED) || !strstr(f->ctx->diag.message, message))
            fail_msg("case %zu: %d \"%s\" instead of \"%s\"", i, s, f->ctx->diag.message, message);
    }
}

static void damaged_archives(void **state)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 3, .shape = {-1, 2, 3}};
    Fixture *f = *state;
    uint8_t all[2048];
    FILE *file = fopen(recorded(f, "deflated.npz"), "rb");
    size_t n = fread(all, 1, sizeof all, file);
    fclose(file);
    int refusals = 0;
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit += 3) { /* whatever is damaged, either nothing that is read, or it is an error */
            all[i] ^= (uint8_t)(1 << bit);
            want(f, &in, 1);
            give(f, write_bytes(f, "damaged.npz", all, n));
            if (wf_guard(f->ctx, do_open, f) == WEFT_OK)
                expect_grid(f, WF_F32);
            else
                refusals++;
            all[i] ^= (uint8_t)(1 << bit);
        }
    assert_true(refusals > (int)n);
    for (size_t i = 0; i < n; i++) {
        want(f, &in, 1);
        give(f, write_bytes(f, "short.npz", all, i));
        assert_true(wf_guard(f->ctx, do_open, f) != WEFT_OK);
    }
}

/* A deflated array of 256 MiB of zeros in 260 KB: refused by its ratio before memory is taken. */
static void bombs_are_refused(void **state)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_U8, .rank = 1, .shape = {-1}};
    static const char header[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (268435456,), }";
    Fixture *f = *state;
    size_t head = 10 + sizeof header - 1, size = head + (256u << 20), room = 1 << 20, block = 1 << 20;
    uint8_t *out = malloc(room), *zeros = calloc(1, block), start[128] = "\x93NUMPY\x01";
    start[8] = sizeof header - 1;
    memcpy(start + 10, header, sizeof header - 1);
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    uLong crc = crc32(0, start, (uInt)head);
    z.next_out = out + 35;
    z.avail_out = (uInt)room - 35;
    for (int i = 0; i <= 256; i++) {
        z.next_in = i ? zeros : start;
        z.avail_in = i ? (uInt)block : (uInt)head;
        crc = i ? crc32(crc, zeros, (uInt)block) : crc;
        deflate(&z, i == 256 ? Z_FINISH : Z_NO_FLUSH);
    }
    size_t packed = z.total_out, at = 35 + packed;
    deflateEnd(&z);
    uint8_t common[] = {20, 0, 0, 0, 8, 0, 0, 0, 0x21, 0, (uint8_t)crc, (uint8_t)(crc >> 8), (uint8_t)(crc >> 16), (uint8_t)(crc >> 24),
                        (uint8_t)packed, (uint8_t)(packed >> 8), (uint8_t)(packed >> 16), 0, (uint8_t)size, (uint8_t)(size >> 8),
                        (uint8_t)(size >> 16), (uint8_t)(size >> 24), 5, 0, 0, 0};
    memcpy(out, "PK\3\4", 4), memcpy(out + 4, common, sizeof common), memcpy(out + 30, "x.npy", 5);
    memcpy(out + at, "PK\1\2\x14\3", 6), memcpy(out + at + 6, common, sizeof common), memset(out + at + 32, 0, 14);
    memcpy(out + at + 46, "x.npy", 5);
    uint8_t end[22] = {'P', 'K', 5, 6, 0, 0, 0, 0, 1, 0, 1, 0, 51, 0, 0, 0, (uint8_t)at, (uint8_t)(at >> 8), (uint8_t)(at >> 16)};
    memcpy(out + at + 51, end, 22);
    want(f, &in, 1);
    give(f, write_bytes(f, "bomb.npz", out, at + 51 + 22));
    size_t before = wf_arena_bytes(f->ctx->arena);
    refused(f, "times its size; above 64 MiB Weft allows 200");
    assert_true(wf_arena_bytes(f->ctx->arena) - before < 1 << 20);
    free(out), free(zeros);
}

/* ---- many files, and files that change ---- */

static void files_follow_one_another(void **state)
{
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 2}},
                                     {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    Fixture *f = *state;
    float x[10];
    int64_t y[5];
    for (int i = 0; i < 10; i++)
        x[i] = (float)i;
    for (int i = 0; i < 5; i++)
        y[i] = 10 * i;
    mkdir(path_of(f, "shards"), 0777);
    WfTensor b[] = {{"x", WF_F32, 2, {3, 2}, x + 4, 24}, {"y", WF_I64, 1, {3}, y + 2, 24}};
    WfTensor a[] = {{"x", WF_F32, 2, {2, 2}, x, 16}, {"y", WF_I64, 1, {2}, y, 16}};
    write_tensors(f, "shards/b.safetensors", b, 2);
    write_tensors(f, "shards/a.safetensors", a, 2);
    write_bytes(f, "shards/.hidden", "no", 2);
    static const char *const how[] = {"shards", "shards/", "shards/?.safetensors", "shards/[ab]*"};
    for (size_t i = 0; i <= WF_LEN(how); i++) {
        want(f, in, 2);
        if (i < WF_LEN(how)) {
            give(f, path_of(f, how[i]));
        } else { /* named twice: one behind the other, in the order given */
            give_named(f, "x,y", path_of(f, "shards/a.safetensors"));
            give_named(f, "x,y", path_of(f, "shards/b.safetensors"));
        }
        opens(f);
        assert_int_equal(f->d->samples, 5);
        float gx[10];
        int64_t gy[5];
        wf_dataset_gather(f->d, 0, (int64_t[]){0, 1, 2, 3, 4}, 5, gx);
        wf_dataset_gather(f->d, 1, (int64_t[]){4, 1, 2, 0, 3}, 5, gy);
        assert_memory_equal(gx, x, sizeof x);
        assert_true(gy[0] == 40 && gy[1] == 10 && gy[2] == 20 && gy[3] == 0 && gy[4] == 30);
    }
    WfTensor c[] = {{"x", WF_F64, 2, {1, 2}, x, 16}, {"y", WF_I64, 1, {1}, y, 8}};
    write_tensors(f, "shards/c.safetensors", c, 2);
    want(f, in, 2);
    give(f, path_of(f, "shards"));
    refused(f, "data: input x expects f32[*, 2], but the file holds f64[1, 2]");
    static const WfDataInput loose = {.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, -1}};
    WfTensor wide = {"x", WF_F32, 2, {1, 3}, x, 12};
    write_tensors(f, "shards/c.safetensors", &wide, 1);
    want(f, &loose, 1);
    give(f, path_of(f, "shards"));
    refused(f, "data: input x: this file holds f32[*, 3], and ");
    give(f, path_of(f, "none/*"));
    refused_as(f, WEFT_ERR_IO, "no file fits the pattern");
    mkdir(path_of(f, "empty"), 0777);
    give(f, path_of(f, "empty"));
    refused(f, "the folder is empty");
    mkfifo(path_of(f, "pipe"), 0666);
    give_named(f, "x", path_of(f, "pipe")); /* which nobody writes to: no waiting */
    refused_as(f, WEFT_ERR_IO, "is a pipe, not a file");
    give_named(f, "x", "/dev/zero");
    refused_as(f, WEFT_ERR_IO, "/dev/zero: is a device, not a file");
    give_named(f, "x", write_bytes(f, "words", "hello, hello", 12));
    refused_as(f, WEFT_ERR_FILE, "the file is of no known format");
}

/* A file above 8 MiB stays on the disk: read at its place, and an error when it changes. */
static void large_files_stay_on_the_disk(void **state)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 1024}};
    enum { ROWS = 3000 };
    Fixture *f = *state;
    float *x = malloc(sizeof(float) * ROWS * 1024), got[3 * 1024];
    for (int i = 0; i < ROWS * 1024; i++)
        x[i] = (float)i;
    WfTensor t = {"x", WF_F32, 2, {ROWS, 1024}, x, sizeof(float) * ROWS * 1024};
    char *path = write_tensors(f, "large.safetensors", &t, 1);
    want(f, &in, 1);
    give(f, path);
    size_t before = wf_arena_bytes(f->ctx->arena);
    opens(f);
    assert_true(wf_arena_bytes(f->ctx->arena) - before < 1 << 20);
    static const int64_t index[] = {2999, 7, 8};
    wf_dataset_gather(f->d, 0, index, 3, got);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(got + i * 1024, x + index[i] * 1024, 4096);
    f->index = index;
    f->count = 3;
    f->out = got;
    int64_t reads = wf_seam_count(WF_SEAM_READ);
    wf_seam_fail_at(WF_SEAM_READ, 2, false); /* 7 and 8 are one reading */
    assert_int_equal(wf_guard(f->ctx, do_gather, f), WEFT_ERR_IO);
    assert_int_equal(wf_seam_count(WF_SEAM_READ) - reads, 2);
    assert_non_null(strstr(f->ctx->diag.message, "Input/output error"));
    assert_string_equal(f->ctx->diag.place, path);
    wf_seam_fail_at(WF_SEAM_READ, 0, false);
    assert_int_equal(truncate(path, 10000), 0);
    assert_int_equal(wf_guard(f->ctx, do_gather, f), WEFT_ERR_IO); /* a mapping would end in SIGBUS */
    assert_non_null(strstr(f->ctx->diag.message, "changed or cut off while it is in use"));
    free(x);
}

/* ---- orders ---- */

static void orders_are_permutations(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 16, 17, 255, 1000, 60000};
    for (size_t s = 0; s < WF_LEN(sizes); s++) {
        int n = sizes[s];
        char *seen = calloc((size_t)n, 1);
        WfOrder o = wf_order(n, 7, 3, true);
        for (int i = 0; i < n; i++) {
            int64_t at = wf_order_at(&o, i);
            assert_true(at >= 0 && at < n && !seen[at]);
            seen[at] = 1;
        }
        free(seen);
    }
}

static void orders_look_random(void **state)
{
    (void)state;
    /* Over many epochs each sample must come equally often to each place: chi-square of a 10 x 10 table. */
    enum { N = 10, EPOCHS = 20000 };
    int count[N][N] = {{0}};
    for (int e = 0; e < EPOCHS; e++) {
        WfOrder o = wf_order(N, 1, e, true);
        for (int i = 0; i < N; i++)
            count[i][wf_order_at(&o, i)]++;
    }
    double chi = 0, expected = (double)EPOCHS / N;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            chi += (count[i][k] - expected) * (count[i][k] - expected) / expected;
    assert_true(chi < 130); /* 81 degrees of freedom: 126.1 is the 0.1 % point */
    WfOrder a = wf_order(1000, 1, 0, true), b = wf_order(1000, 2, 0, true), c = wf_order(1000, 1, 1, true);
    int same_b = 0, same_c = 0;
    for (int i = 0; i < 1000; i++) {
        same_b += wf_order_at(&a, i) == wf_order_at(&b, i);
        same_c += wf_order_at(&a, i) == wf_order_at(&c, i);
    }
    assert_true(same_b < 10 && same_c < 10);
}

static void batches_end_with_the_epoch(void **state)
{
    (void)state;
    WfOrder o = wf_order(10, 0, 0, false);
    int64_t index[4];
    assert_int_equal(wf_order_batch(&o, 0, 4, index), 4);
    assert_int_equal(wf_order_batch(&o, 2, 4, index), 2);
    assert_true(index[0] == 8 && index[1] == 9);
    assert_int_equal(wf_order_batch(&o, 3, 4, index), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(images_and_labels), TEST(named_tensors), TEST(wrong_files_are_refused), TEST(npy_of_every_type),
        TEST(npz_stored_and_deflated), TEST(npy_that_are_refused), TEST(npy_headers_that_lie), TEST(damaged_archives),
        TEST(bombs_are_refused), TEST(files_follow_one_another), TEST(large_files_stay_on_the_disk),
        cmocka_unit_test(orders_are_permutations), cmocka_unit_test(orders_look_random), cmocka_unit_test(batches_end_with_the_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
