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
    # From now on agents come through the server, which may host several organizations; a database that `c4a migrate` made
    # belongs to the one organization whose agents open it, and stays so.
    schema_editor.execute(
        "INSERT INTO c4a_meta (name, value) SELECT 'server', '1'"
        " WHERE NOT EXISTS (SELECT 1 FROM c4a_meta WHERE name IN ('organization', 'server'))"
    )


class Migration(migrations.Migration):
    """Never reversed: an append-only record is not dropped by a migration."""

    initial = True
    dependencies = []
    operations = [migrations.RunPython(upgrade, elidable=False)]
