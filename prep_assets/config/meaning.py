"""Options that mean nothing beside the others: refused when the configuration loads, because an option that is ignored is a promise broken.

Only a value other than the default counts, so a configuration may spell out defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import BaseModel

from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, PROMPT, SYSTEM, TOOL, USER

ROLES = (SYSTEM, USER, ASSISTANT, TOOL, PROMPT, COMPLETION, DOCUMENT)
TAGS = {
    **dict.fromkeys(("developer",), SYSTEM),
    **dict.fromkeys(("human", "prompter"), USER),
    **dict.fromkeys(("gpt", "bot", "model", "ai", "chatbot"), ASSISTANT),
    **dict.fromkeys(("function", "observation", "ipython"), TOOL),
}
"""What data sets call a role → the role."""

TOKENIZED = ("tokenized", "nlg_read_hook")
"""Schemas whose rows may bring token ids."""


class Rule(NamedTuple):
    """An option of a family, as its path; when it means nothing; why, and the remedy."""

    path: str
    idle: Callable[[Any], bool]
    why: str


RULES = (
    Rule(
        "cluster.address",
        lambda family: family.cluster.kind == "local",
        "local workers have no address. Leave it out, or set cluster.kind: ray",
    ),
    Rule(
        "tokenizer_class",
        lambda family: family.tokenizer_loader != "code",
        "its code would run, which nothing allows. Leave it out, or set tokenizer_loader: code",
    ),
    Rule(
        "tokenizer_loader",
        lambda family: family.tokenizer_loader == "code" and family.tokenizer_class is None,
        "there is no code to run. Set tokenizer_class",
    ),
    *(
        Rule(path, lambda family: family.tokenizer_class is not None, f"a tokenizer_class {why}. Leave one of the two out")
        for path, why in (
            ("tokenizer_revision", "is given a folder"),
            ("engine", "is the only engine"),
            ("preprocessing.fim.rate", "cannot be proven where documents are cut in three"),
            ("split_sentences", "cannot be proven for sentences"),
            ("image_token", "cannot be proven beside images"),
        )
    ),
    Rule(
        "tokenizer_class",
        lambda family: not (hasattr(family, "mask") or hasattr(family, "bos")),
        "only pretrain and sft take a tokenizer that is code. Leave it out",
    ),
    Rule(
        "packing.tail",
        lambda family: family.packing.strategy != "concat",
        "only 'concat' has one last row that is short; every row of another strategy may be. Leave tail out, or set strategy: concat",
    ),
    Rule(
        "packing.overlong",
        lambda family: family.packing.strategy in ("concat", "bfd_split"),
        "'concat' and 'bfd_split' cut documents that are longer than a row and keep every part. Leave overlong out, or choose simple, ffd or bfd",
    ),
    Rule("packing.seed", lambda family: not family.packing.shuffle, "nothing is shuffled. Leave seed out, or set shuffle: true"),
    Rule("seed", lambda family: not family.shuffle, "nothing is shuffled. Leave seed out, or set shuffle: true"),
    Rule(
        "truncation",
        lambda family: family.preprocessing.max_seq_len is None,
        "max_seq_len is null, so no example is too long. Leave truncation out, or set preprocessing.max_seq_len",
    ),
    Rule(
        "truncation_keeps_stop",
        lambda family: family.truncation != "end",
        "only truncation: end cuts answers off at their end. Leave it out, or set truncation: end",
    ),
    Rule(
        "truncation_keeps",
        lambda family: family.truncation != "prompt",
        "only truncation: prompt shortens texts one by one. Leave it out, or set truncation: prompt",
    ),
    Rule(
        "expand",
        lambda family: family.train_turns == "last",
        "only the last answer is trained, so there is one example anyway. Leave it out, or set train_turns: all",
    ),
    Rule(
        "expand",
        lambda family: family.train_on_eos == "all",
        "train_on_eos: all would train the stop tokens of history again in each example. Leave it out, or set train_on_eos: turn",
    ),
    Rule(
        "expand",
        lambda family: family.truncation == "end",
        "truncation: end would cut away the answers that examples are made for. Leave it out, or set truncation: turns, start or drop",
    ),
    *(
        Rule(
            f"preprocessing.fim.{name}",
            lambda family: not family.preprocessing.fim.rate,
            "fim.rate is 0, so no document is cut. Set fim.rate",
        )
        for name in ("spm_rate", "prefix_token", "suffix_token", "middle_token", "seed")
    ),
    Rule(
        "split_sentences",
        lambda family: family.preprocessing.fim.rate > 0,
        "fill-in-the-middle puts the end of a document before its middle, so sentences have no order. Leave one of the two out",
    ),
    Rule(
        "reasoning_tags",
        lambda family: family.reasoning == "inline",
        "reasoning: inline reads no tags. Leave them out, or set reasoning: auto",
    ),
    Rule("decontaminate.words", lambda family: not family.decontaminate.files, "no benchmark is looked for. Set decontaminate.files"),
    *(
        Rule(name, lambda family: not _takes_images(family), "records with images are refused. Set image_token")
        for name in ("image_patches", "image_tokens")
    ),
    Rule(
        "image_patches",
        lambda family: getattr(family, "image_tokens", None) is not None,
        "image_tokens says how many tokens stand for an image. Leave one of the two out",
    ),
    *(
        Rule(path, lambda family: _holds_texts_alone(family), "a contrastive store holds lines of text and no tokens. Leave it out")
        for path in ("output.storage_format", "output.dtype", "output.max_tokens_per_shard", "pad_vocab_to", "engine")
    ),
    Rule(
        "output.max_tokens_per_shard",
        # tokens of a domain are always `bin`, but for those of pretraining, which nothing merges
        lambda family: family.output.storage_format == "h5" and not hasattr(family, "template"),
        "an h5 store is one file. Leave it out, or set storage_format: bin",
    ),
)
DOMAIN_RULES = (
    Rule("domain_value", lambda domain: domain.domain_key is None, "there is no domain_key whose value it could be. Set domain_key"),
    Rule("domain_value", lambda domain: domain.domains is not None, "domains: auto makes a domain of each value. Leave one of the two out"),
    Rule("domains", lambda domain: domain.domain_key is None, "there is no field whose values could be domains. Set domain_key"),
    Rule("max_domains", lambda domain: domain.domains is None, "only domains: auto makes domains. Leave it out, or set domains: auto"),
)


def faults(family: Any) -> Iterator[str]:
    """What is wrong with a family's options as a whole: one line each, beginning with the option's path."""
    for rule in RULES:
        yield from _idle(family, rule, family)
    for name, domain in family.domains.items():
        for rule in DOMAIN_RULES:
            yield from _idle(domain, rule, domain, f"domains.{name}.")
        if domain.image_dir is not None and not _takes_images(family):
            remedy = "Set image_token" if hasattr(family, "image_token") else "Leave it out"
            yield f"domains.{name}.image_dir: means nothing here: records with images are refused. {remedy}"
        yield from (f"domains.{name}.{fault}" for fault in _of_ids_and_weights(family, domain))
    if hasattr(family, "mask"):
        yield from _unknown_roles(family)
    if hasattr(family, "packing"):
        yield from _unknown_domains(family)


def _of_ids_and_weights(family: Any, domain: Any) -> Iterator[str]:
    """What is wrong with a domain about rows that bring token ids, and about the weights and names of turns."""
    sft, schema = hasattr(family, "mask"), domain.schema_name
    if schema == "tokenized" and not sft:
        yield "schema: tokenized brings token ids, which only sft takes"
    elif schema == "tokenized" and domain.tokenized_by is None:
        yield "tokenized_by: needed, because ids say nothing without the tokenizer that made them. Set it to its folder, or to sha256:HEX"
    if domain.tokenized_by is not None and not (sft and (schema in TOKENIZED or ":" in schema)):
        yield f"tokenized_by: {domain.tokenized_by!r} means nothing here: no row brings token ids that are stored. Leave it out"
    if domain.tokenized_by is not None and family.tokenizer_class is not None:
        yield "tokenized_by: means nothing here: rows that bring ids are proven with a published tokenizer, and tokenizer_class is code"
    if domain.weigh is not None and (schema == "tokenized" or not (sft or hasattr(family, "bos"))):
        yield f"weigh: {domain.weigh!r} means nothing here: the turns of samples are weighed, in pretrain and sft. Leave it out"
    if domain.speaker_names != "keep" and not hasattr(family, "template"):
        yield f"speaker_names: {domain.speaker_names!r} means nothing here: only messages have names. Leave it out"
    elif domain.speaker_names == "leave_out" and ":" in schema:
        yield f"speaker_names: leave_out cannot count the names that {schema!r} reads. Leave them out in that function"


def _idle(model: BaseModel, rule: Rule, shown_to: Any, prefix: str = "") -> Iterator[str]:
    *above, name = rule.path.split(".")
    for key in above:
        if key not in type(model).model_fields:
            return
        model = getattr(model, key)
    field = type(model).model_fields.get(name)
    if field is not None and (value := getattr(model, name)) != field.get_default() and rule.idle(shown_to):
        yield f"{prefix}{rule.path}: {value!r} means nothing here: {rule.why}"


def _holds_texts_alone(family: Any) -> bool:
    return not (hasattr(family, "template") or hasattr(family, "bos"))


def _takes_images(family: Any) -> bool:
    return bool(getattr(family, "image_token", None) or getattr(family, "template_options", {}).get("image_token"))


def _unknown_roles(family: Any) -> Iterator[str]:
    """Roles that no turn can have. A function of the user's own may give turns of any role, but hardly one that is nearly a known one."""
    named: set[str] = set()
    for domain in family.domains.values():
        roles = domain.options.get("roles")
        named.update(map(str, roles.values()) if isinstance(roles, Mapping) else ())
    own = any(":" in domain.schema_name for domain in family.domains.values())
    if SYSTEM in family.truncation_keeps:
        yield f"truncation_keeps.{SYSTEM}: means nothing here: system turns stay whole. Leave it out"
    for option, role in (*(("mask", role) for role in family.mask), *(("truncation_keeps", role) for role in family.truncation_keeps)):
        if role in ROLES or role in named:
            continue
        near = TAGS.get(role) or next(iter(get_close_matches(role, ROLES, n=1, cutoff=0.75)), None)
        if near or not own:
            hint = f"did you mean {near!r}? " if near else ""
            yield f"{option}.{role}: no turn has this role; {hint}Roles: {', '.join(ROLES)}, and those that a schema's option `roles` names"


def _unknown_domains(family: Any) -> Iterator[str]:
    if family.finds_domains:
        return  # which domains there are, only the files say
    for name in ("weights", "epochs", "max_items"):
        for domain in getattr(family.packing, name) or ():
            if domain not in family.domains:
                yield f"packing.{name}: names {domain!r}, which is not a domain. Domains: {', '.join(family.domains)}"
