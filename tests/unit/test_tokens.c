/* Tokens: llm.c's files, raw ones, texts; windows and where they end; what is wrong; 10 GiB without memory. */
#include "data_fixture.h"

static WfDataInput tokens_input(const char *name, WfDtype dtype, int64_t length, int64_t usual)
{
    return (WfDataInput){.name = name, .dtype = dtype, .rank = 2, .shape = {-1, length}, .usual = {0, usual}};
}

enum { LLMC_HEADER = 1024 };

/* n tokens first, first + 1, .. behind llm.c's header, or (magic 0) without. */
static char *write_stream(Fixture *f, const char *name, uint32_t magic, uint32_t version, int width, uint32_t first, int n, uint32_t says)
{
    static uint8_t all[1 << 16];
    size_t at = 0;
    memset(all, 0, LLMC_HEADER);
    if (magic) {
        memcpy(all, (uint32_t[]){magic, version, says}, 12);
        at = LLMC_HEADER;
    }
    for (int i = 0; i < n; i++, at += (size_t)width)
        memcpy(all + at, &(uint32_t){first + (uint32_t)i}, (size_t)width);
    return write_bytes(f, name, all, at);
}

/* Every window of x and y of a stream whose tokens are first, first + 1, .. must be where it is in one piece. */
static void expect_windows(Fixture *f, int64_t samples, int64_t length, uint32_t first)
{
    int64_t x[64], y[64];
    assert_int_equal(f->d->samples, samples);
    for (int64_t s = samples - 1; s >= 0; s--) {
        wf_dataset_gather(f->d, 0, &s, 1, x);
        wf_dataset_gather(f->d, 1, &s, 1, y);
        for (int64_t i = 0; i < length; i++)
            assert_true(x[i] == first + s * length + i && y[i] == x[i] + 1);
    }
}

static void windows_of_tokens(void **state)
{
    const WfDataInput in[] = {tokens_input("x", WF_I64, 8, 0), tokens_input("y", WF_I64, 8, 0)};
    Fixture *f = *state;
    static const struct { uint32_t magic, version; int width; uint32_t first; } kinds[] = {
        {0, 0, 2, 65400}, {20240520, 1, 2, 65400}, {20240801, 7, 4, 128000}};
    for (size_t k = 0; k < WF_LEN(kinds); k++)
        for (int n = 9; n <= 41; n++) { /* n - 1 tokens have one that follows */
            char *path = write_stream(f, "t.bin", kinds[k].magic, kinds[k].version, kinds[k].width, kinds[k].first, n, (uint32_t)n);
            want(f, in, 2);
            give_named(f, "x,y", path);
            opens(f);
            expect_windows(f, (n - 1) / 8, 8, kinds[k].first);
        }
    want(f, in, 1); /* alone: the last token of a file can be the last of a window */
    give_named(f, "x", write_stream(f, "t.bin", 0, 0, 2, 0, 16, 0));
    opens(f);
    assert_int_equal(f->d->samples, 2);
    const WfDataInput narrow[] = {tokens_input("x", WF_I32, -1, 4), tokens_input("y", WF_I32, -1, 4)};
    want(f, narrow, 2); /* as long as in the export's example */
    give_named(f, "x,y", path_of(f, "t.bin"));
    opens(f);
    int32_t got[4];
    assert_int_equal(f->d->samples, 3);
    wf_dataset_gather(f->d, 1, (int64_t[]){2}, 1, got);
    assert_true(got[0] == 9 && got[3] == 12);
}

static void windows_stay_in_their_file(void **state)
{
    const WfDataInput in[] = {tokens_input("x", WF_I64, 8, 0), tokens_input("y", WF_I64, 8, 0)};
    Fixture *f = *state;
    want(f, in, 2);
    write_stream(f, "s1.bin", 20240520, 1, 2, 100, 20, 20);   /* two windows: 100.., 108.. */
    write_stream(f, "s2.bin", 20240520, 1, 2, 200, 9, 9);     /* one */
    write_stream(f, "s10.bin", 20240520, 1, 2, 300, 33, 33);  /* four; by bytes it comes between them */
    give_named(f, "x,y", path_of(f, "s*.bin"));
    opens(f);
    static const int64_t first[] = {100, 108, 300, 308, 316, 324, 200};
    assert_int_equal(f->d->samples, 7);
    int64_t x[7 * 8], y[7 * 8];
    wf_dataset_gather(f->d, 0, (int64_t[]){0, 1, 2, 3, 4, 5, 6}, 7, x);
    wf_dataset_gather(f->d, 1, (int64_t[]){0, 1, 2, 3, 4, 5, 6}, 7, y);
    for (int s = 0; s < 7; s++)
        for (int i = 0; i < 8; i++)
            assert_true(x[s * 8 + i] == first[s] + i && y[s * 8 + i] == first[s] + i + 1);
}

static void texts_are_bytes(void **state)
{
    const WfDataInput in[] = {tokens_input("x", WF_I64, 4, 0), tokens_input("y", WF_I64, 4, 0)};
    Fixture *f = *state;
    want(f, in, 2);
    give_named(f, "x,y", write_bytes(f, "corpus.txt", "Weft \xc3\xa4!\n", 9));
    opens(f);
    int64_t x[8], y[8];
    assert_int_equal(f->d->samples, 2);
    wf_dataset_gather(f->d, 0, (int64_t[]){0, 1}, 2, x);
    wf_dataset_gather(f->d, 1, (int64_t[]){0, 1}, 2, y);
    assert_true(x[0] == 'W' && x[3] == 't' && y[3] == ' ' && x[5] == 0xc3 && x[6] == 0xa4 && y[7] == '\n');
}

/* Group 57 of hostile inputs, and uses that make no sense. */
static void wrong_tokens(void **state)
{
    const WfDataInput in[] = {tokens_input("x", WF_I64, 8, 0), tokens_input("y", WF_I64, 8, 0), tokens_input("z", WF_I64, 8, 0)};
    static const WfDataInput real = {.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 8}};
    const WfDataInput loose = tokens_input("x", WF_I64, -1, 0), narrow = tokens_input("x", WF_I32, 8, 0);
    Fixture *f = *state;
    want(f, in, 2);
    give_named(f, "x,y", write_bytes(f, "odd.bin", "1234567", 7));
    refused_as(f, WEFT_ERR_FILE, "7 bytes are no multiple of the 2 bytes of a token");
    give_named(f, "x,y", write_stream(f, "t.bin", 20240520, 2, 2, 0, 20, 20));
    refused_as(f, WEFT_ERR_UNSUPPORTED, "magic 20240520 and version 2");
    give_named(f, "x,y", write_stream(f, "t.bin", 20240520, 1, 2, 0, 20, 21));
    refused_as(f, WEFT_ERR_FILE, "says that it holds 21 tokens of 2 bytes, and 40 bytes follow it");
    give_named(f, "x,y", write_stream(f, "t.bin", 20240801, 7, 4, 0, 20, 0xffffffff));
    refused_as(f, WEFT_ERR_FILE, "says that it holds -1 tokens");
    give_named(f, "x,y", write_stream(f, "t.bin", 20240520, 1, 2, 0, 0, 0));
    refused_as(f, WEFT_ERR_FILE, "says that it holds 0 tokens");
    give_named(f, "x,y", write_bytes(f, "t.bin", (uint32_t[]){20240520, 1, 7, 0}, 16));
    refused_as(f, WEFT_ERR_FILE, "16 bytes, fewer than llm.c's header");
    give_named(f, "x,y", write_bytes(f, "t.bin", "", 0));
    refused(f, "the file holds 0 tokens, and a window needs 9");
    give_named(f, "x,y", write_stream(f, "t.bin", 0, 0, 2, 0, 8, 0));
    refused(f, "the file holds 8 tokens, and a window needs 9");
    give(f, write_stream(f, "t.bin", 0, 0, 2, 0, 20, 0));
    refused(f, "a file of tokens does not say which input it feeds; the inputs are x, y");
    want(f, in, 3);
    give_named(f, "x,y,z", path_of(f, "t.bin"));
    refused(f, "tokens feed one input or two, not 3");
    want(f, &real, 1);
    give_named(f, "x", path_of(f, "t.bin"));
    refused(f, "input x has type f32 and 2 dimensions; windows of tokens are i64[*, length]");
    want(f, &loose, 1);
    give_named(f, "x", path_of(f, "t.bin"));
    refused_as(f, WEFT_ERR_USAGE, "how long are the windows of input x?");
    want(f, &narrow, 1); /* what an i32 does not hold */
    give_named(f, "x", write_stream(f, "t.bin", 20240801, 7, 4, 0x7ffffffb, 8, 8));
    opens(f);
    int32_t got[8];
    unreadable(f, WEFT_ERR_DATA, "data: token 5, at byte 1044, is 2147483648; it must be below 2147483648", (int64_t[]){0}, 1, got);
    assert_string_equal(f->ctx->diag.place, path_of(f, "t.bin"));
}

static int64_t peak_kb(void)
{
    char line[256];
    long long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld", &kb) == 1)
            break;
    fclose(f);
    return kb;
}

/* 10 GiB of tokens in two sparse files: windows in shuffled order, all over them, take less than 64 MB. */
static void ten_gigabytes_take_no_memory(void **state)
{
    enum { LENGTH = 1 << 16, WINDOWS = 81920, EACH = 16, READ = WINDOWS / 4 };
    const WfDataInput in[] = {tokens_input("x", WF_I64, LENGTH, 0), tokens_input("y", WF_I64, LENGTH, 0)};
    Fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        char *path = write_bytes(f, i ? "b.bin" : "a.bin", "", 0);
        uint16_t last[2] = {(uint16_t)(40 + i), (uint16_t)(50 + i)}; /* the last token of the last x, and what follows it */
        assert_int_equal(truncate(path, (off_t)WINDOWS / 2 * LENGTH * 2 - 2), 0);
        FILE *file = fopen(path, "ab");
        assert_true(fwrite(last, 2, 2, file) == 2 && !fclose(file));
    }
    int64_t *x = malloc(sizeof *x * EACH * LENGTH), index[EACH], last = WINDOWS - 1, before, after;
    memset(x, 1, sizeof *x * EACH * LENGTH);
    before = peak_kb();
    want(f, in, 2);
    give_named(f, "x,y", path_of(f, "?.bin"));
    opens(f);
    assert_int_equal(f->d->samples, WINDOWS);
    WfOrder order = wf_order(f->d->samples, 3, 0, true);
    for (int64_t b = 0; b < READ / EACH; b++) {
        wf_order_batch(&order, b, EACH, index);
        wf_dataset_gather(f->d, b % 16 == 0, index, EACH, x);
    }
    after = peak_kb();
    printf("# %d windows of 128 KiB: from %lld to %lld KB\n", READ, (long long)before, (long long)after);
    assert_true(before > 0 && after - before < 64 * 1024);
    wf_dataset_gather(f->d, 0, &last, 1, x);
    assert_true(x[0] == 0 && x[LENGTH - 1] == 41);
    wf_dataset_gather(f->d, 1, &last, 1, x);
    assert_true(x[LENGTH - 2] == 41 && x[LENGTH - 1] == 51);
    free(x);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(windows_of_tokens), TEST(windows_stay_in_their_file), TEST(texts_are_bytes), TEST(wrong_tokens),
        TEST(ten_gigabytes_take_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
