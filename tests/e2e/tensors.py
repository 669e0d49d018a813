#!/usr/bin/env python3
"""Writes a safetensors file for tests, with the standard library alone.

    tensors.py FILE NAME=DTYPE:SHAPE:FILL...       x=F32:40x12:rand  y=I64:40:mod4  bad=F32:40x12:rand,5=nan

FILL is rand (uniform in -1..1, the same in every run), zero, or modN (0, 1, .. N-1, 0, ..), then INDEX=VALUE where
single elements are to be something else. Scripts of tests import read, write and values from here.
"""
import json
import struct
import sys

CODES = {"F32": "f", "F64": "d", "I64": "q", "I32": "i", "U8": "B"}


def elements(count, fill):
    words = fill.split(",")
    state = 12345
    out = []
    for i in range(count):
        state = (state * 1103515245 + 12345) % 2147483648
        out.append(state / 1073741824 - 1 if words[0] == "rand" else i % int(words[0][3:]) if words[0][:3] == "mod" else 0)
    for word in words[1:]:
        index, value = word.split("=")
        out[int(index)] = float(value) if "n" in value or "." in value else int(value)
    return out


def read(path):
    """{name: (dtype, shape, bytes)} of a safetensors file, in the order of its header."""
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    at = {k: v for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}
    return {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in at.items()}


def values(tensor):
    """The numbers of a tensor that read gave."""
    dtype, _, data = tensor
    return struct.unpack(f"<{len(data) // struct.calcsize(CODES[dtype])}{CODES[dtype]}", data)


def write(path, tensors, align=8):
    """The contrary of read; align=1: data begin wherever the header ends."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % align)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def main():
    tensors = {}
    for spec in sys.argv[2:]:
        name, rest = spec.split("=", 1)
        dtype, shape, fill = rest.split(":")
        sizes = [int(s) for s in shape.split("x")] if shape else []
        count = 1
        for s in sizes:
            count *= s
        tensors[name] = dtype, sizes, struct.pack(f"<{count}{CODES[dtype]}", *elements(count, fill))
    write(sys.argv[1], tensors)


if __name__ == "__main__":
    main()
