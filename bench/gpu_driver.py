"""The NVIDIA driver, by ctypes: the GPUs that it shows, and whether the first one works. Needs no
package. As a program: exit status 0 if it works; otherwise the reason is printed."""

from __future__ import annotations

import ctypes
import subprocess
import sys

PROBE_SECS = 60
COUNT, VALUE = 1 << 20, 0x5A17C0DE


def load_driver() -> ctypes.CDLL | None:
    """The driver's library, after cuInit(); None without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def find_gpus() -> list[str]:
    """The names of the GPUs that the driver shows."""
    driver = load_driver()
    count, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    names = []
    for index in range(count.value):
        driver.cuDeviceGetName(name, len(name), index)
        names.append(name.value.decode())
    return names


def gpu_problem() -> str:
    """The reason why the first GPU does not work; empty if it does. Tried in a process of its own,
    because a GPU that hangs never returns."""
    try:
        done = subprocess.run(
            [sys.executable, __file__], capture_output=True, text=True, timeout=PROBE_SECS
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {PROBE_SECS} s"
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else f"its test ended with status {done.returncode}"


def probe() -> str:
    """Allocates, fills by a kernel of the driver and copies back; the first call that failed."""
    driver = load_driver()
    if driver is None:
        return "no driver"
    device, context = ctypes.c_int(), ctypes.c_void_p()
    memory, got = ctypes.c_uint64(), (ctypes.c_uint32 * COUNT)()
    size = ctypes.c_size_t(ctypes.sizeof(got))
    calls = {
        "cuDeviceGet": lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        "cuCtxCreate": lambda: driver.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        "cuMemAlloc": lambda: driver.cuMemAlloc_v2(ctypes.byref(memory), size),
        "cuMemsetD32": lambda: driver.cuMemsetD32_v2(memory, VALUE, ctypes.c_size_t(COUNT)),
        "cuCtxSynchronize": lambda: driver.cuCtxSynchronize(),
        "cuMemcpyDtoH": lambda: driver.cuMemcpyDtoH_v2(got, memory, size),
    }
    for name, call in calls.items():
        error = call()
        if error != 0:
            return f"{name} failed with error {error}"
    wrong = sum(number != VALUE for number in got)
    return f"{wrong} of {COUNT} numbers came back wrong" if wrong else ""


if __name__ == "__main__":
    problem = probe()
    print(problem or "works")
    sys.exit(1 if problem else 0)
