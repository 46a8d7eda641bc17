"""Finds a pip to fetch packages with, also where the system's Python has none or is externally managed (PEP 668).

`pip download` and `pip install --target` write only into a folder of ours, so an externally managed Python allows them.
"""

import pathlib
import subprocess
import sys
import tempfile


class Unavailable(Exception):
    """No pip can be had; the text says what to install."""


def _works(command):
    try:
        return subprocess.run([*command, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Pip:
    """A pip command. A context manager: a temporary virtual environment, if one had to be made, goes with it."""

    def __init__(self):
        self._scratch = None
        self.command = [sys.executable, "-m", "pip"]

    def __enter__(self):
        if _works(self.command):
            return self
        self._scratch = tempfile.TemporaryDirectory(prefix="plimsoll-pip-")
        folder = pathlib.Path(self._scratch.name) / "venv"
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, check=False)
        self.command = [str(folder / "bin" / "python3"), "-m", "pip"]
        if made.returncode != 0 or not _works(self.command):
            self._scratch.cleanup()
            raise Unavailable(
                f"{sys.executable} has no pip, which fetches the packages. Install it and try again: "
                "sudo apt-get install python3-pip"
            )
        return self

    def __exit__(self, *_):
        if self._scratch:
            self._scratch.cleanup()

    def run(self, *arguments):
        """Runs pip; its words go to stderr, so that stdout stays ours. Raises CalledProcessError when it fails."""
        subprocess.run([*self.command, *arguments, "--disable-pip-version-check"], stdout=sys.stderr, check=True)
