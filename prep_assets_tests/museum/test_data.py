"""Exhibits of wrong records, gold answers and caches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.errors import PrepAssetsError
from prep_assets.stores.table import open_stream
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, jsonl, minimal, refusals, workspace_in
from prep_assets_tests.museum.gallery import ASSISTANT, CHAT, USER, Row, chats, documents, packed, said, stand_of, tokenizer
from prep_assets_tests.stored import packed_rows

TEXTS = ["One document.", "Another one.", "And a third one."]


def test_50_score_contradicts(tmp_path: Path) -> None:
    """An overall score of 1 was written as 10: about 2,000 of the worst answers became chosen ones.

    Hit: UltraFeedback#8, and data sets made of it
    Stopped by: a pair whose scores contradict its ratings is rejected.
    """

    def pair(prompt: str, chosen: str, rejected: str, scores: tuple[float, float]) -> dict[str, object]:
        """A row as the binarized data set has it."""
        sides = {key: [said(USER, prompt), said(ASSISTANT, text)] for key, text in (("chosen", chosen), ("rejected", rejected))}
        return {"prompt": prompt, **sides, "score_chosen": scores[0], "score_rejected": scores[1]}

    rated = {  # the worst answer has the best score, so that its ratings alone tell
        "prompt": "What is 4 + 4?",
        "completions": [
            {"response": "9", "overall_score": 10.0, "annotations": {"helpfulness": {"Rating": "1"}, "honesty": {"Rating": "2"}}},
            {"response": "8", "overall_score": 8.5, "annotations": {"helpfulness": {"Rating": "5"}, "honesty": {"Rating": "4"}}},
        ],
    }
    rows = [pair("What is 2 + 2?", "4", "5", (9.0, 2.0)), pair("What is 3 + 3?", "9", "6", (1.0, 8.5)), rated]
    stand = stand_of(tmp_path, "preference", "ultrafeedback", rows, "preference_raw", "preferences_by_domain", test_fraction=0.0)
    assert [each.reason for each in refusals(stand.published)] == ["score_contradicts"] * 2


def test_51_unparsable_gold(tmp_path: Path) -> None:
    """A gold answer that nobody could parse was rewarded with 1.0.

    Hit: open-r1#215, #503, PR#566, cookbook#335
    Stopped by: the record is rejected; `gold_answers`.
    """
    rows = [
        {"question": "What is 2 + 2?", "answer": "It is <<2+2=4>>4.\n#### 4"},
        {"question": "How long is a rope?", "answer": "Twice its half.\n#### half a rope"},
    ]
    counts = stand_of(tmp_path, "rl", "gsm8k", rows, "rl_raw", "rl_prompts_by_domain", arithmetic={"n": 10}).published.manifest.counts
    assert (counts["read"], counts["kept"], sum(counts["refused"].values())) == (2, 1, 1)


def test_52_records_multiplied(tmp_path: Path) -> None:
    """A shard was listed twice, and records were trained up to 32 times; or a cache outlived its template.

    Hit: Nemotron#260, Soup#1067, open-instruct PR#1518, LMFlow PR#394, AReaL PR#1598, datasets#3847
    Stopped by: `accounting`; the build key hashes contents, not names and times.
    """
    right = documents(tmp_path, TEXTS)

    def joined(rows: list[Row]) -> list[Row]:
        return [Row(np.concatenate([row.ids, row.ids]), np.concatenate([row.mask, row.mask])) for row in rows]

    assert right.with_rows(joined, "docs_train").failing() != []


def test_52_a_shard_that_is_listed_twice(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "shard.jsonl", [{"text": text} for text in TEXTS])
    shutil.copy(source, tmp_path / "shard_again.jsonl")
    listed = {**domain(source, "text"), "files": [str(source), str(source), str(tmp_path / "shard_again.jsonl")]}
    workspace = workspace_in(tmp_path, minimal("pretrain", {"docs": listed}, engine="reference"))
    build(workspace, "pretrain_raw", "docs")
    counts = build(workspace, "pretrain_tokens", "docs").manifest.counts
    assert counts["kept"] == len(TEXTS)
    assert counts["refused"] == {"deduplicate/duplicate": len(TEXTS)}


def test_52_a_template_edited_under_its_path(tmp_path: Path) -> None:
    plain = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    keys = {
        chats(tmp_path / name, [CHAT], tokenizer=tokenizer(tmp_path / "tokenizer", template=template)).published.manifest.build_key
        for name, template in (("before", plain), ("after", plain.replace(": ", ":\\n")))
    }
    assert len(keys) == 2


def test_53_test_sets_in_training(tmp_path: Path) -> None:
    """A shard was listed twice, and records were trained up to 32 times; or a cache outlived its template.

    Hit: notus PR#10, MAmmoTH#11, UltraChat#18, marin#6742, #5519
    Stopped by: `accounting`; the build key hashes contents, not names and times.
    """
    question = "What happens to you if you eat watermelon seeds that you have found in an old and dusty drawer?"
    planted = [said(USER, f"Please tell me: {question.upper()}"), said(ASSISTANT, "They pass through you.")]
    clean = [said(USER, "What happens to you if you eat watermelon?"), said(ASSISTANT, "You enjoy it.")]
    benchmark = jsonl(tmp_path / "benchmark.jsonl", [{"question": question, "mc1": ["Nothing", "You grow"]}])
    stand = chats(tmp_path / "with", [planted, clean], decontaminate={"files": [str(benchmark)]})
    assert [(each.id, each.reason) for each in refusals(stand.published)] == [("chats.jsonl:1", "contaminated")]
    assert chats(tmp_path / "without", [planted, clean]).published.manifest.counts["kept"] == 2


def test_54_ids_wrap_in_uint16(tmp_path: Path) -> None:
    """Ids above 65,535 were stored in sixteen bits and wrapped around.

    Hit: transformers#2825, knnlm#6
    Stopped by: an error before anything is written.
    """

    def enlarge(described: dict[str, Any]) -> None:
        """66,000 tokens that no text has, so that the last id is above 65,535."""
        vocabulary = described["model"]["vocab"]
        first = 1 + max([*vocabulary.values(), *(token["id"] for token in described["added_tokens"])])
        vocabulary.update({f"unused{number}": first + number for number in range(66_000)})

    large = tokenizer(tmp_path / "tokenizer", edit=enlarge)
    with pytest.raises(PrepAssetsError, match="uint16"):
        chats(tmp_path / "narrow", [CHAT], tokenizer=large, output={"storage_format": "bin", "dtype": "uint16"})
    stand = chats(tmp_path / "wide", [CHAT], tokenizer=large, output={"storage_format": "bin", "dtype": "auto"})
    assert stand.row().ids.dtype == "uint32"


def test_55_fim_tokens_spelled(tmp_path: Path) -> None:
    """Fill-in-the-middle sentinels were tokenized as text, or suffix and prefix were swapped.

    Hit: Megatron-Bridge PR#5228, transformers#26575
    Stopped by: `tokenization_identity` reassembles each cut document.
    """
    names = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    texts = [f"def f{number}(x):\n    return x + {number}\n" for number in range(8)]
    folder = tokenizer(tmp_path / "tokenizer", special=names)
    right = documents(tmp_path, texts, tokenizer=folder, preprocessing={"fim": {"rate": 1.0, "spm_rate": 0.0}})
    prefix, suffix, middle = (right.token(name) for name in names)
    for row in right.rows("docs_train"):
        assert [int(each) for each in row.ids if each in (prefix, suffix, middle)] == [prefix, suffix, middle]

    def swapped(rows: list[Row]) -> list[Row]:
        changed = []
        for row in rows:
            first, second, third = (int(np.flatnonzero(row.ids == token)[0]) for token in (prefix, suffix, middle))
            before, after = row.ids[first + 1 : second], row.ids[second + 1 : third]
            changed.append(Row(np.concatenate([[prefix], after, [suffix], before, row.ids[third:]]), row.mask))
        return changed

    right.caught("tokenization_identity", swapped, "docs_train")


def test_56_rollouts_tokenized_again(tmp_path: Path) -> None:
    """A rollout's text was tokenized again for training, with other ids than were sampled.

    Hit: the vLLM blog of 22 October 2025, verl#3720, #3960, #6719, rllm PR#272, ms-swift PR#10012, sglang PR#26555, trl PR#6250
    Stopped by: `rl_groups` stores sampled ids and log-probabilities.
    """
    backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    ids = backend.encode("It is", add_special_tokens=False).ids
    drifting = [*(backend.token_to_id(letter) for letter in "It"), *ids[1:]]
    assert backend.decode(drifting) == backend.decode(ids) and drifting != ids
    logprobs = [[-0.5] * len(ids), [-0.25] * len(drifting)]
    row = {"prompt": "What?", "responses": ["It is", "It is"], "rewards": [1.0, 0.0], "token_ids": [ids, drifting], "logprobs": logprobs}
    keys = {"token_ids_key": "token_ids", "logprobs_key": "logprobs"}
    stand = stand_of(tmp_path, "rl", "group", [row], "rl_raw", "rl_groups_by_domain", read_with=keys, arithmetic={"n": 5})
    assert stand.published.manifest.counts["retokenized_otherwise"] == 1


def test_57_mean_of_means(tmp_path: Path) -> None:
    """With gradient accumulation the loss was a mean of means, which overweights rows with few trained tokens.

    Hit: transformers#34191, #35438, #37197, #37766
    Stopped by: up to the trainer; stores and exports give trained tokens by row.
    """
    stand = packed(tmp_path, [CHAT, CHAT[:2], CHAT[2:]], row_len=64)
    table = open_stream(stand.published.directory, "sft_packed")
    per_row = (np.asarray(packed_rows(table, "loss_mask")) != 0).sum(axis=1)
    assert stand.published.manifest.counts["trained_tokens"] == per_row.sum() and (per_row > 0).all()


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE"])
def test_89_wide_text_without_a_mark(tmp_path: Path, encoding: str) -> None:
    """A text file in UTF-16 without a byte order mark was read as UTF-8: each letter was followed by a NUL, and all of it was trained.

    Hit: datasets PR#5969
    Stopped by: the build stops and names the encoding; rows with a NUL are rejected.
    """
    text, file = "One document.\nAnother one.\n", tmp_path / "a.txt"
    file.write_bytes(text.encode(encoding))
    assert "\0" in file.read_bytes().decode()  # UTF-8 to whoever looks at bytes only
    workspace = workspace_in(tmp_path, minimal("pretrain", {"a": domain(file, "text")}))
    with pytest.raises(PrepAssetsError, match=rf"a\.txt: is {encoding} text without a byte order mark"):
        build(workspace, "pretrain_raw", "a")
    file.write_text(text)
    assert build(workspace, "pretrain_raw", "a").manifest.counts["kept"] == 2
