"""What a configuration is refused for: the file, the key, what is allowed there, and the nearest match."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prep_assets.config.loading import load_family
from prep_assets.errors import ConfigError
from prep_assets_tests.config.conftest import SMALLEST

Fault = Callable[..., str]


@pytest.mark.parametrize(
    ("more", "path", "meant"),
    [
        ("tokeniser: x\n", "tokeniser", "tokenizer"),
        ("packing: {rowlen: 8}\n", "packing.rowlen", "row_len"),
        ("preprocessing: {dedup: true}\n", "preprocessing.dedup", "deduplicate"),
        ("output: {storage-format: h5}\n", "output.storage-format", "storage_format"),
        ("refresh: {evry: '* * * * *'}\n", "refresh.evry", "every"),
    ],
)
def test_an_unknown_key(fault: Fault, more: str, path: str, meant: str) -> None:
    message = fault(SMALLEST + more)
    assert f"{path}: unknown key; did you mean {meant!r}?" in message


@pytest.mark.parametrize("name", ["a", "files", "packing", "options", "gsm8k.v1"])
def test_an_unknown_key_inside_a_domain_whatever_the_domain_is_called(fault: Fault, name: str) -> None:
    message = fault(f"tokenizer: t\ndomains:\n  {name}: {{files: [a], schema: text, file: b}}\n")
    assert f"domains.{name}.file: unknown key; did you mean 'files'?" in message


def test_a_key_that_is_like_nothing_allowed(fault: Fault) -> None:
    message = fault(SMALLEST + "zzzzz: 1\n")
    assert "zzzzz: unknown key; allowed here: tokenizer" in message
    assert "did you mean" not in message


@pytest.mark.parametrize(
    ("more", "path", "found"),
    [
        ("packing: {row_len: long}\n", "packing.row_len", "'long'"),
        ("packing: {row_len: 1}\n", "packing.row_len", "1"),
        ("packing: {strategy: tight}\n", "packing.strategy", "'tight'"),
        ("packing: 8\n", "packing", "8"),
        ("preprocessing: {deduplicate: maybe}\n", "preprocessing.deduplicate", "'maybe'"),
        ("preprocessing: {max_seq_len: 0}\n", "preprocessing.max_seq_len", "0"),
        ("mask: {user: maybe}\n", "mask.user", "'maybe'"),
        ("mask_default: off\n", "mask_default", "False"),
        ("output: {storage_format: parquet}\n", "output.storage_format", "'parquet'"),
        ("test_fraction: 1.0\n", "test_fraction", "1.0"),
        ("test_fraction: .nan\n", "test_fraction", "nan"),
        ("template: [a]\n", "template", "['a']"),
    ],
)
def test_a_wrong_value(fault: Fault, more: str, path: str, found: str) -> None:
    message = fault(SMALLEST + more)
    assert f"\n  {path}: " in message
    assert f"(found {found})" in message


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("a.jsonl", "needs a list: [a.jsonl] (found 'a.jsonl')"),
        ("7", "needs a list (found 7)"),
        ("[]", "needs at least one entry (found [])"),
    ],
)
def test_a_list_is_called_a_list(fault: Fault, files: str, said: str) -> None:
    message = fault(f"tokenizer: t\ndomains: {{a: {{files: {files}, schema: text}}}}\n")
    assert f"domains.a.files: {said}" in message and "uple" not in message


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("workers: many\n", "workers: needs a whole number, or 'auto' (found 'many')"),
        ("workers: 0\n", "workers: Input should be greater than or equal to 1, or 'auto' (found 0)"),
        ("preprocessing: {max_seq_len: 1k}\n", "preprocessing.max_seq_len: needs a whole number (found '1k')"),
        ("packing: {shuffle: perhaps}\n", "packing.shuffle: needs true or false (found 'perhaps')"),
        ("test_fraction: few\n", "test_fraction: needs a number (found 'few')"),
        ("template: [a]\n", "template: needs a text (found ['a'])"),
    ],
)
def test_a_wrong_value_is_told_in_one_line_without_words_of_python(fault: Fault, more: str, said: str) -> None:
    assert fault(SMALLEST + more).splitlines()[1:] == [f"  {said}"]


@pytest.mark.parametrize(("text", "said"), [("", "it is empty"), ("- a\n", "found ['a']")])
def test_a_file_without_keys(fault: Fault, text: str, said: str) -> None:
    assert fault(text).endswith(f"needs keys such as tokenizer and domains, {said}")


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


def test_a_choice_names_what_may_be_chosen(fault: Fault) -> None:
    message = fault(SMALLEST + "packing: {strategy: tight}\n")
    assert all(f"'{word}'" in message for word in ("concat", "simple", "ffd", "bfd", "bfd_split"))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("domains: {a: {files: [a], schema: text}}\n", "tokenizer: missing"),
        ("tokenizer: t\n", "domains: missing"),
        ("tokenizer: t\ndomains: {a: {files: [a]}}\n", "domains.a.schema: missing"),
        ("tokenizer: t\ndomains: {a: {schema: text}}\n", "domains.a.files: missing"),
        ("tokenizer: t\ndomains: {a: {files: [], schema: text}}\n", "domains.a.files: "),
        ("tokenizer: t\ndomains: {}\n", "domains: "),
        ("tokenizer: t\ndomains: {a: {files: a.jsonl, schema: text}}\n", "domains.a.files: "),
        ("tokenizer: t\ndomains: {a: {files: [a], schema: null}}\n", "domains.a.schema: "),
        ("tokenizer: t\ndomains: {a: null}\n", "domains.a: "),
        ("tokenizer: t\ndomains: [a]\n", "domains: "),
    ],
)
def test_something_missing_or_empty(fault: Fault, text: str, path: str) -> None:
    assert f"\n  {path}" in fault(text)


@pytest.mark.parametrize(
    "name", ["../x", "..", "a/b", "a\\b", "", ".hidden", "-x", "a b", "a..b", "é", "x" * 101, "current", "versions", "damaged"]
)
def test_a_domain_that_is_no_folder_name(fault: Fault, name: str) -> None:
    message = fault(f'tokenizer: t\ndomains:\n  "{name.encode("unicode_escape").decode()}": {{files: [a], schema: text}}\n')
    assert f"{name!r} cannot be a domain name" in message
    assert f"domains.{name}: " in message


@pytest.mark.parametrize("name", ["1", "no", "2024-01-01"])
def test_a_domain_whose_name_is_no_text_in_yaml(fault: Fault, name: str) -> None:
    assert "domains." in fault(f"tokenizer: t\ndomains:\n  {name}: {{files: [a], schema: text}}\n")


def test_all_faults_of_a_file_are_named_at_once(fault: Fault) -> None:
    message = fault("domains: {a: {files: [a], shema: text}}\npacking: {row_len: x}\n")
    assert all(
        path in message for path in ("tokenizer: missing", "domains.a.schema: missing", "domains.a.shema: unknown", "packing.row_len: ")
    )


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        (SMALLEST + "tokenizer: other\n", "tokenizer", 4),
        ("tokenizer: t\ndomains:\n  a: {files: [a], schema: text}\n  a: {files: [b], schema: text}\n", "a", 4),
        ("tokenizer: t\ndomains:\n  a:\n    files: [a]\n    schema: text\n    schema: hh\n", "schema", 6),
    ],
)
def test_a_key_that_stands_twice(fault: Fault, text: str, key: str, line: int) -> None:
    assert f"key {key!r} stands twice (line {line})" in fault(text)


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "- a\n- b\n", "just words\n", "7\n"])
def test_a_file_that_is_no_mapping(fault: Fault, text: str) -> None:
    assert "needs keys such as tokenizer and domains" in fault(text)


@pytest.mark.parametrize(
    "text", ["a: [1\n", "a: 'x\n", "a: !!python/object:os.system x\n", "a: 2024-13-45\n", "a: &x [*x]\n? [b]\n: c\n", "\x01: 1\n"]
)
def test_a_file_that_is_no_yaml(fault: Fault, text: str) -> None:
    assert "is not YAML" in fault(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:\n  b: 1\n c: 2\n", "line 3, column 2: did not find expected key. Look at the indentation"),
        ("a: 1\n\tb: 2\n", "line 2, column 1: found a tab character that violates indentation. Indent with spaces"),
    ],
)
def test_where_a_file_stops_to_be_yaml(fault: Fault, text: str, said: str) -> None:
    """It named a place in "<unicode string>"."""
    assert said in fault(text)


def test_a_file_that_is_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_bytes(b"tokenizer: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"sft\.yaml: byte 14 is not UTF-8"):
        load_family("sft", tmp_path)


def test_a_file_that_is_not_there_and_one_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration .*rl\.yaml\. Write one .*; the folder has none"):
        load_family("rl", tmp_path)
    (tmp_path / "rl.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"rl\.yaml cannot be read"):
        load_family("rl", tmp_path)
