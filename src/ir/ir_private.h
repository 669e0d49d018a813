/* Private to ir. */
#ifndef WF_IR_PRIVATE_H
#define WF_IR_PRIVATE_H
#include "ir/ir.h"

/* Names of values in text: given names, or the op's last word and a number. */
const char *wf_value_name(const WfGraph *g, WfVal v);
#endif
