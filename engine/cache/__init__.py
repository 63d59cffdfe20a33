"""Memory of the engine: pages, lanes, state images, checkpoints and their tiers. Knows tokens and bytes, never text."""
