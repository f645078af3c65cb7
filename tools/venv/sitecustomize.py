"""Runs when Python starts in this checkout's own `.venv`; `make setup` puts it there, and no wheel has it.

`dagster asset materialize` reads neither `pyproject.toml` nor `workspace.yaml`, and forgets its history where DAGSTER_HOME is not set. Here it finds the
project's definitions, and writes its history beside the project's stores from whichever folder it is started. All other programs are left alone, and
whoever names another module or another DAGSTER_HOME gets that.
"""

import os
import sys

MODULE, HOME = "DAGSTER_MODULE_NAME", "DAGSTER_HOME"
POINTERS = ("-m", "-f", "-a", "-d", "--module-name", "--python-file", "--package-name", "--attribute", "--autoload-defs-module-name", "--working-directory")


def settings(argv, folder, environ, root):
    """Variables to set for a program that is started in `folder` with `argv`."""
    found = {}
    program = os.path.basename(argv[0]) if argv else ""
    if program not in ("dagster", "dg"):
        return found
    pointed = any(word.startswith(POINTERS) for word in argv[2:])
    ours = folder == root or folder.startswith(root + os.sep)
    if program == "dagster" and argv[1:2] == ["asset"] and ours and not pointed and MODULE not in environ:
        found[MODULE] = "prep_assets.definitions"
    named = any("prep_assets" in word for word in argv[2:])
    own = os.path.isfile(os.path.join(folder, "dagster.yaml")) and not ours
    home = os.path.join(root, ".dagster")
    if (ours or named) and not own and HOME not in environ and os.path.isfile(os.path.join(home, "dagster.yaml")):
        found[HOME] = home
    return found


def _apply():
    found = settings(getattr(sys, "argv", []), os.getcwd(), os.environ, os.path.abspath(os.path.join(__file__, *[os.pardir] * 5)))
    if found:
        import warnings

        warnings.filterwarnings("ignore", message="Function `.*` is superseded")
        os.environ.update(found)


if __name__ == "sitecustomize":
    try:
        _apply()
    except OSError:  # the working directory is gone
        pass
