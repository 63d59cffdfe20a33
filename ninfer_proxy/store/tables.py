"""The tables. Their history is in migrations/ (a test compares the two); knows no query.

conversations ─┬─ lines       the current line of each: item list and chain of canonical digests (large, rewritten each turn)
               ├─ items       each item once, numbered per conversation in order of arrival
               └─ responses   lists of item numbers, final body, ledger, plan and decision
fragments      instructions and tool lists, once per tenant: agents send the same 50 KB with every request
drops          checkpoints that ceased to exist
habits         which items clients take back, by client family and place
"""

from sqlalchemy import (
    BLOB,
    REAL,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

metadata = MetaData()

conversations = Table(
    "conversations",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("head_tools", BLOB, nullable=False),
    Column("head_instructions", BLOB, nullable=False),
    Column("opening", BLOB),
    Column("continuation", Text, nullable=False),
    Column("parent", Text),
    Column("side_kind", Text),
    Column("tip_response", Text),
    Column("slot", Integer),
    Column("pinned_until", REAL),
    Column("is_subagent", Boolean, nullable=False),
    Column("waiting_for_tool", Boolean, nullable=False),
    Column("client", Text, nullable=False),
    Column("created_at", REAL, nullable=False),
    Column("last_used_at", REAL, nullable=False),
    Column("hits", Integer, nullable=False),
    Column("tokens_prefilled", Integer, nullable=False),
    Column("tokens_reused", Integer, nullable=False),
    Column("last_reason", Text),
    Column("checkpoints", Text, nullable=False),
    Index("conversations_scope", "tenant", "scope", "role", text("last_used_at DESC")),
    Index("conversations_opening", "tenant", "opening", text("last_used_at DESC")),
    Index("conversations_continuation", "continuation"),
    Index("conversations_used", "last_used_at"),
    Index("conversations_slot", "slot", unique=True, sqlite_where=text("slot IS NOT NULL")),
)


def _conversation() -> ForeignKey:
    return ForeignKey("conversations.key", ondelete="CASCADE")


lines = Table(
    "lines",
    metadata,
    Column("conversation", Integer, _conversation(), primary_key=True),
    Column("item_list", BLOB, nullable=False),
    Column("chain", BLOB, nullable=False),
)

items = Table(
    "items",
    metadata,
    Column("conversation", Integer, _conversation(), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("digest", BLOB, nullable=False),
    Column("occurrence", Integer, nullable=False),
    Column("canonical", BLOB),
    Column("kind", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    Column("call_key", Text),
    Column("produced", Boolean, nullable=False),
    Column("payload", Text, nullable=False),
    Index("items_digest", "conversation", "digest", "occurrence", unique=True),
    Index("items_id", "item_id"),
    Index(
        "items_call",
        "call_key",
        sqlite_where=text("call_key IS NOT NULL AND produced"),
    ),
)

fragments = Table(
    "fragments",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("digest", BLOB, nullable=False),
    Column("payload", Text, nullable=False),
    Index("fragments_digest", "tenant", "digest", unique=True),
)

responses = Table(
    "responses",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("conversation", Integer, _conversation(), nullable=False),
    Column("previous_response", Text),
    Column("created_at", REAL, nullable=False),
    Column("completed_at", REAL, nullable=False),
    Column("status", Text, nullable=False),
    Column("retrievable", Boolean, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("model", Text, nullable=False),
    Column("effort", Text),
    Column("engine_generation", Integer, nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("reasoning_tokens", Integer, nullable=False),
    Column("prompt", BLOB, nullable=False),
    Column("output", BLOB, nullable=False),
    Column("output_digest", BLOB),
    Column("ledger_tokens", BLOB),
    Column("content_offset", Integer),
    Column("tokenizer_id", Text),
    Column("reasoning", Text),
    Column("instructions", Integer, ForeignKey("fragments.key")),
    Column("tools", Integer, ForeignKey("fragments.key")),
    Column("body", Text),
    Column("plan", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("weights_id", Text),
    Index("responses_conversation", "conversation", "completed_at"),
    Index(
        "responses_output",
        "conversation",
        "output_digest",
        sqlite_where=text("output_digest IS NOT NULL"),
    ),
    Index("responses_completed", "completed_at"),
    Index("responses_instructions", "instructions"),
    Index("responses_tools", "tools"),
)

drops = Table(
    "drops",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("at", REAL, nullable=False),
    Column("continuation", Text, nullable=False),
    Column("conversation", Text),
    Column("reason", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("checkpoints", Text, nullable=False),
    Index("drops_conversation", "conversation", "at"),
    Index("drops_at", "at"),
)

habits = Table(
    "habits",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("family", Text, primary_key=True),
    Column("role", Text, primary_key=True),
    Column("back", Integer, primary_key=True),
    Column("gone", REAL, nullable=False),
    Column("kept", REAL, nullable=False),
)
