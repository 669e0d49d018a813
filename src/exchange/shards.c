/* Weights in several files. The index is believed in one thing, which files there are; each tensor must lie in the file
 * that the index names for it, and in no other. */
#include "exchange/exchange.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_INDEX = 100 << 20 };

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    const char *path;
    const json_t *map;
    WfTensors *all;
} Index;

#define bad(i, ...) wf_fail((i)->ctx, WF_E_SHARDS, __VA_ARGS__)

static const char *folder_of(WfArena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? "." : slash == path ? "/" : wf_arena_strndup(a, path, (size_t)(slash - path));
}

/* Closed set of keys: a file that means something else by them is another format. */
static void check_keys(const Index *i, json_t *root)
{
    const char *key;
    json_t *v;
    if (!json_is_object(root))
        bad(i, "%s: not an index of safetensors files: it is no JSON object", i->path);
    json_object_foreach(root, key, v)
    {
        if (strcmp(key, "metadata") && strcmp(key, "weight_map"))
            bad(i, "%s: not an index of safetensors files: it holds '%.100s' beside metadata and weight_map", i->path, key);
        if (!json_is_object(v))
            bad(i, "%s: %s must be an object", i->path, key);
    }
    if (!json_object_get(root, "weight_map"))
        bad(i, "%s: not an index of safetensors files: weight_map is missing", i->path);
}

static void add_shard(Index *i, const char *name)
{
    WfFile *f = wf_file_map_in(i->ctx, i->a, folder_of(i->a, i->path), name);
    WfTensors *t = wf_safetensors_parse(i->ctx, i->a, f->at, f->size, f->path);
    for (int k = 0; k < t->n; k++) {
        const char *where = json_string_value(json_object_get(i->map, t->at[k].name));
        if (!where)
            bad(i, "%s: tensor %.200s is not named by %s", f->path, t->at[k].name, i->path);
        if (strcmp(where, name))
            bad(i, "%s: tensor %.200s should be in %.200s, says %s", f->path, t->at[k].name, where, i->path);
        wf_map_put(i->all->by_name, t->at[k].name, i->all->n);
        i->all->at[i->all->n++] = t->at[k];
    }
}

static WfTensors *open_index(WfCtx *ctx, WfArena *a, const char *path)
{
    WfFile *f = wf_file_map(ctx, a, path);
    Index i = {.ctx = ctx, .a = a, .path = path, .all = WF_NEW(a, WfTensors)};
    WfMap *opened = wf_map_new(a);
    WfDefer *parsed;
    const char *tensor;
    json_t *v;
    if (f->size > MOST_INDEX)
        bad(&i, "%s: an index of %zu MB is larger than any that makes sense", path, f->size >> 20);
    json_t *root = wf_json_load(ctx, (const char *)f->at, f->size, path, &parsed);
    check_keys(&i, root);
    i.map = json_object_get(root, "weight_map");
    i.all->path = wf_arena_strdup(a, path);
    i.all->by_name = wf_map_new(a);
    i.all->at = WF_NEWN(a, WfTensor, json_object_size(i.map) + 1);
    json_object_foreach((json_t *)i.map, tensor, v)
    {
        const char *name = json_string_value(v);
        if (!name)
            bad(&i, "%s: the file of tensor %.200s is no text", path, tensor);
        if (wf_map_get(opened, name, NULL))
            continue;
        wf_map_put(opened, name, 1);
        add_shard(&i, name);
    }
    json_object_foreach((json_t *)i.map, tensor, v)
        if (!wf_map_get(i.all->by_name, tensor, NULL))
            bad(&i, "%s: tensor %.200s is not in %.200s", path, tensor, json_string_value(v));
    wf_defer_run(parsed);
    return i.all;
}

static bool ends(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && !strcmp(s + n - t, tail);
}

WfTensors *wf_weights_open(WfCtx *ctx, WfArena *a, const char *path)
{
    struct stat st;
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        const char *one = wf_arena_printf(a, "%s/model.safetensors", path), *index = wf_arena_printf(a, "%s.index.json", one);
        if (!wf_file_exists(index) && !wf_file_exists(one))
            wf_fail_at(ctx, WF_E_SHARDS, path, "Name the file itself: --weights FOLDER/FILE.safetensors.",
                       "%s: the folder holds neither model.safetensors nor model.safetensors.index.json", path);
        path = wf_file_exists(index) ? index : one;
    }
    return ends(path, ".json") ? open_index(ctx, a, path) : wf_safetensors_open(ctx, a, path);
}
