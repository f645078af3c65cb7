"""Distillation: from each form in which a teacher's likeliest tokens are published to entries beside their tokens, proven, exported, and trained on."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.distillation.check import MUTATIONS
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.extensions.token_ids.distillkit import compression_of
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, failing, jsonl, make, refusals, resealed, verdicts, workspace_in

BACKEND = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
TEXTS = ("Three apples lie on the table, and nobody eats them.", "The cat sleeps.", "Twelve less three is nine, so nine are left on it.")
Said = list[list[tuple[int, float]]]
"""Of each token: ids and log-probabilities, from the likeliest on."""


def taught(ids: Sequence[int], *, entries: int = 4, seed: int = 0) -> Said:
    """What a teacher might say of each token but the first: itself is second or likelier, and the rest is left over for what it did not name."""
    draw, said = np.random.default_rng(seed), Said([[]])
    for token in ids[1:]:
        others = [int(other) for other in draw.choice(4000, entries, replace=False) if other != token][: entries - 1]
        likely = np.sort(draw.dirichlet(np.ones(entries + 1)))[::-1][:entries]
        named = [token, *others] if draw.random() < 0.8 else [others[0], token, *others[1:]]
        said.append(list(zip(named, np.log(likely).tolist(), strict=True)))
    return said


def columns(said: Said) -> tuple[list[list[int]], list[list[float]]]:
    return [[token for token, _ in entries] for entries in said], [[value for _, value in entries] for entries in said]


IDS = [BACKEND.encode(text, add_special_tokens=False).ids for text in TEXTS]
SAID = [taught(ids, seed=number) for number, ids in enumerate(IDS)]


def axolotl(number: int, **more: Any) -> dict[str, Any]:
    """Prepared by axolotl: at the token itself, places without entries filled with -inf, and a mask of entries."""
    ids, values = columns(SAID[number])
    fill = [0] * 4, [-math.inf] * 4
    mask = [[0] * 4, *([1] * 4 for _ in IDS[number][1:])]
    labels = [-100, *IDS[number][1:]]
    return {
        "input_ids": IDS[number],
        "labels": labels,
        "target_token_ids": [fill[0], *ids[1:]],
        "target_logprobs": [fill[1], *values[1:]],
        "target_mask": mask,
        **more,
    }


def distillkit(number: int) -> dict[str, Any]:
    """DistillKit's own rows, not compressed: a list less than ids, each of what comes next."""
    ids, values = columns(SAID[number][1:])
    return {"input_ids": IDS[number], "token_ids": ids, "top_values": values}


def nemo(number: int) -> dict[str, Any]:
    """NeMo-Aligner's: labels, mask and logits stand where a model puts them out."""
    ids, values = columns([*SAID[number][1:], [(7, -0.5), (8, -1.5), (9, -3.0), (10, -4.0)]])
    sums = [float(place) for place in range(len(ids))]
    return {
        "tokens": IDS[number],
        "labels": [*IDS[number][1:], 0],
        "loss_mask": [1.0] * (len(IDS[number]) - 1) + [0.0],
        "topk_token_ids": ids,
        "topk_logits": [[value + total for value in place] for place, total in zip(values, sums, strict=True)],
        "log_sum_exp_logits": sums,
        "text": TEXTS[number],
    }


def vllm(number: int) -> dict[str, Any]:
    """A response of vLLM with prompt_logprobs: an object for each token but the first."""
    said = [{str(token): {"logprob": value, "rank": 1, "decoded_token": "x"} for token, value in place} for place in SAID[number][1:]]
    return {"prompt_token_ids": IDS[number], "prompt_logprobs": [None, *said]}


def sglang(number: int) -> dict[str, Any]:
    """SGLang's input_top_logprobs: log-probability, id and text."""
    return {
        "input_ids": IDS[number],
        "input_top_logprobs": [None, *([[value, token, "x"] for token, value in place] for place in SAID[number][1:])],
    }


def legacy(number: int) -> dict[str, Any]:
    """axolotl's first form: objects that name the token by its id."""
    return {
        "input_ids": IDS[number],
        "logprobs": [[{"token": f"token_id:{token}", "logprob": value} for token, value in place] for place in SAID[number]],
    }


def packed(numbers: Sequence[int], bits: int) -> list[int]:
    """Whole numbers as the bytes of one string of bits."""
    written = "".join(format(number, f"0{bits}b") for number in numbers)
    return [int(written[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(written), 8)]


def floats(values: Sequence[float], dtype: str) -> tuple[list[int], list[float]]:
    """Bytes, and what they say."""
    import torch

    tensor = torch.tensor(list(values), dtype=torch.float64).to(getattr(torch, dtype))
    return tensor.view(torch.uint8).tolist() if len(values) else [], tensor.double().tolist()


def compressed_place(place: list[tuple[int, float]], said: Mapping[str, Any]) -> tuple[list[int], list[int], list[tuple[int, float]]]:
    """DistillKit's bytes of one place, written from the description of its format, and what they say."""
    values = np.array([value for _, value in place])
    if said["delta_encoding"]:
        values = np.diff(values, prepend=0)
    numbers, exact = floats(values[: said["exact_k"]], said["exact_dtype"])
    left, terms = values[said["exact_k"] :], said.get("polynomial_terms") or []
    t = np.linspace(0, 1, len(left)) if said["normalize_t"] else np.arange(float(len(left)))
    functions = np.array([t**term if isinstance(term, int) else {"sqrt": np.sqrt, "exp": np.exp}[term](t) for term in terms])
    if terms:
        raw, factors = floats(np.linalg.lstsq(functions.T, left)[0], said["term_dtype"])
        numbers, fitted = numbers + raw, np.array(factors) @ functions
    else:
        fitted = np.zeros(len(left))
    first = 0
    for each in said["residual_bins"]:
        bits, part = each["element_bits"], slice(first, first + each["num_elements"])
        raw, [scale] = floats([max(abs(left - fitted)[part]) / 2 ** (bits - 1)], each["scale_dtype"])
        low = -(2 ** (bits - 1))
        whole = np.clip(np.round((left - fitted)[part] / scale), low, -low - 1).astype(int) if bits > 1 else ((left - fitted)[part] > 0) * 1
        numbers += raw + packed((whole - (low if bits > 1 else 0)).tolist(), bits)
        fitted[part] += scale * (whole if bits > 1 else 2 * whole - 1)
        first = part.stop
    decoded = np.array([*exact, *fitted])
    decoded = np.cumsum(decoded) if said["delta_encoding"] else decoded
    decoded -= np.log(max(1, np.exp(decoded).sum()))
    ids = [token for token, _ in place]
    return packed(ids, 12), numbers, sorted(zip(ids, decoded.tolist(), strict=True), key=lambda pair: -pair[1])


def compressed(number: int, compression: Mapping[str, Any], said: Said | None = None) -> tuple[dict[str, Any], Said]:
    places = [compressed_place(place, {**PLAIN, **compression}) for place in (said or SAID[number])[1:]]
    row = {"bytepacked_indices": [ids for ids, _, _ in places], "compressed_logprobs": [numbers for _, numbers, _ in places]}
    return {"input_ids": IDS[number], **row}, [[], *(place for _, _, place in places)]


def older(number: int) -> dict[str, Any]:
    """DistillKit's older form, the last of four entries as a function of its rank, which is 1."""
    ids, values = columns(SAID[number][1:])
    words = [[sum(token << 12 * place for place, token in enumerate(each))] for each in ids]
    return {
        "input_ids": IDS[number],
        "packed_indices": words,
        "exact_values": [each[:3] for each in values],
        "coeffs": [[each[3] - 2, 0.5, 1.5] for each in values],
    }


OLDER = {"vocab_size": 4096, "k": 4, "exact_k": 3, "polynomial_degree": 1, "with_sqrt_term": True}
PLAIN = {
    "d": 4096,
    "residual_bins": [],
    "exact_dtype": "float64",
    "term_dtype": "float32",
    "delta_encoding": False,
    "error_diffusion": False,
    "normalize_t": False,
}
"""Fields of ``compression_config.yaml``."""
ALL_EXACT = {"d": 4096, "k": 4, "exact_k": 4, "exact_dtype": "float64", "delta_encoding": False}
COMPRESSED = {"teacher_ids_key": "bytepacked_indices", "logprobs_key": "compressed_logprobs"}
FORMS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "compressed": (lambda number: compressed(number, ALL_EXACT)[0], {**COMPRESSED, "compression": ALL_EXACT}),
    "older": (older, {"teacher_ids_key": "packed_indices", "logprobs_key": "exact_values", "compression": OLDER}),
    "axolotl": (axolotl, {}),
    "distillkit": (distillkit, {"teacher_ids_key": "token_ids", "logprobs_key": "top_values"}),
    "nemo": (
        nemo,
        {
            "ids_key": "tokens",
            "teacher_ids_key": "topk_token_ids",
            "logprobs_key": "topk_logits",
            "log_sum_key": "log_sum_exp_logits",
            "shifted": True,
            "teacher_shifted": True,
        },
    ),
    "vllm": (vllm, {"ids_key": "prompt_token_ids", "teacher_ids_key": None, "logprobs_key": "prompt_logprobs"}),
    "sglang": (sglang, {"teacher_ids_key": None, "logprobs_key": "input_top_logprobs"}),
    "legacy": (legacy, {"teacher_ids_key": None, "logprobs_key": "logprobs"}),
}


def rows_file(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Parquet where a row has -inf, which JSON has not."""
    folder.mkdir(parents=True, exist_ok=True)
    if any("target_mask" in row for row in rows):
        pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
        return folder / "rows.parquet"
    return jsonl(folder / "rows.jsonl", rows)


def workspace_of(folder: Path, rows: list[dict[str, Any]], options: Mapping[str, Any] | None = None, **family: Any) -> Workspace:
    source = domain(rows_file(folder, rows), "distilled", tokenized_by=TOKENIZER, options=dict(options or {}))
    base = {"tokenizer": TOKENIZER, "template": "chatml", "domains": {"taught": source}, "output": {"storage_format": "bin"}}
    return workspace_in(folder, {"sft": {**base, **family}})


def built(folder: Path, rows: list[dict[str, Any]], options: Mapping[str, Any] | None = None, **family: Any) -> tuple[Workspace, Published]:
    workspace = workspace_of(folder, rows, options, **family)
    return workspace, build(workspace, "sft_tokens", "taught")


def stored(published: Published, stream: str = "train") -> list[Said]:
    """Of each record the entries of each token, one by one from the files."""
    folder = published.directory / f"{stream}.teacher"
    counts, ends, ids, values = (np.load(folder / f"{name}.npy") for name in ("count", "end", "id", "logprob"))
    assert (counts.dtype, ends.dtype, ids.dtype, values.dtype) == ("uint32", "int64", "uint32", "float16")
    entries, records, token = iter(zip(ids.tolist(), values.tolist(), strict=True)), [], 0
    for tokens in open_stream(published.directory, stream).lengths.tolist():
        records.append([[next(entries) for _ in range(count)] for count in counts[token : token + tokens].tolist()])
        token += tokens
    assert next(entries, None) is None and ends.tolist() == np.cumsum([sum(map(len, said)) for said in records]).tolist()
    return records


def rounded(said: Said) -> Said:
    """From the likeliest on, as float16."""
    return [[(token, float(np.float16(value))) for token, value in place] for place in said]


@pytest.mark.parametrize("form", FORMS)
def test_each_published_form_becomes_the_same_entries(tmp_path: Path, form: str) -> None:
    make_row, options = FORMS[form]
    workspace, published = built(tmp_path, [make_row(number) for number in range(3)], options)
    assert refusals(published) == []
    found = stored(published)
    store = open_stream(published.directory, "train")
    for number, said in enumerate(found):
        assert store.record(number, "tokens").tolist() == IDS[number]
        assert store.record(number, "loss_mask").tolist() == [0, *[1] * (len(IDS[number]) - 1)]
        assert [[token for token, _ in place] for place in said] == columns(SAID[number])[0]
        wanted = [value for place in SAID[number] for _, value in place]
        assert np.allclose([value for place in said for _, value in place], wanted, rtol=2**-11, atol=0 if form != "nemo" else 1e-6)
        probability = np.exp([value for place in said for _, value in place]) - np.exp(wanted)
        assert abs(probability).max() < 0.0002
    assert published.manifest.counts["teacher_entries"] == 4 * sum(len(ids) - 1 for ids in IDS)
    assert verdicts(workspace, published)["teacher"].numbers["own"] == sum(len(ids) - 1 for ids in IDS)


BINS = [{"scale_dtype": "float16", "element_bits": 5, "num_elements": 3}, {"scale_dtype": "bfloat16", "element_bits": 1, "num_elements": 2}]
COMPRESSIONS: Mapping[str, dict[str, Any]] = {
    "as its authors capture": {"k": 16, "exact_k": 4, "exact_dtype": "bfloat16", "polynomial_terms": [0, 1, 2, "sqrt"]},
    "their small one": {"k": 16, "exact_k": 1, "exact_dtype": "bfloat16", "polynomial_terms": [0]},
    "differences": {"k": 16, "exact_k": 2, "exact_dtype": "float32", "polynomial_terms": [0, 1, 2], "delta_encoding": True},
    "residuals": {
        "k": 12,
        "exact_k": 4,
        "exact_dtype": "float16",
        "polynomial_terms": [0, "exp"],
        "residual_bins": BINS,
        "normalize_t": True,
    },
    "residuals alone": {
        "k": 5,
        "exact_k": 0,
        "polynomial_terms": None,
        "residual_bins": BINS,
        "delta_encoding": True,
        "term_dtype": "float64",
    },
}


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_compressed_rows_are_decoded(tmp_path: Path, name: str) -> None:
    """Against bytes written bit by bit, and by the proof, which reads them number by number."""
    compression = {**PLAIN, **COMPRESSIONS[name]}
    made = [compressed(number, compression, taught(ids, entries=compression["k"], seed=number)) for number, ids in enumerate(IDS)]
    _, published = built(tmp_path, [row for row, _ in made], {**COMPRESSED, "compression": compression})
    for found, (_, said) in zip(stored(published), made, strict=True):
        for place, wanted in zip(found, said, strict=True):
            assert [token for token, _ in place] == [token for token, _ in wanted]
            assert np.allclose([value for _, value in place], [value for _, value in wanted], rtol=2**-11 + 1e-9, atol=2**-25)


def test_rows_of_open_instruct_have_empty_texts(tmp_path: Path) -> None:
    rows = [FORMS["compressed"][0](number) | {"messages": "[]", "text": text} for number, text in enumerate(("", TEXTS[1]))]
    source = domain(rows_file(tmp_path, rows), "distilled", tokenized_by=TOKENIZER, options=FORMS["compressed"][1], ignore=["messages"])
    family = {"tokenizer": TOKENIZER, "template": "chatml", "domains": {"taught": source}, "output": {"storage_format": "bin"}}
    workspace = workspace_in(tmp_path, {"sft": family})
    published = build(workspace, "sft_tokens", "taught")
    assert (published.manifest.counts["kept"], failing(workspace, published)) == (2, [])


OTHER_BYTES: list[tuple[str, Any, str]] = [
    ("compressed_logprobs", [[0] * 9] * (len(IDS[0]) - 1), "other_compression"),
    ("compressed_logprobs", [[256] * 32] * (len(IDS[0]) - 1), "other_compression"),
    ("compressed_logprobs", [[0.5] * 32] * (len(IDS[0]) - 1), "other_compression"),
    ("compressed_logprobs", [[1], [2, 3]], "other_compression"),
    ("compressed_logprobs", [[0] * 6 + [248, 127] + [0] * 24] * (len(IDS[0]) - 1), "positive_logprob"),  # no number
    ("bytepacked_indices", [[0] * 6] * (len(IDS[0]) - 1), "teacher_names_token_twice"),
    ("bytepacked_indices", [[0] * 5] * (len(IDS[0]) - 1), "other_compression"),
    ("bytepacked_indices", [[0] * 6] * 2, "length_mismatch"),
    ("attention_mask", [1, *[2] * (len(IDS[0]) - 1)], "packed_row"),
    ("packed_indices", [[1, 2]] * (len(IDS[0]) - 1), "other_compression"),
    ("packed_indices", [[0]] * (len(IDS[0]) - 1), "teacher_names_token_twice"),
    ("packed_indices", [[0.5]] * (len(IDS[0]) - 1), "other_compression"),
    ("exact_values", [[9.5, 8.25, 1.0]] * (len(IDS[0]) - 1), "positive_logprob"),  # logits less their mean
    ("exact_values", [[-1.0] * 3] * 2, "length_mismatch"),
    ("coeffs", [[0.0]] * (len(IDS[0]) - 1), "other_compression"),
    ("coeffs", None, "missing_field"),
]


@pytest.mark.parametrize("form", ["older", "compressed"])
def test_bytes_of_another_compression_are_refused(tmp_path: Path, form: str) -> None:
    make_row, options = FORMS[form]
    bad = [each for each in OTHER_BYTES if (each[0] in ("packed_indices", "exact_values", "coeffs")) == (form == "older")]
    _, published = built(tmp_path, [*(make_row(0) | {field: value} for field, value, _ in bad), make_row(1)], options)
    assert [each.reason for each in refusals(published)] == [reason for *_, reason in bad]


def test_a_chat_with_one_list_for_each_trained_token(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "How many are left?"}, {"role": "assistant", "content": "Nine are left."}]
    answer = BACKEND.encode("Nine are left.<|im_end|>", add_special_tokens=False).ids
    said = taught([0, *answer])[1:]
    ids, values = columns(said)
    row = {"messages": messages, "target_token_ids": ids, "logprobs": values}
    # axolotl's render ends with a line break that no model wrote; it counts from the end, and would be one token late
    late = {**row, "target_token_ids": [*ids[1:], ids[0]]}
    fewer = {**row, "target_token_ids": ids[1:], "logprobs": values[1:]}
    _, published = built(tmp_path, [row, fewer, late, {**row, "id": 2}], {"logprobs_key": "logprobs"})
    assert [each.reason for each in refusals(published)] == ["length_mismatch", "teacher_shifted"]
    [found, again] = stored(published)
    mask = open_stream(published.directory, "train").record(0, "loss_mask")
    assert found == again and [place for place in found if place] == rounded(said)
    assert [bool(place) for place in found] == mask.astype(bool).tolist()


def padded() -> dict[str, Any]:
    fill = {"labels": -100, "target_logprobs": [-math.inf] * 4, "input_ids": 0, "attention_mask": 0}
    row = {**axolotl(0), "attention_mask": [1] * len(IDS[0])}
    return {key: [*[fill.get(key, [0] * 4)] * 2, *value, fill.get(key, [0] * 4)] for key, value in row.items()}


TURNED = dict(zip(("token_ids", "top_values"), columns([place[::-1] for place in SAID[0][1:]]), strict=True))
LIKELIEST = [[place[0], place[2]] if place else [] for place in rounded(SAID[0])]


@pytest.mark.parametrize(
    ("row", "options", "wanted"),
    [
        (padded(), {}, rounded(SAID[0])),
        ({**axolotl(0), "target_mask": [[0] * 4, *([1, 0, 1, 1] for _ in IDS[0][1:])]}, {"top_k": 2}, LIKELIEST),
        ({**distillkit(0), **TURNED}, FORMS["distillkit"][1], rounded(SAID[0])),
    ],
    ids=["padding takes its entries with it", "the likeliest are kept, masked ones not", "entries are sorted"],
)
def test_entries_of_a_row(tmp_path: Path, row: dict[str, Any], options: dict[str, Any], wanted: Said) -> None:
    _, published = built(tmp_path, [row], options)
    assert stored(published) == [wanted]


def changed(number: int, place: int, entry: tuple[int, float]) -> dict[str, Any]:
    """A row whose second entry at a place is another one."""
    said = [list(entries) for entries in SAID[number][1:]]
    said[place][1] = entry
    return {**distillkit(number), **dict(zip(("token_ids", "top_values"), columns(said), strict=True))}


def short(number: int, key: str) -> dict[str, Any]:
    row = distillkit(number)
    return {**row, key: [*row[key][:-1], row[key][-1][:-1]]}


SHIFTED = {**distillkit(0), "token_ids": [*columns(SAID[0])[0][2:], [], []], "top_values": [*columns(SAID[0])[1][2:], [], []]}
LATE = {**distillkit(0), "token_ids": columns(SAID[0])[0], "top_values": columns(SAID[0])[1]}


FOREIGN: list[tuple[dict[str, Any], str]] = [
    (short(0, "token_ids"), "schema/length_mismatch"),
    (short(0, "top_values"), "schema/length_mismatch"),
    ({**distillkit(0), "input_ids": IDS[0][:-2]}, "schema/length_mismatch"),
    ({**distillkit(0), "token_ids": distillkit(0)["token_ids"][1:]}, "schema/length_mismatch"),
    (changed(0, 3, (5, 0.25)), "schema/positive_logprob"),
    (changed(0, 3, (SAID[0][4][0][0], -3.0)), "schema/teacher_names_token_twice"),
    (changed(0, 3, (5, -0.001)), "schema/probabilities_above_one"),
    (changed(0, 3, (4096, -9.0)), "teacher/id_outside_vocabulary"),
    (changed(0, 3, (-1, -9.0)), "teacher/id_outside_vocabulary"),
    ({**distillkit(0), "token_ids": [[1, 2, 3, 4] for _ in IDS[0][1:]]}, "teacher/teacher_of_other_tokens"),
    ({**distillkit(0), "token_ids": [[] for _ in IDS[0]], "top_values": [[] for _ in IDS[0]]}, "schema/no_teacher"),
    ({**distillkit(0), "top_values": [["a"] * 4 for _ in IDS[0][1:]]}, "schema/wrong_type"),
    ({**distillkit(0), "text": TEXTS[1]}, "tokenize/ids_differ_from_text"),
    ({"token_ids": [[1]], "top_values": [[-1.0]]}, "schema/missing_field"),
    ({"input_ids": IDS[0], "packed_indices": [], "exact_values": [], "coeffs": []}, "schema/missing_field"),
]


@pytest.mark.parametrize(("bad", "moved"), [(FOREIGN, False), ([(row, "teacher/teacher_shifted") for row in (SHIFTED, LATE)], True)])
def test_what_does_not_belong_to_its_tokens_is_refused(tmp_path: Path, bad: list[tuple[dict[str, Any], str]], moved: bool) -> None:
    options = {**FORMS["distillkit"][1], "teacher_shifted": moved}
    _, published = built(tmp_path, [*(row for row, _ in bad), distillkit(1), distillkit(2)], options)
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == [reason for _, reason in bad]


def test_entries_of_what_comes_behind_the_last_token_are_of_no_token(tmp_path: Path) -> None:
    behind = {"input_ids": IDS[0], "token_ids": [*([] for _ in IDS[0][1:]), [5]], "top_values": [*([] for _ in IDS[0][1:]), [-0.5]]}
    whole = {**distillkit(1), **dict(zip(("token_ids", "top_values"), columns([*SAID[1][1:], []]), strict=True))}
    _, published = built(tmp_path, [behind, whole], {**FORMS["distillkit"][1], "teacher_shifted": True})
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == ["teacher/no_teacher"]
    assert stored(published) == [rounded(SAID[1])]


def test_a_domain_of_which_every_row_is_shifted_stops(tmp_path: Path) -> None:
    with pytest.raises(PrepAssetsError, match="teacher_shifted"):
        built(tmp_path, [LATE], {**FORMS["distillkit"][1], "teacher_shifted": True})


def test_names_of_tokens_without_ids_are_refused(tmp_path: Path) -> None:
    named = {"input_ids": IDS[0], "logprobs": [[{"token": " apples", "logprob": -0.5}] for _ in IDS[0]]}
    _, published = built(tmp_path, [named, legacy(1)], FORMS["legacy"][1])
    assert [each.reason for each in refusals(published)] == ["teacher_without_ids"]


def test_rows_are_not_cut(tmp_path: Path) -> None:
    options = {"preprocessing": {"max_seq_len": len(IDS[1])}, "truncation": "end"}
    _, published = built(tmp_path, [distillkit(0), distillkit(1)], FORMS["distillkit"][1], **options)
    assert [(each.stage, each.reason) for each in refusals(published)] == [("teacher", "too_long")]
    assert stored(published) == [rounded(SAID[1])]


def test_held_out_rows_have_their_own(tmp_path: Path) -> None:
    rows = [distillkit(number % 3) | {"id": number} for number in range(30)]
    _, published = built(tmp_path, rows, FORMS["distillkit"][1], test_fraction=0.3)
    sides = {stream: stored(published, stream) for stream in ("train", "dev")}
    assert 0 < len(sides["dev"]) < 30 and len(sides["dev"]) + len(sides["train"]) == 30
    for stream, records in sides.items():
        rows_of = open_stream(published.directory, stream).origins.row.tolist()
        assert records == [rounded(SAID[row % 3]) for row in rows_of]


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ({"expand": "turns"}, "distilled has entries for the whole conversation"),
        ({"domains": {"taught": {"files": ["x.jsonl"], "schema": "distilled"}}}, "tokenized_by: needed"),
        (
            {"domains": {"taught": {"files": ["x.jsonl"], "schema": "distilled", "tokenized_by": TOKENIZER, "redact": ["email"]}}},
            "cannot be replaced",
        ),
        (
            {"domains": {"taught": {"files": ["x.jsonl"], "schema": "distilled", "tokenized_by": TOKENIZER, "options": {"top_k": 0}}}},
            "top_k is 0",
        ),
    ],
)
def test_configurations_that_mean_nothing(tmp_path: Path, family: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(tmp_path, [distillkit(0)], FORMS["distillkit"][1], **family)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": {**ALL_EXACT, "k": 3}}, "exact_k 4 and 0 residuals are more than k, which is 3"),
        ({"compression": {**ALL_EXACT, "polynomial_degree": 8}}, "unknown field `polynomial_degree`.*compression_config.yaml"),
        ({"compression": {**ALL_EXACT, "term_dtype": "bfloat16"}}, "term_dtype"),
        ({"compression": {"k": 3}}, "missing required field `d`"),
        ({"compression": {**OLDER, "k": 2}}, "exact_k 3 and 0 residuals are more than k, which is 2"),
        ({"compression": {**OLDER, "exact_dtype": "float16"}}, "unknown field `exact_dtype`"),
        ({"compression": ALL_EXACT, "teacher_ids_key": None}, "compression goes with teacher_ids_key"),
        ({"compression": ALL_EXACT, "log_sum_key": "sums"}, "without log_sum_key"),
    ],
)
def test_compressions_that_mean_nothing(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(tmp_path, [FORMS["compressed"][0](0)], {**COMPRESSED, **options})


@pytest.mark.parametrize("name", ["count", "end", "id", "logprob"])
def test_what_was_changed_on_disk_is_found(tmp_path: Path, name: str) -> None:
    workspace, published = built(tmp_path, [distillkit(number) for number in range(3)], FORMS["distillkit"][1])
    path = published.directory / "train.teacher" / f"{name}.npy"
    values = np.load(path)
    np.save(path, values[::-1].copy() if name != "end" else values - [1, 1, 0])
    assert "teacher" in failing(workspace, resealed(published))


def test_every_corruption_is_caught(tmp_path: Path) -> None:
    workspace, published = built(tmp_path, [distillkit(number) for number in range(3)], FORMS["distillkit"][1])
    trials = [trial for trial in selftest(workspace, published) if trial.check == "teacher" and trial.mutation]
    assert {trial.mutation for trial in trials} == {mutation.name for mutation in MUTATIONS}
    assert [trial for trial in trials if not trial.caught or trial.tried != trial.caught] == []


EXPORT = {"exports": {"kd": {"from": "sft_tokens", "to": "hf_arrow", "options": {"layout": "axolotl"}}}}


def exported(folder: Path, rows: list[dict[str, Any]], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    workspace, _ = built(folder, rows, options, **EXPORT)
    published = make(workspace, assets_of(workspace)["sft_export_kd"], "taught")
    (file,) = published.directory.rglob("*.arrow")
    read: list[dict[str, Any]] = pa.ipc.open_stream(file.read_bytes()).read_all().to_pylist()
    return read


def test_the_export_has_each_entry_where_a_model_puts_it_out(tmp_path: Path) -> None:
    for row, ids, said in zip(exported(tmp_path, [distillkit(n) for n in range(3)], FORMS["distillkit"][1]), IDS, SAID, strict=True):
        assert (row["input_ids"], row["labels"]) == (ids, [-100, *ids[1:]])
        assert [row["target_token_ids"], row["target_logprobs"]] == list(columns([*rounded(said)[1:], []]))
        assert row["target_mask"] == [*[[1] * 4] * (len(ids) - 1), []]


def test_other_exports_refuse(tmp_path: Path) -> None:
    targets = {"arrow": "hf_arrow", "parquet": "hf_parquet", "bins": "astrai"}
    exports = {name: {"from": "sft_tokens", "to": to} for name, to in targets.items()}
    workspace, _ = built(tmp_path, [distillkit(0)], FORMS["distillkit"][1], exports=exports)
    for name, says in {
        "arrow": "Export with layout 'axolotl'",
        "parquet": "Formats with one: hf_arrow",
        "bins": "Formats with one: hf_arrow",
    }.items():
        with pytest.raises(PrepAssetsError, match=says):
            make(workspace, assets_of(workspace)[f"sft_export_{name}"], "taught")


def test_a_packed_table_says_that_it_has_none(tmp_path: Path) -> None:
    workspace, _ = built(tmp_path, [distillkit(0), distillkit(2)], FORMS["distillkit"][1], packing={"row_len": 64})
    counts = build(workspace, "sft_packed").manifest.counts
    assert counts["teacher_entries_left_out"] == 4 * (len(IDS[0]) + len(IDS[2]) - 2)


def distillation_loss(logits: Any, batch: Mapping[str, Any]) -> Any:
    """Forward KL of the named tokens, in plain torch: what is put out at a place against the entries of the same place."""
    import torch

    named = torch.log_softmax(logits, -1).gather(-1, batch["target_token_ids"])
    return (batch["target_logprobs"].exp() * (batch["target_logprobs"] - named))[batch["target_mask"].bool()].sum()


def tensors(row: dict[str, Any]) -> dict[str, Any]:
    import torch

    width = max(map(len, row["target_mask"]))
    fill = {"target_token_ids": 0, "target_logprobs": -1e9, "target_mask": 0}
    padded = {key: [[*place, *[value] * (width - len(place))] for place in row[key]] for key, value in fill.items()}
    return {key: torch.tensor([value]) for key, value in {**row, **padded}.items()}


def test_ten_steps_of_distillation(tmp_path: Path) -> None:
    """A student whose logits are the teacher's has no loss, one place beside it has; and a small model comes nearer in ten steps."""
    import torch
    import transformers

    ids = IDS[0][:9]
    teacher = torch.log_softmax(torch.randn(len(ids), 4096, generator=torch.Generator().manual_seed(0)) * 3, -1)
    teacher[range(len(ids) - 1), ids[1:]] = -1.0
    teacher = torch.log_softmax(teacher, -1)
    top = teacher.topk(64)
    said = {"token_ids": top.indices[:-1].tolist(), "top_values": top.values[:-1].tolist()}
    [row] = exported(tmp_path, [{"input_ids": ids, **said}], FORMS["distillkit"][1])
    batch = tensors(row)
    assert abs(distillation_loss(teacher[None], batch)) < 0.01
    assert distillation_loss(teacher.roll(1, 0)[None], batch) > 1 and distillation_loss(teacher.roll(-1, 0)[None], batch) > 1
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 4096}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), list[float]()
    for _ in range(10):
        loss = distillation_loss(model(input_ids=batch["input_ids"]).logits, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


# What trainers make of it, from their own code. Neither is on a registry in a form that installs beside the pinned torch, so these take checkouts.


def checkout(monkeypatch: pytest.MonkeyPatch, variable: str, below: str = "") -> Path:
    if variable not in os.environ:
        pytest.skip(f"{variable} names no checkout")
    folder = Path(os.environ[variable]) / below
    monkeypatch.syspath_prepend(folder)
    return folder


def test_axolotls_collator_and_loss_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import transformers

    source = checkout(monkeypatch, "PREP_ASSETS_AXOLOTL", "src")
    # packages without their __init__, which import what neither the collator nor the loss needs
    for name in (
        "axolotl",
        "axolotl.integrations",
        "axolotl.integrations.kd",
        "axolotl.integrations.kd.kernels",
        "axolotl.utils",
        "axolotl.utils.collators",
    ):
        package = ModuleType(name)
        package.__path__ = [str(source / name.replace(".", "/"))]
        monkeypatch.setitem(sys.modules, name, package)
    # the loss has forward and backward of its own; of liger_kernel it takes the name of their base
    base = ModuleType("liger_kernel.chunked_loss.fused_linear_distillation")
    base.__dict__["LigerFusedLinearDistillationBase"] = torch.autograd.Function
    for name in ("liger_kernel", "liger_kernel.chunked_loss"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, base.__name__, base)
    collator = pytest.importorskip("axolotl.integrations.kd.collator")
    kernel = pytest.importorskip("axolotl.integrations.kd.kernels.liger")
    rows = exported(tmp_path, [distillkit(number) for number in range(3)], FORMS["distillkit"][1])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=f"{TOKENIZER}/tokenizer.json", pad_token="<|endoftext|>", padding_side="right"
    )
    batch = collator.DataCollatorForKD(tokenizer)([dict(row) for row in rows])
    length, size = batch["input_ids"].shape[1], 4096
    for number, said in enumerate(SAID):
        for at, place in enumerate(rounded(said)[1:]):
            assert batch["target_token_ids"][number, at].tolist() == [token for token, _ in place]
            assert batch["target_logprobs"][number, at].tolist() == [value for _, value in place]
        assert batch["target_mask"][number].sum() == 4 * (len(said) - 1)
    # hidden states of one number per token of the vocabulary, and a head that passes them on: the student puts out what the teacher says
    hidden = torch.full((3, length, size), -40.0)
    hidden.scatter_(2, batch["target_token_ids"], torch.where(batch["target_mask"] > 0, batch["target_logprobs"], -40.0))
    rest = 1 - batch["target_logprobs"].exp().sum(-1)
    hidden[..., 4000] = torch.where(batch["target_mask"][..., 0] > 0, rest.clamp_min(1e-9).log(), torch.tensor(0.0))
    loss = kernel.LigerFusedLinearKLTopKLogprobLoss(0.0, 1.0, 1.0, 0.0, compiled=False, compute_ce_loss=False, normalize_topk=False)
    targets = [batch[name] for name in ("target_token_ids", "target_logprobs", "target_mask", "labels")]
    own, moved = (loss(torch.eye(size), student, *targets).item() for student in (hidden, hidden.roll(1, 1)))
    assert abs(own) < 0.05 < moved


def test_distillkits_signal_and_loss_read_what_it_was_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row i is compared with what a model puts out at i, so a list less than ids are those of what comes next."""
    import torch

    checkout(monkeypatch, "PREP_ASSETS_DISTILLKIT")
    losses = pytest.importorskip("distillkit.lossfuncs.kl")
    row = distillkit(0)
    ids, values = torch.tensor([row["token_ids"]]), torch.tensor([row["top_values"]])
    hidden = torch.full((1, ids.shape[1], 4096), -40.0).scatter_(2, ids, values)
    own, moved = (losses.sparse_kl_div(student, ids, values).item() for student in (hidden, hidden.roll(1, 1)))
    assert abs(own) < 0.05 < moved


DISTILLKITS: Mapping[str, dict[str, Any]] = {
    "new captures": {"k": 128, "exact_k": 16, "exact_dtype": "bfloat16", "polynomial_terms": [0, 1, 2, 3, 4, "sqrt"]},
    "small": {"k": 50, "exact_k": 1, "exact_dtype": "bfloat16", "polynomial_terms": [0, 1, "sqrt"]},
    "Qwen3-235B": {"k": 128, "exact_k": 32, "exact_dtype": "float32", "polynomial_terms": [0, 1, 2], "delta_encoding": True},
    "bins": {
        "k": 64,
        "exact_k": 8,
        "exact_dtype": "float16",
        "polynomial_terms": [0, 1, 2, "sqrt"],
        "residual_bins": BINS,
        "normalize_t": True,
    },
    "differences in bins": {
        "k": 20,
        "exact_k": 4,
        "exact_dtype": "float32",
        "polynomial_terms": None,
        "residual_bins": BINS,
        "delta_encoding": True,
    },
}


@pytest.mark.parametrize("name", DISTILLKITS)
@pytest.mark.parametrize(
    ("variable", "module"),
    [("PREP_ASSETS_DISTILLKIT", "distillkit.compression"), ("PREP_ASSETS_OPEN_INSTRUCT", "open_instruct.distillkit.compression")],
)
def test_what_they_compress_and_decompress(monkeypatch: pytest.MonkeyPatch, variable: str, module: str, name: str) -> None:
    """Their decoders round to ``exact_dtype``; ours does not, and differs by that."""
    import torch

    checkout(monkeypatch, variable)
    theirs = pytest.importorskip(module)
    said = {**PLAIN, **DISTILLKITS[name], "d": 151936}
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(200, said["d"], generator=draw) * 2
    logits[range(200), torch.randint(said["d"], (200,), generator=draw)] += 14 * torch.rand(200, generator=draw)
    config = theirs.DistributionQuantizationConfig
    compressor = theirs.LogprobCompressor(config.from_dict(said) if hasattr(config, "from_dict") else config(**said))
    top = torch.log_softmax(logits.double(), -1).float()[None].topk(said["k"])
    row = compressor.compress_from_sparse(top.indices, top.values)
    wanted_ids, wanted = (each[0].double().numpy() for each in compressor.decompress_to_sparse(row))
    listed = {name: column[0].tolist() for name, column in row.items()}
    ids, values = compression_of(said).decoded(listed, "bytepacked_indices", "compressed_logprobs")
    assert (ids == wanted_ids).all()
    wanted -= np.log(np.maximum(1, np.exp(wanted).sum(1, keepdims=True)))
    rounding = {"bfloat16": 2**-8, "float16": 2**-10, "float32": 0}[said["exact_dtype"]]
    assert (abs(values - wanted) <= 1e-4 + rounding * abs(wanted)).all()
    assert np.median(abs(np.exp(values) - np.exp(wanted))) < 1e-6


@pytest.mark.parametrize(
    "said",
    [
        {"vocab_size": 128256, "k": 128, "exact_k": 32, "polynomial_degree": 8},
        {"vocab_size": 65536, "k": 50, "exact_k": 1, "polynomial_degree": 2, "invert_polynomial": False, "with_sqrt_term": True},
        {"vocab_size": 30000, "k": 20, "exact_k": 0, "polynomial_degree": 4, "with_sqrt_term": True, "term_dtype": "bfloat16"},
    ],
)
def test_distillkits_older_form(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> None:
    """Of 16 bits, four ids fill a word with its sign. Its decoder adds up terms in float32."""
    import torch

    checkout(monkeypatch, "PREP_ASSETS_DISTILLKIT")
    theirs = pytest.importorskip("distillkit.compression")
    compressor = theirs.LogprobCompressor(legacy_config=theirs.LegacyLogitCompressionConfig(**said))
    logits = torch.randn(200, said["vocab_size"], generator=torch.Generator().manual_seed(0)) * 3
    top = torch.log_softmax(logits, -1)[None].topk(said["k"])
    row = compressor.compress_from_sparse(top.indices, top.values)
    row["coeffs"] = row["coeffs"].float()  # as in the files
    wanted_ids, wanted = (each[0].double().numpy() for each in compressor.decompress_to_sparse(row))
    listed = {name: column[0].tolist() for name, column in row.items()}
    ids, values = compression_of(said).decoded(listed, "packed_indices", "exact_values")
    assert (ids == wanted_ids).all() and (ids == top.indices[0].numpy()).all()
    mass = np.exp(wanted).sum(1, keepdims=True)
    wanted -= np.log(np.where((mass > 1) & (mass <= 1.25), mass, 1))  # rows with more are rejected
    assert (abs(values - wanted) <= 5e-6 + 2e-7 * abs(np.array(listed["coeffs"])).max(1, keepdims=True)).all()
