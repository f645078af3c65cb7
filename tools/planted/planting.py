"""Plants a bug in this process and in the workers that it starts: in the functions that are there already, or in all modules, which are then imported anew."""

from __future__ import annotations

import gc
import importlib.util
import marshal
import os
import runpy
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from planted.candidates import PACKAGE, Plant

ENVIRONMENT = "PREP_ASSETS_PLANTED"
"""Names the changed module and the file of its code, for workers."""
Key = tuple[str, str, int]
"""File, qualified name and first line of a function."""


def live_functions() -> dict[Key, list[FunctionType]]:
    """Every function of the package that there is."""
    found = defaultdict[Key, list[FunctionType]](list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(str(PACKAGE)):
            found[_key(each.__code__)].append(each)
    return found


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def plant(bug: Plant, functions: dict[Key, list[FunctionType]]) -> None:
    """Plant a bug in this process."""
    code = bug.code()
    if not bug.function or not _patched(code, functions):
        _import_anew(bug.name, code)
    _in_workers(bug.name, code)


def _patched(module: CodeType, functions: dict[Key, list[FunctionType]]) -> bool:
    """Give functions their changed code, if that is possible for all of them."""
    by_key = defaultdict[Key, list[CodeType]](list)
    waiting = [module]
    while waiting:
        inner = [each for each in waiting.pop().co_consts if isinstance(each, CodeType)]
        waiting += inner
        for code in inner:
            by_key[_key(code)].append(code)
    changed = [
        (function, codes)
        for key, codes in by_key.items()
        for function in functions.get(key, ())
        if function.__code__ not in codes or len(codes) > 1
    ]
    wanted = [(function, codes) for function, codes in changed if function.__code__ not in codes]
    if not wanted or any(len(codes) > 1 or function.__code__.co_freevars != codes[0].co_freevars for function, codes in wanted):
        return False
    for function, codes in wanted:
        function.__code__ = codes[0]
    return True


class _Loader(SourceFileLoader):
    """Loads a module from changed code."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self.changed = code

    def get_code(self, fullname: str) -> CodeType:
        return self.changed


class _Finder:
    def __init__(self, name: str, code: CodeType) -> None:
        self.name, self.code = name, code

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        place = self.code.co_filename
        return importlib.util.spec_from_file_location(fullname, place, loader=_Loader(fullname, place, self.code))


def _import_anew(name: str, code: CodeType) -> None:
    """Forget all modules of the package: whatever is imported from now on sees the changed one."""
    for module in [each for each in sys.modules if each.partition(".")[0] in ("prep_assets", "prep_assets_tests")]:
        del sys.modules[module]
    sys.meta_path.insert(0, _Finder(name, code))  # type: ignore[arg-type]


def _in_workers(name: str, code: CodeType) -> None:
    """Let the process that workers are forked from import the changed module."""
    popen: Any = subprocess.Popen

    def started(command: Any, *args: Any, **options: Any) -> Any:
        if "prep_assets.workers.pool" in command:
            path = Path(os.environ["PREP_ASSETS_CACHE"]) / "planted"
            path.write_bytes(marshal.dumps((name, code)))
            options["env"] = {**options["env"], ENVIRONMENT: str(path)}
            at = command.index("-m")
            begin = f"import sys; sys.path.insert(0, {str(PACKAGE.parent / 'tools')!r}); from planted.planting import work; work()"
            command = [*command[:at], "-c", begin, *command[at + 2 :]]
        return popen(command, *args, **options)

    subprocess.Popen = started  # type: ignore[assignment, misc]


def work() -> None:
    """Become the process that workers are forked from, with the bug that the environment names."""
    name, code = marshal.loads(Path(os.environ[ENVIRONMENT]).read_bytes())
    sys.meta_path.insert(0, _Finder(name, code))  # type: ignore[arg-type]
    runpy.run_module("prep_assets.workers.pool", run_name="__main__", alter_sys=True)
