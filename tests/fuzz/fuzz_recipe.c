/* Recipes, for a table, a stream of tokens, and an array of pictures. */
#include "data_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const WfDataInput row = {.name = "x", .dtype = WF_F32, .rank = 2, .shape = {-1, -1}};
    static const WfDataInput window = {.name = "x", .dtype = WF_I64, .rank = 2, .shape = {-1, -1}, .usual = {0, 4}};
    static const WfDataInput picture = {.name = "x", .dtype = WF_F32, .rank = 4, .shape = {-1, 1, 5, 4}};
    static const char table[] = "a,b,c\n1,u,3\n,v,4\n";
    static uint8_t idx[16 + 2 * 6 * 5] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 6, 0, 0, 0, 5};
    char source[160];
    const char *recipe = data_file("recipe.yaml", data, size);
    snprintf(source, sizeof source, "x=%s", data_file("t.csv", table, sizeof table - 1));
    data_run(source, recipe, &row, 1);
    snprintf(source, sizeof source, "x=%s", data_file("t.bin", table, sizeof table - 1 - 1));
    data_run(source, recipe, &window, 1);
    snprintf(source, sizeof source, "x=%s", data_file("t.idx", idx, sizeof idx));
    data_run(source, recipe, &picture, 1);
    return 0;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    static const char *const texts[] = {
        "x:\n  columns: [a, b]\n  categories: {b: auto}\n  fill: {a: 3}\n  mean: [1, 2]\n  std: 2\n",
        "x: {columns: [b, c], categories: {b: [u, v]}, scale: 0.5, one_hot: 3}\n",
        "x: {tokens: bytes, length: 3, stride: 2, vocab: 200}\n",
        "x: {crop: random, padding: 2, flip: true, resize: [7, 8], dtype: float32}\n"};
    seeds_from_texts(texts, sizeof texts / sizeof *texts, add);
}
