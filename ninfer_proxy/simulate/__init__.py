"""What a machine would have cost: traces replayed through the real identity and planning, beside other policies and the optimum. Pure but for reading files."""
