#!/usr/bin/env python3
"""Writes a changed copy of a .pt2 file: repack.py IN OUT [--deflate] [NAME=>OLD=>NEW...]

In every entry whose name ends with NAME the bytes OLD become NEW; an empty OLD removes the entry.
"""
import sys
import zipfile


def main():
    source, target, *changes = sys.argv[1:]
    deflate = "--deflate" in changes
    changes = [c.split("=>", 2) for c in changes if c != "--deflate"]
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            data = old.read(name)
            gone = False
            for suffix, before, after in changes:
                if name.endswith(suffix):
                    gone = gone or not before
                    data = data.replace(before.encode(), after.encode()) if before else data
            if not gone:
                new.writestr(name, data)


if __name__ == "__main__":
    main()
