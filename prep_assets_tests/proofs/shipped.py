"""The shipped tokenizer, and rows of ids as lists."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.tokenization.loaded import CONFIGS, load

SHIPPED = load(CONFIGS / "tokenizer").vocabulary


def normalizing(vocabulary: Vocabulary) -> Vocabulary:
    """The same tokenizer, composing characters as every Qwen does."""
    from tokenizers import Tokenizer, normalizers

    backend = Tokenizer.from_str(vocabulary.backend.to_str())
    backend.normalizer = normalizers.NFC()
    return Vocabulary("composing", backend, vocabulary.special, None)


def spaced() -> Vocabulary:
    """A tokenizer like SentencePiece's: spaces are written ▁, one is put in front of the first word of a document, and other characters are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("a", "t"), ("c", "at"), ("▁", "cat"), ("▁", "▁"), ("é", "e")]
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127)), "é", *map("".join, merges)]
    backend = Tokenizer(
        models.BPE({token: at for at, token in enumerate(tokens)}, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return Vocabulary("spaced", backend, SHIPPED.special, None)


def rows(flat: Flat) -> list[list[int]]:
    assert flat.ids.dtype == np.uint32 and flat.offsets.dtype == np.int64
    return [flat.ids[start:end].tolist() for start, end in pairwise(flat.offsets.tolist())]
