"""`prep-assets certify --against`: what a second chat template for the same model does otherwise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from prep_assets.cli.console import out, table

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate
    from prep_assets.templates.comparison import Comparison
    from prep_assets.tokenization.vocabulary import Vocabulary


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
        typer.echo(json.dumps([each.as_dict() for each in found], indent=1, ensure_ascii=False))
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
    shown = table("chat", "", title=f"{first} and {second}")
    for each in found:
        shown.add_row(each.chat, {"refused": "both refuse", "text": "text differs", "mask": "mask differs"}.get(each.outcome, each.outcome))
    console.print(shown)
    for each in found:
        if each.differs:
            console.print(f"{each.chat}\n  {first}: {each.first}\n  {second}: {each.second}", soft_wrap=True, markup=False)
    differing = sum(each.differs for each in found)
    console.print(f"{differing} of {len(found)} kinds of chat differ" if differing else f"equal in all {len(found)} kinds of chat")
