"""Where tokens come from. Each backend takes a GenerateRequest and gives events; none knows conversations."""
