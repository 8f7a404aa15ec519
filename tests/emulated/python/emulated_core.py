"""A pytest plugin: lsm._core is the module whose twins are the emulated GPU.

LSM_EMULATED_CORE is its file. GPU 0 is thought to train, so that those tests of GPUs run that need
no tensor there.
"""

import importlib.util
import os
import sys

spec = importlib.util.spec_from_file_location("lsm._core", os.environ["LSM_EMULATED_CORE"])
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])

import lsm.core.device  # noqa: E402

lsm.core.device.gpu_problem = lambda *_, **__: None
