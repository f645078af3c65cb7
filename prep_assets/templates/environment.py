"""What templates run in: the environment of transformers, and a clock that stands."""

from __future__ import annotations

import sys
import threading
from datetime import datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

FROZEN_CLOCK = datetime(2024, 7, 26)
"""What ``strftime_now`` shows: the day that Llama 3.1's own template falls back to."""
HARMLESS = ("MainThread", "limits", "ends with its parent")
"""Threads that import nothing."""
_MODULE = "transformers.utils.chat_template_utils"


@cache
def chat_template_utils() -> Any:
    """The module of transformers that compiles chat templates.

    It comes without the rest of transformers, unless that is imported already: the package reads all its own files when it is imported, which
    takes half a second in every process. Where another thread might import the package meanwhile, it is imported whole.
    """
    spec = find_spec("transformers")
    alone = "transformers" not in sys.modules and all(thread.name in HARMLESS for thread in threading.enumerate())
    if not alone or spec is None or not spec.submodule_search_locations:
        return import_module(_MODULE)
    root = Path(spec.submodule_search_locations[0])
    for name, folder in (("transformers", root), ("transformers.utils", root / "utils")):
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(folder)]
    try:
        return import_module(_MODULE)
    except (ImportError, AttributeError):  # a version in which it needs more of the package
        pass
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "transformers"]:
            del sys.modules[name]
    return import_module(_MODULE)
