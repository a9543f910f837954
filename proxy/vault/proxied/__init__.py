"""Records that the proxy collects: staged writes, tokens back to values, reconciliation."""
