"""What the first audit found wrong and silent, accepted and ignored, or not caught, and the test that failed on each of them then; and what README and the
pages about masks and checks claim, with the test that shows it.

A place is a file of the tests and a text in it. Whoever changes a claim looks whether its tests still show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
MISPLACED = "proofs/test_misplaced_rows.py"

SILENT: Mapping[str, tuple[str, ...]] = {
    "W1 arguments of calls become {}": ("schemas/test_view.py::Audit W1:",),
    "W2 truncated rows prove nothing": ("masks/test_truncation.py::Audit W2:",),
    "W3 commands of moss merge": ("schemas/test_examples.py::Audit W3:",),
    "W4 parts out of order": ("schemas/test_view.py::Audit W4:", "text/test_matrix.py::Audit W4"),
    "W5 the stop of Cohere 2": ("text/test_matrix.py::Audit W4, W5",),
    "W6 several stops": ("proofs/test_trained_texts.py::Audit W6:",),
    "W7 tools that vanish": ("text/test_matrix.py::W6, W7",),
    "W8 structural tokens typed in content": ("text/test_written.py::Audit W8:",),
    "W9 generation tags prove nothing": (
        "proofs/test_trained_texts.py::Audit W9:",
        "graph/test_chats.py::def test_tags_are_compared",
    ),
    "W10 renders that do not grow": ("text/test_matrix.py::W7, W10",),
    "W11 system and history columns": ("schemas/test_view.py::Audit W11", "graph/test_schemas.py::Audit W11"),
    "W12 what weighs nothing is trained": (
        "graph/test_documents.py::def test_what_weighs_0_is_not_trained",
        "graph/test_attention.py::def test_what_is_not_attended_is_never_trained",
        "graph/test_pairs.py::def test_answers_keep_their_weights",
    ),
    "W13 ids of Mistral's calls": ("text/test_matrix.py::W10, W13",),
    "W14 the published file": ("tokenization/test_load.py::Audit W14:",),
    "W15 identity of NFC tokenizers": ("proofs/test_reference_ids.py::Audit W15:",),
    "W16 padded structs": ("data/test_jsonl.py::Audit W16:",),
    "W17 verl's verifier": ("exports/test_verl.py::def test_each_row_keeps_its_verifier",),
    "W18 bad answers": ("schemas/test_view.py::Audit W18:", "graph/test_schemas.py::Audit W18:"),
    "W19 columns without a word": ("schemas/test_view.py::and W19:", "schemas/test_refusals.py::Audit W19:"),
    "W20 reasoning twice": ("text/test_rendering.py::Audit W20:",),
    "W21 collators": (
        "training/test_collate.py::def test_rows_of_several_documents_are_not_padded",
        "training/test_collate.py::def test_padding_free_has_transformers_names",
        "training/test_datasets.py::def test_positions_that_are_all_0_are_refused",
    ),
    "W22 modules beside a hook": ("graph/test_schemas.py::def test_editing_a_module_that_a_schema_imports_changes_its_key",),
}
IGNORED: Mapping[str, tuple[str, ...]] = {
    "max_tokens_per_shard": (
        "config/test_config.py::output: {max_tokens_per_shard: 9}",
        'graph/walked_options.py::"output.max_tokens_per_shard"',
    ),
    "dtype": ('graph/walked_options.py::"output.dtype": Idle("int64")', 'graph/walked_options.py::"output.dtype"'),
    "min_chars, max_chars": ("config/test_config.py::preprocessing.min_chars: unknown key",),
    "packing.overlong": ("config/test_config.py::strategy: concat, overlong", "config/test_config.py::strategy: bfd_split, overlong"),
    "truncation_keeps_stop": ("config/test_config.py::truncation: turns\\ntruncation_keeps_stop",),
    "several chat templates": ("tokenization/test_load.py::def test_of_several_chat_templates_one_is_named",),
}
LIVED: Mapping[str, tuple[str, ...]] = {
    "other tokens for the same text": (
        "proofs/spoiled_records.py::same text in other tokens",
        "proofs/test_reference_ids.py::Audit, section 3:",
    ),
    "duplicates that are none": (f"{MISPLACED}::refused as a duplicate that is none",),
    "duplicates kept": (f"{MISPLACED}::duplicate kept",),
    "test rows in train": (f"{MISPLACED}::test rows in train",),
    "train rows in dev": (f"{MISPLACED}::train rows in the held-out part",),
    "position ids that run on": ("proofs/spoiled_packed.py::position ids run on",),
    "position ids of zero": ("proofs/spoiled_packed.py::position ids all zero",),
    "a false border": ("proofs/spoiled_packed.py::a border inside a document",),
    "a document replaced by padding": ("proofs/spoiled_packed.py::a document replaced by padding",),
    "a domain missing": ("proofs/test_orders.py::def test_a_domain_that_is_missing_is_seen",),
    "one pair swapped": ("proofs/test_mutations.py::one pair swapped",),
    "all pairs swapped": ("proofs/test_mutations.py::all pairs swapped",),
    "a foreign prompt": ("proofs/spoiled_records.py::a foreign prompt",),
    "truncated answers": ("proofs/test_mutations.py::a better answer truncated",),
    "pairs dropped": (f'{MISPLACED}::"vanished"',),
    "a prompt altered": ("proofs/test_mutations.py::a prompt altered",),
    "prompts shifted": ("proofs/test_mutations.py::prompts shifted against golds",),
    "random tokens of prompts": ("proofs/test_mutations.py::random tokens",),
    "a gold as text": ("proofs/spoiled_records.py::gold as text",),
}
CLAIMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "docs/masks.md": {
        "Marks are Unicode noncharacters": ("text/test_rendering.py::noncharacter",),
        "What a template writes after its generation prompt": (
            "text/test_matrix.py::def test_published_templates",
            "text/test_misled_borders.py::MISLED",
        ),
        "A template that leaves out tools, documents or names": (
            "text/test_matrix.py::def test_parts_out_of_order_are_refused_by_every_template",
        ),
        "A token that lies half inside": ("masks/test_policies.py::mask_border_inside_token",),
        "A tokenizer that cannot represent a character": (
            "tokenization/test_engines.py::lossy_tokenizer",
            "tokenization/test_encode.py::def test_a_lossy_example",
        ),
        "weights in the data": ("masks/test_policies.py::def test_weights_of_regions_win_over_roles",),
        "is refused before any data is read": ("masks/test_certificates.py::def test_it_is_refused_before_a_record_is_read",),
        "Tokens of [images](images.md) are never trained": ("masks/test_images.py::def test_what_is_trained_around_an_image",),
        "as many of the newest rounds as fit": (
            "masks/test_truncation.py::def test_turns",
            "masks/test_truncation.py::def test_what_is_left",
        ),
        "counts them again": ("graph/test_chats.py::def test_what_is_cut_away_is_counted_and_proven",),
        "can be said by role": ("masks/test_truncation.py::def test_prompt_by_role",),
        "This is Cerebras'": ("masks/test_truncation.py::def test_prompts_are_shortened_as_cerebras_means_it",),
        "An example in which nothing trained is left": ("masks/test_truncation.py::def test_nothing_to_train",),
        "typed by a user, is plain text": ("masks/test_control_tokens.py::def test_it_is_text",),
        "In roles, names and tool schemas": ("masks/test_control_tokens.py::def test_outside_of_content_it_is_refused_in_every_mode",),
        "Words and white space that were\nadded": ("text/test_written.py::Audit W8:",),
        "whose flags": ("text/test_written.py::def test_flags_that_change_the_ids_around_a_token",),
        "compared with the text that must be trained": ("proofs/test_mask.py::def test_wrong_masks",),
        "What the derivations share": ("docs/test_imports.py::def test_proofs_share_no_code_with_what_they_prove",),
        "that is a third derivation": (
            "graph/test_chats.py::def test_tags_are_compared",
            "graph/test_chats.py::def test_what_tags_contradict",
        ),
        "every record is tokenized again by the reference": (
            "proofs/test_ids_again.py::def test_one_other_id_of_any_document_is_found",
            "proofs/spoiled_records.py::same text in other tokens",
        ),
        "cannot be taken apart": ("proofs/test_trained_texts.py::def test_a_template_that_treats_a_text_otherwise_proves_nothing",),
        "is proven by the part that is left": ("masks/test_truncation.py::Audit W2:",),
        "`return_assistant_tokens_mask`": ("masks/test_differential.py::def test_ids_and_masks_are_those_of_transformers",),
        "TRL also trains": ("masks/test_beside_trl.py::def test_the_page_says_how_our_labels_differ",),
        "drops stop tokens and more": (
            "proofs/test_selftest.py::def test_every_corruption_is_caught",
            "proofs/test_mutations.py::def test_conversations",
        ),
    },
    "docs/checks.md": {
        "decode to exactly the texts that must be trained": ("proofs/test_mask.py::def test_wrong_masks",),
        "the reference library's ids for a fresh render of its source": (
            "tokenization/test_load.py::Audit W14:",
            "proofs/test_ids_again.py::def test_one_other_id_of_any_document_is_found",
        ),
        "every row of the sources is stored once, on its side of the split": (f"{MISPLACED}::def test_a_misplaced_row_is_seen",),
        "pieces fill each row from its start without gap or overlap": ("proofs/test_rows.py::def test_a_table_that_is_not_sound",),
        "each is under `ignore` or has a": (
            "graph/test_schemas.py::Audit W11",
            "proofs/test_accounting.py::def test_fields_are_counted_again",
        ),
        "every gold equals a second reading": ("proofs/test_pairs.py::def test_golds_that_no_other_code_finds_are_counted_apart",),
        "no training prompt is held out": ("proofs/test_pairs.py::def test_a_prompt_on_both_sides",),
        "every file has the size and sha256 of the manifest": (
            "proofs/test_integrity_and_quarantine.py::def test_harm_to_any_file_is_seen_and_named",
        ),
    },
    "README.md": {
        "rebuilt byte for byte": ("graph/test_builds.py::def test_whole_trees_are_equal_to_the_byte",),
        "traced back to their source records": ("explain/test_trace.py::def test_the_source_alone_gives_every_token",),
        "prep-assets stops, or puts the record into quarantine": (
            "graph/test_refusals.py::def test_a_broken_line_is_quarantined_and_the_others_are_kept",
            "proofs/test_integrity_and_quarantine.py::def test_a_quarantine_that_does_not_fit_the_counts",
        ),
        "a second run finds nothing to do": ("graph/test_builds.py::def test_building_again_rewrites_nothing",),
        "builds what is missing or stale upstream first": (
            "defs/test_command_line.py::def test_what_is_upstream_was_built_and_recorded_by_the_same_run",
        ),
        "where a trainer's labels differ": ("cli/test_said.py::labels are equal on 0 of 20 rows",),
        "with card and Croissant": ("neighbours/test_read.py::def test_mlcroissant_finds_no_fault_and_loads_ten_records",),
        "it becomes a partition": ('defs/test_building.py::"one partition": (".", {"partition": "alpaca"}',),
        "says which schema fits a file": ("cli/test_schemas.py::def test_a_schema_that_fits_some_rows_says_why_not_all",),
        "where they make a draft": ("engine/test_build.py::def test_a_draft_that_is_published",),
        "a store that fails one is not published": ("engine/test_build.py::def test_a_store_that_fails_a_check_is_not_published",),
        "shows that each is caught": ("proofs/test_selftest.py::def test_every_corruption_is_caught",),
        "leaves nothing that can be read": ("stores/test_crashes.py::def test_some_calls_are_killed_or_fail",),
        "whatever the worker, the folder, the hash seed": (
            "graph/test_workers.py::def test_a_worker_that_is_killed_in_the_middle_changes_no_byte",
            "make_samples/test_make_samples.py::def test_two_processes_with_other_hash_seeds",
        ),
        "which row of which file": ("explain/test_trace.py::def test_a_token_is_found_in_the_raw_row",),
        "with nothing written": ("explain/test_diff.py::def test_what_is_predicted_is_what_a_rebuild_changes",),
        "and proven to be gone": ("explain/test_where.py::def test_every_family_forgets",),
    },
}


@pytest.mark.parametrize(("page", "claim"), [(page, claim) for page, claims in CLAIMS.items() for claim in claims])
def test_what_is_claimed_has_a_test(page: str, claim: str) -> None:
    assert claim in (TESTS.parent / page).read_text("utf-8")
    _there(CLAIMS[page][claim])


def _there(places: tuple[str, ...]) -> None:
    for place in places:
        file, _, text = place.partition("::")
        assert text in (TESTS / file).read_text("utf-8"), place


@pytest.mark.parametrize("found", [*SILENT, *IGNORED, *LIVED])
def test_what_the_audit_found_has_a_test(found: str) -> None:
    _there({**SILENT, **IGNORED, **LIVED}[found])


def test_none_is_left_out() -> None:
    assert [name.split()[0] for name in SILENT] == [f"W{number}" for number in range(1, 23)]
