"""Entry point of the `prep-assets` command: runs the CLI, or says which extra to install."""

from __future__ import annotations

import atexit
import codecs
import gc
import os
import sys
from io import TextIOWrapper
from pathlib import Path

from prep_assets.errors import not_installed
from prep_assets.own_process import set_up

MARKS = {
    "✓": "+",
    "✗": "x",
    "→": "->",
    "…": "...",
    "–": "-",
    "−": "-",
    "─": "-",
    "│": "|",
    "·": "-",
    "⟦": "[[",
    "⟧": "]]",
    "⟪": "<<",
    "⟫": ">>",
}
MARKS |= {"⟨": "<", "⟩": ">", "⏎": "\\n", "⇥": "\\t"} | {chr(0x2400 + code): f"^{chr(0x40 + code)}" for code in range(32)}
"""Signs of the output in ASCII."""


def _project_folders() -> list[str]:
    """The working directory, and the folder that holds the configuration's."""
    configs = os.environ.get("PREP_ASSETS_CONFIG_DIR")
    folders = [Path.cwd(), *([Path(configs).expanduser().absolute().parent] if configs else [])]
    return [str(folder) for folder in folders]


def main() -> None:
    """Run the command line."""
    codecs.register_error("prep-assets", in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="prep-assets")
    # silence the advice of transformers to install torch, which no command needs
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    set_up()
    atexit.register(gc.freeze)  # what the system frees anyway does not have to be searched at the end
    sys.path += [folder for folder in _project_folders() if folder not in sys.path]  # of own schemas and steps, as `dagster dev` has them
    try:
        from prep_assets.cli.main import app

        app()
    except ModuleNotFoundError as error:
        if not (remedy := not_installed(error)):
            raise
        sys.exit(f"error: {remedy}")


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that the encoding of a stream does not have, such as those of file names that are no text."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(MARKS.get(char) or char.encode("ascii", "backslashreplace").decode() for char in text), error.end
