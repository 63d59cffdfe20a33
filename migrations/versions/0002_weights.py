"""Which weights a response was made with; None for those from before this was recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("responses", sa.Column("weights_id", sa.Text))
