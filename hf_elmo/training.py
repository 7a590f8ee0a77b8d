# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning the biLM with a task, carefully: slower below than above, and from the top down.

model = ElmoForTokenClassification.from_pretrained(folder, freeze_bilm=False, ...)
optimizer = torch.optim.AdamW(parameter_groups(model, learning_rate=1e-3))
trainer = Trainer(model, ..., optimizers=(optimizer, None), callbacks=[GradualUnfreezing()])
"""

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .modeling_elmo_heads import ElmoTaskModel


def bilm_stages(model: ElmoTaskModel) -> list[list[nn.Module]]:
    """The parts of the biLM from the top down: each pair of LSTM layers, then the character encoder."""
    if not model.config.use_elmo:
        raise ValueError("This model has no biLM (use_elmo=False), so there is nothing to fine-tune below the task.")
    layers = zip(model.elmo.bilstm.forward_layers, model.elmo.bilstm.backward_layers, strict=True)
    return [*reversed([list(pair) for pair in layers]), [model.elmo.character_encoder]]


def parameter_groups(
    model: ElmoTaskModel, learning_rate: float, decay: float = 2.6, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Parameters for an optimizer, with a learning rate that falls from the task to the characters.

    The task, the mixes among it, gets `learning_rate`, the top LSTM layer `learning_rate / decay`, the one below
    `learning_rate / decay**2`, and so on. Parameters that are frozen now are among them, so that they can be unfrozen
    later; without a gradient an optimizer leaves them alone.

    Args:
        model: A model with a task head.
        learning_rate: For the task.
        decay: By how much the rate falls from stage to stage; 1 keeps it, 2.6 is what ULMFiT found good.
        weight_decay: For matrices; biases and mixes are not decayed.
    """
    if learning_rate <= 0:
        raise ValueError(f"learning_rate={learning_rate} is not possible: it must be positive.")
    if decay < 1:
        raise ValueError(f"decay={decay} would make the lower layers faster than the task: it must be 1 or more.")
    stages = [[p for module in stage for p in module.parameters()] for stage in bilm_stages(model)]
    below = {id(parameter) for stage in stages for parameter in stage}
    task = [parameter for parameter in model.parameters() if id(parameter) not in below]
    groups = []
    for depth, parameters in enumerate([task, *stages]):
        rate = learning_rate / decay**depth
        matrices = [parameter for parameter in parameters if parameter.dim() > 1]
        others = [parameter for parameter in parameters if parameter.dim() <= 1]
        groups.append({"params": matrices, "lr": rate, "weight_decay": weight_decay})
        groups.append({"params": others, "lr": rate, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


class GradualUnfreezing(TrainerCallback):
    """Trains the task alone first, then one more stage of the biLM from the top every few epochs.

    Args:
        epochs_per_stage: How many epochs to wait before the next stage is unfrozen.
        stages: How many stages to unfreeze in all; by default all of them, down to the characters.
    """

    def __init__(self, epochs_per_stage: float = 1.0, stages: int | None = None):
        if epochs_per_stage <= 0:
            raise ValueError(f"epochs_per_stage={epochs_per_stage} is not possible: it must be positive.")
        self.epochs_per_stage = epochs_per_stage
        self.stages = stages

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._unfreeze(kwargs["model"], state.epoch or 0.0)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._unfreeze(kwargs["model"], state.epoch or 0.0)

    def _unfreeze(self, model: ElmoTaskModel, epoch: float) -> None:
        """Sets what learns from the epoch alone, so that a resumed run goes on as it would have."""
        stages = bilm_stages(model)
        wanted = len(stages) if self.stages is None else self.stages
        learning = min(int(epoch / self.epochs_per_stage + 1e-6), wanted)
        for number, stage in enumerate(stages):
            for module in stage:
                module.requires_grad_(number < learning)


__all__ = ["GradualUnfreezing", "bilm_stages", "parameter_groups"]
