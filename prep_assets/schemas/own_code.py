"""Which source files a schema of the user's own is made of: its module, and every module of the project that it imports, and they import.

Imports are read from the source, those inside functions too; nothing is run. A module counts where it lies beside the schema's own top-level
package, or in any other folder of the import path that is neither the standard library's nor one of installed packages.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

NOT_OWN = ("prep_assets",)
"""Our own package has versions of its own."""


def own_code_hash(name: str) -> str | None:
    """sha256 of the source files of a user's schema ``package.module:function``: of the file itself where it imports nothing of the project.

    `None` for a shipped schema, whose version is ours, and for a module without a source file, which is refused when it is loaded.
    """
    if ":" not in name:
        return None
    files = source_files(name.rpartition(":")[0])
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for _, path in files]
    if len(hashes) < 2:
        return hashes[0] if hashes else None
    listed = "".join(f"{module} {digest}\n" for (module, _), digest in zip(files, hashes, strict=True))
    return hashlib.sha256(listed.encode()).hexdigest()


def source_files(module: str) -> list[tuple[str, Path]]:
    """Name and file of a module and of all modules of the project that it imports, directly or not; sorted by name, the module first."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    if spec is None or not spec.origin or not (origin := Path(spec.origin)).is_file():
        return []
    depth = len(module.split(".")) - (origin.name != "__init__.py")
    home = origin.resolve().parents[depth]
    found: dict[str, Path] = {}
    # importing a module runs the packages above it as well
    waiting = [(module, origin.resolve()), *_located(module, module.partition(".")[0], home)]
    while waiting:
        name, path = waiting.pop()
        if name in found or path.suffix != ".py":
            continue
        found[name] = path
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for wanted in _imported(path, package):
            waiting += _located(wanted, module.partition(".")[0], home)
    found.setdefault(module, origin)
    return [(module, found.pop(module)), *sorted(found.items())]


def _imported(path: Path, package: str) -> Iterator[str]:
    """Full names that a file imports; of ``from a import b`` also ``a.b``, which may be a module."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _located(name: str, own: str, home: Path) -> Iterator[tuple[str, Path]]:
    """The files that importing a name runs: of each package above it, and its own; none where it is not the project's."""
    parts = name.split(".")
    if parts[0] in NOT_OWN or not parts[0]:
        return
    for folder in [home, *_project_folders()] if parts[0] == own or not _is_installed(home) else []:
        if not ((folder / parts[0]).is_dir() or (folder / f"{parts[0]}.py").is_file()):
            continue
        for depth in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:depth])
            for file in (place / "__init__.py", place.with_suffix(".py")):
                if file.is_file():
                    yield ".".join(parts[:depth]), file
                    break
        return


def _project_folders() -> list[Path]:
    """Folders of the import path that hold neither the standard library nor installed packages."""
    folders = [Path(entry or ".").resolve() for entry in sys.path]
    return [folder for folder in folders if folder.is_dir() and not _is_installed(folder)]


def _is_installed(folder: Path) -> bool:
    return any(place == folder or place in folder.parents for place in _installed())


@cache
def _installed() -> frozenset[Path]:
    """The folders of the standard library and of installed packages, which stay what they are for as long as Python runs."""
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset(Path(place).resolve() for place in (*places, *site.getsitepackages(), site.getusersitepackages()) if place)
