"""Export formats, by trainer. `prep_assets.exports` has their registry, and what reads and writes of all of them share."""
