"""The model chooses the transport of rows that was measured fastest.

On four and on two H200, and for products whose calls are recorded, on four H100.
"""

import pytest

from cupygemm._backends.interconnect import NVLINK_H200, PCIE, XGMI_MI300X
from cupygemm._distributed import transport as transports
from cupygemm._distributed.steps import RowWork, balanced, bounds_of
from cupygemm._plan.table import PlanTable

COPIES, RECORDED, STORES, NCCL = "copies", "recorded copies", "stores", "NCCL"


class Links:
    """What `choose_transport` asks of a device."""

    def __init__(self, link):
        self.kernels, self.interconnect = self, link


class Host:
    """What `choose_transport` asks of a group whose ranks are on one host."""

    board = "shared"
    exchange_asked = "auto"

    def __init__(self, size, rank=0, peers=True):
        self.size, self.rank, self.device, self.transports = size, rank, 0, PlanTable(9)
        self.peers = self if peers else None

    def reserve(self, nbytes):
        return nbytes < 4 << 30


@pytest.fixture
def link(monkeypatch):
    def use(row):
        monkeypatch.setattr(transports, "device", lambda index: Links(row))

    use(NVLINK_H200)
    return use


def chosen(group, m, row_bytes, flops):
    work = RowWork(nbytes=row_bytes, flops=flops, itemsize=2)
    bounds = bounds_of(balanced(m, group.size))
    return transports.choose_transport(group, bounds, work, segment_bytes=m * row_bytes)


def name_of(transport):
    if transport.peers is None:
        assert not transport.overlaps
        return NCCL
    if not transport.overlaps:
        assert transport.records
        return STORES
    return RECORDED if transport.records else COPIES


@pytest.mark.parametrize(
    ("size", "m", "n", "k", "fastest"),
    [
        (4, 1024, 1024, 1024, STORES),  # 0.024 ms, 0.044 by copies
        (4, 2048, 2048, 2048, STORES),  # 0.049, 0.060
        (4, 4096, 4096, 4096, RECORDED),  # 0.127, 0.139 by stores, 0.153 by NCCL
        (4, 8192, 8192, 8192, COPIES),  # 0.73, 0.43
        (4, 16384, 16384, 16384, COPIES),  # 4.6, 3.3
        (4, 2048, 8192, 8192, RECORDED),  # 0.238, 0.161
        (4, 4096, 14336, 4096, RECORDED),  # 0.28, 0.22
        (4, 8192, 28672, 8192, COPIES),  # 1.78, 1.48
        (2, 1024, 1024, 1024, STORES),  # 0.019, 0.024 by copies
        (2, 2048, 2048, 2048, STORES),  # 0.037, 0.037
        (2, 4096, 4096, 4096, RECORDED),  # 0.113, 0.164 by stores, 0.201 by NCCL
        (2, 8192, 8192, 8192, COPIES),  # 1.15, 0.83
    ],
)
def test_gathered_rows_of_bfloat16(link, size, m, n, k, fastest):
    assert name_of(chosen(Host(size), m, 2 * k, 2.0 * k * n / size)) == fastest


@pytest.mark.parametrize(
    ("size", "m", "n", "k", "fastest"),
    [
        (4, 1024, 1024, 1024, STORES),  # 0.026, 0.053 by copies
        (4, 2048, 2048, 2048, STORES),  # 0.050, 0.061
        (4, 4096, 4096, 4096, RECORDED),  # 0.147, 0.150 by stores, 0.149 by NCCL
        (4, 8192, 8192, 8192, COPIES),  # 0.71, 0.53
        (4, 2048, 8192, 8192, RECORDED),  # 0.251, 0.171
        (4, 4096, 14336, 4096, COPIES),  # 0.47, 0.36
        (2, 1024, 1024, 1024, STORES),  # 0.020, 0.029 by copies
        (2, 4096, 4096, 4096, RECORDED),  # 0.125, 0.174 by stores, 0.193 by NCCL
        (2, 8192, 8192, 8192, COPIES),  # 1.12, 0.87
    ],
)
def test_scattered_sums_of_bfloat16(link, size, m, n, k, fastest):
    assert name_of(chosen(Host(size), m, 2 * n, 2.0 * k / size * n)) == fastest


@pytest.mark.parametrize(("m", "two"), [(8192, False), (16384, True)])
def test_two_products_at_once_where_copies_are_short(link, m, two):
    """Scatters of 8192**3 took 0.55 ms with two at once, 0.49 with one; 16384**3 3.55 and 3.59."""
    work = RowWork(nbytes=2 * m, flops=2.0 * m / 4 * m, itemsize=2)
    bounds = bounds_of(balanced(m, 4))
    transport = transports.choose_transport(Host(4), bounds, work, segment_bytes=1, scatters=True)
    assert transport.two_products is two


@pytest.mark.parametrize("row", [NVLINK_H200, XGMI_MI300X, PCIE], ids=lambda row: row.name)
def test_all_ranks_choose_alike(link, row):
    link(row)
    for peers in (True, False):
        found = [chosen(Host(4, rank, peers), 4099, 8192, 1e8) for rank in range(4)]
        assert (
            len(
                {
                    (transport.overlaps, transport.peers is None, len(transport.steps))
                    for transport in found
                }
            )
            == 1
        )


def test_several_hosts_overlap_with_nccl(link):
    """On one host of H200 this was slower than a gather and a product."""
    group = Host(4, peers=False)
    assert not chosen(group, 8192, 16384, 2.0 * 8192 * 2048).overlaps
    group.transports.clear()
    group.board = None
    transport = chosen(group, 8192, 16384, 2.0 * 8192 * 2048)
    assert transport.overlaps
    assert transport.spared == NVLINK_H200.nccl_units


def test_segments_that_do_not_fit_leave_the_rows_to_nccl(link):
    group = Host(4)
    assert chosen(group, 1 << 20, 16384, 2.0 * 8192 * 2048).peers is None
    group.exchange_asked = "copies"
    group.transports.clear()
    assert chosen(group, 64, 128, 1e6).peers is group


def test_a_group_of_one_rank_multiplies_at_once(link):
    transport = chosen(Host(1, peers=False), 4096, 8192, 1e8)
    assert not transport.steps
    assert not transport.overlaps
