"""Learning rates that fall, and layers that thaw, through the real Trainer."""

import pytest
import torch
from tiny import SENTENCES, encode, random_model, tiny_config
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_elmo import ElmoForTokenClassification
from hf_elmo.training import GradualUnfreezing, bilm_stages, parameter_groups


@pytest.fixture
def model():
    return random_model(tiny_config(num_labels=3, freeze_bilm=False), model_class=ElmoForTokenClassification)


def rate_of(groups, parameter) -> float:
    (rate,) = [group["lr"] for group in groups if any(p is parameter for p in group["params"])]
    return rate


def test_rates_fall_from_the_task_to_the_characters(model):
    groups = parameter_groups(model, 0.8, decay=2.0, weight_decay=0.1)
    assert rate_of(groups, model.classifier.weight) == 0.8
    assert rate_of(groups, model.elmo.mixes[0].weight) == 0.8
    assert rate_of(groups, model.elmo.bilstm.forward_layers[1].bias) == 0.4
    assert rate_of(groups, model.elmo.bilstm.backward_layers[1].input_weight) == 0.4
    assert rate_of(groups, model.elmo.bilstm.backward_layers[0].bias) == 0.2
    assert rate_of(groups, model.elmo.character_encoder.projection.weight) == 0.1
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in model.parameters())
    decayed = {parameter.dim() > 1 for group in groups if group["weight_decay"] for parameter in group["params"]}
    assert decayed == {True}


def test_impossible_rates_are_refused(model):
    with pytest.raises(ValueError, match=r"learning_rate=0 is not possible"):
        parameter_groups(model, 0)
    with pytest.raises(ValueError, match=r"decay=0.5 would make the lower layers faster"):
        parameter_groups(model, 1.0, decay=0.5)
    with pytest.raises(ValueError, match=r"epochs_per_stage=0 is not possible"):
        GradualUnfreezing(0)
    baseline = ElmoForTokenClassification(tiny_config(use_elmo=False, word_vector_size=3, word_vector_vocab_size=5))
    with pytest.raises(ValueError, match=r"no biLM \(use_elmo=False\)"):
        bilm_stages(baseline)


class Watch(TrainerCallback):
    """Notes after each epoch what learned in it."""

    def __init__(self):
        self.learning = []

    def on_epoch_end(self, args, state, control, model=None, **kwargs):
        learns = [
            all(p.requires_grad for module in stage for p in module.parameters()) for stage in bilm_stages(model)
        ]
        self.learning.append(learns)


def features():
    batch = encode(SENTENCES)
    rows = [{name: value[row].tolist() for name, value in batch.items()} for row in range(len(SENTENCES))]
    return [{**row, "labels": [token % 3 for token in row["input_ids"]]} for row in rows]


def trainer_for(model, folder, watch, epochs, callback, **arguments):
    optimizer = torch.optim.SGD(parameter_groups(model, 0.1, decay=2.0))
    settings = TrainingArguments(
        output_dir=folder, num_train_epochs=epochs, per_device_train_batch_size=2, save_strategy="epoch",
        report_to=[], use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False, **arguments,
    )  # fmt: skip
    return Trainer(
        model, settings, train_dataset=features(), optimizers=(optimizer, None), callbacks=[callback, watch]
    )


def test_layers_thaw_from_the_top(model, tmp_path):
    watch = Watch()
    before = model.elmo.character_encoder.projection.weight.clone()
    trainer_for(model, tmp_path, watch, 5, GradualUnfreezing()).train()
    assert watch.learning == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
        [True, True, True],
        [True, True, True],
    ]
    assert not torch.equal(model.elmo.character_encoder.projection.weight, before)


def test_a_resumed_run_thaws_on(model, tmp_path):
    trainer_for(model, tmp_path, Watch(), 2, GradualUnfreezing(stages=2)).train()
    watch = Watch()
    trainer = trainer_for(model, tmp_path, watch, 4, GradualUnfreezing(stages=2))
    trainer.train(resume_from_checkpoint=True)
    assert watch.learning == [[True, True, False], [True, True, False]]
