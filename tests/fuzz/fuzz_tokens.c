/* Streams of tokens: llm.c's headers and raw numbers. */
#include "data_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const WfDataInput in[] = {{.name = "x", .dtype = WF_I32, .rank = 2, .shape = {-1, 8}},
                                     {.name = "y", .dtype = WF_I32, .rank = 2, .shape = {-1, 8}}};
    char source[160];
    snprintf(source, sizeof source, "x,y=%s", data_file("input.bin", data, size));
    data_run(source, NULL, in, 2);
    return 0;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    static uint32_t file[256 + 50];
    for (int i = 0; i < 306; i++)
        file[i] = i < 256 ? 0 : 0x00070001u * (uint32_t)i;
    file[0] = 20240520, file[1] = 1, file[2] = 100;
    add(file, sizeof file);
    file[0] = 20240801, file[1] = 7, file[2] = 50;
    add(file, sizeof file);
    add(file + 256, 200);
}
