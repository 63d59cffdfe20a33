"""Model definitions: tensors in, tensors out. They know pools and batches, not requests, lanes' owners or checkpoints."""
