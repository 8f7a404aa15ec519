"""The memory that a process may take."""

from lsm.core import host_memory


def test_the_limit_of_a_control_group_counts(tmp_path, monkeypatch):
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "self").write_text("0::/a/b\n")
    (group / "memory.max").write_text("max\n")
    (tmp_path / "a" / "memory.max").write_text("5000000\n")
    (tmp_path / "a" / "memory.current").write_text("2000000\n")
    (tmp_path / "a" / "memory.stat").write_text("anon 1\nactive_file 300\ninactive_file 40\n")
    machine = host_memory.available_bytes()
    monkeypatch.setattr(host_memory, "_CGROUP", tmp_path / "self")
    monkeypatch.setattr(host_memory, "_CGROUP_ROOT", tmp_path)
    assert host_memory.available_bytes() == 3_000_340 < machine
    assert host_memory.default_bytes() == 2_550_289  # 85%, since nobody else has a share of it
    (tmp_path / "a" / "memory.max").write_text("max\n")
    monkeypatch.setattr(host_memory, "_MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 6 kB\n")
    assert host_memory.default_bytes() == 3 << 10
