"""Which record of which domain each line of a merged file has."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from prep_assets.errors import StoreError
from prep_assets.pipeline.merging import _records
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.tokens import TokenStore, append_records, open_tokens, record_writer

DOMAINS = {"a": 20, "b": 3, "none": 0, "c": 11}


def written(folder: Path, counts: dict[str, int], seed: int | None = None) -> Lines:
    """Lines of some domains, each with the rows 0, 2, 4 … of its file 1."""
    folder.mkdir()
    with LinesWriter(folder, "lines", tuple(counts), shuffle_seed=seed) as writer:
        for number, (name, count) in enumerate(counts.items()):
            for row in range(count):
                writer.append({"line": f"{name} {row}"}, source=number, file=1, at=2 * row)
    return open_lines(folder, "lines")


def tokens(folder: Path, number: int, lines: list[int]) -> TokenStore:
    """Records of some lines of a domain: as many tokens as the line has digits, all of them the number of the domain."""
    writer = record_writer("bin", folder, "tokens", {"tokens": "int32"})
    lengths = np.array([len(str(line)) for line in lines], np.int64)
    with writer:
        writer.append({"tokens": np.full(int(lengths.sum()), number, np.int32)}, lengths, [0] * len(lines), lines)
    return open_tokens(folder, "tokens")


@pytest.mark.usefixtures("short_stretches")
def test_records_follow_their_lines(tmp_path: Path) -> None:
    merged = written(tmp_path / "merged", DOMAINS, seed=3)
    lines = {name: written(tmp_path / name, {name: count}) for name, count in DOMAINS.items()}
    tokenized = {"a": sorted(random.Random(0).sample(range(20), 15)), "c": list(range(11))}
    streams = {name: tokens(tmp_path / name, number, tokenized[name]) for number, name in enumerate(tokenized)}
    wanted = [
        (list(streams).index(name), tokenized[name].index(int(line)), at)
        for at, (name, line) in enumerate(row["line"].split() for row in merged)
        if name in streams and int(line) in tokenized[name]
    ]
    found = _records(merged, lines, streams)
    assert [*zip(*(column.tolist() for column in found), strict=True)] == wanted and len(wanted) == 26

    with record_writer("bin", tmp_path / "merged", "tokens", {"tokens": "int32"}) as writer:
        append_records(writer, list(streams.values()), *found)
    joined = open_tokens(tmp_path / "merged", "tokens")
    assert joined.row.tolist() == [at for *_, at in wanted]
    for at, (stream, record, _) in enumerate(wanted):
        assert joined.record(at, "tokens").tolist() == [stream] * len(str(list(tokenized.values())[stream][record]))


@pytest.mark.parametrize("count", [10, 12])
def test_lines_that_are_not_those_of_the_domain_stop_the_build(tmp_path: Path, count: int) -> None:
    merged, other = written(tmp_path / "merged", {"c": 11}, seed=0), written(tmp_path / "c", {"c": count})
    with pytest.raises(StoreError, match=f"does not hold the {count} lines of .*Build it again"):
        _records(merged, {"c": other}, {"c": tokens(tmp_path / "c", 0, [1, 2])})
