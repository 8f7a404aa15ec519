"""The exchange between ranks, which makes their caches one: ids ahead, rows when they are due.

Requests go to the owners a window of iterations ahead. Each owner merges its requests, in rank
order, into one list without repeats. It writes the rows from its cache to their places in the
requesters' batches in shared memory, or into messages, which requesters unpack by the inverse
permutation. ``tests/reference/comm.py`` does the same with plain collectives.

We differ from LSM-GNN, section 4.1: there is no global barrier. A rank waits only for the messages
that it needs. Ids and rows travel on separate streams, so that ids pass while rows are awaited.
"""

from __future__ import annotations

from lsm.comm.group import CacheGroup
from lsm.comm.request_lists import RequestLists
from lsm.comm.row_exchange import RowExchange
from lsm.distributed.watchdog import PeerError


class Exchange:
    """One rank's part in the exchange: the ids of ``lists``, and their rows by ``rows``.

    Precondition: all ranks of ``group`` call lists.request(), then rows.open(), rows.targets() and
    rows.finish(), for the same iterations in the same order. Rows that are written to targets in
    GPU memory must have arrived before finish(), because peers read them then.
    """

    def __init__(self, group: CacheGroup, lists: RequestLists, rows: RowExchange) -> None:
        self.lists = lists
        self.rows = rows
        self.timeout_secs = group.options.timeout_secs
        self._ids_stream, self._rows_stream = group.ids, group.rows
        self._all_streams = group.streams

    def end_session(self) -> None:
        """Ends the session; every rank must do so. The next one starts afresh. Precondition: no
        method of ``lists`` and ``rows`` is in progress."""
        self.close()
        self.lists.start_over()
        self.rows.start_over()

    def close(self) -> None:
        """Ends the last session: ``lists`` refuses further requests. Precondition: no method of
        ``rows`` is in progress, and none is called any more."""
        self.lists.leave()
        self.rows.leave()

    def flush(self) -> None:
        """Blocks until the peers have received all messages, so that this rank may exit."""
        self._ids_stream.flush()
        self._rows_stream.flush()

    def fail(self, error: BaseException) -> None:
        """Sends the error of this rank to all others, whatever exchange of the group's ranks they
        wait for. Callable from any thread. Blocks until they have received it if the error arose on
        this rank: they are sure to ask it for rows."""
        for stream in self._all_streams:
            if stream is not self._rows_stream:
                stream.fail(error, wait=False)
        self._rows_stream.fail(error, wait=not isinstance(error, PeerError))
