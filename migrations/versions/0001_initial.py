"""Conversations with their lines and items, responses, shared fragments, and the record of dropped state."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _conversations()
    _lines()
    _items()
    _fragments()
    _responses()
    _drops()


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=null)


def _blob(name: str, *, null: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.BLOB, nullable=null)


def _real(name: str, *, null: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.REAL, nullable=null)


def _integer(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=null)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _key() -> sa.Column[int]:
    return sa.Column("key", sa.Integer, primary_key=True)


def _conversation(*, key: bool) -> sa.Column[int]:
    owner = sa.ForeignKey("conversations.key", ondelete="CASCADE")
    return sa.Column("conversation", sa.Integer, owner, primary_key=key, nullable=False)


def _conversations() -> None:
    op.create_table(
        "conversations",
        _key(),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        _text("tenant"),
        _text("scope"),
        _text("role"),
        _text("family"),
        _blob("head_tools"),
        _blob("head_instructions"),
        _blob("opening", null=True),
        _text("continuation"),
        _text("parent", null=True),
        _text("side_kind", null=True),
        _text("tip_response", null=True),
        _integer("slot", null=True),
        _real("pinned_until", null=True),
        _flag("is_subagent"),
        _flag("waiting_for_tool"),
        _text("client"),
        _real("created_at"),
        _real("last_used_at"),
        _integer("hits"),
        _integer("tokens_prefilled"),
        _integer("tokens_reused"),
        _text("last_reason", null=True),
        _text("checkpoints"),
    )
    newest_first = sa.text("last_used_at DESC")
    op.create_index(
        "conversations_scope", "conversations", ["tenant", "scope", "role", newest_first]
    )
    op.create_index("conversations_opening", "conversations", ["tenant", "opening", newest_first])
    op.create_index("conversations_continuation", "conversations", ["continuation"])
    op.create_index("conversations_used", "conversations", ["last_used_at"])
    op.create_index(
        "conversations_slot",
        "conversations",
        ["slot"],
        unique=True,
        sqlite_where=sa.text("slot IS NOT NULL"),
    )


def _lines() -> None:
    op.create_table("lines", _conversation(key=True), _blob("item_list"), _blob("chain"))


def _items() -> None:
    op.create_table(
        "items",
        _conversation(key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        _blob("digest"),
        _integer("occurrence"),
        _blob("canonical", null=True),
        _text("kind"),
        _text("item_id"),
        _text("call_key", null=True),
        _flag("produced"),
        _text("payload"),
    )
    op.create_index("items_digest", "items", ["conversation", "digest", "occurrence"], unique=True)
    op.create_index("items_id", "items", ["item_id"])
    op.create_index(
        "items_call",
        "items",
        ["call_key"],
        sqlite_where=sa.text("call_key IS NOT NULL AND produced"),
    )


def _fragments() -> None:
    op.create_table("fragments", _key(), _text("tenant"), _blob("digest"), _text("payload"))
    op.create_index("fragments_digest", "fragments", ["tenant", "digest"], unique=True)


def _responses() -> None:
    op.create_table(
        "responses",
        _key(),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        _conversation(key=False),
        _text("previous_response", null=True),
        _real("created_at"),
        _real("completed_at"),
        _text("status"),
        _flag("retrievable"),
        _flag("deleted"),
        _text("model"),
        _text("effort", null=True),
        _integer("engine_generation"),
        _integer("input_tokens"),
        _integer("cached_tokens"),
        _integer("output_tokens"),
        _integer("reasoning_tokens"),
        _blob("prompt"),
        _blob("output"),
        _blob("output_digest", null=True),
        _blob("ledger_tokens", null=True),
        _integer("content_offset", null=True),
        _text("tokenizer_id", null=True),
        _text("reasoning", null=True),
        sa.Column("instructions", sa.Integer, sa.ForeignKey("fragments.key")),
        sa.Column("tools", sa.Integer, sa.ForeignKey("fragments.key")),
        _text("body", null=True),
        _text("plan"),
        _text("decision"),
    )
    op.create_index("responses_conversation", "responses", ["conversation", "completed_at"])
    op.create_index(
        "responses_output",
        "responses",
        ["conversation", "output_digest"],
        sqlite_where=sa.text("output_digest IS NOT NULL"),
    )
    op.create_index("responses_completed", "responses", ["completed_at"])
    op.create_index("responses_instructions", "responses", ["instructions"])
    op.create_index("responses_tools", "responses", ["tools"])


def _drops() -> None:
    op.create_table(
        "drops",
        _key(),
        _real("at"),
        _text("continuation"),
        _text("conversation", null=True),
        _text("reason"),
        _integer("tokens"),
        _integer("bytes"),
        _text("checkpoints"),
    )
    op.create_index("drops_conversation", "drops", ["conversation", "at"])
    op.create_index("drops_at", "drops", ["at"])
