/* The elementary functions of generated C; see math.c for their error bounds. Private to emit and its tests. */
#ifndef WF_EMIT_MATH_H
#define WF_EMIT_MATH_H

/* Text that defines a function such as exp_f, or NULL when there is none of that name. */
const char *wf_math_snippet(const char *name);

#endif
