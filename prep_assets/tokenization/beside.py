"""What stands beside a published tokenizer: names of special tokens and chat templates, as `transformers` reads them.

tokenizer_config.json       bos_token, eos_token, …; chat_template: one, or several by name
special_tokens_map.json     names that the configuration leaves out
chat_template.jinja         the template, before that of the configuration
additional_chat_templates/  further ones by name
chat_template.json          the template of a processor, where there is no other
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prep_assets.disk.strict_json import loads
from prep_assets.errors import ConfigError
from prep_assets.tokenization.native import checked_size

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
DEFAULT = "default"


def read_object(path: Path) -> Mapping[str, Any]:
    """A file that holds a JSON object; empty where there is none.

    Raises:
        ConfigError: it holds something else.
    """
    if not path.is_file():
        return {}
    try:
        found = loads(checked_size(path).read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path} holds {type(found).__name__}, needs an object")
    return found


def special_tokens(folder: Path) -> dict[str, str]:
    """Names and texts of special tokens, such as ``eos_token``; also those that one model alone has (``image_token``)."""
    found: dict[str, str] = {}
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        config = read_object(folder / file)
        own = [config.get(key) for key in ("extra_special_tokens", "model_specific_special_tokens")]
        for names in (config, *(each for each in own if isinstance(each, Mapping))):
            for name, token in names.items():
                text = token.get("content") if isinstance(token, Mapping) else token
                if isinstance(text, str) and (name in NAMES or names is not config):
                    found.setdefault(name, text)
    return found


def chat_templates(folder: Path) -> dict[str, str]:
    """Chat templates by name; one without a name is ``default``."""
    found = templates_by_name(read_object(folder / "tokenizer_config.json").get("chat_template"))
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        found[DEFAULT] = read_text(beside)
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.name.removesuffix(".jinja")] = read_text(path)
    return found or templates_by_name(read_object(folder / "chat_template.json").get("chat_template"))


def read_text(path: Path) -> str:
    """A template.

    Raises:
        ConfigError: it is too large, or no UTF-8.
    """
    try:
        return checked_size(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8 ({error.reason}); save the template as UTF-8") from error


def templates_by_name(value: Any) -> dict[str, str]:
    """One template, a list of ``{name, template}``, or a mapping of names to templates."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, list):
        pairs = [(each.get("name"), each.get("template")) for each in value if isinstance(each, Mapping)]
    else:
        pairs = [*value.items()] if isinstance(value, Mapping) else []
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}
