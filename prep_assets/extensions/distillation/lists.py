"""The declaration of a teacher's entries; what reads and proves them is loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prep_assets.extensions.distillation import FIELDS, NAME, SCHEMA
from prep_assets.stores.lists import Entries, Lists


def _encode(conversations: Any, items: Sequence[Any]) -> tuple[list[Any], Any, Entries]:
    from prep_assets.extensions.distillation.entries import encode

    return encode(conversations, items)


def _check() -> Any:
    from prep_assets.extensions.distillation.check import CHECK

    return CHECK


def _trains(row: Mapping[str, Any], options: Mapping[str, Any]) -> list[bool]:
    from prep_assets.extensions.distillation.proofs.entries import trained_by_entries

    return trained_by_entries(row, options)


def _judge(store: Any) -> Callable[[str, Mapping[str, Any]], str | None]:
    from prep_assets.extensions.distillation.check import rejections_of

    return rejections_of(store)


TEACHER = Lists(
    name=NAME,
    entries="entries of a teacher",
    fields=FIELDS,
    schema=SCHEMA,
    encode=_encode,
    check=_check,
    trains=_trains,
    judge=_judge,
)
