"""A pipeline JSON from disk: which dialect it is in, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prep_assets.astrai.config import (
    AnyPipeline,
    SectionsInput,
    SectionsOutput,
    SectionsPipeline,
    SectionsPreprocessing,
    TypedInput,
    TypedOutput,
    TypedPipeline,
    TypedPreprocessing,
)
from prep_assets.config.loading import parse
from prep_assets.errors import ConfigError

_ONLY_TYPED = {"input": set(TypedInput.model_fields), "preprocessing": {"deduplicate"}}
_ONLY_SECTIONS = {
    "input": set(SectionsInput.model_fields),
    "preprocessing": set(SectionsPreprocessing.model_fields) - set(TypedPreprocessing.model_fields),
    "output": set(SectionsOutput.model_fields) - set(TypedOutput.model_fields),
}


def load_pipeline(path: Path) -> AnyPipeline:
    """Read a pipeline JSON.

    Raises:
        ConfigError: no such file, no JSON, or every fault of it with its key path, what is allowed there and the nearest spelling.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the pipeline configuration {path}: {error}") from error
    try:
        values = json.loads(text, object_pairs_hook=_unique_keys)
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    return parse_pipeline(values, str(path))


def parse_pipeline(values: Any, where: str) -> AnyPipeline:
    """Validate parsed JSON; `where` names it in errors. Raises as `load_pipeline`."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: a pipeline is an object with input, mask, preprocessing and output; found {type(values).__name__}")
    found: AnyPipeline = parse(_dialect(values, where), values, where)
    return found


def _dialect(values: Mapping[str, Any], where: str) -> type[TypedPipeline] | type[SectionsPipeline]:
    typed, sections = _found(values, _ONLY_TYPED), _found(values, _ONLY_SECTIONS)
    if typed and sections:
        raise ConfigError(
            f"{where} mixes AstrAI's two dialects: {', '.join(typed)} with {', '.join(sections)}. Write the input as sections "
            "(a chat is [{'field': 'messages', 'action': '$role', 'template': true}]) and ask for deduplication with --dedup exact; "
            "or keep input.type and leave the others out"
        )
    return SectionsPipeline if sections else TypedPipeline


def _found(values: Mapping[str, Any], only: Mapping[str, set[str]]) -> list[str]:
    return [f"{part}.{key}" for part, keys in only.items() if isinstance(values.get(part), Mapping) for key in values[part] if key in keys]


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"key {twice!r} stands twice in one object; JSON readers would silently keep the last")
    return found
