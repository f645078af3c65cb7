"""Web text holds `</s>` and `<|endoftext|>` as characters, and they became the control tokens.

Year: 2023 – 2024
Hit: Long-Context-Data-Engineering#14, dolma PR#176; 1,075 tokens of 53 million in a study of our own
Cost: Documents cut in two, and text trained as their end.
Stopped by: typed control tokens are encoded as ordinary text and counted; `row_integrity`
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets_tests.museum.gallery import Row, documents

TYPED = "<|endoftext|>"
TEXTS = [f"SSML says {TYPED} in its manual.", "An ordinary document."]


def test_a_document_that_spells_its_own_end(tmp_path: Path) -> None:
    right = documents(tmp_path, TEXTS)
    assert right.failing() == []
    rows = right.rows("docs_train")
    eos = rows[0].ids[-1]
    assert [int((row.ids == eos).sum()) for row in rows] == [1, 1]
    assert right.text(rows[0].ids[:-1]) == TEXTS[0]

    def as_it_was(each: list[Row]) -> list[Row]:
        texts = right.texts(each[0])
        start = next(at for at in range(len(texts)) if "".join(texts[at:]).startswith((TYPED, " " + TYPED)))
        stop = next(at for at in range(start, len(texts)) if TYPED in "".join(texts[start:at]))
        ids = np.concatenate([each[0].ids[:start], [eos], each[0].ids[stop:]])
        return [Row(ids, np.ones(len(ids), np.uint8)), *each[1:]]

    wrong = right.with_rows(as_it_was, "docs_train")
    assert wrong.text(wrong.row(stream="docs_train").ids).count(TYPED) == 2
    assert "row_integrity" in wrong.failing()
