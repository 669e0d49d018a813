/* Reducing kernels for x86-64-v4. */
#define NAME(x) x##_v4
#define TARGET  __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,f16c")))
#include "comm/reduce.h"
