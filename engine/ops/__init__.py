"""Tensor operations, one package each. They know shapes and dtypes, not models, batches of requests or pools' owners.

Each package's `__init__` states the contract (formula, shapes, dtypes, what is mutated) and picks the implementation by device;
`naive.py` is the formula as plainly as torch can say it, computed in fp32, and is what every other implementation is tested against.
"""
