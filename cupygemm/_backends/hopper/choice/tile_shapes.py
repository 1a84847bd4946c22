"""The configurations of Hopper's kernels that are built: tiles, rings and clusters.

`CONFIGS` is for 16-bit operands; operands of 8 and 32 bits use the same rows with the same bytes of
k. `NARROW_CONFIGS` and `TRANSPOSED_CONFIGS` have intermediate widths, and the latter compute the
transpose of C. `F64_CONFIGS` is for fp64. `configurations` says which of them a product may use.
"""

from __future__ import annotations

import functools

from cupygemm._backends.config_table import ConfigTable
from cupygemm._backends.hopper.choice.tile_rows import (
    config_of,
    part_config_of,
    short_widths_of,
    widths_of,
)

CONFIGS = ConfigTable(
    "CONFIGS",
    config_of,
    """
    tile_m  tile_n  tile_k  num_consumers  num_stages  epilogue_buffers  cluster_m  cluster_n
       128     256      64              2           4                 2          1          1
       128     256      64              2           4                 2          2          1
       256     128      64              2           4                 2          1          1
       256     128      64              2           4                 2          1          2
       128     128      64              2           6                 2          2          1
       128     128      64              2           6                 2          1          2
       128     128      64              2           6                 2          1          1
       128     128      64              2           6                 2          1          4
       128     128      64              2           6                 2          4          1
       128     128      64              2           6                 2          2          4
       128     192      64              2           4                 2          1          1
       128     192      64              2           4                 2          2          1
       128     192      64              2           4                 2          1          2
       192     128      64              3           4                 2          1          1
       192     128      64              3           4                 2          2          1
       192     192      64              3           4                 1          2          1
       256     128      64              2           4                 2          2          1
       128     256      64              2           4                 2          1          2
        64      64      64              1          12                 2          2          1
        64      64      64              1          12                 2          2          2
        64      64     128              1           6                 1          2          2
        64      64     128              1           6                 1          2          4
        64     128      64              1           8                 2          2          2
        64     128      64              1           8                 2          1          4
        64     128     128              1           4                 2          1          1
       128      64     128              2           4                 2          1          1
       128      64     128              2           4                 2          1          4
       128     128      64              2           6                 2          2          2
        64     128      64              1           8                 2          2          1
        64     128      64              1           8                 2          1          1
        64     128      64              1           8                 2          4          1
        64     128      64              1           8                 2          4          2
       128      64      64              2           8                 2          1          1
       128      64      64              2           8                 2          2          1
       128      64      64              2           8                 2          1          4
        64      64      64              1          13                 1          1          1
        64      64      64              1          13                 1          2          4
        64      64      64              1          12                 2          4          1
        64      64     128              1           6                 1          1          1
        64      64     128              1           6                 1          1          2
        64      64     128              1           6                 1          1          4
    """,
)
"""Configurations for operands of 16 bits that compute C itself, not its transpose."""
NARROW_CONFIGS = ConfigTable(
    "NARROW_CONFIGS",
    config_of,
    """
    tile_m  tile_n  tile_k  num_consumers  num_stages  epilogue_buffers  cluster_m  cluster_n
        64      32      64              1          13                 2          1          1
        64      32      64              1          13                 2          1          2
        64      32      64              1          13                 2          1          4
        64      96      64              1           8                 2          1          4
        64      96      64              1           8                 2          2          1
        64      96      64              1           8                 2          2          4
        64      96      64              1           8                 2          4          1
        64     160      64              1           6                 2          4          1
        64     224      64              1           5                 2          4          1
       128      96      64              2           6                 2          1          4
       128     160      64              2           5                 1          1          2
       128     160      64              2           5                 1          1          4
       128     160      64              2           5                 1          2          1
       128     160      64              2           5                 1          2          4
       128     160      64              2           5                 1          4          1
       128     224      64              2           4                 2          1          2
       128     224      64              2           4                 2          2          1
       192      96      64              3           5                 1          1          1
       192      96      64              3           5                 1          1          4
       192     160      64              3           4                 1          1          2
       192     160      64              3           4                 1          2          1
       256     160      64              2           3                 2          1          1
        64      96      64              1           8                 2          1          1
       128      96      64              2           6                 2          1          1
       128      96      64              2           6                 2          1          2
       128      96      64              2           6                 2          2          1
       192     160      64              3           4                 1          1          1
        64      48      64              1          13                 2          1          1
        64      48      64              1          13                 2          1          4
        64      80      64              1           8                 2          1          1
        64      80      64              1           8                 2          2          1
       128      80      64              2           6                 2          2          4
        64     160      64              1           6                 2          1          1
        64     160      64              1           6                 2          2          1
        64     176      64              1           6                 2          4          1
        64     192      64              1           6                 2          4          1
       128     112      64              2           6                 2          2          1
       128     144      64              2           5                 1          2          1
       128     176      64              2           4                 2          2          1
       128     208      64              2           4                 2          2          1
       192     128      64              3           4                 2          1          2
       192     112      64              3           5                 1          2          1
       192     112      64              3           5                 1          1          2
       192     144      64              3           4                 1          2          1
       192     144      64              3           4                 1          1          2
       192     176      64              3           4                 1          2          1
       192     176      64              3           4                 1          1          2
       192     136      64              3           4                 1          2          1
       192     136      64              3           4                 1          1          2
       192     168      64              3           4                 1          2          1
       192     168      64              3           4                 1          1          2
    """,
)
"""Like `CONFIGS`, for operands of 16 bits only; the last boxes of B and of C may be narrower."""
TRANSPOSED_CONFIGS = ConfigTable(
    "TRANSPOSED_CONFIGS",
    functools.partial(config_of, transposed_c=True),
    """
    tile_m  tile_n  tile_k  num_consumers  num_stages  epilogue_buffers  cluster_m  cluster_n
        64      16      64              1          13                 2          1          1
        64      32      64              1          13                 2          4          1
        64      48      64              1          13                 2          4          1
        64      64      64              1          12                 2          1          4
        64      80      64              1          11                 2          4          1
        64      96      64              1          10                 2          1          2
        64      96      64              1          10                 2          4          1
        64     112      64              1           9                 2          1          4
        64     152      64              1           7                 2          4          1
       128      80      64              2           8                 1          1          4
       128      96      64              2           6                 2          1          2
       128      96      64              2           6                 2          1          4
       128     104      64              2           6                 2          1          4
       128     112      64              2           6                 2          1          2
       128     112      64              2           6                 2          1          4
       128     120      64              2           6                 2          1          2
       128     136      64              2           6                 1          1          2
       128     144      64              2           5                 2          1          2
       128     144      64              2           6                 1          2          2
       128     152      64              2           6                 1          1          2
       128     160      64              2           5                 2          1          2
       128     160      64              2           5                 2          2          1
       128     160      64              2           5                 2          4          1
       128     168      64              2           5                 2          1          2
       128     168      64              2           5                 2          2          1
       128     176      64              2           5                 2          2          1
       128     184      64              2           5                 1          1          2
       128     200      64              2           5                 1          2          1
       128     208      64              2           4                 2          2          1
       128     216      64              2           4                 2          1          1
       128     224      64              2           4                 2          2          1
       192      88      64              3           5                 2          1          4
       192     136      64              3           4                 2          1          2
       192     144      64              3           4                 2          1          2
       192     152      64              3           4                 2          1          2
       192     160      64              3           4                 1          1          2
       192     176      64              3           4                 1          1          2
       256     136      64              2           4                 1          1          2
       256     152      64              2           4                 1          1          2
       256     160      64              2           4                 1          1          2
        64       8     256              1           5                 2          4          1
        64      16     128              1          10                 2          1          1
        64      16     128              1          10                 2          4          1
        64      40      64              1          16                 2          1          1
        64      64      64              1          13                 2          1          2
        64      72      64              1          12                 2          1          2
        64      72      64              1          12                 2          8          1
        64      80      64              1          11                 2          1          2
        64     104      64              1          10                 2          8          1
        64     128      64              1           8                 2          1          2
        64     160      64              1           7                 2          8          1
       128      80      64              2           7                 2          1          2
       128     104      64              2           6                 2          1          2
        64      48      64              1          13                 2          1          2
        64      56      64              1          13                 2          1          4
        64      72      64              1           8                 2          1          1
        64     216      64              1           5                 2          4          1
       128      56      64              2           8                 2          1          4
       128      88      64              2           6                 2          1          4
       128      96      64              2           6                 2          4          1
       192      88      64              3           5                 2          1          2
       192      96      64              3           5                 1          1          2
       128      32      64              2           9                 2          1          1
    """,
)
"""Configurations for operands of 16 bits that compute the transpose of C."""
TRANSPOSED_RANGES = ConfigTable(
    "TRANSPOSED_RANGES",
    widths_of,
    """
    tile_m  tile_k  cluster_m  cluster_n  cluster_k  buffers  least  most
        64      64          1          1          1        2     24   208
        64     128          1          1          1        2     24   104
        64      64          1          2          1        2     48   208
        64      64          4          1          1        2     64   216
        64      64          8          1          1        2     64   216
        64      64          1          1          2        2     48   208
        64      64          1          1          3        2     48   216
        64      64          2          1          3        2     48   216
        64      64          4          1          2        2     48   208
       128      64          1          1          1        2     48   208
       128      64          1          2          1        2     80   208
       128      64          4          1          1        2     80   208
       128      64          1          1          1        1    184   208
       128      64          1          2          1        1    192   208
       128      64          4          1          1        1    184   208
       192      64          1          1          1        1     72   192
       192      64          1          2          1        1     72   192
       192      64          1          4          1        1     72   192
       192      64          2          1          1        1     80   192
       192      64          4          1          1        1     72   192
    """,
)
"""The smallest and the largest widths of such tiles, in steps of 8 for each part of k.

Wider tiles spill if they are split. `buffers` are staging buffers, see `widths_of`: with three
consumers, another stage is worth one of them; with two, it depends on the product."""
PING_PONG_CONFIGS = ConfigTable(
    "PING_PONG_CONFIGS",
    functools.partial(config_of, ping_pong=True),
    """
    tile_m  tile_n  tile_k  num_consumers  num_stages  epilogue_buffers  cluster_m  cluster_n
       128     128      64              2           6                 2          1          1
       128     128      64              2           6                 2          2          1
       128     128      64              2           6                 2          1          2
       128     128      64              2           6                 2          2          2
       128     144      64              2           5                 1          1          2
       128     160      64              2           5                 1          2          1
       128     160      64              2           5                 1          1          2
        64     256      64              2           4                 2          1          1
       128     112      64              2           6                 2          1          2
       128     176      64              2           5                 2          1          2
       128     192      64              2           4                 2          1          2
       128     152      64              2           5                 1          1          2
    """,
)
"""Configurations for operands of 16 bits whose consumers take turns at whole tiles.

tf32 and int8 use the same rows with the same bytes of k, except for odd multiples of 8 columns."""
TRANSPOSED_PING_PONG_CONFIGS = ConfigTable(
    "TRANSPOSED_PING_PONG_CONFIGS",
    functools.partial(config_of, ping_pong=True, transposed_c=True),
    """
    tile_m  tile_n  tile_k  num_consumers  num_stages  epilogue_buffers  cluster_m  cluster_n
       128     128      64              2           6                 2          1          2
       128     152      64              2           5                 2          1          2
       128     160      64              2           5                 2          1          2
       128     112      64              2           6                 2          1          2
       128     144      64              2           5                 2          1          2
       128     168      64              2           5                 2          1          2
       128     176      64              2           5                 2          1          2
       128     192      64              2           4                 2          1          2
    """,
)
"""The same for the transpose of C."""
PART_CONFIGS = ConfigTable(
    "PART_CONFIGS",
    part_config_of,
    """
    tile_m  tile_n  num_stages  epilogue_buffers  cluster_m  cluster_n  cluster_k
        64      32          13                 2          1          1          2
        64      64          12                 2          1          1          2
        64      96           8                 2          4          1          2
        64     192           6                 2          4          1          2
        64     192           6                 2          2          1          4
        64      64          13                 2          2          1          2
        64     192           6                 2          2          1          2
       128      96           6                 2          1          4          2
       128     192           4                 2          1          1          2
    """,
)
"""Configurations for operands of 16 bits whose clusters have parts of k and exchange the sums."""
TRANSPOSED_PART_CONFIGS = ConfigTable(
    "TRANSPOSED_PART_CONFIGS",
    functools.partial(part_config_of, transposed_c=True),
    """
    tile_m  tile_n  num_stages  epilogue_buffers  cluster_m  cluster_n  cluster_k
        64      16          16                 2          1          1          2
        64      32          16                 2          1          1          2
        64      32          16                 2          1          2          2
        64      32          16                 2          1          1          4
        64      32          16                 2          1          2          4
        64      64          13                 2          1          2          4
        64      80          11                 2          1          2          2
        64     224           5                 2          1          1          4
       128      48           8                 2          1          2          2
        64      96           8                 2          1          1          3
        64      96           8                 2          1          1          4
        64     192           6                 2          1          1          4
       128     176           4                 2          4          1          2
    """,
)
"""The same for the transpose of C."""
SHORT_RANGES = ConfigTable(
    "SHORT_RANGES",
    functools.partial(short_widths_of, transposed_c=False),
    """
    tile_m  num_consumers  num_sharing  most
        64              2            1   128
       128              2            1   128
       128              2            2   128
       192              3            3   128
       256              2            2   128
    """,
)
"""The largest widths of tiles for batches of matrices with few columns, in steps of 16."""
TRANSPOSED_SHORT_RANGES = ConfigTable(
    "TRANSPOSED_SHORT_RANGES",
    functools.partial(short_widths_of, transposed_c=True),
    """
    tile_m  num_consumers  num_sharing  most
        64              1            1   128
        64              2            1   128
       128              2            1   128
       128              2            2   128
       192              3            3   128
       256              2            2   128
    """,
)
"""The same for batches of matrices with few rows, in steps of 8."""
F64_CONFIGS = ConfigTable(
    "F64_CONFIGS",
    functools.partial(config_of, mma_sync=True),
    """
    tile_m  tile_n  tile_k  num_consumers  num_stages  epilogue_buffers  cluster_m  cluster_n
       128     128      32              2           3                 1          1          1
       192      64      32              3           3                 1          1          1
       128      64      32              2           4                 1          1          1
        64      64      32              1           5                 2          1          1
    """,
)
"""Configurations for fp64. A sum takes two registers, so the tiles are half as large."""
SCALED_CONFIGS = ConfigTable(
    "SCALED_CONFIGS",
    functools.partial(config_of, promote=True, scaled=True),
    """
    tile_m  tile_n  tile_k  num_consumers  num_stages  epilogue_buffers  cluster_m  cluster_n
       128     192     128              2           5                 1          1          1
       128     192     128              2           5                 1          2          1
       128     192     128              2           5                 1          1          2
       256     128     128              2           4                 1          1          1
       256     128     128              2           3                 4          1          2
       192     128     128              3           4                 2          1          2
       128     192     128              2           4                 3          1          2
       128     160     128              2           5                 2          1          1
       128     160     128              2           5                 2          1          2
       128     128     128              2           6                 1          1          1
       128     128     128              2           6                 1          1          2
       128      64     128              2           7                 2          1          1
        64     192     128              1           6                 2          1          1
        64     128     128              1           8                 2          1          1
        64     128     128              1           8                 2          2          1
        64     112     128              1           8                 2          1          1
        64      96     128              1           9                 2          1          1
        64      64     128              1          12                 2          1          1
        64      64     128              1          12                 2          2          1
        64      64     128              1          12                 2          1          4
    """,
)
"""Configurations for operands of 8 bits with scales along k."""
