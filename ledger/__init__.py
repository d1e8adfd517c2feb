"""Django's face of the record: models over the library's tables, the executor, the sweep, the read-only admin."""
