/* Pictures: JPEG and PNG through the decoders, resizing and cropping. */
#include "data_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const WfDataInput in = {.name = "x", .dtype = WF_U8, .rank = 4, .shape = {-1, 3, 7, 9}};
    char source[160];
    snprintf(source, sizeof source, "x=%s", data_file("input.png", data, size)); /* told apart by content */
    data_run(source, NULL, &in, 1);
    return 0;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    static const char *const names[] = {"cat/alpha.png", "cat/bits.png", "cat/grey.png", "cat/palette.PNG", "cat/small.png",
                                        "dog/cmyk.JPG",  "dog/grey.jpg", "dog/rgb.jpg",  "dog/tall.jpeg"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "pictures/%s", names[i]);
        data_seed(add, path);
    }
}
