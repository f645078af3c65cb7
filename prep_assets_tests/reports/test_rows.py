"""Which rows a page holds, and its figures against plain loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.assets.workspace import Workspace
from prep_assets.proofs.mask import Row
from prep_assets.proofs.stretches import Expected
from prep_assets.reports.facts import measure
from prep_assets.reports.opened import streams
from prep_assets.reports.proof import prove
from prep_assets.reports.rows import sampled, weight_runs
from prep_assets.stores.packed import open_packed
from prep_assets.stores.published import Published
from prep_assets_tests.proofs.words import vocabulary


def test_figures_of_a_packed_table_are_those_of_a_plain_loop(built: tuple[Workspace, dict[tuple[str, str], Published]]) -> None:
    _, stores = built
    published = stores["sft_packed", ""]
    for name, measured in _by_stream(published).items():
        store = open_packed(published.directory, name)
        for each in measured:
            lengths, trained = [], 0
            for at, source in enumerate(store.documents["source"].tolist()):
                if store.sources[source] == each.domain:
                    row, start, length = (int(store.documents[key][at]) for key in ("row", "row_offset", "length"))
                    lengths.append(length)
                    trained += int((np.asarray(store.loss_mask[row][start : start + length]) != 0).sum())
            assert (each.documents, each.total, each.trained, each.longest) == (len(lengths), sum(lengths), trained, max(lengths))


def test_figures_of_tokens_are_those_of_the_manifest(built: tuple[Workspace, dict[tuple[str, str], Published]]) -> None:
    _, stores = built
    for (asset, partition), published in stores.items():
        if asset == "sft_tokens":
            found = measure(streams(published))
            counts = published.manifest.counts
            assert {each.domain for each in found} == {partition}
            assert (sum(each.total for each in found), sum(each.trained or 0 for each in found)) == (
                counts["tokens"],
                counts["trained_tokens"],
            )


def _by_stream(published: Published) -> dict[str, list]:
    found: dict[str, list] = {}
    for each in measure(streams(published)):
        found.setdefault(each.stream, []).append(each)
    return found


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 300), min_size=1), st.integers(1, 200))
def test_sampled_rows(counts: dict[int, int], want: int) -> None:
    chosen = sampled(counts, want)
    assert chosen == sampled(counts, want)
    for stream, count in counts.items():
        rows = chosen[stream]
        assert rows == sorted(set(rows))
        assert all(0 <= row < count for row in rows)
        if sum(counts.values()) <= want:
            assert len(rows) == count
        elif count > 1:
            assert {0, count - 1} <= set(rows)
    assert sum(map(len, chosen.values())) <= want + 2 * len(counts) or sum(counts.values()) <= want


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0])))
def test_runs_of_weights(weights: list[float]) -> None:
    runs = weight_runs(weights)
    assert [weight for start, end, weight in runs for _ in range(start, end)] == weights
    assert all(one[2] != other[2] and one[1] == other[0] for one, other in pairwise(runs))


def test_two_answers_in_one_run_stand_beside_their_texts() -> None:
    """A token that holds what stands between them parts them, as it does for the check."""
    words = vocabulary("Hi", ".", "<e>", "  Lo")
    row = Row("a:0", np.arange(4), np.ones(4, np.float32), (Expected("Hi.<e>", 1.0, "<e>"), Expected(" Lo")))
    found = prove(row, words)
    assert [(each.first, each.second) for each in found.stretches] == [(("Hi.<e>", 1.0), ("Hi.<e>", 1.0)), (("  Lo", 1.0), (" Lo", 1.0))]
    assert found.fault == ""
