"""Brings a database to the schema this program expects. Knows Alembic; the steps themselves are in migrations/."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from ninfer_proxy.errors import StartRefused

SCRIPTS = Path(__file__).parents[2] / "migrations"
"""Beside the package in a checkout and in an installed wheel."""


def upgrade(connection: Connection, scripts: Path = SCRIPTS) -> tuple[str | None, str | None]:
    """Apply what is missing, all or nothing; returns the revisions before and after.

    Runs in the connection's transaction, with foreign keys off (tables are rebuilt). Errors: StartRefused for a
    database that isn't ours or comes from a newer program; it is left as it was.
    """
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    script = ScriptDirectory.from_config(config)
    before = _revision(connection, script)
    if before != script.get_current_head():
        command.upgrade(config, "head")
    return before, script.get_current_head()


def _revision(connection: Connection, script: ScriptDirectory) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is None and inspect(connection).get_table_names():
        raise StartRefused(
            f"{_file(connection)} is a database of another program. Choose another --data-dir."
        )
    if revision is not None and revision not in {each.revision for each in script.walk_revisions()}:
        raise StartRefused(
            f"{_file(connection)} was written by a newer ninfer-proxy (schema {revision}). "
            "Install that version, or choose another --data-dir."
        )
    return revision


def _file(connection: Connection) -> str:
    databases = connection.exec_driver_sql("PRAGMA database_list")
    return next(str(each.file) for each in databases if each.name == "main")
