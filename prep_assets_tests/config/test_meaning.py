"""An option that would be ignored is refused when the configuration loads, and the message says how to go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prep_assets.config.family import Family
from prep_assets_tests.config.conftest import SMALLEST

Load = Callable[..., Family]
Fault = Callable[..., str]
TEXT = SMALLEST.replace("messages", "text")
CONTRASTS = "tokenizer: t\ndomains: {a: {files: [a.jsonl], schema: contrastive}}\n"
PAIRS = SMALLEST.replace("messages", "preference")

IDLE = [
    ("sft", "packing: {strategy: ffd, tail: drop}", "packing.tail: 'drop' means nothing here", "set strategy: concat"),
    ("sft", "packing: {strategy: concat, overlong: drop}", "packing.overlong: 'drop' means nothing here", "choose simple, ffd or bfd"),
    ("sft", "packing: {strategy: bfd_split, overlong: split}", "packing.overlong: 'split' means nothing here", "choose simple, ffd or bfd"),
    ("sft", "packing: {shuffle: false, seed: 7}", "packing.seed: 7 means nothing here", "shuffle: true"),
    ("sft", "truncation: end\npreprocessing: {max_seq_len: null}", "truncation: 'end' means nothing here", "preprocessing.max_seq_len"),
    ("sft", "truncation_keeps_stop: true", "truncation_keeps_stop: True means nothing here", "set truncation: end"),
    ("sft", "truncation: turns\ntruncation_keeps_stop: true", "truncation_keeps_stop: True means nothing here", "set truncation: end"),
    ("sft", "truncation_keeps: {user: {part: end}}", "truncation_keeps: {'user': Keep(", "set truncation: prompt"),
    ("sft", "truncation: prompt\ntruncation_keeps: {system: {least: 2}}", "truncation_keeps.system: means nothing here", "Leave it out"),
    ("sft", "tokenizer_class: a.b:C", "tokenizer_class: 'a.b:C' means nothing here: its code would run", "set tokenizer_loader: code"),
    ("sft", "tokenizer_loader: code", "tokenizer_loader: 'code' means nothing here: there is no code to run", "Set tokenizer_class"),
    *(
        (
            family,
            f"tokenizer_loader: code\ntokenizer_class: a.b:C\n{more}",
            f"{said} means nothing here: a tokenizer_class",
            "Leave one of the two out",
        )
        for family, more, said in (
            ("sft", f"tokenizer_revision: {'a' * 40}", f"tokenizer_revision: '{'a' * 40}'"),
            ("sft", "engine: reference", "engine: 'reference'"),
            ("sft", "image_token: <image>", "image_token: '<image>'"),
            ("pretrain", "preprocessing: {fim: {rate: 0.5}}", "preprocessing.fim.rate: 0.5"),
            ("pretrain", "split_sentences: english", "split_sentences: 'english'"),
        )
    ),
    (
        "preference",
        "tokenizer_loader: code\ntokenizer_class: a.b:C",
        "tokenizer_class: 'a.b:C' means nothing here: only pretrain and sft",
        "Leave it out",
    ),
    ("sft", "image_patches: 4", "image_patches: 4 means nothing here", "Set image_token"),
    ("sft", "preprocessing: {min_chars: 5}", "preprocessing.min_chars: unknown key", "it is an option of pretrain.yaml"),
    ("sft", "form: text", "form: unknown key", "it is an option of preference.yaml"),
    ("sft", "packing: {weights: {a: 1, b: 1}}", "packing.weights: names 'b', which is not a domain", "Domains: a"),
    ("sft", "reasoning: inline\nreasoning_tags: [['[[', ']]']]", "reasoning_tags: (('[[', ']]'),) means nothing here", "reasoning: auto"),
    ("sft", "expand: turns\ntrain_turns: last", "expand: 'turns' means nothing here", "train_turns: all"),
    ("sft", "expand: turns\ntrain_on_eos: all", "expand: 'turns' means nothing here", "train_on_eos: turn"),
    ("sft", "expand: turns\ntruncation: end", "expand: 'turns' means nothing here", "truncation: turns"),
    ("sft", "decontaminate: {words: 9}", "decontaminate.words: 9 means nothing here", "Set decontaminate.files"),
    ("pretrain", "preprocessing: {fim: {seed: 3}}", "preprocessing.fim.seed: 3 means nothing here", "Set fim.rate"),
    ("pretrain", "preprocessing: {fim: {middle_token: m}}", "preprocessing.fim.middle_token: 'm' means nothing here", "Set fim.rate"),
    ("pretrain", "output: {max_tokens_per_shard: 9}", "output.max_tokens_per_shard: 9 means nothing here", "storage_format: bin"),
    *(
        ("contrastive", option, f"{path} means nothing here: its stores hold lines of text", "Leave it out")
        for option, path in (
            ("output: {storage_format: bin}", "output.storage_format: 'bin'"),
            ("output: {dtype: int64}", "output.dtype: 'int64'"),
            ("pad_vocab_to: 9", "pad_vocab_to: 9"),
            ("engine: reference", "engine: 'reference'"),
        )
    ),
    ("preference", "shuffle: false\nseed: 3", "seed: 3 means nothing here", "shuffle: true"),
]


@pytest.mark.parametrize(("family", "more", "said", "remedy"), IDLE, ids=[f"{family}-{said.split(':')[0]}" for family, _, said, _ in IDLE])
def test_an_option_that_means_nothing_is_refused(fault: Fault, family: str, more: str, said: str, remedy: str) -> None:
    """`overlong` of concat, `truncation_keeps_stop` of other truncations, `min_chars` outside pretraining and others were accepted and ignored."""
    base = {"pretrain": TEXT, "preference": PAIRS, "contrastive": CONTRASTS}.get(family, SMALLEST)
    message = fault(base + more + "\n", family)
    (line,) = [line for line in message.splitlines() if line.startswith(f"  {said}")]
    assert remedy in line


@pytest.mark.parametrize(
    ("family", "domain", "said"),
    [
        ("sft", "domain_value: x", "domains.a.domain_value: 'x' means nothing here: there is no domain_key"),
        ("sft", "domains: auto", "domains.a.domains: 'auto' means nothing here: there is no field whose values could be domains"),
        ("sft", "max_domains: 9", "domains.a.max_domains: 9 means nothing here: only domains: auto makes domains"),
        ("sft", "domains: auto, domain_key: k, domain_value: x", "domains.a.domain_value: 'x' means nothing here: domains: auto makes"),
        ("sft", "image_dir: x", "domains.a.image_dir: means nothing here: records with images are refused. Set image_token"),
        ("preference", "image_dir: x", "domains.a.image_dir: means nothing here: records with images are refused. Leave it out"),
        ("sft", "tokenized_by: x", "domains.a.tokenized_by: 'x' means nothing here: no row brings token ids"),
        ("preference", "weigh: a.b:c", "domains.a.weigh: 'a.b:c' means nothing here: the turns of samples are weighed"),
        ("pretrain", "speaker_names: write", "domains.a.speaker_names: 'write' means nothing here: only messages have names. Leave it out"),
    ],
)
def test_an_option_of_a_domain_that_means_nothing_is_refused(fault: Fault, family: str, domain: str, said: str) -> None:
    assert said in fault(f"tokenizer: t\ndomains: {{a: {{files: [a.jsonl], schema: messages, {domain}}}}}\n", family)


def test_names_that_a_function_reads_are_not_left_out(fault: Fault) -> None:
    said = fault("tokenizer: t\ndomains: {a: {files: [a.jsonl], schema: 'own.code:read', speaker_names: leave_out}}\n", "sft")
    assert "speaker_names: leave_out cannot count the names that 'own.code:read' reads. Leave them out in that function" in said


def test_all_of_them_are_told_at_once(fault: Fault) -> None:
    message = fault(SMALLEST + "packing: {strategy: ffd, tail: drop}\ntruncation_keeps_stop: true\nmask: {asistant: train}\n")
    assert [line.split(":")[0].strip() for line in message.splitlines()[1:]] == ["packing.tail", "truncation_keeps_stop", "mask.asistant"]


@pytest.mark.parametrize(
    "more",
    [
        "packing: {strategy: ffd, tail: pad, overlong: drop}",
        "packing: {strategy: concat, tail: drop, overlong: raise}",
        "packing: {shuffle: false, seed: 42}",
        "truncation: end\ntruncation_keeps_stop: true",
        "truncation: prompt\ntruncation_keeps: {user: {part: end, least: 64}, tool: {}}",
        "output: {storage_format: h5, max_tokens_per_shard: 9}",
        "packing: {weights: {a: 1}}",
    ],
)
def test_defaults_may_be_spelled_out_and_what_means_something_is_taken(load: Load, more: str) -> None:
    assert load(SMALLEST + more + "\n")


# -- roles --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "meant"), [("asistant", "assistant"), ("assistent", "assistant"), ("users", "user"), ("human", "user"), ("gpt", "assistant")]
)
def test_a_role_that_no_turn_has_names_the_one_that_was_meant(fault: Fault, role: str, meant: str) -> None:
    """`mask: {asistant: train}` was accepted, and every record refused for having nothing to train."""
    assert f"mask.{role}: no turn has this role; did you mean {meant!r}?" in fault(SMALLEST + f"mask: {{{role}: train}}\n")
    kept = f"truncation: prompt\ntruncation_keeps: {{{role}: {{least: 2}}}}\n"
    assert f"truncation_keeps.{role}: no turn has this role; did you mean {meant!r}?" in fault(SMALLEST + kept)
    # nor does a function of one's own excuse a slip
    own = SMALLEST.replace("messages", "'my.module:rows'")
    assert f"did you mean {meant!r}?" in fault(own + f"mask: {{{role}: train}}\n")


def test_a_role_of_ones_own_is_one_that_a_schema_gives(load: Load, fault: Fault) -> None:
    assert "mask.critic: no turn has this role" in fault(SMALLEST + "mask: {critic: train}\n")
    named = SMALLEST.replace("schema: messages", "schema: messages, options: {roles: {c: critic}}")
    assert load(named + "mask: {critic: train}\n")
    assert load(SMALLEST.replace("messages", "'my.module:rows'") + "mask: {critic: train}\n")
