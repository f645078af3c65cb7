"""ModelLink's preprocessing command line (now MindSpeed-LLM's), converted to a configuration of the graph and run by the engine.

Next to the files of a prefix is a folder with that configuration and its stores:

    data_text_document.bin, .idx     the files that trainers open: links to the files of the export
    data.prep-assets/configs         pretrain.yaml, sft.yaml, preference.yaml
    data.prep-assets/stores
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

import yaml
from msgspec import Struct

from prep_assets.config.loading import parse
from prep_assets.config.models import FAMILIES
from prep_assets.data.files import find_files
from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.data.read import read_blocks
from prep_assets.engine import build, plan
from prep_assets.engine.execute import Tell
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError, nearest, require_known
from prep_assets.extensions.preprocess.prompt_types import load_prompt_type
from prep_assets.graph.graph import asset_named, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.manifest import file_hash
from prep_assets.stores.verification import write_text
from prep_assets.stores.version_folders import Published
from prep_assets.text.vocabulary import Vocabulary, ends_of, load_vocabulary

GENERAL, SHAREGPT = "GeneralPretrainHandler", "SharegptPretrainHandler"
KEYS = {GENERAL: None, SHAREGPT: "conversations", "AlpacaPretrainHandler": "text", "StackOverflowPythonPretrainHandler": "text"}
"""Handler of documents → the key that it writes; `None`: the keys in ``--json-keys``."""
ALPACA = ("GeneralInstructionHandler", "LeetcodePythonInstructionHandler", "BelleMultiTurnInstructionHandler")
MOSS = {"MOSSInstructionHandler": "alpaca", "MOSSMultiTurnHandler": "prompt_type:baichuan2"}
BAICHUAN = ("<reserved_106>", "<reserved_107>")
HUNYUAN = "HunyuanInstructionHandler"
BY_PROMPT_TYPE = ("AlpacaStyleInstructionHandler", "SharegptStyleInstructionHandler", "OpenAIInstructionHandler")
PAIRWISE = ("AlpacaStylePairwiseHandler", "SharegptStylePairwiseHandler")
HANDLERS = {
    **dict.fromkeys(KEYS, "pretrain"),
    **dict.fromkeys((*ALPACA, *MOSS, HUNYUAN, *BY_PROMPT_TYPE), "sft"),
    **dict.fromkeys(PAIRWISE, "preference"),
}
"""Handler → the family of its configuration."""
_PROMPTS = "its prompts are the family rl: take the recipe modelink/handlers, which gives them as JSONL"
ALTERNATIVES = {
    "LlamaFactoryInstructionHandler": "prep-assets dataset-info prints the domains of its dataset_info.json",
    "PPOAlpacaStyleInstructionHandler": _PROMPTS,
    "R1AlpacaStyleInstructionHandler": _PROMPTS,
    "R1SharegptStyleInstructionHandler": _PROMPTS,
}
READ_BY = {
    "json_keys": KEYS,
    "split_sentences": KEYS,
    "keep_newlines": KEYS,
    "append_eod": (*KEYS, *ALPACA, *BY_PROMPT_TYPE),
    "prompt_type": (*BY_PROMPT_TYPE, *PAIRWISE),
    "prompt_type_path": (*BY_PROMPT_TYPE, *PAIRWISE),
    "enable_thinking": (*BY_PROMPT_TYPE, *PAIRWISE),
    "map_keys": (*BY_PROMPT_TYPE, *PAIRWISE, HUNYUAN),
    "pack": (*ALPACA, *MOSS, HUNYUAN, *BY_PROMPT_TYPE),
    "neat_pack": (*ALPACA, *MOSS, HUNYUAN, *BY_PROMPT_TYPE),
}
"""Flag → the handlers that read it; all handlers read flags that are not listed."""
HF = "PretrainedFromHF"
TOKENIZERS = {
    HF: ("tokenizer_name_or_path",),
    "GPT2BPETokenizer": ("merge_file", "vocab_file"),
    "BertWordPieceLowerCase": ("vocab_file",),
    "BertWordPieceCase": ("vocab_file",),
}
"""``--tokenizer-type`` → the flags with its files; the first is the tokenizer itself."""
_MIXED = "weights of a mixture are packing.weights in the configuration that prep-assets migrate prints"
_OBFUSCATED = "tokens are written as they are, so leave it out"
_OF_DEEPSEEK4 = "it belongs to deepseek4's renderer: take the model's own chat template, as template: tokenizer in a configuration"
UNSUPPORTED = {
    "--hf-datasets-params": "name the files themselves in --input",
    "--datasets": "ModelLink never reads it, so leave it out",
    "--dataset-dir": ALTERNATIVES["LlamaFactoryInstructionHandler"],
    "--script-data-dir": "no script of a data set is run: name its files in --input",
    "--dataset-additional-keys": _PROMPTS,
    "--reward-tokens": _PROMPTS,
    "--interleave-probs": _MIXED,
    "--mix-strategy": _MIXED,
    "--seed": "nothing is drawn at random, so leave it out",
    "--cache-dir": "nothing is cached, so leave it out",
    "--dataset-impl": "the files are always what mmap reads, so leave it out",
    "--pad-to-multiple-of": "it writes an id that the vocabulary does not have: pad in the trainer",
    "--data-obfuscation": _OBFUSCATED,
    "--obf-seed-content": _OBFUSCATED,
    "--reasoning-effort": _OF_DEEPSEEK4,
    "--drop-thinking": _OF_DEEPSEEK4,
    "--tokenizer-not-use-fast": "ids are those of the published tokenizer.json; for those of a tokenizer.model, name that file in --tokenizer-name-or-path",
    "--tokenizer-model": "name the file itself in --tokenizer-name-or-path, with --tokenizer-type PretrainedFromHF",
    "--make-vocab-size-divisible-by": "it changes no id; say the size itself with --pad-vocab-size-to",
    "--n-subs": "the output is never cut in parts: say how many processes work with --workers",
    "--merge-group-keys": "there are no parts to merge: name all source files in --input, a folder or a glob",
}
"""Unsupported flags of ModelLink → the reason or the alternative."""
STORES = ".prep-assets"
"""Suffix of the folder next to the files of a prefix."""


# -- the command line -------------------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        """Exit with 2 on invalid flags, as other commands do."""
        self.exit(2, f"error: {message}\n")


def parser(command: str = "preprocess") -> argparse.ArgumentParser:
    """The parser of ModelLink's flags, plus ``--ignore`` and ``--overwrite``."""
    flag_parser = _Parser(
        usage=f"prep-assets {command} --input FILE --output-prefix PREFIX [flags]",
        allow_abbrev=False,
        description="ModelLink's preprocessing. With prep-assets migrate, the same flags are printed as a configuration.",
    )
    add = flag_parser.add_argument
    add("--input", required=True, help="File, folder or glob of rows, or an address such as hub://owner/name@COMMIT/*.parquet.")
    add("--output-prefix", required=True, type=Path, help="Where the files go, and how their names begin.")
    add("--handler-name", default=GENERAL, help=f"How a row is read; {GENERAL} if left out. Known: {', '.join(HANDLERS)}.")
    add("--json-keys", nargs="+", help="Fields that become documents, a pair of files each; text if left out.")
    add("--tokenizer-type", default=HF, choices=TOKENIZERS, help="What the tokenizer's files are.")
    add("--tokenizer-name-or-path", help="Folder of the tokenizer, or its file.")
    add(
        "--tokenizer-loader",
        choices=("file", "transformers"),
        help="Whose reading of the tokenizer holds where both give other ids; not a flag of ModelLink.",
    )
    add("--vocab-file", help="Of BertWordPiece… and GPT2BPETokenizer.")
    add("--merge-file", help="Of GPT2BPETokenizer.")
    add("--pad-vocab-size-to", type=_positive, help="Vocabulary size of the model, where it is padded.")
    add("--seq-length", type=_positive, help="Most tokens of a row. Longer ones are left out, counted and listed.")
    add("--prompt-type", help="Chat format of the handlers with Style in their names, such as llama2.")
    add("--prompt-type-path", type=Path, help="A templates.json that has it, if not ours.")
    add("--enable-thinking", choices=("none", "true", "false"), help="none, as if left out.")
    add("--map-keys", type=_json, help="JSON: what the handler's columns are called in the rows.")
    add("--append-eod", action="store_true", help="End each document with the end-of-text token.")
    add("--split-sentences", action="store_true", help="A sequence for each English sentence; needs --keep-newlines.")
    add("--keep-newlines", action="store_true", help="Keep white space between sentences.")
    add("--pack", action="store_true", help="Rows of --seq-length tokens, several examples in each.")
    add("--neat-pack", action="store_true", help="With --pack: attention masks number the examples of a row.")
    add("--max-samples", type=_positive, help="Use at most this many rows, the first ones.")
    add("--workers", type=_positive, help="Processes that work at a time; as many as fit, if left out.")
    add("--log-interval", type=_positive, help="Print a line each time that about so many more rows are done.")
    add("--streaming", action="store_true", help="Always so: rows are read as a stream.")
    add("--overwrite-cache", action="store_true", help="Always so: files are read again where their content changed.")
    add("--ignore", action="append", default=[], metavar="FIELD", help="Not ModelLink's: a field to leave out; once for each.")
    add("--overwrite", action="store_true", help="Not ModelLink's: replace files of this prefix that come from something else.")
    return flag_parser


def parse_flags(words: Sequence[str], command: str = "preprocess") -> argparse.Namespace:
    """Parse the flags. Exits with 2 on an invalid command line, with a message for each unsupported flag."""
    flag_parser = parser(command)
    if unsupported := [flag for flag in dict.fromkeys(word.partition("=")[0] for word in words) if flag in UNSUPPORTED]:
        flag_parser.error("\n".join(f"{flag}: {UNSUPPORTED[flag]}" for flag in unsupported))
    flags, unknown = flag_parser.parse_known_args(words)
    if unknown:
        flag_parser.error(f"{unknown[0]!r} is no flag{nearest(unknown[0], flag_parser._option_string_actions)}")
    unread = [name for name, handlers in READ_BY.items() if getattr(flags, name) and flags.handler_name not in handlers]
    if unread and flags.handler_name in HANDLERS:
        flag_parser.error(f"{', '.join(map(_flag, unread))}: {flags.handler_name} does not read it, so leave it out")
    return flags


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"needs a whole number from 1 on, not {text!r}")
    return int(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from error


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# -- as a configuration -----------------------------------------------------------------------------------------------------------------


class Configuration(Struct, frozen=True):
    """The configuration of a command line.

    Attributes:
        family: the family that it configures.
        values: of its file.
        notes: differences from ModelLink and other remarks; one sentence each.
    """

    family: str
    values: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The YAML file, with the notes as comments."""
        body = yaml.safe_dump(dict(self.values), sort_keys=False, allow_unicode=True, width=120)
        notes = [f"# - {note}" for note in self.notes]
        return "\n".join([f"# configs/{self.family}.yaml, from a command line of ModelLink.", body + "\n".join([*notes, ""])])


def configuration(flags: argparse.Namespace) -> Configuration:
    """Convert flags to a configuration of the graph. Reads the first rows and the tokenizer if the result depends on them.

    Raises:
        ConfigError: an unknown handler or prompt type, or flags that contradict each other.
        SourceError: no such rows.
    """
    handler = flags.handler_name
    if handler in ALTERNATIVES:
        raise ConfigError(f"--handler-name {handler}: {ALTERNATIVES[handler]}")
    if ":" in handler:
        raise ConfigError(f"handler {handler!r} is of your own: name it as schema in the configuration that prep-assets migrate prints")
    require_known("no handler", handler, HANDLERS, "Known")
    family, notes = HANDLERS[handler], list[str]()
    values = {"tokenizer": _tokenizer(flags), **({"pad_vocab_to": flags.pad_vocab_size_to} if flags.pad_vocab_size_to else {})}
    values |= {"tokenizer_loader": flags.tokenizer_loader} if flags.tokenizer_loader else {}
    values |= {"pretrain": _pretrain, "sft": _sft, "preference": _preference}[family](flags, notes)
    values |= {
        "preprocessing": {"max_seq_len": _max_seq_len(flags, family, notes), "deduplicate": False},
        "output": {"storage_format": "bin", "dtype": "int32"},
    }
    parse(FAMILIES[family], values, "the configuration of this command line")
    return Configuration(family, values, tuple(notes))


def _max_seq_len(flags: argparse.Namespace, family: str, notes: list[str]) -> int | None:
    """--seq-length as max_seq_len, which excludes the begin and end tokens of a document."""
    if flags.seq_length is None:
        return None
    notes.append(f"a row of exactly {flags.seq_length:,} tokens stays; ModelLink leaves it out")
    length: int = flags.seq_length
    if family != "pretrain":
        return length
    end_tokens = ends_of(_vocabulary(flags), "auto" if flags.tokenizer_type == HF else "false", flags.append_eod).count
    if end_tokens:
        notes.append(f"max_seq_len is {length - end_tokens:,}: it counts a text without its begin-of-text and end-of-text token")
    return length - end_tokens


def _vocabulary(flags: argparse.Namespace) -> Vocabulary:
    return load_vocabulary(_tokenizer(flags), loader=flags.tokenizer_loader or "file")


def _tokenizer(flags: argparse.Namespace) -> str:
    needed = TOKENIZERS[flags.tokenizer_type]
    unused_flags = {name for names in TOKENIZERS.values() for name in names} - {*needed}
    if unread := [_flag(name) for name in sorted(unused_flags) if getattr(flags, name)]:
        raise ConfigError(f"{', '.join(unread)}: --tokenizer-type {flags.tokenizer_type} does not read it, so leave it out")
    if missing := [_flag(name) for name in needed if not getattr(flags, name)]:
        raise ConfigError(f"--tokenizer-type {flags.tokenizer_type} needs {' and '.join(missing)}")
    paths = [Path(getattr(flags, name)).expanduser().absolute() for name in needed]
    if gone := [str(path) for path in paths if not path.exists()]:
        raise ConfigError(f"no tokenizer in {', '.join(gone)}. One of the hub has to be fetched first: its name does not say which commit")
    if len({path.parent for path in paths}) > 1:
        raise ConfigError(f"{' and '.join(map(str, paths))} belong into one folder, or another vocabulary than this would be read")
    if flags.tokenizer_type.startswith("Bert"):
        _check_case(paths[0], flags.tokenizer_type == "BertWordPieceLowerCase")
    return str(paths[0])


def _check_case(vocabulary: Path, lower: bool) -> None:
    """Raise if the tokenizer_config.json of a WordPiece vocabulary contradicts the flag."""
    settings = vocabulary.with_name("tokenizer_config.json")
    if settings.is_file() and json.loads(settings.read_bytes()).get("do_lower_case", lower) != lower:
        raise ConfigError(f"{settings} says do_lower_case: {not lower}, the --tokenizer-type says {lower}. Make them agree")


def _domain(flags: argparse.Namespace, options: Mapping[str, Any], ignore: Sequence[str] = ()) -> dict[str, Any]:
    convert_with(flags.handler_name, options)
    optional = {"options": dict(options), "ignore": [*ignore, *flags.ignore], "max_items": flags.max_samples}
    return {"files": [_source(flags)], "schema": flags.handler_name, **{key: value for key, value in optional.items() if value}}


def _source(flags: argparse.Namespace) -> str:
    return flags.input if "://" in flags.input else str(Path(flags.input).expanduser().absolute())


def _export(source: str, flags: argparse.Namespace, **options: Any) -> dict[str, Any]:
    return {"megatron": {"from": source, "to": "megatron", "options": {"name": flags.output_prefix.name, **options}}}


def _pretrain(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    if flags.split_sentences != flags.keep_newlines:
        raise ConfigError("--split-sentences and --keep-newlines go together: white space between sentences is kept here. Give both")
    if flags.split_sentences and flags.seq_length:
        raise ConfigError("--seq-length with --split-sentences: a limit here is one of documents, not of sentences. Leave one of them out")
    keys = json_keys(flags)
    columns = _columns(flags) - {*flags.ignore}
    if unread := sorted(columns - {*keys}):
        notes.append(f"--json-keys {' '.join(keys)}: {', '.join(unread)} of the rows is not read")
    ends = {} if flags.tokenizer_type == HF else {"bos": False}
    return {
        "append_eod": flags.append_eod,
        **ends,
        **({"split_sentences": "english"} if flags.split_sentences else {}),
        "domains": {
            key: _domain(flags, {"text_key": key} if flags.handler_name == GENERAL else {}, sorted(columns - {key})) for key in keys
        },
        "exports": _export("pretrain_tokens", flags, vocab_size=None),
    }


def json_keys(flags: argparse.Namespace) -> list[str]:
    """The fields that become documents, for a pretraining handler."""
    only_key = KEYS[flags.handler_name]
    keys: list[str] = flags.json_keys or [only_key or "text"]
    if only_key and keys != [only_key]:
        raise ConfigError(f"--json-keys {' '.join(keys)}: {flags.handler_name} writes {only_key!r} and nothing else. Leave it out")
    return keys


def _columns(flags: argparse.Namespace) -> set[str]:
    """The fields of the first rows, for handlers with --json-keys."""
    if flags.handler_name not in (GENERAL, SHAREGPT):
        return set()
    first = next(iter(read_blocks(find_files([_source(flags)], Path.cwd())[0], 0)), None)
    return {key for record in (first.records if first else ()) for key in record.payload}


def _sft(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    if flags.neat_pack and not flags.pack:
        raise ConfigError("--neat-pack is a way to --pack: give both")
    if flags.pack and not flags.seq_length:
        raise ConfigError("--pack needs --seq-length, the tokens of a row")
    values: dict[str, Any] = {**_template_options(flags, notes)}
    if flags.handler_name == "BelleMultiTurnInstructionHandler":
        values["train_turns"] = "last"
    values["domains"] = {"data": _domain(flags, _map_keys(flags))}
    if not flags.pack:
        return {**values, "exports": _export("sft_tokens", flags, layout="instruction")}
    notes.append("a packed row is filled to its last token; ModelLink leaves one free")
    packing = {"strategy": "ffd", "row_len": flags.seq_length, "shuffle": False}
    return {**values, "packing": packing, "exports": _export("sft_packed", flags, neat=flags.neat_pack)}


def _preference(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    values = {**_template_options(flags, notes), "test_fraction": 0.0, "shuffle": False}
    return {**values, "domains": {"data": _domain(flags, _map_keys(flags))}, "exports": _export("preference_tokens", flags)}


def _map_keys(flags: argparse.Namespace) -> dict[str, Any]:
    return {"map_keys": flags.map_keys} if flags.map_keys else {}


def _template_options(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    """The chat template of a handler, and how answers end."""
    handler = flags.handler_name
    if handler in BY_PROMPT_TYPE or handler in PAIRWISE:
        return _prompt_type_options(flags, notes)
    if handler == HUNYUAN:
        return {"template": "tokenizer"}
    template = MOSS.get(handler, "alpaca")
    if template != "alpaca":
        vocabulary = _vocabulary(flags)
        if missing := [token for token in BAICHUAN if token not in vocabulary.control]:
            raise ConfigError(
                f"{handler} begins turns with Baichuan 2's tokens {' and '.join(BAICHUAN)}, ids 195 and 196; the tokenizer has no {missing[0]}. "
                "Take Baichuan 2's, or MOSSInstructionHandler, which writes text"
            )
        return {"template": template, "template_options": {"end_with_eos": "last"}}
    if handler == "GeneralInstructionHandler":
        notes.append("an instruction without an input has no line break behind it")
    return {"template": template, **_end_options(flags, notes, _bos_options(flags, notes))}


def _bos_options(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    """Options for the begin-of-text token, which Alpaca-style handlers leave to the tokenizer."""
    vocabulary = _vocabulary(flags)
    if flags.tokenizer_type != HF or ends_of(vocabulary, "auto").bos is None:
        return {}
    bos, encode = vocabulary.special["bos_token"], vocabulary.backend.encode
    if encode("\n").ids != encode(f"{bos}\n", add_special_tokens=False).ids:
        notes.append(f"no piece for a space stands between {bos} and the text, which the tokenizer has where it adds {bos} itself")
    return {"begin_with_bos": True}


def _end_options(flags: argparse.Namespace, notes: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of --append-eod for a template without a stop token of its own."""
    if flags.append_eod:
        return {"template_options": {**options, "end_with_eos": "last"}}
    flag = "without --append-eod " if flags.handler_name in READ_BY["append_eod"] else f"{flags.handler_name} has no --append-eod: "
    notes.append(f"{flag}no token ends an answer, so a model does not learn to stop; what follows the answer's text is not trained")
    return {"template_options": {**options, "end_with_eos": False}, "train_on_eos": "none"}


def _prompt_type_options(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    if not flags.prompt_type:
        raise ConfigError(f"{flags.handler_name} needs --prompt-type: the chat format, such as llama2 or qwen")
    if flags.enable_thinking in ("true", "false"):
        raise ConfigError(
            f"--enable-thinking {flags.enable_thinking}: reasoning in the rows is kept and trained, and the empty thought of an answer without "
            "any is written and not trained, which is what none means. Leave it out"
        )
    file = flags.prompt_type_path and flags.prompt_type_path.expanduser().absolute()
    prompt_type = load_prompt_type(flags.prompt_type, file)
    template = {"template": f"{file}#{prompt_type.name}" if file else f"prompt_type:{prompt_type.name}"}
    if prompt_type.open_ended and not prompt_type.efficient_eos and flags.handler_name not in PAIRWISE:
        return {**template, **_end_options(flags, notes, {})}
    if flags.append_eod:
        notes.append(f"--append-eod: what {prompt_type.name} writes ends each answer with a stop token already, and no second one follows")
    return template


# -- running it -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        workspace: the configuration and the stores next to the files.
        files: the files that trainers open, a ``.bin`` and an ``.idx`` for each key.
        stores: the stores from source to export, source first.
        up_to_date: whether the files existed already, so that nothing was done.
    """

    workspace: Workspace
    files: tuple[Path, ...]
    stores: tuple[Published, ...]
    up_to_date: bool

    @property
    def read(self) -> int:
        """Number of source rows."""
        return sum(store.manifest.counts["read"] for store in self.stores if store.manifest.asset.endswith("_raw"))

    @property
    def written(self) -> tuple[int, int]:
        """Numbers of sequences and of tokens, without padding."""
        counts = [store.manifest.counts for store in self.stores if store.manifest.asset.endswith("_export_megatron")]
        return sum(count["rows"] for count in counts), sum(count["tokens"] for count in counts)

    @property
    def refused(self) -> Counter[str]:
        """Rejected rows by stage/reason."""
        return sum((Counter(store.manifest.counts.get("refused", {})) for store in self.stores), Counter[str]())

    @property
    def too_long(self) -> Iterator[Refusal]:
        """Rows longer than ``--seq-length``."""
        for store in self.stores:
            if store.quarantine:
                yield from (row for row in read_quarantine(store.quarantine) if (row.stage, row.reason) == ("tokenize", "too_long"))


def preprocess(flags: argparse.Namespace, configured: Configuration, tell: Tell = lambda event: None) -> Outcome:
    """Write the files of a prefix, unless they are up to date with these flags, rows and tokenizer.

    Raises:
        ConfigError: files of this prefix have another origin, and ``--overwrite`` is not set.
        PrepAssetsError: the build fails, or a check does not hold; no file of the prefix has changed.
    """
    prefix = flags.output_prefix.expanduser().absolute()
    folder = prefix.with_name(prefix.name + STORES)
    workspace = Workspace(folder / "configs", folder / "stores", workers=flags.workers)
    workspace.configs.mkdir(parents=True, exist_ok=True)
    file = workspace.configs / f"{configured.family}.yaml"
    previous_text = file.read_text("utf-8") if file.is_file() else None
    write_text(file, configured.text)
    asset = asset_named(f"{configured.family}_export_megatron", workspace)
    steps = plan(workspace, [(asset, partition) for partition in asset.partitions(workspace)])
    current = [step.standing.published for step in steps if step.requested and not step.why and step.standing and step.standing.published]
    verified = [store for store in current if _is_verified(store)]
    links, existing = _export_links(prefix, verified), _existing_files(prefix, flags)
    foreign = [path for path in existing if path not in links or not _same_content(links[path], path)]
    if foreign and not flags.overwrite:
        file.unlink() if previous_text is None else write_text(file, previous_text)
        reason = next((f" ({step.label}: {step.why})" for step in steps if step.why), "")
        raise ConfigError(
            f"{', '.join(path.name for path in foreign)} in {prefix.parent}: not what these flags, rows and tokenizer give{reason}. "
            "Name another --output-prefix, or replace what is there with --overwrite"
        )
    up_to_date = not any(step.why for step in steps) and len(verified) == len(current) and {*links} == {*existing} and not foreign
    if not up_to_date:
        links = _export_links(prefix, _build_exports(workspace, asset.name, force=len(verified) < len(current), tell=tell))
        _place_files(links, existing)
    chain = (store for partition in asset.partitions(workspace) for store in _upstream_chain(workspace, asset, partition))
    return Outcome(workspace, tuple(sorted(links)), tuple({store.where: store for store in chain}.values()), up_to_date)


def _is_verified(published: Published) -> bool:
    """Whether its files match its manifest. The files of a prefix are links to them, so another program may have changed them."""
    try:
        published.verify()
    except StoreError:
        return False
    return True


def _build_exports(workspace: Workspace, asset: str, *, force: bool, tell: Tell) -> list[Published]:
    try:
        return [result.published for result in build(workspace, asset, force=force, tell=tell)]
    except PrepAssetsError as error:
        if "\n  ignore: " not in str(error):
            raise
        raise ConfigError(f"{error}\nHere that is --ignore FIELD, once for each field") from error


def _existing_files(prefix: Path, flags: argparse.Namespace) -> list[Path]:
    """Existing files that a trainer would open for the prefix."""
    level = "sentence" if flags.split_sentences else "document"
    keys = [glob.escape(key) for key in json_keys(flags)] if flags.handler_name in KEYS else ["packed_*"]
    name = glob.escape(prefix.name)
    return sorted(path for key in keys for kind in ("bin", "idx") for path in prefix.parent.glob(f"{name}_{key}_{level}.{kind}"))


def _export_links(prefix: Path, exports: Sequence[Published]) -> dict[Path, Path]:
    """File of the prefix → file of an export. Exports use ``text`` in the name, whichever field a document came from."""
    links = {}
    for store in exports:
        for name in store.manifest.files:
            key = name.removeprefix(f"{prefix.name}_")
            key = key.replace("text", store.manifest.partition, 1) if key.startswith("text_") else key
            links[prefix.with_name(f"{prefix.name}_{key}")] = store.directory / name
    return links


def _same_content(source: Path, path: Path) -> bool:
    return path.samefile(source) or (path.stat().st_size == source.stat().st_size and file_hash(path) == file_hash(source))


def _place_files(links: Mapping[Path, Path], existing: Sequence[Path]) -> None:
    """Link the files of an export to the prefix. An index is removed before its data and written after, so that it never has other data."""
    for path in sorted(existing, key=lambda path: path.suffix, reverse=True):
        path.unlink()
    for path, source in sorted(links.items(), key=lambda link: link[0].suffix):
        try:
            os.link(source, path)
        except OSError:  # a file system without hard links
            shutil.copyfile(source, path)


def _upstream_chain(workspace: Workspace, asset: Asset, partition: str) -> Iterator[Published]:
    """Yield the current stores upstream of a store, then the store itself, source first."""
    for upstream_asset, upstream_partition in upstream_of(workspace, asset, partition):
        yield from _upstream_chain(workspace, upstream_asset, upstream_partition)
    if published := workspace.published(asset.name, partition):
        yield published


def shell_environment(workspace: Workspace) -> str:
    """Environment variables, in shell syntax, with which other commands read the stores of a run."""
    return f"PREP_ASSETS_CONFIG_DIR={shlex.quote(str(workspace.configs))} PREP_ASSETS_STORE_DIR={shlex.quote(str(workspace.stores))}"
