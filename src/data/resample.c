/* Resizing pictures of bytes as Pillow does (Image.resize with BILINEAR): a triangle filter whose width grows with
 * the reduction, so that no pixel is left out; horizontally first, then vertically, each pass in integers with 22 bits of
 * fraction and rounded to bytes. The same bits but for tall pictures, where new versions of Pillow turn the passes round. */
#include <math.h>

#include "data/private.h"

enum { BITS = 32 - 8 - 2, WEIGHTS_MOST = 1 << 26, BYTES_MOST = 1 << 30 };

/* For each place of the output: the first place of the input that it takes, how many, and their weights. */
typedef struct {
    int width;     /* weights of a place at most */
    int *from, *count, *weight;
} Filter;

static bool make_filter(int in, int out, Filter *f)
{
    double scale = (double)in / out, wide = scale < 1 ? 1 : scale, support = wide;
    f->width = (int)ceil(support) * 2 + 1;
    if ((int64_t)out * f->width > WEIGHTS_MOST)
        return false;
    f->from = wf_sys_alloc(sizeof(int) * (size_t)out * (size_t)(f->width + 2));
    double *k = wf_sys_alloc(sizeof(double) * (size_t)f->width);
    if (!f->from || !k) {
        wf_sys_free(f->from);
        wf_sys_free(k);
        return false;
    }
    f->count = f->from + out;
    f->weight = f->count + out;
    for (int x = 0; x < out; x++) {
        double center = (x + 0.5) * scale, sum = 0;
        int lo = (int)(center - support + 0.5), hi = (int)(center + support + 0.5);
        lo = lo < 0 ? 0 : lo;
        hi = hi > in ? in : hi;
        for (int i = lo; i < hi; i++) {
            double at = fabs((i - center + 0.5) * (1.0 / wide)); /* rounded as there: ramps give ties */
            k[i - lo] = at < 1 ? 1 - at : 0;
            sum += k[i - lo];
        }
        f->from[x] = lo;
        f->count[x] = hi - lo;
        for (int i = 0; i < hi - lo; i++)
            f->weight[x * f->width + i] = (int)(0.5 + k[i] / sum * (1 << BITS));
    }
    wf_sys_free(k);
    return true;
}

static uint8_t clip(int v)
{
    v >>= BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void across(const Filter *f, const uint8_t *in, int in_w, int h, int channels, uint8_t *out, int out_w)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < out_w; x++)
            for (int c = 0; c < channels; c++) {
                const uint8_t *at = in + ((size_t)y * (size_t)in_w + (size_t)f->from[x]) * (size_t)channels + c;
                int sum = 1 << (BITS - 1);
                for (int i = 0; i < f->count[x]; i++)
                    sum += at[i * channels] * f->weight[x * f->width + i];
                out[((size_t)y * (size_t)out_w + (size_t)x) * (size_t)channels + c] = clip(sum);
            }
}

static void down(const Filter *f, const uint8_t *in, size_t row, uint8_t *out, int out_h)
{
    for (int y = 0; y < out_h; y++)
        for (size_t x = 0; x < row; x++) {
            const uint8_t *at = in + (size_t)f->from[y] * row + x;
            int sum = 1 << (BITS - 1);
            for (int i = 0; i < f->count[y]; i++)
                sum += at[(size_t)i * row] * f->weight[y * f->width + i];
            out[(size_t)y * row + x] = clip(sum);
        }
}

bool wf_picture_resize(const uint8_t *in, int w, int h, int channels, uint8_t *out, int out_w, int out_h)
{
    Filter x = {0}, y = {0};
    size_t row = (size_t)out_w * (size_t)channels;
    uint8_t *between = (int64_t)h * (int64_t)row > BYTES_MOST ? NULL : wf_sys_alloc((size_t)h * row);
    bool ok = between && make_filter(w, out_w, &x) && make_filter(h, out_h, &y);
    if (ok) {
        across(&x, in, w, h, channels, between, out_w);
        down(&y, between, row, out, out_h);
    }
    wf_sys_free(between);
    wf_sys_free(x.from);
    wf_sys_free(y.from);
    return ok;
}
