"""The wire: JSON and SSE in and out, status codes, API keys. Knows the TurnService seam; doesn't know engines, plans or tables."""
