/* Which cores a rank uses. The cores of the host that this process may use (hwloc: cgroups, masks and
 * hyperthreads are seen) are split evenly among the ranks of the host; a rank is bound to its part and so are
 * the threads it starts. When the launcher has bound the rank already (mpirun does) that stands. With more
 * ranks than cores nothing is bound and a rank has one thread. */
#include "comm/private.h"

#include <hwloc.h>

typedef struct WfBinding {
    hwloc_topology_t topology;
    hwloc_cpuset_t part;   /* this rank's cores; NULL: not bound by Weft */
    hwloc_cpuset_t before; /* what the process was bound to */
    int first, n;          /* cores, by hwloc's logical number among the allowed ones */
    bool theirs;           /* bound by the launcher */
} WfBinding;

static void release(WfBinding *b)
{
    if (b->part)
        hwloc_bitmap_free(b->part);
    if (b->before)
        hwloc_bitmap_free(b->before);
    hwloc_topology_destroy(b->topology);
    wf_sys_free(b);
}

/* Core i among those that intersect `allowed`. */
static hwloc_obj_t core_at(const WfBinding *b, hwloc_const_cpuset_t allowed, int i)
{
    return hwloc_get_obj_inside_cpuset_by_type(b->topology, allowed, HWLOC_OBJ_CORE, (unsigned)i);
}

void wf_bind_cores(WfComm *c)
{
    WfBinding *b = wf_sys_alloc(sizeof *b);
    int want = c->options.threads;
    c->threads = want > 0 ? want : 1;
    if (!b)
        return;
    if (hwloc_topology_init(&b->topology) != 0) {
        wf_sys_free(b);
        return;
    }
    if (hwloc_topology_load(b->topology) != 0 || !(b->before = hwloc_bitmap_alloc())) {
        release(b);
        return;
    }
    hwloc_const_cpuset_t all = hwloc_topology_get_allowed_cpuset(b->topology);
    if (hwloc_get_cpubind(b->topology, b->before, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(b->before, all);
    hwloc_bitmap_and(b->before, b->before, all);
    int cores = hwloc_get_nbobjs_inside_cpuset_by_type(b->topology, b->before, HWLOC_OBJ_CORE);
    /* A mask of its own below the host's: the launcher has shared out the cores. `taskset` for all ranks
     * looks alike when it leaves as many cores as ranks, and is then split as the whole host would be. */
    bool masked = !hwloc_bitmap_isequal(b->before, all);
    b->theirs = masked && c->launcher && !c->launched && cores < c->local_size;
    int share = b->theirs ? cores : cores / c->local_size;
    if (want <= 0)
        c->threads = share > 1 ? share : 1;
    c->binding = b;
    if (b->theirs || c->options.unbound || share < 1 || c->local_size == 1)
        return;
    b->first = c->local_rank * share;
    b->n = share;
    b->part = hwloc_bitmap_alloc();
    for (int i = 0; b->part && i < share; i++) {
        hwloc_obj_t core = core_at(b, b->before, b->first + i);
        if (core)
            hwloc_bitmap_or(b->part, b->part, core->cpuset);
    }
    if (b->part)
        hwloc_bitmap_and(b->part, b->part, b->before);
    if (!b->part || hwloc_bitmap_iszero(b->part) ||
        hwloc_set_cpubind(b->topology, b->part, HWLOC_CPUBIND_PROCESS) != 0) {
        wf_log(c->ctx, WF_LOG_DEBUG, "rank %d is not bound: the system refuses", c->rank);
        if (b->part)
            hwloc_bitmap_free(b->part);
        b->part = NULL;
    }
}

void wf_unbind_cores(WfComm *c)
{
    WfBinding *b = c->binding;
    if (!b)
        return;
    if (b->part)
        hwloc_set_cpubind(b->topology, b->before, HWLOC_CPUBIND_PROCESS);
    release(b);
    c->binding = NULL;
}

void wf_comm_bind_thread(const WfComm *c, int i)
{
    WfBinding *b = c->binding;
    if (!b || !b->part || i < 0 || c->threads > b->n)
        return;
    hwloc_obj_t core = core_at(b, b->before, b->first + i % b->n);
    if (core)
        hwloc_set_cpubind(b->topology, core->cpuset, HWLOC_CPUBIND_THREAD);
}

void wf_bind_text(const WfComm *c, WfStr *out)
{
    const WfBinding *b = c->binding;
    if (b && b->part && b->n == 1)
        wf_str_printf(out, "core %d", b->first);
    else if (b && b->part)
        wf_str_printf(out, "cores %d-%d", b->first, b->first + b->n - 1);
    else if (b && b->theirs)
        wf_str_puts(out, "bound by the launcher");
    else
        wf_str_puts(out, "not bound");
}
