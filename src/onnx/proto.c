/* Protobuf's wire format: a field is its number and kind as a varint, then a varint, four bytes, or a length and bytes. */
#include "onnx/private.h"

#include <string.h>

static void varint(WfStr *s, uint64_t v)
{
    for (; v > 127; v >>= 7)
        wf_str_putc(s, (char)(v | 128));
    wf_str_putc(s, (char)v);
}

void pb_int(WfStr *s, int field, int64_t v)
{
    varint(s, (uint64_t)field << 3);
    varint(s, (uint64_t)v);
}

void pb_float(WfStr *s, int field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    varint(s, (uint64_t)field << 3 | 5);
    for (int i = 0; i < 4; i++)
        wf_str_putc(s, (char)(bits >> 8 * i));
}

void pb_head(WfStr *s, int field, uint64_t n)
{
    varint(s, (uint64_t)field << 3 | 2);
    varint(s, n);
}

void pb_bytes(WfStr *s, int field, const void *p, size_t n)
{
    pb_head(s, field, n);
    wf_str_putn(s, p, n);
}

void pb_text(WfStr *s, int field, const char *text) { pb_bytes(s, field, text, strlen(text)); }
void pb_message(WfStr *s, int field, const WfStr *inner) { pb_bytes(s, field, inner->n ? inner->at : "", inner->n); }
