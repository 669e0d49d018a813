/* A hash map that remembers the order of insertion: entries lie in a plain array, and an open-addressed table
 * of indices (linear probing, at most half full) finds them. Nothing is ever removed, so iteration is the
 * array. */
#include <string.h>

#include "base/inner.h"

typedef struct {
    uint64_t hash;
    char *key; /* a copy, NUL behind it */
    size_t n;
    int64_t value;
} Entry;

struct WfMap {
    WfArena *arena;
    WF_VEC(Entry) entries;
    int32_t *table; /* 0: empty, else index + 1 */
    uint32_t mask;
};

WfMap *wf_map_new(WfArena *a)
{
    WfMap *m = WF_NEW(a, WfMap);
    m->arena = a;
    return m;
}

/* The slot that holds the key, or the empty one where it belongs. The table must exist. */
static uint32_t probe(const WfMap *m, uint64_t hash, const void *key, size_t n)
{
    uint32_t i = (uint32_t)hash & m->mask;
    for (; m->table[i]; i = (i + 1) & m->mask) {
        const Entry *e = &m->entries.at[m->table[i] - 1];
        if (e->hash == hash && e->n == n && (n == 0 || memcmp(e->key, key, n) == 0))
            break;
    }
    return i;
}

static void rehash(WfMap *m)
{
    uint32_t size = m->table ? (m->mask + 1) * 2 : 16;
    m->table = WF_NEWN(m->arena, int32_t, size);
    m->mask = size - 1;
    for (int k = 0; k < m->entries.n; k++) {
        uint32_t i = (uint32_t)m->entries.at[k].hash & m->mask;
        while (m->table[i])
            i = (i + 1) & m->mask;
        m->table[i] = k + 1;
    }
}

bool wf_map_get_bytes(const WfMap *m, const void *key, size_t n, int64_t *out)
{
    if (!m->table)
        return false;
    uint32_t i = probe(m, wf_hash64(key, n, 0), key, n);
    if (!m->table[i])
        return false;
    if (out)
        *out = m->entries.at[m->table[i] - 1].value;
    return true;
}

void wf_map_put_bytes(WfMap *m, const void *key, size_t n, int64_t value)
{
    uint64_t hash = wf_hash64(key, n, 0);
    if (m->table) {
        uint32_t i = probe(m, hash, key, n);
        if (m->table[i]) {
            m->entries.at[m->table[i] - 1].value = value;
            return;
        }
    }
    if (!m->table || (uint32_t)m->entries.n >= (m->mask + 1) / 2)
        rehash(m);
    Entry e = { hash, wf_arena_strndup(m->arena, key, n), n, value };
    WF_PUSH(m->arena, &m->entries, e);
    m->table[probe(m, hash, key, n)] = m->entries.n;
}

bool wf_map_get(const WfMap *m, const char *key, int64_t *out)
{
    return wf_map_get_bytes(m, key, strlen(key), out);
}

void wf_map_put(WfMap *m, const char *key, int64_t value)
{
    wf_map_put_bytes(m, key, strlen(key), value);
}

int wf_map_count(const WfMap *m)
{
    return m->entries.n;
}

const void *wf_map_at(const WfMap *m, int i, size_t *n, int64_t *value)
{
    const Entry *e = &m->entries.at[i];
    if (n)
        *n = e->n;
    if (value)
        *value = e->value;
    return e->key;
}
