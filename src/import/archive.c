/* The container: a ZIP archive of stored entries below one root folder. Checks that it is a PT2 archive of a
 * version that can be read, says what it is when it is something else, and turns the tables of weights and
 * constants into bounds-checked views of the mapped file. */
#include "import/private.h"

#include <string.h>

#define SAVE "torch.export.save(torch.export.export(model.train(), args), \"model.pt2\")"

const WfZipEntry *imp_entry(Imp *m, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *name = wf_arena_vprintf(m->a, fmt, ap);
    va_end(ap);
    return wf_zip_find(m->zip, wf_arena_printf(m->a, "%s%s", m->root, name));
}

static bool ends(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && !strcmp(s + n - t, tail);
}

/* Files of other generations and kinds, recognised by what they hold. */
static void refuse_foreign(Imp *m)
{
    for (int i = 0; i < m->zip->n; i++) {
        const char *n = m->zip->at[i].name;
        if (ends(n, "serialized_exported_program.json"))
            imp_fail(m, WF_E_PT2_VERSION,
                     "load it with PyTorch 2.8 or later and save it again: "
                     "torch.export.save(torch.export.load(\"old.pt2\"), \"model.pt2\")",
                     "this export was written by PyTorch 2.7 or earlier");
        if (ends(n, "/data/weights/model.pt") || ends(n, "/data/constants/model.pt"))
            imp_fail(m, WF_E_PICKLE,
                     "load it with a newer PyTorch and save it again: "
                     "torch.export.save(torch.export.load(\"old.pt2\"), \"model.pt2\")",
                     "this export holds pickled weights");
    }
    bool pickle = false;
    for (int i = 0; i < m->zip->n; i++) {
        const char *n = m->zip->at[i].name;
        if (ends(n, "/constants.pkl") || strstr(n, "/code/"))
            imp_fail(m, WF_E_NOT_EXPORT, "Export the module that it was made from: " SAVE,
                     "this is a TorchScript file (torch.jit.save), which holds code and no graph that could be trained");
        pickle |= ends(n, "/data.pkl");
    }
    if (pickle)
        imp_fail(m, WF_E_NOT_EXPORT, "export the model instead: " SAVE, "this is a torch.save checkpoint, not an exported model");
}

static bool entry_is(const WfZipEntry *e, const char *text)
{
    size_t n = e ? e->size : 0;
    while (n && (e->at[n - 1] == '\n' || e->at[n - 1] == ' '))
        n--;
    return n == strlen(text) && !memcmp(e->at, text, n);
}

/* The one model of the archive: models/NAME.json. */
static const char *find_model(Imp *m)
{
    const char *found = NULL;
    int n = 0;
    size_t root = strlen(m->root);
    for (int i = 0; i < m->zip->n; i++) {
        const char *name = m->zip->at[i].name;
        if (strncmp(name, m->root, root) || strncmp(name + root, "models/", 7) || !ends(name, ".json"))
            continue;
        const char *stem = name + root + 7;
        if (strchr(stem, '/'))
            continue;
        n++;
        found = wf_arena_strndup(m->a, stem, strlen(stem) - 5);
    }
    if (n > 1)
        unsupported(m, "the archive holds %d models; Weft reads archives with one", n);
    return found;
}

void imp_open(Imp *m, const WfFile *f)
{
    if (ends(f->path, ".safetensors"))
        imp_fail(m, WF_E_NOT_PT2, "Name the .pt2, and these by --weights.", "these are weights, and no model");
    if (ends(f->path, ".onnx"))
        imp_fail(m, WF_E_NOT_PT2, "Export the model from PyTorch: " SAVE, "this is an ONNX model, which Weft writes but does not read");
    if (f->size < 4 || memcmp(f->at, "PK", 2))
        imp_fail(m, WF_E_NOT_PT2, "make one with " SAVE, "this is not a .pt2 file (no ZIP archive)");
    m->zip = wf_zip_open(m->ctx, m->a, f, WF_ZIP_CHECK | WF_ZIP_DEFLATED);
    if (!m->zip->n)
        bad(m, "the archive is empty");
    refuse_foreign(m);
    wf_zip_need_stored(m->ctx, m->zip, f->path);
    const char *first = m->zip->at[0].name, *slash = strchr(first, '/');
    m->root = slash ? wf_arena_strndup(m->a, first, (size_t)(slash - first) + 1) : "";
    m->name = find_model(m);
    if (!m->name)
        imp_fail(m, WF_E_NOT_PT2, "make one with " SAVE, "the archive holds no exported model");
    const WfZipEntry *format = imp_entry(m, "archive_format"), *version = imp_entry(m, "archive_version");
    if (!entry_is(format, "pt2"))
        bad(m, "the archive does not say that it is a PT2 archive");
    if (!version || !version->size)
        bad(m, "the archive does not say which version it has (archive_version)");
    if (!entry_is(version, "0"))
        imp_fail(m, WF_E_PT2_VERSION, NULL, "the archive has a version that is newer than Weft (0 is known)");
    const WfZipEntry *order = imp_entry(m, "byteorder");
    if (order && !entry_is(order, "little"))
        unsupported(m, "the weights are not in little-endian byte order");
}

WfDtype imp_dtype(Imp *m, int64_t code)
{
    static const struct {
        int8_t code;
        WfDtype t;
        const char *name;
    } table[] = {{1, WF_U8, 0},
                 {2, WF_I8, 0},
                 {3, WF_I16, 0},
                 {4, WF_I32, 0},
                 {5, WF_I64, 0},
                 {6, WF_F16, 0},
                 {7, WF_F32, 0},
                 {8, WF_F64, 0},
                 {9, 0, "complex32"},
                 {10, 0, "complex64"},
                 {11, 0, "complex128"},
                 {12, WF_BOOL, 0},
                 {13, WF_BF16, 0},
                 {28, 0, "uint16"},
                 {29, 0, "float8_e4m3fn"},
                 {30, 0, "float8_e5m2"},
                 {31, 0, "float8_e4m3fnuz"},
                 {32, 0, "float8_e5m2fnuz"},
                 {33, 0, "float8_e8m0fnu"},
                 {34, 0, "uint32"},
                 {35, 0, "uint64"}};
    for (size_t i = 0; i < WF_LEN(table); i++) {
        if (table[i].code != code)
            continue;
        if (!table[i].t)
            unsupported(m, "tensors of type %s are not supported", table[i].name);
        return table[i].t;
    }
    unsupported(m, "type code %lld is unknown", (long long)code);
}

/* Fills sizes, strides and offset from a TensorMeta whose numbers are all literal. */
static void literal_meta(Imp *m, const json_t *meta, Weight *w)
{
    const json_t *sizes = imp_get(m, meta, "sizes", JSON_ARRAY),
                 *strides = imp_get(m, meta, "strides", JSON_ARRAY);
    w->dtype = imp_dtype(m, imp_int(m, meta, "dtype"));
    const json_t *layout = imp_opt(m, meta, "layout", JSON_INTEGER);
    if (layout && json_integer_value(layout) != 7)
        unsupported(m, "tensor '%s' is sparse or in a foreign layout", w->fqn);
    if (json_array_size(sizes) > WF_MAX_RANK)
        unsupported(m, "tensor '%s' has %zu dimensions; Weft goes up to %d", w->fqn, json_array_size(sizes),
                    WF_MAX_RANK);
    if (json_array_size(sizes) != json_array_size(strides))
        bad(m, "tensor '%s' has another number of strides than of sizes", w->fqn);
    w->rank = (int)json_array_size(sizes);
    for (int i = 0; i < w->rank; i++) {
        w->sizes[i] = imp_int(m, json_array_get(sizes, (size_t)i), "as_int");
        w->strides[i] = imp_int(m, json_array_get(strides, (size_t)i), "as_int");
        if (w->sizes[i] < 0 || w->strides[i] < 0)
            bad(m, "tensor '%s' has a negative size or stride", w->fqn);
    }
    const json_t *off = json_object_get(meta, "storage_offset");
    w->offset = json_is_object(off) ? imp_int(m, off, "as_int") : 0;
    w->requires_grad = imp_bool(m, meta, "requires_grad", false);
    if (w->offset < 0)
        bad(m, "tensor '%s' has a negative storage offset", w->fqn);
}

/* Places the tensor in its raw storage: last element = offset + sum (size - 1) stride, everything checked. */
static void place(Imp *m, Weight *w, const WfZipEntry *raw)
{
    static const _Alignas(16) uint8_t none[16];
    int64_t last = w->offset, numel = 1, size = (int64_t)wf_dtype_size(w->dtype), end;
    bool ok = true;
    for (int i = 0; i < w->rank; i++) {
        int64_t span = 0;
        ok = ok && wf_mul_ok(numel, w->sizes[i], &numel);
        ok = ok && (!w->sizes[i] ||
                    (wf_mul_ok(w->sizes[i] - 1, w->strides[i], &span) && wf_add_ok(last, span, &last)));
    }
    if (ok && !numel) {
        w->data = none;
        return;
    }
    ok = ok && wf_add_ok(last, 1, &end) && wf_mul_ok(end, size, &end) && wf_mul_ok(numel, size, &numel);
    if (ok && !raw)
        bad(m, "the data of tensor '%s' are missing", w->fqn);
    if (!ok || end < 0 || (uint64_t)end > raw->size)
        bad(m, "tensor '%s' does not fit into its data (%zu bytes)", w->fqn, raw ? raw->size : (size_t)0);
    w->first = w->offset * size;
    w->end = end;
    const uint8_t *at = raw->at + w->first;
    if ((uintptr_t)at %
        (size_t)size) { /* writers align to 64; others are copied, so that elements can be read */
        uint8_t *copy = wf_arena_alloc(m->a, (size_t)(end - w->first));
        memcpy(copy, at, (size_t)(end - w->first));
        at = copy;
    }
    w->data = at;
}

static void read_table(Imp *m, const char *folder, const char *file)
{
    const WfZipEntry *e = imp_entry(m, "data/%s/%s_%s_config.json", folder, m->name, file);
    if (!e) {
        if (!strcmp(file, "weights"))
            bad(m, "the table of weights is missing");
        return;
    }
    WfDefer *parsed;
    const json_t *j = wf_json_load(m->ctx, (const char *)e->at, e->size, m->path, &parsed);
    const json_t *config = imp_get(m, j, "config", JSON_OBJECT);
    const char *fqn;
    json_t *v;
    json_object_foreach((json_t *)config, fqn, v)
    {
        Weight w = {.fqn = wf_arena_strdup(m->a, fqn), .input = -1};
        if (wf_map_get(m->by_fqn, fqn, NULL))
            bad(m, "tensor '%s' is defined twice", fqn);
        w.file = wf_arena_strdup(m->a, imp_string(m, v, "path_name"));
        w.is_param = imp_bool(m, v, "is_param", false);
        const json_t *meta = imp_opt(m, v, "tensor_meta", JSON_OBJECT);
        if (!meta || strstr(w.file, "_obj_"))
            imp_fail(m, WF_E_PICKLE, NULL, "'%s' is an object, not a tensor; Weft has no use for custom objects", fqn);
        if (imp_bool(m, v, "use_pickle", false))
            imp_fail(m, WF_E_PICKLE, "export the model with plain tensors as parameters",
                     "tensor '%s' is stored as a Python pickle, which Weft never opens", fqn);
        literal_meta(m, meta, &w);
        place(m, &w, imp_entry(m, "data/%s/%s", folder, w.file));
        wf_map_put(m->by_fqn, fqn, m->weights.n);
        w.file = wf_arena_printf(m->a, "%s/%s", folder, w.file);
        WF_PUSH(m->a, &m->weights, w);
    }
    wf_defer_run(parsed);
}

void imp_weights(Imp *m)
{
    m->by_fqn = wf_map_new(m->a);
    read_table(m, "weights", "weights");
    read_table(m, "constants", "constants");
}

bool imp_same_tensor(const Weight *a, const Weight *b)
{
    if (strcmp(a->file, b->file) || a->offset != b->offset || a->rank != b->rank || a->dtype != b->dtype ||
        a->first == a->end || b->first == b->end || a->is_param != b->is_param)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->sizes[i] != b->sizes[i] || a->strides[i] != b->strides[i])
            return false;
    return true;
}

void imp_check_overlaps(Imp *m)
{
    WfMap *last = wf_map_new(m->a); /* storage -> newest weight in it; older ones are chained */
    int *chain = WF_NEWN(m->a, int, (size_t)m->weights.n + 1);
    for (int i = 0; i < m->weights.n; i++) {
        const Weight *w = &m->weights.at[i];
        int64_t at = -1;
        wf_map_get(last, w->file, &at);
        chain[i] = (int)at;
        wf_map_put(last, w->file, i);
        for (int j = (int)at, steps = 0; j >= 0 && steps < 4096; j = chain[j], steps++) {
            const Weight *o = &m->weights.at[j];
            bool trains = (w->is_param && w->requires_grad) || (o->is_param && o->requires_grad);
            if (trains && w->first < o->end && o->first < w->end && !imp_same_tensor(w, o))
                imp_fail(m, WF_E_SHARED_MEMORY,
                         "make one of them the parameter, and take the other from it in forward",
                         "'%s' and '%s' share part of their memory, and at least one of them is trained",
                         o->fqn, w->fqn);
        }
    }
}
