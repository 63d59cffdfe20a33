"""The metrics page: names with units, one reason a turn, no state shared between apps."""

from ninfer_proxy.metrics import Metrics
from ninfer_proxy.types import ConversationId, Decision, MatchKind, Reason


def decision(reason: Reason) -> Decision:
    return Decision(
        reason, "", 0, ConversationId("c"), MatchKind.CONTINUES, (), 100, 80, None, None
    )


def test_a_turn_is_counted_once_under_its_reason() -> None:
    metrics = Metrics()
    with metrics.turn_in_flight():
        assert b"ninfer_turns_in_flight 1.0" in metrics.render()[0]
        metrics.first_token(0.3)
        metrics.turn_ended(decision(Reason.CACHE_HIT), "completed", 7)
    metrics.turn_ended(decision(Reason.EVICTED), "incomplete", 1)
    metrics.checkpoints_dropped("memory", 3)
    metrics.prompt_prepared("taken_up", 48)
    metrics.engine_restarted()
    metrics.engine_ready(unpinned_host_bytes=512)
    lines = metrics.render()[0].decode().splitlines()
    for line in (
        'ninfer_turns_total{reason="cache_hit"} 1.0',
        'ninfer_turns_total{reason="evicted"} 1.0',
        'ninfer_responses_total{status="incomplete"} 1.0',
        "ninfer_prefilled_tokens_total 40.0",
        "ninfer_reused_tokens_total 160.0",
        "ninfer_output_tokens_total 8.0",
        "ninfer_turns_in_flight 0.0",
        'ninfer_time_to_first_token_seconds_bucket{le="0.5"} 1.0',
        'ninfer_dropped_checkpoints_total{reason="memory"} 3.0',
        'ninfer_prepared_prompts_total{outcome="taken_up"} 1.0',
        "ninfer_prepared_tokens_total 48.0",
        "ninfer_engine_restarts_total 1.0",
        "ninfer_engine_unpinned_host_bytes 512.0",
    ):
        assert line in lines


def test_two_apps_in_one_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.engine_restarted()
    assert b"ninfer_engine_restarts_total 0.0" in second.render()[0]
