"""What a materialization says of itself."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import dagster as dg
import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.models import FAMILIES
from prep_assets.data.quarantine import read_quarantine
from prep_assets.extensions.dagster.assets import report_asset
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.metadata import (
    BAR,
    BINS,
    HEIGHT,
    SHOWN_FILES,
    SVG_TOKENS,
    check_metadata,
    diff_block,
    lengths_picture,
    mixture_picture,
    picture,
    report_link,
    store_metadata,
)
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.table import PACKED, open_stream
from prep_assets.stores.table import TOKENS as TABLE_TOKENS
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import Preview
from prep_assets_tests.effort import examples
from prep_assets_tests.extensions.dagster.conftest import Everything
from prep_assets_tests.extensions.dagster.runs import materializations, plain
from prep_assets_tests.graph.workspaces import SHIPPED_ASSETS, build, build_all, domain, jsonl, minimal, workspace_in
from prep_assets_tests.reports.hostile import Read, hostile_workspace, unseen

TABLES = [name for name, asset in SHIPPED_ASSETS.items() if asset.streams or name.endswith("_raw")]
TOKENS = [name for name, asset in EVERY.items() if asset.holds(TABLE_TOKENS) or asset.holds(PACKED)]


def all_of(everything: Everything, asset: str) -> list[dict[str, Any]]:
    return [plain(each.metadata) for each in materializations(everything.instance, asset)]


@pytest.mark.parametrize("asset", SHIPPED_ASSETS)
def test_every_materialization_says_what_it_is_and_where(everything: Everything, asset: str) -> None:
    found = all_of(everything, asset)
    assert found
    for metadata in found:
        assert metadata["bytes"] > 0
        assert Path(metadata["path"]).is_dir() and Path(metadata["path"]).is_relative_to(everything.stores)
        assert (Path(metadata["path"]) / "manifest.json").is_file()
        assert len(metadata["content_hash"]) == 32 and len(metadata["version"]["build_key"]) == 20
        assert metadata["version"]["reused"] is False
        assert len(json.dumps(metadata)) < 200_000


@pytest.mark.parametrize("asset", TABLES)
def test_figures_are_numbers_so_that_the_page_plots_them(everything: Everything, asset: str) -> None:
    for each in materializations(everything.instance, asset):
        numbers = {key for key, value in each.metadata.items() if isinstance(value, dg.IntMetadataValue | dg.FloatMetadataValue)}
        assert {"dagster/row_count", "bytes", "refused_records"} <= numbers
        assert each.metadata["dagster/row_count"].value > 0
        assert len(numbers) > 3


def test_the_row_count_of_the_packed_table_is_its_number_of_rows(everything: Everything) -> None:
    [metadata] = all_of(everything, "sft_packed")
    with h5py.File(Path(metadata["path"]) / "sft_packed.h5") as file:
        tokens, mask = file["tokens"][:], file["loss_mask"][:]
    assert metadata["dagster/row_count"] == metadata["rows"] == len(tokens)
    assert metadata["trained_tokens"] == int((mask != 0).sum())
    assert metadata["trained_share"] == round((mask != 0).sum() / metadata["tokens"], 4)


@pytest.mark.parametrize("asset", TOKENS)
def test_a_token_store_shows_a_row_inline_and_as_a_picture(everything: Everything, asset: str) -> None:
    for metadata in all_of(everything, asset):
        assert len(metadata["preview"]) < 1000
        assert metadata["preview"].count("```") == 2 and "\n```diff\n" in metadata["preview"]
        assert "data:image/svg+xml;base64," in metadata["preview_row"]


@pytest.mark.parametrize("asset", ["preferences", "rl_prompts", "arithmetic_prompts"])
def test_a_store_of_lines_shows_one(everything: Everything, asset: str) -> None:
    [metadata] = all_of(everything, asset)
    assert set(metadata["preview"]) == ({"prompt", "chosen", "rejected"} if asset == "preferences" else {"prompt", "gold"})


def test_a_source_of_many_files_shows_only_the_first(tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(SHOWN_FILES + 5):
        jsonl(many / f"{number:03}.jsonl", [{"text": f"document {number}"}])
    workspace = workspace_in(tmp_path, minimal("pretrain", {"many": {"files": [str(many)], "schema": "text"}}))
    metadata = store_metadata(workspace, build(workspace, "pretrain_raw", "many"))
    assert metadata["files"] == SHOWN_FILES + 5
    assert [entry["name"] for entry in metadata["preview"].value["files"]] == [f"{number:03}.jsonl" for number in range(SHOWN_FILES)]


def test_refused_records_are_counted_by_reason_with_the_path_of_the_quarantine(tmp_path: Path) -> None:
    rows = [{"instruction": "Add 2 and 2.", "output": "4"}, {"instruction": "", "output": ""}, {"nothing": 1}, {"instruction": "Name it."}]
    source = jsonl(tmp_path / "rows.jsonl", rows)
    workspace = workspace_in(tmp_path, minimal("sft", {"one": {"files": [str(source)], "schema": "alpaca"}}))
    build(workspace, "sft_raw", "one")
    published = build(workspace, "sft_tokens", "one")
    metadata = store_metadata(workspace, published)
    assert metadata["refused_records"] == 3 and metadata["dagster/row_count"] == 1
    assert sum(metadata["refused_by_reason"].value.values()) == 3
    quarantine = Path(metadata["quarantine"].value)
    assert [record.data["record"] for record in metadata["refused"].records] == ["rows.jsonl:2", "rows.jsonl:3", "rows.jsonl:4"]
    assert metadata["refused"].records[0].data["payload"] == '{"instruction": "", "output": ""}'
    packed = store_metadata(workspace, build(workspace, "sft_packed"))
    assert packed["refused_records"] == 3 and packed["refused"].records[0].data["store"] == "sft_tokens[one]"
    assert [refusal.id for refusal in read_quarantine(quarantine)] == ["rows.jsonl:2", "rows.jsonl:3", "rows.jsonl:4"]


def test_what_quality_steps_found_is_shown_first(tmp_path: Path) -> None:
    rows = [{"instruction": "Add 2 and 2.", "output": "They are four in all."}, {"instruction": "Add 3 and 3.", "output": "Six."}]
    steps = {"prep_assets_tests.quality.own_steps:short": {}}
    workspace = workspace_in(
        tmp_path, minimal("sft", {"one": domain(jsonl(tmp_path / "rows.jsonl", rows), "alpaca")}, quality={"steps": steps})
    )
    metadata = store_metadata(workspace, build(workspace, "sft_quality", "one"))
    assert metadata["found"].value == {"prep_assets_tests.quality.own_steps:short/short_answer (drop)": 1}
    assert (metadata["preview"].value["row"], metadata["preview"].value["dropped"]) == (1, "short_answer")


# -- the report of a family as an asset, and what asset pages show first -----------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, dict[str, Published]]:
    workspace = hostile_workspace(tmp_path_factory.mktemp("report"))
    return workspace, {asset: store for (asset, _), store in build_all(workspace, ["sft"]).items()}


def test_the_asset_writes_a_page_for_each_store(built: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = built
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    asset = report_asset(site, "sft", [EVERY[name] for name in stores])
    result = dg.materialize([asset], resources={site.resource: site.workspace, site.io_manager_key: site.stores})
    metadata: Any = result.asset_materializations_for_node("sft_report")[0].metadata
    index = Path(unquote(urlsplit(metadata["report"].value).path))
    linked = Read(index.read_text("utf-8")).addresses
    assert {address for address in linked if not address.startswith("#")} == {f"{name}.html" for name in stores}
    assert metadata["pages"].value == len(stores)
    assert all(stores[name].manifest.content_hash in Path(metadata[name].value).read_text("utf-8") for name in stores)


def test_what_people_look_at_comes_first(built: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = built
    metadata = store_metadata(workspace, stores["sft_packed"])
    assert list(metadata)[:6] == ["rows", "tokens", "fill_rate", "trained_share", "refused_records", "refused_by_reason"]
    assert not any(key.startswith("share_") for key in metadata)
    [line] = metadata["by_domain"].records
    assert (line.data["domain"], line.data["tokens"]) == ("evil", stores["sft_packed"].manifest.counts["tokens"])
    assert "data:image/svg+xml;base64," in metadata["lengths"].value
    refused = store_metadata(workspace, stores["sft_tokens"])
    assert "refused" in refused and "quarantine" in refused
    assert not unseen("".join(str(value) for record in refused["refused"].records for value in record.data.values()))


def test_a_failing_check_shows_the_wrong_token_and_both_derivations(built: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, _ = built
    ids = tuple(range(5, 105))
    same = ("equal<e>", "equal<e>")
    worst = Worst("rows.jsonl:2", "trained 'x', the source says 'y'", ids, (0.0, 1.0) * 50, 61, (same, ("x", "y\u202e"), ("", "z")))
    found = check_metadata(workspace, EVERY["sft_tokens"], Verdict(False, "1 of 2", {"rows_checked": 2}, worst), "evil", candidate=True)
    vocabulary = workspace.vocabulary(workspace.family(FAMILIES["sft"]))
    assert found["wrong_token"] == f"token 61 of 100: {vocabulary.decode([66])!r}, id 66, loss weight 1"
    lines = found["worst_row"].value.split("\n")
    assert [line for line in lines if line.startswith("- ")] == [f"- ↪{vocabulary.decode([66])}"]
    assert [record.data for record in found["derivations"].records] == [
        {"stored": "x", "from the source": "y⟨u+202e⟩", "": "differs"},
        {"stored": "", "from the source": "z", "": "differs"},
    ]
    assert found["look_closer"] == "prep-assets report sft_tokens -p evil --candidate"
    assert found["report"].value == "http://127.0.0.1:8899/candidates/sft_tokens/evil"
    assert check_metadata(workspace, EVERY["sft_tokens"], Verdict(True, "", {"rows": 2}), "evil", candidate=True) == {"rows": 2}


def test_pages_may_be_served_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_VIEW_URL", "https://pages.example.com/team/")
    assert report_link("sft_tokens", "a b").startswith("[open](https://pages.example.com/team/stores/sft_tokens/a%20b) while ")


# -- a row of tokens in Markdown and SVG, whatever is in the tokens ----------------------------------------------------------------------


HOSTILE = [
    *("<script>alert(1)</script>", "\"quoted\" & 'single'", "</text></svg>", "]]>", "&lt;", "\x00\x01\x0b\x1b[31m\x7f", "\ud800"),
    *("￾￿", "\u2028\u2029\x85", "\u202edetrever", "```\n# out of the block\n```", "~~~", "\r\n\t", "👩‍👩‍👧", ""),
]
SVG = "{http://www.w3.org/2000/svg}"


def preview(tokens: list[str], weights: list[float] | None = None, starts: tuple[int, ...] = (0,), title: str = "row 0") -> Preview:
    shown = tuple(weights) if weights is not None else tuple(float(i % 2) for i in range(len(tokens)))
    return Preview(title, tuple(tokens), shown, tuple(range(len(tokens))), tuple((at, "a record") for at in starts))


def block(markdown: str) -> list[str]:
    """The lines of the one fenced block that ends the text; what is before it is one line."""
    found = re.fullmatch(r"[^\n\r]*\n\n```diff\n(.*)\n```", markdown, re.DOTALL)
    assert found, markdown
    assert "```" not in found[1] and "\r" not in found[1]
    return found[1].split("\n")


def svg(markdown: str) -> ElementTree.Element:
    encoded = re.fullmatch(r"[^\n]*\n\n!\[row\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert encoded, markdown
    return ElementTree.fromstring(base64.b64decode(encoded[1]))


@pytest.mark.parametrize(
    ("tokens", "weights", "starts", "lines"),
    [
        # trained tokens are on green lines and masked ones are not
        (["<s>", "Hi", " there", "!", "</s>"], [0, 0, 1, 1, 0], (0,), ["  <s>Hi", "+ ↪ there!", "  ↪</s>"]),
        # a document begins on a line of its own
        (["a", "b", "c", "d"], [1, 1, 1, 0], (0, 2), ["+ ab", "+ c", "  ↪d"]),
        # without a mask nothing is green
        (["a", "b"], [], (0,), ["  ab"]),
        # white space and control characters can be seen
        (["a", "\tb\r", "\x00\x1b", "\x85\u202e", "`\n"], [1] * 5, (0,), ["+ a⇥b␍␀␛⟨u+0085⟩⟨u+202e⟩ˋ⏎"]),
        # a line ends where that of the text does, and where it grows long: ↪ goes on
        (["a", "\n", "b", "\n\n", "c"], [1] * 5, (0,), ["+ a⏎", "+ b⏎⏎", "+ c"]),
        # a masked line break behind what is trained has no line
        (["a", "\n", "b", "\n", "c"], [1, 0, 0, 1, 0], (0, 4), ["+ a", "  b", "+ ↪⏎", "  c"]),
        (["a", "\n", "b"], [1, 0, 0], (0, 1), ["+ a", "  ⏎", "  b"]),
        (["word "] * 20, [0] * 20, (0,), ["  " + "word " * 8, "  ↪" + "word " * 8, "  ↪" + "word " * 4]),
    ],
)
def test_lines_of_a_row(tokens: list[str], weights: list[float], starts: tuple[int, ...], lines: list[str]) -> None:
    assert block(diff_block(preview(tokens, weights, starts))) == lines


def test_a_wrong_token_is_on_a_red_line_of_its_own() -> None:
    shown = preview(["a", "b", "c", "d"], [1, 1, 1, 0])
    assert block(diff_block(shown, 1)) == ["+ a", "- ↪b", "+ ↪c", "  ↪d"]
    boxes = [element.get("fill") for element in svg(picture(shown, 1)).iter(f"{SVG}rect") if element.get("rx")]
    assert boxes[0] == boxes[2] and len(set(boxes)) == 3


def test_a_long_row_a_long_token_and_a_long_title_stay_inline() -> None:
    shown = diff_block(preview(["token "] * 4096))
    assert 800 < len(shown) < 1000 and block(shown)[-1] == "  …"
    assert len(diff_block(preview(["short", "x" * 5000], title="t" * 5000))) < 1000


@pytest.mark.parametrize("title", ["`a` ```", "two\nlines\n```", "expected </think>, found <b>"])
def test_a_title_stays_one_line_of_text(title: str) -> None:
    line = diff_block(preview(["a"], title=title)).split("\n\n```diff")[0]
    assert "\n" not in line and "`" not in line
    assert not re.search(r"(?<!\\)<", line)
    assert picture(preview(["a"], title=title)).count("\n") == 2


@given(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=30), max_size=60), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_any_tokens_give_a_closed_block_and_a_valid_picture(tokens: list[str], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(tokens), max_size=len(tokens)))
    shown = preview(tokens, weights)
    assert len(diff_block(shown)) < 1000
    block(diff_block(shown))
    drawn = svg(picture(shown))
    texts = [element.text or "" for element in drawn.iter(f"{SVG}text")]
    assert len(texts) == len(tokens) and {element.tag for element in drawn.iter()} <= {f"{SVG}{name}" for name in ("svg", "rect", "text")}
    assert all(
        text == token for text, token in zip(texts, tokens, strict=True) if token.isascii() and token.isprintable() and "`" not in token
    )


def test_the_picture_colours_each_token_by_its_weight_and_marks_documents() -> None:
    drawn = svg(picture(preview(["a", "b", "c"], [0, 1, 1], starts=(0, 2))))
    boxes = [element for element in drawn.iter(f"{SVG}rect") if element.get("rx")]
    bars = [element for element in drawn.iter(f"{SVG}rect") if not element.get("rx")]
    assert boxes[1].get("fill") == boxes[2].get("fill") != boxes[0].get("fill")
    assert len(bars) == 2


def test_the_picture_of_a_long_row_is_cut_and_says_so() -> None:
    shown = picture(preview(["x"] * (SVG_TOKENS + 1)))
    assert f"(first {SVG_TOKENS})" in shown
    assert len(list(svg(shown).iter(f"{SVG}text"))) == SVG_TOKENS
    assert len(shown) < 150_000


# -- small pictures: what the rows hold and what was asked for, and how long documents are; inline, so under 1,000 characters ------------


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
    table = open_stream(store.directory, "sft_packed")
    lengths, sources = np.asarray(table.pieces.fields["length"]), np.asarray(table.pieces.fields["source"])
    expected = {name: int(lengths[sources == table.pieces.domains.index(name)].sum()) / int(lengths.sum()) for name in domains}
    found = {name: store.manifest.metrics[f"share_{name}"] for name in domains}
    assert found == expected
    assert 0 < expected["long"] < 0.1
    figures = [each.text for each in drawn(store_metadata(workspace, store)["mixture"].value).iter(f"{SVG}text")]
    assert figures == [f"short {expected['short']:.1%}", f"long {expected['long']:.1%}"]
