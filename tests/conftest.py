"""Settings that all tests share."""

from hypothesis import settings

from tests.sizes import few

# compilation makes first examples slow; derandomised so that a red run can be repeated word for word
settings.register_profile("hedgelab", max_examples=few(100, 5), deadline=None, derandomize=True, print_blob=True)
settings.load_profile("hedgelab")
