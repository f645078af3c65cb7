"""Rows that bring token ids: stored as they are, proven, traced, and refused wherever something does not hold."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from prep_assets.config.models import Sft
from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.explain.trace import trace
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.sources import domain_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, jsonl, minimal, refusals, verdicts, workspace_in
from prep_assets_tests.masks.trl import tokenizer_folder, trl_labels

BACKEND = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
UNTRAINED = -100


def ids(text: str) -> list[int]:
    return list(BACKEND.encode(text, add_special_tokens=False).ids)


def chat(question: str, answer: str) -> tuple[list[int], list[int]]:
    """Ids of a chat as the sample tokenizer's template writes it, piece by piece, and its labels."""
    pieces = (f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n", f"{answer}<|im_end|>", "\n")
    before, said, after = map(ids, pieces)
    return before + said + after, [UNTRAINED] * len(before) + said + [UNTRAINED] * len(after)


def row(number: int, **more: Any) -> dict[str, Any]:
    found, labels = chat(f"What is {number}?", f"It is {number}.")
    return {"input_ids": found, "labels": labels, **more}


def messages(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is {number}."}]


def built(
    folder: Path, rows: list[dict[str, Any]], schema: str = "tokenized", more: Any = (), **options: Any
) -> tuple[Workspace, Published]:
    folder.mkdir(exist_ok=True)
    source = domain(jsonl(folder / "rows.jsonl", rows), schema, **{"tokenized_by": TOKENIZER, **dict(more)})
    workspace = workspace_in(folder, minimal("sft", {"r": source}, tokenizer_loader="file", packing={"row_len": 64}, **options))
    return workspace, build(workspace, "sft_tokens", "r")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Published]:
    rows = [
        *(row(number) for number in range(8)),
        *(row(number, messages=messages(number)) for number in range(8, 12)),
        row(12, text="<|im_start|>user\nWhat is 12?<|im_end|>\n<|im_start|>assistant\nIt is 12.<|im_end|>\n"),
    ]
    return built(tmp_path_factory.mktemp("tokenized"), rows)


def test_ids_and_masks_are_stored_as_they_are(store: tuple[Workspace, Published]) -> None:
    _, published = store
    tokens = open_stream(published.directory, "train")
    for number in range(13):
        expected, labels = chat(f"What is {number}?", f"It is {number}.")
        assert tokens.record(number, "tokens").tolist() == expected
        assert tokens.record(number, "loss_mask").tolist() == [int(label != UNTRAINED) for label in labels]
    counts = published.manifest.counts
    assert (counts["tokenized_rows"], counts["retokenized_otherwise"], counts["masks_of_their_own"]) == (13, 0, 0)


def test_they_are_packed_traced_and_tested_like_any_row(store: tuple[Workspace, Published]) -> None:
    workspace, published = store
    trials = selftest(workspace, published)
    assert [trial for trial in trials if not trial.passed] == []
    assert sum(trial.tried > 0 for trial in trials) > 20
    for asset in ("sft_template", "sft_packed"):
        build(workspace, asset)
    for asset in ("sft_tokens", "sft_packed"):
        found = trace(workspace, asset, 0)
        sequence = found.pieces[0].sequence
        assert not found.differs and sequence is not None
        place = sequence.ids.tolist().index(ids("<|im_end|>")[0], 10)
        assert (sequence.why(place).part, sequence.why(place).trained, sequence.why(0).trained) == ("brought", True, False)


def shifted(by: int) -> dict[str, Any]:
    found = row(3)
    mask = [int(label != UNTRAINED) for label in found.pop("labels")]
    return {**found, "loss_mask": mask[-by:] + mask[:-by]}


def split_character() -> dict[str, Any]:
    """Labels that begin amid the bytes of a character, of which each is a token."""
    found, labels = chat("Hi", "🙂 ok")
    at = next(at for at, label in enumerate(labels) if label != UNTRAINED)
    labels[at] = UNTRAINED
    return {"input_ids": found, "labels": labels}


REFUSED = {
    "id_outside_vocabulary": {"input_ids": [1, 10**6], "labels": [UNTRAINED, 10**6]},
    "nothing_to_train": {**row(3), "labels": [UNTRAINED] * len(row(3)["labels"])},
    "mask_splits_character": split_character(),
    "broken_text": {"input_ids": ids("🙂")[:-1], "labels": ids("🙂")[:-1]},
    "ids_differ_from_text": row(3, text="Something else."),
    "ids_differ_from_messages": row(3, messages=messages(4)),
    "undesirable": row(3, messages=messages(3), label=False),
    "too_long": {"input_ids": ids("a " * 90), "labels": ids("a " * 90)},
}


def test_what_cannot_be_proven_is_refused_and_found_so_again(tmp_path: Path) -> None:
    wrong = [*REFUSED.items(), *(("mask_shifted", {**shifted(by), **more}) for by in (-1, 1) for more in ({}, {"messages": messages(3)}))]
    _, published = built(tmp_path, [row(1), *(bad for _, bad in wrong), row(2)], preprocessing={"max_seq_len": 40})
    assert [refusal.reason for refusal in refusals(published)] == [reason for reason, _ in wrong]
    assert published.manifest.counts["kept"] == 2


def test_a_mask_that_differs_from_the_policy_is_the_rows_own_and_counted(tmp_path: Path) -> None:
    own = row(3, messages=messages(3))
    own["labels"] = [UNTRAINED if each == BACKEND.token_to_id("<|im_end|>") else each for each in own["labels"]]
    _, published = built(tmp_path, [own])
    assert published.manifest.counts["masks_of_their_own"] == 1


def test_ids_that_no_tokenizer_writes_are_kept_and_counted(tmp_path: Path) -> None:
    """A rollout: the same text in single characters."""
    sampled = [BACKEND.token_to_id(char) for char in "maybe"]
    _, published = built(tmp_path, [{"prompt_ids": ids("Is it?"), "completion_ids": sampled}])
    assert published.manifest.counts["retokenized_otherwise"] == 1


@pytest.mark.parametrize("truncation", ["start", "end"])
def test_a_part_of_a_long_row_is_left(tmp_path: Path, truncation: str) -> None:
    long = ids("one two three four five six seven eight nine ten")
    _, published = built(tmp_path, [{"input_ids": long, "labels": long}], truncation=truncation, preprocessing={"max_seq_len": 5})
    assert open_stream(published.directory, "train").record(0, "tokens").tolist() == (long[-5:] if truncation == "start" else long[:5])


# -- the tokenizer that made them ---------------------------------------------------------------------------------------------------------


def test_ids_of_another_tokenizer_stop_the_build(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(TOKENIZER, other)
    spec = json.loads((other / "tokenizer.json").read_text("utf-8"))
    spec["model"]["merges"] = spec["model"]["merges"][:-1]
    (other / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    with pytest.raises(
        PrepAssetsError, match=r"tokenized_by: .*other differs from .* in model: 4,096 of its 4,096 tokens have the same id here"
    ):
        built(tmp_path / "a", [row(1)], more={"tokenized_by": str(other)})
    with pytest.raises(PrepAssetsError, match="there is neither a folder nor a file"):
        built(tmp_path / "b", [row(1)], more={"tokenized_by": "nowhere"})
    with pytest.raises(PrepAssetsError, match="is another tokenizer than"):
        built(tmp_path / "c", [row(1)], more={"tokenized_by": "sha256:" + "0" * 64})
    own = hashlib.sha256(Path(TOKENIZER, "tokenizer.json").read_bytes()).hexdigest()
    assert built(tmp_path / "d", [row(1)], more={"tokenized_by": f"sha256:{own}"})[1].manifest.counts["kept"] == 1


def with_added(folder: Path, names: str) -> str:
    """Our tokenizer with further tokens, from id 4,096 on."""
    shutil.copytree(TOKENIZER, folder)
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    spec["added_tokens"] += [{**spec["added_tokens"][0], "id": 4096 + number, "content": f"<{name}>"} for number, name in enumerate(names)]
    (folder / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome"),
    [
        ("ab", "a", ""),
        ("", "a", "id_outside_vocabulary"),
        ("a", "ab", "id_outside_vocabulary"),
        ("a", "b", "in its added token '<b>': 4,096 of its 4,097 tokens have the same id here"),
        ("ab", "ba", "in its added token '<b>', its added token '<a>'"),
    ],
)
def test_tokenizers_that_differ_in_added_tokens(tmp_path: Path, ours: str, theirs: str, outcome: str) -> None:
    """An id of both means the same in both, or the build stops; a row with an id that only the other one has is refused."""
    last = {"input_ids": [4095 + len(theirs)] * 2, "labels": [4095 + len(theirs)] * 2}
    family = {"tokenizer": with_added(tmp_path / "ours", ours)}
    more = {"tokenized_by": with_added(tmp_path / "theirs", theirs)}
    if " " not in outcome:
        _, published = built(tmp_path / "a", [row(1), last], more=more, **family)
        assert [each.reason for each in refusals(published)] == [outcome] * bool(outcome)
    else:
        with pytest.raises(PrepAssetsError, match=outcome):
            built(tmp_path / "a", [row(1), last], more=more, **family)


# -- functions of one's own ---------------------------------------------------------------------------------------------------------------

CODE = """
from prep_assets.samples import Sample, Tokenized, turn

def builder(row):
    return {"sequence": row["input_ids"], "domain": "__default__", "loss_mask": [int(each != -100) for each in row["labels"]]}

def mixed(row):
    if "q" in row:
        return Sample((turn("user", row["q"]), turn("assistant", row["a"])))
    return Sample((), tokenized=Tokenized(tuple(row["input_ids"]), tuple(float(each != -100) for each in row["labels"])))

def strange(row):
    return {"sequence": row["input_ids"], "chosen": row["labels"]}

def of_domain(row):
    return {**builder(row), "domain": row.get("source", "wiki")}

class Builder:
    def build(self, item, config, tokenizer):
        if item.get("skip"):
            return None
        asked, said = (tokenizer.encode(text, add_special_tokens=False) for text in (config.prefix + item["q"], item["a"]))
        return {"ids": asked + said, "loss_mask": [0] * len(asked) + [1] * len(said), "domain": "__default__"}

class Both(Builder):
    def build(self, item, config, tokenizer):
        return {"ids": [1], "sequence": [1]}

def weights(sample):
    return [[1.0] if "2" in each.text else 0 if each.role == "assistant" else None for each in sample.turns]

def too_few(sample):
    return [1.0]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"builders_{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:8]}"
    (tmp_path / f"{name}.py").write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_mask_builder_as_astrai_has_them(tmp_path: Path, module: str) -> None:
    _, published = built(tmp_path, [row(1), row(2)], f"{module}:builder")
    assert open_stream(published.directory, "train").record(1, "tokens").tolist() == row(2)["input_ids"]
    with pytest.raises(PrepAssetsError, match="nothing says which tokenizer made them"):
        built(tmp_path / "unnamed", [row(1)], f"{module}:builder", {"tokenized_by": None})
    with pytest.raises(PrepAssetsError, match="unsupported_column"):
        built(tmp_path / "strange", [row(1)], f"{module}:strange")


def test_a_domain_that_a_builder_returns_must_stand_in_the_row(tmp_path: Path, module: str) -> None:
    _, published = built(tmp_path, [{**row(1), "source": "wiki"}, row(2)], f"{module}:of_domain")
    assert [(each.id, each.reason) for each in refusals(published)] == [("rows.jsonl:2", "unsupported_column")]


def test_a_builder_class_as_astrai_has_them(tmp_path: Path, module: str) -> None:
    options = {"prefix": "Q: ", "tokenizer": str(TOKENIZER)}
    rows = [{"q": "What is 2?", "a": " It is 2."}, {"q": "x", "a": "y", "skip": True}]
    _, published = built(tmp_path, rows, f"{module}:Builder", {"options": options})
    tokens = open_stream(published.directory, "train")
    asked, answer = (BACKEND.encode(text, add_special_tokens=False).ids for text in ("Q: What is 2?", " It is 2."))
    assert tokens.record(0, "tokens").tolist() == asked + answer
    assert tokens.record(0, "loss_mask").tolist() == [0] * len(asked) + [1] * len(answer)
    assert [each.reason for each in refusals(published)] == ["skipped_by_schema"]
    with pytest.raises(PrepAssetsError, match="unsupported_column"):
        built(tmp_path / "both", [row(1)], f"{module}:Both")


def test_chats_and_ids_of_one_domain_stay_in_the_order_of_their_rows(tmp_path: Path, module: str) -> None:
    rows = [row(0), {"q": "What is 1?", "a": "It is 1."}, row(2), row(3), {"q": "What is 4?", "a": "It is 4."}]
    _, published = built(tmp_path, rows, f"{module}:mixed")
    tokens = open_stream(published.directory, "train")
    assert [tokens.record(at, "tokens").tolist() for at in range(5)] == [row(number)["input_ids"] for number in range(5)]


def test_a_function_weighs_the_turns_of_any_schema(tmp_path: Path, module: str) -> None:
    rows = [{"messages": messages(1) + messages(2)}]
    more = {"weigh": f"{module}:weights", "tokenized_by": None}
    workspace, published = built(tmp_path, rows, "messages", more)
    tokens = open_stream(published.directory, "train").record(0, "tokens")
    mask = open_stream(published.directory, "train").record(0, "loss_mask")
    assert BACKEND.decode(tokens[mask != 0].tolist(), skip_special_tokens=False) == "What is 2?<|im_end|>It is 2.<|im_end|>"
    with pytest.raises(PrepAssetsError, match="gives 1 weights for 4 turns"):
        built(tmp_path / "few", rows, "messages", {**more, "weigh": f"{module}:too_few"})
    assert domain_of(workspace.family(Sft), "r").weigh == f"{module}:weights"


# -- beside the reference -----------------------------------------------------------------------------------------------------------------


def test_what_transformers_makes_of_chats_for_trl_passes_every_proof(real_data: Path, tmp_path: Path) -> None:
    """Ids and ``assistant_masks`` by transformers itself, of real rows, with their messages as evidence."""
    from transformers import PreTrainedTokenizerFast

    from prep_assets.samples import ASSISTANT, USER, Sample, turn
    from prep_assets.text.load_template import load_template
    from prep_assets.text.vocabulary import load_vocabulary

    folder = tokenizer_folder(real_data, "qwen2_5_training", tmp_path / "tokenizer")
    theirs, form = PreTrainedTokenizerFast.from_pretrained(folder), load_template("tokenizer", load_vocabulary(str(folder))).form
    rows = []
    for each in json.loads((real_data / "llama_factory" / "alpaca_en_demo.json").read_text("utf-8"))[:40]:
        question, answer = f"{each['instruction']} {each['input']}".strip(), each["output"]
        found, mask = trl_labels(theirs, form, Sample((turn(USER, question), turn(ASSISTANT, answer))))
        said = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        rows.append({"input_ids": found, "assistant_masks": mask.astype(int).tolist(), "messages": said})
    source = domain(jsonl(tmp_path / "rows.jsonl", rows), "tokenized", tokenized_by="../tokenizer")
    workspace = workspace_in(tmp_path, {"sft": {"tokenizer": "../tokenizer", "tokenizer_loader": "file", "domains": {"r": source}}})
    published = build(workspace, "sft_tokens", "r")
    counts = published.manifest.counts
    assert (counts["kept"], counts["tokenized_rows"]) == (40, 40)
    assert {name: verdict.passed for name, verdict in verdicts(workspace, published).items()} == dict.fromkeys(
        verdicts(workspace, published), True
    )
