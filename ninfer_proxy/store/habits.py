"""What was learned of each client family's habits. Knows its table only."""

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.dialects.sqlite import insert

from ninfer_proxy.habits import Habits, Place, Seen, Tally, learned
from ninfer_proxy.store.tables import habits
from ninfer_proxy.types import TenantKey

_OF_FAMILY = select(habits).where(
    habits.c.tenant == bindparam("of_tenant"), habits.c.family == bindparam("of_family")
)
_INSERT = insert(habits)
_RECORD = _INSERT.on_conflict_do_update(
    index_elements=["tenant", "family", "role", "back"],
    set_={"gone": _INSERT.excluded.gone, "kept": _INSERT.excluded.kept},
)


def learn(connection: Connection, tenant: TenantKey, family: str, seen: Seen) -> Habits | None:
    """Count what one more request has shown; returns the family's habits then, None where it has shown nothing."""
    if not seen:
        return None
    now = learned(of_family(connection, tenant, family), seen)
    rows = [
        {
            "tenant": tenant,
            "family": family,
            "role": place.role,
            "back": place.back,
            "gone": now[place].gone,
            "kept": now[place].kept,
        }
        for place in seen
    ]
    connection.execute(_RECORD, rows)
    return now


def of_family(connection: Connection, tenant: TenantKey, family: str) -> Habits:
    rows = connection.execute(_OF_FAMILY, {"of_tenant": tenant, "of_family": family})
    return {Place(row.role, row.back): Tally(row.gone, row.kept) for row in rows}


def all_habits(connection: Connection) -> Mapping[tuple[TenantKey, str], Habits]:
    """By tenant and family."""
    found: dict[tuple[TenantKey, str], dict[Place, Tally]] = {}
    for row in connection.execute(select(habits)):
        family = found.setdefault((TenantKey(row.tenant), row.family), {})
        family[Place(row.role, row.back)] = Tally(row.gone, row.kept)
    return found
