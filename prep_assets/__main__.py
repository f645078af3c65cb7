"""`python -m prep_assets` is the command `prep-assets`."""

from prep_assets.cli.entry import main

main()
