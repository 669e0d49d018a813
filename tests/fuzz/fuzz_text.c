/* Graph text: whatever parses must print to text that parses to the same text again. */
#include "ir/ir.h"
#include "ops/ops.h"
#include "seeds.h"

typedef struct {
    WfCtx *ctx;
    const char *text;
    char *printed;
    WfArena *arena;
} Job;

static void parse_it(void *arg)
{
    Job *j = arg;
    WfStr s = {.arena = j->arena};
    wf_print(wf_parse(j->ctx, j->arena, j->text, "input"), &s);
    j->printed = s.at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    wf_ops_init();
    Job first = {.ctx = ctx, .arena = wf_arena_new(ctx)};
    char *text = wf_arena_strndup(first.arena, (const char *)data, size);
    first.text = text;
    if (wf_guard(ctx, parse_it, &first) == WEFT_OK) {
        Job second = {.ctx = ctx, .arena = first.arena, .text = first.printed};
        if (wf_guard(ctx, parse_it, &second) != WEFT_OK || strcmp(first.printed, second.printed))
            abort();
    }
    wf_ctx_free(ctx);
    return 0;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    static const char *const texts[] = {
        "graph op {\n}\n",
        "graph aten {\n  symbol s0 in [2, inf]\n  input %w : f32[3, 4] strided = param \"w\" frozen also "
        "\"tied.w\"\n"
        "  input %b : f32[3] = buffer \"b\\\"\\n\" transient\n  input %x : f32[8*s0+1, 4] = user \"x\"\n"
        "  %y : f32[8*s0+1, 3] = aten.linear(%x, %w, %b) no_grad  # net.py:31\n"
        "  %c : f32[8*s0+1, 3] = aten.clamp(%y, max=inf)\n  output user \"0\" %c\n}\n",
        "graph joint {\n  input %p : f32[2, 3] @(1,0) = param \"p\"\n"
        "  input %s : f32[2, 3] = state \"p.m\" of \"p\" fill 0.5\n  input %l : f32[] = scalar \"group0.lr\" "
        "of \"0\"\n"
        "  %t : f32[2, 3] = prim.add(%p, %s)\n  %e : f32[2, 3] = prim.expand(%l, [2, 3])\n"
        "  %r : f32[2] = prim.sum(%t, [1])\n  %v : f32[3, 2] = prim.permute(%e, [1, 0])\n"
        "  %k : f32[6] = prim.reshape(%v, [6])\n  output update \"p.m\" %t\n  output grad \"p\" None\n"
        "  output loss \"loss\" %r\n}\n",
        "graph prim {\n  input %a : f32[4, 8] = user \"a\"\n  input %i : i64[4] = user \"i\"\n"
        "  %z : f32[4, 8] = prim.full([4, 8], 0.0, f32)\n  %c : bool[4, 8] = prim.lt(%a, %z)\n"
        "  %w : f32[4, 8] = prim.where(%c, %z, %a)\n  %n : f32[4, 8] = prim.rand([4, 8], 3)\n"
        "  %t : f32[8, 4] = prim.permute(%w, [1, 0])\n  %m : f32[4, 4] = prim.matmul(%n, %t)\n"
        "  output user \"0\" %m\n}\n",
        "graph loop {\n  input %a : f32[2, 3] = user \"a\"\n"
        "  %b : f32[2, 3], %s : f32[] = loop.nest([%a], graph prim {\n    input %a : f32[2, 3] = user \"a\"\n"
        "    %t : f32[2, 3] = prim.mul(%a, %a)\n    %u : f32[] = prim.sum(%t, [0, 1])\n    output user \"\" "
        "%t\n"
        "    output user \"\" %u\n  }, [2, 3], [0, 1])  # a.py:3\n  output user \"0\" %b\n  output user "
        "\"1\" %s\n}\n",
        "graph aten {\n  input %x : f32[4, 6] = user \"x\"\n  %a : f32[4, 2], %b : f32[4, 4] = "
        "aten.split_with_sizes(%x, [2, 4], 1)\n  %c : f32[4, 6] = aten.cat([%b, %a], -1)\n"
        "  %d : f32[4, 6] = aten.softmax.int(%c, -1, f32)\n  output user \"0\" %d\n}\n"};
    seeds_from_texts(texts, sizeof texts / sizeof *texts, add);
}
