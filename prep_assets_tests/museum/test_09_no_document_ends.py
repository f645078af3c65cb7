"""Documents were written end to end without the end-of-text token, or their length was counted before it was added.

Year: 2023 – 2025
Hit: marin#577 (GPT-NeoX), Megatron-LM#431
Cost: Models that do not know where a text ends, and indexes off by one per document.
Stopped by: `row_integrity` of `pretrain_tokens`
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets_tests.museum.gallery import Row, documents

TEXTS = ["The first document.", "The second one.", "And a third."]


def test_one_end_each(tmp_path: Path) -> None:
    right = documents(tmp_path, TEXTS)
    assert right.failing() == []
    rows = right.rows("docs_train")
    eos = rows[0].ids[-1]
    assert [int((row.ids == eos).sum()) for row in rows] == [1, 1, 1] and all(row.ids[-1] == eos for row in rows)
    wrong = right.with_rows(lambda each: [Row(row.ids[:-1], row.mask[:-1]) for row in each], "docs_train")
    assert "row_integrity" in wrong.failing()


def test_an_index_that_is_off_by_one_per_document(tmp_path: Path) -> None:
    right = documents(tmp_path, TEXTS)

    def moved(rows: list[Row]) -> list[Row]:
        ids = np.concatenate([row.ids for row in rows])
        ends = np.cumsum([len(row.ids) for row in rows])
        ends[:-1] -= np.arange(1, len(ends))
        return [Row(each, np.ones(len(each), np.uint8)) for each in np.split(ids, ends[:-1])]

    assert "row_integrity" in right.with_rows(moved, "docs_train").failing()
