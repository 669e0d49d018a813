#!/usr/bin/env python3
"""Exports a regression on a table, examples/houses.pt2: three numbers and a town, which gets an embedding, give a price.

    python3 examples/houses.py        (needs torch; writes examples/houses.pt2)

examples/houses.sh trains it on examples/houses.csv, as examples/houses.yaml says.
"""
import os

import torch
import torch.nn as nn

from fashion import HERE, shorten_paths


class Houses(nn.Module):
    def __init__(self):
        super().__init__()
        self.town = nn.Embedding(6, 4)
        self.net = nn.Sequential(nn.Linear(3 + 4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x, town):
        return self.net(torch.cat([x, self.town(town)], 1))


def main():
    torch.manual_seed(0)
    batch = {0: torch.export.Dim("batch", min=1)}
    example = (torch.zeros(32, 3), torch.zeros(32, dtype=torch.int64))
    program = torch.export.export(Houses().train(), example, dynamic_shapes={"x": batch, "town": batch})
    shorten_paths(program.graph)
    torch.export.save(program, os.path.join(HERE, "houses.pt2"))


if __name__ == "__main__":
    main()
