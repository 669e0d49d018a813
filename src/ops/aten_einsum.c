/* einsum: operands are folded from the left, two at a time. A label that neither the result nor a later
 * operand needs is summed as soon as no other operand holds it; labels of both operands that remain are batch
 * dimensions of one prim.matmul, or, where nothing is summed over, of a product with broadcasting. Labels are
 * letters; '...' stands for broadcast dimensions in front, which get labels of their own. */
#include "ops/ops_private.h"

#include <string.h>

#define E(g) ((g)->exprs)
enum { ELLIPSIS = 64, LABELS = 72 }; /* labels: 0..51 letters, 64.. broadcast dimensions */

typedef struct {
    WfVal v;
    int n, label[WF_MAX_RANK];
} Term;

static int label_of(char c)
{
    return c >= 'a' && c <= 'z' ? c - 'a' : c >= 'A' && c <= 'Z' ? c - 'A' + 26 : -1;
}

static int find(const Term *t, int label)
{
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

/* Labels of one side's text from *p to ',' or the end; `rank` < 0: the result, with `dots` broadcast
 * dimensions. */
static void read_labels(WfGraph *g, const WfNode *n, const char **p, int rank, int dots, Term *t)
{
    int letters = 0, at = 0;
    bool ellipsis = false;
    for (const char *c = *p; *c && *c != ',' && !(c[0] == '-' && c[1] == '>'); c++)
        letters += label_of(*c) >= 0;
    for (; **p && **p != ',' && !((*p)[0] == '-' && (*p)[1] == '>'); ++*p) {
        if (**p == ' ')
            continue;
        if (!strncmp(*p, "...", 3) && !ellipsis) {
            int d = rank < 0 ? dots : rank - letters;
            ellipsis = true;
            for (int i = 0; i < d && at < WF_MAX_RANK; i++)
                t->label[at++] = ELLIPSIS + WF_MAX_RANK - d + i; /* aligned at the end */
            *p += 2;
        } else if (label_of(**p) >= 0 && at < WF_MAX_RANK) {
            t->label[at++] = label_of(**p);
        } else {
            wf_fail_node(g, n, WF_E_SHAPES, "the equation cannot be read at '%s'", *p);
        }
    }
    t->n = at;
    if (rank >= 0 && at != rank)
        wf_fail_node(g, n, WF_E_SHAPES, "the equation names %d dimensions of %s", at,
                     wf_shape_text(g, t->v));
}

static void drop(Term *t, int i)
{
    memmove(t->label + i, t->label + i + 1, (size_t)(--t->n - i) * sizeof *t->label);
}

/* Repeated labels in one operand: the diagonal, as the sum of what lies on it. */
static void diagonals(WfGraph *g, Term *t)
{
    for (int i = 0; i < t->n; i++)
        for (int j = i + 1; j < t->n; j++)
            if (t->label[i] == t->label[j]) {
                const WfValue *x = wf_value(g, t->v);
                WfVal a = wf_iota(g, WF_I64, t->n, x->shape, i), b = wf_iota(g, WF_I64, t->n, x->shape, j);
                WfVal v = wf_where(g, wf_binary(g, "prim.eq", a, b), t->v, wf_like(g, t->v, 0));
                t->v = wf_sum(g, v, 1u << j, false);
                drop(t, j--);
            }
}

/* Sums away labels that nothing else needs, and size-1 dimensions that broadcast against another operand's.
 */
static void reduce_alone(WfGraph *g, Term *t, const Term *others, int n, const WfDim *size)
{
    for (int i = 0; i < t->n; i++) {
        int l = t->label[i];
        bool needed = false, narrow = wf_size_of(g, t->v, i) == 1 && size[l] != 1;
        for (int k = 0; k < n; k++)
            needed |= &others[k] != t && find(&others[k], l) >= 0;
        if (needed && !narrow)
            continue;
        t->v = wf_sum(g, t->v, 1u << i, false);
        drop(t, i--);
    }
}

/* t's dimensions in the order of labels[0..n), absent ones with size 1. */
static WfVal arrange(WfGraph *g, const Term *t, const int *labels, int n)
{
    int perm[WF_MAX_RANK], k = 0;
    WfDim shape[WF_MAX_RANK];
    for (int i = 0; i < n; i++) {
        int d = find(t, labels[i]);
        shape[i] = d < 0 ? 1 : wf_size_of(g, t->v, d);
        if (d >= 0)
            perm[k++] = d;
    }
    return wf_reshape(g, wf_permute(g, t->v, perm), n, shape);
}

static WfDim product(WfGraph *g, const int *labels, int n, const WfDim *size)
{
    WfDim p = 1;
    for (int i = 0; i < n; i++)
        p = wf_emul(E(g), p, size[labels[i]]);
    return p;
}

/* One matrix: batch dims, then rows and columns flattened. */
static WfVal as_matrix(WfGraph *g, const Term *t, const int *batch, int nb, const int *rows, int nr,
                       const int *cols, int nc, const WfDim *size)
{
    int labels[3 * WF_MAX_RANK], n = 0;
    WfDim shape[WF_MAX_RANK];
    memcpy(labels, batch, (size_t)nb * sizeof *batch);
    memcpy(labels + nb, rows, (size_t)nr * sizeof *rows);
    memcpy(labels + nb + nr, cols, (size_t)nc * sizeof *cols);
    for (; n < nb; n++)
        shape[n] = size[batch[n]];
    shape[n++] = product(g, rows, nr, size);
    shape[n++] = product(g, cols, nc, size);
    return wf_reshape(g, arrange(g, t, labels, nb + nr + nc), n, shape);
}

/* Both operands into one; `rest` are the operands still to come and the result. */
static Term contract(WfGraph *g, const WfNode *n, const Term *a, const Term *b, const Term *rest, int n_rest,
                     const WfDim *size)
{
    int batch[WF_MAX_RANK], left[WF_MAX_RANK], right[WF_MAX_RANK], sum[WF_MAX_RANK], nb = 0, nl = 0, nr = 0,
                                                                                     ns = 0;
    for (int i = 0; i < a->n; i++) {
        int l = a->label[i];
        bool needed = false;
        for (int k = 0; k < n_rest; k++)
            needed |= find(&rest[k], l) >= 0;
        if (find(b, l) < 0)
            left[nl++] = l;
        else if (needed)
            batch[nb++] = l;
        else
            sum[ns++] = l;
    }
    for (int i = 0; i < b->n; i++)
        if (find(a, b->label[i]) < 0)
            right[nr++] = b->label[i];
    Term t = {.n = nb + nl + nr};
    if (t.n > WF_MAX_RANK || nb + nl + nr + ns > WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "more than %d dimensions", WF_MAX_RANK);
    memcpy(t.label, batch, (size_t)nb * sizeof *batch);
    memcpy(t.label + nb, left, (size_t)nl * sizeof *left);
    memcpy(t.label + nb + nl, right, (size_t)nr * sizeof *right);
    if (!ns || (!nl && !nr)) { /* no matrix: a product with broadcasting, then perhaps a sum */
        int labels[2 * WF_MAX_RANK];
        memcpy(labels, t.label, (size_t)t.n * sizeof *labels);
        memcpy(labels + t.n, sum, (size_t)ns * sizeof *sum);
        WfVal v = wf_mul(g, arrange(g, a, labels, t.n + ns), arrange(g, b, labels, t.n + ns));
        t.v = ns ? wf_sum(g, v, WF_ALL_DIMS(t.n + ns) & ~WF_ALL_DIMS(t.n), false) : v;
        return t;
    }
    WfVal x = as_matrix(g, a, batch, nb, left, nl, sum, ns, size),
          y = as_matrix(g, b, batch, nb, sum, ns, right, nr, size);
    WfDim shape[WF_MAX_RANK];
    for (int i = 0; i < t.n; i++)
        shape[i] = size[t.label[i]];
    t.v = wf_reshape(g, wf_matmul(g, x, y), t.n, shape);
    return t;
}

/* Without '->': broadcast dimensions, then the letters that occur once, in alphabetical order. */
static void implicit_result(const int *count, int dots, Term *r)
{
    int order = 0;
    for (int i = 0; i < dots; i++)
        r->label[order++] = ELLIPSIS + WF_MAX_RANK - dots + i;
    for (char c = 'A'; c <= 'z'; c++) /* upper case sorts first */
        if (label_of(c) >= 0 && count[label_of(c)] == 1 && order < WF_MAX_RANK)
            r->label[order++] = label_of(c);
    r->n = order;
}

static int einsum(WfGraph *g, const WfNode *n, WfVal *out)
{
    const char *p = n->args[0].s;
    Term t[17] = {0};
    WfDim size[LABELS];
    int count = n->args[1].n, dots = 0, times[LABELS] = {0};
    if (count < 1 || count > 16)
        wf_fail_node(g, n, WF_E_OP_FORM, "%d operands", count);
    for (int i = 0; i < LABELS; i++)
        size[i] = 1;
    for (int k = 0; k < count; k++) {
        t[k].v = n->args[1].vals[k];
        read_labels(g, n, &p, wf_rank_of(g, t[k].v), 0, &t[k]);
        if (*p == ',' && k + 1 < count)
            p++;
        for (int i = 0; i < t[k].n; i++)
            times[t[k].label[i]]++;
        diagonals(g, &t[k]);
        int mine = 0;
        for (int i = 0; i < t[k].n; i++) {
            WfDim d = wf_size_of(g, t[k].v, i), *s = &size[t[k].label[i]];
            mine += t[k].label[i] >= ELLIPSIS;
            if (*s != 1 && d != 1 && *s != d)
                wf_fail_node(g, n, WF_E_SHAPES, "a label has two sizes");
            *s = *s == 1 ? d : *s;
        }
        dots = mine > dots ? mine : dots;
    }
    Term *result = &t[count];
    if (*p == '-') {
        p += 2;
        read_labels(g, n, &p, -1, dots, result);
    } else {
        implicit_result(times, dots, result);
    }
    for (int k = 0; k < count; k++)
        reduce_alone(g, &t[k], t, count + 1, size);
    Term acc = t[0];
    for (int k = 1; k < count; k++)
        acc = contract(g, n, &acc, &t[k], &t[k + 1], count - k, size);
    WfDim shape[WF_MAX_RANK];
    for (int i = 0; i < result->n; i++)
        shape[i] = size[result->label[i]];
    out[0] = wf_expand(g, arrange(g, &acc, result->label, result->n), result->n, shape);
    return 1;
}

static const WfOp ops[] = {
    {.schema = "aten.einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = einsum},
    {0}};

void wf_ops_aten_einsum(void)
{
    wf_register(ops);
}
