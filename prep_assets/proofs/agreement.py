"""Whether two derivations of a mask say the same of a render, before anything is tokenized."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from prep_assets.proofs.trained_texts import Derived

Weighted = tuple[int, int, float]
"""Characters (start, end) of a render, and their loss weight."""


def disagreement(derived: Derived, text: str, trained: Iterable[Weighted]) -> str | None:
    """The first difference between a derivation and what a build made of the same conversation: its render, and what it trains of it, white
    space too: the proof of the tokens asks whose it is. `None` where they agree."""
    if text != derived.text:
        at = next((i for i, (a, b) in enumerate(zip(text, derived.text, strict=False)) if a != b), min(len(text), len(derived.text)))
        return f"two renders of it differ: …{text[max(0, at - 20) : at + 40]!r}…, …{derived.text[max(0, at - 20) : at + 40]!r}…"
    ours, theirs = list(trained), [(each.start, each.end, each.weight) for each in derived.expected]
    edges = sorted({edge for start, end, _ in (*ours, *theirs) for edge in (start, end)})
    next_of = [0, 0]
    for start, end in pairwise(edges):
        weights = []
        for side, listed in enumerate((ours, theirs)):
            while next_of[side] < len(listed) and listed[next_of[side]][1] <= start:
                next_of[side] += 1
            at = next_of[side]
            weights.append(listed[at][2] if at < len(listed) and listed[at][0] <= start else 0.0)
        if weights[0] != weights[1]:
            return f"{text[start:end][:80]!r} has loss weight {weights[0]:g} by its marks and {weights[1]:g} by its frames"
    return None
