"""Messages between the ranks of a cache group.

Ranks of one machine use shared memory, others a process group of their own. Between any two ranks a
stream is a queue in each direction. A message has a header of ten words and optionally a payload.
The schedule is the same on every rank, so a receiver knows the kind of the next message. Only END
(the sender leaves) and ERROR (the sender failed) may come in its place.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as torch_dist

from lsm.comm.mailbox import Mailboxes
from lsm.distributed.watchdog import PeerError, saying

_HEADER_WORDS = 10
_LAST = 2**62  # the iteration of messages that end a session
# Longest wait of an exiting rank until the others have received its last messages. Ranks of its
# machine can read them later, too.
_LAST_SECS = 5.0
_LOCAL_SECS = 1.0
_TEXT_SECS = 1.0
_TEXT_BYTES = 4096  # of an error; a mailbox has room for that


class Kind(IntEnum):
    """Kinds of messages."""

    IDS = 1
    READY = 2
    ROWS = 3
    END = 4
    ERROR = 5


_AWAITED = {
    Kind.IDS: "its ids of iteration {}",
    Kind.READY: "its readiness for rows of iteration {}",
    Kind.ROWS: "the rows of iteration {}",
    Kind.END: "the end of its epoch",
}
_RECEIPT = "its receipt of a message"


class PeerLeftError(PeerError):
    """Another rank left the epoch before its end."""


@dataclass(frozen=True)
class Message:
    """A message of a peer. ``values``: up to seven numbers, by kind."""

    values: list[int]
    payload: torch.Tensor | None  # uint8


@dataclass(frozen=True)
class _Sent:
    at: tuple[int, int]  # session, iteration
    peer: int
    works: list[torch_dist.Work]
    parts: list[torch.Tensor]


class MessageStream:
    """This rank's end of the messages in ``group``. One thread at a time receives; any may send.

    A session lasts until all ranks have called end(). Iterations count from 0 in each. This rank
    reads the messages of a session until start_over(), also after its own end().
    ``wait_secs``: total time spent waiting for peers, without payloads.
    """

    def __init__(
        self,
        group: torch_dist.ProcessGroup,
        timeout_secs: float,
        mailboxes: Mailboxes | None = None,
        channel: int = 0,
    ) -> None:
        """``mailboxes``: for the peers that have one. ``channel``: keeps the messages of several
        streams in ``group`` apart."""
        self.group = group
        self.rank = torch_dist.get_rank(group)
        self.size = torch_dist.get_world_size(group)
        self.peers = [peer for peer in range(self.size) if peer != self.rank]
        self.local = mailboxes.peers if mailboxes else []
        """The peers that share memory with this rank."""
        self.wait_secs = 0.0
        self._mailboxes = mailboxes
        self._channel = channel
        self._timeout_secs = timeout_secs
        self._headers: dict[int, tuple[torch.Tensor, torch_dist.Work]] = {}  # receives in flight
        self._sent: deque[_Sent] = deque()
        self._sending = threading.Lock()
        self._num_ended = 0  # sessions that this rank has ended
        self._session = 0  # the one whose messages this rank reads
        self._ended = dict.fromkeys(self.peers, 0)  # the same of each peer, as far as read

    @property
    def _boxes(self) -> Mailboxes:
        assert self._mailboxes is not None, "only peers with a mailbox are local"
        return self._mailboxes

    def name(self, peer: int) -> str:
        """The name of ``peer`` in errors: its rank in the whole job."""
        return f"rank {torch_dist.get_global_rank(self.group, peer)}"

    def send(
        self,
        peer: int,
        kind: Kind,
        iteration: int,
        values: Sequence[int] = (),
        payload: torch.Tensor | None = None,
    ) -> None:
        """Starts sending a message. ``payload``: contiguous; kept, and must not change until
        settle(); at most a few KiB to local peers."""
        payload = None if payload is None or payload.numel() == 0 else payload.view(torch.uint8)
        words = [kind, iteration, 0 if payload is None else payload.numel(), *values]
        words += [0] * (_HEADER_WORDS - len(words))
        if peer in self.local:
            secs = _LOCAL_SECS if iteration == _LAST else self._timeout_secs
            self._post(peer, secs, words if payload is None else words + _as_words(payload))
            return
        header = torch.tensor(words)
        self._start(peer, iteration, [header] if payload is None else [header, payload])

    def settle(self, iteration: int) -> None:
        """Blocks until peers have received all messages before ``iteration``. A message of that
        iteration from a peer proves that the peer is this far."""
        while True:
            with self._sending:
                if not self._sent or self._sent[0].at >= (self._session, iteration):
                    return
                sent = self._sent.popleft()
            for work in sent.works:
                self._wait(sent.peer, work, "a message", verb="confirm")

    def send_part(self, peer: int, payload: torch.Tensor) -> torch_dist.Work:
        """Starts sending a further piece of payload. Precondition: the peer expects it."""
        with self._connected(peer, _RECEIPT):
            return self.group.send([payload], peer, self._channel)

    def receive_part(self, peer: int, payload: torch.Tensor) -> torch_dist.Work:
        """Starts receiving a piece that send_part() sends."""
        with self._connected(peer, "a part of its message"):
            return self.group.recv([payload], peer, self._channel)

    def finish_part(self, peer: int, work: torch_dist.Work, kind: Kind, iteration: int) -> None:
        """Blocks until a send_part() or receive_part() has ended."""
        self._wait(peer, work, _AWAITED[kind].format(iteration))

    def receive(self, kind: Kind, iteration: int) -> dict[int, Message]:
        """The next message of every peer, by peer. Raises the error that a peer sent in its place;
        PeerLeftError if a peer left; TimeoutError with the peer and the message awaited."""
        self.skip_older()
        awaited = _AWAITED[kind].format(iteration)
        for peer in self.peers:
            self._ask(peer, awaited)
        messages: dict[int, Message] = {}
        under_way: list[tuple[int, torch_dist.Work]] = []
        try:
            for peer in self.peers:
                header = self._next_header(peer, awaited)
                payload, work = self._start_payload(peer, header, awaited)
                if work is not None:
                    under_way.append((peer, work))
                if header[:2] != [kind, iteration]:
                    raise RuntimeError(
                        f"out of step with {self.name(peer)}: expected {awaited}, got "
                        f"{Kind(header[0]).name} of iteration {header[1]}"
                    )
                messages[peer] = Message(header[3:_HEADER_WORDS], payload)
        except BaseException:
            # Otherwise the next read from these peers would return this message's payload.
            for peer, work in under_way:
                with contextlib.suppress(RuntimeError, TimeoutError):
                    self._wait(peer, work, awaited)
            raise
        for peer, work in under_way:
            self._wait(peer, work, awaited)
        return messages

    @property
    def has_ended(self) -> bool:
        """True if this rank has ended the session that it reads."""
        return self._num_ended > self._session

    def end(self) -> None:
        """Ends this session on this rank and tells the peers. Does not block. A second call does
        nothing until start_over()."""
        if self.has_ended:
            return
        for peer in self.peers:
            # On a lost connection, peers that wait for this rank notice by themselves.
            with contextlib.suppress(RuntimeError, TimeoutError):
                self.send(peer, Kind.END, _LAST)
        self._num_ended += 1

    def flush(self) -> None:
        """Blocks, for at most some seconds, until the peers have received all messages but those of
        end(). A message in flight is lost with this object; one in a mailbox is not."""
        deadline = time.monotonic() + _LAST_SECS
        with self._sending:
            waited_for = [sent for sent in self._sent if sent.at[1] != _LAST]
            self._sent = deque(sent for sent in self._sent if sent.at[1] == _LAST)
        for work in (work for sent in waited_for for work in sent.works):
            with contextlib.suppress(RuntimeError):
                work.wait(timedelta(seconds=max(0.01, deadline - time.monotonic())))

    def start_over(self) -> None:
        """Begins to read the session in which this rank sends. Precondition: no other method is in
        progress."""
        self._session = self._num_ended

    def skip_older(self) -> None:
        """Drops messages of earlier sessions. Blocks until every peer has ended these."""
        awaited = _AWAITED[Kind.END]
        for peer in self.peers:
            while self._ended[peer] < self._session:
                self._ask(peer, awaited)
                try:
                    header = self._next_header(peer, awaited)
                except PeerLeftError:
                    continue
                _, work = self._start_payload(peer, header, awaited)
                if work is not None:
                    self._wait(peer, work, awaited)

    def fail(self, error: BaseException, *, wait: bool) -> None:
        """Sends ``error`` to the peers. ``wait``: blocks, for at most some seconds, until they have
        it."""
        by = "" if isinstance(error, PeerError) else f"rank {torch_dist.get_rank()}: "
        text = f"{by}{error}".encode()[:_TEXT_BYTES]
        payload = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        deadline = time.monotonic() + _LAST_SECS
        for peer in self.peers:
            with contextlib.suppress(RuntimeError, TimeoutError):
                self.send(peer, Kind.ERROR, _LAST, payload=payload)
        with self._sending:  # another thread may settle its own messages
            errors = [sent for sent in self._sent if wait and sent.parts[0][0] == Kind.ERROR]
        # A peer that reads the header reads the text at once, unless another rank's error came
        # first.
        for part in range(2):
            for work in (sent.works[part] for sent in errors):
                left = deadline - time.monotonic() if part == 0 else _TEXT_SECS
                with contextlib.suppress(RuntimeError):
                    work.wait(timedelta(seconds=max(0.01, left)))
        for peer in self.local if wait else []:
            left = min(_LOCAL_SECS, deadline - time.monotonic())
            with contextlib.suppress(ConnectionError):
                self._boxes.wait_read(peer, left)

    def _post(self, peer: int, secs: float, words: list[int]) -> None:
        try:
            with self._sending:
                self._boxes.send(peer, words, secs)
        except ConnectionError as error:
            raise self._gone(peer, _RECEIPT) from error
        except TimeoutError as error:
            raise self._too_late(peer, "a message", "confirm") from error

    def _start(self, peer: int, iteration: int, parts: list[torch.Tensor]) -> None:
        with self._sending, self._connected(peer, _RECEIPT):
            works = [self.group.send([part], peer, self._channel) for part in parts]
            self._sent.append(_Sent((self._num_ended, iteration), peer, works, parts))

    def _ask(self, peer: int, awaited: str) -> None:
        """Starts receiving a header. A receive that was started and not read is kept for the next
        call, so that an error of one peer loses no message of another."""
        if peer in self.local:
            return
        if peer not in self._headers and self._ended[peer] <= self._session:
            header = torch.empty(_HEADER_WORDS, dtype=torch.int64)
            with self._connected(peer, awaited):
                work = self.group.recv([header], peer, self._channel)
            self._headers[peer] = (header, work)

    def _next_header(self, peer: int, awaited: str) -> list[int]:
        if self._ended[peer] > self._session:
            raise self._left(peer, awaited)
        header = (
            self._take(peer, awaited) if peer in self.local else self._read_header(peer, awaited)
        )
        if header[0] == Kind.END:
            self._ended[peer] += 1
            raise self._left(peer, awaited)
        if header[0] == Kind.ERROR:
            payload, work = self._start_payload(peer, header, "its error")
            if work is not None:
                self._wait(peer, work, "its error")
            text = b"" if payload is None else bytes(payload.tolist())
            raise PeerError(text.decode(errors="replace"))
        return header

    def _take(self, peer: int, awaited: str) -> list[int]:
        """The next message of a local peer: its header, and the words of its payload."""
        if words := self._boxes.take(peer):
            return words
        start = time.perf_counter()
        try:
            with saying(f"{awaited} from {self.name(peer)}"):
                words = self._boxes.receive(peer, self._timeout_secs)
        except ConnectionError as error:
            raise self._gone(peer, awaited) from error
        self.wait_secs += time.perf_counter() - start
        if not words:
            raise self._too_late(peer, awaited, "send")
        return words

    def _read_header(self, peer: int, awaited: str) -> list[int]:
        tensor, work = self._headers[peer]
        start = time.perf_counter()
        self._wait(peer, work, awaited)
        self.wait_secs += time.perf_counter() - start
        del self._headers[peer]
        return tensor.tolist()

    def _left(self, peer: int, awaited: str) -> PeerLeftError:
        return PeerLeftError(
            f"{self.name(peer)} left the epoch before it sent {awaited}; its own error, if it had "
            "one, is above; without one, every rank must leave an epoch at the same iteration"
        )

    def _start_payload(
        self, peer: int, header: list[int], awaited: str
    ) -> tuple[torch.Tensor | None, torch_dist.Work | None]:
        if header[2] == 0:
            return None, None
        if peer in self.local:
            return torch.tensor(header[_HEADER_WORDS:]).view(torch.uint8)[: header[2]], None
        payload = torch.empty(header[2], dtype=torch.uint8)
        with self._connected(peer, awaited):
            return payload, self.group.recv([payload], peer, self._channel)

    def _wait(self, peer: int, work: torch_dist.Work, awaited: str, verb: str = "send") -> None:
        start = time.monotonic()
        try:
            with saying(f"{awaited} from {self.name(peer)}"):
                work.wait(timedelta(seconds=self._timeout_secs))
        except RuntimeError as error:
            if time.monotonic() - start >= 0.95 * self._timeout_secs:
                raise self._too_late(peer, awaited, verb) from error
            raise self._gone(peer, awaited) from error

    @contextlib.contextmanager
    def _connected(self, peer: int, awaited: str) -> Iterator[None]:
        """Names ``peer`` in an error of a connection that is lost as a message starts."""
        try:
            yield
        except RuntimeError as error:
            raise self._gone(peer, awaited) from error

    def _too_late(self, peer: int, awaited: str, verb: str) -> TimeoutError:
        return TimeoutError(
            f"{self.name(peer)} did not {verb} {awaited} within {self._timeout_secs:g} s "
            "(comm.timeout_secs)"
        )

    def _gone(self, peer: int, awaited: str) -> PeerError:
        return PeerError(
            f"{self.name(peer)} ended, or gave up waiting for another rank, before it sent "
            f"{awaited}; its own error, if it had one, is above"
        )


def _as_words(payload: torch.Tensor) -> list[int]:
    """The bytes, padded to whole words."""
    padded = torch.zeros(-(-payload.numel() // 8) * 8, dtype=torch.uint8)
    padded[: payload.numel()] = payload
    return padded.view(torch.int64).tolist()
