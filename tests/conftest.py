"""Settings of the whole test run; nothing may reach for the Hub."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Some processors announce bfloat16 matrix units and then refuse them; oneDNN must not try.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers

pytest_plugins = ["promises"]
torch.set_num_threads(1)  # the models here are so small that threads only wait for each other


@pytest.fixture(scope="session", autouse=True)
def quiet_transformers():
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def threads_stay_as_they_were():
    """A test that leaves torch with another number of threads changes the last bits of tests that come after it."""
    yield
    with ThreadPoolExecutor(1) as fresh:
        found = torch.get_num_threads(), fresh.submit(torch.get_num_threads).result()
    torch.set_num_threads(1)
    assert found == (1, 1), f"left torch with {found[0]} threads here and {found[1]} in new threads"
