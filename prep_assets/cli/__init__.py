"""The command line `prep-assets`. Heavy imports happen when a command runs."""
