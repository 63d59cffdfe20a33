"""Fixtures of many rows are databases that the store itself can use, of either schema; looks at a database see what is in it."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from ninfer_proxy.app import TENANT_SECRET_FILE
from ninfer_proxy.http.intake import tenant_name
from ninfer_proxy.store.datadir import kept_secret
from ninfer_proxy.store.store import Store
from ninfer_proxy.types import ResponseId
from tests.cases.database import OLDEST, Records


@pytest.mark.parametrize("schema", ["current", "oldest_supported"])
async def test_a_fixture_can_be_used_by_the_store(tmp_path: Path, schema: str) -> None:
    data_dir = tmp_path / "data"
    records = Records(data_dir)
    await records.install_fixture(schema, rows=50, chain_depth=7, key="k")
    assert records.fixture_rows() == 50
    assert records.integrity() == "ok"
    tenant = tenant_name("k", kept_secret(data_dir, TENANT_SECRET_FILE).encode())
    store = await Store.open(data_dir, clock=time.time)
    try:
        assert (store.revisions[0] == OLDEST) == (schema == "oldest_supported")
        one = await store.history(tenant, ResponseId("resp_fixture_42"))
        chain = await store.history(tenant, ResponseId("resp_chain_7"))
        assert one is not None
        assert chain is not None
        assert (len(one.items), len(chain.items)) == (1, 14)
    finally:
        await store.close()
    assert records.row_counts()["responses"] == 57


async def test_damage_is_seen(tmp_path: Path) -> None:
    records = Records(tmp_path / "data")
    await records.install_fixture("current", rows=200, chain_depth=0, key="k")
    with closing(sqlite3.connect(records.file)) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'tenant, ', '') WHERE name = 'conversations_scope'"
        )
        database.commit()
    assert records.integrity() != "ok"
    assert records.integrity_of_the_dead() != "ok"


async def test_what_is_no_database_is_seen(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.file.write_bytes(b"no database at all" * 1000)
    assert "not a database" in records.integrity()
