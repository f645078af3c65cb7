"""Users' functions, named ``package.module:function``: their source files for recipes, and calls with limits on time and memory."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from pathlib import Path
from traceback import extract_tb
from types import TracebackType
from typing import Any, get_args, get_type_hints

from prep_assets import plugins
from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.limits import limited

# The source files of a user's function: its module, and all modules of the user's project that it imports, directly or not.
#
# Imports are parsed from the source, those inside functions too; nothing runs. A module belongs to the project if it is in the folder of the function's
# top-level package, or in any other folder of the import path that is neither the standard library's nor one of installed packages.

NOT_OWN = ("prep_assets",)
"""Packages that are not hashed: this one, which has a version."""


def own_code_hash(name: str) -> str | None:
    """sha256 of the source files of a user's schema ``package.module:function``, or of its single file where it imports nothing of the project.

    `None` for a shipped schema, which our version covers, and for a module without a source file, which fails when it is loaded.
    """
    if ":" not in name:
        return None
    files = source_files(name.rpartition(":")[0])
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for _, path in files]
    if len(hashes) < 2:
        return hashes[0] if hashes else None
    listed = "".join(f"{module} {digest}\n" for (module, _), digest in zip(files, hashes, strict=True))
    return hashlib.sha256(listed.encode()).hexdigest()


def added_code(module: str) -> str | None:
    """What decides what a module of another package does, for recipes: the package, its version and the hash of its code; `None` for one of ours."""
    package = plugins.package_of_module(module)
    return f"{package} {own_code_hash(f'{module}:')}" if package else None


def source_files(module: str) -> list[tuple[str, Path]]:
    """Name and file of `module` and of all project modules that it imports, directly or not: `module` first, the others sorted by name."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    if spec is None or not spec.origin or not (origin := Path(spec.origin)).is_file():
        return []
    depth = len(module.split(".")) - (origin.name != "__init__.py")
    home = origin.resolve().parents[depth]
    files: dict[str, Path] = {}
    top_level, folders = module.partition(".")[0], _own_folders(home)
    # importing a module runs the packages above it as well
    pending = [(module, origin.resolve()), *_files_run_by_import(module, top_level, folders)]
    while pending:
        name, path = pending.pop()
        if name in files or path.suffix != ".py":
            continue
        files[name] = path
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for imported in _imported_names(path.read_bytes(), package):
            pending += _files_run_by_import(imported, top_level, folders)
    files.setdefault(module, origin)
    return [(module, files.pop(module)), *sorted(files.items())]


@bounded_cache("imports of own code", 512, key=lambda source, package: (hashlib.sha256(source).digest(), package))
def _imported_names(source: bytes, package: str) -> tuple[str, ...]:
    """The full names that a file imports; for ``from a import b`` also ``a.b``, which may be a module."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]
    return tuple(names)


def _own_folders(home: Path) -> list[Path]:
    """The folders of project files: `home`, the schema's, then those of the import path with neither the standard library nor installed packages."""
    import_path = [Path(entry or ".").resolve() for entry in sys.path]
    return [home, *(entry for entry in import_path if entry.is_dir() and not _is_installed(entry))]


def _files_run_by_import(name: str, top_level: str, folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """The files that ``import name`` runs, its parent packages' first; none where no folder of the project has the name. The first is the schema's."""
    parts = name.split(".")
    if parts[0] in NOT_OWN or not parts[0]:
        return
    if parts[0] != top_level and _is_installed(folders[0]):
        return
    for folder in folders:
        if not ((folder / parts[0]).is_dir() or (folder / f"{parts[0]}.py").is_file()):
            continue
        for depth in range(1, len(parts) + 1):
            stem = folder.joinpath(*parts[:depth])
            for file in (stem / "__init__.py", stem.with_suffix(".py")):
                if file.is_file():
                    yield ".".join(parts[:depth]), file
                    break
        return


def _is_installed(folder: Path) -> bool:
    return not _installed_folders().isdisjoint((folder, *folder.parents))


@cache
def _installed_folders() -> frozenset[Path]:
    """The folders of the standard library and of installed packages, which do not change while Python runs."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset(Path(path).resolve() for path in (*paths, *site.getsitepackages(), site.getusersitepackages()) if path)


# Calls.


def own_code(path: str) -> Any:
    """The object at ``package.module:name``.

    Raises:
        Exception: whatever importing the module raises.
    """
    module_name, _, name = path.rpartition(":")
    return getattr(importlib.import_module(module_name), name)


def own_function(key: str, path: str) -> Callable[..., Any]:
    """The function at `path`, with each call limited in time and memory.

    Args:
        key: the configuration key that names it, for errors.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        function = within_limits(key, path, own_code)(path)
    except PrepAssetsError:
        raise
    except Exception as error:  # importing a module may raise anything
        raise ConfigError(
            f"{key} {path!r} cannot be loaded: {type(error).__name__}: {error}. It must be 'package.module:name', importable from here"
        ) from error

    return within_limits(key, path, function)


def within_limits(key: str, path: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with each call limited in time and memory.

    Args:
        key, path: the configuration key that names it and its import path, for errors.
    """

    def over(excess: str, trace: TracebackType | None) -> ConfigError:
        frames = extract_tb(trace)
        frame = next((frame for frame in reversed(frames) if not _is_installed(Path(frame.filename))), frames[-1])
        return ConfigError(
            f"{key} {path!r}: {frame.filename}, line {frame.lineno}: one call {excess}. Fix it, or leave out the row that causes it"
        )

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        return limited(over, function, *args, **options)

    return called


def own_code_gives(name: str, form: type) -> bool:
    """Whether a user's function ``package.module:function`` is annotated to return `form` (``-> Group``).

    False for one that cannot be imported; whatever loads it reports it.
    """
    try:
        hint = get_type_hints(own_code(name)).get("return")
    except Exception:  # importing a module may raise anything
        return False
    return form in (hint, *get_args(hint))
