"""Mutation testing of the build: bugs planted one at a time in code that builds, each tried by building small workspaces with all checks."""
