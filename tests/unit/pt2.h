/* Archives for tests: opens a real one, lets entries be replaced, and writes the result into memory with
 * correct checksums, so that damage reaches the code behind the container. */
#ifndef WEFT_TEST_PT2_H
#define WEFT_TEST_PT2_H

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/base.h"

typedef struct {
    uint8_t *at;
    size_t n, cap;
} Bytes;

static inline void put(Bytes *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->at = realloc(b->at, b->cap);
    }
    if (n)
        memcpy(b->at + b->n, p, n);
    b->n += n;
}

static inline void put_int(Bytes *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        uint8_t c = (uint8_t)(v >> (8 * i));
        put(b, &c, 1);
    }
}

/* Stored entries, payloads aligned to 64 bytes. The caller frees .at. */
static inline Bytes pack_archive(const WfZipEntry *e, int n)
{
    Bytes b = {0}, dir = {0};
    for (int i = 0; i < n; i++) {
        size_t name = strlen(e[i].name), at = b.n, pad = (64 - (at + 30 + name + 4) % 64) % 64 + 4;
        uint32_t crc = (uint32_t)crc32(0, e[i].at, (uInt)e[i].size);
        for (int central = 0; central < 2; central++) {
            Bytes *to = central ? &dir : &b;
            put_int(to, central ? 0x02014b50 : 0x04034b50, 4);
            if (central)
                put_int(to, 0, 2);
            put_int(to, 0, 2);
            put_int(to, 0, 2);
            put_int(to, 0, 2);
            put_int(to, 0x210000, 4);
            put_int(to, crc, 4);
            put_int(to, e[i].size, 4);
            put_int(to, e[i].size, 4);
            put_int(to, name, 2);
            put_int(to, central ? 0 : pad, 2);
            if (central) {
                put_int(to, 0, 8);
                put_int(to, 0, 2);
                put_int(to, at, 4);
            }
            put(to, e[i].name, name);
            if (!central) {
                put_int(to, 0x4246, 2);
                put_int(to, pad - 4, 2);
                for (size_t k = 4; k < pad; k++)
                    put(to, "Z", 1);
            }
        }
        put(&b, e[i].at, e[i].size);
    }
    size_t start = b.n;
    put(&b, dir.at, dir.n);
    put_int(&b, 0x06054b50, 4);
    put_int(&b, 0, 4);
    put_int(&b, (uint64_t)n, 2);
    put_int(&b, (uint64_t)n, 2);
    put_int(&b, dir.n, 4);
    put_int(&b, start, 4);
    put_int(&b, 0, 2);
    free(dir.at);
    return b;
}

/* The entry whose name ends so; NULL when there is none. */
static inline WfZipEntry *entry_ending(WfZip *z, const char *tail)
{
    for (int i = 0; i < z->n; i++) {
        size_t n = strlen(z->at[i].name), t = strlen(tail);
        if (n >= t && !strcmp(z->at[i].name + n - t, tail))
            return &z->at[i];
    }
    return NULL;
}

#endif
