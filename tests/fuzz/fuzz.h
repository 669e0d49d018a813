/* What a fuzz target offers to the driver. LLVMFuzzerTestOneInput is libFuzzer's entry: one input, no crash,
 * no leak, no endless loop; errors are fine. fuzz_seeds is optional and called by our driver only: it hands
 * valid inputs, to be mutated, to `add`, which copies them. */
#ifndef WEFT_FUZZ_H
#define WEFT_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) void fuzz_seeds(void (*add)(const void *data, size_t size));

#endif
