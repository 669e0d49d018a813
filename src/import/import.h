/* import: reads what torch.export wrote, and believes nothing in it. */
#ifndef WF_IMPORT_H
#define WF_IMPORT_H

#include "ir/ir.h"

/* An imported export. The graph (level aten) holds everything that later rooms need: inputs carry their start
 * values as pointers into the mapped file, which lives as long as the arena. */
typedef struct {
    WfGraph *graph;
    const char *path;
    const char *torch_version; /* what wrote the file; "" when it does not say */
    const uint8_t *json;       /* models/NAME.json, in the mapping */
    size_t json_size;
    int schema_minor;
    bool training; /* training dialect; false: decomposed to core ATen, stop-gradients may be lost */
} WfModel;

/* Reads the archive at `path`. Raises WEFT_ERR_IO (cannot be read), WEFT_ERR_FILE (not such a file, damaged,
 * or inconsistent) and WEFT_ERR_UNSUPPORTED (a newer or older format, an operator or a feature that Weft does
 * not have; all missing operators are named at once). A file in the decomposed dialect, which may have lost
 * its no_grad and detach marks, is only taken when accept_lost_stopgrad is set. */
WfModel *wf_import_pt2(WfCtx *ctx, WfArena *a, const char *path, bool accept_lost_stopgrad);
/* The same from bytes that outlive the arena; `what` names them in messages. */
WfModel *wf_import_pt2_bytes(WfCtx *ctx, WfArena *a, const void *at, size_t size, const char *what,
                             bool accept_lost_stopgrad);
/* Writes the archive at `path` again, to `out`, with the values of those stored tensors that `values` holds under their names
 * (of the same dtype and shape); every other byte but checksums stays as it is. Raises as wf_import_pt2 does. */
void wf_pt2_rewrite(WfCtx *ctx, const char *path, const WfTensors *values, const char *out);
/* Can the importer read a node of that target ("torch.ops.aten.relu.default", "_operator.mul")? For `weft info`. */
bool wf_import_knows(const char *target);

#endif
