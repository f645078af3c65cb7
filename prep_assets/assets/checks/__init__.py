"""Checks of published stores: how each gets at its data. What it proves of the data is in `prep_assets.proofs`."""
