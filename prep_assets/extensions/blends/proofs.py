"""The proof of a blend: the items are those that the options and the seed ask for, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.orders import expected_blend
from prep_assets.proofs.verdict import Verdict, fails, wrong_claim
from prep_assets.stores.arrays import stretches

if TYPE_CHECKING:
    from prep_assets.extensions.blends.store import BlendStore


def check_blend(
    blend: BlendStore,
    lengths: Mapping[str, npt.NDArray[Any]],
    offered: Mapping[str, int],
    options: Mapping[str, Any],
    claimed: Mapping[str, float],
) -> Verdict:
    """Compare an order with the one that its options ask for, item by item.

    Args:
        lengths: domain to int[N], tokens of each of its items.
        offered: domain to the tokens of its stream, of which windows may leave some out.
        options: ``weights``, ``tokens``, ``schedule``, ``epochs``, ``seed`` and ``shuffle``.
        claimed: what the manifest says of ``items``, ``tokens``, ``phases``, ``share_<domain>`` and ``epochs_<domain>``.
    """
    numbers: dict[str, float] = {"items": len(blend)}
    if list(blend.domains) != sorted(lengths):
        return fails("domains", f"the blend is of {list(blend.domains)}, the configuration of {sorted(lengths)}", numbers)
    phases = expected_blend(lengths, options)
    ends = np.cumsum([len(phase.record) for phase in phases]).tolist()
    if list(blend.ends) != ends or len(blend) != ends[-1]:
        return fails("phases", f"phases end at {list(blend.ends)} of {len(blend):,} items; the options end them at {ends}", numbers)
    tokens = np.zeros(len(blend.domains), np.int64)
    for begin, phase in zip([0, *ends], phases, strict=False):
        for part in stretches(len(phase.record)):
            stored = slice(begin + part.start, begin + part.stop)
            domain, item = np.asarray(blend.domain[stored]), np.asarray(blend.item[stored])
            wrong = (domain != phase.source[part]) | (item != phase.record[part])
            if wrong.any():
                at = int(wrong.argmax())
                is_, wanted = (
                    f"number {number:,} of {blend.domains[source] if source < len(blend.domains) else f'domain {source}'}"
                    for source, number in ((int(domain[at]), int(item[at])), (int(phase.source[part][at]), int(phase.record[part][at])))
                )
                return fails(f"item {stored.start + at:,}", f"is {is_}; the options put {wanted} there", numbers)
            tokens += np.bincount(phase.source[part], phase.length[part], len(tokens)).astype(np.int64)
    whole = int(tokens.sum())
    amounts: dict[str, float] = {"items": len(blend), "tokens": whole, **({"phases": len(ends)} if options["schedule"] else {})}
    for name, count in zip(blend.domains, tokens.tolist(), strict=True):
        amounts |= {f"share_{name}": count / max(1, whole), f"epochs_{name}": count / max(1, offered[name])}
    if fault := wrong_claim(amounts, claimed):
        return fails("manifest", fault, numbers)
    return Verdict(True, f"{len(blend):,} items with {whole:,} tokens stand where the options put them", numbers | {"tokens": whole})
