"""``python -m planted.clean FOLDER KIND…``: build workspaces as the code is, and print which a check stops; the kind is the first word of a name."""

from __future__ import annotations

import sys
from pathlib import Path

from planted.trial import Stopped, stores_of
from planted.workspaces import workspaces
from prep_assets_tests.effort import in_memory, without_fsync

if __name__ == "__main__":
    in_memory()
    without_fsync()
    folder, *kinds = sys.argv[1:]
    for name, given in workspaces(Path(folder)).items():
        if name.split()[0] in kinds:
            (room := Path(folder) / "stores" / name).mkdir(parents=True)
            try:
                stores_of(given.configs, room, sharded=given.sharded)
            except Stopped as stopped:
                print(name, *stopped.args)
