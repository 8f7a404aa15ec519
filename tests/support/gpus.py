"""Marks for tests that need a GPU, or that need a machine without one."""

import pytest

from lsm.core.device import gpu_problem

PROBLEM = gpu_problem(0)
SKIP_WITHOUT_GPU = pytest.mark.skipif(PROBLEM is not None, reason=f"no GPU: {PROBLEM}")
ON_A_GPU = [pytest.mark.gpu, SKIP_WITHOUT_GPU]
WITHOUT_GPU = pytest.mark.skipif(PROBLEM is None, reason="there is a GPU")
