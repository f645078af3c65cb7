"""What a configuration means, what it is refused for, and where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
import yaml

from prep_assets.cli.terminal import options_of_run
from prep_assets.config.base import Model, descriptions
from prep_assets.config.family import Family
from prep_assets.config.loading import checkout, config_dir, load_family, store_dir
from prep_assets.config.models import FAMILIES, Sft
from prep_assets.errors import ConfigError
from prep_assets.extensions.neighbours.hub import licence_of
from prep_assets.extensions.tokenizers.rank_files import _rank_file_config
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import TOKENIZER, build, jsonl, minimal, workspace_in

# What the tests of configuration share.


SMALLEST = "tokenizer: tok\ndomains:\n  a: {files: [a.jsonl], schema: messages}\n"


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Family]:
    """`load(text, family="sft")`: the configuration in this YAML."""

    def read(text: str, family: str = "sft") -> Family:
        (tmp_path / f"{family}.yaml").write_text(text, "utf-8")
        return load_family(family, tmp_path)

    return read


@pytest.fixture
def fault(load: Callable[..., Family], tmp_path: Path) -> Callable[..., str]:
    """`fault(text, family="sft")`: the message with which this YAML is refused; it always names the file."""

    def refuse(text: str, family: str = "sft") -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, family)
        message = str(caught.value)
        assert str(tmp_path / f"{family}.yaml") in message
        return message

    return refuse


# Every key that a user writes means what it says.


Load = Callable[..., Family]

WRITTEN = """
tokenizer: some/directory
template: plain
mask: {system: mask, user: train, critic: train}
mask_default: train
train_on_eos: none
preprocessing: {max_seq_len: 77, deduplicate: false}
packing: {strategy: ffd, row_len: 99}
output: {storage_format: bin}
domains:
  one:
    files: [a.jsonl, more/*.jsonl]
    schema: messages
    options: {roles: {user: user, critic: critic}}
  two.b-c_d: {files: [b.json], schema: alpaca, options: {prompt_key: q}, max_items: 3}
"""


def test_the_keys_as_written(load: Load) -> None:
    family = load(WRITTEN)
    assert isinstance(family, Sft)
    assert (family.tokenizer, family.template) == ("some/directory", "plain")
    assert (family.mask, family.mask_default, family.train_on_eos) == (
        {"system": "mask", "user": "train", "critic": "train"},
        "train",
        "none",
    )
    assert (family.preprocessing.max_seq_len, family.preprocessing.deduplicate) == (77, False)
    assert (family.packing.strategy, family.packing.row_len) == ("ffd", 99)
    assert family.output.storage_format == "bin"
    assert list(family.domains) == ["one", "two.b-c_d"]
    assert (family.domains["one"].files, family.domains["one"].schema_name) == (("a.jsonl", "more/*.jsonl"), "messages")
    assert (family.domains["two.b-c_d"].options, family.domains["two.b-c_d"].max_items) == ({"prompt_key": "q"}, 3)


def test_pretraining_has_no_longest_example_unless_asked(load: Load) -> None:
    smallest = "tokenizer: t\ndomains: {a: {files: [a.txt], schema: text}}\n"
    assert load(smallest, "pretrain").preprocessing.max_seq_len is None
    assert load(smallest + "preprocessing: {max_seq_len: 9}\n", "pretrain").preprocessing.max_seq_len == 9
    assert load(smallest + "preprocessing: {max_seq_len: null}\n", "sft").preprocessing.max_seq_len is None


def test_every_field_of_every_model_has_a_description() -> None:
    """The launchpad and the reference page show them. A field that is a model is described by its own fields."""

    def fields(model: type[Model]) -> list[str]:
        return [
            name
            for name, field in model.model_fields.items()
            if not descriptions(model).get(name) and not isinstance(field.default, pydantic.BaseModel)
        ]

    for family in FAMILIES.values():
        nested = [type(field.default) for field in family.model_fields.values() if isinstance(field.default, pydantic.BaseModel)]
        assert [fields(model) for model in (family, *nested)] == [[] for _ in (family, *nested)]


def test_what_is_dumped_is_read_back_the_same(load: Load) -> None:
    family = load(WRITTEN)
    dumped = family.model_dump(by_alias=True, mode="json")
    assert load(yaml.safe_dump(dumped)) == family


@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_has_a_maximum(family: str) -> None:
    def unbounded(node: Any, path: str = "") -> Iterator[str]:
        if isinstance(node, dict):
            if node.get("type") in ("integer", "number") and not {"maximum", "exclusiveMaximum"} & node.keys():
                yield path
            node = list(node.items())
        elif isinstance(node, list):
            node = list(enumerate(node))
        else:
            return
        for name, inner in node:
            yield from unbounded(inner, f"{path}/{name}")

    assert list(unbounded(FAMILIES[family].model_json_schema())) == []


# What a configuration is refused for: the file, the key, what is allowed there, and the nearest match.


Fault = Callable[..., str]
DOMAIN = "tokenizer: t\ndomains:\n  {}: {{files: [a], schema: text{}}}\n"
NO_NAMES = ["../x", "..", "a/b", "a\\b", "", ".hidden", "-x", "a b", "a..b", "é", "x" * 101, "current", "versions", "damaged"]

OF_SFT = [
    ("tokeniser: x", "tokeniser: unknown key; did you mean 'tokenizer'?"),
    ("packing: {rowlen: 8}", "packing.rowlen: unknown key; did you mean 'row_len'?"),
    ("preprocessing: {dedup: true}", "preprocessing.dedup: unknown key; did you mean 'deduplicate'?"),
    ("output: {storage-format: h5}", "output.storage-format: unknown key; did you mean 'storage_format'?"),
    ("refresh: {evry: '* * * * *'}", "refresh.evry: unknown key; did you mean 'every'?"),
    ("zzzzz: 1", "zzzzz: unknown key; allowed here: tokenizer, "),
    ("packing: {row_len: long}", "packing.row_len: needs a whole number (found 'long')"),
    ("packing: {row_len: 1}", "packing.row_len: Input should be greater than or equal to 2 (found 1)"),
    ("packing: {strategy: tight}", "packing.strategy: Input should be 'concat', 'simple', 'ffd', 'bfd' or 'bfd_split' (found 'tight')"),
    ("packing: 8", "packing: needs keys below it (found 8)"),
    ("packing: {shuffle: perhaps}", "packing.shuffle: needs true or false (found 'perhaps')"),
    ("preprocessing: {deduplicate: maybe}", "preprocessing.deduplicate: needs true or false (found 'maybe')"),
    ("preprocessing: {max_seq_len: 0}", "preprocessing.max_seq_len: Input should be greater than or equal to 1 (found 0)"),
    ("preprocessing: {max_seq_len: 1k}", "preprocessing.max_seq_len: needs a whole number (found '1k')"),
    ("mask: {user: maybe}", "mask.user: Input should be 'train' or 'mask' (found 'maybe')"),
    ("mask_default: off", "mask_default: Input should be 'train' or 'mask' (found False)"),
    ("output: {storage_format: parquet}", "output.storage_format: Input should be 'bin' or 'h5' (found 'parquet')"),
    ("test_fraction: 1.0", "test_fraction: Input should be less than 1 (found 1.0)"),
    ("test_fraction: .nan", "test_fraction: Input should be less than 1 (found nan)"),
    ("test_fraction: few", "test_fraction: needs a number (found 'few')"),
    ("template: [a]", "template: needs a text (found ['a'])"),
    ("workers: many", "workers: needs a whole number, or 'auto' (found 'many')"),
    ("workers: 0", "workers: Input should be greater than or equal to 1, or 'auto' (found 0)"),
]
"""Lines after the smallest configuration, and what is said of them, in one line."""


@pytest.mark.parametrize(("line", "said"), OF_SFT)
def test_a_wrong_line_is_told_in_one_line_without_words_of_python(fault: Fault, line: str, said: str) -> None:
    [told] = fault(f"{SMALLEST}{line}\n").splitlines()[1:]
    assert told.startswith(f"  {said}") and (told == f"  {said}" or said.endswith("tokenizer, "))


@pytest.mark.parametrize(
    ("more", "path", "family"),
    [
        ("preprocessing: {fim: {rate: true}}\n", "preprocessing.fim.rate", "pretrain"),
        ("preprocessing: {max_seq_len: yes}\n", "preprocessing.max_seq_len", "sft"),
        ("packing: {weights: {a: true}}\n", "packing.weights", "sft"),
        ("packing: {seed: false}\n", "packing.seed", "sft"),
        ("image_patches: true\n", "image_patches", "sft"),
        ("max_per_source: true\n", "max_per_source", "preference"),
    ],
)
def test_true_and_false_are_no_numbers(fault: Fault, more: str, path: str, family: str) -> None:
    assert f"\n  {path}: needs a number, not true or false" in fault(SMALLEST + more, family)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("domains: {a: {files: [a], schema: text}}\n", "\n  tokenizer: missing"),
        ("tokenizer: t\n", "\n  domains: missing"),
        ("tokenizer: t\ndomains: {a: {files: [a]}}\n", "\n  domains.a.schema: missing"),
        ("tokenizer: t\ndomains: {a: {schema: text}}\n", "\n  domains.a.files: missing"),
        ("tokenizer: t\ndomains: {a: {files: [], schema: text}}\n", "\n  domains.a.files: needs at least one entry (found [])"),
        ("tokenizer: t\ndomains: {a: {files: 7, schema: text}}\n", "\n  domains.a.files: needs a list (found 7)"),
        ("tokenizer: t\ndomains: {a: {files: a.jsonl, schema: text}}\n", "\n  domains.a.files: needs a list: [a.jsonl] (found 'a.jsonl')"),
        ("tokenizer: t\ndomains: {}\n", "\n  domains: "),
        ("tokenizer: t\ndomains: {a: {files: [a], schema: null}}\n", "\n  domains.a.schema: "),
        ("tokenizer: t\ndomains: {a: null}\n", "\n  domains.a: "),
        ("tokenizer: t\ndomains: [a]\n", "\n  domains: "),
        # whatever the domain is called
        *(
            (DOMAIN.format(name, ", file: b"), f"domains.{name}.file: unknown key; did you mean 'files'?")
            for name in ("a", "files", "packing", "options", "gsm8k.v1")
        ),
        *((DOMAIN.format(name, ""), "domains.") for name in ("1", "no", "2024-01-01")),  # no texts in YAML
        (SMALLEST + "tokenizer: other\n", "key 'tokenizer' is repeated (line 4)"),
        (DOMAIN.format("a", "") + "  a: {files: [b], schema: text}\n", "key 'a' is repeated (line 4)"),
        ("tokenizer: t\ndomains:\n  a:\n    files: [a]\n    schema: text\n    schema: hh\n", "key 'schema' is repeated (line 6)"),
        ("", "needs keys such as tokenizer and domains, it is empty"),
        ("\n# nothing\n", "needs keys such as tokenizer and domains, it is empty"),
        ("- a\n", "needs keys such as tokenizer and domains, found ['a']"),
        ("just words\n", "needs keys such as tokenizer and domains"),
        ("7\n", "needs keys such as tokenizer and domains"),
        *(
            (text, "is not YAML")
            for text in (
                "a: [1\n",
                "a: 'x\n",
                "a: !!python/object:os.system x\n",
                "a: 2024-13-45\n",
                "a: &x [*x]\n? [b]\n: c\n",
                "\x01: 1\n",
            )
        ),
        ("a:\n  b: 1\n c: 2\n", "line 3, column 2: did not find expected key. Look at the indentation"),
        ("a: 1\n\tb: 2\n", "line 2, column 1: found a tab character that violates indentation. Indent with spaces"),
    ],
)
def test_a_wrong_file(fault: Fault, text: str, said: str) -> None:
    message = fault(text)
    assert said in message and "uple" not in message


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_domain_that_is_no_folder_name(fault: Fault, name: str) -> None:
    written = name.encode("unicode_escape").decode()
    assert f"domains.{name}: {name!r} cannot be a domain name" in fault(DOMAIN.format(f'"{written}"', ""))


def test_all_faults_of_a_file_are_named_at_once(fault: Fault) -> None:
    message = fault("domains: {a: {files: [a], shema: text}}\npacking: {row_len: x}\n")
    for path in ("tokenizer: missing", "domains.a.schema: missing", "domains.a.shema: unknown", "packing.row_len: "):
        assert path in message


def test_a_file_that_is_no_utf8_not_there_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_bytes(b"tokenizer: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"sft\.yaml: byte 14 is not UTF-8"):
        load_family("sft", tmp_path)
    with pytest.raises(ConfigError, match=r"no configuration .*rl\.yaml\. Write one .*; the folder has sft"):
        load_family("rl", tmp_path)
    (tmp_path / "sft.yaml").unlink()
    with pytest.raises(ConfigError, match=r"no configuration .*rl\.yaml\. Write one .*; the folder has none"):
        load_family("rl", tmp_path)
    (tmp_path / "rl.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"rl\.yaml cannot be read"):
        load_family("rl", tmp_path)


@pytest.mark.parametrize("text", ["a: " + '{"a":' * 200_000, "a: " + "[" * 200_000, "".join(" " * depth + "a:\n" for depth in range(300))])
def test_what_is_nested_too_deeply_is_an_error_and_not_the_end_of_the_process(tmp_path: Path, text: str) -> None:
    """The loader of libyaml recurses in C, where nothing ends but the process."""
    (tmp_path / "sft.yaml").write_text(text)
    with pytest.raises(ConfigError, match="is nested more than 100 deep"):
        load_family("sft", tmp_path)


def aliases(levels: int, width: int) -> str:
    """Lists of lists: the last level holds `width` to the power of `levels` values."""
    lists = [f"b{level}: &l{level} [{', '.join([f'*l{level - 1}' if level else 'x'] * width)}]" for level in range(levels)]
    return "\n".join([*lists, f"tokenizer: *l{levels - 1}", ""])


@pytest.mark.parametrize(
    "text",
    [
        aliases(8, 9),
        aliases(3, 60),
        "tokenizer: &long " + "x" * 100_000 + "\nb: [" + "*long, " * 200 + "]\n",
        "a: &a {b: 1, c: 2}\nd: &d [" + "*a, " * 1000 + "]\ne: [" + "*d, " * 100 + "]\n",
    ],
)
def test_aliases_that_repeat_too_much_are_an_error_at_once(tmp_path: Path, text: str) -> None:
    """Models copy what aliases repeat: eight levels of nine are 43 million values."""
    (tmp_path / "sft.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"not YAML: the aliases up to line \d+ .* repeat more than 100,000 values"):
        load_family("sft", tmp_path)


def test_aliases_of_other_yaml_repeat_no_more(tmp_path: Path) -> None:
    """Cards, files of ranks and values of --set were loaded without a limit."""
    (tmp_path / "a.tiktoken").write_text("")
    (tmp_path / "a.yaml").write_text(text := aliases(8, 9))
    levels = ", ".join(f"&l{level} [{', '.join([f'*l{level - 1}' if level else 'x'] * 9)}]" for level in range(8))
    with pytest.raises(ConfigError, match="repeat more than 100,000 values"):
        _rank_file_config(tmp_path / "a.tiktoken")
    with pytest.raises(ConfigError, match=r"--set .* repeat more than 100,000 values"):
        options_of_run([f"template_options=[{levels}]"], ["sft"])
    card: Any = SimpleNamespace(content=lambda name: f"---\n{text}---\n".encode())
    with pytest.raises(ConfigError, match="repeat more than 100,000 values"):
        licence_of(card)


def test_usual_aliases_and_merges_are_read(tmp_path: Path) -> None:
    shared = "&shared {schema: text, where: {language: en}}"
    domains = "\n".join(f"  d{number}: {{<<: *shared, files: [a{number}.txt]}}" for number in range(1000))
    (tmp_path / "pretrain.yaml").write_text(f"tokenizer: t\ndomains:\n  first: {shared[:-1]}, files: [a.txt]}}\n{domains}\n")
    family = load_family("pretrain", tmp_path)
    assert len(family.domains) == 1001 and family.domains["d999"].where == {"language": "en"}


# An option that would be ignored is refused when the configuration loads, and the message says how to go on.


TEXT = SMALLEST.replace("messages", "text")
PAIRS = SMALLEST.replace("messages", "preference")

IDLE = [
    ("sft", "packing: {strategy: ffd, tail: drop}", "packing.tail: 'drop' has no effect here", "set strategy: concat"),
    ("sft", "packing: {strategy: concat, overlong: drop}", "packing.overlong: 'drop' has no effect here", "choose simple, ffd or bfd"),
    ("sft", "packing: {strategy: bfd_split, overlong: split}", "packing.overlong: 'split' has no effect here", "choose simple, ffd or bfd"),
    ("sft", "packing: {shuffle: false, seed: 7}", "packing.seed: 7 has no effect here", "shuffle: true"),
    ("sft", "truncation: end\npreprocessing: {max_seq_len: null}", "truncation: 'end' has no effect here", "preprocessing.max_seq_len"),
    ("sft", "truncation_keeps_stop: true", "truncation_keeps_stop: True has no effect here", "set truncation: end"),
    ("sft", "truncation: turns\ntruncation_keeps_stop: true", "truncation_keeps_stop: True has no effect here", "set truncation: end"),
    ("sft", "truncation_keeps: {user: {part: end}}", "truncation_keeps: {'user': Keep(", "set truncation: prompt"),
    ("sft", "truncation: prompt\ntruncation_keeps: {system: {least: 2}}", "truncation_keeps.system: has no effect here", "Leave it out"),
    ("sft", "tokenizer_class: a.b:C", "tokenizer_class: 'a.b:C' has no effect here: its code would run", "set tokenizer_loader: code"),
    ("sft", "tokenizer_loader: code", "tokenizer_loader: 'code' has no effect here: there is no code to run", "Set tokenizer_class"),
    *(
        (
            family,
            f"tokenizer_loader: code\ntokenizer_class: a.b:C\n{more}",
            f"{said} has no effect here: a tokenizer_class",
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
        "tokenizer_class: 'a.b:C' has no effect here: only pretrain and sft",
        "Leave it out",
    ),
    ("sft", "image_patches: 4", "image_patches: 4 has no effect here", "Set image_token"),
    ("sft", "preprocessing: {min_chars: 5}", "preprocessing.min_chars: unknown key", "it is an option of pretrain.yaml"),
    ("sft", "form: text", "form: unknown key", "it is an option of preference.yaml"),
    ("sft", "packing: {weights: {a: 1, b: 1}}", "packing.weights: names 'b', which is not a domain", "Domains: a"),
    ("sft", "reasoning: inline\nreasoning_tags: [['[[', ']]']]", "reasoning_tags: (('[[', ']]'),) has no effect here", "reasoning: auto"),
    ("sft", "expand: turns\ntrain_turns: last", "expand: 'turns' has no effect here", "train_turns: all"),
    ("sft", "expand: turns\ntrain_on_eos: all", "expand: 'turns' has no effect here", "train_on_eos: turn"),
    ("sft", "expand: turns\ntruncation: end", "expand: 'turns' has no effect here", "truncation: turns"),
    ("sft", "decontaminate: {words: 9}", "decontaminate.words: 9 has no effect here", "Set decontaminate.files"),
    ("pretrain", "preprocessing: {fim: {seed: 3}}", "preprocessing.fim.seed: 3 has no effect here", "Set fim.rate"),
    ("pretrain", "preprocessing: {fim: {middle_token: m}}", "preprocessing.fim.middle_token: 'm' has no effect here", "Set fim.rate"),
    ("pretrain", "output: {max_tokens_per_shard: 9}", "output.max_tokens_per_shard: 9 has no effect here", "storage_format: bin"),
    ("preference", "shuffle: false\nseed: 3", "seed: 3 has no effect here", "shuffle: true"),
]


@pytest.mark.parametrize(("family", "more", "said", "remedy"), IDLE, ids=[f"{family}-{said.split(':')[0]}" for family, _, said, _ in IDLE])
def test_an_option_that_means_nothing_is_refused(fault: Fault, family: str, more: str, said: str, remedy: str) -> None:
    """`overlong` of concat, `truncation_keeps_stop` of other truncations, `min_chars` outside pretraining and others were accepted and ignored."""
    base = {"pretrain": TEXT, "preference": PAIRS}.get(family, SMALLEST)
    message = fault(base + more + "\n", family)
    (line,) = [line for line in message.splitlines() if line.startswith(f"  {said}")]
    assert remedy in line


@pytest.mark.parametrize(
    ("family", "domain", "said"),
    [
        ("sft", "domain_value: x", "domains.a.domain_value: 'x' has no effect here: there is no domain_key"),
        ("sft", "domains: auto", "domains.a.domains: 'auto' has no effect here: there is no field whose values could be domains"),
        ("sft", "max_domains: 9", "domains.a.max_domains: 9 has no effect here: only domains: auto makes domains"),
        ("sft", "domains: auto, domain_key: k, domain_value: x", "domains.a.domain_value: 'x' has no effect here: domains: auto makes"),
        ("sft", "image_dir: x", "domains.a.image_dir: has no effect here: records with images are refused. Set image_token"),
        ("sft", "tokenized_by: x", "domains.a.tokenized_by: 'x' has no effect here: no row brings token ids"),
    ],
)
def test_an_option_of_a_domain_that_means_nothing_is_refused(fault: Fault, family: str, domain: str, said: str) -> None:
    assert said in fault(f"tokenizer: t\ndomains: {{a: {{files: [a.jsonl], schema: messages, {domain}}}}}\n", family)


def test_names_that_a_function_reads_are_not_left_out(fault: Fault) -> None:
    said = fault("tokenizer: t\ndomains: {a: {files: [a.jsonl], schema: 'own.code:read', speaker_names: leave_out}}\n", "sft")
    assert "speaker_names: leave_out cannot count the names that 'own.code:read' reads. Leave them out in that function" in said


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


# `image_tokens`: a rule by its name, with its own numbers and no others.


QWEN = {"rule": "qwen2_vl", "patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 100_000}
INTERN = {"rule": "internvl", "image_seq_length": 4, "tile_height": 448, "tile_width": 448, "min_patches": 3, "max_patches": 2}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"image_tokens": {"rule": "qwen"}},
            r"image_tokens: needs a rule, one of processor, fixed, qwen2_vl, .* \(found \{'rule': 'qwen'\}\)",
        ),
        ({"image_tokens": "processor"}, "image_tokens: needs a rule"),
        ({"image_tokens": {**QWEN, "merge": 2}}, r"image_tokens.qwen2_vl.merge: unknown key; did you mean 'merge_size'\?"),
        ({"image_tokens": {"rule": "processor", "tokens": 2}}, "image_tokens.processor.tokens: unknown key; allowed here: rule"),
        ({"image_tokens": {"rule": "fixed"}}, "image_tokens.fixed.tokens: missing"),
        ({"image_tokens": {**QWEN, "min_pixels": 200_000}}, "min_pixels 200000 is above max_pixels 100000"),
        ({"image_tokens": INTERN}, "min_patches 3 is above max_patches 2"),
        ({"image_tokens": QWEN, "image_patches": 3}, "image_patches: 3 has no effect here: image_tokens says how many"),
        (
            {"image_tokens": QWEN, "image_token": None},
            "image_tokens: .* has no effect here: records with images are refused. Set image_token",
        ),
    ],
)
def test_what_is_no_rule(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    family = {"tokenizer": "x", "image_token": "<image>", "domains": {"a": {"files": ["a.jsonl"], "schema": "messages"}}, **options}
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(family), "utf-8")
    with pytest.raises(ConfigError, match=says):
        load_family("sft", tmp_path)


# Where configurations and stores are, and what paths in them are relative to.


def test_the_environment_names_both_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(tmp_path / "not" / "yet" / "there"))
    workspace = Workspace.open()
    assert (workspace.configs, workspace.stores) == (tmp_path / "mine", tmp_path / "not" / "yet" / "there")


def test_a_relative_folder_in_the_environment_starts_here_and_tilde_is_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", "mine")
    assert config_dir() == tmp_path / "mine"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", "~/mine")
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", "~/stores")
    assert (config_dir(), store_dir()) == (tmp_path / "mine", tmp_path / "stores")


def test_a_configuration_folder_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"PREP_ASSETS_CONFIG_DIR is '.*missing', which is not a directory"):
        config_dir()


def test_without_the_environment_the_checkout_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREP_ASSETS_CONFIG_DIR", raising=False)
    monkeypatch.delenv("PREP_ASSETS_STORE_DIR", raising=False)
    root = Path(__file__).resolve().parents[2]
    assert checkout() == root
    assert (config_dir(), store_dir()) == (root / "configs", root / "data" / "stores")


def test_paths_are_relative_to_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source files, test files, tokenizer and template; wherever the process stands."""
    (tmp_path / "data").mkdir()
    jsonl(tmp_path / "data" / "a.jsonl", [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}])
    jsonl(tmp_path / "data" / "b.jsonl", [{"messages": [{"role": "user", "content": "ho"}, {"role": "assistant", "content": "hey"}]}])
    domain = {"files": ["../data/a.jsonl"], "test_files": ["../data/b.jsonl"], "schema": "messages"}
    families = minimal("sft", {"a": domain}, template="mine.jinja")
    families["sft"]["tokenizer"] = "../tok"
    (tmp_path / "tok").symlink_to(TOKENIZER)
    workspace = workspace_in(tmp_path, families)
    (workspace.configs / "mine.jinja").write_text("{% for m in messages %}{{ m['content'] + eos_token }}{% endfor %}")
    monkeypatch.chdir("/")
    build(workspace, "sft_raw", "a")
    assert build(workspace, "sft_tokens", "a").manifest.counts["kept"] == 2


# Two models side by side.


def test_a_variant_is_merged_over_its_family_and_has_its_own_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sft.yaml").write_text(SMALLEST + "mask: {user: train}\npacking: {row_len: 64}\n", "utf-8")
    (tmp_path / "sft.small.yaml").write_text("tokenizer: other\npacking: {strategy: ffd}\n", "utf-8")
    (tmp_path / "pretrain.yaml").write_text(SMALLEST.replace("messages", "text"), "utf-8")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(tmp_path / "stores"))
    alone, pretrain = load_family("sft", tmp_path), load_family("pretrain", tmp_path)
    monkeypatch.setenv("PREP_ASSETS_VARIANT", "small")
    whole = SMALLEST.replace("tok\n", "other\n") + "mask: {user: train}\npacking: {row_len: 64, strategy: ffd}\n"
    (tmp_path / "same").mkdir()
    (tmp_path / "same" / "sft.yaml").write_text(whole, "utf-8")
    assert load_family("sft", tmp_path) == load_family("sft", tmp_path / "same") != alone
    assert load_family("pretrain", tmp_path) == pretrain
    assert config_dir() == tmp_path and store_dir() == tmp_path / "stores-small"
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", "s3://bucket/stores/")
    assert store_dir() == "s3://bucket/stores-small"


def test_faults_of_a_variant_name_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sft.yaml").write_text(SMALLEST, "utf-8")
    (tmp_path / "sft.small.yaml").write_text("tokeniser: other\n", "utf-8")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("PREP_ASSETS_VARIANT", "small")
    with pytest.raises(ConfigError, match=r"sft.yaml with sft.small.yaml:\n  tokeniser: unknown key"):
        load_family("sft", tmp_path)
    monkeypatch.setenv("PREP_ASSETS_VARIANT", "smal")
    with pytest.raises(ConfigError, match=r"has no FAMILY.smal.yaml, such as sft.smal.yaml; did you mean 'small'\? Variants there: small"):
        config_dir()
