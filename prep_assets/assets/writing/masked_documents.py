"""Pretraining documents with images or with regions that are not trained in full, or not attended: as `pretrain`, with a loss mask, an attention
mask where a token is not attended, and images beside it.

A token of a region has the region's weight, 1 where the source gives none; tokens of images have 0; the end-of-text token has the weight of the
last region before it that is no image, and is attended. It is slower than the way of plain documents, so a domain takes it from its first such document on, and
from the start again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import Item, held_out
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.documents import Sizes
from prep_assets.assets.writing.image_parts import ImageParts
from prep_assets.assets.writing.images import shown_images
from prep_assets.assets.writing.tokens import NeedsColumns, mask_columns
from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError, Refused
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import IMAGE, Example, Region, Sample
from prep_assets.stores.tokens import RecordWriter
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.ends import ends_of
from prep_assets.tokenization.policy import MaskPolicy

Ints = npt.NDArray[np.int64]


def stop_at_masks(example: Example, *, images: bool) -> None:
    """Raises:
    NeedsColumns: the example is a document with a region whose weight is not 1 or that is not attended, or with an image where there may be `images`.
    """
    if not isinstance(example, Sample):
        return
    plain = all(region.loss_weight in (None, 1) and region.attend for region in _shown(example))
    if not plain or (images and shown_images(example.turns)):
        raise NeedsColumns({"loss_mask": "uint8"})


def _shown(sample: Sample) -> list[Region]:
    """The regions that are shown and are no images."""
    return [region for turn in sample.turns for region in turn.regions if region.kind != IMAGE and not region.drop and region.text]


def _weights(sample: Sample) -> list[float]:
    """Their loss weights."""
    return [1.0 if region.loss_weight is None else float(region.loss_weight) for region in _shown(sample)]


def untemplated(workspace: Workspace, family: Pretrain) -> ChatTemplate:
    """What documents are rendered with: no template, only what stands for an image."""
    control = tuple(sorted(workspace.vocabulary(family).control))
    return ChatTemplate("none", "", {}, control=control, image=workspace.image_placeholder(family))


def write_masked_documents(
    workspace: Workspace, reading: Reading, writers: Sequence[RecordWriter], quarantine: Quarantine, *, masks: Mapping[str, str]
) -> dict[str, Any]:
    """Read, tokenize and write one domain, in the order of the source. Writers take ``tokens`` and the `masks`, by name with their dtypes.

    Raises:
        ConfigError: such documents cannot be cut for fill-in-the-middle.
        NeedsColumns: the masks cannot hold the weights.
    """
    family = workspace.family(Pretrain)
    vocabulary = workspace.vocabulary(family)
    if family.preprocessing.fim.rate:
        raise ConfigError(
            f"{reading.name} has images or regions that are not trained: preprocessing.fim would cut documents around them. Set fim.rate to 0"
        )
    documents = MaskedDocuments(untemplated(workspace, family), ImageParts.of_domain(workspace, family, reading.domain), family)
    ends = ends_of(vocabulary, family.bos, family.append_eod)
    encoder = Encoder(vocabulary, workspace.engines(family), POLICY, trains=False)
    counts = {"read": 0, "kept": 0, "tokens": 0, "tokens_train": 0, "tokens_dev": 0, "images": 0, "trained_tokens": 0}
    for items, in_test in reading.examples("tokenize", quarantine):
        kept, rendered = documents.render(items, quarantine)
        encoded = encoder.encode(rendered)
        faults = {**dict(encoded.refused), **documents.too_long(encoded.kept, np.diff(encoded.offsets))}
        for at, fault in sorted(faults.items()):
            kept[at].refuse(quarantine, fault)
        sound = np.array([int(at) not in faults for at in encoded.kept], bool)
        digests = [xxhash.xxh3_128_digest(rendered[int(at)].text.encode()) for at in encoded.kept]
        dev = np.array([in_test or held_out(digest, family.test_fraction) for digest in digests], bool)
        ending = np.array([documents.ending(kept[int(at)].example) for at in encoded.kept], np.float32)
        for split, writer in enumerate(writers):
            rows = sound & (dev == bool(split))
            per_document = np.diff(encoded.offsets)
            chosen = np.repeat(rows, per_document)
            ids, lengths = ends.around(encoded.ids[chosen], per_document[rows])
            loss = ends.weights_around(encoded.loss[chosen], per_document[rows], ending[rows])
            records = [kept[int(at)].record for at in encoded.kept[rows]]
            images = documents.images.files.block(encoded.images.of(rows))
            block = {"tokens": ids, **mask_columns(loss, masks)}
            writer.append(block, lengths, [each.file for each in records], [each.row for each in records], images)
            counts["tokens_dev" if split else "tokens_train"] += len(ids)
            counts["images"] += len(images.images)
            counts["kept"] += len(records)
            counts["trained_tokens"] += int((loss > 0).sum())
    return {**counts, "read": reading.read, "tokens": counts["tokens_train"] + counts["tokens_dev"], **passed_over(reading)}


POLICY = MaskPolicy({}, "train", "none")
"""What says nothing of its own is trained, whatever its role; the end-of-text token is not the template's."""


class MaskedDocuments:
    """The documents of a domain, checked and rendered."""

    def __init__(self, template: ChatTemplate, images: ImageParts, family: Pretrain) -> None:
        self._template, self.images, self._options = template, images, family.preprocessing
        self._sizes = Sizes(family.preprocessing.min_chars, family.preprocessing.max_chars)

    def render(self, items: Sequence[Item], quarantine: Quarantine) -> tuple[list[Item], list[Rendered]]:
        """The items that are documents of acceptable size whose images are there, and their renders; the others are in quarantine."""
        kept, rendered = [], []
        for item in items:
            try:
                rendered.append(self._render(item.example))
                kept.append(item)
            except Refused as refusal:
                item.refuse(quarantine, refusal)
        return kept, rendered

    def _render(self, example: Example) -> Rendered:
        if not isinstance(example, Sample):
            raise Refused("not_a_document", f"the schema gives {type(example).__name__}, pretraining needs a Sample", stage="pretrain")
        example = self.images.ready(example)
        if not any(_weights(example) or [1.0]):
            raise Refused("nothing_to_train", "every region of this document weighs 0", stage="pretrain")
        rendered = render(example, self._template)
        POLICY.check_attention(rendered)
        regions = (region for turn in example.turns for region in turn.regions)
        self._sizes.check("".join(region.text for region in regions if region.kind != IMAGE and not region.drop))
        return rendered

    @staticmethod
    def ending(example: Example) -> float:
        """The weight of the end-of-text token after a document."""
        return (_weights(example) or [1.0])[-1] if isinstance(example, Sample) else 1.0

    def too_long(self, numbers: Ints, lengths: Ints) -> dict[int, Refused]:
        """Documents of more tokens than `max_seq_len`."""
        limit = self._options.max_seq_len
        long = [] if limit is None else np.flatnonzero(lengths > limit).tolist()
        return {int(numbers[at]): Refused("too_long", f"{lengths[at]:,} tokens, max_seq_len is {limit:,}", stage="tokenize") for at in long}
