"""Broken input: a record in quarantine with its reason, or an error that names the file; never half a store, never another exception."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from prep_assets.config.models import Pretrain
from prep_assets.data.read import unfit
from prep_assets.errors import ConfigError, PrepAssetsError, SourceError
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, refusals, tree

GOOD = b'{"text": "A good line."}\n'


def pretrain(make: Make, file: Path, schema: str = "text", **options: Any) -> Workspace:
    return make(minimal("pretrain", {"a": domain(file, schema, **options)}))


def chat(user: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]}


def assert_nothing_published(workspace: Workspace, asset: str, partition: str = "a") -> None:
    folder = workspace.stores / asset / partition
    assert not (folder / "current").exists() and not (folder / "current").is_symlink()
    assert [path for path in (folder / "versions").glob("*") if path.name != ".lock"] == []


@pytest.mark.parametrize(
    ("line", "reason", "payload"),
    [
        (b'{"text": "cut', "records/invalid_json", '{"text": "cut'),
        (b"not json at all", "records/invalid_json", "not json at all"),
        (b'{"text": "caf\xe9"}', "records/invalid_utf8", '{"text": "caf\\xe9"}'),
        (b'{"text": "\\ud800"}', "records/invalid_json", '{"text": "\\ud800"}'),
        (b'["a list"]', "records/not_an_object", '["a list"]'),
        (b'{"body": "no text field"}', "schema/missing_field", '{"body": "no text field"}'),
        (b'{"text": 7}', "schema/wrong_type", '{"text": 7}'),
        (b'{"text": null}', "schema/missing_field", '{"text": null}'),
        (b'{"text": " \\n\\t "}', "schema/empty_text", json.dumps({"text": " \n\t "})),
        ('{"text": "a\ufdd0b"}'.encode(), "render/noncharacter", '{"text": "a\ufdd0b"}'),
    ],
)
def test_a_broken_line_is_quarantined_and_the_others_are_kept(make: Make, tmp_path: Path, line: bytes, reason: str, payload: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD + line + b"\n" + GOOD.replace(b"good", b"fine"))
    workspace = pretrain(make, file)
    build(workspace, "pretrain_raw", "a")
    published = build(workspace, "pretrain_tokens", "a")
    (refusal,) = refusals(published)
    assert (refusal.id, f"{refusal.stage}/{refusal.reason}", refusal.payload) == ("a.jsonl:1", reason, payload)
    assert refusal.detail
    assert dict(published.manifest.counts["refused"]) == {reason: 1}
    assert (published.manifest.counts["read"], published.manifest.counts["kept"]) == (3, 2)


def test_a_huge_line_is_quarantined_by_its_start(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD + b'{"text": "' + b"x" * 40_000_000 + b'"}\n' + GOOD.replace(b"good", b"fine"))
    workspace = pretrain(make, file)
    build(workspace, "pretrain_raw", "a")
    published = build(workspace, "pretrain_tokens", "a")
    (refusal,) = refusals(published)
    assert (refusal.id, refusal.stage, refusal.reason, refusal.payload_length) == ("a.jsonl:1", "records", "too_long", 40_000_012)
    assert refusal.payload == '{"text": "' + "x" * 1990
    assert published.manifest.counts["kept"] == 2


@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
def test_a_truncated_zst_stops_the_build(make: Make, tmp_path: Path, share: float) -> None:
    lines = b"".join(b'{"text": "%d %d"}\n' % (i, i * 7919) for i in range(5000))
    whole = pyarrow.compress(lines, codec="zstd", asbytes=True)
    (tmp_path / "a.jsonl.zst").write_bytes(whole[: int(len(whole) * share)])
    workspace = pretrain(make, tmp_path / "a.jsonl.zst")
    with pytest.raises(SourceError, match=r"pretrain_raw\[a\]: a\.jsonl\.zst: the zstd stream is cut short.*fetch it again"):
        build(workspace, "pretrain_raw", "a")
    assert_nothing_published(workspace, "pretrain_raw")


def test_an_empty_file_stops_the_build(make: Make, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    with pytest.raises(SourceError, match=r"a\.jsonl.*is empty \(0 bytes\)\. Fetch it again or leave it out"):
        build(pretrain(make, tmp_path / "a.jsonl"), "pretrain_raw", "a")


@pytest.mark.parametrize("content", [b"\n", b"\n\n \n", b"\xef\xbb\xbf\n"])
def test_a_file_of_blank_lines_stops_the_build(make: Make, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    workspace = pretrain(make, tmp_path / "a.jsonl")
    with pytest.raises(SourceError, match=r"pretrain_raw\[a\]: no records in a\.jsonl"):
        build(workspace, "pretrain_raw", "a")
    assert_nothing_published(workspace, "pretrain_raw")


def test_an_empty_list_is_called_one(make: Make, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    with pytest.raises(SourceError, match=r"no records in a\.json: the list is empty"):
        build(pretrain(make, tmp_path / "a.json"), "pretrain_raw", "a")


def test_a_missing_file_and_an_unknown_suffix_stop_the_build(make: Make, tmp_path: Path) -> None:
    with pytest.raises(PrepAssetsError, match=r"nowhere\.jsonl"):
        build(pretrain(make, tmp_path / "nowhere.jsonl"), "pretrain_raw", "a")
    (tmp_path / "a.data").write_bytes(GOOD)
    with pytest.raises(SourceError, match=r"a\.data.*suffix"):
        build(pretrain(make, tmp_path / "a.data"), "pretrain_raw", "a")


def test_a_schema_that_does_not_exist_or_an_option_it_has_not(make: Make, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    for schema, options, match in (
        ("txt", {}, r"pretrain\.yaml:\n  domains\.a: no schema 'txt'; did you mean 'text'"),
        ("text", {"textkey": "x"}, r"pretrain\.yaml:\n  domains\.a: schema 'text' has no option 'textkey'; did you mean 'text_key'"),
        ("text", {"strip": "x"}, r"pretrain\.yaml:\n  domains\.a: schema 'text', option 'strip' = 'x'"),
    ):
        workspace = make(minimal("pretrain", {"a": domain(tmp_path / "a.jsonl", schema, options=options)}), schema + "".join(options))
        # told before anything is read
        with pytest.raises(ConfigError, match=match):
            workspace.family(Pretrain)
    workspace = make(minimal("pretrain", {"a": domain(tmp_path / "a.jsonl", "nowhere.at_all:f")}), "own")
    build(workspace, "pretrain_raw", "a")
    with pytest.raises(PrepAssetsError, match=r"pretrain_tokens\[a\]: schema 'nowhere.at_all:f' cannot be loaded"):
        build(workspace, "pretrain_tokens", "a")
    assert_nothing_published(workspace, "pretrain_tokens")


@pytest.mark.parametrize(
    ("family", "asset", "schema", "reason"),
    [
        ("pretrain", "pretrain_tokens", "text", "schema/missing_field: 2"),
        ("sft", "sft_tokens", "messages", "schema/missing_field: 2"),
        ("preference", "preferences_by_domain", "preference", "schema/missing_field: 2"),
        ("rl", "rl_prompts_by_domain", "gsm8k", "schema/missing_field: 2"),
    ],
)
def test_all_records_refused_stops_the_build_with_the_reasons(
    make: Make, tmp_path: Path, family: str, asset: str, schema: str, reason: str
) -> None:
    jsonl(tmp_path / "a.jsonl", [{"foo": "bar"}, {"foo": "baz"}])
    workspace = make(minimal(family, {"a": domain(tmp_path / "a.jsonl", schema)}))
    build(workspace, f"{family}_raw", "a")
    partition = "a"
    with pytest.raises(PrepAssetsError, match=rf"{asset}.*all 2 records were refused \({reason}\)\. The first one, a\.jsonl:0: "):
        build(workspace, asset, partition)
    assert_nothing_published(workspace, asset, partition)


@pytest.mark.parametrize(("family", "schema"), [("sft", "preference"), ("preference", "messages"), ("rl", "messages")])
def test_a_schema_of_another_family_is_refused_when_the_configuration_loads(make: Make, tmp_path: Path, family: str, schema: str) -> None:
    row = {"prompt": "q", "chosen": "y", "rejected": "n"} if schema == "preference" else chat("q", "a")
    workspace = make(minimal(family, {"a": domain(jsonl(tmp_path / "a.jsonl", [row]), schema)}))
    with pytest.raises(ConfigError, match=rf"{family}\.yaml:\n  domains\.a: schema '{schema}' gives no "):
        build(workspace, f"{family}_raw", "a")
    assert_nothing_published(workspace, f"{family}_raw", "a")


def test_a_schema_of_ones_own_that_raises_anything_refuses_the_record(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_schemas.py").write_text(
        "from prep_assets.samples import document\n"
        "def mine(row):\n"
        "    if row['text'] == 'boom':\n        raise ZeroDivisionError('inside')\n"
        "    return None if row['text'] == 'skip' else document(row['text'])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    file = jsonl(tmp_path / "a.jsonl", [{"text": "boom"}, {"text": "skip"}, {"text": "kept"}])
    workspace = pretrain(make, file, "my_schemas:mine")
    build(workspace, "pretrain_raw", "a")
    published = build(workspace, "pretrain_tokens", "a")
    assert dict(published.manifest.counts["refused"]) == {"schema/schema_error": 1, "schema/skipped_by_schema": 1}
    assert "ZeroDivisionError: inside" in refusals(published)[0].detail


def test_a_failed_build_leaves_the_old_store_as_it_is(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD)
    workspace = pretrain(make, file)
    build(workspace, "pretrain_raw", "a")
    old = build(workspace, "pretrain_tokens", "a")
    before = tree(workspace.stores / "pretrain_tokens")
    file.write_bytes(b'{"foo": 1}\n')
    build(workspace, "pretrain_raw", "a")
    with pytest.raises(PrepAssetsError, match="all 1 records were refused"):
        build(workspace, "pretrain_tokens", "a")
    assert tree(workspace.stores / "pretrain_tokens") == before
    current = workspace.published("pretrain_tokens", "a")
    assert current is not None and current.directory == old.directory


def test_a_source_that_changes_after_it_was_pinned_stops_the_build(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD)
    workspace = pretrain(make, file)
    build(workspace, "pretrain_raw", "a")
    file.write_bytes(GOOD + GOOD)
    with pytest.raises(SourceError, match=r"a\.jsonl: expected 25 bytes.*found 50 bytes.*\n +prep-assets build pretrain_raw"):
        build(workspace, "pretrain_tokens", "a")
    assert_nothing_published(workspace, "pretrain_tokens")


@pytest.mark.parametrize(
    ("family", "asset", "partition", "needs"),
    [
        ("pretrain", "pretrain_tokens", "a", "pretrain_raw --partition a"),
        ("sft", "sft_packed", "", "sft_tokens --partition a"),
        ("preference", "preferences_by_domain", "a", "preference_raw --partition a"),
        ("preference", "preferences", "", "preference_raw --partition a"),
        ("preference", "preference_tokens", "", "preferences_by_domain --partition a"),
        ("rl", "rl_tokens", "", "rl_prompts_by_domain --partition a"),
    ],
)
def test_a_missing_input_is_named_with_the_command_that_builds_it(
    make: Make, tmp_path: Path, family: str, asset: str, partition: str, needs: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    schema = {"preference": "preference", "rl": "gsm8k"}.get(family, "text")
    workspace = make(minimal(family, {"a": domain(tmp_path / "a.jsonl", schema)}))
    with pytest.raises(PrepAssetsError, match=rf"(?s)no store in.*Build it with:.*prep-assets build {needs}"):
        build(workspace, asset, partition)


def test_rows_are_looked_at_for_keys_twice_when_their_source_is_pinned_and_again_only_where_one_was_refused(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = b'{"text": "one", "text": "two"}\n'
    asked: list[int] = []
    monkeypatch.setattr("prep_assets.data.read.unfit", lambda *given: asked.append(len(given[-1])) or unfit(*given))
    for name, lines, expected in (("sound", [GOOD], [1]), ("other", [GOOD, twice], [2, 2])):
        (file := tmp_path / f"{name}.jsonl").write_bytes(b"".join(lines))
        workspace, found = pretrain(make, file), []
        for asset in ("pretrain_raw", "pretrain_tokens"):
            published = build(workspace, asset, "a")
            found += asked
            asked.clear()
        assert found == expected
        assert [refusal.reason for refusal in refusals(published)] == ["invalid_json"] * (len(lines) - 1)
