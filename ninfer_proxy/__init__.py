"""One URL for agents: each client conversation is pinned to one persistent continuation in a local engine."""
