"""Started by `accelerate launch`: trains, and writes what each process has in the end."""

import json
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)

from accelerate import PartialState  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from hf_elmo.pretraining_settings import PretrainingSettings  # noqa: E402
from hf_elmo.scripts.pretrain_elmo import pretrain  # noqa: E402

settings, resume = json.loads(sys.argv[1]), "--resume" in sys.argv
model = pretrain(PretrainingSettings(**settings), resume=resume)
rank = PartialState().process_index
weights = {name: weight.detach().contiguous() for name, weight in model.state_dict().items()}
save_file(weights, Path(settings["output"]) / f"rank-{rank}.safetensors")
