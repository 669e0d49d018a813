/* Chooses the reducing kernel of this machine. The bits are the same for each. */
#include "comm/private.h"

void wf_sum_ranks(const WfReduceHow *how, const void *const *src, int n, size_t count, void *const *dst,
                  int n_dst)
{
    static _Atomic(WfReduceFn) chosen;
    WfReduceFn fn = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!fn) {
        __builtin_cpu_init();
        bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
        fn = v4 ? wf_sum_ranks_v4 : wf_sum_ranks_v3;
        atomic_store_explicit(&chosen, fn, memory_order_relaxed);
    }
    fn(how, src, n, count, dst, n_dst);
}
