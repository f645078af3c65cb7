"""Checks that packages add to assets, by entry points `prep_assets.checks`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from prep_assets import plugins
from prep_assets.errors import ConfigError
from prep_assets.pipeline.asset import Check, Corruptions, Store
from prep_assets.proofs.verdict import Verdict

if TYPE_CHECKING:
    from prep_assets.proofs.mutations import Mutation

Prove = TypeVar("Prove", bound=Callable[[Iterable[Any]], Verdict])
_ADDED: dict[str, dict[Check, str]] = {}
"""Asset → the checks that are added to it → the module that has each."""


def check(asset: str, rows: Callable[[Store], Iterable[Any]], mutations: Sequence[Mutation]) -> Callable[[Prove], Prove]:
    """Register a function as a check of an asset. It is called like the function, and described by the first line of its docstring.

        @check("sft_tokens", rows=answers, mutations=[Mutation("an answer is in capitals", "shouting", shout)])
        def shouting(rows: Iterable[str]) -> Verdict: ...

    Args:
        rows: store → what the function judges, one by one.
        mutations: the corruptions that it must catch, of the first rows in a list; `prep-assets selftest` tries them.
    """

    def register(prove: Prove) -> Prove:
        name = prove.__name__
        plugins.claim(f"check of {asset}", [name], prove)
        if not mutations or any(each.caught_by != name for each in mutations):
            raise ConfigError(f"check {name!r} needs mutations with caught_by={name!r}: the corruptions that it must catch")

        description = (inspect.getdoc(prove) or "").split("\n", 1)[0]
        corruptions = Corruptions(rows, tuple(mutations), {name: prove})
        _ADDED.setdefault(asset, {})[Check(name, description, lambda store: prove(rows(store)), corruptions=corruptions)] = prove.__module__
        return prove

    return register


@cache
def added_checks() -> Mapping[str, Mapping[Check, str]]:
    """Asset → the checks that are added to it → the module that has each."""
    plugins.load_all("checks")
    return _ADDED
