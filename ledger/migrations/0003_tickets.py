"""Step 2 of the record, tickets: the library's own SQL, run by the library's own runner."""

from typing import Any

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

STEP = 2


def upgrade(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Bring the tables to this step, inside the migration's transaction."""
    from c4a.record import schema

    schema_editor.connection.ensure_connection()
    schema.upgrade(schema_editor.connection.connection, to=STEP)


class Migration(migrations.Migration):
    """Never reversed: an append-only record is not dropped by a migration."""

    dependencies = [("ledger", "0002_models")]
    operations = [
        migrations.RunPython(upgrade, elidable=False),
        migrations.CreateModel(
            name="Ticket",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("organization", models.TextField()),
                ("run", models.TextField()),
                ("key", models.TextField()),
                ("seq", models.BigIntegerField()),
                ("last_at", models.BigIntegerField()),
                ("prev_digest", models.TextField()),
                ("last_digest", models.TextField()),
                ("last_payload_digest", models.TextField()),
                ("slot", models.TextField()),
                ("number", models.BigIntegerField()),
                ("tool", models.TextField()),
                ("call_digest", models.TextField()),
                ("explicit_key", models.TextField(null=True)),
                ("state", models.TextField()),
                ("asked_by", models.TextField()),
                ("asked_at", models.BigIntegerField()),
                ("expires_at", models.BigIntegerField()),
                ("why", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
                ("decided_by", models.TextField(null=True)),
                ("decided_at", models.BigIntegerField(null=True)),
                ("reason", models.TextField(null=True)),
                ("approval", models.TextField(null=True)),
                ("waited", models.BigIntegerField()),
            ],
            options={"db_table": "c4a_ticket", "abstract": False, "managed": False},
        ),
    ]
