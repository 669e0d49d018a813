/* Memory that travels. What is reduced in place are parts of a bucket, into which their producers write; what gathers,
 * scatters or exchanges is sent from one buffer of the arena and received in another. Both are operands of the start and
 * of the wait, so that nothing else lies there in between. */
#include "plan/private.h"
#include "weave/weave.h"

#include <string.h>

enum { BUCKET_ALIGN = 64 };

/* The buffer of an operand, moved to the arena when it is this program's own. */
static WfExeBuf *own(Plan *p, const WfNode *n, WfVal v)
{
    WfExeBuf *b = p->buf_of[v] < 0 ? NULL : &p->bufs.at[p->buf_of[v]];
    if (!b || (b->place != WF_PLACE_SLAB && b->place != WF_PLACE_ARENA) || p->update_of[v] >= 0)
        wf_fail_node(p->g, n, WF_E_TRAVEL, "%%%s has no memory of its own that could travel: copy it first",
                     wf_value_name(p->g, v));
    return b;
}

/* A start's tensors become parts of one piece of memory, the bucket. */
static int make_bucket(Plan *p, const WfNode *n)
{
    WfExprs *e = p->g->exprs;
    WfExeBuf bucket = {.place = WF_PLACE_ARENA,
                       .dtype = wf_value(p->g, n->out)->dtype,
                       .rank = 1,
                       .first = -1,
                       .last = -1,
                       .same_as = -1,
                       .inside = -1,
                       .input = -1,
                       .name = "bucket"};
    int id = wf_plan_add_buf(p, bucket);
    WfDim at = 0;
    for (int i = 0; i < n->n_out; i++) {
        WfVal v = n->args[0].vals[i];
        WfExeBuf *b = own(p, n, v);
        if (b->place == WF_PLACE_ARENA)
            wf_fail_node(p->g, n, WF_E_TRAVEL, "%%%s travels already: copy it first", wf_value_name(p->g, v));
        b->place = WF_PLACE_ARENA;
        b->inside = id;
        b->at = at;
        at = wf_eadd(e, at,
                     wf_emul(e, wf_efloordiv(e, wf_eadd(e, b->bytes, BUCKET_ALIGN - 1), BUCKET_ALIGN), BUCKET_ALIGN));
    }
    WfExeBuf *made = &p->bufs.at[id];
    made->bytes = at;
    made->shape[0] = wf_efloordiv(e, at, (WfDim)wf_dtype_size(made->dtype));
    made->stride[0] = 1;
    return id;
}

static void start_call(Plan *p, const WfNode *n, WfExeCall *c)
{
    static const char *const ops[WF_COMM_REDUCTIONS] = {"sum", "mean", "min", "max"};
    const WfTravel *t = n->op->travel;
    const WfArg *op = wf_arg(n, "op"), *root = wf_arg(n, "root");
    c->kind = WF_CALL_START;
    c->symbol = wf_arena_strdup(p->a, wf_arg(n, "group")->s);
    c->param[WF_TRAVEL_KIND] = t->kind;
    for (int i = 0; op && i < WF_COMM_REDUCTIONS; i++)
        if (!strcmp(op->s, ops[i]))
            c->param[WF_TRAVEL_OP] = i;
    if (root)
        wf_elit(p->g->exprs, root->i, &c->param[WF_TRAVEL_ROOT]);
    c->param[WF_TRAVEL_TO_ROOT] = t->to_root;
    c->seconds = wf_weave_travel(p->g, &p->options->machine.link[p->options->link], n);
    c->n = t->in_place ? 1 : 2;
    c->operand = WF_NEWN(p->a, WfExeOperand, 2);
    if (t->in_place) {
        c->operand[0].buf = make_bucket(p, n);
        for (int i = 0; i < n->n_out; i++) /* one memory from the producer to the last reader */
            p->buf_of[n->out + (WfVal)i] = p->buf_of[n->args[0].vals[i]];
    } else {
        WfExeBuf got = wf_plan_describe(p, n->out);
        got.place = WF_PLACE_ARENA;
        own(p, n, n->args[0].vals[0])->place = WF_PLACE_ARENA;
        c->operand[0].buf = p->buf_of[n->args[0].vals[0]];
        c->operand[1].buf = p->buf_of[n->out] = wf_plan_add_buf(p, got);
    }
    c->elements = wf_numel(p->g, n->out);
}

void wf_plan_collective(Plan *p, WfNodeId id, WfExeCall *c)
{
    const WfNode *n = wf_node(p->g, id);
    if (n->op->travel) {
        start_call(p, n, c);
        return;
    }
    const WfNode *start = n->op->start ? NULL : wf_producer(p->g, n->args[0].vals[0]);
    if (!start)
        wf_fail_node(p->g, n, WF_E_LEVEL, "it is not in the form of start and wait: run weave/bucket first");
    int at = p->call_of[wf_value(p->g, start->out)->node];
    const WfExeCall *s = &p->calls.at[at];
    c->kind = WF_CALL_WAIT;
    c->n = s->n;
    c->operand = s->operand;
    c->elements = s->elements;
    memcpy(c->param, s->param, sizeof c->param);
    c->param[WF_TRAVEL_START] = at;
    for (int i = 0; i < n->n_out; i++)
        p->buf_of[n->out + (WfVal)i] = p->buf_of[start->out + (WfVal)i];
}
