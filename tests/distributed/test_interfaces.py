"""The network interface that Gloo takes."""

import os

from lsm.distributed.interfaces import choose_interface, interface_of, source_address


def test_the_interface_is_the_one_on_the_way_to_the_store(monkeypatch):
    assert source_address("127.0.0.1", 1) == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") is None  # RFC 5737: nobody's
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "to be restored")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    choose_interface(["127.0.0.1"] * 2, 0, 1)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def test_the_interface_of_the_user_stays(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "mine")
    choose_interface(["127.0.0.1"] * 2, 0, 1)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "mine"


def test_the_machine_of_the_store_goes_by_the_way_to_the_others(monkeypatch):
    """Its own name may mean its loopback interface, which leads nowhere else."""
    asked = []
    monkeypatch.setattr(
        "lsm.distributed.interfaces.source_address", lambda *to: asked.append(to) or "10.0.0.1"
    )
    monkeypatch.setattr("lsm.distributed.interfaces.interface_of", {"10.0.0.1": "net7"}.get)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "to be restored")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    choose_interface(["127.0.1.1", "127.0.1.1", "10.0.0.2"], 1, 7)
    assert asked == [("10.0.0.2", 7)]
    assert os.environ["GLOO_SOCKET_IFNAME"] == "net7"
