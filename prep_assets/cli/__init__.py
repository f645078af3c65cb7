"""The command line: `prep-assets`. One file for each command; what is heavy to import is imported when a command runs."""
