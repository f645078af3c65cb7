"""Records that are rejected: each is counted and in quarantine, whatever is wrong with it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError, PrepAssetsError, SourceError
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.examples import Seen, duplicates_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores import files as digests
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.corpus.conversations import chat
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, build_all, domain, jsonl, minimal, refusals, tree
from prep_assets_tests.graph.workspaces import make as make_store
from prep_assets_tests.peak import peak

# What is kept, what is refused and why, and on which side of a split it lands.


def tokens_of(workspace: Workspace, partition: str = "a") -> Published:
    return build(workspace, "sft_tokens", partition)


def origins(published: Published, stream: str) -> list[tuple[int, int]]:
    store = open_stream(published.directory, stream)
    return list(zip(store.origins.file.tolist(), store.origins.row.tolist(), strict=True))


def test_chats_that_share_a_long_system_prompt_all_stay_and_only_exact_duplicates_go(make: Make, tmp_path: Path) -> None:
    system = "You are a patient teacher. " * 40
    rows = [chat(f"Question {i}?", f"Answer {i}.", system) for i in range(100)]
    rows[50:50] = [rows[7], chat("Question 7?", "Answer 7!", system), dict(reversed({**rows[3], "tag": 1}.items()))]
    rows += [{**rows[3], "tag": 1}, rows[0]]
    published = tokens_of(make(minimal("sft", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "messages", ignore=["tag"])})))
    assert [(r.id, r.stage, r.reason, r.detail) for r in refusals(published)] == [
        ("a.jsonl:51", "deduplicate", "duplicate", "equals a.jsonl:8"),
        ("a.jsonl:104", "deduplicate", "duplicate", "equals a.jsonl:53"),
        ("a.jsonl:105", "deduplicate", "duplicate", "equals a.jsonl:1"),
    ]
    assert published.manifest.counts["kept"] == 102


def test_duplicates_are_found_across_the_files_of_a_domain_and_not_across_domains(make: Make, tmp_path: Path) -> None:
    jsonl(tmp_path / "x.jsonl", [chat("q", "a"), chat("r", "b")])
    jsonl(tmp_path / "y.jsonl", [chat("r", "b"), chat("s", "c")])
    both = {"files": [str(tmp_path / "y.jsonl"), str(tmp_path / "x.jsonl")], "schema": "messages"}
    workspace = make(minimal("sft", {"a": both, "b": domain(tmp_path / "x.jsonl", "messages")}))
    first, second = tokens_of(workspace), tokens_of(workspace, "b")
    assert [(r.id, r.detail) for r in refusals(first)] == [("y.jsonl:1", "equals x.jsonl:2")]
    assert refusals(second) == []


@pytest.mark.parametrize("limit", [1, 4, 6, 7, 1000])
@pytest.mark.parametrize("name", ["sft", "pretrain"])
def test_max_items_counts_what_where_lets_through(make: Make, tmp_path: Path, limit: int, name: str) -> None:
    rows = [{**chat(f"q{i}", "a"), "text": f"t{i}", "n": i, "language": "en" if i % 3 == 2 else "de"} for i in range(20)]
    rows[8] = rows[5]  # a duplicate counts
    rows[11] = {**rows[11], "n": "eleven"}  # a type that where cannot compare does not
    files = [str(jsonl(tmp_path / f"{part}.jsonl", rows[at : at + 7])) for part, at in (("x", 0), ("y", 7), ("z", 14))]
    schema, other = ("messages", "text") if name == "sft" else ("text", "messages")
    where = {"language": "en", "n": {">=": 0}}
    workspace = make(minimal(name, {"a": {"files": files, "schema": schema, "where": where, "max_items": limit, "ignore": [other]}}))
    published = build(workspace, f"{name}_tokens", "a")
    passing = [i for i, row in enumerate(rows) if row["language"] == "en" and row["n"] != "eleven"]
    taken = passing[:limit]
    counts = published.manifest.counts
    (stream,) = (path.stem for path in published.directory.glob("*.index"))
    assert origins(published, stream) == [(i // 7, i % 7) for i in taken if i != 8]
    assert counts["read"] == (taken[-1] + 1 if limit <= len(passing) else len(rows))
    missed = sum(counts["refused"].get(f"records/{reason}", 0) for reason in ("filtered_by_where", "where_wrong_type"))
    assert missed == counts["read"] - len(taken)


def test_test_files_are_held_out_whole_and_max_items_does_not_touch_them(make: Make, tmp_path: Path) -> None:
    train = jsonl(tmp_path / "train.jsonl", [chat(f"q{i}", "a") for i in range(6)])
    test = jsonl(tmp_path / "test.jsonl", [chat(f"t{i}", "a") for i in range(5)] + [chat("q0", "a")])
    workspace = make(minimal("sft", {"a": domain(train, "messages", test_files=[str(test)], max_items=3)}))
    published = tokens_of(workspace)
    assert origins(published, "train") == [(0, 0), (0, 1), (0, 2)]
    assert origins(published, "dev") == [(1, i) for i in range(5)]
    assert [(r.id, r.detail) for r in refusals(published)] == [("test.jsonl:6", "equals train.jsonl:1")], "no test record is trained on"


def test_rows_of_one_message_each_are_refused_with_a_remedy(make: Make, tmp_path: Path) -> None:
    table = tmp_path / "chats.csv"
    table.write_text("chat,role,content\n1,user,Hi\n1,assistant,Hello!\n", "utf-8")
    with pytest.raises(PrepAssetsError, match="the row is one message of a chat: join the rows of each into one"):
        tokens_of(make(minimal("sft", {"a": {"files": [str(table)], "schema": "messages", "ignore": ["chat"]}})))


def test_test_files_may_have_the_names_of_training_files(make: Make, tmp_path: Path) -> None:
    """`train/a.jsonl` and `test/a.jsonl` were both called a.jsonl, and once a row was rejected no check could tell whose it was."""
    for folder in ("train", "test"):
        (tmp_path / folder).mkdir()
        for name in ("a", "b"):
            jsonl(tmp_path / folder / f"{name}.jsonl", [chat(f"{folder} {name}", "a"), {"messages": []}, chat(f"{folder} {name} 2", "a")])
    files = {role: [str(tmp_path / folder)] for role, folder in (("files", "train"), ("test_files", "test"))}
    published = tokens_of(make(minimal("sft", {"a": {**files, "schema": "messages"}})))
    assert [refusal.id for refusal in refusals(published)] == ["a.jsonl:2", "b.jsonl:2", "test/a.jsonl:2", "test/b.jsonl:2"]
    assert origins(published, "dev") == [(2, 0), (2, 2), (3, 0), (3, 2)]


@pytest.mark.parametrize(
    ("family", "schema", "row"),
    [
        ("sft", "messages", chat("q", "a")),
        ("sft", "alpaca", {"instruction": "q", "output": "a"}),
        ("preference", "preference", {"prompt": "q", "chosen": "a", "rejected": "b"}),
        ("pretrain", "text", {"text": "A document."}),
    ],
)
def test_rows_that_say_that_they_are_held_out_are_not_trained(
    make: Make, tmp_path: Path, family: str, schema: str, row: dict[str, Any]
) -> None:
    """A column `split` was passed over by its name, whatever it said."""
    asset = {"sft": "sft_tokens", "preference": "preferences_by_domain", "pretrain": "pretrain_tokens"}[family]
    paths = {name: jsonl(tmp_path / f"{name}.jsonl", [{**row, "split": name}]) for name in ("train", "testimony", "test_sft", "Validation")}

    def read(names: list[str], **more: Any) -> Any:
        options = {"test_fraction": 0.0} if family == "preference" else {}
        domains = {"a": {"files": [str(paths[name]) for name in names], "schema": schema, **more}}
        workspace = make(minimal(family, domains, preprocessing={"deduplicate": False}, **options))
        build(workspace, f"{family}_raw", "a")
        return build(workspace, asset, "a").manifest.counts

    for name in ("test_sft", "Validation"):
        with pytest.raises(
            ConfigError, match=rf"'split' in 1 row, e.g. '{name}'\n.*split says that rows are held out: .*where: .split: train"
        ):
            read(["train", name])
    assert read(["train", "testimony"])["kept"] == 2
    assert read(["train", "test_sft"], ignore=["split"])["kept"] == 2
    assert read(["train", "test_sft"], where={"split": "train"})["kept"] == 1
    if family != "preference":  # which lets no prompt be on both sides
        assert read(["train"], test_files=[str(paths["test_sft"])])["kept"] == 2


def test_preference_limits_do_not_touch_test_files(make: Make, tmp_path: Path) -> None:
    def pairs(name: str, count: int) -> Path:
        return jsonl(tmp_path / f"{name}.jsonl", [{"prompt": f"{name} {i}?", "chosen": "yes", "rejected": "no"} for i in range(count)])

    held = {"test_files": [str(pairs("held", 7))]}
    domains = {"a": domain(pairs("a", 9), "preference", max_items=2, **held), "b": domain(pairs("b", 9), "preference")}
    workspace = make(minimal("preference", domains, max_per_source=4, test_fraction=0.0))
    published = build_all(workspace, ["preference"])["preferences", ""]
    train, test = (sorted(row["prompt"] for row in open_stream(published.directory, name)) for name in ("preferences", "preferences_test"))
    assert train == ["a 0?", "a 1?", "b 0?", "b 1?", "b 2?", "b 3?"]
    assert test == [f"held {i}?" for i in range(7)]


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_the_same_record_is_never_on_both_sides_of_a_fraction(make: Make, tmp_path: Path, fraction: float) -> None:
    """Equal records in one domain, in two domains, and twice over without deduplication all go the same way."""
    rows = [chat(f"Question {i}?", f"Answer {i}.") for i in range(200)]
    one, two = jsonl(tmp_path / "one.jsonl", rows + rows[:50]), jsonl(tmp_path / "two.jsonl", rows[::-1])
    domains = {"a": domain(one, "messages"), "b": domain(two, "messages")}
    workspace = make(minimal("sft", domains, test_fraction=fraction, preprocessing={"deduplicate": False}))
    sides: dict[str, set[str]] = {"train": set(), "dev": set()}
    for name, content in (("a", rows + rows[:50]), ("b", rows[::-1])):
        published = tokens_of(workspace, name)
        for side, seen in sides.items():
            seen |= {content[row]["messages"][0]["content"] for _, row in origins(published, side)}
    assert sides["train"].isdisjoint(sides["dev"])
    assert len(sides["train"]) + len(sides["dev"]) == 200
    assert abs(len(sides["dev"]) / 200 - fraction) < 0.15


def test_pretraining_splits_by_text_whatever_else_the_record_says(make: Make, tmp_path: Path) -> None:
    rows = [{"text": f"Document {i % 60}.", "id": i} for i in range(120)]
    workspace = make(minimal("pretrain", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "text")}, test_fraction=0.4))
    published = build_all(workspace, ["pretrain"])["pretrain_tokens", "a"]
    train, dev = ({row % 60 for _, row in origins(published, f"a_{side}")} for side in ("train", "dev"))
    assert train.isdisjoint(dev) and len(train) + len(dev) == 60 and dev
    assert published.manifest.counts["kept"] == 120, "they differ in a field, so none is a duplicate"


def test_a_prompt_is_held_out_with_all_its_pairs(make: Make, tmp_path: Path) -> None:
    rows = [{"prompt": f"Prompt {i % 40}?", "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(120)]
    workspace = make(minimal("preference", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "preference")}, test_fraction=0.3))
    published = build_all(workspace, ["preference"])["preferences", ""]
    train, test = (list(open_stream(published.directory, name)) for name in ("preferences", "preferences_test"))
    assert {row["prompt"] for row in train}.isdisjoint(row["prompt"] for row in test)
    assert len(train) + len(test) == 120 and test


def test_every_document_length_limit_refuses_with_its_numbers(make: Make, tmp_path: Path) -> None:
    rows = [{"text": "x"}, {"text": "a word or two"}, {"text": "word " * 40}, {"text": "y" * 5000}]
    limits = {"min_chars": 2, "max_chars": 1000, "max_seq_len": 20}
    workspace = make(minimal("pretrain", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "text")}, preprocessing=limits))
    published = build_all(workspace, ["pretrain"])["pretrain_tokens", "a"]
    found = {r.id: (r.stage, r.reason, r.detail) for r in refusals(published)}
    assert found["a.jsonl:1"] == ("pretrain", "too_short", "1 characters, min_chars is 2 and a document needs a word")
    assert found["a.jsonl:3"][:2] == ("tokenize", "too_long") and found["a.jsonl:3"][2].endswith("max_seq_len is 20")
    assert found["a.jsonl:4"] == ("pretrain", "too_many_chars", "5,000 characters, max_chars is 1,000")
    assert published.manifest.counts["kept"] == 1


# Nothing is published where all records of one domain were refused, however many others have.


PAIR = {"prompt": "Q?", "chosen": "yes", "rejected": "no"}
PROMPT = {"prompt": "2 + 2?", "gold": "4"}
GROUP = {"prompt": "2 + 2?", "responses": ["4", "5"], "rewards": [1, 0]}
SAME, EMPTY = {**PAIR, "rejected": "yes"}, {**PAIR, "prompt": " "}
CASES: dict[str, tuple[str, str, dict[str, Any], list[dict[str, Any]], str]] = {
    "preference": (
        "preference",
        "preferences",
        PAIR,
        [EMPTY, SAME, {**SAME, "prompt": "R?"}],
        "schema/empty_prompt: 1, schema/equal_answers: 2",
    ),
    "rl_prompt": ("rl", "rl_prompts", PROMPT, [{**PROMPT, "prompt": " "}], "schema/empty_prompt: 1"),
    "group": ("rl", "rl_groups", GROUP, [{**GROUP, "rewards": [1e300, 0]}], "group/reward_out_of_range: 1"),
}


@pytest.mark.parametrize("schema", CASES)
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids=["first", "last"])
def test_a_domain_of_which_nothing_is_kept_stops_the_store_of_all(make: Make, tmp_path: Any, schema: str, order: tuple[str, str]) -> None:
    family, asset, good, bad, reasons = CASES[schema]
    spoilt, sound = order
    domains = {
        # one refusal in the other domain, of another reason, must not be taken for one of this
        sound: domain(jsonl(tmp_path / "good.jsonl", [good, good]), schema),
        spoilt: domain(jsonl(tmp_path / "bad.jsonl", bad), schema),
    }
    workspace = make(minimal(family, domains, test_fraction=0.0))
    for name in domains:
        build(workspace, f"{family}_raw", name)
    number = "bad.jsonl:2" if len(bad) > 1 else "bad.jsonl:1"
    with pytest.raises(PrepAssetsError) as stop:
        build(workspace, asset)
    said = str(stop.value)
    assert said.startswith(f"{asset}_by_domain[{spoilt}]: all {len(bad)} records were refused ({reasons}). The first one")
    assert f", {number}: " in said
    assert "good.jsonl" not in said and "duplicate" not in said
    assert workspace.published(asset) is None


def test_a_domain_of_which_one_record_is_kept_is_published(make: Make, tmp_path: Any) -> None:
    domains = {name: domain(jsonl(tmp_path / f"{name}.jsonl", [SAME, EMPTY, PAIR]), "preference") for name in ("a", "b")}
    published = build_all(make(minimal("preference", domains, test_fraction=0.0)), ["preference"])["preferences", ""]
    assert (published.manifest.counts["read"], published.manifest.counts["kept"]) == (2, 2)


# Broken input: a record in quarantine with its reason, or an error that names the file; never half a store, never another exception.


GOOD = b'{"text": "A good line."}\n'


def pretrain(make: Make, file: Path, schema: str = "text", **options: Any) -> Workspace:
    return make(minimal("pretrain", {"a": domain(file, schema, **options)}))


def assert_nothing_published(workspace: Workspace, asset: str, partition: str = "a") -> None:
    folder = workspace.stores / asset / partition
    assert not (folder / "current").exists() and not (folder / "current").is_symlink()
    assert [path for path in (folder / "versions").glob("*") if path.name != ".lock"] == []


BROKEN = [
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
]


def test_a_broken_line_is_quarantined_and_the_others_are_kept(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD + b"".join(line + b"\n" for line, _, _ in BROKEN) + GOOD.replace(b"good", b"fine"))
    published = build(pretrain(make, file), "pretrain_tokens", "a")
    found = refusals(published)
    assert [(each.id, f"{each.stage}/{each.reason}", each.payload) for each in found] == [
        (f"a.jsonl:{number}", reason, payload) for number, (_, reason, payload) in enumerate(BROKEN, 2)
    ]
    assert all(each.detail for each in found)
    assert dict(published.manifest.counts["refused"]) == Counter(reason for _, reason, _ in BROKEN)
    assert (published.manifest.counts["read"], published.manifest.counts["kept"]) == (len(BROKEN) + 2, 2)


def test_a_huge_line_is_quarantined_by_its_start(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD + b'{"text": "' + b"x" * 40_000_000 + b'"}\n' + GOOD.replace(b"good", b"fine"))
    workspace = pretrain(make, file)
    published = build(workspace, "pretrain_tokens", "a")
    (refusal,) = refusals(published)
    assert (refusal.id, refusal.stage, refusal.reason, refusal.payload_length) == ("a.jsonl:2", "records", "too_long", 40_000_012)
    assert refusal.payload == '{"text": "' + "x" * 1990
    assert published.manifest.counts["kept"] == 2


ZSTD = pyarrow.compress(b"".join(b'{"text": "%d %d"}\n' % (i, i * 7919) for i in range(5000)), codec="zstd", asbytes=True)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *(
            (
                "a.jsonl.zst",
                ZSTD[: int(len(ZSTD) * share)],
                r"pretrain_raw\[a\]: a\.jsonl\.zst: the zstd stream is cut short.*fetch it again",
            )
            for share in (0.2, 0.6, 0.99)
        ),
        ("a.jsonl", b"", r"a\.jsonl.*is empty \(0 bytes\)\. Fetch it again or leave it out"),
        *(("a.jsonl", blank, r"pretrain_raw\[a\]: no records in a\.jsonl") for blank in (b"\n", b"\n\n \n", b"\xef\xbb\xbf\n")),
        ("a.json", b"[]", r"no records in a\.json: the list is empty"),
        ("a.data", GOOD, r"a\.data.*suffix"),
        ("nowhere.jsonl", None, r"nowhere\.jsonl"),
    ],
)
def test_a_source_without_records_or_with_a_part_of_them_stops_the_build(
    make: Make, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    workspace = pretrain(make, tmp_path / name)
    with pytest.raises(SourceError, match=said):
        build(workspace, "pretrain_raw", "a")
    assert_nothing_published(workspace, "pretrain_raw")


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
    published = build(workspace, "pretrain_tokens", "a")
    assert dict(published.manifest.counts["refused"]) == {"schema/schema_error": 1, "schema/skipped_by_schema": 1}
    assert "ZeroDivisionError: inside" in refusals(published)[0].detail


def test_a_failed_build_leaves_the_old_store_as_it_is(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD)
    workspace = pretrain(make, file)
    old = build(workspace, "pretrain_tokens", "a")
    before = tree(workspace.stores / "pretrain_tokens")
    file.write_bytes(b'{"foo": 1}\n')
    build(workspace, "pretrain_raw", "a")
    with pytest.raises(PrepAssetsError, match="all 1 records were refused"):
        build(workspace, "pretrain_tokens", "a")
    assert tree(workspace.stores / "pretrain_tokens") == before
    current = workspace.built("pretrain_tokens", "a")
    assert current.directory == old.directory


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
        ("preference", "preferences", "", "preferences_by_domain --partition a"),
        ("preference", "preference_tokens_by_domain", "a", "preferences_by_domain --partition a"),
        ("preference", "preference_tokens", "", "preference_tokens_by_domain --partition a"),
        ("rl", "rl_tokens_by_domain", "a", "rl_prompts_by_domain --partition a"),
        ("rl", "rl_tokens", "", "rl_tokens_by_domain --partition a"),
    ],
)
def test_a_missing_input_is_named_with_the_command_that_builds_it(
    make: Make, tmp_path: Path, family: str, asset: str, partition: str, needs: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    schema = {"preference": "preference", "rl": "gsm8k"}.get(family, "text")
    workspace = make(minimal(family, {"a": domain(tmp_path / "a.jsonl", schema)}))
    with pytest.raises(PrepAssetsError, match=rf"(?s)no store in.*Build it with:.*prep-assets build {needs}"):
        make_store(workspace, EVERY[asset], partition)


# Digests that came before: those that a dictionary finds, in memory that does not grow.


BLOCKS = st.lists(st.tuples(st.integers(0, 3), st.dictionaries(st.integers(0, 10**6), st.integers(0, 60), max_size=50)), max_size=8)


@given(BLOCKS)
def test_it_says_what_a_dictionary_says(blocks: list[tuple[int, dict[int, int]]]) -> None:
    known: dict[int, str] = {}
    found = Seen()
    for file, values in blocks:
        rows, firsts = sorted(values), {}
        for row in rows:
            identity = f"b:{file}.jsonl:{row + 1}"
            if known.setdefault(values[row], identity) is not identity:
                firsts[row] = known[values[row]]
        assert found.firsts([xxhash.xxh3_128_digest(bytes([values[row]])) for row in rows], f"b:{file}.jsonl", rows) == firsts


def test_memory_does_not_grow_with_their_number() -> None:
    def many(count: int) -> None:
        found = Seen()
        for row in range(0, count, 1000):
            rows = range(row, row + 1000)
            assert found.firsts([xxhash.xxh3_128_digest(each.to_bytes(8)) for each in rows], "a", rows) == {}

    assert peak(lambda: many(40_000)) < 1.2 * peak(lambda: many(digests.IN_MEMORY))


def test_duplicates_over_shards_are_those_that_a_dictionary_finds(short_stretches: None) -> None:
    chance = np.random.default_rng(3)
    shards = [shard_of(chance.integers(0, 2**63 - 1, 2)[chance.integers(0, 2, size)], number) for number, size in enumerate((30, 0, 1, 25))]
    shards[0]["low"][:20] = np.arange(20)
    found = duplicates_of(shards)
    first: dict[tuple[int, int], list[int]] = {}
    for shard, mine in zip(shards, found, strict=True):
        wanted = []
        for high, low, *place in zip(*(shard[name].tolist() for name in ("high", "low", "file", "row")), strict=True):
            if (earlier := first.setdefault((high, low), place)) is not place:
                wanted.append([*place, *earlier])
        assert mine.tolist() == wanted
    assert sum(map(len, found)) > 20
    assert duplicates_of([]) == []


def shard_of(halves: npt.NDArray[Any], number: int) -> dict[str, npt.NDArray[Any]]:
    """What a first pass notes of a shard."""
    count = len(halves)
    return {
        "high": halves.astype(np.uint64),
        "low": halves.astype(np.uint64) % np.uint64(7),
        "file": np.full(count, number, np.int32),
        "row": np.arange(count) + 5,
    }
