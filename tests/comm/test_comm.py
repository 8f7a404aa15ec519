"""The exchange between ranks equals the naive one, bit for bit, on every rank."""

import os
import select

import pytest
import torch
import torch.distributed as torch_dist

from lsm.distributed.watchdog import PeerError
from reference.hashing import owner as reference_owner
from support.comm_ranks import deliver
from support.request_lists import KINDS, NUM_NODES, features, lists

NUM_RANKS = 8


def exchange_case(context, size, transport, owner, dim, dtype, kinds):
    """Each of ``kinds`` is an iteration, requested two ahead of its rows."""
    from lsm.comm.open import open_exchange
    from lsm.comm.owners import OwnerMap
    from lsm.comm.request import RowFormat
    from reference import comm as reference

    group = context.group(size, transport=transport, owner=owner, chunk_bytes=4096)
    if group is None:
        return None
    exchange = open_exchange(
        group, OwnerMap(NUM_NODES, size, group.rank, hash=owner), RowFormat(dim, dtype)
    )
    assert set(exchange.rows.links.values()) <= {"shm" if transport == "auto" else transport}
    table = features(dim, dtype)
    own = [lists(kind, size, seed)[group.rank] for seed, kind in enumerate(kinds)]
    requests, sent = [], []
    for t in range(len(kinds) + 2):
        if t < len(kinds):
            requests.append(exchange.lists.request(own[t]))
        if t < 2:
            continue
        ids, request = own[t - 2], requests[t - 2]
        rows = deliver(exchange.rows, request, table[request.ids])
        raw = [part.contiguous().view(torch.uint8) for part in (rows, table[ids])]
        assert rows.shape == (len(ids), dim)
        assert torch.equal(*raw), f"rank {group.rank}, iteration {t - 2}"

        def owner_of(node):
            return reference_owner(node, size, owner)

        asked = reference.request_lists(ids.tolist(), owner_of, group.rows.group)
        assert request.ids.tolist() == reference.merge(asked)
        naive = reference.exchange(ids.tolist(), owner_of, lambda own: table[own], group.rows.group)
        assert torch.equal(naive.view(torch.uint8), raw[0])
        starts = [len(reference.merge(asked[:r])) for r in range(size + 1)]
        assert request.rank_starts.tolist() == starts
        sent.append(request.stats)
    exchange.end_session()
    return sent


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_rows_and_merged_lists_are_those_of_the_naive_exchange(ranks, size, transport):
    for owner in ("stride", "mix64"):
        ranks.check(exchange_case, size, transport, owner, 7, torch.float32, KINDS)


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [1, 3, 1024, 4096])
def test_any_row_format(ranks, dim, dtype, transport):
    ranks.check(exchange_case, 2, transport, "mix64", dim, dtype, ("random", "empty", "random"))


def two_sizes_case(context, transport):
    """Rows of two sizes, for the ids of one request each iteration."""
    from lsm.comm.open import open_rows
    from lsm.comm.owners import OwnerMap
    from lsm.comm.request import RowFormat
    from lsm.comm.request_lists import RequestLists

    group = context.group(3, transport=transport, chunk_bytes=4096)
    if group is None:
        return None
    lists_of_ids = RequestLists(group, OwnerMap(NUM_NODES, 3, group.rank))
    formats = [(3, torch.float16), (40, torch.float32)]
    tables = [features(*each) for each in formats]
    exchanges = [open_rows(group, RowFormat(*each)) for each in formats]
    for seed, kind in enumerate(KINDS):
        ids = lists(kind, 3, seed)[group.rank]
        request = lists_of_ids.request(ids)
        for rows, table in zip(exchanges, tables, strict=True):
            out = deliver(rows, request, table[request.ids])
            assert torch.equal(out.view(torch.uint8), table[ids].view(torch.uint8))
        sent = len(request.row_of) - len(request.asked_by(group.rank))
        assert request.stats["rows_sent_bytes"] == sent * (6 + 160)
    lists_of_ids.leave()
    group.rows.end()
    return None


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_one_request_serves_rows_of_two_sizes(ranks, transport):
    ranks.check(two_sizes_case, transport)


def test_traffic_is_counted(ranks):
    answers = ranks.check(exchange_case, 2, "auto", "stride", 4, torch.float32, ("same", "empty"))
    for stats in answers[:2]:
        same, empty = stats
        assert same["ids_sent_bytes"] == 8 * NUM_NODES // 2
        assert same["rows_sent_bytes"] == 16 * NUM_NODES // 2
        assert same["duplicates"] == NUM_NODES // 2
        assert empty["ids_sent_bytes"] == empty["rows_sent_bytes"] == empty["duplicates"] == 0
        assert same["comm_secs"] > 0


def left_case(context):
    """Rank 2 leaves a session in which rank 1 has sent a list already; all three are in the next.
    Messages over Gloo, whose payloads follow their headers."""
    from lsm.comm.messages import Kind, PeerLeftError

    if context.rank >= 3:
        context.group(3, transport="gloo")
        return None
    stream = context.group(3, transport="gloo").ids
    stream.start_over()
    first, second = torch.arange(63), torch.arange(10) + context.rank
    if context.rank < 2:
        for peer in stream.peers:
            stream.send(peer, Kind.IDS, 0, payload=first)
        with pytest.raises(PeerLeftError, match="rank 2 left the epoch"):
            stream.receive(Kind.IDS, 0)  # of rank 0 or 1, and then what rank 2 says
    stream.end()
    stream.start_over()
    for peer in stream.peers:
        stream.send(peer, Kind.IDS, 0, payload=second)
    messages = stream.receive(Kind.IDS, 0)
    stream.settle(1)
    return {peer: message.payload.view(torch.int64).tolist() for peer, message in messages.items()}


def test_a_list_that_was_sent_before_a_rank_left_is_not_taken_for_the_next(ranks):
    for rank, answer in enumerate(ranks.check(left_case)[:3]):
        assert answer == {peer: list(range(peer, peer + 10)) for peer in range(3) if peer != rank}


def late_case(context, transport):
    """Rank 0 leaves while it waits for a list: another thread ends the session. Rank 1 has left."""
    from lsm.comm.messages import Kind, PeerLeftError

    group = context.group(2, transport=transport)
    if group is None:
        return None
    stream = group.ids
    stream.start_over()
    peer = 1 - context.rank
    if context.rank == 0:
        stream.send(peer, Kind.IDS, 0, [7])
        stream.end()
        with pytest.raises(PeerLeftError, match="rank 1 left the epoch"):
            stream.receive(Kind.IDS, 0)
    else:
        stream.end()
    stream.start_over()
    stream.send(peer, Kind.IDS, 0, [8])
    message = stream.receive(Kind.IDS, 0)[peer]
    stream.settle(1)
    return message.values[0]


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_a_rank_that_leaves_takes_no_list_of_the_next_session(ranks, transport):
    assert ranks.check(late_case, transport)[:2] == [8, 8]


def step_case(context, transport):
    """Rank 1 sends two messages that rank 0 does not await, and then the one that it does."""
    from lsm.comm.messages import Kind

    group = context.group(2, transport=transport)
    if group is None:
        return None
    stream, answer = group.ids, None
    stream.start_over()
    if context.rank == 1:
        for kind, iteration, value in ((Kind.READY, 0, 7), (Kind.IDS, 1, 8), (Kind.IDS, 0, 9)):
            stream.send(0, kind, iteration, [value], torch.full((5,), value))
        stream.flush()
    else:
        for found in ("READY of iteration 0", "IDS of iteration 1"):
            awaited = f"out of step with rank 1: expected its ids of iteration 0, got {found}"
            with pytest.raises(RuntimeError, match=awaited):
                stream.receive(Kind.IDS, 0)
        message = stream.receive(Kind.IDS, 0)[1]
        answer = message.values[0], message.payload.view(torch.int64).tolist()
    stream.end()
    return answer


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_a_message_that_is_not_due_is_an_error_and_is_not_read_twice(ranks, transport):
    assert ranks.check(step_case, transport)[0] == (9, [9] * 5)


def lost_case(context):
    """The errors of rank 0 with rank 1, which ends between the header and the payload of a list."""
    from lsm.comm.messages import Kind

    group = context.group(2, transport="gloo")
    if group is None:
        return None
    stream, processes = group.ids, [0, 0]
    torch_dist.all_gather_object(processes, os.getpid(), stream.group)
    if context.rank == 1:
        stream._start(0, 0, [torch.tensor([Kind.IDS, 0, 80, *[0] * 7])])
        stream.flush()
        os._exit(1)
    poll = select.poll()
    poll.register(os.pidfd_open(processes[1]), select.POLLIN)
    assert poll.poll(20_000), "rank 1 has ended"
    errors = []
    for act in (
        lambda: stream.receive(Kind.IDS, 0),
        lambda: stream.send(1, Kind.IDS, 0),
        lambda: stream.receive_part(1, torch.empty(8)),
        lambda: stream.send_part(1, torch.empty(8)),
    ):
        try:
            act()
        except RuntimeError as error:
            errors.append(error)
    return errors


def test_a_connection_that_is_lost_names_the_rank(few_ranks):
    errors = few_ranks.run(lost_case)[0]
    assert [type(error) for error in errors] == [PeerError] * 4
    waiting = "waiting for another rank"
    for error, awaited in zip(
        errors,
        ("its ids of iteration 0", "its receipt of a message", "a part of its message", "its rec"),
        strict=True,
    ):
        assert str(error).startswith(
            f"rank 1 ended, or gave up {waiting}, before it sent {awaited}"
        )
