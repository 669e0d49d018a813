"""Exports a byte-level GPT (the decoder of Radford et al. 2019): 6 layers, 384 wide, context 256, 10.8 M parameters.

    python3 examples/gpt.py gpt.pt2                                            needs torch 2.8 or later
    python3 examples/gpt.py small.pt2 --layers 2 --width 64 --heads 2 --context 64

The model takes bytes x and the bytes that follow them, y, both int64[batch, context], and returns its loss; the batch is
chosen when it is trained. examples/gpt.sh trains it.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

from fashion import shorten_paths


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(F.gelu(self.up(self.before_mlp(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context, bytes=256):
        super().__init__()
        self.token, self.place = nn.Embedding(bytes, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, bytes, bias=False)
        self.head.weight = self.token.weight
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 / (2 * layers) ** 0.5 if name.endswith(("out.weight", "down.weight")) else 0.02)

    def forward(self, x, y):
        h = self.token(x) + self.place.weight
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    for name, value in ("layers", 6), ("width", 384), ("heads", 6), ("context", 256), ("batch", 8):
        p.add_argument(f"--{name}", type=int, default=value)
    a = p.parse_args()
    torch.manual_seed(0)
    model = Gpt(a.layers, a.width, a.heads, a.context)
    batch = {0: torch.export.Dim("batch", min=1, max=4096)}
    x = torch.zeros(a.batch, a.context, dtype=torch.int64)
    program = torch.export.export(model.train(), (x, x.clone()), dynamic_shapes={"x": batch, "y": batch})
    shorten_paths(program.graph)
    torch.export.save(program, a.file)
    print(f"{a.file}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")


if __name__ == "__main__":
    main()
