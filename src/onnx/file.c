/* The file: nodes, then weights as they lie in memory. A protobuf ends at 2 GB; of a larger model the weights go into a second
 * file, NAME.onnx.data, which the first names (TensorProto's external data). The numbers are those of onnx.proto. */
#include "onnx/private.h"

#include <string.h>

enum { IR_VERSION = 8, OPSET = 18, EXTERNAL = 1 };
/* Shapes and other small tensors stay inside: runtimes read them before they open the second file. Large ones begin where memory can
 * be mapped on every system. */
enum { INSIDE = 1024, LINE = 64, LARGE = 1 << 20, PAGE = 1 << 16 };
const char wf_onnx_mark[WF_ONNX_MARK] = "weights of an ONNX model, written by weft\n";

static void external(Onnx *x, WfStr *s, const char *key, const char *value)
{
    WfStr entry = {.arena = x->a};
    pb_text(&entry, 1, key);
    pb_text(&entry, 2, value);
    pb_message(s, 13, &entry);
}

/* The initializer, or what stands in front of its bytes; beside: the name of the second file, NULL: there is none. */
static WfStr head_of(Onnx *x, const Initializer *c, const char *beside)
{
    WfStr inner = {.arena = x->a}, s = {.arena = x->a};
    bool out = beside && c->place;
    for (int d = 0; d < c->rank; d++)
        pb_int(&inner, 1, c->shape[d]);
    pb_int(&inner, 2, onnx_type(c->dtype));
    pb_text(&inner, 8, c->name);
    if (out) {
        external(x, &inner, "location", beside);
        external(x, &inner, "offset", wf_arena_printf(x->a, "%llu", (unsigned long long)c->place));
        external(x, &inner, "length", wf_arena_printf(x->a, "%zu", c->bytes));
        pb_int(&inner, 14, EXTERNAL);
    } else {
        pb_head(&inner, 9, c->bytes);
    }
    pb_head(&s, 5, inner.n + (out ? 0 : c->bytes));
    wf_str_putn(&s, inner.at, inner.n);
    return s;
}

/* The fields of all initializers; returns their bytes. */
static uint64_t heads_of(Onnx *x, const char *beside, WfStr *heads)
{
    uint64_t n = 0;
    for (int i = 0; i < x->initializers.n; i++) {
        const Initializer *c = &x->initializers.at[i];
        heads[i] = head_of(x, c, beside);
        n += heads[i].n + (beside && c->place ? 0 : c->bytes);
    }
    return n;
}

static void put(WfOut *o, const WfStr *s) { wf_out_write(o, s->n ? s->at : "", s->n); }

static void write_weights(Onnx *x, WfOut *o)
{
    static const uint8_t zeros[PAGE];
    uint64_t at = WF_ONNX_MARK;
    wf_out_write(o, wf_onnx_mark, WF_ONNX_MARK);
    for (int i = 0; i < x->initializers.n; i++) {
        const Initializer *c = &x->initializers.at[i];
        if (!c->place)
            continue;
        wf_out_write(o, zeros, (size_t)(c->place - at));
        wf_out_write(o, c->data, c->bytes);
        at = c->place + c->bytes;
    }
}

/* Constants that a writer made and then did without would only be warned of by those who read the model. */
static void drop_unread(Onnx *x)
{
    int n = 0;
    for (int i = 0; i < x->initializers.n; i++)
        if (wf_map_get(x->read, x->initializers.at[i].name, NULL))
            x->initializers.at[n++] = x->initializers.at[i];
    x->initializers.n = n;
}

static const char *choose_places(Onnx *x, const char *path)
{
    const char *slash = strrchr(path, '/');
    uint64_t at = WF_ONNX_MARK;
    for (int i = 0; i < x->initializers.n; i++) {
        Initializer *c = &x->initializers.at[i];
        uint64_t align = c->bytes >= LARGE ? PAGE : LINE;
        if (c->bytes < INSIDE)
            continue;
        c->place = (at + align - 1) / align * align;
        at = c->place + c->bytes;
    }
    return wf_arena_printf(x->a, "%s" WF_ONNX_DATA, slash ? slash + 1 : path);
}

void onnx_write_file(Onnx *x, const WfStr *rest, const char *path)
{
    WfStr head = {.arena = x->a}, opset = {.arena = x->a};
    const char *beside = NULL;
    WfOut *weights = NULL;
    drop_unread(x);
    WfStr *heads = WF_NEWN(x->a, WfStr, (size_t)x->initializers.n + 1);
    uint64_t limit = (uint64_t)x->data.limit, graph = x->nodes.n + rest->n + heads_of(x, NULL, heads);
    if (graph > limit) {
        beside = choose_places(x, path);
        graph = x->nodes.n + rest->n + heads_of(x, beside, heads);
        x->data.beside(x->data.user, wf_arena_printf(x->a, "%s" WF_ONNX_DATA, path));
    }
    if (graph > WF_ONNX_MOST)
        wf_fail_at(x->ctx, WF_E_ONNX, NULL, "Write the weights back into the .pt2 (-o trained.pt2), or into one file of weights (-o weights.safetensors).",
                   "%s: without its weights the model has %.1f GB, and an ONNX file ends at 2 GB; nothing was written", path, (double)graph / 1e9);
    pb_text(&opset, 1, "");
    pb_int(&opset, 2, OPSET);
    pb_int(&head, 1, IR_VERSION);
    pb_text(&head, 2, "weft");
    pb_text(&head, 3, weft_version());
    pb_message(&head, 8, &opset);
    pb_head(&head, 7, graph);
    WfOut *o = wf_out_open(x->ctx, path);
    if (beside) {
        weights = wf_out_open(x->ctx, wf_arena_printf(x->a, "%s" WF_ONNX_DATA, path));
        write_weights(x, weights);
    }
    put(o, &head);
    put(o, &x->nodes);
    put(o, rest);
    for (int i = 0; i < x->initializers.n; i++) {
        put(o, &heads[i]);
        if (!beside || !x->initializers.at[i].place)
            wf_out_write(o, x->initializers.at[i].data, x->initializers.at[i].bytes);
    }
    if (weights)
        wf_out_commit(weights);
    wf_out_commit(o);
}
