/* Devices. The processor's memory is what the system gives. A core's is a pool of its own: mappings bound by hwloc to the
 * memory nearest to that core, which the process keeps a list of, so that any pointer can be asked where it lies. What is
 * in no pool is the processor's. */
#include "run/private.h"

#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <stdatomic.h>

enum { STRETCHES = 1024 };

struct WfPool {
    WfCtx *ctx;
    int core;
    hwloc_topology_t topology;
    hwloc_const_nodeset_t nodes;
};

/* Of all pools of the process; n is read without the lock, since most processes have none. */
static struct {
    pthread_mutex_t lock;
    _Atomic int n;
    struct { const char *from, *to; int core; } at[STRETCHES];
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool enter(const void *p, size_t size, int core)
{
    pthread_mutex_lock(&held.lock);
    int n = atomic_load(&held.n);
    if (n < STRETCHES) {
        held.at[n].from = p;
        held.at[n].to = (const char *)p + size;
        held.at[n].core = core;
        atomic_store(&held.n, n + 1);
    }
    pthread_mutex_unlock(&held.lock);
    return n < STRETCHES;
}

static void leave(const void *p)
{
    pthread_mutex_lock(&held.lock);
    int n = atomic_load(&held.n);
    for (int i = 0; i < n; i++)
        if (held.at[i].from == p) {
            held.at[i] = held.at[n - 1];
            atomic_store(&held.n, n - 1);
            break;
        }
    pthread_mutex_unlock(&held.lock);
}

int wf_core_at(const void *p)
{
    int core = -1;
    if (!atomic_load_explicit(&held.n, memory_order_acquire))
        return -1;
    pthread_mutex_lock(&held.lock);
    for (int i = 0; i < atomic_load(&held.n); i++)
        if ((const char *)p >= held.at[i].from && (const char *)p < held.at[i].to)
            core = held.at[i].core;
    pthread_mutex_unlock(&held.lock);
    return core;
}

const char *wf_core_name(WfArena *a, int core) { return core < 0 ? "cpu" : wf_arena_printf(a, "core:%d", core); }

static void close_pool(void *p) { hwloc_topology_destroy(((WfPool *)p)->topology); }

WfPool *wf_pool_open(WfCtx *ctx, WfArena *a, int core)
{
    WfPool *p = WF_NEW(a, WfPool);
    p->ctx = ctx;
    p->core = core;
    if (hwloc_topology_init(&p->topology))
        wf_fail(ctx, WF_E_LIBRARY, "hwloc does not start: %s", strerror(errno));
    wf_arena_at_free(a, close_pool, p);
    if (hwloc_topology_load(p->topology))
        wf_fail(ctx, WF_E_LIBRARY, "hwloc finds no cores on this machine: %s", strerror(errno));
    int n = hwloc_get_nbobjs_by_type(p->topology, HWLOC_OBJ_CORE);
    if (core >= n)
        wf_fail_at(ctx, WF_E_DEVICE, NULL, "The first is core:0.", "device core:%d does not exist: this machine has %d core%s",
                   core, n, n == 1 ? "" : "s");
    p->nodes = hwloc_get_obj_by_type(p->topology, HWLOC_OBJ_CORE, (unsigned)core)->nodeset;
    return p;
}

static bool take(WfPool *p, void *at, size_t size)
{
    int flags = HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_STRICT;
    return !hwloc_set_area_membind(p->topology, at, size, p->nodes, HWLOC_MEMBIND_BIND, flags) && enter(at, size, p->core);
}

static void refuse(WfPool *p) WF_NORETURN;
static void refuse(WfPool *p)
{
    wf_fail_at(p->ctx, WF_E_BIND, NULL, "Use --device cpu.", "memory cannot be bound to core %d: %s", p->core,
               strerror(errno));
}

void wf_pool_take(WfPool *p, void *at, size_t size)
{
    if (p && !take(p, at, size))
        refuse(p);
}

void *wf_pool_map(WfPool *p, size_t size, bool huge)
{
    void *at = wf_sys_map(size, huge);
    if (at && p && !take(p, at, size)) {
        wf_sys_unmap(at, size);
        refuse(p);
    }
    return at;
}

void wf_pool_give(const WfPool *p, const void *at)
{
    if (p)
        leave(at);
}

void wf_pool_unmap(const WfPool *p, void *at, size_t size)
{
    wf_pool_give(p, at);
    wf_sys_unmap(at, size);
}
