/* Data parallelism as nodes. Exactly one all_reduce per trainable tensor's gradient: tied weights are one input, unused
 * parameters have no gradient and equal gradients are one node, so each is reduced once. Everything behind (the norm,
 * clipping, the update) reads the reduced gradient. A buffer that the step changes is agreed at the step's start, as
 * DistributedDataParallel does before a forward pass that will be synchronised: with accumulation that of the last
 * micro-batch, the only program that has collectives. The loss of a step is reported as the mean over ranks. */
#include "weave/weave.h"

#include <string.h>

static bool is_updated(const WfGraph *g, int input)
{
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].role == WF_OUT_UPDATE && g->outputs.at[i].input == input)
            return true;
    return false;
}

static void name_after(WfGraph *to, WfVal v, const char *of, const char *what)
{
    char *name = wf_arena_printf(to->arena, "%s.%s", of, what);
    for (char *c = name; *c; c++)
        *c = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '.' ? *c : '_';
    wf_name_value(to, v, name);
}

/* What the step reads in place of its input; integers cannot be averaged, and are rank 0's. */
static WfVal agreed(WfGraph *to, WfVal v, const char *name, WfBuffers how)
{
    bool mean = how == WF_BUFFERS_MEAN && wf_dtype_is_float(wf_value(to, v)->dtype);
    WfVal r = mean ? wf_emit(to, "dist.all_reduce", "vss", v, "mean", "dp") : wf_emit(to, "dist.broadcast", "vds", v, 0, "dp");
    name_after(to, r, name, "agreed");
    return r;
}

/* v over all ranks, named after what it is the gradient of, with the line that v comes from. */
static WfVal reduced(WfGraph *to, WfVal v, const char *how, const char *of, const char *what)
{
    const WfNode *p = wf_producer(to, v);
    to->source = p ? p->source : 0;
    int before = to->values.n;
    WfVal r = wf_emit(to, "dist.all_reduce", "vss", v, how, "dp");
    to->source = 0;
    if (r >= (WfVal)before)
        name_after(to, r, of, what);
    return r;
}

static bool has_metric(const WfGraph *g, const char *name)
{
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].role == WF_OUT_METRIC && !strcmp(g->outputs.at[i].name, name))
            return true;
    return false;
}

WfGraph *wf_weave_replicate(WfPassEnv *env, WfGraph *g)
{
    const WfOptions *o = env->options;
    WfGraph *to = wf_graph_like(g, WF_JOINT);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    bool *live = wf_live_nodes(g);
    wf_copy_inputs(g, to, map);
    for (int i = 0; i < g->inputs.n && o->buffers != WF_BUFFERS_NONE; i++)
        if (g->inputs.at[i].role == WF_IN_BUFFER && is_updated(g, i))
            map[g->inputs.at[i].val] = agreed(to, map[g->inputs.at[i].val], g->inputs.at[i].name, o->buffers);
    for (int i = 1; i < g->nodes.n; i++)
        if (live[i])
            wf_copy_node(g, wf_node(g, (WfNodeId)i), to, map);
    wf_copy_outputs(g, to, map);
    int n = to->outputs.n;
    /* with accumulation the step's loss is a metric already; shares and weights of a loss become sums, and grad/step divides */
    bool weighted = has_metric(to, "loss_count"), gathered = weighted || has_metric(to, "mean_loss");
    const char *how = weighted || o->grad_reduce == WF_GRADS_SUM ? "sum" : "mean";
    for (int i = 0; i < n; i++) {
        WfOutput out = to->outputs.at[i];
        if (out.role == WF_OUT_GRAD)
            to->outputs.at[i].val = reduced(to, out.val, how, out.name, "grad");
        if (out.role == WF_OUT_METRIC && !strncmp(out.name, "loss_", 5))
            to->outputs.at[i].val = reduced(to, out.val, "sum", out.name, "sum");
        if (out.role == WF_OUT_METRIC && !strcmp(out.name, "mean_loss"))
            to->outputs.at[i].val = reduced(to, out.val, "mean", "mean", "loss");
        if (out.role == WF_OUT_LOSS && !gathered && wf_dtype_is_float(wf_value(to, out.val)->dtype))
            wf_add_output(to, WF_OUT_METRIC, "mean_loss", reduced(to, out.val, "mean", "mean", "loss"), 0);
    }
    return to;
}
