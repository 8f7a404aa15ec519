"""Starts programs as forks of a process that has imported the package and its libraries.

An interpreter takes seconds to import torch, a fork milliseconds. ``fork_server.py FOLDER`` serves,
and writes FOLDER/python, which asks it for a fork that does as ``python ARGUMENT...`` does, in the
environment and folder of who asks, with that output. FOLDER/python ends as the fork does; if it is
killed, so is the fork. Programs that the fork starts by sys.executable are forks, too.
"""

import array
import contextlib
import gc
import json
import os
import selectors
import shlex
import signal
import socket
import sys
import types

PRELOADED = (
    "torch.distributed.run",
    "torch.utils.tensorboard",
    "torch_geometric.nn",
    "lsm.cli",
    "lsm.train.job",
    "lsm.train.tasks.choose",
    "lsm.run.loggers.tensorboard",
    "lsm.inference.link_ranks",
    "lsm.inference.top_targets",
    "lsm.embed.job",
)
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def serve(folder: str) -> None:
    import importlib

    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()  # a training of a fork collects garbage
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen(64)
    python = _write_python(folder)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)  # ends when whoever started this does
    pids: dict[socket.socket, int] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                for pid in pids.values():
                    os.kill(pid, signal.SIGKILL)
                return
            if key.fileobj is listener:
                client, _ = listener.accept()
                request, descriptors = _receive(client)
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    listener.close()
                    for other in (*pids, client):
                        other.close()
                    _become(request, descriptors)
                    sys.executable = python
                    _run(request["arguments"])
                    sys.exit()
                for descriptor in descriptors:
                    os.close(descriptor)
                pids[client] = pid
                client.sendall(b"%d\n" % pid)
                selector.register(client, selectors.EVENT_READ)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, client)
            elif key.data is None:  # the client was killed
                selector.unregister(key.fileobj)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[key.fileobj], signal.SIGKILL)
            else:
                client = key.data
                selector.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(pids.pop(client), 0)
                with contextlib.suppress(KeyError):
                    selector.unregister(client)
                with contextlib.suppress(OSError):
                    client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
                client.close()


def _write_python(folder: str) -> str:
    path = os.path.join(folder, "python")
    ask = shlex.join([sys.executable, "-I", "-S", os.path.abspath(__file__), folder])
    with open(f"{path}.new", "w") as file:
        file.write(f'#!/bin/sh\nexec {ask} "$@"\n')
    os.chmod(file.name, 0o700)
    os.rename(file.name, path)
    return path


def _receive(client: socket.socket) -> tuple[dict, list[int]]:
    text, ancillary, *_ = client.recvmsg(1 << 20, socket.CMSG_SPACE(3 * 4))
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data)
    while not text.endswith(b"\n"):
        text += client.recv(1 << 20)
    return json.loads(text), list(descriptors)


def _become(request: dict, descriptors: list[int]) -> None:
    os.setpgid(0, 0)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for folder in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)


def _run(arguments: list[str]) -> None:
    import runpy

    program, *rest = arguments
    if program == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif program == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        runpy.run_path(program, run_name="__main__")


def ask(folder: str, arguments: list[str]) -> None:
    if arguments[0] == "-u":  # forks buffer their output until they end
        arguments = arguments[1:]
    if arguments[0].startswith("-") and arguments[0] not in ("-m", "-c"):
        os.execv(sys.executable, [sys.executable, *arguments])
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{folder}/socket")
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    descriptors = array.array("i", [0, 1, 2])
    text = json.dumps(request).encode() + b"\n"
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)
    server.sendall(text[server.sendmsg([text], [rights]) :])
    answers = server.makefile()
    pid = int(answers.readline())
    for number in FORWARDED:
        signal.signal(number, lambda number, _frame: os.kill(pid, number))
    status = int(answers.readline() or 1)
    if status < 0:  # as the fork was killed
        if -status in FORWARDED:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        ask(sys.argv[1], sys.argv[2:])
