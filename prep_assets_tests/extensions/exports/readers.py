"""Trainers' own readers. `make test-readers` installs them; without them their tests are skipped, with `PREP_ASSETS_READERS` set they fail.

Some packages import far more than their readers use: a server, an image library that would bring another torch, a cloud's client. Those
imports are stood in for, and the readers' own code is as it was published.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest


def reader(name: str) -> Any:
    """A module of a trainer."""
    if os.environ.get("PREP_ASSETS_READERS"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason="make test-readers", exc_type=ImportError)


def needs(package: str) -> None:
    """Skip the test where a trainer's package is not installed; fail where it should be."""
    if importlib.util.find_spec(package) is None:
        (pytest.fail if os.environ.get("PREP_ASSETS_READERS") else pytest.skip)(f"{package} is not installed: make test-readers")


def bypass(name: str) -> None:
    """A package of which only modules are used: its ``__init__.py`` is not run."""
    if name not in sys.modules and (found := importlib.util.find_spec(name)) is not None:
        package = types.ModuleType(name)
        package.__path__, package.__spec__ = list(found.submodule_search_locations or ()), found
        sys.modules[name] = package


def stand_in(*names: str) -> None:
    """Modules whose names can be imported and do nothing."""
    for name in names:
        if name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = []
            module.__getattr__ = _anything  # type: ignore[method-assign]
            sys.modules[name] = module


class _Nothing(type):
    """A class of which every attribute is empty."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return ()


def _anything(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Nothing(name, (), {}) if name[0].isupper() else lambda *arguments, **options: None


def streaming() -> Any:
    """mosaicml-streaming. Its ``__init__.py`` imports its image classes, which want torchvision."""
    bypass("streaming")
    return reader("streaming.base")


def flag_embedding(name: str) -> Any:
    """A module of FlagEmbedding's training. Its ``__init__.py`` imports all its models for inference."""
    bypass("FlagEmbedding")
    return reader(f"FlagEmbedding.abc.finetune.embedder.{name}")


def olmo() -> Any:
    """OLMo-core's data sets. ``cached_path`` fetches files from clouds, by Google's client among others; a local path stays what it is."""
    if importlib.util.find_spec("olmo_core") is not None:
        stand_in("cached_path", "cached_path.schemes")
        sys.modules["cached_path"].cached_path = lambda path, **_: Path(path)  # type: ignore[attr-defined]
    return reader("olmo_core.data.numpy_dataset")


def verl(name: str) -> Any:
    """A data set of verl. Its ``__init__.py`` imports Ray; the positions of images come from its Qwen-VL model."""
    bypass("verl")
    if "verl" in sys.modules:
        stand_in("verl.models.transformers.qwen2_vl")
    return reader(f"verl.utils.dataset.{name}")


def verl_rewards(name: str) -> Any:
    """A reward function of verl."""
    bypass("verl")
    if "verl" in sys.modules:
        bypass("verl.utils")
        bypass("verl.utils.reward_score")
    return reader(f"verl.utils.reward_score.{name}")


def verifiers(name: str) -> Any:
    """A module of verifiers. Its ``__init__.py`` imports servers; of the client of its sandboxes, types of configurations take one function."""
    if importlib.util.find_spec("verifiers") is not None:
        bypass("verifiers.v1")
        stand_in("prime_sandboxes", "prime_sandboxes.models")
    return reader(f"verifiers.v1.{name}")


def bridge() -> Any:
    """Megatron-Bridge's data sets for SFT. Its ``__init__.py`` imports its models; of its tokenizer, types take the name."""
    if importlib.util.find_spec("megatron") is not None:
        for package in ("megatron.bridge", "megatron.bridge.data", "megatron.bridge.data.datasets"):
            bypass(package)
        tokenizers = "megatron.bridge.training.tokenizers"
        stand_in("megatron.bridge.training", tokenizers, f"{tokenizers}.tokenizer")
    return reader("megatron.bridge.data.datasets.sft")
