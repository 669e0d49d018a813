/* JPEG by libjpeg-turbo and PNG by libpng, from memory to RGB, three bytes a pixel, on any thread. Both libraries leave by
 * longjmp when they fail; whatever they hold is released behind it. Sizes are looked at before memory is taken. What opens to
 * fewer rows than its header says is an error; what the libraries merely warn of (bytes too many, odd markers) is not. Four
 * colours become three as Adobe stores them, inverted; alpha is left out, 16 bits become 8, as Pillow's convert("RGB") does. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>
#include <png.h>

#include "data/private.h"

enum { PIXELS_MOST = 1 << 26, SCANS_MOST = 500, CHUNK_MOST = 8 << 20 };

typedef struct {
    char *why;           /* what the library says */
    size_t room;
    jmp_buf leave;
} Exit;

/* Memory of a picture; *why when it is too large. */
static uint8_t *new_pixels(int64_t w, int64_t h, char *why, size_t room)
{
    if (w <= 0 || h <= 0 || w > PIXELS_MOST || h > PIXELS_MOST / w) {
        snprintf(why, room, "it has %lld x %lld pixels; up to %d million are read", (long long)w, (long long)h, PIXELS_MOST >> 20);
        return NULL;
    }
    uint8_t *p = wf_sys_alloc((size_t)(w * h) * 3);
    if (!p)
        snprintf(why, room, "out of memory");
    return p;
}

/* ---- JPEG ---- */

typedef struct {
    struct jpeg_error_mgr face;
    Exit exit;
} JpegErrors;

static void jpeg_leave(j_common_ptr c)
{
    JpegErrors *e = (JpegErrors *)c->err;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    snprintf(e->exit.why, e->exit.room, "%s", text);
    longjmp(e->exit.leave, 1);
}

static void jpeg_message(j_common_ptr c, int level)
{
    int code = c->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER))
        jpeg_leave(c);
}

/* A file can ask for millions of passes over a small picture. */
static void jpeg_progress(j_common_ptr c)
{
    if (((j_decompress_ptr)c)->input_scan_number > SCANS_MOST) {
        JpegErrors *e = (JpegErrors *)c->err;
        snprintf(e->exit.why, e->exit.room, "it has more than %d scans", SCANS_MOST);
        longjmp(e->exit.leave, 1);
    }
}

static void four_to_three(const uint8_t *from, uint8_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++)
            to[3 * i + c] = (uint8_t)((from[4 * i + c] * from[4 * i + 3] + 127) / 255);
}

static uint8_t *decode_jpeg(const uint8_t *p, size_t n, int *w, int *h, char *why, size_t room)
{
    struct jpeg_decompress_struct d = {0};
    struct jpeg_progress_mgr progress = {.progress_monitor = jpeg_progress};
    JpegErrors errors = {.exit = {.why = why, .room = room}};
    uint8_t *volatile out = NULL, *volatile row = NULL;
    d.err = jpeg_std_error(&errors.face);
    errors.face.error_exit = jpeg_leave;
    errors.face.emit_message = jpeg_message;
    if (setjmp(errors.exit.leave)) {
        jpeg_destroy_decompress(&d);
        wf_sys_free(row);
        wf_sys_free(out);
        return NULL;
    }
    jpeg_create_decompress(&d);
    d.progress = &progress;
    jpeg_mem_src(&d, p, n);
    jpeg_read_header(&d, TRUE);
    bool four = d.num_components == 4;
    d.out_color_space = four ? JCS_CMYK : JCS_RGB;
    out = new_pixels(d.image_width, d.image_height, why, room);
    row = out && four ? wf_sys_alloc((size_t)d.image_width * 4) : NULL;
    if (!out || (four && !row))
        longjmp(errors.exit.leave, 1);
    jpeg_start_decompress(&d);
    *w = (int)d.output_width;
    *h = (int)d.output_height;
    while (d.output_scanline < d.output_height) {
        uint8_t *to = out + (size_t)d.output_scanline * (size_t)*w * 3;
        JSAMPROW at = four ? row : to;
        jpeg_read_scanlines(&d, &at, 1);
        if (four)
            four_to_three(row, to, *w);
    }
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
    wf_sys_free(row);
    return out;
}

/* ---- PNG ---- */

typedef struct {
    Exit exit;
    const uint8_t *at;
    size_t left;
} PngSource;

static void png_leave(png_structp png, png_const_charp text)
{
    Exit *e = png_get_error_ptr(png);
    snprintf(e->why, e->room, "%s", text);
    longjmp(e->leave, 1);
}

static void png_quiet(png_structp png, png_const_charp text) { (void)png, (void)text; }

static void png_take(png_structp png, png_bytep to, png_size_t n)
{
    PngSource *s = png_get_io_ptr(png);
    if (n > s->left)
        png_error(png, "it ends too early");
    memcpy(to, s->at, n);
    s->at += n;
    s->left -= n;
}

static uint8_t *decode_png(const uint8_t *p, size_t n, int *w, int *h, char *why, size_t room)
{
    PngSource source = {.exit = {.why = why, .room = room}, .at = p, .left = n};
    uint8_t *volatile out = NULL;
    png_bytep *volatile rows = NULL;
    png_infop volatile info = NULL;
    png_structp volatile png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source.exit, png_leave, png_quiet);
    if (!png || setjmp(source.exit.leave)) {
        png_structp png_ = png;
        png_infop info_ = info;
        if (png)
            png_destroy_read_struct(&png_, info ? &info_ : NULL, NULL);
        else
            snprintf(why, room, "out of memory");
        wf_sys_free((void *)rows);
        wf_sys_free(out);
        return NULL;
    }
    info = png_create_info_struct(png);
    if (!info)
        png_error(png, "out of memory");
    png_set_chunk_malloc_max(png, CHUNK_MOST);
    png_set_read_fn(png, &source, png_take);
    png_read_info(png, info);
    *w = (int)png_get_image_width(png, info);
    *h = (int)png_get_image_height(png, info);
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    out = new_pixels(*w, *h, why, room);
    rows = out ? wf_sys_alloc((size_t)*h * sizeof *rows) : NULL;
    if (!out)
        longjmp(source.exit.leave, 1);
    if (!rows || png_get_rowbytes(png, info) != (size_t)*w * 3)
        png_error(png, rows ? "its rows have another size than its header says" : "out of memory");
    for (int y = 0; y < *h; y++)
        rows[y] = out + (size_t)y * (size_t)*w * 3;
    png_read_image(png, rows);
    png_read_end(png, NULL);
    png_structp png_ = png;
    png_infop info_ = info;
    png_destroy_read_struct(&png_, &info_, NULL);
    wf_sys_free((void *)rows);
    return out;
}

uint8_t *wf_picture_decode(const uint8_t *p, size_t n, int *w, int *h, char *why, size_t room)
{
    if (n > 3 && p[0] == 0xff && p[1] == 0xd8 && p[2] == 0xff)
        return decode_jpeg(p, n, w, h, why, room);
    if (n > 8 && !png_sig_cmp(p, 0, 8))
        return decode_png(p, n, w, h, why, room);
    snprintf(why, room, "it is neither JPEG nor PNG");
    return NULL;
}
