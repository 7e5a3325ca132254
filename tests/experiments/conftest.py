"""What tests of experiments share."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    """What was compiled once in a module is read from a file when it is compiled again."""
    options = OPTIONS | {"jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled"))}
    before = {name: getattr(jax.config, name) for name in options}
    compilation_cache.reset_cache()
    for name, value in options.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
