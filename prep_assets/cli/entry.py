"""Entry point of the `prep-assets` command: runs the CLI, or says which extra to install."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path

EXTRAS = {"typer": "cli", "click": "cli", "rich": "cli", "dagster": "dagster", "torch": "train"}
"""Package → the extra of prep-assets that installs it."""


def _project_folders() -> list[str]:
    """The working directory, and the folder that holds the configuration's."""
    configs = os.environ.get("PREP_ASSETS_CONFIG_DIR")
    folders = [Path.cwd(), *([Path(configs).expanduser().absolute().parent] if configs else [])]
    return [str(folder) for folder in folders]


def main() -> None:
    """Run the command line."""
    # silence the advice of transformers to install torch, which no command needs
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    gc.set_threshold(200_000)  # modules are no garbage, and searching them takes a tenth of a short command
    atexit.register(gc.freeze)  # nor does what the system frees anyway have to be searched at the end
    sys.path += [folder for folder in _project_folders() if folder not in sys.path]  # of own schemas and steps, as `dagster dev` has them
    try:
        from prep_assets.cli.main import app

        app()
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sys.exit(f"error: {error.name} is not installed. Install it with:\n  pip install 'prep-assets[{extra}]'")
