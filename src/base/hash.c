/* Hashes: SHA-256 from OpenSSL for identities that leave the process (cache keys, signatures), XXH3 for
 * tables. */
#include <openssl/evp.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/inner.h"

struct WfSha {
    WfCtx *ctx;
    EVP_MD_CTX *md;
};

static void free_md(void *p)
{
    EVP_MD_CTX_free(p);
}

/* The OpenSSL state lives as long as the arena. */
WfSha *wf_sha_new(WfCtx *ctx, WfArena *a)
{
    WfSha *h = WF_NEW(a, WfSha);
    h->ctx = ctx;
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (!md)
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    wf_arena_at_free(a, free_md, md);
    h->md = md;
    if (EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1)
        wf_fail(ctx, WF_E_LIBRARY, "OpenSSL offers no SHA-256 on this machine");
    return h;
}

void wf_sha_add(WfSha *h, const void *p, size_t n)
{
    if (n && EVP_DigestUpdate(h->md, p, n) != 1)
        wf_fail(h->ctx, WF_E_LIBRARY, "OpenSSL failed to compute SHA-256");
}

void wf_sha_hex(WfSha *h, char out[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (EVP_DigestFinal_ex(h->md, digest, &n) != 1 || n != 32)
        wf_fail(h->ctx, WF_E_LIBRARY, "OpenSSL failed to compute SHA-256");
    for (unsigned int i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[64] = 0;
}

uint64_t wf_hash64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(n ? p : "", n, seed);
}
