"""Messages between ranks of one machine: order, long errors, full mailboxes, ends of ranks."""

import os
import signal
import time

import pytest
import torch

from lsm import native
from lsm.distributed.watchdog import PeerError
from support.comm_ranks import Ranks


@pytest.fixture
def ranks(tmp_path):
    pool = Ranks(2, tmp_path)
    yield pool
    pool.close()


def mailbox():
    return native.Mailbox(native.SharedPool(0).take(native.Mailbox.num_bytes), 0)


def test_messages_come_in_order_and_whole_all_around_the_ring():
    box = mailbox()
    sent, received = [], []
    for number in range(3000):
        message = [number] * (1 + number % 13)
        while not box.send(message):
            received.append(box.receive(0))
        sent.append(message)
    while words := box.receive(0):
        received.append(words)
    assert received == sent
    assert box.receive(0.01) == []


def test_memory_without_room_for_a_mailbox():
    memory = native.SharedPool(0).take(native.Mailbox.num_bytes)
    with pytest.raises(ValueError, match=r"mailbox: expected \d+ bytes at 64, got memory of"):
        native.Mailbox(memory, 64)
    with pytest.raises(ValueError, match="mailbox: expected 1 to 1024 words, got 2000"):
        native.Mailbox(memory, 0).send([1] * 2000)


def killed_case(context):
    """Rank 1 sends two messages and ends at once."""
    from lsm.comm.messages import Kind

    stream = context.group(2, timeout_secs=30.0).rows
    assert stream.local == [1 - context.rank]
    if context.rank == 1:
        stream.send(0, Kind.READY, 0, [5])
        stream.send(0, Kind.ROWS, 0, [6])
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)
    values = [stream.receive(kind, 0)[1].values[0] for kind in (Kind.READY, Kind.ROWS)]
    start = time.monotonic()
    try:
        stream.receive(Kind.READY, 1)
    except PeerError as error:
        return values, str(error), time.monotonic() - start
    raise AssertionError("nothing was sent")


def test_what_a_killed_rank_sent_is_received_and_then_its_end(ranks):
    (values, text, secs), killed = ranks.run(killed_case)
    assert isinstance(killed, EOFError)
    assert values == [5, 6]
    assert "rank 1 ended" in text
    assert "its readiness for rows of iteration 1" in text
    assert secs < 30  # after which it would be a time-out


def long_error_case(context):
    from lsm.comm.messages import Kind

    stream = context.group(2).ids
    if context.rank == 1:
        stream.fail(OSError("disk \N{GREEK SMALL LETTER ALPHA} " + "x" * 10_000), wait=True)
        return ""
    try:
        stream.receive(Kind.IDS, 0)
    except PeerError as error:
        return str(error)


def test_a_long_error_arrives_as_far_as_it_fits(ranks):
    text, _ = ranks.check(long_error_case)
    assert text.startswith("rank 1: disk \N{GREEK SMALL LETTER ALPHA} xxx")
    assert 4000 < len(text) <= 4096


def full_case(context):
    """Rank 0 does not read."""
    from lsm.comm.messages import Kind

    stream = context.group(2, timeout_secs=1.0).rows
    if context.rank == 0:
        time.sleep(3)
        return ""
    try:
        for iteration in range(100_000):
            stream.send(0, Kind.READY, iteration)
    except TimeoutError as error:
        return str(error)
    raise AssertionError("there is room for everything")


def test_a_rank_that_reads_nothing_is_named(ranks):
    _, text = ranks.check(full_case)
    assert "rank 0 did not confirm a message within 1 s" in text


def request_case(context):
    """The lists of requests whose memory grows from one to the next."""
    from lsm.comm.open import open_exchange
    from lsm.comm.owners import OwnerMap
    from lsm.comm.request import RowFormat

    group = context.group(2)
    exchange = open_exchange(group, OwnerMap(300_000, 2, group.rank), RowFormat(1, torch.float32))
    merged = []
    for count in (0, 10, 100_000, 3, 300_000, 0, 200_000):
        request = exchange.lists.request(torch.arange(count))
        merged.append(set(request.ids.tolist()))
        assert len(merged[-1]) == len(request.ids)
    exchange.end_session()
    return merged


def test_lists_of_any_size_arrive(ranks):
    answers = ranks.check(request_case)
    for count, *parts in zip((0, 10, 100_000, 3, 300_000, 0, 200_000), *answers, strict=True):
        assert parts[0] | parts[1] == set(range(count))
        assert not parts[0] & parts[1]
