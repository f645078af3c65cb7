"""AstrAI's rendering of one message: a bare Jinja template, in a sandbox.

AstrAI compiles templates with plain ``jinja2.Template``: without ``trim_blocks`` and ``lstrip_blocks``, which transformers sets, and with
no variables but ``messages`` and ``add_generation_prompt``; ``bos_token`` and ``eos_token`` are undefined and come out empty. So one
template can render otherwise there than in transformers, and this module does as AstrAI does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused, TemplateError
from prep_assets.tokenization.vocabulary import Vocabulary


class MessageTemplate:
    """A tokenizer's chat template, for one message at a time.

    Raises:
        TemplateError: the tokenizer has none, or it is no Jinja.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        from jinja2 import TemplateSyntaxError

        if vocabulary.chat_template is None:
            raise TemplateError(f"tokenizer {vocabulary.name} has no chat_template in its tokenizer_config.json; chats need one")
        try:
            self._template = _environment().from_string(vocabulary.chat_template)
        except TemplateSyntaxError as error:
            raise TemplateError(f"the chat template of {vocabulary.name}, line {error.lineno}: {error.message}") from error

    def render(self, message: Mapping[str, Any]) -> str:
        """The text of a conversation of this message alone, without a generation prompt.

        Raises:
            Refused: the template fails on it, or says no.
        """
        from jinja2 import TemplateError as JinjaError

        try:
            return str(self._template.render(messages=[message], add_generation_prompt=False))
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise Refused("template_refuses", f"a {message.get('role')} message alone: {error}", stage="render") from error


def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Transformers' ``{% generation %}``, which marks answers and prints nothing."""

        tags = {"generation"}  # noqa: RUF012  (jinja reads it from the class)

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    return ImmutableSandboxedEnvironment(extensions=[Generation])
