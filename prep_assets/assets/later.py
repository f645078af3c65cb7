"""Functions that are imported when they are first called, so that definitions and `--help` load in a moment."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def later(path: str) -> Callable[..., Any]:
    """``later("sft_tokens.tokens_build")`` is `prep_assets.assets.sft_tokens.tokens_build`, which is imported at the first call."""
    module, _, name = path.rpartition(".")

    def call(*args: Any) -> Any:
        return getattr(importlib.import_module(f"prep_assets.assets.{module}"), name)(*args)

    call.__name__ = call.__qualname__ = name
    return call
