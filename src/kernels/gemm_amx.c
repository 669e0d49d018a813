/* Large products on AMX tiles (amx.h).
 *
 * K is cut into equal blocks of at most 512. B is packed a chunk at a time, by a phase of its own: as many K blocks, or
 * columns of one, as fit the workspace that is allowed. The phase behind it multiplies: a tile takes some rows of A,
 * packs them K block by K block, and adds their products with the chunk to D. When A has few rows, so that D is cut by
 * columns as well, A is packed with the chunk. An element of D is the sum over the blocks, in order, of what the tiles
 * add up, whatever the cuts of M and N.
 *
 * Where A or B has an infinity or a NaN, which cannot be split, the tiles that would read it multiply that K block by
 * fused multiply-adds instead, so that it spreads as IEEE 754 says. */
#include "kernels/amx.h"
#include "kernels/gemm.h"

enum {
    DEPTH = 512,       /* of a K block */
    CHUNK = 8 << 20,   /* bytes of B packed at a time */
    ROWS = 256,        /* of A in a tile: what it packs stays in the second-level cache */
    PACK_COLUMNS = 256 /* of B that are packed as one tile */
};

typedef struct {
    WfGemm g;
    int64_t blocks, together;         /* K blocks; those of a chunk */
    int64_t parts, part;              /* ranges of columns, and their width */
    int64_t m_tiles, n_tiles, chunks; /* n_tiles: of a chunk; more than one: A is packed with it */
} Product;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ceiling(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Where it is faster: packing an element costs 0.25 to 0.4 ns, of which fused multiply-adds spare half for B, and a
 * multiply-add 6 ps less (Emerald Rapids; some of that is kept for cores whose neighbour is busy, which halves the tiles'
 * rate). */
bool wf_gemm_amx_takes(const WfLibDesc *d, const WfGemm *g)
{
    return wf_amx(d) && !g->f64 && g->n_batches == 1 && g->k >= 48 && 0.2 / (double)g->n + 0.3 / (double)g->m < 1.9e-3 &&
           (double)g->m * (double)g->n * (double)g->k > 4e6;
}

/* K block q, in elements. */
static int64_t block_at(const Product *p, int64_t q)
{
    return least(ceiling(p->g.k, WF_AMX_SIDE) * q / p->blocks * WF_AMX_SIDE, p->g.k);
}

static void plan(const WfLibDesc *d, const WfGemm *g, Product *p)
{
    *p = (Product){.g = *g};
    p->blocks = ceiling(g->k, DEPTH);
    for (int64_t limit = CHUNK;; limit *= 2) {
        int64_t columns = wf_up(least(limit / DEPTH / 6, g->n), PACK_COLUMNS);
        p->parts = ceiling(g->n, columns);
        p->part = least(wf_up(ceiling(g->n, p->parts), WF_AMX_SIDE), g->n);
        p->together = least(p->parts > 1 ? 1 : limit / wf_amx_bytes(p->part, ceiling(g->k, p->blocks)), p->blocks);
        p->together = p->together < 1 ? 1 : p->together;
        p->chunks = p->parts * ceiling(p->blocks, p->together);
        if (2 * p->chunks <= WF_LIB_PHASES)
            break;
    }
    const int64_t wanted = 4, work = 2000000; /* tiles of a chunk; multiply-adds that a tile is worth */
    double all = (double)g->m * (double)p->part * (double)least(g->k, DEPTH * p->together);
    int64_t most = (int64_t)(all / (double)work) + 1, panels = ceiling(p->part, WF_AMX_SIDE);
    p->m_tiles = ceiling(g->m, ROWS);
    p->n_tiles = 1;
    if (p->m_tiles < wanted && !d->param[1])
        p->n_tiles = least(ceiling(wanted, p->m_tiles), panels / 4);
    p->n_tiles = least(p->n_tiles, ceiling(most, p->m_tiles));
    p->n_tiles = p->n_tiles < 1 ? 1 : p->n_tiles;
    while (p->m_tiles * p->n_tiles < least(wanted, most) && g->m / (p->m_tiles + 1) >= WF_AMX_SIDE)
        p->m_tiles++;
    p->m_tiles = ceiling(g->m, wf_up(ceiling(g->m, p->m_tiles), WF_AMX_SIDE));
}

static int64_t tile_rows(const Product *p)
{
    return wf_up(ceiling(p->g.m, p->m_tiles), WF_AMX_SIDE);
}

/* ---- the phases --------------------------------------------------------------------------------- */

typedef struct {
    int64_t j0, j1, q0, q1; /* columns, K blocks */
} Chunk;

static Chunk chunk_at(const Product *p, int64_t i)
{
    int64_t deep = ceiling(p->blocks, p->together), part = i / deep, q = i % deep * p->together;
    return (Chunk){part * p->part, least((part + 1) * p->part, p->g.n), q, least(q + p->together, p->blocks)};
}

static int64_t pack_columns(const Chunk *c)
{
    return ceiling(c->j1 - c->j0, PACK_COLUMNS);
}

/* Pieces of one K block that are packed as one tile: of B, then of A. */
static int64_t pieces(const Product *p, const Chunk *c)
{
    return pack_columns(c) + (p->n_tiles > 1 ? p->m_tiles : 0);
}

/* The workspace: for every piece whether it is finite, B, A. */
static size_t flag_bytes(const Product *p)
{
    int64_t most = ceiling(p->part, PACK_COLUMNS) + (p->n_tiles > 1 ? p->m_tiles : 0);
    return (size_t)wf_up(p->together * most, 16) * sizeof(int32_t);
}

/* Bytes of a chunk's K blocks before q, of `outer` rows or columns. */
static int64_t bytes_before(const Product *p, const Chunk *c, int64_t q, int64_t outer)
{
    return wf_amx_bytes(outer, WF_AMX_SIDE) * ceiling(block_at(p, q) - block_at(p, c->q0), WF_AMX_SIDE);
}

static char *b_at(const Product *p, const Chunk *c, int64_t q, void *workspace)
{
    return (char *)workspace + flag_bytes(p) + bytes_before(p, c, q, c->j1 - c->j0);
}

static char *a_at(const Product *p, const Chunk *c, int64_t q, void *workspace)
{
    return (char *)workspace + flag_bytes(p) + bytes_before(p, c, c->q1, c->j1 - c->j0) +
           bytes_before(p, c, q, p->g.m);
}

static void pack(const Product *p, const Chunk *c, int64_t tile, void *const *operand, void *workspace)
{
    const WfGemm *g = &p->g;
    int64_t q = c->q0 + tile / pieces(p, c), piece = tile % pieces(p, c), i = piece - pack_columns(c);
    int64_t k0 = block_at(p, q), k = block_at(p, q + 1) - k0;
    int32_t *finite = (int32_t *)workspace + tile;
    if (i >= 0) {
        i *= tile_rows(p);
        *finite = wf_amx_pack_a(least(g->m - i, tile_rows(p)), k, (const float *)operand[0] + i * g->am + k0 * g->ak,
                                g->am, g->ak, a_at(p, c, q, workspace) + wf_amx_bytes(i, k));
        return;
    }
    int64_t j = c->j0 + piece * PACK_COLUMNS;
    *finite = wf_amx_pack_b(least(c->j1 - j, PACK_COLUMNS), k, (const float *)operand[1] + k0 * g->bk + j * g->bn,
                            g->bn, g->bk, b_at(p, c, q, workspace) + wf_amx_bytes(j - c->j0, k));
}

static void multiply(const Product *p, const Chunk *c, int64_t tile, void *const *operand, void *workspace,
                     void *scratch)
{
    const WfGemm *g = &p->g;
    int64_t mi = tile % p->m_tiles, ni = tile / p->m_tiles, panels = ceiling(c->j1 - c->j0, WF_AMX_SIDE);
    int64_t i0 = mi * tile_rows(p), m = least(g->m - i0, tile_rows(p));
    int64_t j0 = c->j0 + panels * ni / p->n_tiles * WF_AMX_SIDE,
            j1 = least(c->j0 + panels * (ni + 1) / p->n_tiles * WF_AMX_SIDE, c->j1);
    float *to = (float *)operand[g->out] + i0 * g->dm + j0;
    for (int64_t q = c->q0; q < c->q1; q++) {
        int64_t k0 = block_at(p, q), k = block_at(p, q + 1) - k0;
        const float *a = (const float *)operand[0] + i0 * g->am + k0 * g->ak;
        const float *bias = g->bias && !q ? (const float *)operand[g->bias] + j0 * g->bias_stride : NULL;
        const int32_t *flag = (const int32_t *)workspace + (q - c->q0) * pieces(p, c);
        bool add = g->add || q, finite = true;
        const void *packed = a_at(p, c, q, workspace) + wf_amx_bytes(i0, k);
        for (int64_t j = 0; j < pack_columns(c); j++)
            finite = finite && flag[j];
        if (p->n_tiles > 1)
            finite = finite && flag[pack_columns(c) + mi];
        else if (finite)
            packed = scratch, finite = wf_amx_pack_a(m, k, a, g->am, g->ak, scratch);
        if (finite)
            wf_amx_multiply(m, j1 - j0, k, packed, b_at(p, c, q, workspace) + wf_amx_bytes(j0 - c->j0, k), to, g->dm,
                            add, bias, g->bias_stride);
        if (finite)
            continue;
        if (bias)
            wf_gemm_bias_rows(g, m, j1 - j0, bias, to);
        wf_product_wide(g->vec, m, j1 - j0, k, a, g->am, g->ak,
                        (const float *)operand[1] + k0 * g->bk + j0 * g->bn, g->bk, g->bn, to, g->dm, add || bias,
                        scratch);
    }
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace, void *scratch,
                int thread)
{
    const Product *p = lib->self;
    Chunk c = chunk_at(p, phase / 2);
    (void)thread;
    if (phase % 2 == 0)
        pack(p, &c, tile, operand, workspace);
    else
        multiply(p, &c, tile, operand, workspace, scratch);
}

static void rows(const WfLib *lib, int64_t tile, int64_t *first, int64_t *end)
{
    const Product *p = lib->self;
    *first = tile * tile_rows(p);
    *end = least(*first + tile_rows(p), p->g.m);
}

void wf_gemm_amx_sizes(const WfLibDesc *d, const WfGemm *g, size_t *workspace, size_t *scratch)
{
    Product p;
    plan(d, g, &p);
    *workspace = *scratch = 0;
    for (int64_t i = 0; i < p.chunks; i++) {
        Chunk c = chunk_at(&p, i);
        size_t bytes = flag_bytes(&p) + (size_t)bytes_before(&p, &c, c.q1, c.j1 - c.j0) +
                       (p.n_tiles > 1 ? (size_t)bytes_before(&p, &c, c.q1, g->m) : 0);
        *workspace = bytes > *workspace ? bytes : *workspace;
    }
    size_t packed = (size_t)wf_amx_bytes(tile_rows(&p), least(wf_up(g->k, WF_AMX_SIDE), DEPTH));
    size_t plain = (size_t)wf_product_scratch(WF_COLUMNS, least(g->k, DEPTH)) * sizeof(float);
    *scratch = packed > plain ? packed : plain;
}

void wf_gemm_amx_create(WfArena *arena, const WfLibDesc *d, const WfGemm *g, WfLib *lib)
{
    Product *p = WF_NEW(arena, Product);
    plan(d, g, p);
    lib->self = p;
    lib->run = run;
    for (int64_t i = 0; i < p->chunks; i++) {
        Chunk c = chunk_at(p, i);
        lib->tiles[lib->n_phases++] = (c.q1 - c.q0) * pieces(p, &c);
        lib->tiles[lib->n_phases++] = p->m_tiles * p->n_tiles;
    }
    if (p->n_tiles == 1 && g->dm == g->n)
        lib->rows = rows, lib->n_rows = g->m;
}
