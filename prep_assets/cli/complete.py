"""Values of arguments and options that a shell completes: assets and domains of the configuration, formats, schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem


def _assets(context: click.Context) -> Iterable[str]:
    from prep_assets.config.models import FAMILIES
    from prep_assets.graph.graph import family_assets
    from prep_assets.pipeline.workspace import Workspace

    workspace = Workspace.open()
    return (name for family in filter(workspace.has, FAMILIES) for name in family_assets(workspace, family))


def _domains(context: click.Context) -> Iterable[str]:
    from prep_assets.config.models import FAMILIES
    from prep_assets.pipeline.workspace import Workspace

    workspace = Workspace.open()
    families = filter(workspace.has, FAMILIES)
    return dict.fromkeys(domain for family in families for domain in workspace.declared(FAMILIES[family]).domains)


def _families(context: click.Context) -> Iterable[str]:
    from prep_assets.config.models import FAMILIES

    return FAMILIES


def _formats(context: click.Context) -> Iterable[str]:
    from prep_assets import plugins

    exports = plugins.of_extension("exporting", "formats")
    return exports() if exports else ()


def _schemas(context: click.Context) -> Iterable[str]:
    from prep_assets.schemas.registry import schemas

    return schemas()


VALUES: dict[str, Callable[[click.Context], Iterable[str]]] = {
    "asset": _assets,
    "assets": _assets,
    "partition": _domains,
    "family": _families,
    "train": _families,
    "to": _formats,
    "schema": _schemas,
}
"""Name of a parameter → what it may be. The name of `prep-assets schemas NAME` is a schema."""


def add_completion(command: click.Command) -> click.Command:
    """Let a shell complete the values of a command's parameters."""
    for parameter in command.params:
        key = "schema" if (command.name, parameter.name) == ("schemas", "name") else str(parameter.name)
        if (values := VALUES.get(key)) and parameter._custom_shell_complete is None:
            parameter.shell_complete = _completing(values)  # type: ignore[method-assign, assignment]
    return command


def _completing(values: Callable[[click.Context], Iterable[str]]) -> Callable[[click.Context, str], list[CompletionItem[Any]]]:
    def complete(context: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        try:
            return [CompletionItem(value) for value in values(context) if value.startswith(incomplete)]
        except Exception:  # a broken configuration must not print into somebody's prompt
            return []

    return complete
