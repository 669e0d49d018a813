/* A session as one of several equal ranks: joining a world, starting from rank 0's state, and comparing states. */
#include "run/private.h"

static void bind_member(void *comm, int thread, int n)
{
    (void)n;
    wf_comm_bind_thread(comm, thread);
}

void wf_session_join(WfSession *s, WfComm *comm)
{
    if (s->n_bindings || s->shared[0].at || s->shared[1].at)
        wf_fail(s->ctx, WF_E_STEP_ORDER, "a session joins its world before its first step");
    if (wf_comm_size(comm) != s->x->ranks && (s->x->n_rank_groups || s->x->ranks > 1))
        wf_fail_at(s->ctx, WF_E_STEP_RANKS, NULL, "Compile it again with the --nproc that it is started with.",
                   "the step was compiled for %d ranks, and there are %d", s->x->ranks, wf_comm_size(comm));
    s->comm = comm;
    wf_team_run(s->team, bind_member, comm);
}

/* Tensors that a session keeps from step to step. */
static bool kept(const WfExeInput *in)
{
    return in->role == WF_XIN_PARAM || in->role == WF_XIN_BUFFER || in->role == WF_XIN_CONST || in->role == WF_XIN_STATE;
}

static size_t bytes_of(WfSession *s, int i, void **data)
{
    WfTensor t;
    if (!kept(&s->x->inputs[i]) || !wf_session_tensor(s, s->x->inputs[i].name, &t))
        return 0;
    *data = (void *)t.data;
    return t.bytes;
}

void wf_session_sync(WfSession *s)
{
    if (!s->comm || wf_comm_size(s->comm) == 1)
        return;
    for (int i = 0; i < s->x->n_inputs; i++) {
        void *data = NULL;
        size_t n = bytes_of(s, i, &data);
        WfCommOp op = {.kind = WF_BROADCAST, .dtype = WF_U8, .send = data, .recv = data, .count = (int64_t)n,
                       .node = s->x->inputs[i].name};
        if (n)
            wf_comm_run(s->comm, wf_comm_world(s->comm), &op);
    }
}

void wf_session_compare(WfSession *s, bool buffers)
{
    if (!s->comm || wf_comm_size(s->comm) == 1)
        return;
    int size = wf_comm_size(s->comm), n = s->x->n_inputs;
    WfArena *a = wf_arena_scratch(s->ctx);
    uint64_t *mine = WF_NEWN(a, uint64_t, (size_t)n + 1), *all = WF_NEWN(a, uint64_t, ((size_t)n + 1) * (size_t)size);
    for (int i = 0; i < n; i++) {
        void *data = NULL;
        size_t bytes = s->x->inputs[i].role == WF_XIN_BUFFER && !buffers ? 0 : bytes_of(s, i, &data);
        mine[i] = bytes ? wf_hash64(data, bytes, 0) : 0;
    }
    wf_comm_exchange(s->comm, mine, (size_t)n * sizeof *mine, all, 0, "the comparison of replicas");
    for (int i = 0; i < n; i++)
        for (int r = 1; r < size; r++)
            if (all[r * n + i] != all[i])
                wf_fail_at(s->ctx, WF_E_REPLICAS, NULL,
                           "Train with --init-sync; a model that draws its own random numbers or reads its rank drifts.",
                           "%s differs between rank 0 and rank %d after step %lld", s->x->inputs[i].name, r,
                           (long long)s->steps);
    wf_arena_free(a);
}
