/* Private to ir. */
#ifndef WF_IR_PRIVATE_H
#define WF_IR_PRIVATE_H
#include "ir/ir.h"
#endif
