"""An AstrAI pipeline as a configuration of the asset graph: the YAML, and comments about what it cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from prep_assets.astrai.config import AnyPipeline
from prep_assets.astrai.task import Task, task_of
from prep_assets.config.loading import parse
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError
from prep_assets.schemas.registry import convert_with

_GROUP = ["prompts", "responses", "rewards"]
_PACKED = {"simple": "concat", "bfd": "bfd", "bfd_split": "bfd_split"}


def migrated(pipeline: AnyPipeline, name: str, *, files: Sequence[str], tokenizer: str, domain: str) -> str:
    """The text of a ``pretrain.yaml``, ``sft.yaml``, ``preference.yaml`` or ``rl.yaml``, which the loader accepts.

    Args:
        name: of the pipeline file, for the first comment.
        files, tokenizer, domain: what a pipeline JSON does not say; see `Domain.files` and `Family.tokenizer`.

    Raises:
        ConfigError: no family can hold it, or its sections do not come to examples.
    """
    task = task_of(pipeline)
    family = _family(task)
    schema, options = _schema(task, family)
    convert_with(schema, options)
    source: dict[str, Any] = {"files": list(files), "schema": schema, **({"options": options} if options else {})}
    output: dict[str, Any] = {}
    values: dict[str, Any] = {"tokenizer": tokenizer, "domains": {domain: source}, "output": output}
    fill = {"pretrain": _pretrain, "sft": _sft, "preference": _preference, "rl": _rl}[family]
    notes = [*_domain(task, source), *_output(task, family, output), *fill(task, values)]
    parse(FAMILIES[family], values, f"the configuration migrated from {name}")
    body = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    said = [f"# - {note}" for note in notes]
    return "\n".join([f"# configs/{family}.yaml, from {name} by prep-assets migrate.", body + "# Not the same as in AstrAI:", *said, ""])


def _family(task: Task) -> str:
    if task.single:
        return "pretrain" if task.is_text else "sft"
    if sorted(task.sources) == ["chosen", "rejected"]:
        return "preference"
    if sorted(task.sources) == _GROUP:
        return "rl"
    raise ConfigError(
        f"sources {', '.join(task.sources)} cannot be migrated: the graph's families hold documents, chats, pairs (chosen, rejected) and "
        "groups (prompts, responses, rewards). prep-assets preprocess runs this pipeline as it is"
    )


def _schema(task: Task, family: str) -> tuple[str, dict[str, Any]]:
    """The schema that reads the same records, and its options."""
    sections = task.pipeline.input.sections or ()
    if task.single and len(sections) == 1 and sections[0].template and sections[0].action == "$role":
        return "messages", {"messages_key": sections[0].field}
    bounds = task.pipeline.preprocessing.model_dump(include={"min_chars", "max_chars"})
    if task.is_text and len(sections) == 1:
        return "text", {"text_key": sections[0].field, **bounds}
    if task.single and [(section.action, section.template) for section in sections] == [("mask", False), ("train", False)]:
        return "instruction", {"prompt_key": sections[0].field, "response_key": sections[1].field}
    keep = {"field", "action", "template"}
    if task.single:
        listed_sections = [section.model_dump(include=keep) for section in sections]
        return "sections", {"sections": listed_sections, **(bounds if task.is_text else {})}
    if family == "rl" and task.sources["prompts"].is_templated:
        return "group", _group_fields(task)
    listed: dict[str, dict[str, Any]] = {
        key: {"sections": [section.model_dump(include=keep) for section in source.sections]} for key, source in task.sources.items()
    }
    if family == "rl":
        if any(source.is_templated for source in task.sources.values()):
            raise ConfigError(
                "responses with a template after prompts without one cannot be migrated: a conversation is rendered, or it is not"
            )
        listed["responses"]["list_field"] = True
    return "sections", {"sources": listed}


def _group_fields(task: Task) -> dict[str, Any]:
    found = {}
    for key, option in zip(_GROUP, ("prompt_key", "responses_key", "rewards_key"), strict=True):
        sections = task.sources[key].sections
        if len(sections) != 1:
            raise ConfigError(f"{key} of {len(sections)} sections cannot be migrated where prompts have a template: a prompt is one field")
        found[option] = sections[0].field
    return found


def _domain(task: Task, source: dict[str, Any]) -> Iterator[str]:
    """Fill in the domain, and say what is not the same."""
    if any(section.add_special_tokens is not None for section in task.pipeline.input.sections or ()):
        yield "add_special_tokens: the template, or the end-of-text token after a completion, decides about special tokens"
    key, limit = task.pipeline.output.domain_key, task.pipeline.preprocessing.max_items
    if key is not None:
        source.update(domains="auto", domain_key=key)
        yield "domain_key: AstrAI puts values other than text into __default__; here a number is the domain of its text, and a list stops the build"
    if limit is not None:
        source["max_items"] = limit
        each = " of each domain" if key is not None else ""
        yield f"max_items counts the records{each} that are read; AstrAI counts those that are kept"
    if task.deduplicate:
        yield "deduplicate compares whole records of one domain; AstrAI their first 200 characters, over all domains"


def _output(task: Task, family: str, values: dict[str, Any]) -> Iterator[str]:
    output = task.pipeline.output
    dtype = task.columns[task.primary].dtype
    if dtype not in ("int32", "int64"):
        yield f"output.dtype: ids are int32, not {dtype}"
        dtype = "int32"
    for key in output.dtype:
        if key != task.primary:
            yield f"output.dtype.{key}: masks and position ids have fixed types"
    # an h5 store is one file, but for the tokens of SFT, which are always `bin`
    shards = {"max_tokens_per_shard": output.max_tokens_per_shard} if output.storage_format == "bin" or family == "sft" else {}
    values.update(storage_format=output.storage_format, dtype=dtype, **shards)


def _pretrain(task: Task, values: dict[str, Any]) -> Iterator[str]:
    steps = task.pipeline.preprocessing
    values["preprocessing"] = {"max_seq_len": None, "deduplicate": task.deduplicate}
    yield f"max_seq_len {steps.max_seq_len}: documents stay whole in the token stream; AstrAI cuts them off there"
    yield "each document ends with the end-of-text token; AstrAI adds what the tokenizer's post-processor adds"
    if task.is_binned:
        yield f"packing_strategy {steps.packing_strategy}: the stream is not packed; its trainer reads windows of it"
    if task.pipeline.output.position_ids_mode != "none":
        yield "position_ids: not stored with a stream of documents"


def _sft(task: Task, values: dict[str, Any]) -> Iterator[str]:
    steps = task.pipeline.preprocessing
    templated = task.sources[task.primary].is_templated
    if templated:
        values.update(template="tokenizer", mask=dict(task.pipeline.mask), mask_default=task.pipeline.mask_default, train_headers=True)
        yield "the conversation is rendered once, as transformers does, so there is no beginning-of-text token but the template's own"
        yield "train_headers trains the role headers as AstrAI does; white space after a stop token is not trained. Leave it out to train answers only"
    else:
        # the schema's own turns: a prompt, and a completion that ends with the end-of-text token
        values.update(mask={"prompt": "mask", "completion": "train"}, mask_default="mask")
    values["preprocessing"] = {"max_seq_len": steps.max_seq_len, "deduplicate": task.deduplicate}
    values["truncation"] = "end"
    packing: dict[str, Any] = {"strategy": _PACKED[steps.packing_strategy], "row_len": max(2, steps.max_packed_len), "shuffle": False}
    if steps.packing_strategy == "bfd":
        packing["overlong"] = "truncate"
    values["packing"] = packing
    yield "records without a trained token are refused; AstrAI keeps them"
    yield "sft_packed holds rows of packing.row_len tokens: set it to the trainer's window. AstrAI writes one flat stream"
    if steps.truncation_mode == "keep_end":
        yield "truncation_mode keep_end: a document longer than a row keeps its start"
    if task.pipeline.output.position_ids_mode == "continuous":
        yield "position_ids_mode continuous: position ids begin at 0 in each document"


def _preference(task: Task, values: dict[str, Any]) -> Iterator[str]:
    steps = task.pipeline.preprocessing
    values["preprocessing"] = {"max_seq_len": steps.max_seq_len, "deduplicate": task.deduplicate}
    values.update(template="tokenizer", form="messages", shuffle=False, test_fraction=0.0)
    yield "the prompt that both sides share is stored once; only the answers are trained, whatever mask says of other roles"
    yield "a pair that is longer than max_seq_len is refused; AstrAI cuts it off there"


def _rl(task: Task, values: dict[str, Any]) -> Iterator[str]:
    steps = task.pipeline.preprocessing
    values["preprocessing"] = {"max_seq_len": steps.max_seq_len, "deduplicate": task.deduplicate}
    values.update(template="tokenizer", test_fraction=0.0)
    yield "a response ends with the token that ends a turn, or the text, and that token is trained; AstrAI writes the text alone"
    if task.sources["prompts"].is_templated:
        yield "a prompt ends with the generation prompt, and a response is rendered after it as the assistant's turn"
    yield "a group of which one response does not fit in max_seq_len, with its prompt, is refused; AstrAI cuts responses off there"
    yield "responses are trained, whatever mask says; rewards are float32"
