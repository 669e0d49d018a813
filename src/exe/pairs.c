/* The rules of starts and waits, in a program as it will run. */
#include "exe/exe.h"

/* Is buffer b the memory of operand o, or a part of it? */
static bool lies_in(const WfExeProgram *p, int b, int o) { return b >= 0 && (b == o || p->bufs[b].inside == o); }

/* The wait of the start at s; 0: there is none, -1: several. */
static int wait_of(const WfExeProgram *p, int s)
{
    int w = 0;
    for (int c = 0; c < p->n_calls; c++)
        if (p->calls[c].kind == WF_CALL_WAIT && p->calls[c].param[WF_TRAVEL_START] == s)
            w = w ? -1 : c;
    return w;
}

static const char *check(const WfExeProgram *p, int s, int w, int *call)
{
    const WfExeCall *k = &p->calls[s];
    int result = k->operand[k->n - 1].buf; /* of two the first is only read */
    *call = s;
    for (int i = 0; i < k->n; i++) {
        const WfExeBuf *b = &p->bufs[k->operand[i].buf];
        const WfExeBuf *whole = b->inside >= 0 ? &p->bufs[b->inside] : b;
        if (p->calls[w].n != k->n || p->calls[w].operand[i].buf != k->operand[i].buf)
            return "its wait has other operands";
        if (whole->first < 0 || whole->first > s || whole->last < w)
            return "its memory is given away before its wait";
    }
    for (int c = s + 1; c < w; c++)
        for (int i = 0; i < p->calls[c].n; i++)
            if (lies_in(p, p->calls[c].operand[i].buf, result)) {
                *call = c;
                return "it uses memory that is in flight";
            }
    return NULL;
}

const char *wf_exe_check_pairs(const WfExeProgram *p, int *call)
{
    for (int s = 0; s < p->n_calls; s++) {
        int w = p->calls[s].kind == WF_CALL_START ? wait_of(p, s) : s;
        const char *wrong = w <= 0 && p->calls[s].kind == WF_CALL_START ? "it is not waited for once"
                            : w > s                                     ? check(p, s, w, call)
                            : w < s                                     ? "its wait comes first"
                                                                        : NULL;
        if (wrong) {
            *call = w > s ? *call : s;
            return wrong;
        }
    }
    return NULL;
}
