"""options.json files are read strictly, and say the same after a round trip."""

import copy
import json
import time

import pytest
from originals import elmo_options

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.conversion.options import config_from_options, options_from_config, read_options
from hf_elmo.scripts.original_wheels import allennlp_fixtures

NAN, INFINITY = float("nan"), float("inf")


def with_value(path, value):
    """Options in which the value at `path`, such as `lstm.dim`, is another one."""
    options = copy.deepcopy(elmo_options())
    *sections, key = path.split(".")
    section = options
    for name in sections:
        section = section[name]
    section[key] = value
    return options


def without(path):
    options = with_value(path, None)
    *sections, key = path.split(".")
    section = options
    for name in sections:
        section = section[name]
    del section[key]
    return options


BROKEN_VALUES = [
    ("lstm.dim", -1),
    ("lstm.dim", 0),
    ("lstm.dim", 10**12),
    ("lstm.dim", 10**400),
    ("lstm.dim", "4096"),
    ("lstm.dim", True),
    ("lstm.dim", 12.0),
    ("lstm.dim", None),
    ("lstm.dim", [12]),
    ("lstm.projection_dim", -8),
    ("lstm.projection_dim", 2**24 + 1),
    ("lstm.n_layers", 0),
    ("lstm.n_layers", 10**6),
    ("lstm.n_layers", "2"),
    ("lstm.cell_clip", -3),
    ("lstm.cell_clip", "three"),
    ("lstm.cell_clip", INFINITY),
    ("lstm.cell_clip", NAN),
    ("lstm.cell_clip", 10**400),
    ("lstm.cell_clip", False),
    ("lstm.proj_clip", -0.5),
    ("lstm.proj_clip", [3]),
    ("lstm.use_skip_connections", 1),
    ("lstm.use_skip_connections", "true"),
    ("lstm", None),
    ("lstm", [1, 2]),
    ("char_cnn", "relu"),
    ("char_cnn.activation", "gelu"),
    ("char_cnn.activation", ["relu"]),
    ("char_cnn.n_highway", -1),
    ("char_cnn.n_highway", 10**6),
    ("char_cnn.n_highway", "2"),
    ("char_cnn.embedding", 16),
    ("char_cnn.embedding.dim", 0),
    ("char_cnn.embedding.dim", 1e12),
    ("char_cnn.max_characters_per_token", 2),
    ("char_cnn.max_characters_per_token", 10**9),
    ("char_cnn.n_characters", 260),
    ("char_cnn.n_characters", "262"),
    ("char_cnn.n_characters", [262]),
    ("char_cnn.filters", []),
    ("char_cnn.filters", {"1": 32}),
    ("char_cnn.filters", [[1, 4]] * 101),
    ("char_cnn.filters", None),
    ("bidirectional", False),
]


@pytest.mark.promise("S3")
@pytest.mark.parametrize(("path", "value"), BROKEN_VALUES, ids=lambda value: repr(value)[:40])
def test_broken_value_is_named(path, value):
    with pytest.raises(ValueError, match=rf"^{path} is .* in the options; it must be ") as caught:
        config_from_options(with_value(path, value))
    assert len(str(caught.value)) < 300


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    "filters",
    [[[1]], [[1, 2, 3]], [[0, 4]], [[51, 4]], [[1, 0]], [[1, 2**40]], [[True, 4]], [["1", 4]], [5], [[1.0, 4]]],
)
def test_broken_filter_is_named(filters):
    with pytest.raises(ValueError, match=r"^char_cnn\.filters\[1\] is .* it must be \[width, count\]"):
        config_from_options(with_value("char_cnn.filters", [[1, 4], *filters]))


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    "path",
    [
        "lstm",
        "lstm.dim",
        "lstm.projection_dim",
        "char_cnn.activation",
        "char_cnn.filters",
        "char_cnn.embedding",
        "char_cnn.embedding.dim",
        "char_cnn.max_characters_per_token",
    ],
)
def test_missing_value_is_named(path):
    with pytest.raises(ValueError, match=rf"^{path} is missing in the options; it must be "):
        config_from_options(without(path))


def test_what_bilm_tf_takes_a_missing_value_for():
    assert config_from_options(without("lstm.n_layers")).num_hidden_layers == 1
    config = config_from_options(without("char_cnn"))
    assert (config.word_input, config.word_embedding_size, config.project_words) == ("words", 8, False)


BROKEN_FILES = {
    "empty": b"",
    "cut": b'{"lstm": {',
    "two objects": b"{}{}",
    "not UTF-8": b'{"\xff": 1}',
    "NaN": b'{"lstm": {"cell_clip": NaN}}',
    "Infinity": b'{"lstm": {"cell_clip": -Infinity}}',
    "key twice": b'{"lstm": {"dim": 1, "dim": 2}}',
    "section twice": b'{"lstm": {}, "lstm": {}}',
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 150_000 + b"1" + b"}" * 150_000,
    "long number": b'{"lstm": ' + b"9" * 10_000 + b"}",
    "list": b"[1, 2]",
    "string": b'"lstm"',
    "null": b"null",
}


@pytest.mark.promise("S3")
@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_broken_file_is_named(tmp_path, kind):
    path = tmp_path / "options.json"
    path.write_bytes(BROKEN_FILES[kind])
    start = time.perf_counter()
    with pytest.raises(ValueError, match=f"^{path} (is not valid JSON|is no options.json|must hold|has more)"):
        read_options(path)
    assert time.perf_counter() - start < 1


@pytest.mark.promise("S3")
def test_huge_file_is_not_read(tmp_path):
    path = tmp_path / "options.json"
    with open(path, "wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(ValueError, match="has more than 1,048,576 bytes"):
        read_options(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*options\.json"):
        read_options(tmp_path / "options.json")
    with pytest.raises(ValueError, match="is not a regular file"):
        read_options(tmp_path)


@pytest.mark.promise("S3")
def test_duplicate_key_is_told(tmp_path):
    path = tmp_path / "options.json"
    path.write_bytes(BROKEN_FILES["key twice"])
    with pytest.raises(ValueError, match='the key "dim" appears twice'):
        read_options(path)


def test_sizes_of_the_fixture():
    config = config_from_options(read_options(allennlp_fixtures() / "elmo" / "options.json"), vocab_size=4)
    assert config.projection_size == 16
    assert config.cell_size == 64
    assert config.num_hidden_layers == 2
    assert config.char_embedding_size == 4
    assert config.char_cnn_filters == [[1, 4], [2, 8], [3, 16], [4, 32], [5, 64]]
    assert config.num_highway_layers == 2
    assert config.cell_clip == 3
    assert config.projection_clip == 3
    assert config.use_skip_connections
    assert config.char_vocab_size == 262
    assert (config.vocab_size, config.pad_token_id) == (4, 3)


@pytest.mark.parametrize("n_characters", [261, 262])
def test_both_numbers_of_characters_mean_the_same(n_characters):
    options = with_value("char_cnn.n_characters", n_characters)
    assert config_from_options(options).to_dict() == config_from_options(elmo_options()).to_dict()


@pytest.mark.parametrize("off", [0, 0.0, None])
@pytest.mark.parametrize(("key", "field"), [("cell_clip", "cell_clip"), ("proj_clip", "projection_clip")])
def test_clips_can_be_off(key, field, off):
    assert getattr(config_from_options(with_value(f"lstm.{key}", off)), field) is None
    assert getattr(config_from_options(without(f"lstm.{key}")), field) is None


def test_highways_and_skip_connections_can_be_missing():
    for options in (without("char_cnn.n_highway"), with_value("char_cnn.n_highway", None)):
        assert config_from_options(options).num_highway_layers == 0
    assert config_from_options(without("lstm.use_skip_connections")).use_skip_connections is False


def test_training_keys_are_not_read():
    training = {"bidirectional": True, "dropout": "high", "n_tokens_vocab": -1, "learning_rate": None}
    assert config_from_options({**elmo_options(), **training}).to_dict() == (
        config_from_options(elmo_options()).to_dict()
    )


@pytest.mark.parametrize(
    "options",
    [
        elmo_options(),
        elmo_options(skip=False, cell_clip=None, projection_clip=None, highway=0, activation="tanh", layers=3),
        elmo_options(cell_clip=2.5),
        elmo_options(characters=False),
    ],
)
def test_options_survive_the_round_trip(options):
    assert options_from_config(config_from_options(options)) == options
    json.dumps(options_from_config(config_from_options(options)), allow_nan=False)


def test_options_of_the_original_model():
    assert options_from_config(ElmoConfig.original()) == {
        "lstm": {
            "use_skip_connections": True,
            "projection_dim": 512,
            "cell_clip": 3,
            "proj_clip": 3,
            "dim": 4096,
            "n_layers": 2,
        },
        "char_cnn": {
            "activation": "relu",
            "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
            "n_highway": 2,
            "embedding": {"dim": 16},
            "n_characters": 262,
            "max_characters_per_token": 50,
        },
    }


@pytest.mark.parametrize(("field", "value"), [("forget_bias", 0.0), ("char_vocab_size", 300)])
def test_what_options_cannot_say_is_refused(field, value):
    with pytest.raises(ValueError, match=f"{field}={value} cannot be exported"):
        options_from_config(ElmoConfig(**{field: value}))
