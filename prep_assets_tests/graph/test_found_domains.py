"""`domains: auto`: a domain for each value of a field, as if somebody had written it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.config.family import can_name_a_domain
from prep_assets.config.loading import Tombstone, add_tombstones, payload_digest
from prep_assets.config.models import FAMILIES, Pretrain
from prep_assets.engine.status import forgotten
from prep_assets.errors import ConfigError
from prep_assets.explain.changes import impact
from prep_assets.graph.graph import ASSETS, EVERY
from prep_assets.pipeline import sources as found_domains
from prep_assets.pipeline.sources import DEFAULT, name_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.tokens import open_tokens
from prep_assets_tests.data.servers import Quiet, serve
from prep_assets_tests.graph.workspaces import build_all, jsonl, make, minimal, tree, verdicts, workspace_in

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
        published = workspace.published("pretrain_tokens", name)
        assert published is not None
        store = open_tokens(published.directory, f"{name}_train")
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
    default = stores["pretrain_tokens", DEFAULT]
    assert all(verdict.passed for verdict in verdicts(workspace, default).values())


def test_every_family_finds_them(tmp_path: Path) -> None:
    read = {"files": [str(jsonl(tmp_path / "a.jsonl", [row("a", "x"), row("b", "y")]))], "domains": "auto", "domain_key": "source"}
    schemas = {"pretrain": "text", "sft": "messages", "preference": "preference", "rl": "rl_prompt", "contrastive": "contrastive"}
    every = {family: minimal(family, {"mixed": {**read, "schema": schema}})[family] for family, schema in schemas.items()}
    workspace = workspace_in(tmp_path, every)
    for family, kind in FAMILIES.items():
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
        (["a"], r"'source' of a\.jsonl:1 holds a list or an object, \"\['a'\]\""),
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
    add_tombstones(workspace.configs, [Tombstone("pretrain", "wiki", "a.jsonl:0", payload_digest(rows[0]))])
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
