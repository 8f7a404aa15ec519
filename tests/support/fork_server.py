"""Starts programs as forks of a process that has imported the libraries of the package.

An interpreter takes seconds to import torch, a fork milliseconds. ``fork_server.py SOCKET`` serves.
``python -I -S fork_server.py SOCKET PROGRAM ARGUMENT...`` asks the server for a fork that runs
PROGRAM (``-m`` and a module, or a script) in this environment and folder, with this output. It ends
as the fork does; if it is killed, so is the fork.
"""

import array
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def serve(path: str) -> None:
    import runpy

    import pydantic  # noqa: F401
    import rich.progress  # noqa: F401
    import torch.distributed.run  # noqa: F401
    import torch_geometric.nn  # noqa: F401
    import typer  # noqa: F401
    import yaml  # noqa: F401

    gc.freeze()  # a training of a fork collects garbage
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
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
                    program, *arguments = request["program"]
                    if program == "-m":
                        sys.argv = arguments
                        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
                    else:
                        sys.argv = [program, *arguments]
                        runpy.run_path(program, run_name="__main__")
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


def ask(path: str, program: list[str]) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    request = {"program": program, "folder": os.getcwd(), "environment": dict(os.environ)}
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
