"""Domains: rows told apart by a field, domains that files name, benchmarks that no record may hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.config.family import Family, can_name_a_domain
from prep_assets.config.loading import Tombstone, add_tombstones, payload_digest
from prep_assets.config.models import FAMILIES, TRAINED, Pretrain
from prep_assets.data.quarantine import read_quarantine
from prep_assets.engine.status import forgotten
from prep_assets.errors import ConfigError, SourceError, SourceUnavailable
from prep_assets.extensions.changes.changes import impact
from prep_assets.graph.graph import ASSETS, EVERY
from prep_assets.pipeline import source_files as found_domains
from prep_assets.pipeline.source_files import DEFAULT, name_of
from prep_assets.pipeline.sources import Benchmarks
from prep_assets.pipeline.workspace import Workspace, check_domains
from prep_assets.proofs.selection import Passages
from prep_assets.samples import Group
from prep_assets.stores.table import open_stream
from prep_assets_tests.data.servers import Quiet, serve
from prep_assets_tests.graph.families import FAMILIES as TRIED
from prep_assets_tests.graph.workspaces import build, build_all, domain, failing, jsonl, make, minimal, refusals, tree, workspace_in

# One source for several domains, told apart by a field; and images that are not there.


ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"source": "math", "instruction": "2 + 2?", "output": "4"},
    {"source": "code", "instruction": "Print?", "output": "print()"},
    {"source": "math", "instruction": "3 + 3?", "output": "6"},
    {"source": "code", "instruction": "Hard?", "output": "no", "level": 9},
]


def _workspace(folder: Path, rows: list[dict[str, object]], domains: str) -> Workspace:
    (folder / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    text = f"tokenizer: {ROOT / 'configs' / 'tokenizer'}\npacking: {{row_len: 64}}\ndomains:\n{domains}"
    (folder / "sft.yaml").write_text(text, "utf-8")
    return Workspace(folder, folder / "stores")


TWO = """\
  math: {files: [mixed.jsonl], schema: alpaca, domain_key: source}
  python: {files: [mixed.jsonl], schema: alpaca, domain_key: source, domain_value: code, where: {level: {exists: false}}}
"""


def test_each_domain_takes_its_own_rows_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    workspace = _workspace(tmp_path, [*ROWS], TWO)
    counts = {}
    for domain in ("math", "python"):
        raw = make(workspace, ASSETS["sft_raw"], domain).manifest.counts
        tokens = make(workspace, ASSETS["sft_tokens"], domain).manifest.counts
        counts[domain] = (raw["read"], tokens["read"], tokens["kept"], tokens["refused"])
    assert counts == {"math": (2, 2, 2, {}), "python": (2, 2, 1, {"records/filtered_by_where": 1})}


def test_a_schema_gives_what_the_model_of_the_family_says() -> None:
    class Ranked(Family):
        form_of_rows: ClassVar[type] = Group

    def check(*schemas: str) -> None:
        domains = {f"d{n}": {"files": ["x.jsonl"], "schema": name} for n, name in enumerate(schemas)}
        check_domains(Ranked.model_validate({"tokenizer": "t", "domains": domains}), "ranked.yaml")

    check("group", "group_list", "never:imported")
    with pytest.raises(ConfigError, match=r"domains\.d1: schema 'alpaca' gives no Group, which is needed here. These do: agent_steps"):
        check("group", "alpaca")


def test_a_value_that_no_domain_declares_stops_with_its_count_and_the_nearest(tmp_path: Path) -> None:
    workspace = _workspace(
        tmp_path, [*ROWS, {"source": "maths", "instruction": "1?", "output": "1"}, {"instruction": "?", "output": "x"}], TWO
    )
    with pytest.raises(SourceError, match=r"'\(missing\)' \(1 rows\), 'maths' \(1 rows; did you mean 'math'\?\)"):
        make(workspace, ASSETS["sft_raw"], "math")
    assert workspace.published("sft_raw", "math") is None


def test_declaring_another_domain_makes_the_raw_asset_stale(tmp_path: Path) -> None:
    one = _workspace(tmp_path, ROWS[:1], TWO.splitlines()[0] + "\n")
    before = ASSETS["sft_raw"].build(one, "math").recipe
    assert ASSETS["sft_raw"].build(_workspace(tmp_path, ROWS[:1], TWO), "math").recipe != before


def _pieces(folder: Path, domains: str, **files: list[str]) -> Workspace:
    """A workspace over files of some rows, each given by its values of ``source``."""
    for name, values in files.items():
        rows = [{"source": value, "instruction": f"{name} {i}?", "output": "yes"} for i, value in enumerate(values)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return _workspace(folder, [], domains)


ROLES = {
    "another file": "  {name}: {{files: [{own}.jsonl], schema: alpaca, domain_key: source}}\n",
    "held out by one, trained on by the other": "  {name}: {{files: [{own}.jsonl], test_files: [{held}.jsonl], schema: alpaca, domain_key: source}}\n",
}


@pytest.mark.parametrize("form", ROLES.values(), ids=ROLES)
def test_a_value_that_only_a_domain_of_other_files_declares_stops(tmp_path: Path, form: str) -> None:
    domains = form.format(name="math", own="x", held="z") + form.format(name="poetry", own="y", held="x")
    workspace = _pieces(tmp_path, domains, x=["math", "poetry", "poetry"], y=["poetry"], z=["math"])
    with pytest.raises(SourceError, match=r"'source' holds values that no domain declares: 'poetry' \(2 rows\)"):
        make(workspace, ASSETS["sft_raw"], "math")


def test_domains_that_share_some_files_take_every_row_once(tmp_path: Path) -> None:
    domains = "".join(
        f"  {name}: {{files: {files}, schema: alpaca, domain_key: source}}\n"
        for name, files in (("a", "[x.jsonl, y.jsonl]"), ("b", "[./y.jsonl, z.jsonl, gone.jsonl]"))
    )
    workspace = _pieces(tmp_path, domains, x=["a", "a"], y=["a", "b", "b"], z=["b"])
    assert make(workspace, ASSETS["sft_raw"], "a").manifest.counts["read"] == 3
    with pytest.raises(SourceError, match=r"gone\.jsonl"):
        make(workspace, ASSETS["sft_raw"], "b")
    (tmp_path / "gone.jsonl").write_text('{"source": "b", "instruction": "?", "output": "yes"}\n', "utf-8")
    assert make(workspace, ASSETS["sft_raw"], "b").manifest.counts["read"] == 4


@pytest.mark.parametrize("role", ["files: [x.jsonl]", "files: [y.jsonl], test_files: ['*.jsonl']"])
def test_two_domains_that_take_the_same_rows_stop(tmp_path: Path, role: str) -> None:
    math = "  math: {files: [x.jsonl], schema: alpaca, domain_key: source}\n"
    workspace = _pieces(
        tmp_path, math + f"  b: {{{role}, schema: alpaca, domain_key: source, domain_value: math}}\n", x=["math"], y=["math"]
    )
    for name in ("math", "b"):
        with pytest.raises(ConfigError, match=r"domains b and math both take the rows of .*x\.jsonl in which 'source' is 'math'"):
            make(workspace, ASSETS["sft_raw"], name)
    apart = math + "  b: {files: [y.jsonl], schema: alpaca, domain_key: source, domain_value: math}\n"
    fine = _pieces(tmp_path, apart, x=["math"], y=["math"])
    assert [make(fine, ASSETS["sft_raw"], name).manifest.counts["read"] for name in ("math", "b")] == [1, 1]


def test_a_missing_image_is_a_quarantined_record(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"messages": [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A cat."}], "images": [name]}
        for name in ("there.png", "gone.png")
    ]
    domains = "  pictures: {files: [mixed.jsonl], schema: messages, image_dir: pictures}\nimage_token: '<|pad|>'\n"
    workspace = _workspace(tmp_path, rows, domains)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "there.png").write_bytes(b"not looked at")
    make(workspace, ASSETS["sft_raw"], "pictures")
    store = make(workspace, ASSETS["sft_tokens"], "pictures")
    assert (store.manifest.counts["kept"], store.manifest.counts["refused"]) == (1, {"render/missing_image": 1})
    assert store.quarantine is not None
    (refusal,) = read_quarantine(store.quarantine)
    assert refusal.id == "mixed.jsonl:2" and "gone.png" in refusal.detail


def test_a_source_of_another_domain_that_is_not_reached_is_not_taken_for_missing(tmp_path: Path) -> None:
    """It may hold rows of the same files, and without it the recipe would be another one."""
    for place, raised in (("http://127.0.0.1:9/mixed.jsonl", SourceUnavailable), ("gone.jsonl", SourceError)):
        workspace = _workspace(tmp_path, [*ROWS], TWO.replace("python: {files: [mixed.jsonl]", f"python: {{files: [{place}]"))
        with pytest.raises(SourceError) as stopped:
            make(workspace, ASSETS["sft_raw"], "math")
        assert type(stopped.value) is raised


# `domains: auto`: a domain for each value of a field, as if somebody had written it.


Row = dict[str, Any]
MISSING = object()
AUTO: Row = {"domains": "auto"}


def row(text: str, source: Any = MISSING) -> Row:
    return {"text": text} if source is MISSING else {"text": text, "source": source}


def workspace_of(folder: Path, rows: Sequence[Row], domains: Mapping[str, Any] | None = None, **options: Any) -> Workspace:
    """A pretrain family over one file, ``a.jsonl``."""
    read = {"files": ["../*.jsonl"], "schema": "text", "domain_key": "source"}
    found = {name: {**read, **each} for name, each in (domains or {"mixed": AUTO}).items()}
    folder.mkdir(exist_ok=True)
    jsonl(folder / "a.jsonl", rows)
    return workspace_in(folder, minimal("pretrain", found, **options))


def names(workspace: Workspace, *, looks: bool = True) -> list[str]:
    """The domains, as somebody sees them who comes anew."""
    return list(Workspace(workspace.configs, workspace.stores, looks=looks).family(Pretrain).domains)


def texts(workspace: Workspace) -> dict[str, list[str]]:
    """The documents of every domain, by the value of its rows, as its tokens say them."""
    found, family = {}, workspace.family(Pretrain)
    for name, domain in family.domains.items():
        published = workspace.built("pretrain_tokens", name)
        store = open_stream(published.directory, f"{name}_train")
        decode = workspace.vocabulary(family).backend.decode
        found[domain.value(name)] = [decode(store.record(n, "tokens").tolist(), skip_special_tokens=True) for n in range(len(store))]
    return found


# -- what it is ---------------------------------------------------------------------------------------------------------------------------


def test_stores_have_the_bytes_of_domains_that_are_written_by_hand(tmp_path: Path) -> None:
    rows = [row("a b", "wiki"), row("c", "code"), row("d e f", "wiki"), row("g", "a/b"), row("h", "")]
    listed = {name_of(value): {"domain_value": value} for value in ("wiki", "code", "a/b", "")}
    found, written = workspace_of(tmp_path / "1", rows), workspace_of(tmp_path / "2", rows, listed)
    for workspace in (found, written):
        build_all(workspace, ["pretrain"])
    assert sorted(names(found)) == sorted(listed) and len(listed) == 4
    assert tree(found.stores) == tree(written.stores)


def astrai(rows: Sequence[Row], key: str) -> dict[str, list[str]]:
    """What AstrAI's pipeline does with its `domain_key`: a text is a domain, and rows without one have a domain together."""
    found: dict[str, list[str]] = {}
    for each in rows:
        value = each.get(key)
        found.setdefault(value if isinstance(value, str) else "__default__", []).append(each["text"])
    return found


def test_domains_have_the_rows_that_astrai_gives_them(tmp_path: Path) -> None:
    rows = [row("a", "wiki"), row("b"), row("c", "code"), row("d", None), row("e", "wiki"), row("f", "Common Crawl 1.5"), row("g", "百科")]
    workspace = workspace_of(tmp_path, rows)
    stores = build_all(workspace, ["pretrain"])
    assert {"__default__" if value == "(missing)" else value: each for value, each in texts(workspace).items()} == astrai(rows, "source")
    assert ("pretrain_tokens", DEFAULT) in stores


def test_every_family_finds_them(tmp_path: Path) -> None:
    read = {"files": [str(jsonl(tmp_path / "a.jsonl", [row("a", "x"), row("b", "y")]))], "domains": "auto", "domain_key": "source"}
    every = {family: minimal(family, {"mixed": {**read, "schema": tried.schema}})[family] for family, tried in TRIED.items()}
    workspace = workspace_in(tmp_path, every)
    for family, kind in ((family, FAMILIES[family]) for family in TRAINED):
        assert list(workspace.family(kind).domains) == ["x", "y"]
        assert EVERY[f"{family}_raw"].partitions(workspace) == ("x", "y")
        assert {domain.max_domains for domain in workspace.family(kind).domains.values()} == {100}


# -- names --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "begins"),
    [
        ("wiki", "wiki"),
        ("a/b", "a-b-"),
        ("../esc", "esc-"),
        ("", "domain-"),
        ("百科", "domain-"),
        ("wiki ", "wiki-"),
        ("x" * 500, "x" * 60 + "-"),
    ],
)
def test_names(value: str, begins: str) -> None:
    assert name_of(value).startswith(begins)
    assert (name_of(value) == value) == (begins == value)


@given(st.lists(st.text(max_size=80), unique=True, min_size=2, max_size=6))
def test_a_name_is_one_safe_folder_and_no_other_values(found: list[str]) -> None:
    made = {value: name_of(value) for value in found if value != "(missing)"}
    assert all(can_name_a_domain(name) for name in made.values())
    assert len(set(made.values())) == len(made)


def test_a_number_is_the_domain_of_its_text(tmp_path: Path) -> None:
    assert names(workspace_of(tmp_path, [row("a", 2024), row("b", "2024"), row("c", 1.5), row("d", True)])) == ["1.5", "2024", "True"]


# -- what stops ---------------------------------------------------------------------------------------------------------------------------


def test_values_that_differ_in_capital_letters_stop_until_one_is_written_by_hand(tmp_path: Path) -> None:
    rows = [row("a", "Wiki"), row("b", "wiki")]
    with pytest.raises(ConfigError, match=r"pretrain\.yaml:\n  domains\.mixed: the domain 'wiki' is there already, as 'Wiki'"):
        names(workspace_of(tmp_path, rows))
    assert names(workspace_of(tmp_path, rows), looks=False) == ["mixed"]
    workspace = workspace_of(tmp_path, rows, {"mixed": AUTO, "lower": {"domain_value": "wiki"}})
    build_all(workspace, ["pretrain"])
    assert texts(workspace) == {"Wiki": ["a"], "wiki": ["b"]}
    assert names(workspace) == ["Wiki", "lower"]


def test_more_values_than_the_maximum_stop_with_the_most_frequent(tmp_path: Path) -> None:
    rows = [*(row(f"{n}", f"v{n % 4}") for n in range(9)), row("x", "by hand")]
    hand = {"hand": {"domain_value": "by hand"}}
    said = r"domains\.mixed: 'source' holds 4 values or more, and max_domains is 3\. The most frequent so far: 'v0' \(3 rows\)"
    with pytest.raises(ConfigError, match=said):
        names(workspace_of(tmp_path, rows, {"mixed": {**AUTO, "max_domains": 3}, **hand}))
    assert len(names(workspace_of(tmp_path, rows, {"mixed": {**AUTO, "max_domains": 4}, **hand}))) == 5
    jsonl(tmp_path / "b.jsonl", [row("z", "v9")])  # a maximum of all files
    with pytest.raises(ConfigError, match="holds 5 values or more"):
        names(workspace_of(tmp_path, rows, {"mixed": {**AUTO, "max_domains": 4}, **hand}))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["a"], r"'source' of a\.jsonl:2 holds a list or an object, \"\['a'\]\""),
        ({"a": 1}, "holds a list or an object"),
        ("x" * 1001, "holds 1,001 characters"),
        ("(missing)", r"holds the text '\(missing\)'"),
    ],
)
def test_a_value_that_can_name_no_domain_stops_with_its_row(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        names(workspace_of(tmp_path, [row("a", "wiki"), row("b", value)]))


def test_files_without_a_row_stop(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, [])
    (tmp_path / "a.jsonl").write_text("no JSON\n", "utf-8")
    with pytest.raises(ConfigError, match="no file has a row that can be read"):
        names(workspace)


def test_two_entries_that_find_one_value_stop(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"domains\.more: the domain 'wiki' is there already"):
        names(workspace_of(tmp_path, [row("a", "wiki")], {"mixed": AUTO, "more": AUTO}))


def test_options_that_name_domains_are_compared_with_those_that_were_found(tmp_path: Path) -> None:
    chats = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "source": "wiki"}]
    read = {"files": [str(jsonl(tmp_path / "a.jsonl", chats))], "schema": "messages", "domains": "auto", "domain_key": "source"}

    def domains(weights: Mapping[str, float]) -> list[str]:
        workspace = workspace_in(tmp_path, minimal("sft", {"mixed": read}, packing={"weights": dict(weights)}))
        return list(workspace.family(FAMILIES["sft"]).domains)

    assert domains({"wiki": 1}) == ["wiki"]
    with pytest.raises(ConfigError, match=r"sft\.yaml:\n  packing\.weights: names 'mixed', which is not a domain\. Domains: wiki"):
        domains({"mixed": 1})


# -- what changes -------------------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_again_only_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspace_of(tmp_path, [row("a", "wiki")])
    jsonl(tmp_path / "b.jsonl", [row("b", "code")])
    read: list[str] = []
    real = found_domains.read_blocks
    monkeypatch.setattr(found_domains, "read_blocks", lambda file, *more, **how: (read.append(file.name), real(file, *more, **how))[1])
    assert [names(workspace) for _ in range(2)] == [["code", "wiki"]] * 2
    jsonl(tmp_path / "b.jsonl", [row("b", "code"), row("c", "math")])
    assert names(workspace) == ["code", "math", "wiki"]
    assert read == ["a.jsonl", "b.jsonl", "b.jsonl"]


def test_a_workspace_that_does_not_look_has_what_was_found_last(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, [row("a", "wiki")])
    assert names(workspace, looks=False) == ["mixed"]
    assert names(workspace) == ["wiki"]
    jsonl(tmp_path / "b.jsonl", [row("b", "code")])
    assert names(workspace, looks=False) == ["wiki"]
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b.jsonl").unlink()
    assert names(workspace) == ["wiki"]  # the build of wiki says that its files are gone


def test_what_is_remembered_holds_no_secret_of_an_address(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP with aiohttp")
    jsonl(tmp_path / "a.jsonl", [row("a", "wiki"), row("b", "code")])
    for host in serve(partial(Quiet, directory=str(tmp_path))):
        address = (
            f"{host.replace('://', '://me:averysecretword@')}/a.jsonl?X-Amz-Signature=averysecretsign&X-Amz-Credential=averysecretname"
        )
        domain = {"files": [address], "schema": "text", "domain_key": "source", **AUTO}
        workspace = workspace_in(tmp_path, minimal("pretrain", {"mixed": domain}))
        assert names(workspace) == ["code", "wiki"]
        build_all(workspace, ["pretrain"])
    assert names(workspace, looks=False) == ["code", "wiki"]
    written = [path.read_bytes() for path in workspace.stores.rglob("*") if path.is_file()]
    assert any(b'"wiki"' in each for each in written)
    assert not any(b"averysecret" in each or b"X-Amz" in each for each in written)


def test_files_that_are_not_there_stop_where_nothing_was_found_before(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, [])
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"domains\.mixed: '\.\./\*\.jsonl' matches no file"):
        names(workspace)


def test_a_new_value_is_a_new_domain_and_one_that_vanished_can_be_pruned(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, [row("a", "wiki"), row("b", "code")])
    build_all(workspace, ["pretrain"])
    later = workspace_of(tmp_path, [row("a", "wiki"), row("c", "math")])
    assert [place.label for place in forgotten(later)] == ["pretrain_raw[code]", "pretrain_tokens[code]"]
    build_all(later, ["pretrain"])
    assert texts(later) == {"wiki": ["a"], "math": ["c"]}


def test_impact_tries_a_change_on_the_first_rows_of_each(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, [row(f"{name} {n}", name) for n in range(6) for name in ("wiki", "code")])
    build_all(workspace, ["pretrain"])
    changed = workspace.overriding("pretrain", {"append_eod": False})
    effects = {each.label: (each.outcome, each.sample) for each in impact(workspace, changed, sample=2, long=1)}
    assert effects["pretrain_tokens[wiki]"] == effects["pretrain_tokens[code]"] == ("changed", 2)


def test_a_forgotten_row_stays_out_of_a_domain_that_was_found(tmp_path: Path) -> None:
    rows = [row("a", "wiki"), row("b", "wiki")]
    workspace = workspace_of(tmp_path, rows)
    add_tombstones(workspace.configs, [Tombstone("pretrain", "wiki", "a.jsonl:1", payload_digest(rows[0]))])
    make(workspace, ASSETS["pretrain_raw"], "wiki")
    make(workspace, ASSETS["pretrain_tokens"], "wiki")
    assert texts(workspace) == {"wiki": ["b"]}


def test_what_is_remembered_is_read_with_care(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, [row("a", "wiki")])
    assert names(workspace) == ["wiki"]
    (memory,) = (workspace.stores / ".hashes").glob("values-*.json")
    for damaged in ("", "[]", '{"a": 1}', json.dumps({"a": ["b", 1]})):
        memory.write_text(damaged, "utf-8")
        assert names(workspace, looks=False) == ["mixed"]
        assert names(workspace) == ["wiki"]


# Decontamination: planted passages of benchmarks are refused, in every family, and nothing else is.


QUESTION = "A farmer has seven hens and each of them lays three eggs on every second day of the week"
SAID = "My homework: a FARMER has seven hens, and each of them lays three eggs (on every second day)!"


def rows(family: str) -> list[dict[str, Any]]:
    """One clean row and one that holds the question, as the family's schema reads them."""
    clean = "Nothing here is from a test set, whatever it may look like at first sight to those who read it."
    made = {
        "pretrain": lambda text: {"text": text},
        "sft": lambda text: {"instruction": text, "output": "Yes."},
        "preference": lambda text: {"prompt": text, "chosen": "Yes.", "rejected": "No."},
        "rl": lambda text: {"question": text, "answer": "#### 4"},
    }[family]
    return [made(clean), made(SAID)]


@pytest.mark.parametrize(
    ("family", "schema", "asset", "partition"),
    [
        ("pretrain", "text", "pretrain_tokens", "a"),
        ("sft", "alpaca", "sft_tokens", "a"),
        ("preference", "preference", "preferences_by_domain", "a"),
        ("rl", "gsm8k", "rl_prompts_by_domain", "a"),
    ],
)
def test_a_planted_question_is_refused(tmp_path: Path, family: str, schema: str, asset: str, partition: str) -> None:
    jsonl(tmp_path / "bench.jsonl", [{"question": QUESTION, "choices": ["21", "22"]}])
    source = jsonl(tmp_path / "a.jsonl", rows(family))
    more = {"arithmetic": {"n": 5}} if family == "rl" else {"test_fraction": 0.0} if family == "preference" else {}
    options = {"decontaminate": {"files": [str(tmp_path / "bench.jsonl")]}, "engine": "reference", **more}
    workspace = workspace_in(tmp_path, minimal(family, {"a": domain(source, schema)}, **options))
    found = refusals(build(workspace, asset, partition))
    assert [(each.id, each.stage, each.reason) for each in found] == [(found[0].id, "decontaminate", "contaminated")]
    assert found[0].id.endswith("a.jsonl:2") and "bench.jsonl:1" in found[0].detail


def test_another_benchmark_makes_the_store_stale(tmp_path: Path) -> None:
    jsonl(tmp_path / "bench.jsonl", [{"question": QUESTION}])
    source = jsonl(tmp_path / "a.jsonl", rows("sft"))
    options = {"decontaminate": {"files": [str(tmp_path / "bench.jsonl")]}, "engine": "reference"}
    workspace = workspace_in(tmp_path, minimal("sft", {"a": domain(source, "alpaca")}, **options))
    before = build(workspace, "sft_raw", "a").manifest.build_key
    jsonl(tmp_path / "bench.jsonl", [{"question": "something else " * 4}])
    with pytest.raises(SourceError, match="benchmarks"):
        build(workspace, "sft_tokens", "a")
    assert build(workspace, "sft_raw", "a").manifest.build_key != before


def test_a_contaminated_row_that_is_kept_fails_the_check(tmp_path: Path) -> None:
    """The same sources, with a benchmark that the store knows nothing of: the second reading finds what it holds."""
    benchmark = jsonl(tmp_path / "bench.jsonl", [{"question": "nothing of the kind " * 2}])
    source = jsonl(tmp_path / "a.jsonl", rows("sft"))
    options = {"decontaminate": {"files": [str(benchmark)]}, "engine": "reference"}
    workspace = workspace_in(tmp_path, minimal("sft", {"a": domain(source, "alpaca")}, **options))
    kept = build(workspace, "sft_tokens", "a")
    assert kept.manifest.counts["kept"] == 2
    jsonl(benchmark, [{"question": QUESTION}])
    again = workspace_in(tmp_path, minimal("sft", {"a": domain(source, "alpaca")}, **options))
    build(again, "sft_raw", "a")
    assert "selection" in failing(again, kept)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("bench.json", [QUESTION], "bench.json:1 cannot be read .not_an_object"),
        ("bench.jsonl", [{"question": "too short"}], "bench.jsonl has no text of 8 words"),
        ("bench.jsonl", ["not an object"], "bench.jsonl:1 cannot be read"),
    ],
)
def test_a_benchmark_that_guards_nothing_stops_the_build(tmp_path: Path, name: str, content: list[Any], fault: str) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(content) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in content))
    source = jsonl(tmp_path / "a.jsonl", rows("sft"))
    workspace = workspace_in(tmp_path, minimal("sft", {"a": domain(source, "alpaca")}, decontaminate={"files": [str(path)]}))
    with pytest.raises(SourceError, match=f"decontaminate: {fault}"):
        build(workspace, "sft_tokens", "a")


WORDS = st.lists(st.sampled_from(["a", "b", "C", "d"]), max_size=30)


@given(bench=st.lists(WORDS, max_size=4), row=WORDS, words=st.integers(8, 12))
def test_as_a_search_for_passages_finds_it(bench: list[list[str]], row: list[str], words: int) -> None:
    """The same by substrings of joined words."""
    benchmarks = Benchmarks(words)
    for number, each in enumerate(bench):
        benchmarks._add(", ".join(each), str(number))
    text = f" {' '.join(row).lower()} "
    passages = [
        " ".join(each[at : at + min(words, len(each))]).lower()
        for each in bench
        if len(each) >= 8
        for at in range(max(1, len(each) - words + 1))
    ]
    expected = any(f" {passage} " in text for passage in passages)
    found = benchmarks.refusal({"text": "; ".join(row)}) is not None
    assert found == expected == Passages.of(([", ".join(each)] for each in bench), words).holds({"text": ["; ".join(row)]})
