/* Pictures: against what Pillow and torchvision made of the same files (tests/unit/data/make.py); labels; damaged files. */
#include "data_fixture.h"

static const char *const names[] = {"cat/alpha.png", "cat/bits.png",  "cat/grey.png", "cat/palette.PNG", "cat/rgb.png",
                                    "cat/small.png", "dog/cmyk.JPG",  "dog/grey.jpg", "dog/rgb.jpg",     "dog/tall.jpeg"};
enum { PICTURES = 10, SIDE = 16 };

static void recipe(Fixture *f, const char *text) { f->o.recipe = write_bytes(f, "recipe.yaml", text, strlen(text)); }

static void pictures_are_pillows(void **state)
{
    static const char *const recipes[] = {"{}", "x: {resize: 20}", "x: {resize: [16, 24]}"};
    Fixture *f = *state;
    static uint8_t expected[PICTURES * 3 * (3 + 1) * SIDE * SIDE], got[3 * SIDE * SIDE];
    FILE *file = fopen(recorded(f, "pictures.expected"), "rb");
    assert_non_null(file);
    assert_int_equal(fread(expected, 1, sizeof expected, file), sizeof expected);
    fclose(file);
    for (int channels = 1; channels <= 3; channels += 2)
        for (int how = 0; how < 3; how++) {
            WfDataInput in[] = {{.name = "x", .dtype = WF_U8, .rank = 4, .shape = {-1, channels, SIDE, SIDE}},
                                {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
            int bytes = channels * SIDE * SIDE;
            want(f, in, 2);
            recipe(f, recipes[how]);
            give_named(f, "x,y", recorded(f, "pictures"));
            opens(f);
            assert_int_equal(f->d->samples, PICTURES);
            for (int64_t i = 0; i < PICTURES; i++) {
                const uint8_t *e = expected + i * 3 * 4 * SIDE * SIDE + (channels == 1 ? 9 * SIDE * SIDE : 0) + how * bytes;
                int64_t label, off = 0;
                wf_dataset_gather(f->d, 0, &i, 1, got);
                wf_dataset_gather(f->d, 1, &i, 1, &label);
                assert_int_equal(label, strncmp(names[i], "cat", 3) != 0);
                for (int k = 0; k < bytes; k++) {
                    int d = abs(got[k] - e[k]);
                    off += d > 0;
                    /* PNG: the same bytes. JPEG: Pillow brings a libjpeg-turbo of its own, and reduces tall pictures vertically
                     * first, which rounds differently */
                    if (d > (strncmp(names[i], "cat", 3) ? 1 : 0))
                        fail_msg("%s, %d channels, recipe %s: byte %d is %d, not %d", names[i], channels, recipes[how], k, got[k], e[k]);
                }
                assert_true(off * 7 <= bytes);
            }
        }
}

static void floats_crops_and_flips(void **state)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 4, .shape = {-1, 3, SIDE, SIDE}};
    static const WfDataInput raw = {.name = "x", .dtype = WF_U8, .rank = 4, .shape = {-1, 3, SIDE, SIDE}};
    Fixture *f = *state;
    static uint8_t u[PICTURES * 3 * SIDE * SIDE];
    static float x[PICTURES * 3 * SIDE * SIDE], again[PICTURES * 3 * SIDE * SIDE];
    int64_t index[PICTURES], other = 0;
    WfDataFault fault = {0};
    for (int i = 0; i < PICTURES; i++)
        index[i] = i;
    recipe(f, "x: {mean: [0.5, 0.4, 0.3], std: 0.25, resize: 24, crop: random, flip: true}");
    want(f, &raw, 1);
    f->o.recipe = NULL;
    give_named(f, "x", recorded(f, "pictures"));
    opens(f);
    wf_dataset_gather(f->d, 0, index, PICTURES, u);
    want(f, &in, 1);
    give_named(f, "x", recorded(f, "pictures"));
    opens(f);
    assert_true(f->d->slow);
    wf_dataset_gather(f->d, 0, index, PICTURES, x);
    for (int i = 0; i < PICTURES * 3 * SIDE * SIDE; i++)
        assert_true(x[i] == (float)u[i] / 255.0f);
    recipe(f, "x: {mean: [0.5, 0.4, 0.3], std: 0.25, resize: 24, crop: random, flip: true}");
    opens(f);
    assert_true(wf_dataset_read(f->d, 0, 5, index, PICTURES, x, &fault));
    for (int i = PICTURES - 1; i >= 0; i--) /* alone, in another order: the same crops */
        assert_true(wf_dataset_read(f->d, 0, 5, index + i, 1, again + i * 3 * SIDE * SIDE, &fault));
    assert_memory_equal(x, again, sizeof x);
    assert_true(wf_dataset_read(f->d, 0, 6, index, PICTURES, again, &fault));
    for (int i = 0; i < PICTURES; i++)
        other += memcmp(x + i * 3 * SIDE * SIDE, again + i * 3 * SIDE * SIDE, 3 * SIDE * SIDE * sizeof *x) != 0;
    assert_true(other >= 5); /* one of 9 x 9 places or more, and two sides: equal by chance about once in 100 */
}

static void classes_mean_the_same_in_evaluation(void **state)
{
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_U8, .rank = 4, .shape = {-1, 3, 8, 8}},
                                     {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    Fixture *f = *state;
    char command[512];
    snprintf(command, sizeof command, "cd %s && mkdir -p e/dog e/emu && cp %s e/dog/a.png && cp %s e/emu/b.png && echo x >e/emu/notes.txt", f->folder,
             recorded(f, "pictures/cat/rgb.png"), recorded(f, "pictures/cat/rgb.png"));
    assert_int_equal(system(command), 0);
    want(f, in, 2);
    give_named(f, "x,y", recorded(f, "pictures"));
    f->use = WF_DATA_EVAL;
    give_named(f, "x,y", path_of(f, "e"));
    assert_int_equal(wf_guard(f->ctx, do_open, f), WEFT_ERR_DATA);
    assert_string_equal(f->ctx->diag.message, "data: the folder emu is none of the 2 classes (cat, dog)");
    f->o.eval_data.n = 0;
    give_named(f, "x,y", recorded(f, "pictures/"));
    opens(f);
    assert_int_equal(f->d->samples, PICTURES);
    f->use = WF_DATA_PREDICT; /* pictures without classes, one after the other */
    f->o.data.n = 0;
    f->n = 1;
    give_named(f, "x", recorded(f, "pictures/dog"));
    opens(f);
    assert_int_equal(f->d->samples, 4);
    f->o.data.n = 0;
    f->n = 2;
    give_named(f, "x,y", recorded(f, "pictures/dog"));
    refused(f, "data: a picture without a class folder has no label");
}

/* Damaged pictures, cut anywhere or with bits changed: an error that names the file, or a picture; never more. */
static void threads_decode_the_same(void **state)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 4, .shape = {-1, 3, SIDE, SIDE}};
    enum { COUNT = 37 };
    Fixture *f = *state;
    static float one[COUNT * 3 * SIDE * SIDE], many[COUNT * 3 * SIDE * SIDE];
    int64_t index[COUNT];
    WfDataFault fault = {0};
    for (int i = 0; i < COUNT; i++) /* in another order, and again */
        index[i] = (i * 7 + 3) % PICTURES;
    recipe(f, "x: {resize: 24, crop: random, flip: true}");
    for (int threads = 1; threads <= 16; threads += 5) {
        f->o.threads = threads;
        want(f, &in, 1);
        give_named(f, "x", recorded(f, "pictures"));
        opens(f);
        assert_int_equal(f->d->readers, threads);
        memset(many, 0, sizeof many);
        assert_true(wf_dataset_read(f->d, 0, 2, index, COUNT, threads == 1 ? one : many, &fault));
        if (threads > 1)
            assert_memory_equal(one, many, sizeof one);
    }
    /* of two files that are damaged, the one that comes first in the batch is named */
    char command[400];
    snprintf(command, sizeof command, "cp -r '%s' '%s' && : >'%s/many/cat/grey.png' && : >'%s/many/dog/rgb.jpg'", recorded(f, "pictures"),
             path_of(f, "many"), f->folder, f->folder);
    assert_int_equal(system(command), 0);
    want(f, &in, 1);
    give_named(f, "x", path_of(f, "many"));
    opens(f);
    for (int i = 0; i < PICTURES; i++)
        index[i] = PICTURES - 1 - i;
    for (int tries = 0; tries < 20; tries++) {
        assert_false(wf_dataset_read(f->d, 0, 0, index, PICTURES, many, &fault));
        assert_non_null(strstr(fault.place, "dog/rgb.jpg"));
    }
}

static void damaged_pictures(void **state)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_U8, .rank = 4, .shape = {-1, 3, SIDE, SIDE}};
    Fixture *f = *state;
    static uint8_t all[1 << 16], got[3 * SIDE * SIDE];
    uint64_t seed = 20261130;
    mkdir(path_of(f, "c"), 0777), mkdir(path_of(f, "c/k"), 0777);
    for (int i = 0; i < PICTURES; i++) {
        FILE *file = fopen(recorded(f, wf_arena_printf(f->ctx->arena, "pictures/%s", names[i])), "rb");
        size_t n = fread(all, 1, sizeof all, file);
        int errors = 0, cut = 0;
        fclose(file);
        want(f, &in, 1);
        write_bytes(f, "c/k/p.png", all, n);
        give_named(f, "x", path_of(f, "c"));
        opens(f);
        for (int k = 0; k < 120; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t at = (seed >> 33) % n;
            uint8_t old = all[at];
            all[at] ^= (uint8_t)(1 << (seed >> 20) % 8);
            char *path = write_bytes(f, "c/k/p.png", all, k % 2 ? n : at);
            f->index = (int64_t[]){0};
            f->count = 1;
            f->out = got;
            weft_status s = wf_guard(f->ctx, do_gather, f);
            errors += s != WEFT_OK;
            cut += s != WEFT_OK && k % 2 == 0;
            if (s != WEFT_OK && (strcmp(f->ctx->diag.place, path) || strncmp(f->ctx->diag.message, "data: the picture cannot be read: ", 34)))
                fail_msg("seed 20261130, %s, damage %d: %s", names[i], k, f->ctx->diag.message);
            all[at] = old;
        }
        if (cut < 60) /* what is cut off is always an error */
            fail_msg("%s: %d of 60 cut files were errors", names[i], cut);
        assert_true(errors >= 60);
    }
    unreadable(f, WEFT_ERR_FILE, "it is neither JPEG nor PNG", (int64_t[]){(write_bytes(f, "c/k/p.png", "hello", 5), 0)}, 1, got);
    static const uint8_t wide[] = {0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, 0xf0, 0, 0xf0, 0, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1, 0xff, 0xda, 0, 12, 3, 1,
                                   0, 2, 0x11, 3, 0x11, 0, 63, 0};
    write_bytes(f, "c/k/p.png", wide, sizeof wide); /* 35 bytes that ask for 11 GB */
    unreadable(f, WEFT_ERR_FILE, "it has 61440 x 61440 pixels; up to 64 million are read", (int64_t[]){0}, 1, got);
    unlink(path_of(f, "c/k/p.png"));
    unreadable(f, WEFT_ERR_IO, "No such file", (int64_t[]){0}, 1, got);
}

static void wrong_folders(void **state)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 4, .shape = {-1, 3, 32, 32}};
    static const WfDataInput five = {.name = "x", .dtype = WF_F32, .rank = 4, .shape = {-1, 5, 32, 32}};
    static const WfDataInput flat = {.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 32}};
    Fixture *f = *state;
    want(f, &in, 1);
    give(f, recorded(f, "pictures"));
    refused(f, "data: a folder of pictures does not say which input it feeds; the inputs are x");
    mkdir(path_of(f, "c"), 0777), mkdir(path_of(f, "c/k"), 0777);
    give_named(f, "x", path_of(f, "c"));
    refused(f, "data: the class holds no pictures");
    recipe(f, "x: {resize: 20}");
    give_named(f, "x", recorded(f, "pictures"));
    refused_as(f, WEFT_ERR_USAGE, "recipe: x.resize: 20 x 20 is smaller than the input's 32 x 32");
    recipe(f, "x: {tokens: u16}");
    give_named(f, "x", recorded(f, "pictures"));
    refused_as(f, WEFT_ERR_USAGE, "recipe: x.tokens means nothing to a folder of pictures");
    f->o.recipe = NULL;
    want(f, &five, 1);
    give_named(f, "x", recorded(f, "pictures"));
    refused(f, "data: input x has 4 dimensions, and not the sizes of pictures");
    want(f, &flat, 1);
    give_named(f, "x", recorded(f, "pictures"));
    refused(f, "data: input x has 2 dimensions; pictures are [*, 3, height, width]");
    give_named(f, "x", path_of(f, "none.jpg"));
    refused_as(f, WEFT_ERR_IO, "none.jpg: cannot open");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pictures_are_pillows), TEST(floats_crops_and_flips), TEST(classes_mean_the_same_in_evaluation), TEST(threads_decode_the_same), TEST(damaged_pictures),
        TEST(wrong_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
