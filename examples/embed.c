/* Training inside a C program, through weft.h alone: opens examples/fashion.pt2, adds a loss and an optimiser, feeds
 * pictures that it draws itself (class k: a bright square at place k, in noise) and saves the weights.
 *
 *     cc embed.c $(pkg-config --cflags --libs weft) -o embed && ./embed fashion.pt2 embed.safetensors
 */
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>

enum { BATCH = 128, SIDE = 28, CLASSES = 10, STEPS = 60 };

static float images[BATCH][1][SIDE][SIDE];
static int64_t labels[BATCH];

static float noise(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 16777216.0f;
}

static void draw_batch(void)
{
    for (int i = 0; i < BATCH; i++) {
        int k = (int)(noise() * CLASSES), top = k / 5 * 14 + 4, left = k % 5 * 5 + 2;
        labels[i] = k;
        for (int r = 0; r < SIDE; r++)
            for (int c = 0; c < SIDE; c++)
                images[i][0][r][c] = 0.5f * noise();
        for (int r = top; r < top + 5; r++)
            for (int c = left; c < left + 4; c++)
                images[i][0][r][c] += 0.5f;
    }
}

static int report(weft_context *ctx, weft_status status)
{
    fprintf(stderr, "embed: %s: %s\n", weft_status_name(status), weft_message(ctx));
    if (weft_place(ctx) && *weft_place(ctx))
        fprintf(stderr, "  %s\n", weft_place(ctx));
    if (weft_hint(ctx) && *weft_hint(ctx))
        fprintf(stderr, "  hint: %s\n", weft_hint(ctx));
    return 1;
}

static weft_status prepare(weft_context *ctx, const char *model, weft_program **program, weft_session **session)
{
    static const char *const options[][2] = {{"loss", "cross_entropy"}, {"optimizer", "adamw"}, {"lr", "1e-3"}};
    weft_status status = weft_open(ctx, model, program);
    for (size_t i = 0; status == WEFT_OK && i < sizeof options / sizeof options[0]; i++)
        status = weft_set(*program, options[i][0], options[i][1]);
    return status == WEFT_OK ? weft_session_new(*program, session) : status;
}

static weft_status train(weft_session *session, double *first, double *last)
{
    const weft_tensor x = {WEFT_F32, 4, {BATCH, 1, SIDE, SIDE}, images}, y = {WEFT_I64, 1, {BATCH}, labels};
    for (int step = 1; step <= STEPS; step++) {
        draw_batch();
        weft_status status = weft_feed(session, "x", &x);
        if (status == WEFT_OK)
            status = weft_feed(session, "y", &y);
        if (status == WEFT_OK)
            status = weft_step(session, last);
        if (status != WEFT_OK)
            return status;
        if (step == 1)
            *first = *last;
        if (step == 1 || step % 10 == 0)
            printf("step %2d  loss %.4f\n", step, *last);
    }
    return WEFT_OK;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: embed MODEL.pt2 WEIGHTS.safetensors\n");
        return 2;
    }
    weft_context *ctx = weft_context_new(NULL);
    weft_program *program = NULL;
    weft_session *session = NULL;
    double first = 0, last = 0;
    if (!ctx)
        return 1;
    weft_status status = prepare(ctx, argv[1], &program, &session);
    if (status == WEFT_OK)
        status = train(session, &first, &last);
    if (status == WEFT_OK)
        status = weft_save(session, argv[2]);
    int code = status != WEFT_OK ? report(ctx, status) : last < first / 4 ? 0 : 1;
    weft_context_free(ctx); /* frees the program and the session too */
    return code;
}
