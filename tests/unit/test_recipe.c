/* Recipes and tables: values against torch's and plain arithmetic; quoting, missing values, categories; what is refused. */
#include "data_fixture.h"

static void recipe(Fixture *f, const char *text) { f->o.recipe = write_bytes(f, "recipe.yaml", text, strlen(text)); }

static char *table(Fixture *f, const char *name, const char *text) { return write_bytes(f, name, text, strlen(text)); }

/* ---- values ---- */

static void pictures_are_normalised(void **state)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 4, .shape = {-1, 3, 2, 2}};
    /* bytes 0, 7, 128, 255 through torchvision's ToTensor and Normalize (0.29.2) */
    static const float normal[] = {-0x1.0f177ap+1f, -0x1.ff7efp+0f,  0x1.2f5e64p-4f, 0x1.1fdc3ap+1f,
                                   -0x1.049248p+1f, -0x1.e9c532p+0f, 0x1.a43690p-3f, 0x1.36db6ep+1f,
                                   -0x1.cdf012p+0f, -0x1.aeb464p+0f, 0x1.b4ba78p-2f, 0x1.51eb86p+1f};
    Fixture *f = *state;
    uint8_t file[20 + 24] = {0, 0, 8, 4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2};
    for (int i = 0; i < 24; i++)
        file[20 + i] = ((uint8_t[]){0, 7, 128, 255})[i % 4];
    want(f, &in, 1);
    recipe(f, "x: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}");
    give_named(f, "x", write_bytes(f, "pictures", file, sizeof file));
    opens(f);
    float got[24];
    wf_dataset_gather(f->d, 0, (int64_t[]){1, 0}, 2, got);
    for (int i = 0; i < 24; i++) /* the same float32 operations: the same numbers */
        if (got[i] != normal[i % 12])
            fail_msg("element %d is %.9g, not %.9g", i, got[i], normal[i % 12]);
    recipe(f, "x:\n  scale: 2\n  mean: 1\n");
    want(f, &in, 1);
    give_named(f, "x", path_of(f, "pictures"));
    opens(f);
    wf_dataset_gather(f->d, 0, (int64_t[]){0}, 1, got);
    assert_true(got[0] == -1 && got[1] == 13 && got[3] == 509); /* scale takes the place of 1/255 */
    recipe(f, "x: {std: [1, 2]}");
    refused_as(f, WEFT_ERR_USAGE, "");
    give_named(f, "x", path_of(f, "pictures"));
    refused_as(f, WEFT_ERR_USAGE, "recipe: x.std has 2 numbers, and dimension 1 of the input is 3");
}

static void types_and_classes(void **state)
{
    Fixture *f = *state;
    double x[] = {0.1, -2, 1e300, 3};
    int64_t y[] = {2, 0, 1, 5};
    WfTensor t[] = {{"x", WF_F64, 1, {4}, x, sizeof x}, {"y", WF_I64, 1, {4}, y, sizeof y}};
    char *path = write_tensors(f, "t.safetensors", t, 2);
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_F32, .rank = 1, .shape = {-1}},
                                     {.name = "y", .dtype = WF_F32, .rank = 2, .shape = {-1, 3}}};
    want(f, in, 2);
    recipe(f, "x: {dtype: float32}\ny: {one_hot: 3}\n");
    give(f, path);
    opens(f);
    float gx[4], gy[9];
    wf_dataset_gather(f->d, 0, (int64_t[]){0, 1, 2, 3}, 4, gx);
    assert_true(gx[0] == 0.1f && gx[1] == -2 && isinf(gx[2]) && gx[3] == 3);
    wf_dataset_gather(f->d, 1, (int64_t[]){0, 1, 2}, 3, gy);
    assert_memory_equal(gy, ((float[]){0, 0, 1, 1, 0, 0, 0, 1, 0}), sizeof gy);
    f->column = 1;
    f->index = (int64_t[]){3};
    f->count = 1;
    f->out = gy;
    assert_int_equal(wf_guard(f->ctx, do_gather, f), WEFT_ERR_DATA);
    assert_string_equal(f->ctx->diag.message, "data: sample 3, element 0 is 5, and one_hot: 3 allows 0 to 2");

    static const WfDataInput whole = {.name = "x", .dtype = WF_I32, .rank = 1, .shape = {-1}};
    want(f, &whole, 1);
    recipe(f, "x: {dtype: i32}");
    give(f, path);
    opens(f);
    int32_t gi[4];
    wf_dataset_gather(f->d, 0, (int64_t[]){3, 1}, 2, gi);
    assert_true(gi[0] == 3 && gi[1] == -2);
    unreadable(f, WEFT_ERR_DATA, "data: sample 0, element 0 is 0.1, which is no i32", (int64_t[]){0}, 1, gi);
    unreadable(f, WEFT_ERR_DATA, "data: sample 2, element 0 is 1e+300, which is no i32", (int64_t[]){2}, 1, gi);
    recipe(f, "x: {dtype: f32}");
    give(f, path);
    refused_as(f, WEFT_ERR_USAGE, "recipe: x.dtype: the model's input is i32");
    recipe(f, "x: {scale: 2}");
    give(f, path);
    refused(f, "data: input x expects i32[*], but the file holds f64[4]");
}

/* Crops with padding and flips of [c, h, w] samples: every element is that of the sample at one offset, or padding; each
 * offset occurs; and (seed, epoch, sample) alone decides. */
static void windows_are_random_and_repeatable(void **state)
{
    enum { N = 400, C = 2, S = 5, P = 2, PLACES = 2 * P + 1 };
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 4, .shape = {-1, C, S, S}};
    Fixture *f = *state;
    static float x[N * C * S * S], a[N * C * S * S], b[N * C * S * S];
    int64_t index[N];
    WfDataFault fault = {0};
    for (int i = 0; i < N * C * S * S; i++)
        x[i] = (float)(i + 1); /* 0 is the padding */
    for (int i = 0; i < N; i++)
        index[i] = N - 1 - i;
    WfTensor t = {"x", WF_F32, 4, {N, C, S, S}, x, sizeof x};
    want(f, &in, 1);
    recipe(f, "x: {crop: random, padding: 2, flip: true}");
    give(f, write_tensors(f, "t.safetensors", &t, 1));
    opens(f);
    assert_true(wf_dataset_read(f->d, 0, 3, index, N, a, &fault));
    int seen[PLACES][PLACES][2] = {{{0}}}, places = 0, mirrored = 0;
    for (int i = 0; i < N; i++) {
        int found = 0;
        for (int top = -P; top <= P; top++)
            for (int left = -P; left <= P; left++)
                for (int m = 0; m < 2; m++) {
                    bool same = true;
                    for (int e = 0; e < C * S * S && same; e++) {
                        int c = e / (S * S), row = e / S % S + top, col = left + (m ? S - 1 - e % S : e % S);
                        float w = row < 0 || row >= S || col < 0 || col >= S ? 0 : x[((index[i] * C + c) * S + row) * S + col];
                        same = a[i * C * S * S + e] == w;
                    }
                    found += same;
                    seen[top + P][left + P][m] += same;
                    mirrored += same && m;
                }
        assert_int_equal(found, 1);
    }
    for (int i = 0; i < PLACES * PLACES; i++)
        places += seen[i / PLACES][i % PLACES][0] + seen[i / PLACES][i % PLACES][1] > 0;
    assert_int_equal(places, PLACES * PLACES); /* missing one of 25 in 400 draws: 25 * 0.96^400 = 2e-6 */
    assert_true(mirrored > 140 && mirrored < 260);  /* 200 +- 6 standard deviations of 10 */
    assert_true(wf_dataset_read(f->d, 0, 4, index, N, b, &fault));
    assert_true(memcmp(a, b, sizeof a));
    for (int i = 0; i < N; i++) /* one by one, in another order: the same */
        assert_true(wf_dataset_read(f->d, 0, 3, &index[N - 1 - i], 1, b + (N - 1 - i) * C * S * S, &fault));
    assert_memory_equal(a, b, sizeof a);
    f->o.seed = 1;
    opens(f);
    assert_true(wf_dataset_read(f->d, 0, 3, index, N, b, &fault));
    assert_true(memcmp(a, b, sizeof a));
    f->use = WF_DATA_EVAL; /* evaluation: the middle, not mirrored */
    give(f, path_of(f, "t.safetensors"));
    opens(f);
    assert_true(wf_dataset_read(f->d, 0, 3, index, N, b, &fault));
    for (int i = 0; i < N; i++)
        assert_memory_equal(b + i * C * S * S, x + index[i] * C * S * S, C * S * S * sizeof *x);
}

static void tokens_by_recipe(void **state)
{
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_I64, .rank = 2, .shape = {-1, 4}},
                                     {.name = "y", .dtype = WF_I64, .rank = 2, .shape = {-1, 4}}};
    Fixture *f = *state;
    uint8_t bytes[40];
    int64_t x[40];
    for (int i = 0; i < 40; i++)
        bytes[i] = (uint8_t)(i % 4 ? 0 : i);
    want(f, in, 2);
    recipe(f, "x: {tokens: u32, stride: 2}");
    give_named(f, "x,y", write_bytes(f, "stream", bytes, 40)); /* 10 tokens 0, 4, 8, .. */
    opens(f);
    assert_int_equal(f->d->samples, 3);
    wf_dataset_gather(f->d, 1, (int64_t[]){2, 0, 1}, 3, x);
    assert_true(x[0] == 20 && x[3] == 32 && x[4] == 4 && x[7] == 16 && x[8] == 12);
    recipe(f, "x: {tokens: bytes, vocab: 29}");
    give_named(f, "x,y", path_of(f, "stream"));
    refused(f, "data: token 32, at byte 32, is 32; it must be below 29"); /* before the first step */
    recipe(f, "y: {tokens: bytes}");
    give_named(f, "x,y", path_of(f, "stream"));
    refused_as(f, WEFT_ERR_FILE, "of no known format");
    recipe(f, "x: {tokens: bytes}\ny: {vocab: 256}");
    give_named(f, "x,y", path_of(f, "stream"));
    refused_as(f, WEFT_ERR_USAGE, "recipe: y.vocab means nothing to a file of tokens");
    assert_string_equal(f->ctx->diag.hint, "Write it under the first name of --data NAME,NAME=FILE.");
    recipe(f, "x: {tokens: bytes, mean: 3}");
    give_named(f, "x,y", path_of(f, "stream"));
    refused_as(f, WEFT_ERR_USAGE, "recipe: x.mean means nothing to a file of tokens");
    recipe(f, "x: {tokens: bytes, length: 8}");
    give_named(f, "x,y", path_of(f, "stream"));
    refused_as(f, WEFT_ERR_USAGE, "recipe: length: 8, but input x was exported with 4");
}

static void wrong_recipes(void **state)
{
    static const struct { const char *text, *message; } cases[] = {
        {"x: {sclae: 3}", "recipe: x: there is no key sclae; did you mean scale?"},
        {"z: {scale: 3}", "recipe: the model has no input z"},
        {"x: 3", "recipe: x: a mapping is needed, not a whole number"},
        {"[x]", "the file is no mapping from inputs"},
        {"x: {scale: yes}", "recipe: x.scale: a number is needed, not text"},
        {"x: {std: 0}", "recipe: x.std: 0 is out of range"},
        {"x: {std: []}", "recipe: x.std: the list is empty"},
        {"x: {flip: 1}", "recipe: x.flip: true or false is needed, not a whole number"},
        {"x: {one_hot: 2.5}", "recipe: x.one_hot: a whole number is needed, not a number"},
        {"x: {one_hot: 1e9}", "recipe: x.one_hot: "},
        {"x: {dtype: float31}", "recipe: x.dtype: float31 is no type"},
        {"x: {tokens: u64}", "recipe: x.tokens: \"u64\" is none of bytes, u16, u32"},
        {"x: {crop: left}", "recipe: x.crop: \"left\" is none of center, random"},
        {"x: {resize: [1, 2, 3]}", "recipe: x.resize: one number or [height, width] is needed"},
        {"x: {padding: -1}", "recipe: x.padding: -1 is out of range"},
        {"x: {columns: a}", "recipe: x.columns: a list of names is needed"},
        {"x: {columns: [a, a]}", "recipe: x.columns: a is there twice"},
        {"x: {fill: 0}", "recipe: x.fill: list the columns first"},
        {"x: {columns: [age], fill: {aeg: 0}}", "recipe: x.fill: aeg is not one of the columns (did you mean age?)"},
        {"x: {columns: [a], categories: {a: [u, u]}}", "recipe: x.categories: a: u is there twice"},
        {"x: {columns: [a], categories: {a: some}}", "recipe: x.categories: a: a list of categories or auto is needed"},
        {"x: {columns: [a], categories: a}", "recipe: x.categories: a mapping from columns"},
        {"x: {scale: 1, scale: 2}", ""}, {"x: {scale: !!int 1}", ""}, {"x: &a {scale: 1}", ""}, {"x: {", ""}};
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 1}};
    Fixture *f = *state;
    char *path = table(f, "t.csv", "a\n1\n");
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        want(f, &in, 1);
        recipe(f, cases[i].text);
        give_named(f, "x", path);
        weft_status s = wf_guard(f->ctx, do_open, f);
        if (s == WEFT_OK || !strstr(f->ctx->diag.message, cases[i].message))
            fail_msg("%s: %d \"%s\" instead of \"%s\"", cases[i].text, s, s ? f->ctx->diag.message : "", cases[i].message);
    }
    f->o.recipe = path_of(f, "none.yaml");
    give_named(f, "x", path);
    refused_as(f, WEFT_ERR_IO, "none.yaml: cannot open");
}

/* ---- tables ---- */

static void columns_by_name(void **state)
{
    static const WfDataInput in[] = {{.name = "age", .dtype = WF_F32, .rank = 2, .shape = {-1, 1}},
                                     {.name = "label", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    static const WfDataInput all = {.name = "x", .dtype = WF_F64, .rank = 2, .shape = {-1, 3}};
    Fixture *f = *state;
    char *path = table(f, "t.csv", "\xef\xbb\xbf" "label,unused,age\r\n1,2.5,30\r\n\r\n0,-1e3, 41.25 \r\n7,+.5,1");
    want(f, in, 2);
    give(f, path);
    opens(f);
    float age[3];
    int64_t label[3];
    double x[9];
    assert_int_equal(f->d->samples, 3);
    wf_dataset_gather(f->d, 0, (int64_t[]){0, 1, 2}, 3, age);
    wf_dataset_gather(f->d, 1, (int64_t[]){0, 1, 2}, 3, label);
    assert_true(age[0] == 30 && age[1] == 41.25f && age[2] == 1 && label[0] == 1 && label[1] == 0 && label[2] == 7);
    want(f, &all, 1);
    give_named(f, "x", path);
    opens(f);
    wf_dataset_gather(f->d, 0, (int64_t[]){0, 1, 2}, 3, x);
    assert_memory_equal(x, ((double[]){1, 2.5, 30, 0, -1000, 41.25, 7, 0.5, 1}), sizeof x);
}

static void quotes_fills_and_categories(void **state)
{
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 4}},
                                     {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    Fixture *f = *state;
    char *path = table(f, "t.tsv", "a b\t\"c\"\"d\"\tcity\tsex\tlabel\n"
                                   "1\t2\t\"New\nYork, \"\"NY\"\"\"\tf\tyes\n"
                                   "NA\t\"3\"\tRoma\tm\tno\n"
                                   "\t4\tNew\nYork\n"); /* unquoted: the row ends within */
    recipe(f, "x:\n  columns: [sex, a b, city, 'c\"d']\n  categories: {city: auto, sex: [m, f]}\n  fill: {a b: -7}\n"
              "y:\n  columns: [label]\n  categories: {label: ['no', 'yes']}\n");
    want(f, in, 2);
    give(f, path);
    refused(f, "the row has 3 fields, and the first row names 5 columns");
    assert_non_null(strstr(f->ctx->diag.place, "t.tsv: line 5"));
    path = table(f, "t.tsv", "a b\t\"c\"\"d\"\tcity\tsex\tlabel\n"
                             "1\t2\t\"New\nYork, \"\"NY\"\"\"\tf\tyes\n"
                             "NA\t\"3\"\tRoma\tm\tno\n"
                             "5\t4\tNew\tf\tno\n"
                             "6\t4\tRoma\tf\tno\n");
    give(f, path);
    opens(f);
    float x[16];
    int64_t y[4];
    wf_dataset_gather(f->d, 0, (int64_t[]){0, 1, 2, 3}, 4, x);
    wf_dataset_gather(f->d, 1, (int64_t[]){0, 1, 2, 3}, 4, y);
    assert_memory_equal(x, ((float[]){1, 1, 0, 2, 0, -7, 1, 3, 1, 5, 2, 4, 1, 6, 1, 4}), sizeof x);
    assert_true(y[0] == 1 && y[1] == 0 && y[2] == 0 && y[3] == 0);
    /* the order in which cities came stays that of the training data */
    f->use = WF_DATA_EVAL;
    give(f, table(f, "e.tsv", "city\tsex\tlabel\ta b\tc\"d\nRoma\tm\tyes\t1\t2\nNew\tm\tyes\t\t2\n"));
    opens(f);
    wf_dataset_gather(f->d, 0, (int64_t[]){0, 1}, 2, x);
    assert_memory_equal(x, ((float[]){0, 1, 1, 2, 0, -7, 2, 2}), 32);
    f->o.eval_data.n = 0;
    give(f, table(f, "e.tsv", "city\tsex\tlabel\ta b\tc\"d\nBerlin\tm\tyes\t1\t2\n"));
    assert_int_equal(wf_guard(f->ctx, do_open, f), WEFT_ERR_DATA);
    assert_non_null(strstr(f->ctx->diag.message, "column city: \"Berlin\" is no category; there are \"New\\nYork, \\\"NY\\\"\", \"Roma\", \"New\""));
    f->use = WF_DATA_PREDICT;
    refused_as(f, WEFT_ERR_USAGE, "recipe: x.categories: the order of city is that of the training data");
}

static void wrong_tables(void **state)
{
    static const struct { const char *text, *message, *place; } cases[] = {
        {"", "the file is empty", "line 1"},
        {"\n\n", "the file is empty", ""},
        {"a,b\n", "input x has no samples", ""},
        {"a,a\n1,2\n", "two columns are called \"a\"", "line 1"},
        {"a,b\n1,2\n3\n", "the row has 1 field, and the first row names 2 columns", "line 3"},
        {"a,b\n1,2,3\n", "the row has 3 fields, and the first row names 2 columns", "line 2"},
        {"a,b\n1,\"2\n", "a quoted field does not end", "line 2"},
        {"a,b\n1,\"2\"3\n", "something stands between the end of a quoted field", "line 2"},
        {"a,b\n1,2\n\n3,\n", "column b: the value is missing", "line 4"},
        {"a,b\n1,NaN\n", "column b: the value is missing", "line 2"},
        {"a,b\n\"x\ny\",1\n", "column a: \"x\ny\" is no number", "line 2"},
        {"a,b\n1,inf\n", "column b: \"inf\" is no number", "line 2"},
        {"a,b\n1,0x10\n", "column b: \"0x10\" is no number", "line 2"},
        {"a,b\n1,1e999\n", "column b: \"1e999\" is no number", "line 2"},
        {"a,b\n1,1.2.3\n", "column b: \"1.2.3\" is no number", "line 2"},
        {"a,b\n1,1,5\n", "the row has 3 fields", "line 2"},
        {"a,b,c\n1,2,3\n", "input x expects f32[*, 2], but the file holds f32[1, 3]", ""}};
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 2}};
    static const WfDataInput label = {.name = "a", .dtype = WF_I32, .rank = 1, .shape = {-1}};
    static const WfDataInput both[] = {in, {.name = "y", .dtype = WF_F32, .rank = 1, .shape = {-1}}};
    Fixture *f = *state;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        want(f, &in, 1);
        give_named(f, "x", table(f, "t.csv", cases[i].text));
        weft_status s = wf_guard(f->ctx, do_open, f);
        if (s != WEFT_ERR_DATA || !strstr(f->ctx->diag.message, cases[i].message) || !strstr(f->ctx->diag.place, cases[i].place))
            fail_msg("case %zu: %d \"%s\" at %s instead of \"%s\"", i, s, s ? f->ctx->diag.message : "", s ? f->ctx->diag.place : "",
                     cases[i].message);
    }
    want(f, &label, 1);
    give(f, table(f, "t.csv", "a\n3.0\n2147483648\n"));
    refused(f, "column a: \"2147483648\" is no whole number of type i32");
    give(f, table(f, "t.csv", "a\n2.5\n"));
    refused(f, "column a: \"2.5\" is no whole number of type i32");
    give(f, table(f, "t.csv", "b\n2.5\n"));
    refused(f, "data: input a has no data; the files hold b");
    give(f, write_bytes(f, "t.csv", "a\n1\0\n", 5));
    refused(f, "a field holds a zero byte");
    want(f, both, 2);
    give_named(f, "x,y", table(f, "t.csv", "a,b,c\n1,2,3\n"));
    refused(f, "data: which of the 3 columns feed input x?");
    recipe(f, "x: {columns: [a, b]}\ny: {columns: [d]}");
    give_named(f, "x,y", path_of(f, "t.csv"));
    refused(f, "data: the file has no column d");
    char *long_ = malloc(2 << 20);
    memset(long_, '1', 2 << 20);
    memcpy(long_, "a\n\"", 3);
    f->o.recipe = NULL;
    want(f, &label, 1);
    give(f, write_bytes(f, "t.csv", long_, 2 << 20));
    refused(f, "a field is longer than 1048576 bytes: is a quote missing?");
    free(long_);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pictures_are_normalised), TEST(types_and_classes), TEST(windows_are_random_and_repeatable), TEST(tokens_by_recipe),
        TEST(wrong_recipes), TEST(columns_by_name), TEST(quotes_fills_and_categories), TEST(wrong_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
