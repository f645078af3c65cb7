"""A command: `prep-assets terms`. What it needs it imports when it is called."""


def terms() -> None:
    """List the terms of every domain of the glossary."""
    import typer

    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.stores.table import open_stream
    from prep_assets_example.family import GLOSSARY

    workspace = Workspace.open()
    for domain in GLOSSARY.partitions(workspace):
        for line in open_stream(workspace.built(GLOSSARY.name, domain).directory, "glossary"):
            typer.echo(f"{domain}: {line['term']}")
