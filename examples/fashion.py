#!/usr/bin/env python3
"""Exports the network that `make demo` trains on Fashion-MNIST: two convolutions, two linear layers, 0.2 M parameters.

    python examples/fashion.py        (needs torch; writes examples/fashion.pt2)

The loss is not part of the graph: `weft train --loss cross_entropy` adds it. Nothing else here is special to Weft: a
module, an example batch, torch.export.
"""
import os
import re

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def shorten_paths(graph):
    """Error messages name the line of this file; the folders of this machine say nothing to anybody else."""
    for node in graph.nodes:
        trace = node.meta.get("stack_trace")
        if trace:
            trace = trace.replace(HERE + os.sep, "")
            node.meta["stack_trace"] = re.sub(r'"[^"]*/site-packages/', '"', trace)


def main():
    torch.manual_seed(0)
    exported = torch.export.export(Net().train(), (torch.zeros(128, 1, 28, 28),))
    shorten_paths(exported.graph)
    path = os.path.join(HERE, "fashion.pt2")
    torch.export.save(exported, path)
    print(f"wrote {path}, {os.path.getsize(path) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
