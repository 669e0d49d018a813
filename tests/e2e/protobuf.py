"""Protocol buffers taken apart, for tests of what Weft writes in them: event files, ONNX."""
import struct


def fields(data):
    """(number, value) of each field: integers, floats, bytes of the rest."""
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            v |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return v

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, struct.unpack_from("<d", data, at)[0]
            at += 8
        elif key & 7 == 5:
            yield key >> 3, struct.unpack_from("<f", data, at)[0]
            at += 4
        else:
            assert key & 7 == 2, key
            n = varint()
            assert at + n <= len(data)
            yield key >> 3, data[at:at + n]
            at += n
