"""From source files to the payload of a store: workspaces, assets, examples in blocks, and the writers of each kind."""
