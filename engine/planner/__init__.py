"""Pure decisions of the engine as values: memory, admission, step, victims. No tensors, no clock."""
