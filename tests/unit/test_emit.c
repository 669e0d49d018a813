/* Generated C and library kernels against PyTorch: the samples of test_ops.c, compiled and run instead of evaluated by
 * the oracle. */
#define COMPILED 1
#include "test_ops.c"
