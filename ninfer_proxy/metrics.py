"""Names, units and the one registry of what is counted. Knows the values of a turn; doesn't know who calls."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ninfer_proxy.types import Decision

TTFT_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
"""Seconds. A warm turn takes tenths, a cold long one minutes: the buckets tell these apart."""


class Metrics:
    """Mutable; one for each app. Counters end in `_total` on the page, as Prometheus wants it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._requests = self._counter(
            "ninfer_http_requests", "HTTP requests answered", "route", "status"
        )
        self._errors = self._counter("ninfer_errors", "Errors told to clients", "code")
        self._turns = self._counter(
            "ninfer_turns", "Turns ended, by why tokens were (not) prefilled", "reason"
        )
        self._statuses = self._counter("ninfer_responses", "Turns ended, by status", "status")
        self._prefilled = self._counter("ninfer_prefilled_tokens", "Prompt tokens computed")
        self._reused = self._counter("ninfer_reused_tokens", "Prompt tokens not computed again")
        self._output = self._counter("ninfer_output_tokens", "Tokens generated")
        self._prepared = self._counter(
            "ninfer_prepared_prompts", "Prompts computed ahead, by how that ended", "outcome"
        )
        self._prepared_tokens = self._counter(
            "ninfer_prepared_tokens", "Prompt tokens computed ahead of requests"
        )
        self._restarts = self._counter("ninfer_engine_restarts", "Engine processes that died")
        self._dropped = self._counter(
            "ninfer_dropped_checkpoints", "Checkpoints that ceased to exist", "reason"
        )
        self._unpinned = Gauge(
            "ninfer_engine_unpinned_host_bytes",
            "Host memory that should be page-locked and is not",
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "ninfer_turns_in_flight", "Turns accepted and not ended", registry=self.registry
        )
        self._ttft = Histogram(
            "ninfer_time_to_first_token_seconds",
            "From the request's arrival to its first output",
            buckets=TTFT_BUCKETS,
            registry=self.registry,
        )

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)

    def request_answered(self, route: str, status: int) -> None:
        self._requests.labels(route, str(status)).inc()

    def error_told(self, code: str) -> None:
        self._errors.labels(code).inc()

    def turn_ended(self, decision: Decision, status: str, output_tokens: int) -> None:
        """`status` is completed, incomplete, cancelled or failed."""
        self._turns.labels(decision.reason.value).inc()
        self._statuses.labels(status).inc()
        self._prefilled.inc(decision.prefilled_tokens)
        self._reused.inc(decision.reused_tokens)
        self._output.inc(output_tokens)

    def turn_broken(self) -> None:
        """A turn that ended in a fault after its client was told of a response; a refusal before that is an error only."""
        self._statuses.labels("failed").inc()

    def first_token(self, seconds: float) -> None:
        self._ttft.observe(seconds)

    def prompt_prepared(self, outcome: str, computed_tokens: int) -> None:
        self._prepared.labels(outcome).inc()
        self._prepared_tokens.inc(computed_tokens)

    def engine_restarted(self) -> None:
        self._restarts.inc()

    def engine_ready(self, unpinned_host_bytes: int) -> None:
        self._unpinned.set(unpinned_host_bytes)

    def checkpoints_dropped(self, reason: str, count: int) -> None:
        self._dropped.labels(reason).inc(count)

    @contextmanager
    def turn_in_flight(self) -> Iterator[None]:
        """Counts one turn as running while the context is open."""
        with self._in_flight.track_inprogress():
            yield

    def render(self) -> tuple[bytes, str]:
        """The page that Prometheus reads, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
