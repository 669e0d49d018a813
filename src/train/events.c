/* TensorBoard's event file: records of a length, its check sum, a message, its check sum; the messages are protobuf, of which
 * five fields are needed. A masked CRC-32C is rotated and shifted by a constant, as in TensorFlow's record format. Values are
 * written ten times a second at most: the viewer shows about a thousand points of a curve, and metrics.jsonl has all. */
#include "train/loop.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct WfEvents {
    WfCtx *ctx;
    FILE *f;
    char *path;
    uint32_t table[256];
    double at;               /* when the last values were written */
    int64_t written;
};

/* ---- records ---- */

static void make_table(uint32_t *table)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1; /* Castagnoli's polynomial, reflected */
        table[i] = c;
    }
}

static uint32_t masked_crc(const WfEvents *e, const void *p, size_t n)
{
    uint32_t c = ~0u;
    for (const uint8_t *at = p, *end = at + n; at < end; at++)
        c = c >> 8 ^ e->table[(c ^ *at) & 255];
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void put_fixed(WfStr *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        wf_str_putc(s, (char)(v >> 8 * i));
}

static void put_varint(WfStr *s, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        wf_str_putc(s, (char)(v | 128));
    wf_str_putc(s, (char)v);
}

static void put_bytes(WfStr *s, int field, const char *p, size_t n)
{
    put_varint(s, (uint64_t)field << 3 | 2);
    put_varint(s, n);
    wf_str_putn(s, p, n);
}

static void write_record(WfEvents *e, const WfStr *data)
{
    WfStr s = {.arena = data->arena};
    put_fixed(&s, data->n, 8);
    put_fixed(&s, masked_crc(e, s.at, 8), 4);
    wf_str_putn(&s, data->at, data->n);
    put_fixed(&s, masked_crc(e, data->at, data->n), 4);
    if (fwrite(s.at, 1, s.n, e->f) != s.n || fflush(e->f))
        wf_fail_at(e->ctx, WF_E_METRICS, e->path, "Free some space and go on with --resume, or use --no-tensorboard.",
                   "the event file cannot be written: %s", strerror(errno));
}

/* Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog session_log = 7 } */
static void begin(WfStr *s, int64_t step)
{
    struct timespec now;
    double wall;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    wall = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &wall, 8);
    wf_str_putc(s, 1 << 3 | 1);
    put_fixed(s, bits, 8);
    wf_str_putc(s, 2 << 3);
    put_varint(s, (uint64_t)step);
}

/* ---- the file ---- */

WfEvents *wf_events_open(WfCtx *ctx, WfArena *a, const char *out, int64_t step)
{
    WfEvents *e = WF_NEW(a, WfEvents);
    char host[128] = "";
    if (gethostname(host, sizeof host - 1) || !*host)
        strcpy(host, "localhost");
    e->ctx = ctx;
    make_table(e->table);
    e->path = wf_train_path(a, out, wf_arena_printf(a, "events.out.tfevents.%lld.%s.%d.0", (long long)time(NULL), host, (int)getpid()));
    e->f = fopen(e->path, "w");
    if (!e->f)
        wf_fail_at(ctx, WF_E_METRICS, e->path, NULL, "the event file cannot be made: %s", strerror(errno));
    WfArena *scratch = wf_arena_scratch(ctx);
    WfStr s = {.arena = scratch}, again = {.arena = scratch};
    begin(&s, 0);
    put_bytes(&s, 3, "brain.Event:2", 13);
    write_record(e, &s);
    if (step) { /* SessionLog { status = 1: START }: the viewer forgets later steps of an earlier file */
        begin(&again, step + 1);
        put_bytes(&again, 7, "\010\001", 2);
        write_record(e, &again);
    }
    wf_arena_free(scratch);
    return e;
}

void wf_events_add(WfEvents *e, int64_t step, const WfScalar *values, int n, bool must)
{
    if (!e || (!must && wf_now() - e->at < 0.1))
        return;
    WfArena *a = wf_arena_scratch(e->ctx);
    WfStr s = {.arena = a}, summary = {.arena = a};
    for (int i = 0; i < n; i++) { /* Summary { repeated Value { string tag = 1; float simple_value = 2 } value = 1 } */
        WfStr value = {.arena = a};
        float v = (float)values[i].value;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        put_bytes(&value, 1, values[i].tag, strlen(values[i].tag));
        wf_str_putc(&value, 2 << 3 | 5);
        put_fixed(&value, bits, 4);
        put_bytes(&summary, 1, value.at, value.n);
    }
    begin(&s, step);
    put_bytes(&s, 5, summary.at, summary.n);
    write_record(e, &s);
    e->at = wf_now();
    e->written++;
    wf_arena_free(a);
}

void wf_events_close(WfEvents *e)
{
    if (!e)
        return;
    fclose(e->f);
    if (!e->written) /* as with metrics.jsonl: nothing happened */
        unlink(e->path);
}
