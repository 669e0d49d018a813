/* NumPy's files: .npy, and .npz stored and deflated. */
#include "data_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_F32, .rank = 3, .shape = {-1, -1, -1}};
    char source[160];
    snprintf(source, sizeof source, "x=%s", data_file("input", data, size)); /* told apart by content */
    data_run(source, NULL, &in, 1);
    return 0;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    static const char *const names[] = {"f4.npy", "u2.npy", "u4.npy", "v2.npy", "v3.npy", "fortran.npy", "object.npy", "structured.npy",
                                        "empty.npy", "stored.npz", "deflated.npz", "one.npz"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        data_seed(add, names[i]);
}
