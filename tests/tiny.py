"""Small models and sentences for tests."""

import torch

from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer

SENTENCES = [
    "The cat sat on the mat .",
    "Hi",
    "Deep contextualized word representations model both syntax and semantics , and polysemy , too .",
    "Ça va ? 조용한 강둑 🙂",
    "incomprehensibilities " * 3 + "pneumonoultramicroscopicsilicovolcanoconiosis-and-more",
]


def tiny_config(**overrides) -> ElmoConfig:
    """Sizes that all differ, so that a mix-up of two of them shows, and clips that small weights reach."""
    sizes = {
        "char_embedding_size": 4,
        "char_cnn_filters": [[1, 4], [2, 5], [3, 7]],
        "num_highway_layers": 2,
        "projection_size": 6,
        "cell_size": 10,
        "cell_clip": 0.5,
        "projection_clip": 0.3,
        "vocab_size": 4,
        "softmax": "full",
    }
    return ElmoConfig(**{**sizes, **overrides})


def random_model(config: ElmoConfig | None = None, seed: int = 0, scale: float = 1.0, model_class=ElmoModel):
    """A model in which every weight matters. In a fresh one biases are 0, and mistakes with padding do not show.

    Matrices have a spread that neither swells nor shrinks what goes through them, so that rounding does not, either.
    """
    generator = torch.Generator().manual_seed(seed)
    model = model_class(config or tiny_config()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.5 if parameter.dim() == 1 else parameter.numel() ** -0.25
            parameter.copy_(scale * spread * torch.randn(parameter.shape, generator=generator))
        for name, parameter in model.named_parameters():
            if name.endswith(".gamma"):
                parameter.fill_(1.5)
    return model


def words_of(sentences: list[str]) -> list[list[str]]:
    return [sentence.split() for sentence in sentences]


def encode(sentences: list[str], **options) -> dict[str, torch.Tensor]:
    """Sentences cut at spaces, as padded tensors."""
    return ElmoTokenizer()(words_of(sentences), is_split_into_words=True, padding=True, return_tensors="pt", **options)
