"""Opt-outs by rule and by list: what they ask for goes from every store, what they do not keeps every byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets import records, where
from prep_assets.config.loading import read_tombstones
from prep_assets.errors import ConfigError
from prep_assets.extensions.neighbours.forget import forget
from prep_assets.extensions.neighbours.opt_outs import listed_in, rule_of, said_of
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.explain.conftest import Command, with_sources
from prep_assets_tests.explain.conftest import run as run
from prep_assets_tests.graph.workspaces import all_unchecked, build, domain, jsonl, make, minimal, workspace_in

AUTHORS = ("ada", "bob", "cyd", "dan", "eve")


def row(number: int) -> dict[str, Any]:
    """A document of an author, somewhere on the web."""
    author = AUTHORS[number % len(AUTHORS)]
    host = ("a.example.org", "example.org", "example.com", "badexample.org")[number % 4]
    about = {"author": author, "stars": number % 3, "tags": [f"t{number % 2}", "all"], "url": f"https://{host}/{number}"}
    return {"text": f"Document {number} of {author}, which says what no other one says.", "meta": about}


@pytest.fixture(scope="session")
def _pages(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("opt_outs")
    (folder / "data").mkdir()
    chats = [
        {
            "messages": [{"role": "user", "content": f"Chat {n}?"}, {"role": "assistant", "content": f"Of {n} indeed."}],
            "author": ("ada", "bob")[n % 2],
        }
        for n in range(3)
    ]
    pages = domain(jsonl(folder / "data" / "pages.jsonl", [row(n) for n in range(40)]), "text", ignore=["meta"])
    other = domain(jsonl(folder / "data" / "other.jsonl", [{"text": f"Another text, {n}."} for n in range(6)]), "text")
    families = minimal(
        "pretrain", {"pages": pages, "other": other}, test_fraction=0, exports={"nano": {"from": "pretrain_tokens", "to": "nanotron"}}
    )
    sft = minimal("sft", {"chats": domain(jsonl(folder / "data" / "chats.jsonl", chats), "messages", ignore=["author"])}, test_fraction=0)
    return all_unchecked(workspace_in(folder, {**families, **sft}))


@pytest.fixture
def pages(_pages: Workspace, tmp_path: Path) -> Workspace:
    return with_sources(_pages, tmp_path / "w")


def held(workspace: Workspace, asset: str = "pretrain_tokens", name: str = "pages") -> dict[str, bytes]:
    """Each record of a store by name, as a hash of its content."""
    return {each.id: each.digest for each in records(workspace, workspace.built(asset, name))}


def again(workspace: Workspace) -> Workspace:
    return Workspace(workspace.configs, workspace.stores)


@pytest.mark.parametrize(
    ("conditions", "gone"),
    [
        (["meta.author=ada"], lambda n: n % 5 == 0),
        (["meta.author=ada", "meta.author=eve"], lambda n: n % 5 in (0, 4)),
        (["host(meta.url)=example.org"], lambda n: n % 4 < 2),
        (["host(meta.url)=A.Example.ORG"], lambda n: n % 4 == 0),
        (["meta.author=bob", "host(meta.url)=example.com"], lambda n: n % 5 == 1 and n % 4 == 2),
        (["meta.stars=2"], lambda n: n % 3 == 2),
        (["meta.tags=t1"], lambda n: n % 2 == 1),
    ],
)
def test_what_a_rule_asks_for_goes_and_nothing_else(pages: Workspace, conditions: list[str], gone: Any) -> None:
    before, other = held(pages), pages.built("pretrain_tokens", "other")
    stays = {f"pages.jsonl:{n + 1}" for n in range(40) if not gone(n)}
    done = forget(pages, [], rule=rule_of(conditions), reason="asked", domains=["pages"])
    assert held(again(pages)) == {name: digest for name, digest in before.items() if name in stays} != before
    assert {stone.record for stone in done.tombstones} == before.keys() - stays
    assert done.left == {} and "pretrain_tokens[pages]" in done.held and "pretrain_tokens[other]" not in done.held
    # what holds none of them is the same folder
    assert again(pages).built("pretrain_tokens", "other").directory == other.directory
    assert {label for label, (old, new) in done.contents.items() if old != new} <= set(done.held)
    text = "".join(path.read_text("utf-8", "replace") for path in pages.stores.glob("pretrain_tokens/pages/versions/*.quarantine.jsonl"))
    assert "Document" not in text


def test_a_rule_looks_into_every_family(pages: Workspace) -> None:
    done = forget(pages, [], rule=rule_of(["author=ada"]))
    assert [(stone.family, stone.domain, stone.record) for stone in done.tombstones] == [
        ("sft", "chats", f"chats.jsonl:{n}") for n in (1, 3)
    ]
    assert held(again(pages), "sft_tokens", "chats").keys() == {"chats.jsonl:2"} and "sft_packed" in done.held


def test_every_night(pages: Workspace) -> None:
    """A new row of the author is found, and the rest stays as it is."""
    first = forget(pages, [], rule=rule_of(["meta.author=nobody", "meta.author=ada"]), domains=["pages"])
    assert len(first.tombstones) == 8
    source = pages.configs.parent / "data" / "pages.jsonl"
    jsonl(source, [*(row(n) for n in range(40)), {**row(50), "text": "Document 50, a new one of ada."}])
    make(again(pages), EVERY["pretrain_raw"], "pages")
    build(again(pages), "pretrain_tokens", "pages")
    night = forget(again(pages), [], rule=rule_of(["meta.author=ada"]), domains=["pages"])
    assert [stone.record for stone in night.tombstones] == ["pages.jsonl:41"] and night.left == {}
    same = forget(again(pages), [], rule=rule_of(["meta.author=ada"]), domains=["pages"])
    assert same.tombstones == () and all(old == new for old, new in same.contents.values())


def test_the_same_text_in_a_row_that_is_not_asked_for_is_named(pages: Workspace) -> None:
    source = pages.configs.parent / "data" / "other.jsonl"
    jsonl(
        source, [{"text": "Another."}, {"text": f"A quotation: {row(5)['text']} That is all.", "meta": row(5)["meta"] | {"author": "zoe"}}]
    )
    config = pages.configs / "pretrain.yaml"
    config.write_text(
        config.read_text("utf-8").replace("other.jsonl\n    schema: text", "other.jsonl\n    schema: text\n    ignore: [meta]"), "utf-8"
    )
    make(again(pages), EVERY["pretrain_raw"], "other")
    build(again(pages), "pretrain_tokens", "other")
    done = forget(again(pages), [], rule=rule_of(["meta.author=ada"]), domains=["pages"])
    assert done.left == {}  # only the domain of the rows is searched
    done = forget(again(pages), ["other/1"], rule=rule_of(["meta.author=ada"]), domains=["pages"])
    assert done.left["pretrain_tokens[other]"] == ("other/other.jsonl:2",)


def test_a_field_that_no_row_has_is_an_error(pages: Workspace) -> None:
    with pytest.raises(ConfigError, match=r"no row has a field 'autor'; did you mean 'author'\?"):
        forget(pages, [], rule=rule_of(["autor=ada"]))
    with pytest.raises(ConfigError, match=r"no domain 'page'; did you mean 'pages'\?"):
        forget(pages, [], rule=rule_of(["meta.author=ada"]), domains=["page"])
    with pytest.raises(ConfigError, match=r"'author' is no condition. Write FIELD=VALUE"):
        rule_of(["author"])
    assert read_tombstones(pages.configs) == ()


def test_the_command_with_lists_and_a_certificate(pages: Workspace, run: Command, tmp_path: Path) -> None:
    (tmp_path / "authors.txt").write_text("# asked in October\nbob\n\ncyd\nbob\n", "utf-8")
    (tmp_path / "ids.txt").write_text("pages/pages.jsonl:1\nchats/2\n", "utf-8")
    found = run(
        pages,
        "forget",
        "--list",
        tmp_path / "authors.txt",
        "--field",
        "meta.author",
        "--certificate",
        tmp_path / "c.json",
        "--reason",
        "asked",
    )
    assert found.exit_code == 0, found.output
    assert "no trace is left" in found.output and "kept every byte" in found.output
    certificate = json.loads((tmp_path / "c.json").read_text("utf-8"))
    assert certificate["rule"] == {"meta.author": ["bob", "cyd"]} and certificate["left"] == {}
    assert sorted(stone["record"] for stone in certificate["tombstones"]) == sorted(
        f"pages.jsonl:{n + 1}" for n in range(40) if n % 5 in (1, 2)
    )
    assert all("Document" not in json.dumps(stone) for stone in certificate["tombstones"])
    changed = {label for label, each in certificate["contents"].items() if each["before"] != each["after"]}
    assert changed == {"pretrain_tokens[pages]", "pretrain_export_nano[pages]"} == {*certificate["held"]}
    found = run(pages, "forget", "--list", tmp_path / "ids.txt", "--json")
    assert {stone["record"] for stone in json.loads(found.stdout)["tombstones"]} == {"pages.jsonl:1", "chats.jsonl:2"}
    for record in ("pages/1", "pages/2", "chats/2"):
        assert [gone.reason for gone in where(again(pages), record)[0].not_here if "tokens" in gone.asset] == ["records/forgotten"]
    for words, said in (
        ((), "nothing is asked for: name records, or give --where FIELD=VALUE or --list FILE"),
        (("--field", "author"), "--field says what a list has: add --list FILE"),
        (("pages/1", "--domain", "pages"), "--domain has no effect"),
        (("--list", tmp_path / "none.txt"), "cannot be read"),
    ):
        assert said in run(pages, "forget", *words).output.replace("\n", " ")


def test_an_empty_list(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# nothing yet\n\n", "utf-8")
    with pytest.raises(ConfigError, match="lists nothing"):
        listed_in(tmp_path / "list.txt")


@given(
    st.from_regex(r"[a-z][a-z0-9]{0,5}(\.[a-z][a-z0-9]{0,5}){0,3}", fullmatch=True),
    st.sampled_from(["https://{}/x?y#z", "//{}", "{}", "http://u:p@{}:80/", "HTTPS://{}."]),
)
def test_hosts_are_those_of_the_url_and_above(host: str, form: str) -> None:
    said = said_of({"url": form.format(host)}, "host(url)")
    assert said == {host.split(".", at)[-1] for at in range(host.count(".") + 1)}


def test_what_has_no_host_says_none() -> None:
    for value in (None, 7, "", "http://[::1", ["x"], {"a": 1}):
        assert "example.org" not in said_of({"url": value}, "host(url)")
    assert said_of({"url": ["http://a.b", "http://c"]}, "host(url)") == {"a.b", "b", "c"}
    assert said_of({"x": True, "y": 1.5}, "x") == {"true"} and said_of({"y": None}, "y") == frozenset() == said_of({}, "y")
