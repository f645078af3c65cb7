"""An export's folder: written beside its place by one export at a time, and renamed when it is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prep_assets.errors import ConfigError
from prep_assets.stores.folders import whole_folder


def check_folder(out: Path) -> None:
    """Raises:
    ConfigError: an export cannot stand at `out`; the message says why.
    """
    place = out.resolve()
    if place == Path.cwd():
        raise ConfigError(
            f"cannot export to {str(out)!r}: it is the current folder, and an export puts a new one in place. Name another folder"
        )
    above = next(path for path in (place, *place.parents) if path.exists() or path.is_symlink())
    if not above.is_dir():
        what = "is a file" if above == place else f"is below {above}, which is a file"
        raise ConfigError(f"cannot export to {out}: it {what}, and an export is a folder. Name another folder")
    if above == place and any(place.iterdir()):
        raise ConfigError(f"{out} is not empty: an export never mixes with what is there. Remove it, or name another folder")


def whole(out: Path, write: Callable[[Path], None]) -> None:
    """Have a folder written beside `out`, synced to disk and renamed.

    Raises:
        ConfigError: another export to it is under way, or the folder above cannot be written to.
    """
    place = out.resolve()
    busy = ConfigError(f"another export to {place} is under way. Wait until it ends, or name another folder")
    with whole_folder(place, lambda: check_folder(out), busy=busy) as work:
        write(work)
