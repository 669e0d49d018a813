/* Ranks of the public interface: a world, and sessions that train in it. */
#include "api/api.h"

#include <string.h>

struct weft_world {
    WfCtx *ctx;
    WfComm *comm;
};

typedef struct {
    WfCtx *ctx;
    void *mpi;
    weft_program *p;
    weft_session *s;
    weft_world *w;
} Call;

static void do_open(void *v)
{
    Call *c = v;
    c->w = WF_NEW(c->ctx->arena, weft_world);
    c->w->ctx = c->ctx;
    c->w->comm = c->mpi ? wf_comm_open_mpi(c->ctx, NULL, c->mpi) : wf_comm_open(c->ctx, NULL);
}

weft_status weft_world_open(weft_context *ctx, void *mpi_comm, weft_world **out)
{
    Call c = {.ctx = (WfCtx *)ctx, .mpi = mpi_comm};
    weft_status r = ctx && out ? wf_guard(c.ctx, do_open, &c) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = c.w;
    return r;
}

int weft_world_rank(const weft_world *world)
{
    return world && world->comm ? wf_comm_rank(world->comm) : -1;
}

int weft_world_size(const weft_world *world)
{
    return world && world->comm ? wf_comm_size(world->comm) : 0;
}

int weft_world_threads(const weft_world *world) { return world && world->comm ? wf_comm_threads(world->comm) : 0; }

static void do_close(void *v)
{
    Call *c = v;
    WfComm *comm = c->w->comm;
    c->w->comm = NULL;
    wf_comm_close(comm);
}

weft_status weft_world_close(weft_world *world)
{
    Call c = {.w = world};
    return world ? wf_guard(world->ctx, do_close, &c) : WEFT_OK;
}

static void compile_first(void *v)
{
    Call *c = v;
    wf_program_compile(c->p);
}

static void do_compile_together(void *v)
{
    Call *c = v;
    weft_program *p = c->p;
    WfComm *comm = c->w->comm;
    int size = weft_world_size(c->w);
    if (!comm || c->w->ctx != c->ctx)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "the world is closed, or of another context than the program");
    WfArena *a = wf_arena_scratch(c->ctx);
    WfStr options = {.arena = a};
    wf_options_key(&p->options, &options);
    uint64_t mine = p->identity && !p->exe ? wf_hash64(p->identity, p->identity_size, wf_hash64(options.at, options.n, 1)) : 0;
    uint64_t *all = WF_NEWN(a, uint64_t, (size_t)size);
    wf_comm_exchange(comm, &mine, sizeof mine, all, 0, "the agreement on the program");
    bool same = mine != 0;
    for (int r = 0; r < size; r++)
        same &= all[r] == mine;
    weft_status failed = same && wf_comm_rank(comm) == 0 ? wf_guard(c->ctx, compile_first, c) : WEFT_OK;
    if (same) {
        mine = (uint64_t)failed;
        wf_comm_exchange(comm, &mine, sizeof mine, all, 0, "the compilation of rank 0");
        same = all[0] == WEFT_OK;
    }
    wf_arena_free(a);
    if (failed)
        wf_reraise(c->ctx, failed);
    if (same)
        wf_program_compile_together(p, comm);
    else if (!p->exe)
        wf_program_compile(p);
}

weft_status weft_compile_together(weft_program *program, weft_world *world)
{
    Call c = {.ctx = program ? program->ctx : NULL, .p = program, .w = world};
    return program && world ? wf_guard(c.ctx, do_compile_together, &c) : WEFT_ERR_USAGE;
}

/* What ranks of one training must have in common, each as a number. */
typedef struct {
    uint64_t model, options, calls;
} Step;

static Step step_of(const weft_session *s)
{
    const WfExe *x = s->program->exe;
    const WfExeProgram *p = &x->program[WF_PROG_STEP];
    Step k = {0};
    k.model = x->signature ? wf_hash64(x->signature, strlen(x->signature), 0) : 0;
    k.options = x->options ? wf_hash64(x->options, strlen(x->options), 0) : 0;
    for (int i = 0; i < p->n_calls; i++)
        if (p->calls[i].name)
            k.calls = wf_hash64(p->calls[i].name, strlen(p->calls[i].name), k.calls + (uint64_t)p->calls[i].kind);
    return k;
}

static void do_join(void *v)
{
    Call *c = v;
    int size = weft_world_size(c->w);
    WfArena *a = wf_arena_scratch(c->ctx);
    Step mine = step_of(c->s), *all = WF_NEWN(a, Step, (size_t)size + 1);
    if (!c->w->comm || c->w->ctx != c->ctx)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "the world is closed, or of another context than the session");
    if (c->s->program->options.nproc != size)
        wf_fail_at(c->ctx, WF_E_STEP_RANKS, NULL, "weft_set(program, \"nproc\", ...) before the session is made.",
                   "the step was planned for %lld processes, and the world has %d", (long long)c->s->program->options.nproc,
                   size);
    wf_comm_exchange(c->w->comm, &mine, sizeof mine, all, 0, "the agreement on the step");
    for (int r = 1; r < size; r++) {
        const char *what = all[r].model != all[0].model       ? "models"
                           : all[r].options != all[0].options ? "options"
                           : all[r].calls != all[0].calls     ? "plans"
                                                              : NULL;
        if (what)
            wf_fail(c->ctx, WF_E_RANKS_DISAGREE, "the ranks do not agree: ranks 0 and %d have different %s", r, what);
    }
    wf_arena_free(a);
    wf_session_join(c->s->run, c->w->comm);
    c->s->comm = c->w->comm;
    if (c->s->program->options.init_sync)
        wf_session_sync(c->s->run);
}

weft_status weft_join(weft_session *session, weft_world *world)
{
    Call c = {.ctx = session ? session->program->ctx : NULL, .s = session, .w = world};
    return session && world ? wf_guard(c.ctx, do_join, &c) : WEFT_ERR_USAGE;
}
