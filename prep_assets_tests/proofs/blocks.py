"""Samples that a build keeps, proven by the block and by themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.proofs.chat_blocks import Claims, PlainBlocks, PlainDerivation
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.mask import Conversation, IdentityProof, Left, MaskProof, prove_identity, prove_masks
from prep_assets.proofs.words import ByteTable
from prep_assets.samples import Sample
from prep_assets_tests.corpus.chats import rich_chats
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.bound import Bound, run


def claims_of(bound: Bound, ids: Sequence[npt.NDArray[np.integer]], masks: Sequence[npt.NDArray[np.generic]]) -> Claims:
    """What is stored of chats."""
    sizes, every = np.array([*map(len, ids)], np.int64), np.concatenate(ids)
    table = ByteTable(bound.vocabulary)
    assert table.is_ready(bound.vocabulary.size + 1)
    return Claims(sizes, every, np.concatenate(masks), table.bytes_of(every), np.cumsum(sizes) - sizes)


class Built:
    """Samples that a build keeps, and what it stores of them."""

    def __init__(self, bound: Bound, samples: Sequence[Sample], options: MaskOptions | None = None) -> None:
        self.bound, self.options, self.looked_for = bound, options or MaskOptions(), ["</think>"]
        found = run(bound, list(samples), self.options)
        self.samples = [samples[number] for number in found.kept]
        self.stored = [(np.array(found.ids(at)), np.array(found.loss(at))) for at in range(len(self.samples))]
        self.masks, self.identities = MaskProof(bound.vocabulary), IdentityProof(bound.vocabulary)

    @property
    def blocks(self) -> PlainBlocks:
        derivation = PlainDerivation(self.options, self.bound.template, typed_controls=False)
        return PlainBlocks(derivation, self.masks, self.identities, self.looked_for)

    def proven(self, samples: Sequence[Sample] | None = None) -> list[bool]:
        """Which are proven of what is stored, by the block; `samples`: what their sources are said to be."""
        ids, masks = zip(*self.stored, strict=True)
        found: list[bool] = self.blocks.prove(samples or self.samples, claims_of(self.bound, ids, masks)).tolist()
        return found

    def alone(self, at: int) -> bool:
        """Whether a row is proven by itself."""
        derived, (ids, mask) = derive(self.samples[at], self.options, self.bound.template), self.stored[at]
        row = Conversation("", ids, mask, Left(derived, derived.expected))
        return prove_masks([row], self.bound.vocabulary).passed and prove_identity([row], self.bound.vocabulary).passed


def all_proven_are_proven_alone(bound: Bound) -> None:
    """Whatever rich chats, sound or damaged, are proven by the block."""

    @settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(rich_chats(), min_size=1, max_size=5), st.integers(0, 1 << 20), st.sampled_from(["ids", "mask", ""]))
    def check(samples: list[Sample], where: int, damage: str) -> None:
        built = Built(bound, samples, MaskOptions(train_on_eos="last"))
        if not built.samples:
            return
        ids, mask = built.stored[where % len(built.stored)]
        if damage:
            (ids if damage == "ids" else mask)[where % len(ids)] = 7 if damage == "ids" else 1 - mask[where % len(ids)]
        for at, is_proven in enumerate(built.proven()):
            assert not is_proven or built.alone(at)

    check()
