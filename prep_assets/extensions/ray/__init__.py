"""Ray clusters: `cluster: {kind: ray}`."""
