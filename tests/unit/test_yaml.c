/* Tests of base: YAML becomes the JSON tree that the same words in JSON give, or is refused with line and column. */
#include <jansson.h>

#include "base_fixture.h"

typedef struct {
    const char *text;
    size_t size;
    char *json; /* what came out, canonical; the caller frees */
} Job;

static void parse_yaml(void *arg)
{
    Job *j = arg;
    j->json = json_dumps(wf_yaml_parse(ctx, j->text, j->size, "x.yaml"), JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT);
}

static void gives(const char *yaml, const char *json)
{
    Job j = {yaml, strlen(yaml), NULL};
    expect(WEFT_OK, NULL, parse_yaml, &j);
    assert_string_equal(j.json, json);
    free(j.json);
}

static void refused(const char *yaml, const char *place, const char *message)
{
    Job j = {yaml, strlen(yaml), NULL};
    expect(WEFT_ERR_FILE, message, parse_yaml, &j);
    assert_non_null(strstr(ctx->diag.message, "x.yaml: "));
    if (!ctx->diag.place || strcmp(ctx->diag.place, place))
        fail_msg("%s: at %s instead of %s", yaml, ctx->diag.place, place);
}

static void test_scalars(void **state)
{
    (void)state;
    gives("[null, Null, NULL, ~, ]", "[null,null,null,null]");
    gives("[true, True, TRUE, false, False, FALSE]", "[true,true,true,false,false,false]");
    gives("[yes, no, on, off, tRUE, y]", "[\"yes\",\"no\",\"on\",\"off\",\"tRUE\",\"y\"]");
    gives("[0, -19, +12, 007, 0o14, 0x3A, 9223372036854775807, -9223372036854775808]",
          "[0,-19,12,7,12,58,9223372036854775807,-9223372036854775808]");
    gives("[0., -0.0, .5, +12e03, -2E+05, 3e-4]", "[0.0,-0.0,0.5,12000.0,-200000.0,0.00029999999999999997]");
    gives("[1_000, 0b1, 12:30, 1e, e5, ., -, 0o8, 1.2.3, 0x, '12', \"true\", '']",
          "[\"1_000\",\"0b1\",\"12:30\",\"1e\",\"e5\",\".\",\"-\",\"0o8\",\"1.2.3\",\"0x\",\"12\",\"true\",\"\"]");
    gives("text with: \"a colon\"", "{\"text with\":\"a colon\"}");
    gives("a: |\n  two\n  lines\nb: >\n  folded\n  text\n", "{\"a\":\"two\\nlines\\n\",\"b\":\"folded text\\n\"}");
    gives("\"\\u00e9\"", "\"\303\251\"");
}

static void test_trees(void **state)
{
    (void)state;
    gives("", "null");
    gives("# nothing but a comment\n", "null");
    gives("---\n...\n", "null");
    gives("lr: 3e-4\noptimizer: adamw\ndata:\n  - x=a.npy\n  - y=b.npy\nnested: {a: [1, {b: c}], d: }\n",
          "{\"data\":[\"x=a.npy\",\"y=b.npy\"],\"lr\":0.00029999999999999997,\"nested\":{\"a\":[1,{\"b\":\"c\"}],\"d\":null},"
          "\"optimizer\":\"adamw\"}");
    gives("%YAML 1.2\n---\n1: one\ntrue: yes\n", "{\"1\":\"one\",\"true\":\"yes\"}");
    char deep[100] = "";
    for (int i = 0; i < 31; i++)
        strcat(deep, "[");
    strcat(deep, "7"); /* at level 32 */
    for (int i = 0; i < 31; i++)
        strcat(deep, "]");
    Job j = {deep, strlen(deep), NULL};
    expect(WEFT_OK, NULL, parse_yaml, &j);
    assert_int_equal(strlen(j.json), 63);
    free(j.json);
}

static void test_refused(void **state)
{
    (void)state;
    refused("a: 1\nb: [1, 2\nc: 3\n", "line 3, column 2", "not valid YAML");
    refused("a: 1\n\tb: 2\n", "line 2, column 1", "a tab character");
    refused("a: 1\n  b: 2\n", "line 2, column 4", "mapping values are not allowed");
    refused("a: 1\nb: 2\na: 3\n", "line 3, column 1", "the key \"a\" stands there twice");
    refused("a: &x 1\n", "line 1, column 4", "anchors and aliases");
    refused("a: [1, *x]\n", "line 1, column 8", "anchors and aliases");
    refused("*x : 1\n", "line 1, column 1", "anchors and aliases");
    refused("a: !!str 1\n", "line 1, column 4", "tags");
    refused("a:\n  - !thing {}\n", "line 2, column 5", "tags");
    refused("a: 1\n---\nb: 2\n", "line 2, column 1", "second document");
    refused("[a, b]: 1\n", "line 1, column 1", "a key must be a word");
    refused("? {a: b}\n: 1\n", "line 1, column 3", "a key must be a word");
    refused("a: 9223372036854775808\n", "line 1, column 4", "beyond 64-bit integers");
    refused("a: 0x10000000000000000\n", "line 1, column 4", "beyond 64-bit integers");
    refused("a: [.inf]\n", "line 1, column 5", ".inf is no finite number");
    refused("a: -.INF\n", "line 1, column 4", "no finite number");
    refused("a: .nan\n", "line 1, column 4", "no finite number");
    refused("a: 1e999\n", "line 1, column 4", "no finite number");
    refused("a: \"x\\0y\"\n", "line 1, column 4", "zero byte");
    refused("\"x\\0y\": 1\n", "line 1, column 1", "zero byte");
    refused("a: \"\\ud800\"\n", "line 1, column 7", "invalid Unicode character");
    refused("a: b\nc: \377\n", "line 2, column 4", "invalid leading UTF-8 octet");
    refused("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[7]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", "line 1, column 33", "deeper than 32 levels");
}

static void test_faults(void **state)
{
    (void)state;
    char wide[8192] = "a: [";
    for (int i = 0; i < 1000; i++)
        strcat(wide, "[1], ");
    strcat(wide, "]");
    Job j = {wide, strlen(wide), NULL};
    expect(WEFT_OK, NULL, parse_yaml, &j);
    free(j.json);
    for (int n = 1;; n++) { /* memory of the arenas and of what is released later */
        assert_true(n < 100);
        Job own = {"a: {b: [1, x], c: 2}", 20, NULL};
        wf_seam_fail_at(WF_SEAM_ALLOC, n, n % 2);
        weft_status st = wf_guard(ctx, parse_yaml, &own);
        wf_seam_fail_at(WF_SEAM_ALLOC, 0, false);
        free(own.json);
        if (st == WEFT_OK) {
            assert_true(n > 3);
            break;
        }
        assert_int_equal(st, WEFT_ERR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("yaml", tests, setup, teardown);
}
