"""Nothing grows: 10,000 steps of one session, 1,000 sessions opened and closed. Resident memory is compared after warming up: allocators
keep some pages, but a leak of one tensor or one plan per step or session would show many times over."""
import os

import torch
import torch.nn as nn

from common import run
import weft

# A megabyte: 10,000 steps that kept 105 bytes each, or 1,000 sessions that kept 1 kB each, would exceed it; the weights of a session here
# are 340 kB, its slab more, so what a session holds cannot stay unseen.
BOUND = 1 << 20


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def make():
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    x = torch.randn(16, 64)
    return weft.export(model, (x, x), loss="mse"), (x, x)


def test_ten_thousand_steps_do_not_grow():
    program, batch = make()
    session = weft.Session(program, dict(type="AdamW", lr=1e-4))
    for _ in range(1000):
        session.step(batch)
    before = resident()
    for _ in range(10000):
        session.step((torch.randn(16, 64), batch[1]))
    grown = resident() - before
    assert session.steps == 11000
    assert grown < BOUND, f"{grown} bytes more after 10,000 steps"
    print(f"# 10,000 steps: {grown} bytes")


def test_a_thousand_sessions_do_not_leak():
    program, batch = make()

    def one():
        with weft.Session(program, dict(type="AdamW", lr=1e-4), threads=1) as session:
            session.step(batch)
            session.state_dict()

    for _ in range(50):
        one()
    before = resident()
    for _ in range(1000):
        one()
    grown = resident() - before
    assert grown < BOUND, f"{grown} bytes more after 1,000 sessions"
    print(f"# 1,000 sessions: {grown} bytes")


run(globals())
