/* Pictures: FOLDER/CLASS/NAME.jpg, as torchvision's ImageFolder reads them (classes sorted, the label is the place of the class),
 * or JPEG and PNG files without classes. Nothing is decoded before it is wanted; then, on the thread that reads: decode, grey
 * where the input has one channel, resize, crop, flip, and from rows of pixels to planes of channels. */
#include <string.h>

#include "data/private.h"

enum { FILE_MOST = 256 << 20, SHOWN = 20 };

typedef struct {
    uint32_t label;      /* in the order of the classes */
    uint64_t name;       /* where its path, from the folder on, begins in `names` */
} Picture;

typedef struct {
    const char *root;    /* "" for a file of its own */
    WF_VEC(Picture) list;
    WfStr names;
    WfStrings classes;   /* sorted */
} Folder;

/* What an input makes of them. */
typedef struct {
    const Folder *folder;
    const WfRecipe *recipe;
    int channels, h, w;
    const uint32_t *number; /* of each class of the folder */
} View;

bool wf_data_is_picture(const char *path)
{
    return wf_data_ends_with(path, ".jpg") || wf_data_ends_with(path, ".jpeg") || wf_data_ends_with(path, ".png");
}



static bool knows_pictures(const WfDataFile *f, const uint8_t *head, size_t size)
{
    (void)size;
    return !head || wf_data_is_picture(f->path);
}

static void add_picture(WfOpening *op, Folder *x, const char *name, size_t label)
{
    WF_PUSH(op->a, &x->list, ((Picture){(uint32_t)label, x->names.n}));
    wf_str_putn(&x->names, name, strlen(name) + 1);
}

/* The pictures of one class; other files are passed over. */
static void add_class(WfOpening *op, Folder *x, const char *path, size_t label)
{
    WfArena *scratch = wf_arena_scratch(op->ctx);
    WfStrings files = {0}, folders = {0};
    int before = x->list.n;
    wf_data_list(op->ctx, scratch, path, &files, &folders);
    for (int i = 0; i < files.n; i++)
        if (wf_data_is_picture(files.at[i]))
            add_picture(op, x, files.at[i] + strlen(x->root), label);
    if (x->list.n == before)
        wf_fail_at(op->ctx, WF_E_PICTURES, path, folders.n ? "Weft expects FOLDER/CLASS/NAME.jpg, and looks into no deeper folders." : NULL,
                   "data: the class holds no pictures (.jpg, .jpeg, .png)");
    wf_arena_free(scratch);
}

static void open_pictures(WfOpening *op, WfDataFile *f)
{
    Folder *x = f->own = WF_NEW(op->a, Folder);
    x->names.arena = op->a;
    x->root = "";
    if (wf_data_is_picture(f->path) && !wf_is_folder(f->path)) {
        if (!wf_file_exists(f->path))
            wf_fail(op->ctx, WF_E_IO, "%s: cannot open: no such file", f->path);
        add_picture(op, x, f->path, 0);
        return;
    }
    WfStrings files = {0}, folders = {0};
    size_t n = strlen(f->path);
    wf_data_list(op->ctx, op->a, f->path, &files, &folders);
    x->root = f->path[n - 1] == '/' ? f->path : wf_arena_printf(op->a, "%s/", f->path);
    for (int i = 0; i < folders.n; i++) {
        WF_PUSH(op->a, &x->classes, folders.at[i] + strlen(x->root));
        add_class(op, x, folders.at[i], (size_t)i);
    }
}

/* ---- reading ---- */

static bool bad_picture(const WfVisit *v, const char *path, const char *why)
{
    return wf_data_fault(v, WF_E_DATA_FILE, path, "Remove the picture, or repair it.", "data: the picture cannot be read: %s", why);
}

/* The bytes of a picture's file; the caller frees them. */
static uint8_t *read_file(const WfVisit *v, const char *path, size_t *n)
{
    int err;
    uint8_t *p = wf_bytes_load(path, FILE_MOST, n, &err);
    if (!p)
        wf_data_fault(v, WF_E_IO, path, NULL, "data: the picture cannot be read: %s", wf_bytes_error(err));
    return p;
}

/* Pillow's convert("L"), in place. */
static void to_grey(uint8_t *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = (uint8_t)((p[3 * i] * 19595 + p[3 * i + 1] * 38470 + p[3 * i + 2] * 7471 + 0x8000) >> 16);
}

/* The size to which a picture is resized: the recipe's; without one, the smallest that covers the input, with the same ratio.
 * torchvision's Resize(n) rounds the longer side down. */
static void choose_size(const View *x, int w, int h, int *to_w, int *to_h)
{
    const int64_t *r = x->recipe->resize;
    int64_t want_w = r[1] ? r[1] : r[0], want_h = r[0];
    if (!r[0]) {
        want_w = x->w;
        want_h = x->h;
    }
    *to_w = (int)want_w;
    *to_h = (int)want_h;
    if (r[1])
        return;
    if (want_w * h > want_h * w) /* the width decides */
        *to_h = (int)(want_w * h / w);
    else
        *to_w = (int)(want_h * w / h);
}

static void place(const View *x, const WfVisit *v, const uint8_t *pixels, int w, int h, uint8_t *out)
{
    int64_t top, left;
    bool mirror;
    wf_crop_place(x->recipe, v, h, w, x->h, x->w, &top, &left, &mirror);
    for (int c = 0; c < x->channels; c++)
        for (int y = 0; y < x->h; y++)
            for (int i = 0; i < x->w; i++) {
                int64_t row = top + y, col = left + (mirror ? x->w - 1 - i : i);
                bool inside = row >= 0 && row < h && col >= 0 && col < w;
                *out++ = inside ? pixels[(row * w + col) * x->channels + c] : 0;
            }
}

static bool read_picture(const View *x, const WfVisit *v, const char *path, uint8_t *out)
{
    char why[256] = "";
    int w = 0, h = 0, to_w, to_h;
    size_t n;
    uint8_t *file = read_file(v, path, &n);
    if (!file)
        return false;
    uint8_t *pixels = wf_picture_decode(file, n, &w, &h, why, sizeof why);
    wf_sys_free(file);
    if (!pixels)
        return bad_picture(v, path, why);
    if (x->channels == 1)
        to_grey(pixels, (int64_t)w * h);
    choose_size(x, w, h, &to_w, &to_h);
    uint8_t *resized = pixels;
    bool ok = true;
    if (to_w != w || to_h != h) {
        int64_t size = (int64_t)to_w * to_h * x->channels;
        resized = to_w > 0 && to_h > 0 && size <= FILE_MOST ? wf_sys_alloc((size_t)size) : NULL;
        ok = resized && wf_picture_resize(pixels, w, h, x->channels, resized, to_w, to_h);
    }
    if (ok)
        place(x, v, resized, to_w, to_h, out);
    if (resized != pixels)
        wf_sys_free(resized);
    wf_sys_free(pixels);
    snprintf(why, sizeof why, "%d x %d pixels cannot be resized to %d x %d", w, h, to_w, to_h);
    return ok || bad_picture(v, path, why);
}

static bool read_pictures(const WfField *f, const WfVisit *v, int64_t first, int64_t count, uint8_t *out)
{
    const View *x = f->own;
    const Folder *folder = x->folder;
    WfVisit at = *v;
    for (int64_t i = 0; i < count; i++, at.sample++, out += wf_field_sample_bytes(f)) {
        char path[4096];
        const char *name = folder->names.at + folder->list.at[first + i].name;
        if (snprintf(path, sizeof path, "%s%s", folder->root, name) >= (int)sizeof path)
            return bad_picture(v, name, "its path is too long");
        if (!read_picture(x, &at, path, out))
            return false;
    }
    return true;
}

static bool read_labels(const WfField *f, const WfVisit *v, int64_t first, int64_t count, uint8_t *out)
{
    const View *x = f->own;
    (void)v;
    for (int64_t i = 0; i < count; i++)
        wf_store_i64(f->dtype, out + (size_t)i * wf_dtype_size(f->dtype), x->number[x->folder->list.at[first + i].label]);
    return true;
}

/* ---- fields ---- */

int wf_class_number(const WfStrings *classes, const char *name)
{
    for (int i = 0; i < classes->n; i++)
        if (!strcmp(classes->at[i], name))
            return i;
    return -1;
}

static void learn_classes(WfOpening *op, const WfDataFile *f, const WfDataInput *in, const WfStrings *from, bool told)
{
    WfStr s = {.arena = op->a};
    op->classes->input = wf_arena_strdup(op->keep, in->name);
    for (int i = 0; i < from->n; i++) {
        wf_str_puts(&s, i && i < SHOWN ? ", " : "");
        if (!wf_yaml_quote(from->at[i], i < SHOWN ? &s : &(WfStr){.arena = op->a}))
            wf_fail_at(op->ctx, WF_E_PICTURES, f->path, "Rename it.", "data: the name of a class folder is not UTF-8 text");
        WF_PUSH(op->keep, &op->classes->names, wf_arena_strdup(op->keep, from->at[i]));
    }
    if (told)
        wf_log(op->ctx, WF_LOG_INFO, "data: %d classes, in order: %s%s", from->n, s.n ? s.at : "", from->n > SHOWN ? ", .." : "");
}

/* Numbers are places in the recipe's list of classes; where it has none, in that of the training data, sorted. */
static const uint32_t *number_classes(WfOpening *op, const WfDataFile *f, const WfDataInput *in)
{
    const Folder *x = f->own;
    const WfStrings *given = &wf_recipe_of(op, in->name)->classes, *known = &op->classes->names;
    uint32_t *number = WF_NEWN(op->a, uint32_t, (size_t)x->classes.n + 1);
    if (!known->n)
        learn_classes(op, f, in, given->n ? given : &x->classes, !given->n && !op->again);
    for (int i = 0; i < x->classes.n; i++) {
        int at = wf_class_number(known, x->classes.at[i]);
        if (at < 0)
            wf_fail_at(op->ctx, WF_E_PICTURES, f->path, "A model knows the classes that it was trained with, and no others.",
                       "data: the folder %s is none of the %d classes (%s%s%s)", x->classes.at[i], known->n, known->at[0], known->n > 1 ? ", " : "",
                       known->n > 2 ? ".." : known->n > 1 ? known->at[1] : "");
        number[i] = (uint32_t)at;
    }
    return number;
}

static bool pictures_field(WfOpening *op, WfDataFile *f, const WfDataInput *in, int at, int names_n, WfField *out)
{
    const Folder *x = f->own;
    View *view = out->own = WF_NEW(op->a, View);
    const WfRecipe *r = wf_recipe_of(op, in->name);
    *view = (View){.folder = x, .recipe = r};
    out->shape[0] = x->list.n;
    if (at > 0) {
        if (names_n > 2 || !x->classes.n)
            wf_fail_at(op->ctx, WF_E_PICTURES, f->path, "--data x,y=FOLDER: x gets pictures, y the numbers of their classes",
                       x->classes.n ? "data: pictures feed one input or two, not %d" : "data: a picture without a class folder has no label", names_n);
        view->number = number_classes(op, f, in);
        out->dtype = wf_dtype_is_int(in->dtype) ? in->dtype : WF_I64;
        out->rank = 1;
        out->read = read_labels;
        return true;
    }
    int64_t size[3];
    for (int i = 0; i < 3; i++)
        size[i] = in->rank != 4 ? -1 : in->shape[i + 1] > 0 ? in->shape[i + 1] : in->usual[i + 1];
    if ((size[0] != 1 && size[0] != 3) || size[1] <= 0 || size[2] <= 0 || size[1] > 16384 || size[2] > 16384)
        wf_fail_at(op->ctx, WF_E_DATA_SHAPE, f->path, NULL, "data: input %s has %d dimensions%s; pictures are [*, 3, height, width] or [*, 1, height, width]",
                   in->name, in->rank, in->rank == 4 ? ", and not the sizes of pictures" : "");
    int64_t least_h = r->resize[0], least_w = r->resize[1] ? r->resize[1] : r->resize[0];
    if (r->resize[0] && (least_h + 2 * r->padding < size[1] || least_w + 2 * r->padding < size[2]))
        wf_fail_at(op->ctx, WF_E_RECIPE, op->recipe, NULL, "recipe: %s.resize: %lld x %lld is smaller than the input's %lld x %lld", in->name,
                   (long long)least_h, (long long)least_w, (long long)size[1], (long long)size[2]);
    *view = (View){x, r, (int)size[0], (int)size[1], (int)size[2], NULL};
    out->dtype = WF_U8;
    out->rank = 4;
    memcpy(out->shape + 1, size, sizeof size);
    out->picture = out->placed = out->slow = true;
    out->read = read_pictures;
    return true;
}

const WfFormat wf_format_pictures = {"a folder of pictures", false, true, WF_USE_VALUES | WF_USE_WINDOW | WF_USE_RESIZE, WF_USE_VALUES | WF_USE_CLASSES,
                                     knows_pictures, open_pictures, pictures_field, NULL};
