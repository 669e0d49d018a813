/* A loss as a sum over samples and what it is divided by. Means of means are no mean where counts differ: between ranks
 * and micro-batches with ragged labels, and in a last step that is not full. So the share that a micro-batch has in its
 * step's loss and the weight of that share are told apart here; both are added up over micro-batches (grad/accumulate) and
 * ranks (weave/replicate), and grad/step divides once. The counts of all micro-batches are known only then.
 *
 * --loss-norm=tokens: share = the sum under the mean, weight = its count, so that the step's loss is one mean over
 * everything that counts. --loss-norm=mean with a last batch that may not be full: share = mean times the number of rows,
 * weight = rows: what PyTorch's mean of means is as long as steps are full.
 *
 * The sum is found from the loss downwards: all that stands between must be linear. Under --last-batch=pad its terms of
 * rows that are padding become zero there, which is where their gradient begins, too; under short a micro-batch without
 * any rows of its own runs on copies and has a share and weight of zero. */
#include "grad/private.h"

#include "ops/ops.h"

#include <math.h>
#include <string.h>

/* FIXED: the value, which no sample is in. SUM: the value, a sum over samples. ROWS: sum / (rows * per). COUNT: sum / count. */
typedef enum { FIXED, SUM, ROWS, COUNT } Kind;
typedef struct { Kind kind; WfVal sum, count; WfDim per; } Parts;

typedef struct {
    WfGraph *g;
    WfDim batch;
    const WfRows *rows;      /* of the values before this began */
    const bool *learned;     /* of them: does a trainable parameter lead there? */
    WfVal valid, counted;    /* rows that count, an i64; 0: all. The same as a number of the loss's dtype */
    WfVal any;               /* does a row count, a bool; 0: always */
    bool below;              /* in a divisor */
    const WfNode *at;        /* where it was given up ... */
    const char *why;         /* ... and for what */
} Split;

static bool parts(Split *s, WfVal v, Parts *p);

static bool give_up(Split *s, const WfNode *n, const char *why)
{
    WfNode *kept = WF_NEW(s->g->arena, WfNode); /* the table may grow */
    *kept = *n;
    s->at = kept;
    s->why = why;
    return false;
}

static bool fixed(const Split *s, WfVal v) { return s->rows[v].dim == WF_ROWS_NONE; }
/* A number that the compiler knows. */
static bool number(WfGraph *g, WfVal v, double *out)
{
    const WfNode *p = wf_producer(g, v);
    if (!wf_is(p, "prim.full"))
        return false;
    *out = wf_float(g, p, 1);
    return true;
}

/* Is the divisor a multiple of the number of rows, and which? */
static bool counts_rows(const Split *s, double divisor, const WfNode *size, WfDim *per)
{
    WfExprs *e = s->g->exprs;
    int64_t batch;
    if (size) {
        *per = wf_efloordiv(e, wf_int(size, 0), s->batch);
        return *per != 0 && wf_emul(e, *per, s->batch) == wf_int(size, 0);
    }
    if (!wf_elit(e, s->batch, &batch) || !(divisor >= 0.5) || divisor > 1e15)
        return false;
    double m = round(divisor / (double)batch);
    *per = (WfDim)m;
    return m >= 1 && fabs(m * (double)batch - divisor) <= 1e-6 * divisor; /* the graph may hold a float32 */
}

/* a times b, or divided by it, where no sample is in b: a mean, if that divides a sum by a multiple of the rows. */
static bool scaled(Split *s, WfVal a, WfVal b, bool divided, Parts *p)
{
    double f = 0;
    const WfNode *size = wf_producer(s->g, wf_behind_views(s->g, b));
    size = divided && wf_is(size, "prim.size") ? size : NULL;
    WfDim per;
    bool known = number(s->g, b, &f) && f != 0, counts = (known || size) && counts_rows(s, divided ? f : 1 / f, size, &per);
    if (!parts(s, a, p))
        return false;
    if (p->kind == SUM && counts) {
        p->kind = ROWS;
        p->per = per;
    } else {
        p->sum = divided ? wf_div(s->g, p->sum, b) : wf_mul(s->g, p->sum, b);
    }
    return true;
}

static bool divided(Split *s, const WfNode *n, Parts *p)
{
    WfVal a = wf_tensor(n, 0), b = wf_tensor(n, 1);
    Parts q;
    if (s->learned[b])
        return give_up(s, n, "what it is divided by depends on parameters");
    if (fixed(s, a))
        return give_up(s, n, "it is divided by a sum over samples, but is none");
    bool below = s->below;
    if (!parts(s, a, p))
        return false;
    s->below = true;
    bool ok = parts(s, b, &q);
    s->below = below;
    if (!ok)
        return false;
    if (p->kind != q.kind || (p->kind != SUM && p->kind != ROWS) || (p->kind == ROWS && p->per != q.per))
        return give_up(s, n, "it is divided by more than one count");
    *p = (Parts){.kind = COUNT, .sum = p->sum, .count = q.sum};
    return true;
}

static WfVal divisor(const Split *s, const Parts *p)
{
    WfGraph *g = s->g;
    return p->kind == COUNT ? p->count : wf_mul(g, s->counted, wf_dim_scalar(g, wf_dtype_of(g, s->counted), p->per));
}

/* Both over the same count; what no sample is in counts as often as a sample does. */
static bool added(Split *s, const WfNode *n, Parts *p)
{
    WfGraph *g = s->g;
    Parts q;
    if (!parts(s, wf_tensor(n, 0), p) || !parts(s, wf_tensor(n, 1), &q))
        return false;
    if (wf_is(n, "prim.sub"))
        q.sum = wf_neg(g, q.sum);
    if (p->kind == FIXED || q.kind == FIXED) {
        Parts still = p->kind == FIXED ? *p : q;
        *p = p->kind == FIXED ? q : *p;
        if (p->kind == SUM)
            return give_up(s, n, "a sum over samples is added to what is none");
        p->sum = wf_add(g, p->sum, wf_mul(g, still.sum, divisor(s, p)));
        return true;
    }
    if (p->kind == ROWS && q.kind == ROWS && p->per != q.per) {
        WfDtype t = wf_dtype_of(g, p->sum);
        p->sum = wf_div(g, p->sum, wf_dim_scalar(g, t, p->per));
        q.sum = wf_div(g, q.sum, wf_dim_scalar(g, t, q.per));
        p->per = q.per = 1;
    }
    if (p->kind != q.kind || p->count != q.count || p->per != q.per)
        return give_up(s, n, "two means over different counts are added");
    p->sum = wf_add(g, p->sum, q.sum);
    return true;
}

static bool summed(Split *s, const WfNode *n, Parts *p)
{
    WfGraph *g = s->g;
    WfVal x = wf_tensor(n, 0);
    WfRows r = s->rows[x];
    uint32_t dims = 0;
    for (int i = 0; i < n->args[1].n; i++)
        dims |= 1u << n->args[1].ints[i];
    *p = (Parts){.kind = SUM, .sum = x};
    if (r.dim < 0 && !parts(s, x, p))
        return false;
    if (r.dim >= 0 && s->valid)
        p->sum = wf_where(g, wf_rows_below(g, r, x, s->batch, s->valid), x, wf_like(g, x, 0));
    p->sum = wf_sum(g, p->sum, dims, false);
    return true;
}

/* A divisor is kept from zero by a bound or by a small number; sums over all micro-batches do not need it. */
static WfVal unbounded(const Split *s, const WfNode *n)
{
    WfGraph *g = s->g;
    double f;
    if (wf_is(n, "prim.where") && wf_is(wf_producer(g, wf_tensor(n, 0)), "prim.le") && number(g, wf_tensor(n, 1), &f))
        return wf_tensor(wf_producer(g, wf_tensor(n, 0)), 0) == wf_tensor(n, 2) ? wf_tensor(n, 2) : 0;
    bool small = wf_is(n, "prim.add"), least = wf_is(n, "prim.max");
    for (int i = 0; i < 2 && (small || least); i++)
        if (number(g, wf_tensor(n, i), &f) && (least || fabs(f) <= 1e-3))
            return wf_tensor(n, 1 - i);
    return wf_is(n, "prim.detach") ? wf_tensor(n, 0) : 0;
}

static bool parts(Split *s, WfVal v, Parts *p)
{
    WfGraph *g = s->g;
    if (fixed(s, v)) {
        *p = (Parts){.kind = FIXED, .sum = v};
        return true;
    }
    if (!wf_producer(g, v))
        return false;
    WfNode n = *wf_producer(g, v);
    WfVal out[WF_MAX_RESULTS], inner = s->below ? unbounded(s, &n) : 0;
    bool cast = wf_is(&n, "prim.cast") && (s->below || wf_dtype_is_float(wf_dtype_of(g, v)));
    g->source = n.source;
    if (inner)
        return parts(s, inner, p);
    if (wf_is(&n, "prim.sum"))
        return summed(s, &n, p);
    if (wf_is(&n, "prim.add") || wf_is(&n, "prim.sub"))
        return added(s, &n, p);
    if (wf_is(&n, "prim.mul") && (fixed(s, wf_tensor(&n, 0)) || fixed(s, wf_tensor(&n, 1)))) {
        bool first = fixed(s, wf_tensor(&n, 0));
        return scaled(s, wf_tensor(&n, first), wf_tensor(&n, !first), false, p);
    }
    if (wf_is(&n, "prim.div"))
        return fixed(s, wf_tensor(&n, 1)) ? scaled(s, wf_tensor(&n, 0), wf_tensor(&n, 1), true, p) : divided(s, &n, p);
    if (!cast && !wf_is(&n, "prim.neg") && !wf_is(&n, "prim.reshape") && !wf_is(&n, "prim.permute") && !wf_is(&n, "prim.expand"))
        return give_up(s, &n, "between the sum over samples and the loss, this is not linear");
    if (!parts(s, wf_tensor(&n, 0), p))
        return false;
    WfArg args[8];
    memcpy(args, n.args, (size_t)n.schema->n_params * sizeof *args);
    args[0].val = p->sum;
    wf_emit_args(g, n.op, args, out, NULL);
    p->sum = out[0];
    return true;
}

static const bool *learned(WfGraph *g)
{
    bool *yes = WF_NEWN(g->arena, bool, (size_t)g->values.n + 1);
    WfVal in[WF_MAX_RESULTS];
    for (int i = 0; i < g->inputs.n; i++)
        yes[g->inputs.at[i].val] = g->inputs.at[i].role == WF_IN_PARAM && g->inputs.at[i].trainable;
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        bool any = false;
        int k = wf_operands(n, in, WF_MAX_RESULTS);
        for (int j = 0; j < k && j < WF_MAX_RESULTS; j++)
            any |= in[j] && yes[in[j]];
        for (int r = 0; r < n->n_out; r++)
            yes[n->out + (WfVal)r] = any && !n->no_grad && !wf_is(n, "prim.detach");
    }
    return yes;
}

/* ---- what the options make of it ---- */

static WfDim batch_of(const WfGraph *g)
{
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i].role == WF_IN_USER && wf_value(g, g->inputs.at[i].val)->rank)
            return wf_value(g, g->inputs.at[i].val)->shape[0];
    return 1;
}

void wf_grad_guard_buffers(WfGraph *g, WfVal any)
{
    for (int i = 0; i < g->outputs.n && any; i++) {
        WfOutput *o = &g->outputs.at[i];
        if (o->role == WF_OUT_UPDATE && g->inputs.at[o->input].role == WF_IN_BUFFER)
            o->val = wf_where(g, any, o->val, g->inputs.at[o->input].val);
    }
}

static WfVal over(WfGraph *g, WfVal a, WfVal b) /* 0 where b is */
{
    WfVal none = wf_binary(g, "prim.eq", b, wf_like(g, b, 0));
    return wf_where(g, none, wf_like(g, a, 0), wf_div(g, a, wf_where(g, none, wf_like(g, b, 1), b)));
}

/* Share and weight of the micro-batch. */
static WfLossShare weighted(Split *s, const Parts *p, bool tokens)
{
    WfGraph *g = s->g;
    WfVal any = s->any, zero = wf_like(g, p->sum, 0), sum = any ? wf_where(g, any, p->sum, zero) : p->sum;
    WfLossShare l = {.sum = sum, .weight = s->counted, .any = any};
    if (p->kind == SUM)
        return (WfLossShare){.loss = p->sum, .sum = sum, .weight = wf_like(g, sum, 1), .any = any};
    if (tokens)
        l.weight = divisor(s, p);
    else if (p->kind == ROWS)
        l.sum = wf_div(g, sum, wf_dim_scalar(g, wf_dtype_of(g, sum), p->per));
    if (!tokens && p->kind == COUNT) {
        WfVal f = wf_detach(g, wf_div(g, s->counted, p->count));
        l.sum = wf_mul(g, sum, any ? wf_where(g, any, f, zero) : f);
    }
    l.weight = wf_detach(g, any ? wf_where(g, any, l.weight, zero) : l.weight);
    l.loss = over(g, l.sum, l.weight);
    return l;
}

static WF_NORETURN void refuse(const Split *s, WfVal loss, const char *option)
{
    WfGraph *g = s->g;
    const WfNode *n = s->at ? s->at : wf_producer(g, loss);
    const char *why = s->why ? s->why : "no sum over samples is found";
    if (!n)
        wf_fail(g->ctx, WF_E_LOSS_MEAN, "%s needs a loss that is a mean over samples; this one is an input", option);
    wf_fail_node(g, n, WF_E_LOSS_MEAN, "%s needs a loss that is a mean over samples: %s", option, why);
}

WfLossShare wf_grad_loss(WfPassEnv *env, WfGraph *g, WfVal loss)
{
    const WfOptions *o = env->options;
    bool tokens = o && o->loss_norm == WF_NORM_TOKENS, pad = o && o->last_batch == WF_LAST_PAD;
    bool uneven = o && o->last_batch != WF_LAST_DROP;
    bool any_micro = o && wf_options_any_micro(o); /* how many micro-batches there are is known at run time only */
    bool alone = o && o->nproc == 1 && o->accumulate == 1 && !any_micro && o->deterministic != WF_DETERMINISTIC_ELASTIC;
    WfLossShare l = {.loss = loss, .sum = loss};
    if ((!tokens && !uneven && !any_micro) || (!tokens && !pad && (alone || env->eval)))
        return l;
    Split s = {.g = g, .batch = batch_of(g)};
    Parts p;
    s.rows = wf_rows(g, s.batch);
    s.learned = learned(g);
    WfVal size = wf_dim_scalar(g, WF_I64, s.batch);
    WfVal rows = 0;
    if (pad || tokens) /* evaluation fills its last batch up, whatever training does */
        rows = wf_add_input(g, WF_IN_SCALAR, pad ? "batch.rows" : "eval.rows", WF_I64, 0, NULL);
    if (pad || env->eval) {
        s.valid = wf_binary(g, "prim.min", rows, size);
        s.any = wf_binary(g, "prim.gt", rows, wf_like(g, rows, 0));
    } else if (uneven && !alone) {
        s.any = wf_add_input(g, WF_IN_SCALAR, "batch.any", WF_BOOL, 0, NULL);
    }
    s.counted = wf_cast(g, s.valid ? s.valid : size, wf_dtype_of(g, loss));
    bool found = parts(&s, loss, &p) && p.kind != FIXED;
    g->source = 0;
    bool sum = found && p.kind == SUM && (tokens || any_micro);
    if (sum)
        found = give_up(&s, wf_producer(g, loss), "it is a sum, which counts nothing");
    if (!found && (tokens || pad || sum))
        refuse(&s, loss, tokens ? "--loss-norm=tokens" : sum ? "--micro-batch" : "--last-batch=pad");
    if (alone && !env->eval) {
        if (pad)
            l.loss = l.sum = p.kind == SUM ? p.sum : wf_div(g, p.sum, wf_detach(g, divisor(&s, &p)));
        return l;
    }
    if (env->eval && p.kind == SUM)
        return (WfLossShare){.loss = p.sum, .sum = p.sum};
    if (!found) /* whatever it is: the mean of means that it would be without ends */
        p = (Parts){.kind = ROWS, .sum = wf_mul(g, loss, s.counted), .per = 1};
    return weighted(&s, &p, tokens);
}
