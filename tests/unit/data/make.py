#!/usr/bin/env python3
"""Makes the files of this folder, which the tests of src/data read: NumPy's own, and what Pillow makes of pictures.

    python make.py      needs numpy; the pictures need Pillow as well
"""
import os

import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def save(name, array, **how):
    with open(name, "wb") as f:
        np.lib.format.write_array(f, array, **how)


# Element i of each array is 0.5 * i - 3, or i for integers; the shape is (5, 2, 3).
grid = np.arange(30).reshape(5, 2, 3)
for kind in ["f2", "f4", "f8"]:
    save(f"{kind}.npy", (0.5 * grid - 3).astype(kind))
for kind in ["i1", "i2", "i4", "i8", "u1", "u2", "u4"]:
    save(f"{kind}.npy", grid.astype(kind))
save("b1.npy", grid % 3 == 0)
save("v2.npy", (0.5 * grid - 3).astype("f4"), version=(2, 0))
save("v3.npy", (0.5 * grid - 3).astype("f4"), version=(3, 0))
save("fortran.npy", np.asfortranarray(grid.astype("f4")))
save("fortran1.npy", np.asfortranarray(np.arange(5).astype("f4")))
save("big.npy", grid.astype(">f4"))
save("object.npy", np.array([{"a": 1}, None], dtype=object))
save("structured.npy", np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]))
save("complex.npy", np.zeros(3, dtype="c8"))
save("scalar.npy", np.float32(3))
save("empty.npy", np.zeros((0, 3), dtype="f4"))
labels = np.arange(5).astype("i8")
np.savez("stored.npz", x=(0.5 * grid - 3).astype("f4"), y=labels)
np.savez_compressed("deflated.npz", x=(0.5 * grid - 3).astype("f4"), y=labels)
np.savez_compressed("one.npz", anything=(0.5 * grid - 3).astype("f4"))
