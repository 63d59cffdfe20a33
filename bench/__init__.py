"""Measurements of the engine beside others: correctness first, then ratios within one run. Shipped with the source, not installed."""
