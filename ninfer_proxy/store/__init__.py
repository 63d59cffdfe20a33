"""Everything durable: conversations, items, responses, intent about slots. SQLAlchemy stays behind this package."""

from ninfer_proxy.store.records import (
    ConversationDetail,
    ConversationDraft,
    DropRecord,
    ItemPage,
    Reconciled,
    RecordedItem,
    StoredConversation,
    StoredDrop,
    StoredHistory,
    StoredOutput,
    StoredResponse,
    Swept,
    TurnRecord,
)
from ninfer_proxy.store.store import Store

__all__ = [
    "ConversationDetail",
    "ConversationDraft",
    "DropRecord",
    "ItemPage",
    "Reconciled",
    "RecordedItem",
    "Store",
    "StoredConversation",
    "StoredDrop",
    "StoredHistory",
    "StoredOutput",
    "StoredResponse",
    "Swept",
    "TurnRecord",
]
