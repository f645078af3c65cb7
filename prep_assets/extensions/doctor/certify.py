"""`prep-assets certify`: what a chat template can be trusted with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.config.mask import MaskPolicy
from prep_assets.extensions.doctor.compare import compare
from prep_assets.text.agreement import agreement
from prep_assets.text.certify import certify as certified
from prep_assets.text.certify import policy_faults
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.template import ChatTemplate, bind
from prep_assets.text.vocabulary import Vocabulary, folder_of, from_file, load_vocabulary


@with_json
def certify(
    template: Annotated[str, typer.Argument(help="tokenizer (its own), a shipped template's name, or a .jinja file.")],
    tokenizer: Annotated[str, typer.Option("--tokenizer", "-t", help="A tokenizer's directory or hub id.")],
    revision: Annotated[str | None, typer.Option(help="Commit of the hub repository.")] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Compare with a second template for the same model: a .jinja file, a shipped one, or a tokenizer's folder."),
    ] = None,
) -> Answer:
    """Exit code 1 when no answer can be trained with it, or when a second template renders or masks any kind of chat differently."""
    folder = folder_of(tokenizer, base=Path.cwd(), revision=revision)
    vocabulary = from_file(tokenizer, folder)
    loaded = load_template(template, vocabulary, base=Path.cwd())
    bind(vocabulary, loaded)
    if against is not None:
        return _comparison(loaded, against, vocabulary)
    certificate = certified(loaded, vocabulary)
    disagreement = agreement(vocabulary, folder).fault
    if disagreement:
        certificate = replace(certificate, findings=(*certificate.findings, f"others read this tokenizer otherwise: {disagreement}"))
    faults = policy_faults(loaded, train_on_eos="turn", train_headers=False)
    facts = certificate.as_dict()

    def show(console: Console) -> None:
        fields = {key.replace("_", " "): _shown(value) for key, value in facts.items() if key not in ("findings", "chats")}
        rows = [*fields.items(), *certificate.chats.items()]
        console.print(terminal.table("", "", rows=rows, title=f"{template} with {tokenizer}"))
        for finding in certificate.findings:
            console.print(f"finding: {finding}", style="yellow")
        for fault in faults:
            console.print(fault, style="red")

    return Answer({**facts, "faults": faults}, show, int(bool(faults)))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = [f"{key}: {text}" for key, text in value.items()]
    if isinstance(value, list):
        return ", ".join(value)
    return str(value).replace("\n", "⏎") or "–"


def _comparison(template: ChatTemplate, against: str, vocabulary: Vocabulary) -> Answer:
    """The differences between two templates on every probe."""
    base = Path.cwd()
    if Path(against).is_dir():  # a tokenizer's folder: its own template and special tokens
        second = load_template("tokenizer", load_vocabulary(against, base=base), base=base)
    else:
        second = load_template(against, vocabulary, base=base)
    vocabulary = bind(bind(vocabulary, template), second)
    policy = MaskPolicy(mask={"assistant": "train"}, mask_default="mask")
    comparisons = list(compare(template, second, Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), policy)))
    differing = [comparison for comparison in comparisons if comparison.differs]

    def show(console: Console) -> None:
        words = {"refused": "both refuse", "text": "text differs", "mask": "mask differs"}
        rows = [(comparison.chat, words.get(comparison.outcome, comparison.outcome)) for comparison in comparisons]
        console.print(terminal.table("chat", "", rows=rows, title=f"{template.name} and {against}"))
        for comparison in differing:
            console.print(f"{comparison.chat}\n  {template.name}: {comparison.first}\n  {against}: {comparison.second}")
        kinds = f"{len(comparisons)} kinds of chat"
        console.print(f"{len(differing)} of {kinds} differ" if differing else f"equal in all {kinds}")

    return Answer([comparison.as_dict() for comparison in comparisons], show, int(bool(differing)))
