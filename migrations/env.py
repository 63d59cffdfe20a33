"""Runs the steps on the connection that `ninfer_proxy.store.migrate` hands in. Knows no step."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    render_as_batch=True,  # SQLite changes a table by rebuilding it
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    assert not broken, f"a migration broke references: {broken[:5]}"
