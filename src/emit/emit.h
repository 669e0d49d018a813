/* emit: generated C. A loop nest's body becomes one C function over explicit 16-lane vectors; functions are compiled by
 * the system's compiler, cached by content, and linked into one shared object per executable. */
#ifndef WF_EMIT_H
#define WF_EMIT_H

#include "exe/exe.h"
#include "ir/ir.h"

typedef struct {
    char *text;              /* a C function whose name is KERNEL, without the prelude */
    char *prelude;           /* the snippets it needs, in order */
    WfDim tiles;             /* the function takes a range of these */
    WfDim elements;          /* loop iterations in all: a measure of work */
    int n_in, n_out;
    bool *inplace;           /* [output * inputs + input]: may the result take over that input's memory? */
    bool *by_tile;           /* by input: does tile t read only the t-th of `tiles` equal parts of its memory? */
    WfNodeId *checks;        /* body nodes whose k-th run-time check the kernel reports */
    int n_checks;
} WfKernelText;

/* Emits the nest node n of loop-level graph g. symbols[k] is the expression symbol id that stands at
 * s[WF_S_SYMBOLS + k]. */
WfKernelText *wf_emit_nest(WfGraph *g, const WfNode *n, const int *symbols, int n_symbols);

/* Appends the prelude for a function text: every snippet that it names, and what those name. isa: 3 or 4. */
void wf_emit_prelude(WfStr *out, const char *text);

/* Compiles kernels into one shared object. texts[i] are complete function texts with their final names. Reads and
 * fills the kernel cache (dir may be NULL: none). Returns the object's bytes in arena memory. isa: 3 (AVX2) or 4
 * (AVX-512). Compilers are tried in the order of wf_compilers. Raises WEFT_ERR_ENVIRONMENT when none of them works,
 * with what the first said. */
typedef struct { const char *name, *prelude, *text; } WfKernelSource;
void wf_compile_kernels(WfCtx *ctx, WfArena *a, const WfKernelSource *k, int n, int isa, const char *cache_dir,
                        const uint8_t **object, size_t *size, int *n_compiled);

/* The C compilers to try, best first: WEFT_CC alone if it is set, else those of PATH. Returns how many, 0: none. Nothing
 * is started. */
enum { WF_MAX_COMPILERS = 16 };
int wf_compilers(WfArena *a, const char **out, int max);

#endif
