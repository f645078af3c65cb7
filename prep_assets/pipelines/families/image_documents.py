"""Pretraining documents with images: as `pretrain`, with a loss mask in which the tokens of images are 0, and the images beside it.

It is slower than the way of plain documents, so a domain takes it from its first image on, and from the start again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.config.image_token import image_placeholder
from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError, Refused
from prep_assets.pipelines.examples import Item, held_out
from prep_assets.pipelines.families.documents import Sizes
from prep_assets.pipelines.images import ImageFiles, shown_images, stored_image_id
from prep_assets.pipelines.reading import Reading
from prep_assets.pipelines.workspace import Workspace
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import IMAGE, Example, Sample
from prep_assets.stores.tokens import RecordWriter
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.policy import MaskPolicy

Ints = npt.NDArray[np.int64]
DTYPES = {"loss_mask": "uint8"}
"""What a stream of such documents has besides its tokens."""


class ImagesFound(Exception):
    """A document shows an image."""


def stop_at_images(example: Example) -> None:
    """Raises:
    ImagesFound: the example is a document with images.
    """
    if isinstance(example, Sample) and shown_images(example.turns):
        raise ImagesFound


def untemplated(workspace: Workspace, family: Pretrain) -> ChatTemplate:
    """What documents are rendered with: no template, only what stands for an image."""
    control = tuple(sorted(workspace.vocabulary(family).control))
    return ChatTemplate("none", "", {}, control=control, image=image_placeholder(family))


def write_image_documents(
    workspace: Workspace, reading: Reading, writers: Sequence[RecordWriter], quarantine: Quarantine
) -> dict[str, int]:
    """Read, tokenize and write one domain, in the order of the source. Writers take ``tokens`` and ``loss_mask``.

    Raises:
        ConfigError: documents with images cannot be cut for fill-in-the-middle.
    """
    family = workspace.family(Pretrain)
    vocabulary, token = workspace.vocabulary(family), stored_image_id(workspace, family)
    if family.preprocessing.fim.rate:
        raise ConfigError(f"{reading.name} has images: preprocessing.fim would cut documents around them. Set fim.rate to 0")
    documents = ImageDocuments(untemplated(workspace, family), ImageFiles(workspace.image_folder(reading.domain)), family)
    encoder = Encoder(vocabulary, workspace.engines(family), MaskPolicy(), trains=False)
    counts = {"read": 0, "kept": 0, "tokens": 0, "tokens_train": 0, "tokens_dev": 0, "images": 0}
    for items, in_test in reading.examples("tokenize", quarantine):
        kept, rendered = documents.render(items, quarantine)
        encoded = encoder.encode(rendered)
        faults = {**dict(encoded.refused), **documents.too_long(encoded.kept, np.diff(encoded.offsets))}
        for at, fault in sorted(faults.items()):
            kept[at].refuse(quarantine, fault)
        sound = np.array([int(at) not in faults for at in encoded.kept], bool)
        digests = [xxhash.xxh3_128_digest(rendered[int(at)].text.encode()) for at in encoded.kept]
        dev = np.array([in_test or held_out(digest, family.test_fraction) for digest in digests], bool)
        for split, writer in enumerate(writers):
            rows = sound & (dev == bool(split))
            lengths = np.diff(encoded.offsets)
            ids = encoded.ids[np.repeat(rows, lengths)]
            ids = np.insert(ids, np.cumsum(lengths[rows]), vocabulary.eos_id)
            records = [kept[int(at)].record for at in encoded.kept[rows]]
            images = documents.files.block(encoded.images.of(rows))
            block = {"tokens": ids, "loss_mask": ids != token}
            writer.append(block, lengths[rows] + 1, [each.file for each in records], [each.row for each in records], images)
            counts["tokens_dev" if split else "tokens_train"] += len(ids)
            counts["images"] += len(images.images)
            counts["kept"] += len(records)
    return {**counts, "read": reading.read, "tokens": counts["tokens_train"] + counts["tokens_dev"]}


class ImageDocuments:
    """The documents of a domain, checked and rendered."""

    def __init__(self, template: ChatTemplate, files: ImageFiles, family: Pretrain) -> None:
        self._template, self.files, self._options = template, files, family.preprocessing
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
        for image in shown_images(example.turns):
            self.files.digest(image.text)
        rendered = render(example, self._template)
        regions = (region for turn in example.turns for region in turn.regions)
        self._sizes.check("".join(region.text for region in regions if region.kind != IMAGE and not region.drop))
        return rendered

    def too_long(self, numbers: Ints, lengths: Ints) -> dict[int, Refused]:
        """Documents of more tokens than `max_seq_len`."""
        limit = self._options.max_seq_len
        long = [] if limit is None else np.flatnonzero(lengths > limit).tolist()
        return {int(numbers[at]): Refused("too_long", f"{lengths[at]:,} tokens, max_seq_len is {limit:,}", stage="tokenize") for at in long}
