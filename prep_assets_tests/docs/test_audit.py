"""What the first audit found wrong and silent, accepted and ignored, or not caught, and the test that failed on each of them then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SPOILED = "proofs/test_spoiled_stores.py"
MISPLACED = "proofs/test_selection_of_stores.py"

SILENT: Mapping[str, tuple[str, ...]] = {
    "W1 arguments of calls become {}": ("schemas/test_columns.py::Audit W1:",),
    "W2 truncated rows prove nothing": ("masks/test_truncation_proofs.py::Audit W2:",),
    "W3 commands of moss merge": ("schemas/test_chinese_corpora.py::Audit W3:",),
    "W4 parts out of order": ("schemas/test_columns.py::Audit W4:", "templates/test_matrix.py::Audit W4"),
    "W5 the stop of Cohere 2": ("templates/test_matrix.py::Audit W4, W5",),
    "W6 several stops": ("proofs/test_trained_texts.py::Audit W6:",),
    "W7 tools that vanish": ("templates/test_matrix.py::W6, W7",),
    "W8 structural tokens typed in content": ("templates/test_written.py::Audit W8:",),
    "W9 generation tags prove nothing": (
        "proofs/test_trained_texts.py::Audit W9:",
        "assets/test_training_template.py::def test_tags_are_compared",
    ),
    "W10 renders that do not grow": ("templates/test_matrix.py::W7, W10",),
    "W11 system and history columns": ("schemas/test_columns.py::Audit W11", "assets/test_fields.py::Audit W11"),
    "W12 what weighs nothing is trained": (
        "assets/test_masked_documents.py::def test_what_weighs_0_is_not_trained",
        "assets/test_masked_documents.py::def test_a_region_that_is_not_attended_to_is_refused",
        "assets/test_weighted_pairs.py::def test_answers_keep_their_weights",
    ),
    "W13 ids of Mistral's calls": ("templates/test_matrix.py::W10, W13",),
    "W14 the published file": ("tokenization/test_load.py::Audit W14:",),
    "W15 identity of NFC tokenizers": ("proofs/test_reference_ids.py::Audit W15:",),
    "W16 padded structs": ("records/test_struct_padding.py::Audit W16:",),
    "W17 verl's verifier": ("exports/test_verl.py::def test_each_row_keeps_its_verifier",),
    "W18 bad answers": ("schemas/test_columns.py::Audit W18:", "assets/test_fields.py::Audit W18:"),
    "W19 columns without a word": ("schemas/test_columns.py::and W19:", "schemas/test_common_words_and_llama3.py::Audit W19:"),
    "W20 reasoning twice": ("templates/test_reasoning.py::Audit W20:",),
    "W21 collators": (
        "training/test_collate.py::def test_rows_of_several_documents_are_not_padded",
        "training/test_collate.py::def test_padding_free_has_transformers_names",
        "training/test_datasets.py::def test_positions_that_are_all_0_are_refused",
    ),
    "W22 modules beside a hook": ("assets/test_own_schema_code.py::def test_editing_a_module_that_a_schema_imports_changes_its_key",),
}
IGNORED: Mapping[str, tuple[str, ...]] = {
    "max_tokens_per_shard": (
        "config/test_meaning.py::output: {max_tokens_per_shard: 9}",
        'assets/test_every_option.py::"output.max_tokens_per_shard"',
    ),
    "dtype": ("config/test_meaning.py::output: {dtype: int64}", 'assets/test_every_option.py::"output.dtype"'),
    "min_chars, max_chars": ("config/test_meaning.py::preprocessing.min_chars: unknown key",),
    "packing.overlong": ("config/test_meaning.py::strategy: concat, overlong", "config/test_meaning.py::strategy: bfd_split, overlong"),
    "truncation_keeps_stop": ("config/test_meaning.py::truncation: turns\\ntruncation_keeps_stop",),
    "several chat templates": ("tokenization/test_load.py::def test_of_several_chat_templates_one_is_named",),
}
LIVED: Mapping[str, tuple[str, ...]] = {
    "other tokens for the same text": (f"{SPOILED}::same text in other tokens", "proofs/test_reference_ids.py::Audit, section 3:"),
    "duplicates that are none": (f"{MISPLACED}::refused as a duplicate that is none",),
    "duplicates kept": (f"{MISPLACED}::duplicate kept",),
    "test rows in train": (f"{MISPLACED}::test rows in train",),
    "train rows in dev": (f"{MISPLACED}::train rows in the held-out part",),
    "position ids that run on": (f"{SPOILED}::position ids run on",),
    "position ids of zero": (f"{SPOILED}::position ids all zero",),
    "a false border": (f"{SPOILED}::a border inside a document",),
    "a document replaced by padding": (f"{SPOILED}::a document replaced by padding",),
    "a domain missing": ("proofs/test_packed_mixture.py::def test_a_domain_that_is_missing_is_seen",),
    "one pair swapped": (f"{SPOILED}::one pair swapped",),
    "all pairs swapped": (f"{SPOILED}::all pairs swapped",),
    "a foreign prompt": (f"{SPOILED}::a foreign prompt",),
    "truncated answers": (f"{SPOILED}::a truncated answer",),
    "pairs dropped": (f'{MISPLACED}::"vanished"',),
    "a prompt altered": (f"{SPOILED}::a prompt altered",),
    "prompts shifted": (f"{SPOILED}::prompts shifted",),
    "random tokens of prompts": (f"{SPOILED}::random ids",),
    "a gold as text": (f"{SPOILED}::gold as text",),
}


@pytest.mark.parametrize("found", [*SILENT, *IGNORED, *LIVED])
def test_what_the_audit_found_has_a_test(found: str) -> None:
    for place in {**SILENT, **IGNORED, **LIVED}[found]:
        file, _, text = place.partition("::")
        assert text in (TESTS / file).read_text("utf-8"), place


def test_none_is_left_out() -> None:
    assert [name.split()[0] for name in SILENT] == [f"W{number}" for number in range(1, 23)]
