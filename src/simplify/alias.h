/* Private to simplify: tensor names of an export as aliases, storages and the views that lead into them.
 * alias.c reads and writes through them, functionalize.c walks the graph. */
#ifndef WF_SIMPLIFY_ALIAS_H
#define WF_SIMPLIFY_ALIAS_H

#include <string.h>

#include "ops/ops.h"
#include "simplify/private.h"

typedef struct {
    const WfOp *op;
    const WfArg *args;
} Step; /* args[0] is replaced by the value before */
typedef struct {
    WfVal now;
    int version, input;
    bool written;
} Storage;
typedef struct {
    int storage; /* 0: no value */
    int tensor;  /* names of one tensor (an in-place result and its operand) have one number */
    const Step *steps;
    int n_steps;
    int version; /* of the storage, when `val` was computed */
    WfVal val;
} Alias;
typedef struct {
    WfGraph *g;
    Alias *at;
} Frame; /* one per graph being inlined; at: by value */
typedef struct {
    WfPassEnv *env;
    WfGraph *to;
    WF_VEC(Storage) storages; /* [0] is unused */
    WF_VEC(bool) needs;       /* by value of `to`: does a gradient flow through it to a trainable input? */
    int depth, tensors;
} Fn;

/* v as a tensor of its own, with a new storage. input: the graph input it stands for, -1: none. */
Alias wf_alias_fresh(Fn *f, WfVal v, int input);
/* What the alias shows now, 0 when it has no value. */
WfVal wf_alias_read(Fn *f, Alias *a);
/* The same for value v of the frame's graph, an operand of n: raises when it has none. v 0: 0. */
WfVal wf_alias_value(Fn *f, Frame *fr, const WfNode *n, WfVal v);
/* Makes `value` what the alias shows, and with it every other alias of the storage. Raises at n when its view
 * cannot be written through. */
void wf_alias_assign(Fn *f, Frame *fr, const WfNode *n, Alias *a, WfVal value);

static inline bool is(const WfOp *op, const char *name)
{
    return !strcmp(wf_schema_of(op)->name, name);
}

#endif
