/* Reducing kernels for x86-64-v3. */
#define NAME(x) x##_v3
#define TARGET  __attribute__((target("avx2,f16c")))
#include "comm/reduce.h"
