"""A bundled inference engine for Qwen3.5-family hybrid models: tokens and bytes in, events out."""
