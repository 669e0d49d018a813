/* The kinds of errors: errors.list as a table. Codes grow along it, so that a kind is found by halving. */
#include "base/base.h"

const WfErrorKind wf_error_table[] = {
#define WF_ERROR(kind, number, status, title, text) {number, WEFT_ERR_##status, "W0" #number, title, text},
#include "base/errors.list"
#undef WF_ERROR
    {0, WEFT_OK, NULL, NULL, NULL},
};

const WfErrorKind *wf_error_find(int kind)
{
    int lo = 0, hi = (int)WF_LEN(wf_error_table) - 1;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (wf_error_table[mid].kind < kind)
            lo = mid + 1;
        else
            hi = mid;
    }
    return wf_error_table[lo].kind == kind && kind ? &wf_error_table[lo] : NULL;
}
