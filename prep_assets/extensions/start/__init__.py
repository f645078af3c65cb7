"""`prep-assets init`, `demo` and `json-schema`: a first configuration, a first table, and completion in editors."""
