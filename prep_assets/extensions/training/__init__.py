"""What trainers read: stores and trainers' own files by `prep_assets.load`, and data sets of PyTorch. The only room that imports torch."""
