"""The world that the environment of each launcher describes."""

import pytest

from lsm.distributed import environment
from lsm.distributed.environment import (
    Launch,
    World,
    first_host,
    local_size_in,
    rank_in,
    read_environment,
    task_counts,
)

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "run",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
# Of task 4 of `srun --nodes=3 --ntasks=7` in job 1234, as SLURM 22.05 sets it.
SLURM = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "7",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "3,2(x2)",
    "SLURM_TASKS_PER_NODE": "3,2(x2)",
    "SLURM_JOB_NODELIST": "gpu[03-05,9]",
    "SLURM_STEP_NODELIST": "gpu[03-05]",
}


def changed(env, changes):
    return {key: value for key, value in (env | changes).items() if value is not None}


def test_torchrun_names_the_world():
    world = World(rank=5, size=8, local_rank=1, local_size=4, node_rank=1)
    assert read_environment(TORCHRUN) == Launch(
        world, "torchrun", "node0", 29500, job="torchrun-run-2", hosted=True
    )
    assert not world.is_main
    assert rank_in(TORCHRUN) == 5


def test_ranks_without_a_number_on_their_machine_are_counted_from_0_there():
    found = read_environment(changed(TORCHRUN, {"LOCAL_RANK": None, "RANK": "6"})).world
    assert (found.local_rank, found.local_size) == (2, 4)


def test_srun_names_the_world():
    world = World(rank=4, size=7, local_rank=1, local_size=2, node_rank=1)
    found = read_environment(SLURM)
    assert (found.world, found.launcher, found.address) == (world, "slurm", "gpu03")
    assert not found.hosted
    assert 1024 < found.port < 32768  # free for servers, and never given to a client
    assert rank_in(SLURM) == 4


def test_srun_tasks_meet_where_the_others_do_and_other_steps_do_not():
    def meeting(**changes):
        found = read_environment(SLURM | changes)
        return found.address, found.port, found.job

    other_task = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    assert meeting() == meeting(**other_task)
    for change in ({"SLURM_JOB_ID": "1235"}, {"SLURM_STEP_ID": "1"}):
        assert meeting(**change)[1:] != meeting()[1:]
        assert meeting(**change)[1] != meeting()[1]
    assert meeting(SLURM_RESTART_COUNT="1")[2] != meeting()[2]
    assert meeting(MASTER_ADDR="10.0.0.1", MASTER_PORT="7777")[:2] == ("10.0.0.1", 7777)


def test_older_slurm_has_names_of_the_job_only():
    env = changed(SLURM, {name: None for name in SLURM if name.startswith("SLURM_STEP_N")})
    assert read_environment(env).world.size == 7


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("localhost", "localhost"),
        ("gpu[03-05,9],login1", "gpu03"),
        ("rack[1-2]-n[7-9]", "rack1-n7"),
        ("a1,b[2-3]", "a1"),
        ("n[5,7]", "n5"),
        ("n[007]-ib0", "n007-ib0"),
    ],
)
def test_the_first_host_of_a_compact_list(nodes, first):
    assert first_host(nodes) == first


def test_tasks_per_node_are_expanded():
    assert task_counts("2(x3),1") == [2, 2, 2, 1]
    assert task_counts("4") == [4]
    with pytest.raises(RuntimeError, match=r"such as 2\(x3\),1 from SLURM, got '2x3'"):
        task_counts("2x3")


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"PATH": "/bin"},
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"},  # the shell of salloc
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},  # a batch script
    ],
)
def test_without_a_launcher_this_is_a_world_of_one(env):
    assert read_environment(env) == Launch()
    assert Launch().world == World(0, 1, 0, 1)
    assert World().is_main
    assert rank_in(env) is None


@pytest.mark.parametrize(
    ("env", "changes", "message"),
    [
        (TORCHRUN, {"MASTER_PORT": None}, "MASTER_PORT missing"),
        (TORCHRUN, {"WORLD_SIZE": None}, "WORLD_SIZE missing"),
        (TORCHRUN, {"RANK": "8"}, "expected 0 <= RANK < WORLD_SIZE, got 8, 8"),
        (TORCHRUN, {"RANK": "first"}, "expected an integer in RANK, got 'first'"),
        (TORCHRUN, {"MASTER_PORT": "70000"}, "a port from 1 to 65535 in MASTER_PORT, got 70000"),
        (SLURM, {"SLURM_LOCALID": None, "SLURM_JOB_ID": None}, "SLURM_LOCALID, SLURM_JOB_ID miss"),
        (SLURM, {"SLURM_STEP_NUM_TASKS": None, "SLURM_NTASKS": None}, "or SLURM_NTASKS missing"),
        (
            SLURM,
            {"SLURM_STEP_NODELIST": None, "SLURM_JOB_NODELIST": None},
            "SLURM_STEP_NODELIST or SLURM_JOB_NODELIST missing next to SLURM_STEP_ID; .* srun",
        ),
        (SLURM, {"SLURM_STEP_ID": None}, "SLURM_STEP_ID missing: .* batch script of 7 tasks"),
        (SLURM, {"SLURM_PROCID": "7"}, "expected 0 <= SLURM_PROCID < SLURM_STEP_NUM_TASKS, got 7"),
        (SLURM, {"SLURM_NODEID": "3"}, r"SLURM_NODEID is 3, but .* has 3 node\(s\)"),
        (SLURM, {"SLURM_NODEID": "a"}, "expected an integer in SLURM_NODEID, got 'a'"),
        (TORCHRUN, {"LOCAL_RANK": "4"}, "0 <= LOCAL_RANK < LOCAL_WORLD_SIZE .*, got 4, 4, 8"),
        (TORCHRUN, {"LOCAL_RANK": "-1"}, "0 <= LOCAL_RANK < LOCAL_WORLD_SIZE .*, got -1, 4, 8"),
        (TORCHRUN, {"LOCAL_WORLD_SIZE": "9"}, "<= WORLD_SIZE, got 1, 9, 8"),
        (SLURM, {"SLURM_LOCALID": "2"}, "SLURM_LOCALID < SLURM_STEP_TASKS_PER_NODE .* got 2, 2, 7"),
    ],
)
def test_half_a_world_is_an_error_that_names_what_is_missing(env, changes, message):
    with pytest.raises(RuntimeError, match=message):
        read_environment(changed(env, changes))


def test_torchrun_inside_the_others_is_torchrun():
    assert read_environment(SLURM | TORCHRUN).launcher == "torchrun"
    assert rank_in(SLURM | TORCHRUN) == 5


def test_mpirun_without_mpi4py_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "mpi4py", None)  # importing it fails
    env = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    # Inside SLURM mpirun's own variables count: its daemon is SLURM's task, this process is not.
    with pytest.raises(RuntimeError, match=r"pip install mpi4py"):
        read_environment(SLURM | env)
    assert rank_in(SLURM | env) == 1


def test_ranks_of_mpirun_find_their_neighbours():
    hosts = ["b", "b", "a", "b", "a"]
    worlds = [environment._among(hosts, rank) for rank in range(5)]
    assert [(w.local_rank, w.local_size, w.node_rank) for w in worlds] == [
        (0, 3, 0),
        (1, 3, 0),
        (0, 2, 1),
        (2, 3, 0),
        (1, 2, 1),
    ]


def test_ranks_of_this_machine():
    assert local_size_in(TORCHRUN) == 4
    assert local_size_in(SLURM) == 2
    assert local_size_in({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}) == 3
    assert local_size_in({}) == 1


@pytest.mark.parametrize("complete", [TORCHRUN, SLURM], ids=["torchrun", "slurm"])
def test_an_environment_in_part_counts_as_one_rank(complete):
    """As Lightning's launcher leaves it, or a shell within a job."""
    for name in complete:
        part = {name: complete[name]}
        assert local_size_in(part) == 1, part
    assert local_size_in(complete | {"RANK": "one", "WORLD_SIZE": "2"}) == 1
