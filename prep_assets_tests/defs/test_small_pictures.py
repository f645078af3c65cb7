"""Small pictures: what the rows hold and what was asked for, and how long documents are; inline, so under 1,000 characters."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.defs.metadata import store_metadata
from prep_assets.defs.pictures import BAR, BINS, HEIGHT, lengths_picture, mixture_picture
from prep_assets.stores.packed import open_packed
from prep_assets_tests.assets.workspaces import build_all, domain, jsonl, minimal, workspace_in
from prep_assets_tests.effort import examples

SVG = "{http://www.w3.org/2000/svg}"


def drawn(markdown: str) -> ElementTree.Element:
    return ElementTree.fromstring(base64.b64decode(re.search(r"base64,([^)]+)\)", markdown)[1]))


def test_bars_are_as_long_as_their_shares_and_the_largest_comes_first() -> None:
    shares = {"a": 0.125, "<b>": 0.5, "c": 0.375}
    bars, lines, texts = drawn(mixture_picture(shares, {"a": 1, "<b>": 2, "c": 1}))
    assert [float(each.get("width", "")) / BAR for each in bars] == [0.5, 0.375, 0.125]
    assert [(float(each.get("x", "")) + 1) / BAR for each in lines] == [0.5, 0.25, 0.25]
    assert [each.text for each in texts] == ["<b> 50.0%, asked 50.0%", "c 37.5%, asked 25.0%", "a 12.5%, asked 25.0%"]


def test_pictures_of_some_domains_are_shown_at_once() -> None:
    names = {f"domain_{number}": 1 / 5 for number in range(5)}
    assert len(mixture_picture(names, {})) < 1000
    assert len(mixture_picture(dict(list(names.items())[:3]), names)) < 1000


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=400))
@settings(max_examples=examples(60), deadline=None)
def test_lengths_are_counted_once_each_and_shown_at_once(lengths: list[int]) -> None:
    shown = lengths_picture(np.array(lengths), "tokens")
    assert len(shown) < 1000
    path, ends = drawn(shown)
    highs = [int(high) for high in re.findall(r"v-(\d+)h", path.get("d", ""))]
    assert 1 <= len(highs) <= BINS and max(highs) == HEIGHT
    assert [each.text for each in ends] == [f"{min(lengths):,}", f"{max(lengths):,}"]
    assert f"{len(lengths):,} documents" in shown


def test_the_shares_are_those_of_the_rows(tmp_path: Path) -> None:
    """Records longer than a row are left out, so one domain has less of the rows than of the mixture."""
    rows = {
        "long": [{"instruction": "Say it again.", "output": "again " * 300}, {"instruction": "Hi.", "output": "Hello."}],
        "short": [{"instruction": f"Count {i}.", "output": f"{i}, {i + 1}"} for i in range(20)],
    }
    domains = {name: domain(jsonl(tmp_path / f"{name}.jsonl", each), "alpaca") for name, each in rows.items()}
    options = {"packing": {"strategy": "bfd", "row_len": 64, "overlong": "drop"}, "test_fraction": 0.0}
    store = build_all(workspace := workspace_in(tmp_path, minimal("sft", domains, **options)), ["sft"])["sft_packed", ""]
    table = open_packed(store.directory, "sft_packed")
    lengths, sources = np.asarray(table.documents["length"]), np.asarray(table.documents["source"])
    expected = {name: int(lengths[sources == table.sources.index(name)].sum()) / int(lengths.sum()) for name in domains}
    found = {name: store.manifest.metrics[f"share_{name}"] for name in domains}
    assert found == expected
    assert 0 < expected["long"] < 0.1
    figures = [each.text for each in drawn(store_metadata(workspace, store)["mixture"].value).iter(f"{SVG}text")]
    assert figures == [f"short {expected['short']:.1%}", f"long {expected['long']:.1%}"]
