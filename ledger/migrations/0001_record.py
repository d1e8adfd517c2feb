"""Step 1 of the record: the library's own SQL, run by the library's own runner."""

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

STEP = 1


def upgrade(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Bring the tables to this step, inside the migration's transaction."""
    from c4a.record import schema

    schema_editor.connection.ensure_connection()
    schema.upgrade(schema_editor.connection.connection, to=STEP)


class Migration(migrations.Migration):
    """Never reversed: an append-only record is not dropped by a migration."""

    initial = True
    dependencies = []
    operations = [migrations.RunPython(upgrade, elidable=False)]
