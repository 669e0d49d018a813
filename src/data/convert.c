/* From a sample as its file holds it to a sample of an input. Conversions are few and named, so that a wrong file is an error
 * and not a bad model: without a recipe integers widen, and pictures of bytes become 0..1; a recipe may ask for more. */
#include <math.h>
#include <string.h>

#include "data/private.h"

/* ---- choosing ---- */

static bool computes(const WfRecipe *r) { return r->scaled || r->mean.n || r->std.n || r->dtype; }

/* Which conversion leads from the file's type to the input's; false if none does. */
static bool choose_convert(const WfRecipe *r, const WfDataInput *in, const WfField *f, WfConvert *out)
{
    if (r->one_hot) {
        *out = WF_CONVERT_ONE_HOT;
        return wf_dtype_is_int(f->dtype) && wf_dtype_is_float(in->dtype);
    }
    *out = WF_CONVERT_COMPUTE;
    if (r->dtype)
        return true;
    if (computes(r))
        return wf_dtype_is_float(in->dtype) && (f->dtype != WF_F64 || in->dtype == WF_F64);
    *out = WF_CONVERT_NONE;
    if (f->dtype == in->dtype)
        return true;
    *out = WF_CONVERT_SCALE;
    if (f->picture && f->dtype == WF_U8 && in->dtype == WF_F32)
        return true;
    *out = WF_CONVERT_WIDEN;
    if (!wf_dtype_is_int(f->dtype) || !wf_dtype_is_int(in->dtype))
        return false;
    bool from_unsigned = f->dtype == WF_U8, to_unsigned = in->dtype == WF_U8;
    return wf_dtype_size(in->dtype) > wf_dtype_size(f->dtype) && !(to_unsigned && !from_unsigned);
}

/* Height and width of an input of pictures; false when it is none. */
static bool picture_size(const WfDataInput *in, const WfField *f, int64_t *h, int64_t *w)
{
    if (in->rank < 3 || in->rank > 4 || f->rank < 3 || f->rank > 4)
        return false;
    *h = in->shape[in->rank - 2] >= 0 ? in->shape[in->rank - 2] : f->shape[f->rank - 2];
    *w = in->shape[in->rank - 1] >= 0 ? in->shape[in->rank - 1] : f->shape[f->rank - 1];
    return true;
}

/* Crop and flip: the sample that is left of the file's. */
static bool choose_window(const WfRecipe *r, const WfDataInput *in, const WfField *f, WfFeed *feed, int64_t *shape)
{
    int64_t h, w;
    feed->window = !f->placed && (r->flip || r->padding || r->crop == WF_CROP_RANDOM);
    if (!feed->window && !(f->picture && !f->placed && r->given))
        return true;
    if (!picture_size(in, f, &h, &w))
        return !feed->window;
    feed->in[0] = f->rank == 4 ? f->shape[1] : 1;
    feed->in[1] = f->shape[f->rank - 2];
    feed->in[2] = f->shape[f->rank - 1];
    feed->out[0] = feed->in[0];
    feed->out[1] = shape[f->rank - 2] = h;
    feed->out[2] = shape[f->rank - 1] = w;
    feed->window |= h != feed->in[1] || w != feed->in[2];
    return h <= feed->in[1] + 2 * r->padding && w <= feed->in[2] + 2 * r->padding && h > 0 && w > 0;
}

/* Fits the sample's shape to the input's. */
static bool choose_shape(const WfDataInput *in, const WfField *f, const WfFeed *feed, const int64_t *shape, WfColumn *c, WfReshape *out)
{
    int64_t classes = feed->recipe->one_hot;
    c->rank = f->rank;
    memcpy(c->shape, shape, sizeof c->shape);
    if (f->picture && f->rank == 3 && in->rank == 4) {
        *out = WF_RESHAPE_CHANNEL;
        c->rank = 4;
        memcpy(c->shape, (int64_t[]){shape[0], 1, shape[1], shape[2]}, 4 * sizeof(int64_t));
    } else if (f->picture && f->rank > 2 && in->rank == 2) {
        *out = WF_RESHAPE_FLATTEN;
        c->rank = 2;
        c->shape[1] = feed->raw_elements;
    } else if (f->scalar && f->rank == 1 && in->rank == 2 && !classes) {
        *out = WF_RESHAPE_COLUMN;
        c->rank = 2;
        c->shape[1] = 1;
    }
    if (classes && c->rank < 8)
        c->shape[c->rank++] = classes;
    if (c->rank != in->rank)
        return false;
    for (int i = 1; i < in->rank; i++)
        if (in->shape[i] >= 0 && in->shape[i] != c->shape[i])
            return false;
    return true;
}

static int64_t elements(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 1; i < rank; i++)
        if (!wf_mul_ok(n, shape[i], &n))
            return -1;
    return n;
}

bool wf_feed_choose(WfOpening *op, const WfDataInput *in, const WfField *f, WfColumn *c)
{
    WfFeed *feed = c->feed;
    const WfRecipe *r = feed->recipe = wf_recipe_of(op, in->name);
    int64_t shape[8];
    memcpy(shape, f->shape, sizeof shape);
    feed->from = f->dtype;
    feed->to = in->dtype;
    for (int i = 0; i < 256; i++) /* division, not multiplication by 1/255: what torchvision's ToTensor gives, to the bit */
        feed->scaled[i] = (float)i / 255.0f;
    if (!choose_convert(r, in, f, &feed->convert) || !choose_window(r, in, f, feed, shape))
        return false;
    feed->raw_elements = elements(f->rank, shape);
    if (!choose_shape(in, f, feed, shape, c, &feed->reshape))
        return false;
    c->sample_elements = feed->elements = elements(c->rank, c->shape);
    if (feed->raw_elements < 0 || feed->elements < 0 || feed->elements > INT64_MAX / 64)
        wf_fail_at(op->ctx, WF_E_DATA_SHAPE, f->path, NULL, "data: input %s has samples that are too large", in->name);
    feed->channels = c->rank > 1 && c->shape[1] > 0 ? c->shape[1] : 1;
    feed->inner = feed->elements / feed->channels;
    int lists[] = {r->mean.n, r->std.n};
    for (int i = 0; i < 2; i++)
        if (lists[i] > 1 && lists[i] != feed->channels)
            wf_fail_at(op->ctx, WF_E_RECIPE, op->recipe, "Give one number, or one for each.",
                       "recipe: %s.%s has %d numbers, and dimension 1 of the input is %lld", in->name, i ? "std" : "mean", lists[i],
                       (long long)feed->channels);
    return true;
}

void wf_feed_describe(const WfFeed *f, WfStr *out)
{
    const WfRecipe *r = f->recipe;
    if (f->window)
        wf_str_printf(out, ", %s to %lld x %lld%s", r->crop == WF_CROP_RANDOM && f->random ? "cropped at random" : "cropped in the middle",
                      (long long)f->out[1], (long long)f->out[2], r->flip && f->random ? ", mirrored at random" : "");
    if (f->convert == WF_CONVERT_SCALE)
        wf_str_puts(out, ", bytes divided by 255");
    if (f->convert == WF_CONVERT_WIDEN)
        wf_str_printf(out, ", widened from %s", wf_dtype_name(f->from));
    if (f->convert == WF_CONVERT_ONE_HOT)
        wf_str_printf(out, ", one-hot of %lld classes", (long long)r->one_hot);
    if (f->convert == WF_CONVERT_COMPUTE && f->from != f->to)
        wf_str_printf(out, ", converted from %s", wf_dtype_name(f->from));
    if (r->scaled)
        wf_str_printf(out, ", times %g", r->scale);
    if (r->mean.n || r->std.n)
        wf_str_puts(out, ", normalised");
    if (f->reshape == WF_RESHAPE_CHANNEL)
        wf_str_puts(out, ", with a channel dimension of 1 added");
    if (f->reshape == WF_RESHAPE_FLATTEN)
        wf_str_puts(out, ", each image flattened");
}

/* ---- converting ---- */

static void widen(WfDtype from, const uint8_t *src, WfDtype to, uint8_t *dst, int64_t n)
{
    size_t from_size = wf_dtype_size(from), to_size = wf_dtype_size(to);
    for (int64_t i = 0; i < n; i++)
        wf_store_i64(to, dst + (size_t)i * to_size, wf_load_i64(from, src + (size_t)i * from_size));
}

/* Copies the part of a [c, h, w] sample that wf_crop_place chooses; what lies in the padding is zero. */
static void take_window(const WfFeed *f, const WfVisit *v, const uint8_t *raw, uint8_t *out)
{
    int64_t top, left, h = f->out[1], w = f->out[2];
    size_t size = wf_dtype_size(f->from);
    bool mirror;
    wf_crop_place(f->recipe, v, f->in[1], f->in[2], h, w, &top, &left, &mirror);
    for (int64_t c = 0; c < f->in[0]; c++)
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++, out += size) {
                int64_t row = top + y, col = left + (mirror ? w - 1 - x : x);
                if (row < 0 || row >= f->in[1] || col < 0 || col >= f->in[2])
                    memset(out, 0, size);
                else
                    memcpy(out, raw + (size_t)((c * f->in[1] + row) * f->in[2] + col) * size, size);
            }
}

static double number_of(const WfNumbers *v, int64_t channel, double other)
{
    return v->n ? v->at[v->n > 1 ? channel : 0] : other;
}

/* Whole numbers that the input's type holds, for integers; all of them, for others. */
static bool holds(WfDtype t, double x)
{
    if (wf_dtype_is_float(t))
        return true;
    int64_t back;
    uint8_t bytes[8];
    if (!(fabs(x) < 9223372036854775808.0) || x != floor(x))
        return false;
    wf_store_i64(t, bytes, (int64_t)x);
    back = wf_load_i64(t, bytes);
    return (double)back == x;
}

static bool compute(const WfFeed *f, const WfVisit *v, const uint8_t *raw, uint8_t *out)
{
    const WfRecipe *r = f->recipe;
    size_t from = wf_dtype_size(f->from), to = wf_dtype_size(f->to);
    bool bytes = f->parts.at[0].field.picture && f->from == WF_U8 && !r->scaled && wf_dtype_is_float(f->to);
    bool exact = wf_dtype_is_int(f->from) && wf_dtype_is_int(f->to), wide = f->to == WF_F64;
    for (int64_t i = 0; i < f->elements; i++) {
        const uint8_t *at = raw + (size_t)i * from;
        int64_t channel = f->inner ? i / f->inner % f->channels : 0;
        double x = bytes ? f->scaled[*at] : exact ? (double)wf_load_i64(f->from, at) : wf_load_f64(f->from, at);
        if (wide) {
            x = (x * (r->scaled ? r->scale : 1) - number_of(&r->mean, channel, 0)) / number_of(&r->std, channel, 1);
        } else if (r->scaled || r->mean.n || r->std.n) { /* float32, each operation rounded: torchvision's Normalize */
            float y = (float)x * (float)(r->scaled ? r->scale : 1);
            y -= (float)number_of(&r->mean, channel, 0);
            x = y / (float)number_of(&r->std, channel, 1);
        }
        if (!holds(f->to, x))
            return wf_data_fault(v, WF_E_DATA_VALUE, f->parts.at[0].field.path, NULL, "data: sample %lld, element %lld is %g, which is no %s",
                                 (long long)v->sample, (long long)i, x, wf_dtype_name(f->to));
        if (exact)
            wf_store_i64(f->to, out + (size_t)i * to, wf_load_i64(f->from, at));
        else if (wf_dtype_is_int(f->to))
            wf_store_i64(f->to, out + (size_t)i * to, (int64_t)x);
        else
            wf_store_f64(f->to, out + (size_t)i * to, x);
    }
    return true;
}

static bool one_hot(const WfFeed *f, const WfVisit *v, const uint8_t *raw, uint8_t *out)
{
    size_t from = wf_dtype_size(f->from), to = wf_dtype_size(f->to);
    int64_t classes = f->recipe->one_hot;
    memset(out, 0, (size_t)f->elements * to);
    for (int64_t i = 0; i < f->raw_elements; i++) {
        int64_t k = wf_load_i64(f->from, raw + (size_t)i * from);
        if (k < 0 || k >= classes)
            return wf_data_fault(v, WF_E_INDEX_RANGE, f->parts.at[0].field.path, NULL,
                                 "data: sample %lld, element %lld is %lld, and one_hot: %lld allows 0 to %lld", (long long)v->sample,
                                 (long long)i, (long long)k, (long long)classes, (long long)classes - 1);
        wf_store_f64(f->to, out + (size_t)(i * classes + k) * to, 1);
    }
    return true;
}

bool wf_feed_convert(const WfFeed *f, const WfVisit *v, const uint8_t *raw, uint8_t *spare, uint8_t *out)
{
    if (f->window) {
        take_window(f, v, raw, spare);
        raw = spare;
    }
    switch (f->convert) {
    case WF_CONVERT_NONE:
        memcpy(out, raw, (size_t)f->elements * wf_dtype_size(f->to));
        return true;
    case WF_CONVERT_SCALE:
        for (int64_t i = 0; i < f->elements; i++)
            ((float *)(void *)out)[i] = f->scaled[raw[i]];
        return true;
    case WF_CONVERT_WIDEN:
        widen(f->from, raw, f->to, out, f->elements);
        return true;
    case WF_CONVERT_COMPUTE:
        return compute(f, v, raw, out);
    case WF_CONVERT_ONE_HOT:
        return one_hot(f, v, raw, out);
    }
    return false;
}
