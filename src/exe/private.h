/* Private to exe. */
#ifndef WF_EXE_PRIVATE_H
#define WF_EXE_PRIVATE_H
#include "exe/exe.h"

#include <jansson.h>
#include <stdlib.h>
#endif
