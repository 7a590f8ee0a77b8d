# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a biLM on text, as the original program did unless it is told otherwise.

    accelerate launch -m hf_elmo.scripts.pretrain_elmo --text "text/*.txt" --vocab vocab.txt --output run
    hf-elmo pretrain --text "text/*.txt" --vocab vocab.txt --output run        (one process)

The folder of a run: settings.json, facts.json (about the text), log.jsonl, checkpoints/, best-STEP/ (the
weights with the lowest held-out perplexity) and, at the end, model/: a folder for the Hub.
"""

import argparse
import dataclasses
import json
import math
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, cast

import accelerate
import torch
import transformers
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import get_scheduler

from hf_elmo.checkpoints import CheckpointFolder, load_tree, save_tree
from hf_elmo.cli import Command
from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.continuation import start_from
from hf_elmo.corpus_check import CorpusReport, check_corpus
from hf_elmo.data_set_rows import load_data_set
from hf_elmo.hub import finish_folder, finish_hub_folder, new_folder, save_model_files
from hf_elmo.messages import no_bars
from hf_elmo.model_card import CorpusFacts, HeldOutFigures, TrainingFacts, pretrained_model_card
from hf_elmo.modeling_elmo import ElmoState
from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining, ElmoForPreTrainingOutput
from hf_elmo.perplexity import evaluate_perplexity
from hf_elmo.pretraining_data import PretrainingBatch, PretrainingData, predicted_words
from hf_elmo.pretraining_settings import (
    SCHEDULES_TO_THE_END,
    PretrainingSettings,
    add_settings_arguments,
    command_of,
    given_settings,
    public_settings,
)
from hf_elmo.shipped_model import model_folder
from hf_elmo.tokenization_elmo import ElmoTokenizer
from hf_elmo.training_curves import plot_curves
from hf_elmo.training_log import TrainingLog
from hf_elmo.training_state import StopRequest, TrainingState, on_main, parting_together
from hf_elmo.unigram import unigram_perplexity
from hf_elmo.version import __version__

SETTINGS, FACTS, LOG = "settings.json", "facts.json", "log.jsonl"
CHECKPOINTS, BEST, FINAL = "checkpoints", "best", "model"
STATE = "training"  # the name of what a checkpoint has beside the model


# --- The run ---------------------------------------------------------------------------------------------------------


def pretrain(settings: PretrainingSettings, resume: bool = False) -> ElmoForPreTraining:
    """Trains a model, as it is after the last step; see `hf-elmo pretrain --help`.

    Args:
        settings: Of the run.
        resume: Whether to go on from the newest checkpoint in the folder; if not, there must be no run yet.

    Raises:
        SystemExit: With 128 plus its number, if a signal ended the run, after a checkpoint was saved.
    """
    accelerator = Accelerator(
        mixed_precision=settings.mixed_precision,
        log_with=settings.report_to or None,
        project_dir=settings.output if settings.report_to else None,
    )
    with parting_together(accelerator), ExitStack() as stack:
        run = Run(accelerator, settings, stack, resume)
        run.say(f"{settings}\n")
        run.prepare()
        stack.enter_context(no_bars())  # from here on, one bar is enough
        if resume:
            run.go_back_to_checkpoint()
        else:
            run.look_before_the_first_step()
            run.save()  # so that the run can be resumed whenever it is killed
        stop = StopRequest()
        with stop.listen():
            run.train(stop)
        run.finish()
        del run.step_model  # several processes: it holds on to their connection
    return run.model


class Run:
    """A run: its folder, its model and data, and what changes from step to step."""

    def __init__(self, accelerator: Accelerator, settings: PretrainingSettings, stack: ExitStack, resume: bool):
        self.accelerator = accelerator
        self.settings = settings
        self.folder = Path(settings.output)
        self.checkpoints = CheckpointFolder(self.folder / CHECKPOINTS, keep=settings.keep_checkpoints)
        self.log = TrainingLog(self.folder / LOG)
        self.checkpoint: Path | None = on_main(accelerator, lambda: self._open_folder(stack, resume))
        self.facts: dict[str, Any] = {}  # about the text and the model at the begin; kept in a file
        self.report: CorpusReport | None = None

    def _open_folder(self, stack: ExitStack, resume: bool) -> Path | None:
        """Locks the folder; gives the checkpoint to go on from, if the run is resumed."""
        path = self.folder / SETTINGS
        if resume and not path.is_file():
            raise FileNotFoundError(f"{self.folder} holds no run: {path} is missing. Begin one without --resume.")
        if not resume and self._is_used():
            advice = "Go on with the run in it (--resume)" if path.is_file() else "There is no run in it: empty it"
            raise FileExistsError(f"{self.folder} is not empty. {advice}, or choose another folder.")
        stack.enter_context(self.checkpoints.lock())
        if not resume:
            _write_json(path, self.settings.to_dict())
            return None
        saved = read_settings(self.folder)
        self.settings.check_resumable(saved)
        if self.settings.schedule in SCHEDULES_TO_THE_END and (saved.epochs, saved.max_steps) != (
            self.settings.epochs,
            self.settings.max_steps,
        ):
            raise ValueError(
                f"The schedule {self.settings.schedule} goes to the end of the run: with another number of steps, the "
                "steps that were made would have been others. Resume with the number it was begun with."
            )
        checkpoint = self.checkpoints.newest()
        if checkpoint is None:
            raise ValueError(
                f"{self.checkpoints.folder} holds no checkpoint: the run ended before its first step. Begin it again, "
                "without --resume."
            )
        return checkpoint

    def _is_used(self) -> bool:
        """Whether the folder holds more than what a run leaves that ended before its first step."""
        if not self.folder.exists():
            return False
        others = {path.name for path in self.folder.iterdir()} - {SETTINGS, FACTS, CHECKPOINTS}
        return bool(others or self.checkpoints.steps())

    def say(self, text: str) -> None:
        """Prints in the main process only."""
        if self.accelerator.is_main_process:
            tqdm.write(text, file=sys.stderr)

    # --- Model, data, optimizer --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        settings = self.settings
        set_seed(settings.seed)
        self.model, self.tokenizer, self.start = make_model(settings, self.checkpoint)
        self.model.elmo.mixes.requires_grad_(False)
        self.source: Any = settings.text
        if settings.dataset:
            part = settings.dataset_config, settings.dataset_split
            self.source = load_data_set(settings.dataset, *part, streaming=settings.streaming)
        self.data = self._training_data()
        self.batches_of_step = settings.gradient_accumulation_steps
        self.rows_of_step = settings.batch_size * self.accelerator.num_processes * self.batches_of_step
        if self.checkpoint is None:
            self.facts = on_main(self.accelerator, self._find_facts)
        else:
            self.facts = json.loads((self.folder / FACTS).read_text(encoding="utf-8"))
        self.total_steps = self._total_steps()

        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = make_optimizer(self.model, settings)
        self.scheduler = get_scheduler(settings.schedule, optimizer, settings.warmup_steps, self.total_steps)
        self.step_model, self.optimizer = self.accelerator.prepare(TrainingModel(self.model), optimizer)
        self.sampling = torch.Generator().manual_seed(settings.seed)
        self.state = TrainingState(self.accelerator, self.optimizer, self.scheduler, self.sampling)
        self.totals = Totals()  # since the last row of the log
        set_seed(settings.seed, device_specific=True)  # from here on, dropout draws other numbers in each process
        if settings.report_to:
            self.accelerator.init_trackers("hf-elmo", config=_flat(settings.to_dict()))
        parameters = sum(parameter.numel() for parameter in self.parameters)
        self.say(f"{parameters:,} parameters, {len(self.tokenizer) - 1:,} words, {self.model.config.softmax} softmax")

    def _training_data(self) -> PretrainingData:
        settings = self.settings
        return PretrainingData(
            self.source,
            self.tokenizer,
            mode=settings.mode,
            rows=settings.batch_size,
            steps=settings.unroll_steps,
            seed=settings.seed,
            shuffle=settings.shuffle,
            keep_documents=settings.keep_documents,
            epochs=settings.num_epochs,
            errors=settings.errors,
            column=settings.column,
            max_sentence_words=settings.max_sentence_words,
            rank=self.accelerator.process_index,
            world_size=self.accelerator.num_processes,
            num_workers=settings.num_workers,
            word_ids=self.model.config.word_input != "characters",
        )

    def _total_steps(self) -> int | None:
        settings = self.settings
        if settings.max_steps is not None:
            return settings.max_steps
        steps = self.facts.get("steps_per_epoch")
        if steps is not None:
            return max(steps * (settings.num_epochs or 1), 1)
        if settings.schedule in SCHEDULES_TO_THE_END:
            raise ValueError(
                f"schedule {settings.schedule} has to know how many steps there are: give max_steps, or let the "
                "corpus be checked (as a whole, which is not done with a long stream)."
            )
        return None

    def _find_facts(self) -> dict[str, Any]:
        """Figures of the text, also kept in a file; raises if there is no point in training."""
        settings = self.settings
        facts: dict[str, Any] = {"start": self.start}
        words = predicted_words(self.tokenizer)
        has_baseline = settings.unigram_baseline and bool(settings.heldout)
        report = None
        if settings.check_corpus or (has_baseline and settings.dataset):
            report = check_corpus(
                self.source,
                column=settings.column,
                name=settings.dataset or "",
                vocabulary=words,
                max_characters_per_token=self.model.config.max_characters_per_token,
                code_points=self.tokenizer.characters is not None,
                batch_size=self.rows_of_step,
                unroll_steps=settings.unroll_steps if settings.mode == "stream" else None,
                errors=settings.errors,
                keep_counts=has_baseline,
            )
        if report is not None and settings.check_corpus:
            self.report = report
            facts |= report.to_dict()
            if report.fatal:
                _write_json(self.folder / FACTS, facts)
                self.say(f"{report}\n")
                report.raise_if_fatal()
        if has_baseline:
            counted = settings.text if report is None or report.counts is None else report.counts
            facts["unigram_perplexity"] = unigram_perplexity(counted, settings.heldout, words, settings.errors)
            facts["unigram_rows"] = None if report is None or report.complete else report.rows
        _write_json(self.folder / FACTS, facts)
        return facts

    def look_before_the_first_step(self) -> None:
        """Says what is ahead: the corpus, its problems, and how long an epoch will take at the speed measured now."""
        seconds = self._seconds_of_a_step()
        if self.report is None:
            self.say(f"The text is not checked. A step takes {seconds:.2f} s.")
        elif self.report.steps_per_epoch is None:
            self.say(f"{self.report}\nA step takes {seconds:.2f} s.\n")
        else:
            epoch = seconds * self.report.steps_per_epoch
            self.say(f"{dataclasses.replace(self.report, seconds_per_epoch=epoch)}\n")
        if "unigram_perplexity" in self.facts:
            rows = self.facts["unigram_rows"]
            of_rows = "" if rows is None else f" (counted in the first {rows:,} rows)"
            self.say(f"held-out perplexity of word frequencies alone{of_rows}: {self.facts['unigram_perplexity']:.1f}")

    def _seconds_of_a_step(self) -> float:
        """The time of a step, without making one: weights and random numbers are as before."""
        batches = list(islice(self._training_data(), self.batches_of_step))  # data of its own: the run begins at 0
        if not batches:
            raise ValueError(
                f"The text does not fill a single batch of {self.settings.batch_size} rows of "
                f"{self.settings.unroll_steps} words. Give more text, or a smaller batch_size or unroll_steps."
            )
        before = torch.get_rng_state(), self.sampling.get_state()
        seconds = []
        for _ in range(3):  # the first one is slower
            begin = time.perf_counter()
            self._gradients(batches, None)
            self.optimizer.zero_grad()
            seconds.append(time.perf_counter() - begin)
        torch.set_rng_state(before[0])
        self.sampling.set_state(before[1])
        return min(seconds)

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def go_back_to_checkpoint(self) -> None:
        if self.checkpoint is None:
            raise ValueError("There is no checkpoint to go back to.")
        saved = load_tree(self.checkpoint, STATE)
        totals = saved.pop("totals")
        self.totals = Totals(**{**totals, "losses": totals["losses"].to(self.accelerator.device)})
        for difference in self.state.restore(saved):
            self.say(f"warning: {difference}")
        progress = self.state.progress
        if progress.data is not None:
            self.data.load_state_dict(progress.data)
        on_main(self.accelerator, lambda: self.log.keep_until(progress.step))
        on_main(self.accelerator, lambda: _write_json(self.folder / SETTINGS, self.settings.to_dict()))
        on_main(self.accelerator, self._remove_old_best)
        self.say(f"resumed from {self.checkpoint}: step {progress.step:,}, {progress.words:,} words read")

    def save(self) -> None:
        """Saves a checkpoint, which is a model folder with the state of the training in it."""
        self._check_finite()
        state = {**self.state.capture(), "totals": self._totals_of_all()}
        step = self.state.progress.step

        def write(folder: Path) -> None:
            save_model_files(self.model, self.tokenizer, folder)
            save_tree(folder, STATE, state)

        on_main(self.accelerator, lambda: self.checkpoints.save(step, write) and None)
        on_main(self.accelerator, self._remove_old_best)

    # --- Steps -------------------------------------------------------------------------------------------------------

    def train(self, stop: StopRequest) -> None:
        settings, progress = self.settings, self.state.progress
        steps = self._batches_of_steps()
        tqdm.monitor_interval = 0  # its thread would keep workers from being forked
        bar = tqdm(
            total=self.total_steps,
            initial=progress.step,
            unit="step",
            desc="pretraining",
            disable=settings.quiet or not self.accelerator.is_main_process,
        )
        with bar:
            batches = None if self._is_over() else next(steps, None)
            while batches is not None:
                self.totals.add(self._step(batches))
                bar.update()
                # The last step is known before it is saved: what is measured and logged after it is saved with it.
                batches = None if self._is_over() else next(steps, None)
                if progress.step % settings.log_steps == 0:
                    self._log(bar)
                if settings.heldout and (progress.step % settings.eval_steps == 0 or batches is None):
                    self._evaluate()
                    batches = None if self._is_over() else batches
                if batches is None and self.totals.steps:
                    self._log(bar)
                stopped_by = stop.agreed(self.accelerator)
                if progress.step % settings.save_steps == 0 or stopped_by is not None or batches is None:
                    self.save()
                if stopped_by is not None:
                    bar.close()
                    self.say(
                        f"stopped by {stopped_by.name} after step {progress.step:,}; go on with "
                        f"`hf-elmo pretrain --output {self.folder} --resume`"
                    )
                    raise SystemExit(128 + stopped_by)
        if progress.step == 0:
            raise ValueError(
                f"The text does not fill a single batch of {settings.batch_size} rows. Give more text, or a smaller "
                "batch_size or unroll_steps."
            )
        if settings.heldout and progress.last_evaluation.get("step") != progress.step:  # resumed to end where it was
            self._evaluate()

    def _batches_of_steps(self) -> Iterator[list[PretrainingBatch]]:
        batches = iter(self.data)
        while batch := list(islice(batches, self.batches_of_step)):
            yield batch

    def _is_over(self) -> bool:
        settings, progress = self.settings, self.state.progress
        if settings.max_steps is not None and progress.step >= settings.max_steps:
            return True
        return settings.early_stopping is not None and progress.evaluations_without_gain >= settings.early_stopping

    def _step(self, batches: list[PretrainingBatch]) -> "Totals":
        """One step of the optimizer, over all rows of all processes and all batches of the step."""
        begin = time.perf_counter()
        settings, progress = self.settings, self.state.progress
        losses, self.state.lstm = self._gradients(batches, self._with_resets(self.state.lstm))
        if progress.step < settings.softmax_warmup_steps:
            softmax = set(self.model.softmax.parameters())
            for parameter in self.parameters:
                if parameter not in softmax:
                    parameter.grad = None
        norm = self.accelerator.clip_grad_norm_(self.parameters, settings.max_gradient_norm or math.inf)
        self.optimizer.step()
        if not self.accelerator.optimizer_step_was_skipped:  # fp16 skips steps whose gradients overflow
            self.scheduler.step()
        self.optimizer.zero_grad()

        predictions = sum(batch.num_predictions for batch in batches)
        progress.step += 1
        progress.words += predictions
        progress.epoch, progress.data = batches[-1].epoch, batches[-1].state
        seconds = time.perf_counter() - begin
        progress.seconds += seconds
        self.gradient_norm = norm
        return Totals(steps=1, losses=losses, words=predictions, seconds=seconds)

    def _with_resets(self, state: ElmoState | None) -> ElmoState | None:
        """The state with some rows set to zero, by chance, the same ones for any number of processes.

        A stream begins from zero only once, while sentences are mostly read from zero. In a short training without
        resets, the forward direction came to need a carried state (results/pretraining/tiny-without-resets).
        """
        if state is None or self.settings.state_reset == 0:
            return state
        rows, rank = state.hidden.shape[1], self.accelerator.process_index
        draws = torch.rand(rows * self.accelerator.num_processes, generator=self.sampling)
        goes_on = (draws >= self.settings.state_reset)[rank * rows : (rank + 1) * rows].to(state.hidden.device)
        return ElmoState(*(part * goes_on.view(1, -1, 1) for part in state))

    def _gradients(self, batches: list[PretrainingBatch], state: ElmoState | None) -> tuple[Tensor, ElmoState | None]:
        """Adds up the gradients of the mean loss; gives the share of this process in the losses, and the new state.

        The share is divided by the predictions of an average process, so the mean over the processes, which is what
        happens to gradients, is the mean over the predictions.
        """
        num_predictions = sum(batch.num_predictions for batch in batches) / self.accelerator.num_processes
        losses = torch.zeros(2, device=self.accelerator.device)
        for number, batch in enumerate(batches, start=1):
            is_last = number == len(batches)
            with nullcontext() if is_last else self.accelerator.no_sync(self.step_model):
                inputs = {name: tensor.to(self.accelerator.device) for name, tensor in batch.inputs.items()}
                outputs = self.step_model(inputs, state, num_predictions, self.sampling)
                self.accelerator.backward(outputs.loss * self.settings.factor)
                state = outputs.state
                losses += torch.stack([outputs.forward_loss, outputs.backward_loss]).detach().float()
        return losses, state

    # --- Measuring ---------------------------------------------------------------------------------------------------

    def _totals_of_all(self) -> dict[str, Any]:
        """The sums since the last row of the log, for a checkpoint: the losses are the mean over the processes."""
        totals = self.totals
        losses = self.accelerator.reduce(totals.losses.to(self.accelerator.device), "mean").cpu()
        return {"steps": totals.steps, "losses": losses, "words": totals.words, "seconds": totals.seconds}

    def _log(self, bar: tqdm) -> None:
        self._check_finite()
        progress = self.state.progress
        totals, self.totals = self.totals, Totals()
        forward, backward = (self.accelerator.reduce(totals.losses, "mean") / totals.steps).tolist()
        row = {
            "step": progress.step,
            "epoch": progress.epoch,
            "words": progress.words,
            "loss": (forward + backward) / 2,
            "forward_loss": forward,
            "backward_loss": backward,
            "gradient_norm": float(self.gradient_norm),
            "learning_rate": self.scheduler.get_last_lr()[0],
            "words_per_second": totals.words / totals.seconds,
            "seconds": progress.seconds,
        }
        on_main(self.accelerator, lambda: self.log.add(row))
        self.accelerator.log({f"train/{name}": value for name, value in row.items()}, step=progress.step)
        bar.set_postfix({"loss": f"{row['loss']:.3f}", "words/s": f"{row['words_per_second']:,.0f}"})

    def _check_finite(self) -> None:
        norm = float(getattr(self, "gradient_norm", 0.0))
        if not math.isfinite(norm) and self.accelerator.scaler is None:
            raise ValueError(
                f"The gradients at step {self.state.progress.step:,} are not finite ({norm}), so training is over. "
                f"The checkpoints in {self.checkpoints.folder} are from before. Try a smaller learning_rate."
            )

    def _evaluate(self) -> None:
        """Measures the held-out perplexity, with the full softmax, and keeps the weights if it is the lowest."""
        settings, progress = self.settings, self.state.progress
        perplexity = evaluate_perplexity(
            self.model,
            self.tokenizer,
            settings.heldout,
            mode=settings.mode,
            rows=settings.eval_batch_size,
            errors=settings.errors,
            show_progress=False,
            accelerator=self.accelerator,
        )
        figures = {
            "forward_perplexity": perplexity.forward,
            "backward_perplexity": perplexity.backward,
            "perplexity": perplexity.both,
            "words": perplexity.words,
            "unknown_share": perplexity.unknown_share,
            "seconds": perplexity.seconds,
        }
        progress.last_evaluation = {"step": progress.step, **figures}
        on_main(self.accelerator, lambda: self.log.add({"step": progress.step, "heldout": figures}))
        self.accelerator.log({f"heldout/{name}": value for name, value in figures.items()}, step=progress.step)
        self.say(
            f"step {progress.step:,}: held-out perplexity {perplexity.both:.2f} (forward {perplexity.forward:.2f}, "
            f"backward {perplexity.backward:.2f}; full softmax)"
        )
        if progress.best_perplexity is None or perplexity.both < progress.best_perplexity:
            progress.best_perplexity, progress.best_step = perplexity.both, progress.step
            progress.evaluations_without_gain = 0
            on_main(self.accelerator, self._keep_best)
        else:
            progress.evaluations_without_gain += 1

    def _best_folder(self, step: int) -> Path:
        return self.folder / f"{BEST}-{step:09d}"

    def _keep_best(self) -> None:
        with new_folder(self._best_folder(self.state.progress.step), overwrite=True) as folder:
            save_model_files(self.model, self.tokenizer, folder)
            finish_folder(folder)

    def _remove_old_best(self) -> None:
        """Removes the best weights that the newest checkpoint does not speak of, and what a kill left of others."""
        best = self.state.progress.best_step
        for path in [
            *self.folder.glob(f"{BEST}-*"),
            *self.folder.glob(f".{BEST}-*"),
            *self.folder.glob(f".{FINAL}.*"),
        ]:
            if best is None or path != self._best_folder(best):
                shutil.rmtree(path, ignore_errors=True)

    # --- The end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Writes the folder for the Hub: the best weights if there was something to measure them on, else the last."""
        progress, patience = self.state.progress, self.settings.early_stopping
        if patience is not None and progress.evaluations_without_gain >= patience:
            self.say(f"stopped early: {patience} measurements without gain since step {progress.best_step:,}")
        path = on_main(self.accelerator, self._write_final)
        self.say(f"model folder: {path}")

    def _write_final(self) -> str:
        settings, progress = self.settings, self.state.progress
        rows = self.log.read()
        model, step = self.model, progress.step
        if progress.best_step is not None and progress.best_step != progress.step:
            best = self._best_folder(progress.best_step)
            if best.is_dir():
                model, step = ElmoForPreTraining.from_pretrained(best), progress.best_step
            else:
                self.say(f"warning: {best}, the best weights, are gone; the last ones are taken.")
        measured = [row["heldout"] for row in rows if row["step"] == step and "heldout" in row]
        target = self.folder / FINAL
        with new_folder(target, overwrite=True) as folder:
            save_model_files(model, self.tokenizer, folder)
            plots = plot_curves(
                rows, folder, softmax=model.config.softmax, unigram_perplexity=self.facts.get("unigram_perplexity")
            )
            card = pretrained_model_card(
                settings.name or self.folder.resolve().name,
                cast(ElmoConfig, model.config),
                self.tokenizer,
                num_parameters=sum(parameter.numel() for parameter in self.parameters),
                training=self._training_facts(step),
                corpus=self._corpus_facts(),
                heldout=self._heldout_figures(measured[-1]) if measured else None,
                plots=[plot.name for plot in plots],
                license=settings.license,
                languages=settings.language,
            )
            finish_hub_folder(folder, card)
        return str(target)

    def _training_facts(self, step: int) -> TrainingFacts:
        settings, progress = self.settings, self.state.progress
        device = _device_name(self.accelerator.device)
        positions = 0  # that an epoch predicts
        if self._knows_the_text():
            positions = self.facts["tokens"] + self.facts["sentences"]
        return TrainingFacts(
            command=command_of(settings),
            settings=public_settings(settings),
            steps=progress.step,
            epochs=progress.words / positions if positions else progress.epoch,
            words=progress.words,
            seconds=progress.seconds,
            hardware=f"{self.accelerator.num_processes} x {device}" if self.accelerator.num_processes > 1 else device,
            versions={
                "hf-elmo": __version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "accelerate": accelerate.__version__,
                "Python": platform.python_version(),
            },
            start=self.facts["start"],
            weights_of_step=None if step == progress.step else step,
        )

    def _knows_the_text(self) -> bool:
        """Whether all of it was looked at."""
        return "tokens" in self.facts and self.facts.get("complete", True)

    def _corpus_facts(self) -> CorpusFacts | None:
        if not self._knows_the_text():
            return None
        names = ("sentences", "tokens", "unknown_share")
        return CorpusFacts(files=self.facts["files"] or None, **{name: self.facts[name] for name in names})

    def _heldout_figures(self, measured: dict[str, Any]) -> HeldOutFigures:
        names = [Path(name).name for name in self.settings.heldout]
        command = ["hf-elmo", "perplexity", "FOLDER", *names, "--mode", self.settings.mode]
        figures = {name: value for name, value in measured.items() if name != "seconds"}
        return HeldOutFigures(
            files=names,
            mode=self.settings.mode,
            command=shlex.join([*command, "--rows", str(self.settings.eval_batch_size)]),
            unigram_perplexity=self.facts.get("unigram_perplexity"),
            **figures,
        )


class Totals:
    """Sums over steps, on the device, so that they cost nothing until they are looked at."""

    def __init__(self, steps: int = 0, losses: Tensor | None = None, words: int = 0, seconds: float = 0.0):
        self.steps, self.words, self.seconds = steps, words, seconds
        self._losses = losses

    @property
    def losses(self) -> Tensor:
        """Of the forward and the backward direction (2,)."""
        return torch.zeros(2) if self._losses is None else self._losses

    def add(self, other: "Totals") -> None:
        self.steps, self.words, self.seconds = (
            self.steps + other.steps,
            self.words + other.words,
            self.seconds + other.seconds,
        )
        self._losses = other.losses if self._losses is None else self._losses + other.losses


# --- Parts -----------------------------------------------------------------------------------------------------------


class TrainingModel(nn.Module):
    """The model with one `forward` for both modes, which is what Accelerate wraps."""

    def __init__(self, model: ElmoForPreTraining):
        super().__init__()
        self.model = model

    def forward(
        self, inputs: dict[str, Tensor], state: ElmoState | None, num_predictions: float, generator: torch.Generator
    ) -> ElmoForPreTrainingOutput:
        if "forward_ids" in inputs:
            return self.model.forward_stream(
                **inputs, initial_state=state, num_predictions=num_predictions, generator=generator
            )
        return self.model(**inputs, num_predictions=num_predictions, generator=generator)


def make_model(
    settings: PretrainingSettings, checkpoint: Path | None
) -> tuple[ElmoForPreTraining, ElmoTokenizer, str | None]:
    """The model and the tokenizer: of a checkpoint, of another model folder, or fresh; and what was taken over."""
    if checkpoint is not None:
        model = ElmoForPreTraining.from_pretrained(checkpoint, dtype=torch.float32)
        # Weights lie in the file at any address. On some processors a product rounds differently if its operands are
        # not aligned as fresh weights are, so they get memory of their own.
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
        return model.train(), ElmoTokenizer.from_pretrained(checkpoint), None
    if settings.init_from is not None:
        start = start_from(
            model_folder(settings.init_from),
            None if settings.vocab is None else Path(settings.vocab),
            softmax=settings.softmax,
            num_sampled=settings.num_sampled,
            softmax_cutoffs=settings.softmax_cutoffs,
            dropout=settings.dropout,
            seed=settings.seed,
        )
        return start.model.train(), start.tokenizer, str(start.report)
    values = settings.config_values()
    tokenizer = ElmoTokenizer(
        settings.vocab, max_characters_per_token=values.get("max_characters_per_token", 50), word_splitting="moses"
    )
    config = settings.model_config(vocab_size=len(tokenizer))
    if config.softmax == "sampled" and config.num_sampled >= config.vocab_size:
        raise ValueError(
            f"The softmax draws num_sampled={config.num_sampled} words, but the vocabulary has only "
            f"{config.vocab_size - 1}. Give --softmax full, or a smaller --num_sampled."
        )
    return ElmoForPreTraining(config).train(), tokenizer, None


def make_optimizer(model: nn.Module, settings: PretrainingSettings) -> torch.optim.Optimizer:
    """The optimizer of the settings; weights that are matrices may decay, biases do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    if settings.optimizer == "adagrad":  # as TensorFlow's: the sums begin at 1, and there is no epsilon
        return torch.optim.Adagrad(groups, lr=settings.rate, initial_accumulator_value=1.0, eps=0.0)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    return kinds[settings.optimizer](groups, lr=settings.rate)


def read_settings(folder: Path) -> PretrainingSettings:
    """The settings that are kept in the folder of a run."""
    path = folder / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no run: {path} is missing. Begin one without --resume.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    return PretrainingSettings.from_dict(values, str(path))


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Values that every tracker takes."""
    return {name: value if isinstance(value, (int, float, str)) else str(value) for name, value in values.items()}


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


# --- The command line ------------------------------------------------------------------------------------------------


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--resume", action="store_true", help="go on with the run in the output folder")
    add_settings_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    given = given_settings(arguments)
    if not arguments.resume:
        pretrain(PretrainingSettings(**given))
        return
    if "output" not in given:
        raise ValueError("--resume needs --output, the folder of the run.")
    saved = read_settings(Path(given["output"]))
    pretrain(PretrainingSettings(**{**saved.to_dict(), **given}), resume=True)


PRETRAIN = Command(
    description="Trains a language model, ELMo's network (the biLM), on text. Without further options it is the "
    "recipe of the original (a continuous stream, unrolled for 20 words, Adagrad, sampled softmax) with one addition, "
    "--state_reset. For several processes, use `accelerate launch -m hf_elmo.scripts.pretrain_elmo` with the same "
    "options. Options may also be spelled with hyphens.",
    examples="""  hf-elmo vocab text/*.txt --output vocab.txt
  hf-elmo pretrain --text text/*.txt --heldout heldout.txt --vocab vocab.txt --model small --output run
  hf-elmo pretrain --output run --resume
  hf-elmo pretrain --text text --vocab vocab.txt --output tiny --max_steps 1000 --batch_size 32 --softmax full \\
      --config_overrides projection_size=32,cell_size=128,num_highway_layers=1
  hf-elmo pretrain --init_from elmo-small --text news/*.txt --heldout news-heldout.txt --vocab vocab.txt --epochs 1 \\
      --softmax_warmup_steps 500 --output elmo-small-news
  accelerate launch --num_processes 4 -m hf_elmo.scripts.pretrain_elmo --config run.yaml --output run""",
    add_arguments=_arguments,
    run=_run,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `hf-elmo pretrain`."""
    from hf_elmo.cli import main as command_line

    return command_line(["pretrain", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
