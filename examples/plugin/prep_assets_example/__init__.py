"""One of each kind of thing that a package can add to prep-assets."""
