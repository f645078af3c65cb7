"""`prep-assets init`, `demo`, `schemas`, `sniff` and `json-schema`: a first configuration, a first table, schemas of rows, completion in editors."""
