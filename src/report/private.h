/* Tables of a plan, appended to out: parameters, state and what is alive at call `peak` of the step (-1: not told) by module; memory
 * alive at call `peak` by the line that made it; the calls that take the time; what is kept over the peak and cheap to compute again. */
#ifndef WF_REPORT_PRIVATE_H
#define WF_REPORT_PRIVATE_H

#include "report/report.h"

void wf_report_modules(WfStr *out, const WfExe *x, const int64_t *symbols, int peak);
void wf_report_lines(WfStr *out, const WfExe *x, const WfExeProgram *p, const int64_t *symbols, int peak);
void wf_report_slowest(WfStr *out, const WfExeProgram *p, const int64_t *symbols, int threads);
void wf_report_recompute(WfStr *out, const WfExe *x, const WfExeProgram *p, const int64_t *symbols, int threads, int peak);

#endif
