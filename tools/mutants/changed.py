"""A module with all of mutmut's changes in it, one of which is chosen when a function is called."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from mutmut.mutation.file_mutation import MutatedFile, mutate_file_contents


@dataclass(frozen=True)
class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the changed module wherever the true one is imported.

    Attributes:
        name: the module, as it is imported.
        path: its file.
        made: its code with all changes.
    """

    name: str
    path: Path
    made: MutatedFile

    @classmethod
    def of(cls, name: str, path: Path) -> Changed:
        """All changes of one file."""
        return cls(name, path, mutate_file_contents(str(path), path.read_text()))

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(_compiled(self.made.code, str(self.path)), module.__dict__)

    def install(self) -> None:
        """From now on the module is the changed one."""
        if self.name in sys.modules:
            raise RuntimeError(f"{self.name} is already imported")
        sys.meta_path.insert(0, self)

    def difference(self, mutant: str) -> tuple[str, str]:
        """The first line that a change takes away, and the first that it writes instead."""
        lines, spans = self.made.code.splitlines(), self.made.line_span_by_function_name
        function = mutant.rpartition("__mutmut_")[0]
        true, changed = (
            [line.strip().replace(name, function) for line in lines[spans[name].start - 1 : spans[name].end]]
            for name in (f"{function}__mutmut_orig", mutant)
        )
        # a change stands in one place, and lines may be lost there
        same = next(at for at, (one, other) in enumerate(zip(true, [*changed, ""], strict=False)) if one != other)
        return true[same], changed[same] if len(true) == len(changed) else ""


@cache
def _compiled(code: str, path: str) -> CodeType:
    """Once for all forks, as a test may read the module anew."""
    return compile(code, path, "exec")
