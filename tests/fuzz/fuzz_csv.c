/* Tables, with categories that are collected and a fill. */
#include "data_job.h"

static const char recipe[] = "x: {columns: [a, b], categories: {b: auto}, fill: {a: 3}}\ny: {columns: [c], dtype: i64}\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, 2}},
                                     {.name = "y", .dtype = WF_I64, .rank = 1, .shape = {-1}}};
    static const WfDataInput all = {.name = "x", .dtype = WF_F64, .rank = 2, .shape = {-1, -1}};
    char source[160];
    const char *path = data_file("input.csv", data, size);
    data_run(path, data_file("recipe.yaml", recipe, sizeof recipe - 1), in, 2);
    snprintf(source, sizeof source, "x=%s", path);
    data_run(source, NULL, &all, 1);
    return 0;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    static const char *const texts[] = {"a,b,c\n1,u,3\n,\"v \"\"w\"\"\",4.0\r\n2.5e3,\"x\ny\",-7\n", "\xef\xbb\xbf" "c,b,a,d\n1,2,3,4\n\n5,6,NA,8", "a\n1\n"};
    seeds_from_texts(texts, sizeof texts / sizeof *texts, add);
}
