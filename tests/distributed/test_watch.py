"""When a wait for other ranks fails, the rank to blame is named. Ranks are threads here."""

import threading

import pytest
from torch.distributed import PrefixStore, TCPStore

from lsm.distributed import watchdog
from lsm.distributed.rendezvous import Member
from lsm.distributed.watchdog import PeerError, Watch, awaiting

TIMEOUT_SECS = 3.0  # three words per second, and silence is 1.2 s without any


@pytest.fixture
def store():
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def members(size):
    return [Member(rank, size, f"host{rank}", 100 + rank, "", {}) for rank in range(size)]


@pytest.fixture
def watches(store):
    made = [
        Watch(
            PrefixStore("job", store.clone()),
            members(3),
            rank,
            timeout_secs=TIMEOUT_SECS,
            store_rank=0,
        )
        for rank in range(3)
    ]
    for each in made:
        each.start()
    yield made
    for each in made:
        each.leave()


def die(dying):
    """Ends the thread of a watch as the end of its process does: without a word."""
    dying._exchange = lambda: None
    dying._end()


def test_a_rank_that_failed_is_quoted(watches):
    watches[2].fail(OSError(5, "injected failure", "features.bin"))
    text, explained = watches[0].explain("the rows")
    assert text == "rank 2 (host2, pid 102) failed: injected failure: features.bin"
    assert explained


def test_what_followed_from_it_is_not(watches):
    watches[1].fail(PeerError("because of rank 2"))
    watches[2].fail(ValueError("the cause"))
    text, _ = watches[0].explain("the rows")
    assert text == "rank 2 (host2, pid 102) failed: the cause"


def test_a_rank_that_died_is_named_with_its_last_words(watches):
    watches[1].at("epoch 3, iteration 4")
    watches[1].begin("the exchange of gradients")
    watches[1]._exchange()
    die(watches[1])
    text, explained = watches[0].explain("the rows")
    assert text.startswith("rank 1 (host1, pid 101) has been silent for ")
    assert "at epoch 3, iteration 4, awaiting the exchange of gradients (for " in text
    assert "rank 2" not in text
    assert not explained


def test_a_rank_that_lives_but_does_not_come_is_named(watches):
    watches[1].at("epoch 0, iteration 9")
    watches[0].begin("the rows")
    watches[2].begin("the rows")
    text, explained = watches[0].explain("the rows")
    assert text == (
        "rank 1 (host1, pid 101) lives but did not come to it: it is at epoch 0, iteration 9"
    )
    assert not explained


def test_a_rank_that_left_is_not_blamed_for_silence(watches):
    watches[1].leave()
    watches[0].begin("the rows")
    watches[2].begin("the rows")
    assert "silent" not in watches[0].explain("the rows")[0]


def test_the_rank_that_holds_the_store_is_blamed_when_that_is_silent(watches):
    watches[0].at("epoch 1, iteration 0")
    watches[0]._exchange()
    watches[2]._exchange()

    released = threading.Event()

    def hang():
        released.wait(60)
        raise RuntimeError("the store is gone")

    watches[2]._exchange = hang
    text, _ = watches[2].explain("the rows")
    released.set()
    assert text.startswith("rank 0 (host0, pid 100) has been silent for ")
    assert "the store that it holds; last heard of at epoch 1, iteration 0" in text
    assert "rank 1" not in text


def test_waits_become_errors_that_name_what_was_awaited(watches):
    watchdog.set_current(watches[0])
    try:
        watches[1].fail(ValueError("the cause"))
        with pytest.raises(PeerError) as caught, awaiting("the rows of iteration 3"):
            raise TimeoutError("no rows within 1 s")
    finally:
        watchdog.set_current(None)
    message = str(caught.value)
    assert "did not answer during the rows of iteration 3 at its start, awaited for " in message
    assert "rank 1 (host1, pid 101) failed: the cause" in message
    assert "(no rows within 1 s)" in message
    assert caught.value.explained
    assert not watches[0]._awaits


def test_a_rank_that_was_lost_long_ago_ends_the_process(watches, monkeypatch, capsys):
    """Even if this rank is stuck in something that is no wait for others."""
    ended = threading.Event()
    monkeypatch.setattr(watchdog, "_FORCE_SECS", -TIMEOUT_SECS / 2)
    monkeypatch.setattr(watchdog.os, "_exit", lambda status: ended.set())
    die(watches[1])
    assert ended.wait(60)
    assert ": rank 1 (host1, pid 101) has been silent" in capsys.readouterr().err


def test_a_launcher_that_has_ended_is_blamed_for_its_store(store, monkeypatch, capsys):
    """Not the other ranks, which live and cannot say so."""
    ended = threading.Event()
    monkeypatch.setattr(watchdog, "_FORCE_SECS", -TIMEOUT_SECS / 2)
    monkeypatch.setattr(watchdog.os, "_exit", lambda status: ended.set())
    own = PrefixStore("job", store.clone())
    watch = Watch(own, members(2), 0, timeout_secs=TIMEOUT_SECS, store_rank=None)
    watch.start()

    def fail():
        raise RuntimeError("Connection reset by peer")

    watch._exchange = fail
    assert ended.wait(60)
    watch.leave()
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("error: rank 0: the store of the launcher has not answered for ")
    assert line.endswith("has the launcher ended?")
