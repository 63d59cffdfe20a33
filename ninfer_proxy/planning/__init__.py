"""What is worth keeping and where a turn runs: slots, anchors, pins, eviction, and the reason told afterwards. Pure."""
