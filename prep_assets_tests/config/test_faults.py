"""What a configuration is refused for: the file, the key, what is allowed there, and the nearest match."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prep_assets.config.loading import load_family
from prep_assets.errors import ConfigError
from prep_assets_tests.config.conftest import SMALLEST

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
    (
        "packing: {strategy: tight}",
        "packing.strategy: Input should be 'concat', 'simple', 'ffd', 'bfd' or 'bfd_split' (found 'tight')",
    ),
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
        (
            "tokenizer: t\ndomains: {a: {files: a.jsonl, schema: text}}\n",
            "\n  domains.a.files: needs a list: [a.jsonl] (found 'a.jsonl')",
        ),
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
        (SMALLEST + "tokenizer: other\n", "key 'tokenizer' stands twice (line 4)"),
        (DOMAIN.format("a", "") + "  a: {files: [b], schema: text}\n", "key 'a' stands twice (line 4)"),
        ("tokenizer: t\ndomains:\n  a:\n    files: [a]\n    schema: text\n    schema: hh\n", "key 'schema' stands twice (line 6)"),
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
