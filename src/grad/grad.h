/* grad: the backward pass and the optimiser update as nodes of the same graph. */
#ifndef WF_GRAD_H
#define WF_GRAD_H

#include "ir/ir.h"

/* Reverse-mode differentiation inside g: appends the backward pass of scalar `of` (cotangent `seed`, 0: one) and sets
 * grad[i] for every value in wrt[0..n): its gradient, or 0 when none reaches it. Gradients of values used several times
 * are summed in the order of use. Stops at prim.detach and at results of no_grad nodes. */
void wf_grad_backward(WfGraph *g, WfVal of, WfVal seed, const WfVal *wrt, int n, WfVal *grad);
/* The same for several outputs with given cotangents (0: that output is not differentiated). */
void wf_grad_backward_many(WfGraph *g, const WfVal *of, const WfVal *cotangent, int n_of, const WfVal *wrt, int n,
                           WfVal *grad);

/* op -> joint: loss as the options say, gradients of all trainable parameters (outputs of role GRAD). */
WfGraph *wf_grad_joint(WfPassEnv *env, WfGraph *g);
/* joint -> joint: gradients become sums over the micro-batches of a step, in inputs of role ACCUM, which the form of all
 * but the last (env->micro) only updates; METRIC mean_loss. Warns of nodes for which a split batch is another batch. */
WfGraph *wf_grad_accumulate(WfPassEnv *env, WfGraph *g);
/* joint -> joint: clipping and the optimiser's update (outputs of role UPDATE, inputs of roles STATE and SCALAR). */
WfGraph *wf_grad_step(WfPassEnv *env, WfGraph *g);

/* prim -> prim: one of two programs (env->half). What backward needs of forward and cannot compute again cheaply from the inputs
 * becomes outputs of role SAVED of the one and inputs of role SAVED of the other. */
WfGraph *wf_grad_halves(WfPassEnv *env, WfGraph *g);

/* prim -> prim: forward values that the backward pass wants only as library operands are computed again there, where
 * that saves enough memory. */
WfGraph *wf_grad_remat(WfPassEnv *env, WfGraph *g);

#endif
