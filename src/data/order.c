/* The order of visits: a permutation computed on the fly. A Feistel network over the smallest even number of bits that holds
 * n, with results beyond n walked on (cycle walking), is a bijection by construction and needs no table. Its keys come from
 * (seed, epoch), so a resumed run visits what it had not visited. Random crops and flips are keyed by (seed, epoch, sample)
 * for the same reason. */
#include "data/private.h"

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014), after Stafford's variant 13. */
uint64_t wf_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

WfOrder wf_order(int64_t n, uint64_t seed, int64_t epoch, bool shuffle)
{
    WfOrder o = {.n = (uint64_t)n, .shuffle = shuffle, .half = 1};
    while (o.half < 31 && ((uint64_t)1 << (2 * o.half)) < o.n)
        o.half++;
    o.mask = ((uint64_t)1 << o.half) - 1;
    uint64_t state = wf_mix(seed + 0x9e3779b97f4a7c15u) ^ (uint64_t)epoch;
    for (size_t i = 0; i < WF_LEN(o.key); i++)
        o.key[i] = wf_mix(state += 0x9e3779b97f4a7c15u);
    return o;
}

int64_t wf_order_at(const WfOrder *o, int64_t i)
{
    if (!o->shuffle)
        return i;
    uint64_t x = (uint64_t)i;
    do {
        uint64_t left = x >> o->half, right = x & o->mask;
        for (size_t r = 0; r < WF_LEN(o->key); r++) {
            uint64_t next = left ^ (wf_mix(right + o->key[r]) & o->mask);
            left = right;
            right = next;
        }
        x = left << o->half | right;
    } while (x >= o->n);
    return (int64_t)x;
}

int64_t wf_order_batch(const WfOrder *o, int64_t batch, int64_t size, int64_t *index)
{
    int64_t first = batch * size, left = (int64_t)o->n - first, count = left < size ? left : size;
    for (int64_t i = 0; i < count; i++)
        index[i] = wf_order_at(o, first + i);
    for (int64_t i = count > 0 ? count : 0; i < size; i++)
        index[i] = count > 0 ? index[0] : wf_order_at(o, 0);
    return count > 0 ? count : 0;
}

/* ---- crops and flips ---- */

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = wf_mix(*state + 0x9e3779b97f4a7c15u);
    return (uint64_t)(((unsigned __int128)*state * below) >> 64);
}

/* torchvision's CenterCrop rounds half to even. */
static int64_t middle(int64_t space)
{
    int64_t half = space >> 1;
    return space & 1 ? half + (half & 1) : half;
}

void wf_crop_place(const WfRecipe *r, const WfVisit *v, int64_t in_h, int64_t in_w, int64_t h, int64_t w, int64_t *top,
                   int64_t *left, bool *mirror)
{
    uint64_t state = wf_mix(v->seed ^ 0xc2b2ae3d27d4eb4fu) + (uint64_t)v->epoch;
    state = wf_mix(state) + (uint64_t)v->sample;
    *top = middle(in_h - h);
    *left = middle(in_w - w);
    *mirror = false;
    if (!v->random)
        return;
    if (r->crop == WF_CROP_RANDOM) {
        *top = (int64_t)draw(&state, (uint64_t)(in_h - h + 2 * r->padding + 1)) - r->padding;
        *left = (int64_t)draw(&state, (uint64_t)(in_w - w + 2 * r->padding + 1)) - r->padding;
    }
    *mirror = r->flip && draw(&state, 2);
}
