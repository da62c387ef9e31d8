"""How the gradient of an embedding travels between replicas: as the rows that were touched, or as the whole table.

The trainer decides by it (`trainer/model/reduce.py`), and an advice predicts by it."""

# Rows travel as rows when the table is so large that a dense copy hurts, and all replicas' rows are so small a part of
# it that gathering them costs less than reducing the whole.
ROWS_TABLE_BYTES = 16 * 1024 * 1024
ROWS_SHARE = 0.25


def travels_as_rows(*, table_bytes: int, table_rows: int, rows: float, replicas: int) -> bool:
    """Whether `replicas` that touch `rows` each send those, instead of the table of `table_rows`."""
    return table_bytes >= ROWS_TABLE_BYTES and rows * replicas <= ROWS_SHARE * table_rows
