"""Mistakes that the tests must notice: for each promise at least one, to be made in a copy of the package.

python tests/replay_mutations.py            # makes each of them, and expects its tests to fail
python tests/replay_mutations.py --only S1
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """A mistake in one place.

    Args:
        row: The promise that it breaks, as in `promises.py`, or a word for what else is tested.
        file: Where, from the root of the repository.
        old: The text there, which occurs once.
        new: What is written in its place.
        tests: Tests of which at least one must fail.
        why: What the mistake is, in a line.
    """

    row: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str


MUTATIONS = [
    # --- Hostile files ---
    Mutation(
        "S1",
        "conversion/hdf5.py",
        "if group.links.get_info(link).type != h5py.h5l.TYPE_HARD:\n                raise",
        "if False:\n                raise",
        ("tests/test_hdf5.py::test_hostile_file_is_refused[external link]",),
        "links out of an HDF5 file are followed",
    ),
    Mutation(
        "S1",
        "conversion/hdf5.py",
        "    if properties.get_external_count():\n",
        "    if False:\n",
        ("tests/test_hdf5.py::test_hostile_file_is_refused[external storage]",),
        "data that lies in another file is read",
    ),
    Mutation(
        "S1",
        "conversion/hdf5.py",
        "    if properties.get_nfilters():\n",
        "    if False:\n",
        ("tests/test_hdf5.py::test_hostile_file_is_refused[gzip bomb]",),
        "arrays that may unpack to terabytes are let through",
    ),
    Mutation(
        "S2",
        "conversion/hdf5.py",
        "        if broken:\n",
        "        if False:\n",
        ("tests/test_hdf5.py::test_damaged_files_are_refused_or_harmless",),
        "damaged values that are not finite are given out",
    ),
    Mutation(
        "S3",
        "hf_elmo/strict_json.py",
        "        if key in values:\n",
        "        if False:\n",
        ("tests/test_options.py::test_duplicate_key_is_told",),
        "the second of two equal keys counts",
    ),
    Mutation(
        "S3",
        "hf_elmo/configuration_elmo.py",
        "            if not smallest <= value <= largest:\n",
        "            if False:\n",
        ("tests/test_verify.py::test_broken_configs_are_told_before_anything_is_made",),
        "sizes of 10^12 are not refused",
    ),
    Mutation(
        "S3",
        "hf_elmo/strict_json.py",
        "        content = file.read(largest + 1)\n    if len(content) > largest:\n",
        "        content = file.read()\n    if False:\n",
        ("tests/test_options.py::test_huge_file_is_not_read",),
        "files of any size are read",
    ),
    Mutation(
        "S4",
        "conversion/pickles.py",
        "            _check_program(_instructions(file, size), allowed)\n",
        "            _instructions(file, size)\n",
        ("tests/test_pickles.py::test_hostile_files_are_refused_and_do_nothing",),
        "nobody looks at what a pickle would call",
    ),
    Mutation(
        "S5",
        "conversion/verify.py",
        "    except SafetensorError as error:\n",
        "    except KeyError as error:\n",
        ("tests/test_safetensors.py::test_malformed_files_are_refused[empty]",),
        "malformed weights end in an error that names nothing",
    ),
    Mutation(
        "S6",
        "hf_elmo/hub.py",
        "        if found != expected:\n",
        "        if False:\n",
        ("tests/test_safetensors.py::test_damaged_files_fail_the_checksums",),
        "checksums are computed and not compared",
    ),
    Mutation(
        "S7",
        "conversion/verify.py",
        "        if loading[kind]:\n",
        "        if False:\n",
        ("tests/test_conversion_allennlp.py::test_folders_that_are_not_whole_are_refused",),
        "weights that are missing are made up",
    ),
    Mutation(
        "S7",
        "hf_elmo/checked_loading.py",
        "name for name in left_over if not any(pattern.search(name) for pattern in ignored)",
        "name for name in left_over if False",
        ("tests/test_verify.py::test_weights_that_are_not_whole_are_refused_and_named",),
        "weights that have no place are left out",
    ),
    Mutation(
        "S7",
        "hf_elmo/checked_loading.py",
        "            return bool(file.get_tensor(self.name).isfinite().all())\n",
        "            return not bool(file.get_tensor(self.name).isnan().all())\n",
        ("tests/test_verify.py::test_weights_that_are_not_whole_are_refused_and_named",),
        "one NaN among numbers is taken for a number",
    ),
    Mutation(
        "S8",
        "hf_elmo/crf.py",
        "import math\nimport re\n",
        "import math\nimport re\n\nimport numpy.linalg\nimport h5py\n",
        ("tests/test_auto.py::test_hub_files_import_only_what_transformers_brings",),
        "code for the Hub needs a package that is not there",
    ),
    Mutation(
        "S8",
        "hf_elmo/configuration_elmo.py",
        '    "crf.py",\n',
        "",
        ("tests/test_auto.py::test_hub_files_import_only_what_transformers_brings",),
        "a file that others import is not saved with the model",
    ),
    Mutation(
        "S9",
        "conversion/archives.py",
        '    if ".." in re.split(r"[/\\\\]", name):\n',
        "    if False:\n",
        ("tests/test_archives.py::test_hostile_archives_are_refused",),
        "members are written outside the folder",
    ),
    Mutation(
        "S9",
        "conversion/archives.py",
        "        if entry.issym() or entry.islnk():\n",
        "        if False:\n",
        ("tests/test_archives.py::test_hostile_archives_are_refused",),
        "links in a tar are not told from files",
    ),
    # --- Kill and resume ---
    Mutation(
        "R1",
        "hf_elmo/training_state.py",
        'self.lstm = None if saved["lstm"] is None else ElmoState(',
        'self.lstm = None if saved["lstm"] is not None else ElmoState(',
        ("tests/test_pretrain_resume.py::test_what_is_not_forgotten_is_not_noticed",),
        "a resumed run begins with an empty state",
    ),
    Mutation(
        "R2",
        "hf_elmo/hub.py",
        "        yield temporary\n        _flush(temporary)\n",
        "        yield temporary\n",
        ("tests/test_checkpoints.py::test_states_on_the_disk_while_saving[one older that is removed-True]",),
        "a checkpoint gets its name before it is on the disk",
    ),
    Mutation(
        "R3",
        "hf_elmo/checkpoints.py",
        "        verify_checksums(path)\n",
        "        pass\n",
        ("tests/test_checkpoints.py::test_kills_find_out_a_writer_in_place",),
        "half-written checkpoints are taken for whole ones",
    ),
    Mutation(
        "R4",
        "hf_elmo/training_state.py",
        '        self._sampling.set_state(saved["sampling"])\n',
        "",
        ("tests/test_pretrain_resume.py::test_what_is_not_forgotten_is_not_noticed",),
        "a resumed run draws other words for its sampled softmax",
    ),
    Mutation(
        "R5",
        "hf_elmo/checkpoints.py",
        "        if problems:\n            listed",
        "        if False:\n            listed",
        ("tests/test_checkpoints.py::test_a_run_never_begins_anew_in_silence",),
        "a run without a whole checkpoint begins anew in silence",
    ),
    Mutation(
        "R5",
        "hf_elmo/checkpoints.py",
        "                for skipped, reason in problems.items():\n",
        "                for skipped, reason in ():\n",
        ("tests/test_checkpoints.py::test_damaged_checkpoints_are_skipped_and_that_is_said",),
        "nothing is said of damaged checkpoints",
    ),
    Mutation(
        "R6",
        "hf_elmo/checkpoints.py",
        "        except (OSError, SafetensorError) as error:\n",
        "        except KeyError as error:\n",
        ("tests/test_checkpoints.py::test_errors_while_saving",),
        "an error while saving does not name the checkpoint",
    ),
    Mutation(
        "R7",
        "hf_elmo/training_state.py",
        "            for number in (signal.SIGTERM, signal.SIGINT):\n",
        "            for number in (signal.SIGINT,):\n",
        ("tests/test_pretrain_resume.py::test_signals_end_the_run_after_the_step[in the first batch]",),
        "a run that is asked to leave ends without saving",
    ),
    Mutation(
        "R8",
        "hf_elmo/checkpoints.py",
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        ("tests/test_checkpoints.py::test_a_second_run_is_refused",),
        "two runs may hold the lock",
    ),
    # --- Text ---
    Mutation(
        "T1",
        "hf_elmo/tokenization_elmo.py",
        'byte in word.encode("utf-8", errors="ignore")[: width - 2]]',
        'byte in word.encode("utf-8")[: width - 2]]',
        ("tests/test_any_text.py::test_random_texts",),
        "lone surrogates raise an error",
    ),
    Mutation(
        "T2",
        "hf_elmo/tokenization_elmo.py",
        "    boundary = SENTENCE_BOUNDARIES.get(word)\n",
        "    boundary = SENTENCE_BOUNDARIES.get(word.strip())\n",
        ("tests/test_any_text.py::test_strange_words_have_the_rows_of_the_original",),
        "a word that looks like a boundary is one",
    ),
    Mutation(
        "T3",
        "hf_elmo/corpus.py",
        "        numbers = (lines.undecodable + lines_before + 1).tolist()\n",
        "        numbers = (lines.undecodable + lines_before).tolist()\n",
        ("tests/test_corpus.py::test_undecodable_lines_are_listed_and_none_is_lost",),
        "the line before the bad one is named",
    ),
    Mutation(
        "T4",
        "hf_elmo/tokenization_elmo.py",
        "words = [None if sequence is None else sample[sequence][place] for sequence, place in places]",
        "words = [None if sequence is None else sample[sequence][place].lower() for sequence, place in places]",
        ("tests/test_any_text.py::test_batches_words_and_copies_make_no_difference",),
        "words that are given are spelled in lower case, those of raw text are not",
    ),
    Mutation(
        "T5",
        "hf_elmo/tokenization_elmo.py",
        "    padding = bytes(2 * width)\n"
        '    rows = b"".join([padding if word is None else character_row(word, width) for word in words])\n',
        "    padding, words = bytes(2 * width), list(words)\n"
        "    copied = lambda row: len(words) // 2 * b'x' and row\n"
        '    rows = b"".join([padding if word is None else copied(character_row(word, width)) for word in words])\n',
        ("tests/test_any_text.py::test_a_million_words_in_one_call",),
        "the time for a word grows with the text",
    ),
    # --- Numbers ---
    Mutation(
        "N1",
        "hf_elmo/modeling_elmo.py",
        "bias=torch.cat([before, forget + self.forget_bias, after]),",
        "bias=torch.cat([before, forget, after]),",
        ("tests/test_parity.py::test_stored_vectors_of_the_tensorflow_program",),
        "the forget gate lacks its constant",
    ),
    Mutation(
        "N2",
        "hf_elmo/packing.py",
        "            reverse=starts[lengths[rows] - 1 - steps] + rows,\n",
        "            reverse=starts[lengths[rows] - 1 - steps] + rows * (mask.shape[1] < 20),\n",
        ("tests/test_modeling.py::test_padding_changes_nothing[0-64-65]",),
        "the backward direction begins in the padding of a wide batch",
    ),
    Mutation(
        "N3",
        "hf_elmo/modeling_elmo.py",
        "            columns = group.length + widest\n",
        "            columns = group.length\n",
        ("tests/test_modeling.py::test_batch_mates_and_order_change_nothing",),
        "how much of a word's padding is read depends on the words beside it",
    ),
    Mutation(
        "N4",
        "hf_elmo/modeling_elmo.py",
        "        if initial_state is None:\n            return self.first_state(rows)\n",
        "        if initial_state is None:\n"
        '            self.calls = getattr(self, "calls", 0) + 1\n'
        "            first = self.first_state(rows)\n"
        "            return ElmoState(first.hidden + 1e-6 * self.calls, first.cell)\n",
        ("tests/test_modeling.py::test_nothing_is_remembered_between_calls",),
        "a call leaves something behind for the next",
    ),
    Mutation(
        "N5",
        "hf_elmo/modeling_elmo.py",
        '        _check_range("character_ids", character_ids, self.config.char_vocab_size)\n',
        "",
        ("tests/test_modeling.py::test_inputs_that_do_not_fit_are_refused",),
        "ids out of range are not named",
    ),
    Mutation(
        "N6",
        "hf_elmo/packing.py",
        "        longest = all_lengths[0] if all_lengths else 0\n",
        "        longest = all_lengths[0]\n",
        ("tests/test_modeling.py::test_batches_without_words",),
        "a batch without sentences is an error",
    ),
    Mutation(
        "N7",
        "hf_elmo/modeling_elmo.py",
        "        return character_ids, mask if attention_mask is None else mask & attention_mask.bool()\n",
        "        return character_ids, mask\n",
        ("tests/test_modeling.py::test_a_mask_with_holes_leaves_the_words_out",),
        "the attention mask is not read",
    ),
    Mutation(
        "N8",
        "hf_elmo/fast_paths.py",
        "    last_hidden[: len(hidden)] = hidden\n    return LstmResult(outputs, last_hidden, last_cell)\n",
        "    return LstmResult(outputs, last_hidden, last_cell)\n",
        ("tests/test_model_properties.py::test_any_pieces_of_the_forward_direction",),
        "the state that is given back is not the last one",
    ),
    Mutation(
        "N8",
        "hf_elmo/fast_paths.py",
        "        last_hidden[: len(hidden)], last_cell[: len(hidden)] = hidden, cell\n        weights",
        "        last_hidden[: len(hidden)] = hidden\n        weights",
        ("tests/test_modeling.py::test_forward_direction_in_chunks_is_the_same_as_in_one_pass",),
        "the cells that are given back by the path with a gradient are the first ones",
    ),
    Mutation(
        "N9",
        "hf_elmo/fast_paths.py",
        "    return scores.unflatten(0, windows.shape[:2]).amax(dim=1)\n",
        "    return scores.unflatten(0, windows.shape[:2])[:, :-1].amax(dim=1)\n",
        ("tests/test_fast_paths.py::test_the_same_vectors",),
        "the fast path does not see the last window of a word",
    ),
    Mutation(
        "N10",
        "hf_elmo/fast_paths.py",
        "            _through_clip(this_of_cell, new_cell, cell_clip, this_of_cell)\n",
        "",
        ("tests/test_fast_paths.py::test_gradient_of_the_recurrence",),
        "the gradient passes through a cell that is clipped",
    ),
    # --- Memory ---
    Mutation(
        "M1",
        "hf_elmo/embedder.py",
        "            yield long, self._read_in_pieces\n",
        "            yield long, self._read\n",
        ("tests/test_embedder.py::test_a_document_in_pieces_never_gives_the_model_more_words_than_the_budget",),
        "a long document is read in one piece",
    ),
    Mutation(
        "M2",
        "hf_elmo/fast_paths.py",
        "            while len(self._vectors) > self.size:\n",
        "            while False:\n",
        ("tests/test_fast_paths.py::test_a_cache_changes_nothing_and_is_bounded",),
        "a cache of words grows without end",
    ),
    Mutation(
        "M3",
        "hf_elmo/modeling_elmo.py",
        "        model, report = loaded\n",
        "        model, report = loaded\n        model.copies = [weight.clone() for weight in model.parameters()]\n",
        ("tests/test_memory.py::test_loading_takes_little_more_than_the_file",),
        "all weights are in memory twice",
    ),
    # --- Threads, processes and folders ---
    Mutation(
        "threads",
        "hf_elmo/feature_cache.py",
        "            if self._counts[model] == 0:\n",
        "            if True:\n",
        ("tests/test_concurrency.py::test_the_first_to_leave_does_not_switch_dropout_on",),
        "the first thread that has read switches dropout on for the others",
    ),
    Mutation(
        "threads",
        "hf_elmo/modeling_elmo.py",
        "        if reads_sentence_by_sentence() or needs_gradient(self.parameters()):\n",
        "        if needs_gradient(self.parameters()):\n",
        ("tests/test_concurrency.py::test_reading_one_by_one_in_some_threads_does_not_change_the_others",),
        "words that were spelled together with others are used where the same bits are promised",
    ),
    Mutation(
        "threads",
        "hf_elmo/fast_paths.py",
        "_shared_cache.get()",
        "next(iter([owner for owner in _lock_owners if isinstance(owner, WordCache)]), None)",
        ("tests/test_concurrency.py::test_a_cache_of_one_thread_is_not_seen_by_another",),
        "the cache of a stream is everybody's",
    ),
    Mutation(
        "threads",
        "hf_elmo/packing.py",
        "            new.submit(torch.set_num_threads, of_new_threads).result()\n",
        "",
        ("tests/test_concurrency.py::test_reading_one_by_one_leaves_other_threads_the_processors_that_they_have",),
        "whoever reads one by one takes the other processor from threads that begin later",
    ),
    Mutation(
        "processes",
        "hf_elmo/fast_paths.py",
        "        owner._lock = threading.Lock()\n",
        "        pass\n",
        ("tests/test_concurrency.py::test_a_fork_in_the_middle_of_something_does_not_wait_forever",),
        "a forked process waits for a thread that it does not have",
    ),
    Mutation(
        "verify",
        "hf_elmo/verify.py",
        "    changed = [name for name in there if (path / name).read_bytes() != (package / name).read_bytes()]\n",
        "    changed: list[str] = []\n",
        ("tests/test_verify.py::test_code_that_is_not_the_packages_is_found",),
        "changed code in a folder is not noticed",
    ),
    Mutation(
        "verify",
        "hf_elmo/verify.py",
        "    other_code = [entry for entry in _auto_map_entries(path) if entry not in _own_entries()]\n",
        "    other_code: list[str] = []\n",
        ("tests/test_verify.py::test_code_that_is_not_the_packages_is_found",),
        "a config that names the code of another repository is not noticed",
    ),
    Mutation(
        "verify",
        "hf_elmo/verify.py",
        "        if found != said\n",
        "        if False\n",
        ("tests/test_verify.py::test_tokenizers_that_do_not_fit_are_told",),
        "a tokenizer of another model is not noticed",
    ),
]
