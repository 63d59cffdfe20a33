"""The engine's faults. Expected outcomes (rejected, evicted, cancelled) are values of engine.api, not errors.

EngineError
├── ConfigRefused     the configuration can't work here; the message says what is missing and by how much
├── ModelFault        a forward pass failed; the sequences of that step end, and the process with them
└── StateFault        a fault left the accounts of memory wrong; the process ends before anybody is served from them
"""


class EngineError(Exception):
    """Base of all."""


class ConfigRefused(EngineError):
    """Start-up ends with this message."""


class ModelFault(EngineError):
    """Raised by the runner around whatever the model raised."""


class StateFault(EngineError):
    """Raised by the loop when integrity.check fails after a contained fault."""
