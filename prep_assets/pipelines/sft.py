"""SFT: instructions and chats → token ids with a loss mask, per domain → one packed table that mixes all domains."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.config.models import Chat, Sft
from prep_assets.errors import CheckFailed, PrepAssetsError, Refused, StoreError, TemplateError
from prep_assets.packing import Mixture, PackPlan, gather_rows, mix, pack, position_ids
from prep_assets.pipelines.build import Build
from prep_assets.pipelines.commands import materialize_command
from prep_assets.pipelines.examples import Deduplicator, Item, Tally, content_digest, examples, held_out
from prep_assets.pipelines.routing import router_of
from prep_assets.pipelines.sources import domain_of, pinned
from prep_assets.pipelines.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.pipelines.versions import SFT as VERSION
from prep_assets.pipelines.workspace import Workspace
from prep_assets.quality.trained_texts import MaskOptions, expected_texts
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import IMAGE, Sample
from prep_assets.stores.packed import PackedWriter, open_packed, write_documents
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import RecordWriter, Segmented, TokenStore, open_tokens, record_writer
from prep_assets.templates.certify import Certificate, certify
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.control_text import SpecialInContent, control_pattern, treat
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoded, Encoder
from prep_assets.tokenization.policy import MaskPolicy
from prep_assets.tokenization.truncation import rounds, without_oldest_rounds

RAW = "sft_raw"
TOKENS = "sft_tokens"
CERTIFICATE = "sft_template"
MASK_OPTIONS = (
    *("mask", "mask_default", "train_on_eos", "train_turns", "train_thinking", "train_tool_calls", "train_headers"),
    *("special_in_content", "truncation", "truncation_keeps_stop"),
)
"""Options of the family that decide the loss mask."""
ROW_BLOCK = 4096
"""Rows that are materialized at a time."""


class _FractionalWeights(Exception):
    """A loss weight is neither 0 nor 1, so the mask needs float32."""


def splits(workspace: Workspace, name: str) -> tuple[str, ...]:
    """Streams of a domain's token store: ``train``, and ``dev`` where anything is held out."""
    family = workspace.family(Sft)
    return ("train", "dev") if family.test_fraction > 0 or domain_of(family, name).test_files else ("train",)


def policy(family: Sft) -> MaskPolicy:
    """The mask policy that the configuration asks for."""
    return MaskPolicy(
        family.mask,
        family.mask_default,
        family.train_on_eos,
        family.train_turns,
        thinking=family.train_thinking,
        tool_calls=family.train_tool_calls,
        headers=family.train_headers,
    )


def check_policy(workspace: Workspace) -> Certificate:
    """The certificate of the family's template.

    Raises:
        TemplateError: the template cannot support what the configuration asks of it; nothing has been read yet.
    """
    family = workspace.family(Sft)
    certificate = certify(workspace.template(family))
    faults = certificate.faults(train_on_eos=family.train_on_eos, train_headers=family.train_headers)
    if faults:
        raise TemplateError("; ".join(faults))
    return certificate


def certificate_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the certificate depends on."""
    family = workspace.family(Sft)
    return {
        "stage": CERTIFICATE,
        "version": VERSION,
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
    }


def certificate_build(workspace: Workspace, _: str = "") -> Build:
    """Write down what the family's chat template does with conversations."""

    def write(payload: Path, quarantine: Path) -> Draft:
        certificate = certify(workspace.template(workspace.family(Sft))).as_dict()
        (payload / "certificate.json").write_text(json.dumps(certificate, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return Draft({}, {}, ())

    return Build(
        workspace.place(CERTIFICATE), certificate_recipe(workspace), certificate_recipe(workspace.plain), write, lambda payload: None
    )


def chat_recipe(workspace: Workspace, family: Chat, raw: str, name: str) -> dict[str, Any]:
    """What the tokens of a conversation depend on, whatever the family."""
    domain = domain_of(family, name)
    published = workspace.published(raw, name)
    return {
        "domain": name,
        "raw": published.manifest.content_hash if published else None,
        "schema": domain.reading,
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        "preprocessing": family.preprocessing.model_dump(),
        "test_fraction": getattr(family, "test_fraction", 0.0),
    }


def tokens_recipe(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's SFT tokens depend on."""
    family = workspace.family(Sft)
    mask = family.model_dump(include=set(MASK_OPTIONS))
    output = family.output.model_dump(include={"dtype", "max_tokens_per_shard"})
    return {"stage": TOKENS, "version": VERSION, **chat_recipe(workspace, family, RAW, name), **mask, "output": output}


def tokens_build(workspace: Workspace, name: str) -> Build:
    """Render, tokenize and mask one domain. The store is always `bin`: the canonical, memory-mapped one that packs and exports read."""
    vocabulary, names = workspace.vocabulary(workspace.family(Sft)), splits(workspace, name)
    check_policy(workspace)

    def write(payload: Path, quarantine: Path) -> Draft:
        try:
            return _write_tokens(workspace, name, names, payload, quarantine, "uint8")
        except _FractionalWeights:
            for left in payload.iterdir():
                shutil.rmtree(left)
            return _write_tokens(workspace, name, names, payload, quarantine, "float32")

    def audit(payload: Path) -> None:
        for stream in names:
            store = audit_stream(payload, stream, vocabulary)
            if len(store) and not np.logical_or.reduceat(np.asarray(store.arrays["loss_mask"][:]) != 0, store.starts).all():
                raise StoreError(f"{name}/{stream}: a record has no trained token")

    recipe = tokens_recipe(workspace, name)
    return Build(workspace.place(TOKENS, name), recipe, tokens_recipe(workspace.plain, name), write, audit)


def _write_tokens(workspace: Workspace, name: str, names: Sequence[str], payload: Path, quarantine_path: Path, loss_dtype: str) -> Draft:
    family = workspace.family(Sft)
    vocabulary = workspace.vocabulary(family)
    encoder = Encoder(
        vocabulary,
        workspace.engines(family),
        policy(family),
        family.preprocessing.max_seq_len,
        truncation=family.truncation,
        keep_stop=family.truncation_keeps_stop,
    )
    dtypes = {"tokens": ids_dtype(family, vocabulary), "loss_mask": loss_dtype}
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        shard = family.output.max_tokens_per_shard
        writers = [stack.enter_context(record_writer("bin", payload, stream, dtypes, max_tokens_per_shard=shard)) for stream in names]
        counts = _encode_domain(workspace, name, encoder, writers, quarantine, np.dtype(loss_dtype))
        counts["refused"] = quarantine.counts
    metrics = {"trained_fraction": counts["trained_tokens"] / max(1, counts["tokens"])}
    return Draft(counts, metrics, ("ids inside the vocabulary", "every record has a trained token"))


def _encode_domain(
    workspace: Workspace, name: str, encoder: Encoder, writers: list[RecordWriter], quarantine: Quarantine, loss_dtype: np.dtype[Any]
) -> dict[str, Any]:
    family = workspace.family(Sft)
    domain, sources, template = domain_of(family, name), pinned(workspace, Sft, RAW, name), workspace.template(family)
    deduplicator = Deduplicator() if family.preprocessing.deduplicate else None
    counts = {"read": 0, "kept": 0, "tokens": 0, "trained_tokens": 0, "kept_dev": 0}
    conversations = Conversations(template, encoder, family.special_in_content, workspace.configs / domain.image_dir, quarantine)
    done = 0
    for files, in_test, offset in ((sources.files, False, 0), (sources.test_files, True, len(sources.files))):
        tally = Tally()
        chosen = domain if not in_test else domain.model_copy(update={"max_items": None})
        for items, size in examples(chosen, router_of(family, name), files, quarantine, tally, deduplicator=deduplicator):
            kept, encoded = conversations.encode(items)
            if loss_dtype.kind != "f" and ((encoded.loss != 0) & (encoded.loss != 1)).any():
                raise _FractionalWeights
            to_dev = np.array([in_test or held_out(content_digest(item.record), family.test_fraction) for item in kept], bool)
            for split, writer in enumerate(writers):
                write_records(writer, encoded, kept, to_dev == bool(split), {"tokens": encoded.ids, "loss_mask": encoded.loss}, offset)
            counts["kept"] += len(kept)
            counts["kept_dev"] += int(to_dev.sum())
            counts["tokens"] += len(encoded.ids)
            counts["trained_tokens"] += int((encoded.loss != 0).sum())
            done += size
            workspace.progress(f"tokenize {name}", done, sources.bytes)
        counts["read"] += tally.read
    counts["control_tokens_in_content"] = conversations.control_tokens
    return counts


@dataclass
class Conversations:
    """Renders and tokenizes blocks of samples.

    Attributes:
        template, encoder: how.
        special_in_content: what happens to control tokens that are typed in content.
        images: folder that paths of images are relative to.
        quarantine: where refused records go.
        control_tokens: how many control tokens were found in contents so far.
    """

    template: ChatTemplate
    encoder: Encoder
    special_in_content: SpecialInContent
    images: Path
    quarantine: Quarantine
    control_tokens: int = 0

    def encode(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        """The kept items of a block and their tokens; the others are in quarantine."""
        rendered: list[Rendered] = []
        at: list[Item] = []
        for item in items:
            try:
                sample, count = treat(self._sample(item), self._pattern, self.special_in_content)
                self.control_tokens += count
                rendered.append(self._render(sample))
                at.append(item)
            except Refused as refusal:
                item.refuse(self.quarantine, refusal)
        encoded = self.encoder.encode(rendered)
        if self.encoder.truncation == "turns" and any(refusal.reason == "too_long" for _, refusal in encoded.refused):
            rendered = [self._shortened(item, whole) for item, whole in zip(at, self._marked_long(rendered, encoded), strict=True)]
            encoded = self.encoder.encode(rendered)
        for position, fault in encoded.refused:
            at[position].refuse(self.quarantine, fault)
        return [at[int(position)] for position in encoded.kept], encoded

    def _sample(self, item: Item) -> Sample:
        if not isinstance(item.example, Sample):
            raise Refused("not_a_sample", f"the schema gives {type(item.example).__name__}, SFT needs a Sample", stage="render")
        for region in (region for turn in item.example.turns for region in turn.regions):
            # pictures are never decoded; one that is not there would be trained on as if it were
            if region.kind == IMAGE and "://" not in region.text and not (self.images / region.text).is_file():
                raise Refused("missing_image", f"no file {self.images / region.text}", stage="render")
        return item.example

    def _render(self, sample: Sample) -> Rendered:
        rendered = render(sample, self.template)
        try:
            expected_texts(sample, self._options, self.template)
        except CheckFailed as error:  # such as reasoning that is not where a growing render has it
            raise Refused("mask_not_provable", str(error), stage="render") from error
        return replace(rendered, content=()) if self.special_in_content == "allow" else rendered

    @cached_property
    def _options(self) -> MaskOptions:
        policy = self.encoder.policy
        return MaskOptions(
            policy.roles,
            policy.default,
            policy.train_on_eos,
            policy.turns,
            train_thinking=policy.thinking,
            train_tool_calls=policy.tool_calls,
            train_headers=policy.headers,
        )

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return control_pattern(self.encoder.vocabulary.control)

    @staticmethod
    def _marked_long(rendered: list[Rendered], encoded: Encoded) -> list[tuple[Rendered, bool]]:
        long = {position for position, refusal in encoded.refused if refusal.reason == "too_long"}
        return [(each, position in long) for position, each in enumerate(rendered)]

    def _shortened(self, item: Item, whole: tuple[Rendered, bool]) -> Rendered:
        """The render with as few of the oldest rounds left out as makes it fit; the whole one where nothing does."""
        rendered, is_long = whole
        if not is_long:
            return rendered
        sample, _ = treat(self._sample(item), self._pattern, self.special_in_content)
        few, many = 1, len(rounds(sample)) - 1
        found = rendered
        while few <= many:
            count = (few + many) // 2
            try:
                shorter = self._render(without_oldest_rounds(sample, count))
            except Refused:
                return rendered
            if not any(refusal.reason == "too_long" for _, refusal in self.encoder.encode([shorter]).refused):
                found, many = shorter, count - 1
            else:
                few = count + 1
        return found


def write_records(
    writer: RecordWriter,
    encoded: Encoded,
    items: Sequence[Item],
    chosen: npt.NDArray[np.bool_],
    arrays: dict[str, npt.NDArray[Any]],
    file_offset: int,
) -> None:
    """Write the chosen records of a batch to a stream."""
    lengths = np.diff(encoded.offsets)
    tokens = np.repeat(chosen, lengths)
    block = {key: array if chosen.all() else array[tokens] for key, array in arrays.items()}
    origin = [item for item, take in zip(items, chosen, strict=True) if take]
    writer.append(block, lengths[chosen], [item.record.file + file_offset for item in origin], [item.record.row for item in origin])


# -- packing ----------------------------------------------------------------------------------------------------------------------------


def packed_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the packed table depends on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Sft)
    stores = {name: workspace.published(TOKENS, name) for name in sorted(family.domains)}
    return {
        "stage": "sft_packed",
        "version": VERSION,
        "tokens": {name: store.manifest.content_hash if store else None for name, store in stores.items()},
        "packing": family.packing.model_dump(),
        "storage_format": family.output.storage_format,
        "pad_id": workspace.vocabulary(family).pad_id,
    }


def packed_build(workspace: Workspace, _: str = "") -> Build:
    """Mix all domains and pack them into rows: `sft_packed`, and `sft_dev_packed` where anything is held out."""
    family = workspace.family(Sft)
    held = {name: len(splits(workspace, name)) > 1 for name in family.domains}
    tables = {"sft_packed": "train", **({"sft_dev_packed": "dev"} if any(held.values()) else {})}

    def write(payload: Path, quarantine: Path) -> Draft:
        counts: dict[str, Any] = {}
        metrics: dict[str, Any] = {}
        for table, split in tables.items():
            chosen = [name for name in sorted(family.domains) if split == "train" or held[name]]
            found, measured = _write_table(workspace, table, split, chosen, payload)
            prefix = "" if table == "sft_packed" else "dev_"
            counts |= {prefix + key: value for key, value in found.items()}
            metrics |= {prefix + key: value for key, value in measured.items()}
        return Draft(counts, metrics, ("every token of every record is in a row or counted as left out", "every row has a trained token"))

    def audit(payload: Path) -> None:
        for table in tables:
            for start, _, mask in open_packed(payload, table).blocks():
                if not (mask != 0).any(axis=1).all():
                    raise StoreError(f"{table}: row {start + int((mask == 0).all(axis=1).argmax()):,} has no trained token")

    return Build(workspace.place("sft_packed"), packed_recipe(workspace), packed_recipe(workspace.plain), write, audit)


def _write_table(workspace: Workspace, table: str, split: str, domains: list[str], payload: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    family = workspace.family(Sft)
    options = family.packing
    stores = {
        name: open_tokens(open_published(workspace.stores, TOKENS, name, remedy=materialize_command(TOKENS, name)).directory, split)
        for name in domains
    }
    mixture = mix(
        {name: np.diff(store.ends, prepend=0) for name, store in stores.items()},
        weights=options.weights if split == "train" else None,
        epochs=options.epochs if split == "train" else None,
        max_items=options.max_items if split == "train" else None,
        seed=options.seed,
        shuffle=options.shuffle,
    )
    overlong = {} if options.strategy in ("concat", "bfd_split") else {"overlong": options.overlong}
    plan = pack(mixture.lengths, options.row_len, options.strategy, tail=options.tail, **overlong)
    plan.check(mixture.lengths)
    ordered = [stores[name] for name in mixture.domains]
    starts = _record_starts(mixture, ordered)
    loss = _end_to_end(ordered, "loss_mask")
    plan, untrained = _without_untrained_rows(plan, loss, starts)
    if not plan.rows and (split == "train" or len(mixture.lengths)):
        raise PrepAssetsError(
            f"no row of {table} is left of {len(mixture.lengths):,} {split} records with {int(mixture.lengths.sum()):,} tokens: {untrained:,} "
            f"are in rows of {options.row_len:,} without a trained token, the others left out by packing.tail or packing.overlong. "
            "Change row_len, tail or overlong, or hold out another share"
        )
    trained = _write_rows(workspace, table, plan, ordered, starts, loss, payload)
    fields = {name: getattr(plan, name) for name in ("row", "row_offset", "length", "start")}
    fields |= {"source": mixture.domain[plan.record], "record": mixture.record[plan.record]}
    write_documents(payload, table, fields, mixture.domains, options.row_len)
    left_out = int(plan.dropped[:, 2].sum())
    counts = {
        "rows": plan.rows,
        "records": len(mixture.lengths),
        "tokens": plan.used,
        "trained_tokens": trained,
        "tokens_left_out": left_out,
        "tokens_in_untrained_rows": untrained,
    }
    shares = {f"share_{share.domain}": share.share for share in mixture.shares}
    return counts, {"fill_rate": plan.fill, "trained_fraction": trained / max(1, plan.used), **shares}


def _end_to_end(stores: Sequence[TokenStore], key: str) -> Segmented:
    """A per-token array of several stores as one."""
    arrays = [store.arrays[key] for store in stores]
    joined = Segmented(arrays)
    # one domain may hold whole weights as uint8 and another fractions as float32: rows take the type that holds both
    joined.dtype = np.result_type(*(array.dtype for array in arrays))
    return joined


def _record_starts(mixture: Mixture, stores: list[TokenStore]) -> npt.NDArray[np.int64]:
    """Where each record of the mixture starts in the domains' token streams laid end to end."""
    base = np.concatenate([np.zeros(1, np.int64), np.cumsum([store.tokens for store in stores])])
    starts = np.empty(len(mixture.record), np.int64)
    for number, store in enumerate(stores):
        here = mixture.domain == number
        starts[here] = base[number] + store.starts[mixture.record[here]]
    return starts


def _without_untrained_rows(plan: PackPlan, loss: Segmented, starts: npt.NDArray[np.int64]) -> tuple[PackPlan, int]:
    """The plan without rows that carry no loss (a long prompt can fill one), and how many tokens those held. They are in `dropped`."""
    keep = np.concatenate(
        [
            (gather_rows(loss, starts, plan, slice(first, first + ROW_BLOCK), fill=0) != 0).any(axis=1)
            for first in range(0, plan.rows, ROW_BLOCK)
        ]
        or [np.zeros(0, bool)]
    )
    if keep.all():
        return plan, 0
    member = keep[plan.row]
    gone = np.stack([plan.record[~member], plan.start[~member], plan.length[~member]], axis=1)
    dropped = np.concatenate([plan.dropped, gone])
    dropped = dropped[np.lexsort((dropped[:, 1], dropped[:, 0]))]
    renumbered = (np.cumsum(keep) - 1)[plan.row[member]]
    kept = PackPlan(
        plan.row_len,
        int(keep.sum()),
        renumbered,
        plan.record[member],
        plan.start[member],
        plan.length[member],
        plan.row_offset[member],
        dropped,
    )
    return kept, int(gone[:, 2].sum())


def _write_rows(
    workspace: Workspace,
    table: str,
    plan: PackPlan,
    stores: list[TokenStore],
    starts: npt.NDArray[np.int64],
    loss: Segmented,
    payload: Path,
) -> int:
    family = workspace.family(Sft)
    tokens = _end_to_end(stores, "tokens")
    pad, trained = workspace.vocabulary(family).pad_id, 0
    loss_dtype = "float32" if loss.dtype.kind == "f" else "int8"
    with PackedWriter(family.output.storage_format, payload, table, plan.rows, plan.row_len, loss_dtype=loss_dtype) as writer:
        for first in range(0, plan.rows, ROW_BLOCK):
            rows = slice(first, min(first + ROW_BLOCK, plan.rows))
            mask = gather_rows(loss, starts, plan, rows, fill=0)
            ids = gather_rows(tokens, starts, plan, rows, fill=pad)
            writer.append({"tokens": ids, "loss_mask": mask, "position_ids": position_ids(plan, rows, "doc_reset")})
            trained += int((mask != 0).sum())
            workspace.progress(f"pack {table}", rows.stop, plan.rows)
    return trained
