"""What packages add, by entry points of thirteen groups, read when a command first needs one:

    [project.entry-points."prep_assets.schemas"]
    tickets = "acme_prep.tickets"

An entry point names a module, whose import registers what it adds; its own name is free. In `families` its name is the family's; in `commands` that of the
command, whose function it names; in `addresses` and `backends` the scheme of those that it opens. The parts of this package are entry points of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prep_assets.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PACKAGE, _OWN = "prep-assets", __name__.partition(".")[0]
GROUPS = (
    "schemas", "exports", "steps", "checks", "commands", "families", "addresses", "backends", "tokenizers", "templates", "lists", "verdicts", "assets",
)  # fmt: skip


@cache
def _ours() -> tuple[EntryPoint, ...]:
    """Those of this package. A checkout has them in its `pyproject.toml`: the metadata of an editable install are as old as the install."""
    from importlib.metadata import EntryPoint, PackageNotFoundError, distribution

    project = Path(__file__).parents[1] / "pyproject.toml"
    text = project.read_text("utf-8") if project.is_file() else ""
    if f'\nname = "{PACKAGE}"\n' in text:
        import tomllib

        text = text[text.index("[project.entry-points.") : text.index("\n[tool.")]  # all of it takes three times as long
        groups = tomllib.loads(text)["project"]["entry-points"]
        return tuple(EntryPoint(name, value, group) for group, values in groups.items() for name, value in values.items())
    try:
        found = tuple(distribution(PACKAGE).entry_points)
    except PackageNotFoundError:
        found = ()
    if not any(entry.group == "prep_assets.families" for entry in found):
        raise ConfigError(
            f"the metadata of {PACKAGE} are missing, or older than its code. Install it again: pip install --force-reinstall {PACKAGE}"
        )
    return found


@cache
def _others() -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points

    groups = entry_points()
    found = (entry for group in GROUPS for entry in groups.select(group=f"prep_assets.{group}"))
    return tuple(entry for entry in found if not _is_ours(entry))


def _is_ours(entry: EntryPoint) -> bool:
    """Whether an entry point names a module of this package. To ask for the name of its distribution would parse that one's metadata."""
    return entry.value.partition(".")[0] == _OWN


def package_of(entry: EntryPoint) -> str:
    """The package that has an entry point, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else PACKAGE


def package_of_module(module: str) -> str:
    """The package, with its version, that adds what a module defines; empty for this one."""
    top = module.partition(".")[0]
    if top == _OWN:
        return ""
    return next((package_of(entry) for entry in _others() if entry.module.partition(".")[0] == top), top)


def ours(group: str) -> dict[str, EntryPoint]:
    """Name → entry point of this package, in the order of `pyproject.toml`."""
    return {entry.name: entry for entry in _ours() if entry.group == f"prep_assets.{group}"}


def added(group: str, taken: Collection[str]) -> dict[str, EntryPoint]:
    """Name → entry point of other packages, for groups whose names count. `taken`: the names of ours.

    Raises:
        ConfigError: a name is taken, or two packages use it.
    """
    found: dict[str, EntryPoint] = {}
    for entry in _others():
        if entry.group != f"prep_assets.{group}":
            continue
        if entry.name in taken or entry.name in found:
            other = package_of(found[entry.name]) if entry.name in found else PACKAGE
            raise ConfigError(f"{other} and {package_of(entry)} both add {entry.name!r} to {entry.group}. Uninstall one of them")
        found[entry.name] = entry
    return found


def entries(group: str) -> dict[str, EntryPoint]:
    """Name → entry point of a group whose names count: ours, then those of other packages."""
    known = ours(group)
    return {**known, **added(group, known)}


def load(entry: EntryPoint) -> Any:
    """What an entry point names.

    Raises:
        ConfigError: it belongs to another package, and loading fails, or what it adds is there already.
    """
    if _is_ours(entry):
        return entry.load()
    try:
        return entry.load()
    except Exception as error:  # importing a module may raise anything
        package = package_of(entry)
        raise ConfigError(
            f"the package {package} cannot be used: its entry point {entry.name} = {entry.value!r} of {entry.group} raised "
            f"{type(error).__name__}: {error}. Correct it, or remove it: pip uninstall {package.partition(' ')[0]}"
        ) from error


def part_of(entry: EntryPoint, name: str) -> Any:
    """An attribute of the module that an entry point names; of a package, also one of its module of that name: `ASSETS` of ``assets``.

    Raises:
        ConfigError: it cannot be loaded, or has no such attribute.
    """
    module, place = load(entry), f"{entry.module}.{name.lower()}"
    if not hasattr(module, name) and hasattr(module, "__path__") and find_spec(place):
        module = import_module(place)
    if not hasattr(module, name):
        raise ConfigError(f"{package_of(entry)}: {entry.value}, an entry point of {entry.group}, has no {name}. See docs/extending.md")
    return getattr(module, name)


def of_extension(group: str, name: str) -> Any:
    """What an entry point of one extension of ours names, in a group that no other package adds to; `None` where the extension is not there."""
    entry = ours(group).get(name)
    return None if entry is None else load(entry)


def load_all(group: str) -> tuple[Any, ...]:
    """Import every module of a group, ours first."""
    return tuple(load(entry) for entry in (*_ours(), *_others()) if entry.group == f"prep_assets.{group}")


_CLAIMED: dict[tuple[str, str], str] = {}
"""Kind and name → the module that registered it."""


def claim(kind: str, names: Iterable[str], function: Callable[..., Any]) -> None:
    """Note that the module of `function` registers these names. One that is imported again may register its names again.

    Raises:
        ConfigError: another module has registered one of them.
    """
    claimed = {(kind, name): function.__module__ for name in names}
    for key, module in claimed.items():
        if _CLAIMED.get(key, module) != module:
            raise ConfigError(f"{kind} {key[1]!r} is registered twice: by {_CLAIMED[key]} and by {module}")
    _CLAIMED.update(claimed)
