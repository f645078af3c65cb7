"""Schemas: one for each row format of data sets, registered by the entry points `prep_assets.schemas`."""
