"""Rows found among ids are those whose decoded text has what is asked for."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prep_assets.extensions.explain.rows import MOST_TOKENS
from prep_assets.extensions.explain.search import ALSO_FOLDED, Filter, matching
from prep_assets.stores import table
from prep_assets.stores.table import TOKENS, Pieces, Table, open_stream, packed_table
from prep_assets.stores.writer import TableWriter
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary
from prep_assets_tests.graph.workspaces import TOKENIZER

PIECES = (
    *("the ", "The", " zebra", "ZEB", "stra", "ß", "ﬁ", "\u212a", "k", "é", "e\u0301", "Ünï", "你好", "👩‍👩‍👧", "\ufffd"),
    *("<|im_end|>", "\n", " ", "1", "2"),
)
texts = st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary(str(TOKENIZER))


def _holds(vocabulary: Vocabulary, ids: list[int], mask: list[bool], needle: str, where: str) -> bool:
    """Decode each stretch that is searched, and look."""
    kinds = [kind if where != "text" else where == "text" for kind in mask]
    stretches = [(kind, [token for _, token in some]) for kind, some in groupby(zip(kinds, ids, strict=True), key=lambda each: each[0])]
    table = vocabulary.token_bytes
    assert table is not None
    wanted = where in ("text", "trained")
    return any(
        kind == wanted and needle.casefold() in b"".join(table[token] for token in some).decode("utf-8", "replace").casefold()
        for kind, some in stretches
    )


def _streams(folder: Path, ids: list[list[int]], masks: list[list[bool]]) -> list[Table]:
    """The rows as a stream of records, and packed one a row, with padding that says what nobody may find."""
    lengths, row_len = np.array([len(row) for row in ids]), max(1, *map(len, ids)) + 3
    with TableWriter(folder, "train", TOKENS, {"tokens": "uint16", "loss_mask": "bool"}) as writer:
        flat = {
            "tokens": np.concatenate([np.zeros(0, np.uint16), *ids]).astype(np.uint16),
            "loss_mask": np.concatenate([np.zeros(0, bool), *masks]).astype(bool),
        }
        writer.append(flat, lengths, np.zeros(len(ids)), np.arange(len(ids)))
    tokens, mask = np.full((len(ids), row_len), ids[0][0] if ids[0] else 0, np.uint16), np.zeros((len(ids), row_len), bool)
    for row, (some, trained) in enumerate(zip(ids, masks, strict=True)):
        tokens[row, : len(some)], mask[row, : len(some)] = some, trained
    number = np.arange(len(ids))
    documents = {"row": number, "length": lengths, "row_offset": number * 0, "start": number * 0, "source": number * 0, "record": number}
    pieces, flat = Pieces(("d",), documents), {"tokens": tokens.reshape(-1), "loss_mask": mask.reshape(-1)}
    return [open_stream(folder, "train", "d"), packed_table("p", flat, pieces, len(ids), row_len)]


@given(texts, st.data())
@example(["\u212aelvin", "kelvin", "KELVIN"], None)
@example(["straße", "STRASSE"], None)
@example(["of classification", "assific"], None)
def test_rows_found_among_ids_are_those_whose_text_has_it(vocabulary: Vocabulary, written: list[str], data: st.DataObject | None) -> None:
    ids = [vocabulary.encoder.encode(text).ids for text in written]
    if data is None:
        needle, masks, block = written[-1], [[True] * len(row) for row in ids], table.BLOCK
    else:
        text = data.draw(st.sampled_from(written))
        first, stop = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
        needle = data.draw(
            st.sampled_from(
                [text[first:stop], text[first:stop].swapcase(), "".join(data.draw(st.lists(st.sampled_from(PIECES), max_size=3)))]
            )
        )
        masks, block = (
            [data.draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row))) for row in ids],
            data.draw(st.sampled_from([4, table.BLOCK])),
        )
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(table, "BLOCK", block)
        for stream in _streams(Path(folder), ids, masks):
            for where in ("text", "trained", "masked"):
                expected = [
                    at
                    for at, (row, mask) in enumerate(zip(ids, masks, strict=True))
                    if not needle or _holds(vocabulary, row, mask, needle, where)
                ]
                assert list(matching(stream, Filter(find=needle, where=where), vocabulary, lambda row: [])) == expected


def test_a_text_at_the_end_of_a_row_longer_than_a_page_shows_is_found(vocabulary: Vocabulary, tmp_path: Path) -> None:
    ids = vocabulary.encoder.encode("a" + " b" * 2 * MOST_TOKENS + " zebra").ids
    for stream in _streams(tmp_path, [ids], [[True] * len(ids)]):
        assert list(matching(stream, Filter(find="b zebra"), vocabulary, lambda row: [])) == [0]


def test_what_folds_to_ascii_is_known() -> None:
    assert {c for code in range(128, 0x110000) for c in chr(code).casefold() if c.isascii()} == ALSO_FOLDED


def test_ids_of_another_vocabulary_are_no_text(vocabulary: Vocabulary, tmp_path: Path) -> None:
    ids = [65535, *vocabulary.encoder.encode("zebra").ids, 65534]
    for stream in _streams(tmp_path, [ids], [[True] * len(ids)]):
        assert list(matching(stream, Filter(find="zebra"), vocabulary, lambda row: [])) == [0]
        assert list(matching(stream, Filter(find="zebra crossing"), vocabulary, lambda row: [])) == []
