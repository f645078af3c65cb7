"""How each check gets at its data. The checks themselves are in `prep_assets.quality`, their names in `checks`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.config.models import FAMILIES, Family, Preference, Pretrain, Rl, Sft
from prep_assets.errors import Refused, StoreError
from prep_assets.pipelines.commands import materialize_command
from prep_assets.pipelines.examples import converter
from prep_assets.pipelines.families import preference, rl, rl_groups, sft
from prep_assets.pipelines.families.rl_domains import group_domains, prompt_domains
from prep_assets.pipelines.families.unpaired import UNPAIRED, UNPAIRED_TEST
from prep_assets.pipelines.images import stored_image_id
from prep_assets.pipelines.previews import streams_of
from prep_assets.pipelines.proving.evidence import (
    document_conversations,
    preference_conversations,
    preference_rows,
    sample_of,
    sft_conversations,
    sft_rows,
    source_records,
)
from prep_assets.pipelines.proving.group_evidence import group_conversations, group_prompts, group_rows, group_scores
from prep_assets.pipelines.sources import domain_of, pinned, read_sources
from prep_assets.pipelines.workspace import Workspace
from prep_assets.quality.accounting import account
from prep_assets.quality.fill_in_the_middle import parts_in_order
from prep_assets.quality.gold import check_golds, second_reading, worked_out
from prep_assets.quality.identity import prove_identity
from prep_assets.quality.images import check_images, check_only_images_masked, check_packed_images
from prep_assets.quality.mask import prove_masks
from prep_assets.quality.packed_mask import check_pieces
from prep_assets.quality.pairs import check_pairs
from prep_assets.quality.rewards import check_rewards
from prep_assets.quality.rows import check_packed, check_records
from prep_assets.quality.text import Text, prove_texts
from prep_assets.quality.verdict import Verdict, Worst
from prep_assets.records.files import record_id
from prep_assets.records.quarantine import read_quarantine
from prep_assets.records.read import read_blocks
from prep_assets.samples import Prompt, Record, Sample
from prep_assets.schemas.registry import Convert, apply
from prep_assets.stores.groups import open_groups
from prep_assets.stores.lines import open_lines
from prep_assets.stores.manifest import build_key
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.published import KEY_LENGTH, Published, open_published
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.tokenization.fill_in_the_middle import cut_of
from prep_assets.tokenization.vocabulary import Vocabulary

# -- every store ------------------------------------------------------------------------------------------------------------------------


def integrity(workspace: Workspace, published: Published) -> Verdict:
    manifest = published.manifest
    numbers = {"files_checked": len(manifest.files), "bytes_checked": sum(entry["bytes"] for entry in manifest.files.values())}
    try:
        published.verify()
        if build_key(manifest.recipe) != manifest.build_key or published.directory.name != manifest.build_key[:KEY_LENGTH]:
            raise StoreError(
                f"{published.directory}/manifest.json: its recipe is not what its build key {manifest.build_key[:KEY_LENGTH]} was made of"
            )
    except StoreError as error:
        return Verdict(
            False,
            f"{error}\nBuild it again: {materialize_command(manifest.asset, manifest.partition)}",
            numbers,
            Worst("files", str(error)),
        )
    return Verdict(True, f"{len(manifest.files):,} files have the size and sha256 of the manifest", numbers)


def _streams(published: Published) -> dict[str, TokenStore]:
    names = streams_of(published.manifest.asset, published.manifest.partition)
    return {name: open_tokens(published.directory, name) for name in names if (published.directory / f"{name}.index").is_dir()}


def _stored(published: Published) -> int:
    """Records that are really in a store."""
    lines = sorted(published.directory.glob("*.jsonl"))
    if lines:
        return sum(len(open_lines(published.directory, path.stem)) for path in lines)
    streams = _streams(published)
    if published.manifest.asset == "preference_tokens":
        streams = {"chosen": streams["chosen"]}
    if published.manifest.asset == rl_groups.GROUPS:
        return sum(len(open_groups(folder)) for folder in rl_groups.splits(published).values())
    return sum(len(store) for store in streams.values())


def _available(workspace: Workspace, published: Published) -> int | None:
    """Records that the stage before offers, counted by that stage; `None` where the configuration reads only some of them."""
    manifest = published.manifest
    family = workspace.family(FAMILIES[manifest.asset.partition("_")[0].removesuffix("s")])
    if manifest.asset == "preference_tokens":
        return int(open_published(workspace.stores, preference.PAIRS).manifest.counts["train"])
    if manifest.asset == "rl_tokens":
        prompts, arithmetic = (open_published(workspace.stores, asset).manifest.counts for asset in (rl.PROMPTS, rl.ARITHMETIC))
        return int(prompts["train"]) + int(arithmetic["kept"])
    names = [manifest.partition] if manifest.partition else _domains_of(family, manifest.asset)
    if any(domain_of(family, name).max_items for name in names) or getattr(family, "max_per_source", None):
        return None
    return sum(int(open_published(workspace.stores, _raw_of(manifest.asset), name).manifest.counts["read"]) for name in names)


def _domains_of(family: Family, asset: str) -> Sequence[str]:
    """The domains that an asset without partitions reads."""
    if not isinstance(family, Rl):
        return sorted(family.domains)
    return group_domains(family) if asset == rl_groups.GROUPS else prompt_domains(family)


def _raw_of(asset: str) -> str:
    return f"{asset.partition('_')[0].removesuffix('s')}_raw"


def accounting(workspace: Workspace, published: Published) -> Verdict:
    refusals = read_quarantine(published.quarantine) if published.quarantine else ()
    return account(published.manifest.counts, refusals, stored=_stored(published), available=_available(workspace, published))


def raw_accounting(workspace: Workspace, published: Published) -> Verdict:
    sources = read_sources(published)
    rows = sum(entry["rows"] for which in ("files", "test_files") for entry in sources[which])
    refusals = list(read_quarantine(published.quarantine)) if published.quarantine else []
    return account(published.manifest.counts, refusals, stored=rows - len(refusals), available=rows)


# -- pretraining ------------------------------------------------------------------------------------------------------------------------


def pretrain_rows(workspace: Workspace, published: Published) -> Verdict:
    family, stores = workspace.family(Pretrain), _streams(published).values()
    vocabulary = workspace.vocabulary(family)
    sound = (check_records(store, vocabulary_size=vocabulary.size, eos_id=vocabulary.eos_id) for store in stores)
    masked = (check_only_images_masked(store) for store in stores if "loss_mask" in store.arrays)
    return _all(chain(sound, _images(workspace, family, stores), masked))


def pretrain_texts(workspace: Workspace, published: Published) -> Verdict:
    name = published.manifest.partition
    family = workspace.family(Pretrain)
    domain, vocabulary = domain_of(family, name), workspace.vocabulary(family)
    convert = converter(domain, Sample)
    fim = published.manifest.recipe["preprocessing"].get("fim")

    def texts(store: TokenStore) -> Iterator[Text]:
        for number, identity, record in source_records(workspace, Pretrain, "pretrain_raw", name, store):
            text = "".join(turn.text for turn in sample_of(convert, record, identity).turns)
            yield _as_text(identity, text, store.record(number, "tokens")[:-1], name, fim, vocabulary)

    def prove(store: TokenStore) -> Verdict:
        if len(store.images):
            return prove_identity(document_conversations(workspace, name, store), vocabulary)
        return prove_texts(texts(store), vocabulary, engines.reference, engines.rest_reference)

    engines = workspace.engines(family)
    return _all(prove(store) for store in _streams(published).values())


def _as_text(identity: str, text: str, ids: npt.NDArray[Any], name: str, fim: Mapping[str, Any] | None, vocabulary: Vocabulary) -> Text:
    """A document with its tokens in the order of its text, put together again where it was cut for fill-in-the-middle."""
    if fim is None:
        return Text(identity, text, ids)
    sentinels = {part: vocabulary.backend.token_to_id(fim[f"{part}_token"]) for part in ("prefix", "suffix", "middle")}
    cut = cut_of(f"{name}/{identity}", len(text), rate=fim["rate"], spm_rate=fim["spm_rate"], seed=fim["seed"])
    try:
        found = parts_in_order(ids.tolist(), sentinels)
    except ValueError as error:
        raise StoreError(f"{identity}: {error}") from error
    if (cut is None) != (found is None):
        raise StoreError(f"{identity}: {'whole' if found is None else 'cut'}, its seed and id make it {'whole' if cut is None else 'cut'}")
    if cut is None or found is None:
        return Text(identity, text, ids)
    return Text(identity, text, np.array([token for part in found for token in part], ids.dtype), cut.parts(text))


# -- SFT --------------------------------------------------------------------------------------------------------------------------------


def policy(workspace: Workspace, published: Published) -> Verdict:
    certificate = sft.check_policy(workspace)
    return Verdict(True, f"masks are provable by {', '.join(certificate.proofs)}; turns end with {certificate.stop_token!r}", {})


def sft_mask(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Sft))
    return _all(prove_masks(sft_rows(workspace, published, name), vocabulary) for name in _streams(published))


def sft_identity(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Sft))
    return _all(prove_identity(sft_conversations(workspace, published, name), vocabulary) for name in _streams(published))


def token_rows(workspace: Workspace, published: Published) -> Verdict:
    family = workspace.family(FAMILIES[published.manifest.asset.partition("_")[0]])
    size = workspace.vocabulary(family).size
    stores = _streams(published).values()
    return _all(chain((check_records(store, vocabulary_size=size) for store in stores), _images(workspace, family, stores)))


def _images(workspace: Workspace, family: Family, stores: Iterable[TokenStore | PackedStore]) -> Iterator[Verdict]:
    token = stored_image_id(workspace, family)
    yield from () if token is None else (check_images(store, token) for store in stores)


def _packed_tables(published: Published) -> list[str]:
    return [name for name in ("sft_packed", "sft_dev_packed") if (published.directory / f"{name}.documents").is_dir()]


def packed_rows(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Sft))
    tables = [open_packed(published.directory, name) for name in _packed_tables(published)]
    sound = (check_packed(table, vocabulary_size=vocabulary.size, pad_id=vocabulary.pad_id) for table in tables)
    return _all(chain(sound, _images(workspace, workspace.family(Sft), tables)))


def packed_mask(workspace: Workspace, published: Published) -> Verdict:
    verdicts = []
    recipe = published.manifest.recipe
    for name in _packed_tables(published):
        packed = open_packed(published.directory, name)
        split = "train" if name == "sft_packed" else "dev"
        stores = {}
        for domain in packed.sources:
            tokens = open_published(workspace.stores, sft.TOKENS, domain)
            if tokens.manifest.content_hash != recipe["tokens"][domain]:
                raise StoreError(
                    f"sft_tokens[{domain}] was built again since this table was packed. Pack it again: {materialize_command('sft_packed')}"
                )
            stores[domain] = open_tokens(tokens.directory, split)
        verdicts.append(check_pieces(packed, stores, once=not recipe["packing"].get("epochs")))
        if len(packed.images) or any(len(store.images) for store in stores.values()):
            verdicts.append(check_packed_images(packed, stores))
    return _all(iter(verdicts))


def packed_accounting(workspace: Workspace, published: Published) -> Verdict:
    counts = published.manifest.counts
    verdicts = []
    for name in _packed_tables(published):
        prefix = "" if name == "sft_packed" else "dev_"
        packed = open_packed(published.directory, name)
        used, trained = int(np.sum(packed.documents["length"])), sum(int((mask != 0).sum()) for _, _, mask in packed.blocks())
        claimed = (counts[f"{prefix}rows"], counts[f"{prefix}tokens"], counts[f"{prefix}trained_tokens"])
        found = (len(packed), used, trained)
        numbers = {"rows": found[0], "tokens": found[1], "trained_tokens": found[2], "tokens_left_out": counts[f"{prefix}tokens_left_out"]}
        summary = f"{found[0]:,} rows hold {found[1]:,} tokens, {found[2]:,} trained; {counts[f'{prefix}tokens_left_out']:,} left out"
        if found != claimed:
            text = f"rows, tokens, trained tokens are {found}, the manifest says {claimed}"
            verdicts.append(Verdict(False, text, numbers, Worst(name, text)))
        else:
            verdicts.append(
                _mixed_total(workspace, published, name, packed.sources, used, counts[f"{prefix}tokens_left_out"], numbers, summary)
            )
    return _all(iter(verdicts))


def _mixed_total(
    workspace: Workspace,
    published: Published,
    name: str,
    sources: tuple[str, ...],
    used: int,
    left_out: int,
    numbers: dict[str, Any],
    summary: str,
) -> Verdict:
    """Without weights, epochs or limits, everything that the domains hold must be in rows or counted as left out."""
    packing = published.manifest.recipe["packing"]
    if any(packing.get(key) for key in ("weights", "epochs", "max_items")):
        return Verdict(True, summary, numbers)
    split = "train" if name == "sft_packed" else "dev"
    offered = sum(open_tokens(open_published(workspace.stores, sft.TOKENS, source).directory, split).tokens for source in sources)
    if offered != used + left_out:
        text = f"the domains hold {offered:,} tokens, but {used:,} are packed and {left_out:,} counted as left out"
        return Verdict(False, text, numbers, Worst(name, text))
    return Verdict(True, summary, numbers)


# -- preferences ------------------------------------------------------------------------------------------------------------------------


def pairs(workspace: Workspace, published: Published) -> Verdict:
    train, test = (open_lines(published.directory, name) for name in (preference.TRAIN, preference.TEST))
    unpaired = [
        open_lines(published.directory, name) if (published.directory / f"{name}.jsonl").is_file() else ()
        for name in (UNPAIRED, UNPAIRED_TEST)
    ]
    return check_pairs(train, test, *unpaired)


def preference_mask(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    return _all(prove_masks(preference_rows(workspace, published, side), vocabulary) for side in _streams(published))


def preference_identity(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    return _all(prove_identity(preference_conversations(workspace, published, side), vocabulary) for side in _streams(published))


# -- RL ---------------------------------------------------------------------------------------------------------------------------------


def prompt_golds(workspace: Workspace, published: Published) -> Verdict:
    return _all(check_golds(_golds_of(workspace, published, name)) for name in (rl.TRAIN, rl.TEST))


def _golds_of(workspace: Workspace, published: Published, name: str) -> Iterator[tuple[str, str, object, Fraction | None]]:
    """Every prompt of a file with its gold and a second reading of its source row."""
    family = workspace.family(Rl)
    lines = open_lines(published.directory, name)
    contents = list(lines)
    for number, domain_name in enumerate(lines.sources):
        domain, sources = domain_of(family, domain_name), pinned(workspace, Rl, rl.RAW, domain_name)
        convert = converter(domain, Prompt)
        mine = np.flatnonzero(lines.index["source"] == number)
        wanted = {(int(lines.index["file"][i]), int(lines.index["row"][i])): int(i) for i in mine}
        for index, file in enumerate((*sources.files, *sources.test_files)):
            for block in read_blocks(file, index, block_bytes=4 << 20, txt=domain.txt):
                for record in block.records:
                    line = wanted.pop((index, record.row), None)
                    if line is not None:
                        yield _second(record, convert, contents[line], f"{domain_name}/{record_id(file, record.row)}")
        for (file_number, row), line in wanted.items():
            yield f"{domain_name}/{file_number}:{row}", "", contents[line]["gold"], None


def _second(record: Record, convert: Convert, content: Mapping[str, Any], identity: str) -> tuple[str, str, object, Fraction | None]:
    prompt = content["prompt"] if isinstance(content["prompt"], str) else str(content["prompt"])
    answers = [value for value in record.payload.values() if isinstance(value, str) and "####" in value]
    if answers:
        return identity, prompt, content["gold"], second_reading(answers[0])
    arithmetic = worked_out(prompt)
    if arithmetic is not None:
        return identity, prompt, content["gold"], arithmetic
    # neither a marked answer nor arithmetic: what is left to check is that the row, converted again, says the same
    try:
        example = apply(convert, record.payload)
    except Refused:
        return identity, prompt, content["gold"], None
    same = isinstance(example, Prompt) and rl.prompt_row(example)["gold"] == content["gold"]
    return identity, prompt, 1 if same else 0, Fraction(1)


def arithmetic_golds(workspace: Workspace, published: Published) -> Verdict:
    rows = enumerate(open_lines(published.directory, rl.ARITHMETIC))
    return check_golds((f"line {number + 1}", row["prompt"], row["gold"], worked_out(row["prompt"])) for number, row in rows)


# -- scored groups ----------------------------------------------------------------------------------------------------------------------


def group_rows_integrity(workspace: Workspace, published: Published) -> Verdict:
    size = workspace.vocabulary(workspace.family(Rl)).size
    stores = [open_groups(folder) for folder in rl_groups.splits(published).values()]
    return _all(check_records(stream, vocabulary_size=size) for store in stores for stream in (store.prompts, store.responses))


def group_mask(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Rl))
    return _all(prove_masks(group_rows(workspace, folder), vocabulary) for folder in rl_groups.splits(published).values())


def group_identity(workspace: Workspace, published: Published) -> Verdict:
    vocabulary, folders = workspace.vocabulary(workspace.family(Rl)), rl_groups.splits(published).values()
    return _all(
        prove_identity(evidence(workspace, folder), vocabulary) for folder in folders for evidence in (group_conversations, group_prompts)
    )


def group_rewards(workspace: Workspace, published: Published) -> Verdict:
    return _all(check_rewards(group_scores(workspace, folder)) for folder in rl_groups.splits(published).values())


# -- the table --------------------------------------------------------------------------------------------------------------------------


def _all(verdicts: Iterator[Verdict]) -> Verdict:
    """Several verdicts as one: the first that fails, else their figures added up."""
    found = list(verdicts)
    numbers: dict[str, float] = {}
    for verdict in found:
        for key, value in verdict.numbers.items():
            numbers[key] = numbers.get(key, 0) + value
    failed = next((verdict for verdict in found if not verdict.passed), None)
    if failed is not None:
        return Verdict(False, failed.summary, numbers, failed.worst)
    return Verdict(True, "; ".join(verdict.summary for verdict in found), numbers)
