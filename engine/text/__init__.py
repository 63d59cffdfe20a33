"""Between values and tokens: prompts become token ids, generated ids become text, reasoning and tool calls. Knows no tensors."""
