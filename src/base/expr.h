/* The inside of the expression engine, shared by poly.c and expr.c (forms), divide.c, bound.c (ranges and
 * proofs) and notation.c (text). Functions here never raise on overflow: they set e->overflow and return
 * anything, and the public entries raise. A proof that overflows has merely failed. */
#ifndef WF_BASE_EXPR_H
#define WF_BASE_EXPR_H

#include "base/inner.h"

typedef enum { E_CONST, E_SYM, E_FDIV, E_MOD, E_MIN, E_MAX, E_POLY } ExprKind;

typedef struct {
    int64_t coef;         /* not 0 */
    int n;                /* degree */
    const int32_t *atoms; /* node ids, sorted by structure, repeated for powers */
} Term;

/* Terms by falling degree, then by atoms; the constant comes last. */
typedef struct { const Term *at; int n; } Poly;

typedef struct {
    ExprKind kind;
    int sym;        /* E_SYM */
    WfDim a, b;     /* operands; E_CONST: a is the value itself */
    Poly poly;      /* every node seen as a polynomial */
    int64_t lo, hi; /* interval; INT64_MIN and INT64_MAX are the infinities */
    uint64_t mask;  /* bit (id mod 64) of each symbol inside */
    bool has_mod;
} Node;

enum { SAMPLES = 6, MAX_TERMS = 4096, MAX_DEPTH = 24, FUEL = 48 };

typedef struct {
    char *name;
    WfDim dim, below;
    bool bounded;
    int level;      /* one more than that of any symbol in `below`; 0 without such */
    int64_t lo, hi, hint;
} Symbol;

struct WfExprs {
    WfCtx *ctx;
    WfArena *arena, *scratch;
    WF_VEC(Node) nodes;
    WF_VEC(Symbol) syms;
    WF_VEC(int64_t) samples[SAMPLES]; /* assignments that respect all ranges, to refute before proving */
    bool sample_ok[SAMPLES];
    WfMap *names, *interned, *memo;
    bool overflow, limited;           /* limited: something was cut short, so do not remember the outcome */
    int depth, fuel;
    bool proving;
};

#define DIM(id) (-1 - (WfDim)(id))
#define ID(d) ((int32_t)(-1 - (d)))

int wf_e_compare(const WfExprs *e, WfDim a, WfDim b);    /* by structure */
Term wf_term_gcd(WfExprs *e, const Term *s, const Term *t); /* positive coefficient */
bool wf_term_divide_atoms(WfExprs *e, const Term *s, const Term *t, Term *out); /* s / t, coefficient 1 */
Poly wf_poly_add(WfExprs *e, Poly x, Poly y, int64_t factor); /* x + factor * y */
Poly wf_poly_mul(WfExprs *e, Poly x, Poly y);
Poly wf_poly_scale(WfExprs *e, Poly x, const Term *factor);

const Node *wf_enode(const WfExprs *e, WfDim d);         /* d < 0 */
Poly wf_epoly(WfExprs *e, WfDim d);
WfDim wf_emake(WfExprs *e, Poly p);                      /* canonical terms -> dim */
void wf_einterval(const WfExprs *e, WfDim d, int64_t *lo, int64_t *hi);
void wf_enode_range(const WfExprs *e, Node *n);          /* sets lo and hi from the operands */
WfDim wf_eatom(WfExprs *e, ExprKind kind, WfDim a, WfDim b); /* interns without simplifying */

WfDim wf_e_const(WfExprs *e, int64_t v);
WfDim wf_e_add(WfExprs *e, WfDim a, WfDim b);
WfDim wf_e_sub(WfExprs *e, WfDim a, WfDim b);
WfDim wf_e_mul(WfExprs *e, WfDim a, WfDim b);
WfDim wf_e_fdiv(WfExprs *e, WfDim a, WfDim b);
WfDim wf_e_mod(WfExprs *e, WfDim a, WfDim b);
WfDim wf_e_minmax(WfExprs *e, ExprKind kind, WfDim a, WfDim b);
/* d = coef * atom + rest, one factor taken out of each term that holds the atom (coef may hold it still). */
void wf_e_split(WfExprs *e, WfDim d, int32_t atom, WfDim *coef, WfDim *rest);
bool wf_e_ge0(WfExprs *e, WfDim d);

WfDim wf_e_finish(WfExprs *e, Poly p);                   /* wf_emake after joining k*(x//k) + x%k */
int64_t wf_floor_div(int64_t a, int64_t b);              /* b not 0, no overflow */
int64_t wf_floor_mod(int64_t a, int64_t b);
bool wf_e_memo(WfExprs *e, int op, WfDim a, WfDim b, WfDim *out);
void wf_e_remember(WfExprs *e, int op, WfDim a, WfDim b, WfDim v);
void wf_e_begin(WfExprs *e);                             /* at every public entry that computes */
WfDim wf_e_end(WfExprs *e, WfDim d);                     /* raises on overflow */

#endif
