/* simplify: from what the export holds to a functional graph of ops that own a VJP, and later to primitives. */
#ifndef WF_SIMPLIFY_H
#define WF_SIMPLIFY_H

#include "ir/ir.h"

/* The evaluation form: flags of dropout, batch norm, attention and RNNs flipped; the operand of the loss that holds the
 * predictions becomes the output "predictions". aten -> aten */
WfGraph *wf_simplify_evaluation(WfPassEnv *env, WfGraph *g);
/* The first node of an export that does what it does in evaluation, where no node does what it does in training only: a
 * module that was exported after model.eval(). NULL: training and evaluation are told apart, or are the same. */
const WfNode *wf_simplify_evaluates(const WfGraph *g);
/* In-place ops, writes through views, no_grad regions and implicit updates become values. aten -> func */
WfGraph *wf_simplify_functionalize(WfPassEnv *env, WfGraph *g);
/* Only ops that own a VJP. func -> op */
WfGraph *wf_simplify_decompose(WfPassEnv *env, WfGraph *g);
/* Products of looked-up rows become lookups of products, where that is less work. op -> op */
WfGraph *wf_simplify_lookup(WfPassEnv *env, WfGraph *g);
/* Only primitives. joint -> prim */
WfGraph *wf_simplify_prim(WfPassEnv *env, WfGraph *g);

#endif
