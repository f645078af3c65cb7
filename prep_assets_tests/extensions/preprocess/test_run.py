"""Whole runs: accounting, quarantine, limits, order, atomicity."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.data import tables as cuts
from prep_assets.data.quarantine import read_quarantine
from prep_assets.errors import PrepAssetsError, SourceError, StoreError
from prep_assets.extensions.preprocess.astrai import parse_pipeline
from prep_assets.extensions.preprocess.astrai_run import (
    DEFAULT,
    EMPTY,
    Counts,
    Domains,
    folder_of,
    load_tokenizer,
    prefix_signature,
    preprocess,
)
from prep_assets.stores.manifest import file_hash
from prep_assets_tests.extensions.preprocess.conftest import Run, chat, ids, write_rows, write_tokenizer
from prep_assets_tests.extensions.preprocess.pipelines import CHAT, SECTIONS_CHAT, SECTIONS_TEXT, TEXT, changed
from prep_assets_tests.extensions.preprocess.reference import read_bin
from prep_assets_tests.graph.workspaces import TOKENIZER

SHORT = changed(TEXT, preprocessing={"min_chars": 0})
GOOD = chat(("user", "a"), ("assistant", "b"))


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_bad_records_are_refused_in_order_and_everything_adds_up(run: Run, tmp_path: Path) -> None:
    rows = [GOOD, "{not json", {"messages": []}, "[1]", {"messages": ["x"]}, GOOD, chat(("user", "c"), ("assistant", "d"))]
    counts = run(rows, CHAT).counts
    assert counts.refused == {
        "deduplicate/duplicate": 1,
        "records/invalid_json": 1,
        "records/not_an_object": 1,
        "schema/empty": 1,
        "schema/wrong_type": 1,
    }
    assert (counts.read, counts.kept) == (7, 2) and counts.read == counts.kept + sum(counts.refused.values())
    listed = list(read_quarantine(tmp_path / "out" / "quarantine.jsonl"))
    assert [refusal.id for refusal in listed] == [f"rows.jsonl:{row}" for row in (2, 3, 4, 5, 6)]
    assert listed[0].payload == "{not json"


def test_nothing_refused_leaves_no_quarantine(run: Run, tmp_path: Path) -> None:
    run([GOOD], CHAT)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["__default__", "domains.json", "preprocess.json"]


def test_no_kept_record_is_an_error_that_says_why(run: Run, tmp_path: Path) -> None:
    with pytest.raises(
        PrepAssetsError, match=r"all 2 records were refused \(schema/empty: 2\).*rows.jsonl:1: no text under 'messages'.*'text'"
    ):
        run([{"text": "a"}, {"text": "b"}], CHAT)
    assert not (tmp_path / "out").exists()


def test_a_mask_that_trains_nothing_is_an_error(run: Run) -> None:
    with pytest.raises(PrepAssetsError, match=r"none of the 9 tokens of 1 records is trained.*'tool'"):
        run([GOOD], {**CHAT, "mask": {"tool": "train"}})


def test_records_without_a_trained_token_are_kept_and_counted(run: Run) -> None:
    counts = run([GOOD, chat(("user", "only"))], CHAT).counts
    assert (counts.kept, counts.untrained) == (2, 1)


@pytest.mark.parametrize("batch", [1, 2, 256])
def test_max_items_counts_kept_records_and_leaves_the_rest_unread(batch: int, run: Run) -> None:
    rows = [{"text": "a"}, {"text": " "}, {"text": "b"}, {"text": "c"}, {"text": " "}]
    steps = {"min_chars": 0, "max_items": 2, "batch_size": batch}
    counts = run(rows, changed(SECTIONS_TEXT, preprocessing=steps)).counts
    assert (counts.read, counts.kept, counts.refused) == (3, 2, {"schema/empty": 1})


def test_no_max_items_is_null_or_0_in_the_typed_dialect(run: Run) -> None:
    rows = [{"content": letter} for letter in "abc"]
    for number, limit in enumerate((None, 0)):
        pipeline = changed(SHORT, preprocessing={"max_items": limit})
        assert run(rows, pipeline, overwrite=bool(number)).counts.kept == 3


def test_files_are_read_in_the_order_given_and_each_once(tmp_path: Path, tokenizer: Path) -> None:
    for name, text in (("b.jsonl", "b"), ("a.jsonl", "a")):
        write_rows(tmp_path / name, [{"content": text}])
    (tmp_path / "c.json").write_text('[{"content": "c"}, {"content": "d"}]', "utf-8")
    inputs = [str(tmp_path / name) for name in ("b.jsonl", "c.json", "*.jsonl")]
    preprocess(inputs, tmp_path / "out", parse_pipeline(SHORT, "p"), load_tokenizer(tokenizer))
    assert read_bin(tmp_path / "out" / "__default__" / "shard_0000")["sequence"].tolist() == ids("b c d a")


def test_a_missing_input_stops_the_run(tmp_path: Path, tokenizer: Path) -> None:
    with pytest.raises(SourceError, match=r"no\.jsonl"):
        preprocess([str(tmp_path / "no.jsonl")], tmp_path / "out", parse_pipeline(SHORT, "p"), load_tokenizer(tokenizer))
    assert list(tmp_path.iterdir()) == []


def test_the_same_input_gives_the_same_bytes_for_any_batch_size(run: Run, tmp_path: Path) -> None:
    rows = [{"text": f"{letter} b c"} for letter in "adefgh"] + ["{"]
    found = []
    for batch in (1, 4):
        run(rows, changed(SECTIONS_TEXT, preprocessing={"min_chars": 0, "batch_size": batch}), overwrite=batch > 1)
        found.append({name: digest for name, digest in contents(tmp_path / "out").items() if name != "preprocess.json"})
    assert found[0] == found[1]


def test_progress_ends_at_the_whole(run: Run, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run([GOOD], CHAT, progress=lambda done, total: told.append((done, total)))
    size = (tmp_path / "rows.jsonl").stat().st_size
    assert told[-1] == (size, size)


# -- the output directory ---------------------------------------------------------------------------------------------------------------


def test_an_output_that_holds_something_is_refused(run: Run, tmp_path: Path) -> None:
    run([GOOD], CHAT)
    before = contents(tmp_path / "out")
    with pytest.raises(StoreError, match="--overwrite"):
        run([GOOD], CHAT)
    assert contents(tmp_path / "out") == before


def test_overwriting_leaves_no_stale_shard(run: Run, tmp_path: Path) -> None:
    rows = [{"content": f"{letter} b"} for letter in "acdef"]
    run(rows, changed(SHORT, output={"max_tokens_per_shard": 2}))
    assert len(list((tmp_path / "out" / "__default__").iterdir())) == 5
    run(rows[:1], SHORT, overwrite=True)
    assert [path.name for path in (tmp_path / "out" / "__default__").iterdir()] == ["shard_0000"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rows.jsonl"]


@pytest.mark.parametrize("name", ["notes.txt", "deep/model.bin", "data.h5"])
def test_overwriting_never_deletes_what_is_somebody_elses(name: str, run: Run, tmp_path: Path) -> None:
    foreign = tmp_path / "out" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    with pytest.raises(StoreError, match=foreign.name):
        run([GOOD], CHAT, overwrite=True)
    assert foreign.read_text() == "mine"


def test_a_failed_run_leaves_the_old_output_and_nothing_else(run: Run, tmp_path: Path) -> None:
    run([GOOD], CHAT)
    before = contents(tmp_path / "out")
    with pytest.raises(PrepAssetsError):
        run([{"no": "messages"}], CHAT, overwrite=True)
    assert contents(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rows.jsonl"]


def test_a_run_that_dies_while_writing_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prep_assets.extensions.preprocess.astrai_run.shard_blocks", full)
    with pytest.raises(StoreError, match="the disk is full"):
        run([GOOD], CHAT)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


# -- the shipped samples ----------------------------------------------------------------------------------------------------------------


# fields that nothing reads


def test_a_field_that_nothing_reads_stops_the_run(run: Run, tmp_path: Path) -> None:
    """The task stands in a column of its own, which vanished without a word."""
    rows = [{**GOOD, "task": "Translate.", "id": 7}, {**chat(("user", "c"), ("assistant", "d")), "messages.note": ""}]
    rows[1]["messages"][0]["note"] = "x"
    expected = r"'messages.note' in 1 row, e.g. 'x'\n  'task' in 1 row, e.g. 'Translate.'\n.*\n  --ignore messages.note --ignore task$"
    with pytest.raises(PrepAssetsError, match=expected):
        run(rows, CHAT)
    assert not (tmp_path / "out").exists()
    outcome = run(rows, CHAT, ignore=["messages.note", "task"])
    assert outcome.passed_over == {"id": 1, "messages.note": 1, "task": 1}
    assert json.loads((tmp_path / "out" / "preprocess.json").read_text())["fields_passed_over"] == outcome.passed_over


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"name": "f"}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "c"}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
    ],
    ids=["tools", "reasoning", "calls"],
)
def test_what_decides_an_answer_and_is_not_rendered_refuses_its_record(more: Any, run: Run) -> None:
    """AstrAI's template writes role and content, so that tools, reasoning and calls would vanish."""
    counts = run([{**GOOD, **more}, chat(("user", "c"), ("assistant", "d"))], CHAT).counts
    assert (counts.read, counts.kept) == (2, 1)


def test_the_value_of_the_domain_key_and_what_a_template_reads_are_read(run: Run, tmp_path: Path, tokenizer: Path) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.speaker }} {{ m.content }}<|im_end|>\n{% endfor %}"
    own = write_tokenizer(tmp_path / "own", template=template)
    messages = [{"role": "user", "content": "a", "speaker": "x"}, {"role": "assistant", "content": "b", "speaker": "y"}]
    outcome = run([{"messages": messages, "kind": "wiki"}], changed(CHAT, output={"domain_key": "kind"}), directory=own)
    assert (outcome.counts.kept, outcome.passed_over) == (1, {})


def test_records_after_the_last_one_are_not_accounted_for(run: Run) -> None:
    rows = [{"text": "a", "id": 1}, {"text": "b", "id": 2}, {"text": "c", "odd": 3}]
    outcome = run(rows, changed(SECTIONS_TEXT, preprocessing={"min_chars": 0, "max_items": 2}))
    assert (outcome.counts.read, outcome.passed_over) == (2, {"id": 2})


# -- dedup -------------------------------------------------------------------------------------------------------------------------------


PROMPT = "a " * 116  # 232 characters


def test_astrais_signature_golden() -> None:
    assert prefix_signature({"text": "hello"}) == "0d1551c6d4f5a836e94de1b2b1aa2471"


def test_the_signature_takes_200_characters_of_sorted_json() -> None:
    assert prefix_signature({"b": "x", "a": "é"}) == prefix_signature({"a": "é", "b": "x"})
    text = '{"a": "' + "é" * 300
    assert prefix_signature({"a": "é" * 300}) == hashlib.md5(text[:200].encode()).hexdigest()
    assert prefix_signature({"a": "x" * 300}) == prefix_signature({"a": "x" * 300, "b": 1})


def test_exact_duplicates_are_refused_counted_and_listed_over_all_domains(run: Run, tmp_path: Path) -> None:
    first = chat(("user", "a"), ("assistant", "b"), source="x")
    reordered = dict(reversed(list(first.items())))
    outcome = run([first, chat(("user", "c"), ("assistant", "d"), source="y"), reordered], CHAT)
    assert outcome.counts.refused == {"deduplicate/duplicate": 1}
    (refusal,) = read_quarantine(tmp_path / "out" / "quarantine.jsonl")
    assert (refusal.id, refusal.reason, refusal.detail) == ("rows.jsonl:3", "duplicate", "equals rows.jsonl:1")


def test_a_long_system_prompt_makes_no_duplicates_but_does_in_prefix_mode(run: Run) -> None:
    rows = [chat(("system", PROMPT), ("user", letter), ("assistant", letter)) for letter in "abcdefgh"]
    assert run(rows, CHAT).counts.kept == 8
    assert run(rows, CHAT, dedup="prefix200", overwrite=True).counts.kept == 1


@pytest.mark.parametrize("dedup", [None, "none"])
def test_duplicates_stay_where_nothing_asks_otherwise(dedup: str | None, run: Run) -> None:
    rows = [chat(("user", "a"), ("assistant", "b"))] * 3
    pipeline = SECTIONS_CHAT if dedup is None else CHAT
    assert run(rows, pipeline, dedup=dedup).counts.kept == 3
    assert run(rows, changed(CHAT, preprocessing={"deduplicate": False}), overwrite=True).counts.kept == 3
    assert run(rows, SECTIONS_CHAT, dedup="exact", overwrite=True).counts.kept == 1


# -- domains -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("wiki", "wiki"),
        ("百科", "百科"),
        ("Common Crawl 1.5", "Common Crawl 1.5"),
        ("../x", "%2E.%2Fx"),
        ("", EMPTY),
        ("a/b", "a%2Fb"),
        ("50%", "50%25"),
        ("x.", "x%2E"),
        ("__default__", "%5F_default__"),
        ("NUL", "%4EUL"),
    ],
)
def test_folders(value: str, folder: str) -> None:
    assert folder_of(value) == folder


@given(st.text(max_size=60))
def test_a_folder_is_one_safe_name_and_can_be_read_back(value: str) -> None:
    folder = folder_of(value)
    assert PurePosixPath(folder).name == folder
    assert folder not in ("", ".", "..", DEFAULT)
    assert not set(folder) & set('/\\:*?"<>|[]\0')
    assert not folder.startswith(".") and not folder.endswith((".", " "))
    assert len(folder.encode()) < 255
    if value and "%sha" not in folder:
        assert unquote(folder) == value


def test_long_values_stay_different() -> None:
    folders = {folder_of("界" * 500 + end) for end in "ab"}
    assert len(folders) == 2
    assert all(len(folder.encode()) < 255 for folder in folders)


@pytest.mark.parametrize(("first", "second"), [("Wiki", "wiki"), ("é", "e\u0301")])
def test_values_that_some_file_systems_would_join_stop_the_run(first: str, second: str) -> None:
    domains = Domains()
    domains.folder(first)
    if folder_of(first).casefold() == folder_of(second).casefold():
        with pytest.raises(PrepAssetsError, match="one folder"):
            domains.folder(second)
    else:  # a combining accent is no letter, so that it is coded and cannot compose
        assert domains.folder(second) == "e%CC%81"


def test_records_without_a_string_have_the_default_domain() -> None:
    domains = Domains()
    assert [domains.folder(value) for value in (None, 3, ["wiki"], "wiki")] == [DEFAULT, DEFAULT, DEFAULT, "wiki"]
    assert domains.values == {DEFAULT: None, "wiki": "wiki"}


def test_nothing_leaves_the_output_directory(run: Run, tmp_path: Path) -> None:
    values = ["../x", "", "a/b", "wiki", None]
    rows = [{"content": f"a {number}", "source": value} for number, value in enumerate(values)]
    run(rows, changed(TEXT, preprocessing={"min_chars": 0}, output={"domain_key": "source"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rows.jsonl"]
    folders = json.loads((tmp_path / "out" / "domains.json").read_text())
    assert list(folders.values()) == values
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == sorted(folders)
    assert all((tmp_path / "out" / folder / "shard_0000" / "meta.json").is_file() for folder in folders)


# -- `--workers` of one-shot preprocessing changes no byte, and `--log-interval` says how far it is --------------------------------------


PIPELINE = changed(CHAT, output={"domain_key": "source", "max_tokens_per_shard": 400})
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def rows(count: int) -> list[Any]:
    """Chats of three domains; duplicates far apart, rows that no schema takes, and lines that are no JSON."""
    found: list[Any] = []
    for number in range(count):
        text = " ".join(LETTERS[number // 26**place % 26] for place in range(3))
        found.append({**chat(("user", text), ("assistant", f"it is {text}")), "source": "xyz"[number % 3]})
        if number % 17 == 3:
            found.append(found[number // 2])
        if number % 23 == 5:
            found.append("{not json" if number % 2 else {"messages": [], "source": "x"})
    return found


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two files of several shards each."""
    monkeypatch.setattr(cuts, "SHARD_BYTES", 6_000)
    listed = rows(300)
    return [str(write_rows(tmp_path / name, part)) for name, part in (("one.jsonl", listed[:200]), ("two.jsonl", listed[200:]))]


def test_bytes_do_not_depend_on_workers(files: list[str], tmp_path: Path) -> None:
    found, said = [], []
    for workers in (1, 2):
        lines: list[tuple[int, int, int]] = []

        def log(counts: Counts, lines: list[tuple[int, int, int]] = lines) -> None:
            lines.append((counts.read, counts.kept, counts.tokens))

        out = tmp_path / f"{workers}"
        pipeline = parse_pipeline(PIPELINE, "pipeline.json")
        done = preprocess(
            files, out, pipeline, load_tokenizer(Path(TOKENIZER)), masking="spans", workers=workers, log_interval=100, log=log
        )
        assert done.counts.refused["deduplicate/duplicate"] > 10 and done.counts.refused["records/invalid_json"] > 3
        found.append(contents(out))
        said.append(lines)
    assert found[0] == found[1] and len(found[0]) > 12
    assert said[0] == said[1] and [read for read, _, _ in said[0]] == [100, 200, 300]


def test_max_items_ends_workers_too(files: list[str], tmp_path: Path) -> None:
    limited = parse_pipeline(changed(PIPELINE, preprocessing={"max_items": 60}), "pipeline.json")
    outcomes = [preprocess(files, tmp_path / f"{n}", limited, load_tokenizer(Path(TOKENIZER)), workers=n) for n in (1, 2)]
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert [each.counts.kept for each in outcomes] == [60, 60]


def test_what_a_killed_run_left_is_not_read(run: Run, tmp_path: Path) -> None:
    left = tmp_path / ".out.writing" / "__default__" / "shard_0007"
    left.mkdir(parents=True)
    (left / "meta.json").write_text("{}")
    run([GOOD], CHAT)
    assert [path.name for path in (tmp_path / "out" / "__default__").iterdir()] == ["shard_0000"]
    assert not (tmp_path / ".out.writing").exists()


def test_two_runs_into_one_directory_do_not_mix(run: Run, tmp_path: Path) -> None:
    import fcntl

    work = tmp_path / ".out.writing"
    work.mkdir()
    handle = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another run"):
            run([GOOD], CHAT)
    finally:
        os.close(handle)
