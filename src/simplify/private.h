/* Private to simplify. */
#ifndef WF_SIMPLIFY_PRIVATE_H
#define WF_SIMPLIFY_PRIVATE_H

#include "simplify/simplify.h"

/* Result i of n in `from` is `v` in `to`: raises WEFT_ERR_FILE when dtype or shape differ from what `from`
 * says. */
void wf_check_claim(WfGraph *from, const WfNode *n, int i, WfGraph *to, WfVal v);

#endif
