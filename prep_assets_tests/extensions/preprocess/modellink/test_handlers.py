"""Every handler through the command; for the llama2 examples that MindSpeed-LLM publishes, ids and labels computed slot by slot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.cli.main import app
from prep_assets.engine import build
from prep_assets.extensions.preprocess.modellink import ALTERNATIVES, BY_PROMPT_TYPE, HANDLERS, KEYS, PAIRWISE, UNSUPPORTED, parser
from prep_assets.pipeline.workspace import Workspace
from prep_assets.schemas.registry import schemas
from prep_assets_tests.extensions.preprocess.handler_rows import MODELLINK
from prep_assets_tests.extensions.preprocess.modellink.conftest import (
    BOS,
    CONFIGS,
    EOS,
    INSTRUCTION,
    PAIRS,
    Call,
    files,
    names,
    pair,
    plain,
    token,
    whole,
    write,
)
from prep_assets_tests.graph.test_document_ends import punkt as punkt
from prep_assets_tests.graph.workspaces import jsonl

ROWS = {
    "GeneralPretrainHandler": [{"text": f"Text {n}."} for n in range(6)],
    "AlpacaPretrainHandler": MODELLINK["alpaca_text"],
    "SharegptPretrainHandler": MODELLINK["sharegpt_text"],
    "StackOverflowPythonPretrainHandler": MODELLINK["stack_overflow"],
    "GeneralInstructionHandler": MODELLINK["general"],
    "BelleMultiTurnInstructionHandler": MODELLINK["belle"],
    "MOSSMultiTurnHandler": MODELLINK["moss"],
    "MOSSInstructionHandler": MODELLINK["moss_instruction"],
    "LeetcodePythonInstructionHandler": MODELLINK["leetcode"],
    "HunyuanInstructionHandler": MODELLINK["hunyuan"],
    "AlpacaStyleInstructionHandler": MODELLINK["general"],
    "SharegptStyleInstructionHandler": MODELLINK["sharegpt_text"],
    "OpenAIInstructionHandler": MODELLINK["openai"],
    "AlpacaStylePairwiseHandler": MODELLINK["alpaca_pairs"],
    "SharegptStylePairwiseHandler": MODELLINK["sharegpt_pairs"],
}
QA = [{"instruction": f"Double {n}", "input": f"of {n}", "output": f"It is {2 * n}"} for n in range(12)]


def test_every_handler_of_theirs_is_known() -> None:
    """Those that a schema reads by their name, and the one whose rows are listed in a file."""
    theirs = {name for each in schemas().values() for name in (each.name, *each.aliases) if name.endswith("Handler")}
    assert {*HANDLERS} == {*ROWS} and {*HANDLERS, *ALTERNATIVES} == theirs | {"LlamaFactoryInstructionHandler"}


@pytest.mark.parametrize("handler", ROWS)
def test_each_writes_its_files(here: Path, call: Call, handler: str) -> None:
    jsonl(here / "rows.jsonl", ROWS[handler])
    named = ["--prompt-type", "llama2"] if handler in (*BY_PROMPT_TYPE, *PAIRWISE) else []
    code, said = call("preprocess", "--input", "rows.jsonl", "--output-prefix", "out/x", "--handler-name", handler, *named)
    assert code == 0, said
    keys = [KEYS[handler] or "text"] if handler in KEYS else [f"packed_{key}" for key in (PAIRS if handler in PAIRWISE else INSTRUCTION)]
    assert names(here / "out") == files("x", *keys)
    assert {len(pair(here / "out" / f"x_{key}_document")) for key in keys} == {6}


def test_several_json_keys(here: Path, llama: Path, call: Call) -> None:
    rows = [{"title": f"Title {n}", "content": f"Content {n}.", "year": n} for n in range(5)]
    jsonl(here / "rows.jsonl", rows)
    code, said = call("preprocess", "--input", "rows.jsonl", "--json-keys", "title", "content", "--output-prefix", "out/text_x")
    assert code == 0, said
    assert "year of the rows is not read" in said
    assert names(here / "out") == files("text_x", "title", "content")
    for key in ("title", "content"):
        assert pair(here / "out" / f"text_x_{key}_document") == [whole(llama, str(row[key])) for row in rows]


def test_sentences(here: Path, call: Call, punkt: Path) -> None:
    jsonl(here / "rows.jsonl", [{"text": "He came in. Nobody knew."}])
    words = ("--input", "rows.jsonl", "--output-prefix", "out/x", "--split-sentences", "--keep-newlines")
    code, said = call("preprocess", *words)
    assert code == 0, said
    assert names(here / "out") == ["x_text_sentence.bin", "x_text_sentence.idx"]
    assert "nothing to do" in call("preprocess", *words)[1]


def test_belle_trains_the_last_answer_alone(here: Path, llama: Path, call: Call) -> None:
    row = {"instruction": "Human:Hi\nAssistant:Hello\nHuman:Go on\nAssistant:", "input": "", "output": "Gone"}
    write(here / "rows.json", [row])
    handler = ("--handler-name", "BelleMultiTurnInstructionHandler", "--append-eod")
    code, said = call("preprocess", "--input", "rows.json", "--output-prefix", "out/x", *handler)
    assert code == 0, said
    (ids,), _, (labels,) = (pair(here / "out" / f"x_packed_{key}_document") for key in INSTRUCTION)
    end = [*plain(llama, "Gone\n"), token(llama, EOS)]
    assert ids[-len(end) :] == end and labels == [*[-100] * (len(ids) - len(end)), *end]


def test_moss_has_two_tokens_a_turn_and_one_end(here: Path, llama: Path, call: Call) -> None:
    """user_token [195], assistant_token [196], and the end-of-text token once, behind the last answer. The next question's token ends an answer before."""
    talk = [("What is AI?", "It is a field."), ("More", "Sure thing.")]
    turns = {f"turn_{n}": {"Human": f"<|Human|>: {q}<eoh>\n", "MOSS": f"<|MOSS|>: {a}<eom>\n"} for n, (q, a) in enumerate(talk)}
    jsonl(here / "rows.jsonl", [{"chat": turns}])
    words = ("--input", "rows.jsonl", "--output-prefix", "out/x", "--handler-name", "MOSSMultiTurnHandler")
    code, said = call("preprocess", *words)
    assert code == 0, said
    asks, answers = (token(llama, f"<reserved_{number}>") for number in (106, 107))
    expected, trained = list[int](), list[int]()
    for question, answer in talk:
        expected += [asks, *plain(llama, question), answers, *plain(llama, answer)]
        trained += [asks if trained else -100, *[-100] * (len(plain(llama, question)) + 1), *plain(llama, answer)]
    (ids,), _, (labels,) = (pair(here / "out" / f"x_packed_{key}_document") for key in INSTRUCTION)
    assert ids == [*expected, token(llama, EOS)] and labels == [*trained, token(llama, EOS)]


def test_moss_needs_the_tokens_of_its_turns(here: Path, call: Call) -> None:
    """Without them they were written as text, in silence."""
    jsonl(here / "rows.jsonl", ROWS["MOSSMultiTurnHandler"])
    words = ("--input", "rows.jsonl", "--output-prefix", "out/x", "--handler-name", "MOSSMultiTurnHandler")
    code, said = call("preprocess", *words, tokenizer=CONFIGS / "tokenizer")
    assert code == 1 and "ids 195 and 196; the tokenizer has no <reserved_106>" in said and not (here / "out").exists()


def slots(tokenizer: Path, row: dict[str, Any]) -> tuple[list[int], list[int]]:
    """AlpacaStyleInstructionHandler with llama2: each slot tokenized alone, the answer trained with its end-of-text token."""
    asked = [token(tokenizer, BOS), *plain(tokenizer, f"[INST] {row['instruction']}\n{row['input']} [/INST]")]
    answer = [*plain(tokenizer, row["output"]), token(tokenizer, EOS)]
    return asked + answer, [-100] * len(asked) + answer


def parts(values: list[int], starts: list[int]) -> list[list[int]]:
    return [values[start:stop] for start, stop in zip(starts, [*starts[1:], len(values)], strict=True)]


@pytest.mark.parametrize("neat", [False, True])
def test_packed_instructions(here: Path, llama: Path, call: Call, neat: bool) -> None:
    """data_convert_llama2_instruction_pack.sh: its flags, and 64 tokens a row."""
    write(here / "rows.json", QA)
    code, said = call(
        "preprocess",
        *("--input", "rows.json", "--output-prefix", "out/alpaca", "--workers", 4, "--log-interval", 1000, "--overwrite-cache"),
        *("--handler-name", "AlpacaStyleInstructionHandler", "--prompt-type", "llama2", "--pack", "--append-eod", "--seq-length", 64),
        *(["--neat-pack"] if neat else []),
    )
    assert code == 0, said
    assert "no second one follows" in said
    ids, attention, labels = (pair(here / "out" / f"alpaca_packed_{key}_document") for key in INSTRUCTION)
    assert {len(row) for row in (*ids, *attention, *labels)} == {64} and 1 < len(ids) < len(QA)
    found = []
    for row, mask, label in zip(ids, attention, labels, strict=True):
        used = len(row) - [value == -100 for value in label[::-1]].index(False)
        starts = [at for at, number in enumerate(row[:used]) if number == token(llama, BOS)]
        found += list(zip(parts(row[:used], starts), parts(label[:used], starts), strict=True))
        numbers = [number for number, part in enumerate(parts(row[:used], starts), 1) for _ in part]
        assert mask == (numbers + [0] * (64 - used) if neat else [1] * 64)
        assert label[used:] == [-100] * (64 - used)
    assert sorted(found) == sorted(slots(llama, row) for row in QA)


def test_pairs(here: Path, llama: Path, call: Call) -> None:
    """data_convert_llama2_pairwise.sh: its flags, rows as those of orca_rlhf.jsonl."""
    rows = [{"system": f"Be {n}.", "question": f"What is {n}?", "chosen": f"Number {n}", "rejected": f"No {n}"} for n in range(6)]
    jsonl(here / "orca_rlhf.jsonl", rows)
    code, said = call(
        "preprocess",
        *("--input", "orca_rlhf.jsonl", "--output-prefix", "out/orca_rlhf", "--workers", 4, "--log-interval", 1000),
        *("--handler-name", "AlpacaStylePairwiseHandler", "--prompt-type", "llama2", "--seq-length", 4096),
        *("--map-keys", json.dumps({"prompt": "question", "query": "", "system": "system"})),
    )
    assert code == 0, said
    found = {key: pair(here / "out" / f"orca_rlhf_packed_{key}_document") for key in PAIRS}
    for number, row in enumerate(rows):
        asked = [token(llama, BOS), *plain(llama, f"[INST] <<SYS>>\n{row['system']}\n<</SYS>>\n\n{row['question']} [/INST]")]
        for side in ("chosen", "rejected"):
            answer = [*plain(llama, row[side]), token(llama, EOS)]
            assert found[f"{side}_input_ids"][number] == asked + answer
            assert found[f"{side}_labels"][number] == [-100] * len(asked) + answer


# -- each flag of ModelLink's and MindSpeed-LLM's preprocess_data.py is honoured or refused in words, none is passed over ----------------


THEIRS = """
--input --handler-name --streaming --hf-datasets-params --datasets --json-keys --split-sentences --keep-newlines --prompt-type --prompt-type-path
--dataset-additional-keys --interleave-probs --mix-strategy --dataset-dir --overwrite-cache --max-samples --seed --cache-dir --map-keys --pack --neat-pack
--script-data-dir --enable-thinking --pad-to-multiple-of --data-obfuscation --obf-seed-content --reasoning-effort --drop-thinking --tokenizer-type
--tokenizer-not-use-fast --vocab-file --merge-file --append-eod --tokenizer-name-or-path --tokenizer-model --seq-length --make-vocab-size-divisible-by
--pad-vocab-size-to --reward-tokens --output-prefix --dataset-impl --workers --n-subs --log-interval --merge-group-keys
"""
"""The flags of both versions, 2024 and 2026."""
OURS = {"--ignore", "--overwrite", "--tokenizer-loader", "--help", "-h"}
NEEDED = ("--input", "rows.jsonl", "--output-prefix", "out/x")
STYLE = ("--handler-name", "AlpacaStyleInstructionHandler", "--prompt-type", "llama2")
ROWS_FLAGS = [{"text": f"Text {n}.", "instruction": f"Say {n}", "input": "x", "output": f"{n}"} for n in range(4)]


def test_each_flag_of_theirs_is_honoured_or_refused() -> None:
    assert {*parser()._option_string_actions} | {*UNSUPPORTED} == {*THEIRS.split()} | OURS
    assert {*parser()._option_string_actions}.isdisjoint(UNSUPPORTED)


@pytest.mark.parametrize("flag", UNSUPPORTED)
def test_what_is_not_honoured_says_why(here: Path, call: Call, flag: str) -> None:
    jsonl(here / "rows.jsonl", ROWS_FLAGS)
    for words in ([flag, "1"], [f"{flag}=1"]):
        code, said = call("preprocess", *NEEDED, *words)
        assert (code, said) == (2, f"error: {flag}: {UNSUPPORTED[flag]}\n")
    assert not (here / "out").exists()


def test_several_are_named_together(here: Path, call: Call) -> None:
    assert call("preprocess", *NEEDED, "--n-subs", 2, "--seed=3")[1].count("\n") == 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--handlername", "x"), 2, "'--handlername' is no flag; did you mean '--handler-name'?"),
        (("--seq-length", "0"), 2, "argument --seq-length: needs a whole number from 1 on, not '0'"),
        (("--workers", "x"), 2, "argument --workers: needs a whole number from 1 on, not 'x'"),
        (("--map-keys", "{"), 2, "argument --map-keys: '{' is not JSON"),
        (("--tokenizer-type", "Bert"), 2, "invalid choice: 'Bert'"),
        (("--pack",), 2, "--pack: GeneralPretrainHandler does not read it, so leave it out"),
        (("--prompt-type", "qwen", "--map-keys", "{}"), 2, "--prompt-type: GeneralPretrainHandler does not read it"),
        ((*STYLE, "--json-keys", "text"), 2, "--json-keys: AlpacaStyleInstructionHandler does not read it"),
        (("--handler-name", "MOSSInstructionHandler", "--append-eod"), 2, "--append-eod: MOSSInstructionHandler does not read it"),
        (("--handler-name", "GeneralPretrainHandlr"), 1, "did you mean 'GeneralPretrainHandler'? Known: GeneralPretrainHandler, Sharegpt"),
        (("--handler-name", "AlpacaStyleInstructionHandler"), 1, "needs --prompt-type: the chat format"),
        (("--handler-name", "mine.handlers:Mine"), 1, "name it as schema in the configuration that prep-assets migrate prints"),
        ((*STYLE[:3], "deepseek4"), 1, "no prompt type 'deepseek4' ships"),
        ((*STYLE, "--enable-thinking", "true"), 1, "the empty thought of an answer without any is written and not trained"),
        ((*STYLE, "--pack"), 1, "--pack needs --seq-length"),
        ((*STYLE, "--neat-pack", "--seq-length", "9"), 1, "--neat-pack is a way to --pack"),
        ((*STYLE, "--map-keys", '{"promt": "x"}'), 1, "map_keys has no key 'promt'; did you mean 'prompt'?"),
        (("--split-sentences",), 1, "--split-sentences and --keep-newlines go together"),
        (("--split-sentences", "--keep-newlines", "--seq-length", "9"), 1, "a limit here is one of documents, not of sentences"),
        (("--keep-newlines",), 1, "--split-sentences and --keep-newlines go together"),
        (("--handler-name", "AlpacaPretrainHandler", "--json-keys", "a"), 1, "AlpacaPretrainHandler writes 'text' and nothing else"),
        (("--vocab-file", "x"), 1, "--vocab-file: --tokenizer-type PretrainedFromHF does not read it"),
        (("--input", "gone.jsonl"), 1, "there is no file"),
    ],
)
def test_a_command_line_that_means_nothing(here: Path, call: Call, words: tuple[str, ...], code: int, says: str) -> None:
    jsonl(here / "rows.jsonl", ROWS_FLAGS)
    found, said = call("preprocess", *NEEDED, *words)
    assert (found, says in said, said.startswith("error: ")) == (code, True, True), said
    assert not (here / "out").exists()


@pytest.mark.parametrize("handler", ALTERNATIVES)
def test_handlers_that_are_done_elsewhere(here: Path, call: Call, handler: str) -> None:
    code, said = call("preprocess", *NEEDED, "--handler-name", handler)
    assert (code, said) == (1, f"error: --handler-name {handler}: {ALTERNATIVES[handler]}\n")


def test_help_and_a_forgotten_flag(call: Call) -> None:
    assert call("preprocess", "--input", "x", tokenizer=None) == (2, "error: the following arguments are required: --output-prefix\n")
    code, said = call("preprocess", *NEEDED, "--help")
    assert code == 0 and "--seq-length" in said and all(handler in said for handler in HANDLERS)


def test_tokenizers_by_their_files(here: Path, call: Call) -> None:
    """The path of each goes into the configuration; what opens them is tried where they are opened."""
    jsonl(here / "rows.jsonl", ROWS_FLAGS)
    for name in ("gpt2-vocab.json", "gpt2-merges.txt", "bert-vocab.txt"):
        (here / name).write_text("", "utf-8")
    (here / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    gpt2 = ("--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "gpt2-vocab.json")
    code, said = call("migrate", *NEEDED, *gpt2, "--merge-file", "gpt2-merges.txt", tokenizer=None)
    assert code == 0 and {"tokenizer": str(here / "gpt2-merges.txt"), "bos": False}.items() <= yaml.safe_load(said).items()
    bert = ("--vocab-file", "bert-vocab.txt", "--tokenizer-type")
    code, said = call("migrate", *NEEDED, *bert, "BertWordPieceLowerCase", tokenizer=None)
    assert yaml.safe_load(said)["tokenizer"] == str(here / "bert-vocab.txt")
    for words, says in (
        ((*bert, "BertWordPieceCase"), "says do_lower_case: True, the --tokenizer-type says False"),
        (gpt2, "--tokenizer-type GPT2BPETokenizer needs --merge-file"),
        ((*gpt2, "--merge-file", "gone/merges.txt"), "no tokenizer in "),
        ((), "--tokenizer-type PretrainedFromHF needs --tokenizer-name-or-path"),
    ):
        code, said = call("migrate", *NEEDED, *words, tokenizer=None)
        assert code == 1 and says in said


def test_a_vocabulary_of_another_folder_is_refused(here: Path, call: Call) -> None:
    (here / "other").mkdir()
    for name in ("merges.txt", "other/vocab.json"):
        (here / name).write_text("", "utf-8")
    words = ("--tokenizer-type", "GPT2BPETokenizer", "--merge-file", "merges.txt", "--vocab-file", "other/vocab.json")
    code, said = call("migrate", *NEEDED, *words, tokenizer=None)
    assert code == 1 and "belong into one folder" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--max-samples", "2"), {"max_items": 2}),
        (("--handler-name", "GeneralInstructionHandler", "--append-eod"), {"end_with_eos": "last", "begin_with_bos": True}),
        (("--handler-name", "GeneralInstructionHandler"), {"end_with_eos": False, "train_on_eos": "none"}),
        ((*STYLE[:3], "trl"), {"end_with_eos": False, "train_on_eos": "none"}),
        ((*STYLE[:3], "trl", "--append-eod"), {"end_with_eos": "last"}),
        (("--pad-vocab-size-to", "50304"), {"pad_vocab_to": 50304}),
        (("--tokenizer-loader", "transformers"), {"tokenizer_loader": "transformers"}),
        (("--pad-vocab-size-to", "50304", "--seq-length", "7"), {"max_seq_len": 6, "append_eod": False, "deduplicate": False}),
    ],
)
def test_what_a_flag_becomes(here: Path, call: Call, words: tuple[str, ...], expected: dict[str, object]) -> None:
    jsonl(here / "rows.jsonl", ROWS_FLAGS)
    code, said = call("migrate", *NEEDED, *words)
    assert code == 0, said
    values: dict[str, object] = {}
    for each in (loaded := yaml.safe_load(said), *loaded["domains"].values(), loaded.get("template_options", {}), loaded["preprocessing"]):
        values |= each
    assert {key: values.get(key) for key in expected} == expected


def test_efficient_eos_keeps_its_stop(here: Path, call: Call) -> None:
    """baichuan2 leaves the stop to the label; every answer gets it here, with --append-eod and without."""
    jsonl(here / "rows.jsonl", ROWS_FLAGS)
    for more, says in (((), "no second one"), (("--append-eod",), "no second one")):
        code, said = call("migrate", *NEEDED, *STYLE[:3], "baichuan2", *more)
        assert code == 0 and "end_with_eos" not in said and (says in said) == bool(more)


def test_a_prompt_type_of_ones_own(here: Path, call: Call) -> None:
    write(here / "rows.json", [{"instruction": "Hi", "input": "", "output": "Ho"}])
    (here / "mine.json").write_text(json.dumps([{"name": "mine", "format_user": {"slots": ["Q: {{content}}\nA:"]}}]))
    words = ("--input", "rows.json", "--output-prefix", "out/x", *STYLE[:2], "--prompt-type", "mine", "--prompt-type-path", "mine.json")
    code, said = call("preprocess", *words)
    assert code == 0, said
    assert [len(pair(here / "out" / f"x_packed_{key}_document")) for key in INSTRUCTION] == [1, 1, 1]


def test_fields_that_nobody_reads_stop_the_run(here: Path, call: Call) -> None:
    jsonl(here / "rows.jsonl", ROWS_FLAGS)
    code, said = call("preprocess", *NEEDED, *STYLE)
    assert code == 1 and "'text' in 4 rows" in said and said.endswith("Here that is --ignore FIELD, once for each field\n")
    assert call("preprocess", *NEEDED, *STYLE, "--ignore", "text")[0] == 0


def test_migrate_prints_the_configuration_that_is_run(here: Path, call: Call) -> None:
    jsonl(here / "rows.jsonl", ROWS_FLAGS)
    words = (*NEEDED, *STYLE, "--ignore", "text", "--pack", "--seq-length", 32)
    code, said = call("migrate", *words)
    assert code == 0 and said.startswith("# configs/sft.yaml, from a command line of ModelLink.\n") and "# - a packed row" in said
    assert not (here / "out").exists()
    (here / "configs").mkdir()
    (here / "configs" / "sft.yaml").write_text(said, "utf-8")
    (built,) = build(Workspace(here / "configs", here / "stores"), "sft_export_megatron")
    assert call("preprocess", *words)[0] == 0
    for key in INSTRUCTION:
        name = f"x_packed_{key}_document.bin"
        assert (built.published.directory / name).read_bytes() == (here / "out" / name).read_bytes()
    assert (here / "out" / "x.prep-assets" / "configs" / "sft.yaml").read_text("utf-8") == said


def test_astrais_command_is_what_it_was(here: Path) -> None:
    from typer.testing import CliRunner

    for command in ("preprocess", "migrate"):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0 and "AstrAI" in result.output and "ModelLink" in result.output
    shutil.rmtree(here / "out", ignore_errors=True)
    assert CliRunner().invoke(app, ["preprocess", "a.jsonl"]).exit_code == 2
