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

# Pictures, and what torchvision's Resize, CenterCrop and PILToTensor make of them: pictures/CLASS/*; pictures.expected holds, for
# each picture, in three channels and in one, three times [c, 16, 16] bytes.
from PIL import Image
from torchvision import transforms as T

y, x = np.mgrid[0:45, 0:61]
rgb = np.stack([4 * x, 5 * y, (3 * x + 2 * y) % 256], -1).astype("u1")
rgb[10:20, 30:40] = [250, 10, 30]
picture = Image.fromarray(rgb)
os.makedirs("pictures/dog", exist_ok=True)
os.makedirs("pictures/cat", exist_ok=True)
picture.save("pictures/dog/rgb.jpg", quality=90)
picture.transpose(Image.Transpose.ROTATE_90).save("pictures/dog/tall.jpeg", quality=80, subsampling=0, progressive=True)
picture.convert("L").save("pictures/dog/grey.jpg")
picture.convert("CMYK").save("pictures/dog/cmyk.JPG", quality=95)
picture.save("pictures/cat/rgb.png")
rgba = picture.convert("RGBA")
rgba.putalpha(Image.fromarray((x * 4).astype("u1")))
rgba.save("pictures/cat/alpha.png")
picture.quantize(16).save("pictures/cat/palette.PNG")
picture.convert("L").save("pictures/cat/grey.png")
picture.convert("1").save("pictures/cat/bits.png")
picture.resize((13, 9)).save("pictures/cat/small.png")
with open("pictures.expected", "wb") as f:
    for folder in ["cat", "dog"]:
        for name in sorted(os.listdir(f"pictures/{folder}")):
            image = Image.open(f"pictures/{folder}/{name}")
            for mode in ["RGB", "L"]:
                for steps in [T.Resize(16), T.CenterCrop(16)], [T.Resize(20), T.CenterCrop(16)], [T.Resize((16, 24)), T.CenterCrop(16)]:
                    f.write(T.Compose(steps + [T.PILToTensor()])(image.convert(mode)).numpy().tobytes())
