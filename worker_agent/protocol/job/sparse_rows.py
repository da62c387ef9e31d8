"""How the gradient of an embedding travels between replicas: as the rows that were touched, or as the whole table.

The trainer decides by it (`trainer/model/reduce.py`), and an advice predicts by it. Measured with two replicas on two
cores (`python -m benchmarks.bare.rows`; median of three runs by gRPC, mean of two within one process): what rows take
of the time of the whole table, by the size of the table and the share of its rows that all replicas touch:

            by gRPC                                 within one process
    share   0.5 MiB     1     2     4    16 MiB     0.5 MiB     1     2     4    16 MiB
    1/64       1.37  0.98  0.58  0.31  0.11            0.98  0.69  0.45  0.40  0.15
    1/16       1.33  0.82  0.63  0.43  0.13            1.00  0.70  0.56  0.48  0.20
    1/8        1.50  1.15  0.63  0.37  0.22            1.13  1.03  0.65  0.54  0.25
    1/4        1.42  1.06  0.82  0.48  0.26            1.14  0.96  0.73  0.83  0.33
"""

MIB = 1024 * 1024
# From here on rows win at every share, by gRPC and within one process alike: one border serves both.
ROWS_TABLE_BYTES = 2 * MIB
# GPUs move whole tables far faster, and copy rows in more steps: not measured, so only where a whole copy surely hurts.
ROWS_TABLE_BYTES_GPU = 16 * MIB
# All replicas' rows are so small a part of the table that gathering them costs less than reducing the whole.
ROWS_SHARE = 0.25


def travels_as_rows(*, table_bytes: int, table_rows: int, rows: float, replicas: int, on_gpus: bool) -> bool:
    """Whether `replicas` that touch `rows` each send those, instead of the table of `table_rows`."""
    least = ROWS_TABLE_BYTES_GPU if on_gpus else ROWS_TABLE_BYTES
    return table_bytes >= least and rows * replicas <= ROWS_SHARE * table_rows
