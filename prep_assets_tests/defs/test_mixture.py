"""The picture of a mixture says what the rows hold and what was asked for."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from prep_assets.defs.metadata import store_metadata
from prep_assets.defs.mixture import BAR, LABEL, mixture_picture
from prep_assets.stores.packed import open_packed
from prep_assets_tests.assets.workspaces import build_all, domain, jsonl, minimal, workspace_in

SVG = "{http://www.w3.org/2000/svg}"


def drawn(markdown: str) -> ElementTree.Element:
    return ElementTree.fromstring(base64.b64decode(re.search(r"base64,([^)]+)\)", markdown)[1]))


def test_bars_are_as_long_as_their_shares_and_the_largest_comes_first() -> None:
    shares = {"a": 0.125, "<b>": 0.5, "c": 0.375}
    root = drawn(mixture_picture(shares, {"a": 1, "<b>": 2, "c": 1}))
    bars = [float(each.get("width")) / BAR for each in root.iter(f"{SVG}rect") if float(each.get("x")) == LABEL]
    assert bars == [0.5, 0.375, 0.125]
    lines = [round((float(each.get("x")) + 1 - LABEL) / BAR, 3) for each in root.iter(f"{SVG}rect") if float(each.get("x")) != LABEL]
    assert lines == [0.5, 0.25, 0.25]
    assert [each.text for each in root.iter(f"{SVG}text")] == [
        *("<b>", "50.0%, asked 50.0%"),
        *("c", "37.5%, asked 25.0%"),
        *("a", "12.5%, asked 25.0%"),
    ]


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
    assert figures == ["short", f"{expected['short']:.1%}", "long", f"{expected['long']:.1%}"]
