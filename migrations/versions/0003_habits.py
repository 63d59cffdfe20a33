"""Which items of a request each client family takes back with the next one."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "habits",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("family", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("back", sa.Integer, nullable=False),
        sa.Column("gone", sa.REAL, nullable=False),
        sa.Column("kept", sa.REAL, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "family", "role", "back"),
    )
