"""`prep-assets certify`: what a chat template can be trusted with, for one tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prep_assets.cli.console import out, print_json, table

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate
    from prep_assets.templates.comparison import Comparison
    from prep_assets.tokenization.vocabulary import Vocabulary


def certify(
    template: Annotated[str, typer.Argument(help="tokenizer (its own), a shipped template's name, or a .jinja file.")],
    tokenizer: Annotated[str, typer.Option("--tokenizer", "-t", help="A tokenizer's directory or hub id.")],
    revision: Annotated[str | None, typer.Option(help="Commit of the hub repository.")] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Compare with a second template for the same model: a .jinja file, a shipped one, or a tokenizer's folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Render probes with a chat template and say what it does: stop token, system prompt, reasoning, tools, provable masks. Exit code 1 when
    no answer can be trained with it, or when a second template renders or masks any kind of chat differently."""
    from prep_assets.templates.certify import certify as certified
    from prep_assets.templates.load import load_template
    from prep_assets.templates.written import bind
    from prep_assets.tokenization.agreement import agreement
    from prep_assets.tokenization.load import folder_of, from_file

    folder = folder_of(tokenizer, base=Path.cwd(), revision=revision)
    vocabulary = from_file(tokenizer, folder)
    loaded = load_template(template, vocabulary, base=Path.cwd())
    bind(vocabulary, loaded)
    if against is not None:
        raise typer.Exit(int(report_against(loaded, against, vocabulary, as_json=as_json)))
    certificate = certified(loaded, vocabulary)
    read_otherwise = agreement(vocabulary, folder).fault
    if read_otherwise:
        certificate = replace(certificate, findings=(*certificate.findings, f"others read this tokenizer otherwise: {read_otherwise}"))
    faults = certificate.faults(train_on_eos="turn", train_headers=False)
    console = out()
    if as_json:
        print_json({**certificate.as_dict(), "faults": faults})
    else:
        fields = {key: value for key, value in certificate.as_dict().items() if key not in ("findings", "chats")}
        rows = [*((key.replace("_", " "), _shown(value)) for key, value in fields.items()), *certificate.chats.items()]
        console.print(table("", "", rows=rows, title=f"{template} with {tokenizer}"))
        for finding in certificate.findings:
            console.print(f"finding: {finding}", style="yellow")
        for fault in faults:
            console.print(fault, style="red")
    if faults:
        raise typer.Exit(1)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = [f"{key}: {text}" for key, text in value.items()]
    if isinstance(value, list):
        return ", ".join(value)
    return str(value).replace("\n", "⏎") or "–"


def report_against(template: ChatTemplate, against: str, vocabulary: Vocabulary, *, as_json: bool) -> bool:
    """Compare two templates on every probe, print where they part, and say whether they do."""
    from prep_assets.templates.comparison import compare
    from prep_assets.templates.written import bind
    from prep_assets.tokenization.encode import Encoder
    from prep_assets.tokenization.engines import choose_engine
    from prep_assets.tokenization.policy import MaskPolicy

    other = _other(against, vocabulary)
    vocabulary = bind(bind(vocabulary, template), other)
    policy = MaskPolicy({"assistant": "train"}, "mask")
    found = list(compare(template, other, Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), policy)))
    if as_json:
        print_json([each.as_dict() for each in found])
    else:
        _show(found, template.name, against)
    return any(each.differs for each in found)


def _other(against: str, vocabulary: Vocabulary) -> ChatTemplate:
    """The template of a folder is that of the tokenizer in it, with its own special tokens."""
    from prep_assets.templates.load import load_template
    from prep_assets.tokenization.load import load_vocabulary

    if not Path(against).is_dir():
        return load_template(against, vocabulary, base=Path.cwd())
    return load_template("tokenizer", load_vocabulary(against, base=Path.cwd()), base=Path.cwd())


def _show(found: Sequence[Comparison], first: str, second: str) -> None:
    console = out()
    said = {"refused": "both refuse", "text": "text differs", "mask": "mask differs"}
    rows = [(each.chat, said.get(each.outcome, each.outcome)) for each in found]
    console.print(table("chat", "", rows=rows, title=f"{first} and {second}"))
    for each in found:
        if each.differs:
            console.print(f"{each.chat}\n  {first}: {each.first}\n  {second}: {each.second}")
    differing = sum(each.differs for each in found)
    console.print(f"{differing} of {len(found)} kinds of chat differ" if differing else f"equal in all {len(found)} kinds of chat")
