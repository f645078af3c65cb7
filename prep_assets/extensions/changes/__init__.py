"""`prep-assets diff`, `compare` and `impact`: what differs between versions and folders of stores, and what a change of the configuration would do."""
