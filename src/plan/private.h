/* Private to plan: one program while it is planned. order.c decides when a call runs, lifetime.c what it is
 * and where its operands lie, travel.c what of that other ranks see. */
#ifndef WF_PLAN_PRIVATE_H
#define WF_PLAN_PRIVATE_H

#include "plan/plan.h"

typedef struct {
    WfGraph *g;
    WfExe *x;
    WfArena *a;
    WfExeProgram *p;
    WfKernelInfo *const *kernel;
    int *buf_of;    /* by value; -1 none */
    int *update_of; /* by value: the input it becomes directly; -1 */
    int *given_of;  /* by value: the output of a half that it is; -1 */
    int *call_of;   /* by node: its position; -1 */
    WF_VEC(WfExeBuf) bufs;
    WF_VEC(WfExeCall) calls;
    const WfOptions *options;
    int64_t *usual; /* by symbol id: values to predict costs for; the batch is symbol `batch` (-1: static) */
    int batch;
    bool *late;    /* by node: belongs behind the commit point */
    bool *follows; /* by position */
    bool early;    /* --update=early: there is no commit point */
} Plan;

/* Fills order with the nodes that are calls and returns how many; sets late, follows, call_of and the
 * program's commit point. */
int wf_plan_order(Plan *p, WfNodeId *order);
/* Is it new state, written behind the commit point? Gathering over micro-batches is none: a sum is written as soon as its
 * gradient is there, which need not live on. */
bool wf_plan_commits(const WfGraph *g, const WfOutput *o);
/* The values a call reads, through views; returns how many. out has room for WF_MAX_RESULTS * 8. */
int wf_plan_reads(Plan *p, const WfNode *n, WfVal *out);
int wf_plan_add_buf(Plan *p, WfExeBuf b);
WfExeBuf wf_plan_describe(Plan *p, WfVal v); /* a buffer for v, without a place */
/* Fills the call of a start or a wait. */
void wf_plan_collective(Plan *p, WfNodeId id, WfExeCall *c);

#endif
