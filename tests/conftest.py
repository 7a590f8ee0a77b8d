"""Settings of the whole test run; nothing may reach for the Hub."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Some processors announce bfloat16 matrix units and then refuse them; oneDNN must not try.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

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
