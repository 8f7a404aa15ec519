"""GPUs, drivers and torch builds that are only described."""

from types import SimpleNamespace

A100 = SimpleNamespace(name="A100", capability_major=8, capability_minor=0, total_bytes=40 << 30)
T4 = SimpleNamespace(name="T4", capability_major=7, capability_minor=5, total_bytes=16 << 30)


def cuda_info(gpus=(A100,), toolkit=13000, driver=13010, problem=""):
    return SimpleNamespace(
        gpus=list(gpus), toolkit_version=toolkit, driver_version=driver, problem=problem
    )


def torch_cuda(available=True, count=1, free=0, total=0):
    return SimpleNamespace(
        is_available=lambda: available,
        device_count=lambda: count,
        mem_get_info=lambda _device: (free, total),
    )
