"""ModelLink's preprocessing command line (now MindSpeed-LLM's) as a configuration of the graph, and a run of it by the engine.

Beside the files of a prefix stands a folder with that configuration and its stores:

    data_text_document.bin, .idx     what trainers open: links to the files of the export
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

from prep_assets.config.loading import parse as checked
from prep_assets.config.models import FAMILIES
from prep_assets.data.files import find_files
from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.data.read import read_blocks
from prep_assets.engine import build, plan
from prep_assets.engine.execute import Tell
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError, nearest
from prep_assets.graph.graph import asset_named, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.manifest import file_hash
from prep_assets.stores.verification import write_text
from prep_assets.stores.version_folders import Published
from prep_assets.text.load_template import load_prompt_type
from prep_assets.text.vocabulary import ends_of, load_vocabulary

GENERAL, SHAREGPT = "GeneralPretrainHandler", "SharegptPretrainHandler"
KEYS = {GENERAL: None, SHAREGPT: "conversations", "AlpacaPretrainHandler": "text", "StackOverflowPythonPretrainHandler": "text"}
"""Handlers of documents → the one key that each writes; `None`: those of ``--json-keys``."""
ALPACA = ("GeneralInstructionHandler", "LeetcodePythonInstructionHandler", "BelleMultiTurnInstructionHandler")
MOSS = {"MOSSInstructionHandler": "alpaca", "MOSSMultiTurnHandler": "prompt_type:baichuan2"}
HUNYUAN = "HunyuanInstructionHandler"
BY_PROMPT_TYPE = ("AlpacaStyleInstructionHandler", "SharegptStyleInstructionHandler", "OpenAIInstructionHandler")
PAIRWISE = ("AlpacaStylePairwiseHandler", "SharegptStylePairwiseHandler")
HANDLERS = {
    **dict.fromkeys(KEYS, "pretrain"),
    **dict.fromkeys((*ALPACA, *MOSS, HUNYUAN, *BY_PROMPT_TYPE), "sft"),
    **dict.fromkeys(PAIRWISE, "preference"),
}
"""Handler → the family whose configuration it becomes."""
_PROMPTS = "its prompts are the family rl: take the recipe modelink/handlers, which gives them as JSONL"
ELSEWHERE = {
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
"""Flag → the handlers for which it means something; any other flag means something for all."""
HF = "PretrainedFromHF"
TOKENIZERS = {
    HF: ("tokenizer_name_or_path",),
    "GPT2BPETokenizer": ("merge_file", "vocab_file"),
    "BertWordPieceLowerCase": ("vocab_file",),
    "BertWordPieceCase": ("vocab_file",),
}
"""``--tokenizer-type`` → the flags that name its files; the first names the tokenizer."""
_MIXED = "weights of a mixture are packing.weights in the configuration that prep-assets migrate prints"
_OBFUSCATED = "tokens are written as they are, so leave it out"
_OF_DEEPSEEK4 = "it belongs to deepseek4's renderer: take the model's own chat template, as template: tokenizer in a configuration"
REFUSED = {
    "--hf-datasets-params": "name the files themselves in --input",
    "--datasets": "ModelLink never reads it, so leave it out",
    "--dataset-dir": ELSEWHERE["LlamaFactoryInstructionHandler"],
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
"""Flags of theirs that are not honoured, and why."""
STORES = ".prep-assets"
"""What follows the prefix in the name of the folder beside its files."""


# -- the command line -------------------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        """A command line that is wrong ends with 2, as other commands do."""
        self.exit(2, f"error: {message}\n")


def parser(command: str = "preprocess") -> argparse.ArgumentParser:
    """ModelLink's flags, and our ``--ignore`` and ``--overwrite``."""
    made = _Parser(
        usage=f"prep-assets {command} --input FILE --output-prefix PREFIX [flags]",
        allow_abbrev=False,
        description="ModelLink's preprocessing. With prep-assets migrate, the same flags are printed as a configuration.",
    )
    add = made.add_argument
    add("--input", required=True, help="File, folder or glob of rows, or an address such as hub://owner/name@COMMIT/*.parquet.")
    add("--output-prefix", required=True, type=Path, help="Where the files go, and how their names begin.")
    add("--handler-name", default=GENERAL, help=f"How a row is read; {GENERAL} if left out. Known: {', '.join(HANDLERS)}.")
    add("--json-keys", nargs="+", help="Fields that become documents, a pair of files each; text if left out.")
    add("--tokenizer-type", default=HF, choices=TOKENIZERS, help="What the tokenizer's files are.")
    add("--tokenizer-name-or-path", help="Folder of the tokenizer, or its file.")
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
    return made


def parsed(words: Sequence[str], command: str = "preprocess") -> argparse.Namespace:
    """The flags by name. A command line that means nothing ends the program with 2, and one sentence for each flag that is not honoured."""
    made = parser(command)
    if refused := [flag for flag in dict.fromkeys(word.partition("=")[0] for word in words) if flag in REFUSED]:
        made.error("\n".join(f"{flag}: {REFUSED[flag]}" for flag in refused))
    flags, unknown = made.parse_known_args(words)
    if unknown:
        made.error(f"{unknown[0]!r} is no flag{nearest(unknown[0], made._option_string_actions)}")
    unread = [name for name, handlers in READ_BY.items() if getattr(flags, name) and flags.handler_name not in handlers]
    if unread and flags.handler_name in HANDLERS:
        made.error(f"{', '.join(map(_flag, unread))}: {flags.handler_name} does not read it, so leave it out")
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


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a command line comes to.

    Attributes:
        family: which family's file it is.
        values: of that file.
        notes: what is not as in ModelLink, and what else a reader should know; one sentence each.
    """

    family: str
    values: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The file."""
        body = yaml.safe_dump(dict(self.values), sort_keys=False, allow_unicode=True, width=120)
        notes = [f"# - {note}" for note in self.notes]
        return "\n".join([f"# configs/{self.family}.yaml, from a command line of ModelLink.", body + "\n".join([*notes, ""])])


def configuration(flags: argparse.Namespace) -> Configuration:
    """What the flags say, in this project's terms. The first rows and the tokenizer are looked at where they decide.

    Raises:
        ConfigError: an unknown handler or prompt type, or flags that contradict each other.
        SourceError: no such rows.
    """
    handler = flags.handler_name
    if handler in ELSEWHERE:
        raise ConfigError(f"--handler-name {handler}: {ELSEWHERE[handler]}")
    if handler not in HANDLERS:
        raise ConfigError(f"no handler {handler!r}{nearest(handler, HANDLERS) or '.'} Known: {', '.join(HANDLERS)}")
    family, notes = HANDLERS[handler], list[str]()
    values = {"tokenizer": _tokenizer(flags), **({"pad_vocab_to": flags.pad_vocab_size_to} if flags.pad_vocab_size_to else {})}
    values |= {"pretrain": _pretrain, "sft": _sft, "preference": _preference}[family](flags, notes)
    values |= {
        "preprocessing": {"max_seq_len": _longest(flags, family, notes), "deduplicate": False},
        "output": {"storage_format": "bin", "dtype": "int32"},
    }
    checked(FAMILIES[family], values, "the configuration of this command line")
    return Configuration(family, values, tuple(notes))


def _longest(flags: argparse.Namespace, family: str, notes: list[str]) -> int | None:
    """--seq-length as max_seq_len, which counts a document without the tokens around its text."""
    if flags.seq_length is None:
        return None
    notes.append(f"a row of exactly {flags.seq_length:,} tokens stays; ModelLink leaves it out")
    length: int = flags.seq_length
    if family != "pretrain":
        return length
    around = ends_of(load_vocabulary(_tokenizer(flags)), "auto" if flags.tokenizer_type == HF else "false", flags.append_eod).count
    if around:
        notes.append(f"max_seq_len is {length - around:,}: it counts a text without its begin-of-text and end-of-text token")
    return length - around


def _tokenizer(flags: argparse.Namespace) -> str:
    needed = TOKENIZERS[flags.tokenizer_type]
    others = {name for names in TOKENIZERS.values() for name in names} - {*needed}
    if unread := [_flag(name) for name in sorted(others) if getattr(flags, name)]:
        raise ConfigError(f"{', '.join(unread)}: --tokenizer-type {flags.tokenizer_type} does not read it, so leave it out")
    if missing := [_flag(name) for name in needed if not getattr(flags, name)]:
        raise ConfigError(f"--tokenizer-type {flags.tokenizer_type} needs {' and '.join(missing)}")
    places = [Path(getattr(flags, name)).expanduser().absolute() for name in needed]
    if gone := [str(place) for place in places if not place.exists()]:
        raise ConfigError(f"no tokenizer in {', '.join(gone)}. One of the hub has to be fetched first: its name does not say which commit")
    if len({place.parent for place in places}) > 1:
        raise ConfigError(f"{' and '.join(map(str, places))} belong into one folder, or another vocabulary than this would be read")
    if flags.tokenizer_type.startswith("Bert"):
        _check_case(places[0], flags.tokenizer_type == "BertWordPieceLowerCase")
    return str(places[0])


def _check_case(vocabulary: Path, lower: bool) -> None:
    """Stop where the file beside a WordPiece vocabulary says otherwise than the flag."""
    settings = vocabulary.with_name("tokenizer_config.json")
    if settings.is_file() and json.loads(settings.read_bytes()).get("do_lower_case", lower) != lower:
        raise ConfigError(f"{settings} says do_lower_case: {not lower}, the --tokenizer-type says {lower}. Make them agree")


def _domain(flags: argparse.Namespace, options: Mapping[str, Any], ignore: Sequence[str] = ()) -> dict[str, Any]:
    convert_with(flags.handler_name, options)
    further = {"options": dict(options), "ignore": [*ignore, *flags.ignore], "max_items": flags.max_samples}
    return {"files": [_source(flags)], "schema": flags.handler_name, **{key: value for key, value in further.items() if value}}


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
    if others := sorted(columns - {*keys}):
        notes.append(f"--json-keys {' '.join(keys)}: {', '.join(others)} of the rows is not read")
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
    """The fields that become documents, of a handler for pretraining."""
    own = KEYS[flags.handler_name]
    keys: list[str] = flags.json_keys or [own or "text"]
    if own and keys != [own]:
        raise ConfigError(f"--json-keys {' '.join(keys)}: {flags.handler_name} writes {own!r} and nothing else. Leave it out")
    return keys


def _columns(flags: argparse.Namespace) -> set[str]:
    """The fields of the first rows, where --json-keys chooses among them."""
    if flags.handler_name not in (GENERAL, SHAREGPT):
        return set()
    first = next(iter(read_blocks(find_files([_source(flags)], Path.cwd())[0], 0)), None)
    return {key for record in (first.records if first else ()) for key in record.payload}


def _sft(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    if flags.neat_pack and not flags.pack:
        raise ConfigError("--neat-pack is a way to --pack: give both")
    if flags.pack and not flags.seq_length:
        raise ConfigError("--pack needs --seq-length, the tokens of a row")
    values: dict[str, Any] = {**_template(flags, notes)}
    if flags.handler_name == "BelleMultiTurnInstructionHandler":
        values["train_turns"] = "last"
    values["domains"] = {"data": _domain(flags, _mapped(flags))}
    if not flags.pack:
        return {**values, "exports": _export("sft_tokens", flags, layout="instruction")}
    notes.append("a packed row is filled to its last token; ModelLink leaves one free")
    packing = {"strategy": "ffd", "row_len": flags.seq_length, "shuffle": False}
    return {**values, "packing": packing, "exports": _export("sft_packed", flags, neat=flags.neat_pack)}


def _preference(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    values = {**_template(flags, notes), "test_fraction": 0.0, "shuffle": False}
    return {**values, "domains": {"data": _domain(flags, _mapped(flags))}, "exports": _export("preference_tokens", flags)}


def _mapped(flags: argparse.Namespace) -> dict[str, Any]:
    return {"map_keys": flags.map_keys} if flags.map_keys else {}


def _template(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    """The chat template of a handler, and what ends an answer."""
    handler = flags.handler_name
    if handler in BY_PROMPT_TYPE or handler in PAIRWISE:
        return _prompt_type(flags, notes)
    if handler == HUNYUAN:
        return {"template": "tokenizer"}
    template = MOSS.get(handler, "alpaca")
    if template != "alpaca":
        return {"template": template}
    if handler == "GeneralInstructionHandler":
        notes.append("an instruction without an input has no line break behind it")
    return {"template": template, **_ended(flags, notes, _begun(flags, notes))}


def _begun(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    """Whether the text begins with the begin-of-text token, which the handlers of Alpaca's text leave to the tokenizer."""
    vocabulary = load_vocabulary(_tokenizer(flags))
    if flags.tokenizer_type != HF or ends_of(vocabulary, "auto").bos is None:
        return {}
    bos, encode = vocabulary.special["bos_token"], vocabulary.backend.encode
    if encode("\n").ids != encode(f"{bos}\n", add_special_tokens=False).ids:
        notes.append(f"no piece for a space stands between {bos} and the text, which the tokenizer has where it adds {bos} itself")
    return {"begin_with_bos": True}


def _ended(flags: argparse.Namespace, notes: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """What --append-eod says of a template whose answers have no stop of their own."""
    if flags.append_eod:
        return {"template_options": {**options, "end_with_eos": "last"}}
    notes.append(
        "without --append-eod no token ends an answer, so a model does not learn to stop; what follows the answer's text is not trained"
    )
    return {"template_options": {**options, "end_with_eos": False}, "train_on_eos": "none"}


def _prompt_type(flags: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    if not flags.prompt_type:
        raise ConfigError(f"{flags.handler_name} needs --prompt-type: the chat format, such as llama2 or qwen")
    if flags.enable_thinking in ("true", "false"):
        raise ConfigError(
            f"--enable-thinking {flags.enable_thinking}: reasoning in the rows is kept and trained, and the empty thought of an answer without "
            "any is written and not trained, which is what none means. Leave it out"
        )
    file = flags.prompt_type_path and flags.prompt_type_path.expanduser().absolute()
    found = load_prompt_type(flags.prompt_type, file)
    template = {"template": f"{file}#{found.name}" if file else f"prompt_type:{found.name}"}
    if found.open_ended and not found.efficient_eos and flags.handler_name not in PAIRWISE:
        return {**template, **_ended(flags, notes, {})}
    if flags.append_eod:
        notes.append(f"--append-eod: what {found.name} writes ends each answer with a stop token already, and no second one follows")
    return template


# -- running it -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has written.

    Attributes:
        workspace: the configuration and the stores beside the files.
        files: what trainers open, a ``.bin`` and an ``.idx`` for each key.
        stores: everything on the way, source first.
        was_there: whether all of it was there already, so that nothing was done.
    """

    workspace: Workspace
    files: tuple[Path, ...]
    stores: tuple[Published, ...]
    was_there: bool

    @property
    def read(self) -> int:
        """Rows of source."""
        return sum(store.manifest.counts["read"] for store in self.stores if store.manifest.asset.endswith("_raw"))

    @property
    def written(self) -> tuple[int, int]:
        """Sequences, and their tokens, without padding."""
        counts = [store.manifest.counts for store in self.stores if store.manifest.asset.endswith("_export_megatron")]
        return sum(count["rows"] for count in counts), sum(count["tokens"] for count in counts)

    @property
    def refused(self) -> Counter[str]:
        """Rows that were left out, by stage/reason."""
        return sum((Counter(store.manifest.counts.get("refused", {})) for store in self.stores), Counter[str]())

    @property
    def too_long(self) -> Iterator[Refusal]:
        """The rows that are longer than ``--seq-length``."""
        for store in self.stores:
            if store.quarantine:
                yield from (row for row in read_quarantine(store.quarantine) if (row.stage, row.reason) == ("tokenize", "too_long"))


def preprocess(flags: argparse.Namespace, configured: Configuration, tell: Tell = lambda event: None) -> Outcome:
    """Write the files of a prefix, unless they are there and come from these flags, rows and tokenizer.

    Raises:
        ConfigError: files of this prefix come from something else, and nobody said ``--overwrite``.
        PrepAssetsError: the build does not get through, or a check does not hold; no file of the prefix has changed.
    """
    prefix = flags.output_prefix.expanduser().absolute()
    folder = prefix.with_name(prefix.name + STORES)
    workspace = Workspace(folder / "configs", folder / "stores", workers=flags.workers)
    workspace.configs.mkdir(parents=True, exist_ok=True)
    file = workspace.configs / f"{configured.family}.yaml"
    before = file.read_text("utf-8") if file.is_file() else None
    write_text(file, configured.text)
    asset = asset_named(f"{configured.family}_export_megatron", workspace)
    steps = plan(workspace, [(asset, partition) for partition in asset.partitions(workspace)])
    current = [step.standing.published for step in steps if step.requested and not step.why and step.standing and step.standing.published]
    verified = [store for store in current if _is_verified(store)]
    links, existing = _links(prefix, verified), _existing(prefix, flags)
    foreign = [path for path in existing if path not in links or not _same(links[path], path)]
    if foreign and not flags.overwrite:
        file.unlink() if before is None else write_text(file, before)
        why = next((f" ({step.label}: {step.why})" for step in steps if step.why), "")
        raise ConfigError(
            f"{', '.join(path.name for path in foreign)} in {prefix.parent}: not what these flags, rows and tokenizer give{why}. "
            "Name another --output-prefix, or replace what is there with --overwrite"
        )
    was_there = not any(step.why for step in steps) and len(verified) == len(current) and {*links} == {*existing} and not foreign
    if not was_there:
        links = _links(prefix, _built(workspace, asset.name, force=len(verified) < len(current), tell=tell))
        _place(links, existing)
    chain = (store for partition in asset.partitions(workspace) for store in _chain(workspace, asset, partition))
    return Outcome(workspace, tuple(sorted(links)), tuple({store.where: store for store in chain}.values()), was_there)


def _is_verified(published: Published) -> bool:
    """Whether its files are what its manifest says. The prefix's files are links to these, and anybody may have written into them."""
    try:
        published.verify()
    except StoreError:
        return False
    return True


def _built(workspace: Workspace, asset: str, *, force: bool, tell: Tell) -> list[Published]:
    try:
        return [result.published for result in build(workspace, asset, force=force, tell=tell)]
    except PrepAssetsError as error:
        if "\n  ignore: " not in str(error):
            raise
        raise ConfigError(f"{error}\nHere that is --ignore FIELD, once for each field") from error


def _existing(prefix: Path, flags: argparse.Namespace) -> list[Path]:
    """Files that a trainer would take for the prefix's."""
    level = "sentence" if flags.split_sentences else "document"
    keys = [glob.escape(key) for key in json_keys(flags)] if flags.handler_name in KEYS else ["packed_*"]
    name = glob.escape(prefix.name)
    return sorted(path for key in keys for kind in ("bin", "idx") for path in prefix.parent.glob(f"{name}_{key}_{level}.{kind}"))


def _links(prefix: Path, exports: Sequence[Published]) -> dict[Path, Path]:
    """What stands beside the prefix → the file of an export that it is. An export says ``text`` of whatever field a document was."""
    links = {}
    for store in exports:
        for name in store.manifest.files:
            key = name.removeprefix(f"{prefix.name}_")
            key = key.replace("text", store.manifest.partition, 1) if key.startswith("text_") else key
            links[prefix.with_name(f"{prefix.name}_{key}")] = store.directory / name
    return links


def _same(source: Path, path: Path) -> bool:
    return path.samefile(source) or (path.stat().st_size == source.stat().st_size and file_hash(path) == file_hash(source))


def _place(links: Mapping[Path, Path], existing: Sequence[Path]) -> None:
    """Put the files of an export beside the prefix: an index goes before its data and comes after, so that none stands beside other data."""
    for path in sorted(existing, key=lambda path: path.suffix, reverse=True):
        path.unlink()
    for path, source in sorted(links.items(), key=lambda link: link[0].suffix):
        try:
            os.link(source, path)
        except OSError:  # a file system without hard links
            shutil.copyfile(source, path)


def _chain(workspace: Workspace, asset: Asset, partition: str) -> Iterator[Published]:
    """The current stores that one store is made from, and that one, source first."""
    for above, partition_above in upstream_of(workspace, asset, partition):
        yield from _chain(workspace, above, partition_above)
    if published := workspace.published(asset.name, partition):
        yield published


def inspecting(workspace: Workspace) -> str:
    """What makes other commands look at the stores of a run, for a shell."""
    return f"PREP_ASSETS_CONFIG_DIR={shlex.quote(str(workspace.configs))} PREP_ASSETS_STORE_DIR={shlex.quote(str(workspace.stores))}"
