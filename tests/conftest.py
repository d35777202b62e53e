"""Settings that all tests share."""

import os

# one thread a process, before torch is loaded: workers that share cores would wait for each other's threads, spinning
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

from tests.sizes import few

# compilation makes first examples slow; derandomised so that a red run can be repeated word for word
settings.register_profile("hedgelab", max_examples=few(100, 5), deadline=None, derandomize=True, print_blob=True)
settings.load_profile("hedgelab")
