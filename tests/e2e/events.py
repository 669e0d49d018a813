#!/usr/bin/env python3
"""Reads a TensorBoard event file with nothing but the format's description: checks both masked CRC-32Cs of every record and
prints one line per value: STEP TAG VALUE (nine digits), after the line `version TEXT` of the first record; `start STEP` for a
session log. Exits with 1 at the first record that is wrong."""
import struct
import sys

from protobuf import fields


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c ^= b
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def main():
    data, at, first = open(sys.argv[1], "rb").read(), 0, True
    assert crc32c(b"123456789") == (((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    while at < len(data):
        size, crc = struct.unpack_from("<QI", data, at)
        if crc != crc32c(data[at:at + 8]):
            sys.exit("a length is wrong")
        body = data[at + 12:at + 12 + size]
        if struct.unpack_from("<I", data, at + 12 + size)[0] != crc32c(body):
            sys.exit("a record is wrong")
        at += 16 + size
        event = dict(fields(body))
        if first:
            print("version", event[3].decode())
        first = False
        if 7 in event:
            print("start", event[2])
        for _, value in fields(event.get(5, b"")):
            v = dict(fields(value))
            print(event[2], v[1].decode(), "%.9g" % v[2])


main()
