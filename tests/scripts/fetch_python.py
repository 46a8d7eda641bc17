#!/usr/bin/env python3
"""Puts the Python packages that tests need (requirements.txt) into a folder: `fetch_python.py target/python`.

The folder is used through PYTHONPATH. It holds a stamp with the hash of requirements.txt and the Python's version: where it
matches nothing is done. The folder appears in one step, so a test never sees half of it.

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

import pip_tool

REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")
STAMP = ".requirements"


def wanted_stamp():
    """What the stamp says when the folder is right."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    return f"{digest} python {sys.version_info.major}.{sys.version_info.minor}\n"


def has_stamp(folder):
    """Whether the folder holds what requirements.txt asks for now."""
    try:
        return (folder / STAMP).read_text() == wanted_stamp()
    except OSError:
        return False


def install(folder):
    """Fills a scratch folder beside `folder` and moves it into place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".python-", dir=folder.parent) as scratch, pip_tool.Pip() as pip:
        unfinished = pathlib.Path(scratch) / "packages"
        pip.run("install", "--target", str(unfinished), "--requirement", str(REQUIREMENTS))
        (unfinished / STAMP).write_text(wanted_stamp())
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(unfinished, folder)


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Installs the tests' Python packages into a folder.")
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    if has_stamp(folder):
        return 0
    try:
        install(folder)
    except subprocess.CalledProcessError as error:
        print(f"pip could not install {REQUIREMENTS.name} (exit {error.returncode}); its words are above", file=sys.stderr)
        return 1
    except (pip_tool.Unavailable, OSError) as error:
        print(f"could not install {REQUIREMENTS.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
