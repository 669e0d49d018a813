#!/usr/bin/env python3
"""Files that are meant to break a reader: one row each, what is done with it, and the code of the error that must come. Every
command must end by itself within 10 s with one error of that code (or of one of them), in memory of 64 MiB on top of what the
same command takes with a good file and a small multiple of the file's size; the good files are tried again at the end. Prints TAP.

    hostile.py SOURCE WEFT      in an empty folder
"""
import io
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib

SOURCE, WEFT = pathlib.Path(sys.argv[1]), sys.argv[2]
MODEL = SOURCE / "tests/refs/dynamic_batch_mlp/model.pt2"
TABLE = []  # (name, path, how, codes)


def row(group, name, content, how="weights", codes="W0306", suffix=None):
    path = f"{len(TABLE):03d}{suffix or {'weights': '.safetensors', 'model': '.pt2', 'step': '.weft'}.get(how, '.bin')}"
    if content is not None:
        data = content if isinstance(content, bytes) else content.encode()
        pathlib.Path(path).write_bytes(data)
    TABLE.append((f"{group} {name}", path, how, codes.split()))
    return path


# ---- safetensors: groups 1 to 27 ----

def st(header, body=b"", length=None):
    if isinstance(header, dict):
        header = json.dumps(header)
    head = header if isinstance(header, bytes) else header.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(head) if length is None else length) + head + body


def one(dtype="F32", shape=(2,), offsets=(0, 8), name="a"):
    return {name: {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def safetensors_rows():
    raw = '{"a":{"dtype":"F32","shape":[%s],"data_offsets":[%s]}}'
    row(1, "empty", b"")
    row(2, "7 bytes", b"\x08\0\0\0\0\0\0")
    row(3, "no header", struct.pack("<Q", 0))
    for n in 2**63, 2**64 - 1:
        row(4, f"a header of {n}", struct.pack("<Q", n) + b"{}")
    row(5, "a header beyond 100 MB", struct.pack("<Q", 100 * 2**20 + 1) + b"{}")
    row(6, "a header beyond the file", st("{}", length=50))
    row(7, "not an object", st("[1]"))
    row(7, "a byte order mark", st(b"\xef\xbb\xbf{}"))
    row(8, "invalid UTF-8", st(b'{"\xff":1}'), codes="W0306 W0302")
    row(8, "a lone surrogate", st('{"\\ud800":1}'), codes="W0306 W0302")
    row(9, "garbage behind the header's object", st("{}x"), codes="W0306 W0302")
    row(10, "a tensor twice", st('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)), codes="W0306 W0302")
    row(10, "a tensor twice, once escaped", st('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"\\u0061":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)), codes="W0306 W0302")
    row(11, "a key twice", st('{"a":{"dtype":"F32","dtype":"U8","shape":[2],"data_offsets":[0,8]}}', bytes(8)), codes="W0306 W0302")
    row(12, "metadata that are no text", st('{"__metadata__":{"a":1}}'))
    row(13, "an end before its begin", st(raw % ("2", "8,0"), bytes(8)))
    for bad in "-8,0", "0,8.0", "0,1e1", "0,9007199254740993", "0,9223372036854775808":
        row(14, f"offsets {bad}", st(raw % ("2", bad), bytes(8)), codes="W0306 W0302")
    two = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[%s]}}'
    row(15, "tensors that overlap", st(two % "4,12", bytes(12)))
    row(16, "a hole", st(two % "12,20", bytes(20)))
    row(17, "no tensor at 0", st(raw % ("2", "4,12"), bytes(12)))
    row(18, "bytes beyond the last tensor", st(one(), bytes(12)))
    row(18, "bytes that are missing", st(one(), bytes(4)))
    row(19, "a product that wraps to the right size", st(one(shape=(2**62, 4, 2), offsets=(0, 0))))
    row(20, "a dimension of 0 beside one of 2^63", st(raw % ("0,9223372036854775808", "0,0")), codes="W0306 W0302")
    row(21, "rank 65", st(one(shape=(1,) * 65, offsets=(0, 4)), bytes(4)), codes="W0307 W0306")
    row(21, "rank 1,000,000", st(raw % (",".join("1" * 10**6), "0,4"), bytes(4)), codes="W0307 W0306")
    for dtype in "F99", "f32", "C64", "F8_E4M3":
        row(22, f"dtype {dtype}", st(one(dtype), bytes(8)), codes="W0306 W0307")
    row(23, "half a byte", st(one("F4", (3,), (0, 1)), b"\0"), codes="W0306 W0307")
    row(24, "100,000 tensors that are not the model's", st({f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(10**5)}, bytes(10**5)), codes="W0311")
    for name in "x" * 10**6, "a\0b", "a\nb\x1b[31m", "../../a":
        row(25, f"a tensor named {name[:12]!r}", st(one(name=name), bytes(8)), codes="W0311 W0306 W0302")
    os.mkfifo("fifo.safetensors")
    TABLE.append(("27 a FIFO", "fifo.safetensors", "weights", ["W0301"]))
    pathlib.Path("folder.safetensors").mkdir()
    TABLE.append(("27 a folder", "folder.safetensors", "weights", ["W0301", "W0318"]))
    TABLE.append(("27 /dev/zero", "/dev/zero", "weights", ["W0301"]))
    os.symlink("loop.safetensors", "loop.safetensors")
    TABLE.append(("27 a link to itself", "loop.safetensors", "weights", ["W0301"]))
    TABLE.append(("27 nothing", "absent.safetensors", "weights", ["W0301"]))


# ---- archives: groups 28 to 41 ----

def archive(change=None, drop=(), add=(), rename=None, comment=b""):
    """The good model with entries changed (name ends with the key: function of its bytes), dropped, added."""
    out = io.BytesIO()
    with zipfile.ZipFile(MODEL) as a, zipfile.ZipFile(out, "w") as b:
        for i in a.infolist():
            data = a.read(i)
            if any(i.filename.endswith(d) for d in drop):
                continue
            for key, fn in (change or {}).items():
                if i.filename.endswith(key):
                    data = fn(data)
            b.writestr(rename(i.filename) if rename else i.filename, data)
        root = a.namelist()[0].split("/")[0]
        for name, data in add:
            b.writestr(name.replace("ROOT", root), data)
        b.comment = comment
    return out.getvalue()


def patched(find, put, data=None):
    data = bytearray(archive() if data is None else data)
    at = bytes(data).rindex(find)
    data[at:at + len(put(data, at))] = put(data, at)
    return bytes(data)


END, CENTRAL = b"PK\5\6", b"PK\1\2"


def field(find, offset, fmt, value):
    """The archive with a number of the last record `find` replaced."""
    data = bytearray(archive())
    struct.pack_into(fmt, data, bytes(data).rindex(find) + offset, value)
    return bytes(data)


def archive_rows():
    good = archive()
    zips = "W0304 W0305"
    row(28, "no end of the directory", good[:-22], "model", zips)
    row(28, "an end that is an archive's comment", good + b"PK\5\6" + bytes(18), "model", "W0352")
    row(28, "an end behind a comment of 64 KiB", archive(comment=b"PK\5\6" * 16000), "model", zips + " ok")
    row(29, "a local header of another name", good.replace(b"/models/model.json", b"/models/modeL.json", 1), "model", zips)
    row(29, "a size that the local header does not have", field(CENTRAL, 24, "<I", 1), "model", zips)
    row(29, "an offset beyond the file", field(CENTRAL, 42, "<I", 2**31), "model", zips)
    row(30, "entries that overlap", field(CENTRAL, 42, "<I", 0), "model", zips)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("m/archive_format", "pt2")
        z.writestr("m/models/model.json", bytes(50 * 2**20))
    row(31, "50 MB in 50 KB", bomb.getvalue(), "model", zips)
    row(32, "zip64 without its field", field(CENTRAL, 24, "<I", 2**32 - 1), "model", zips)
    root = zipfile.ZipFile(MODEL).namelist()[0].split("/")[0]
    twice = archive(add=[("ROOT/models/model.json", "{}")])
    row(33, "an entry twice", twice, "model", zips)
    for name in "ROOT/../x", "/etc/x", "ROOT\\x", "ROOT/" + "n" * 60000:
        row(34, f"an entry named {name[:12]!r}", archive(add=[(name, "x")]), "model", zips)
    crc = bytearray(good)
    crc[good.index(b'"graph_module"') + 3] ^= 1
    row(35, "a bit of the graph", bytes(crc), "model", zips + " W0302 W0356")
    row(36, "encrypted", field(CENTRAL, 8, "<H", 1), "model", zips)
    row(36, "several disks", field(END, 4, "<H", 1), "model", zips)
    many = archive(add=[(f"ROOT/e{i}", "") for i in range(66000)])
    row(37, "66,000 entries", many, "model", zips + " W0356 W0302 ok")
    row(38, "no archive_format", archive(drop=["archive_format"]), "model", "W0352")
    row(38, "no byteorder", archive(drop=["byteorder"]), "model", "ok")
    row(38, "big-endian", archive({"byteorder": lambda d: b"big"}), "model", "W0352 W0356")
    row(39, "no model", archive(drop=["model.json"]), "model", "W0351")
    row(39, "two models", archive(add=[("ROOT/models/second.json", "{}")]), "model", "W0352 W0356")
    row(39, "a weight without its bytes", archive(drop=["weight_0"]), "model", "W0352 W0356")
    config = "model_weights_config.json"
    row(40, "a pickled weight", archive({config: lambda d: d.replace(b'"use_pickle": false', b'"use_pickle": true', 1)}), "model", "W0354")
    row(41, "a weight of other sizes", archive({"weight_0": lambda d: d[:-4]}), "model", "W0352 W0356")

    def meta(change):
        def edit(data):
            j = json.loads(data)
            change(next(iter(j["config"].values()))["tensor_meta"])
            return json.dumps(j).encode()
        return archive({config: edit})
    def put(key, value):
        return lambda m: m.__setitem__(key, value)
    row(41, "strides beyond the storage", meta(put("strides", [{"as_int": 10**6}, {"as_int": 1}])), "model", "W0352 W0356")
    row(41, "negative strides", meta(put("strides", [{"as_int": -1}, {"as_int": 1}])), "model", "W0352 W0356")
    row(41, "an offset of 2^62", meta(put("storage_offset", {"as_int": 2**62})), "model", "W0352 W0356")
    row(41, "2^40 rows", meta(put("sizes", [{"as_int": 2**40}, {"as_int": 12}])), "model", "W0352")


# ---- graphs: groups 42 to 53 ----

def graph(change):
    def edit(data):
        j = json.loads(data)
        change(j, j["graph_module"]["graph"])
        return json.dumps(j).encode()
    return archive({"models/model.json": edit})


def graph_text(fn):
    return archive({"models/model.json": fn})


def graph_rows():
    form = "W0352 W0356 W0302"
    row(42, "100,000 brackets", graph_text(lambda d: b"[" * 10**5), "model", form)
    row(43, "an array of 10^7", graph_text(lambda d: b"[" + b"1," * (10**7 - 1) + b"1]"), "model", form)
    for number in b"1e999", b"-0", b"9223372036854775808", b"NaN":
        row(44, f"a number {number.decode()}", graph_text(lambda d: d.replace(b'"major": 8', b'"major": ' + number)), "model", form + " W0353")
    node = lambda g, i=1: g["nodes"][i]  # the first linear

    def swap(j, g):
        g["nodes"].reverse()
    row(45, "nodes before what they read", graph(swap), "model", form)

    def itself(j, g):
        node(g)["inputs"][0]["arg"]["as_tensor"]["name"] = node(g)["outputs"][0]["as_tensor"]["name"]
    row(45, "a node that reads itself", graph(itself), "model", form)

    def again(j, g):
        g["nodes"].append(json.loads(json.dumps(node(g))))
    row(45, "a name twice", graph(again), "model", form)
    row(46, "an operator that is none", graph(lambda j, g: node(g).__setitem__("target", "torch.ops.aten.nosuch.default")), "model", "W0355")
    row(46, "an operator with too few arguments", graph(lambda j, g: node(g)["inputs"].pop()), "model", form + " W0402 W0401 W0355 ok")
    row(46, "an operator without arguments", graph(lambda j, g: node(g)["inputs"].clear()), "model", form + " W0402 W0401")
    row(46, "an argument of another kind", graph(lambda j, g: node(g)["inputs"][0].__setitem__("arg", {"as_bool": True})), "model", form + " W0402 W0401")

    def dtype(j, g):
        next(iter(g["tensor_values"].values()))["dtype"] = 99
    row(46, "dtype 99", graph(dtype), "model", form + " W0307")
    ranges = lambda j: next(iter(j["range_constraints"].values()))
    row(47, "a size from 5 to 2", graph(lambda j, g: ranges(j).update(min_val=5, max_val=2)), "model", form + " W0360 W0411 W0401")
    row(47, "a size that nothing declares", graph(lambda j, g: j["range_constraints"].clear()), "model", form + " W0360 ok")

    def recorded(j, g):
        name = node(g)["outputs"][0]["as_tensor"]["name"]
        g["tensor_values"][name]["sizes"][-1] = {"as_int": 7}
    row(48, "a recorded shape that is not the inferred", graph(recorded), "model", form + " W0401 ok")
    deep = lambda j, g: g["nodes"].extend(json.loads(json.dumps(node(g, -1))) for _ in range(10**5))
    row(51, "100,000 equal nodes", graph(deep), "model", form)

    def alias(j, g):
        specs = j["graph_module"]["signature"]["input_specs"]
        params = [s for s in specs if "parameter" in s]
        params[1]["parameter"]["parameter_name"] = params[0]["parameter"]["parameter_name"]
    row(52, "a parameter under another's name", graph(alias), "model", form + " W0401 W0408")
    row(53, "a schema of the future", graph(lambda j, g: j["schema_version"].__setitem__("major", 9)), "model", "W0353")


# ---- data: groups 54 to 57 ----

def npy(head, body=b"", version=b"\1\0", length=None):
    head = head.encode() + b"\n"
    fmt = "<H" if version == b"\1\0" else "<I"
    return b"\x93NUMPY" + version + struct.pack(fmt, len(head) if length is None else length) + head + body


def data_rows():
    d = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }"
    bad = "W0260 W0261 W0254 W0306"
    row(54, "npy: a header beyond the file", npy(d % ("<f4", "False", "(2, 12)"), length=65535), "x", bad, ".npy")
    row(54, "npy: a header of 20,000", npy(d % ("<f4", "False", "(2, 12)") + " " * 20000, bytes(96)), "x", bad, ".npy")
    for descr in "|O", ">f8", "[('a', '<f4')]", "<c8", "<U4":
        row(55, f"npy: {descr}", npy(d % (descr, "False", "(2, 12)"), bytes(400)), "x", bad, ".npy")
    row(55, "npy: code for a header", npy("__import__('os').system('touch hacked')", bytes(96)), "x", bad, ".npy")
    row(56, "npy: Fortran order", npy(d % ("<f4", "True", "(2, 12)"), bytes(96)), "x", bad, ".npy")
    for shape in "(9223372036854775808,)", "(-1, 12)", "(4611686018427387904, 12)", "()", "(2, 12", "(0, 12)":
        row(56, f"npy: shape {shape}", npy(d % ("<f4", "False", shape), bytes(96)), "x", bad + " W0256 W0205", ".npy")
    row(56, "npy: cut off", npy(d % ("<f4", "False", "(40, 12)"), bytes(95)), "x", bad, ".npy")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x.npy", npy(d % ("<f4", "False", "(8388608, 12)"), bytes(384 * 2**20)))
    row(56, "npz: 400 MB in 400 KB", bomb.getvalue(), "x", "W0263 " + bad, ".npz")
    row(57, "tokens: half a token", b"abc", "tokens", "W0260 W0205 W0261", ".bin")
    row(57, "tokens: none", b"", "tokens", "W0260 W0205 W0261 W0256", ".bin")
    header = struct.pack("<256i", 20240520, 1, 100, *([0] * 253))
    row(57, "tokens: a header that counts more than there is", header + bytes(20), "tokens", "W0260 W0261 W0205", ".bin")
    row(57, "tokens: another version", struct.pack("<256i", 20240520, 9, 10, *([0] * 253)) + bytes(2000), "tokens", "W0260 W0261", ".bin")
    row(57, "tokens: beyond the vocabulary", struct.pack("<2000H", *([60000] * 2000)), "tokens", "W0258 W0260", ".bin")
    row(57, "idx: sizes that wrap", struct.pack(">4B3I", 0, 0, 8, 3, 2**31, 2**31, 4), "x", "W0308", ".idx")
    row(57, "idx: gzip that is none", b"\x1f\x8b" + bytes(30), "x", "W0308 W0260", ".gz")
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    row(57, "idx: gzip of 200 MB", packed.compress(struct.pack(">4B3I", 0, 0, 8, 3, 10, 3, 4) + bytes(200 * 2**20)) + packed.flush(), "x", "W0308 W0260", ".gz")


# ---- checkpoints, steps, settings: groups 58 to 60 ----

def other_rows():
    step = pathlib.Path("good.weft").read_bytes()
    for n in 0, 7, 22, len(step) // 2, len(step) - 1:
        row(59, f"a step of {n} bytes", step[:n], "step", "W0151 W0304 W0306 W0356 W0361")
    for i in range(40):
        bad = bytearray(step)
        bad[i * (len(step) - 1) // 39] ^= 1 << i % 8
        row(59, f"a step with a bit turned at {i * (len(step) - 1) // 39}", bytes(bad), "step", "W0151 W0304 W0302 ok")
    for text, code in (("lerning-rate: 1", "W0117"), ("lr: -1", "W0103"), ("lr: .nan", "W0303"), ("epochs: 1e9999", "W0303"),
                       ("epochs: 1.5", "W0102"), ("- a", "W0118"), ("lr: 1\nlr: 2", "W0303"), ("a: &x 1\nb: *x", "W0303"),
                       ("lr: [" * 50, "W0303"), ("lr: \"", "W0303"), ("config: other.yaml", "W0118 W0117"), ("\xff", "W0303 W0118")):
        row(60, f"settings {text[:16]!r}", text.encode("latin1"), "config", code, ".yaml")


def command(path, how):
    good = "good.safetensors"
    return {
        "weights": [WEFT, "train", "good.pt2", "--data", good, "--steps", "1", "--weights", path],
        "model": [WEFT, "train", path, "--data", good, "--steps", "1"],
        "step": [WEFT, "train", path, "--data", good, "--steps", "1"],
        "x": [WEFT, "train", "good.pt2", "--data", f"x={path}", "--data", f"y={good}", "--steps", "1"],
        "tokens": [WEFT, "train", "gpt.pt2", "--data", f"x,y={path}", "--steps", "1"],
        "config": [WEFT, "train", "good.pt2", "--data", good, "--steps", "1", "--config", path],
    }[how]


def attempt(words):
    """Exit code, stderr, peak memory in MiB."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(w, 2)
        os.close(r)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        import signal
        signal.alarm(10)  # survives exec: a hang ends as a signal
        os.execv(words[0], words)
    os.close(w)
    with os.fdopen(r, errors="replace") as f:
        said = f.read()
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), said, usage.ru_maxrss / 1024


def main():
    os.environ["WEFT_THREADS"] = "1"
    warnings.simplefilter("ignore")  # entries twice are meant
    os.symlink(MODEL, "good.pt2")
    os.symlink(SOURCE / "examples/gpt_tiny.pt2", "gpt.pt2")
    subprocess.run([sys.executable, SOURCE / "tests/e2e/tensors.py", "good.safetensors", "x=F32:40x12:rand", "y=I64:40:mod4"], check=True)
    subprocess.run([WEFT, "compile", "good.pt2", "-o", "good.weft"], check=True, stderr=subprocess.DEVNULL)
    for rows in safetensors_rows, archive_rows, graph_rows, data_rows, other_rows:
        rows()
    attempt(command("good.pt2", "model"))
    base = attempt(command("good.pt2", "model"))[2]
    bad = 0
    for number, (name, path, how, codes) in enumerate(TABLE, 1):
        code, said, memory = attempt(command(path, how))
        size = os.path.getsize(path) / 2**20 if os.path.isfile(path) else 0
        errors = [line for line in said.splitlines() if line.startswith("error")]
        wrong = []
        if code == 0 and "ok" in codes:
            errors = ["ok"]
        elif code not in (1, 2):
            wrong.append(f"exit code {code}")
        elif len(errors) != 1 or not any(errors[0].startswith(f"error[{c}]") for c in codes):
            wrong.append(f"not one error of {' '.join(codes)}")
        # a tree of JSON takes ten times its text; graphs and headers of many tensors are little else
        if memory > base + 64 + (10 if path.endswith(".pt2") or "100,000" in name else 2) * size:
            wrong.append(f"{memory:.0f} MiB, where {base:.0f} are usual")
        if len(errors) == 1 and len(errors[0]) > 2000:
            wrong.append(f"an error of {len(errors[0])} letters")
        if any(c < " " and c not in "\n\t" for c in said):
            wrong.append("control characters in the error")
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}")
        if wrong:
            bad = 1
            print(f"#   {path}: {'; '.join(wrong)}\n" + "\n".join(f"#   {line[:300]!r}" for line in said.splitlines()[-4:]))
    code, said, _ = attempt(command("good.pt2", "model"))
    print(f"{'ok' if code == 0 else 'not ok'} {len(TABLE) + 1} - afterwards a good file works")
    fine = not pathlib.Path("hacked").exists()
    print(f"{'ok' if fine else 'not ok'} {len(TABLE) + 2} - and no code was run")
    print(f"1..{len(TABLE) + 2}")
    sys.exit(bad or code or not fine)


main()
