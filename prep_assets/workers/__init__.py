"""Work in shards: a plan that depends on the input alone, carried out by a pool of processes, results in the order of the plan."""
