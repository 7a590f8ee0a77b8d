# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""ELMo, deep contextualized word representations, as a Hugging Face model.

Importing this package makes `AutoConfig`, `AutoTokenizer` and the `AutoModel` classes know ELMo, and `pipeline` the
task `"elmo-substitutes"` and how BIOES labels make entities.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from transformers.pipelines import PIPELINE_REGISTRY, TokenClassificationPipeline

from .checked_loading import load_checked
from .configuration_elmo import ElmoConfig
from .embedder import ElmoEmbedder
from .feature_cache import FeatureCache
from .modeling_elmo import ElmoModel, ElmoModelOutput, ElmoPreTrainedModel, ElmoState, LayerWeights
from .modeling_elmo_heads import (
    ElmoForMultipleChoice,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
)
from .modeling_elmo_pretraining import ElmoForPreTraining, ElmoForPreTrainingOutput
from .pipeline_elmo import (
    SUBSTITUTES_TASK,
    TAGGING_TASK,
    ElmoSubstitutesPipeline,
    ElmoTokenClassificationPipeline,
)
from .quantization import is_quantized, quantize
from .sampling import Sample
from .scoring import ScoreTotals, SentenceScore
from .shipped_model import ELMO_MINI, load_mini
from .substitutes import Substitute, Substitutes
from .tokenization_elmo import Coverage, ElmoCharacters, ElmoTokenizer, batch_to_ids
from .training import GradualUnfreezing, parameter_groups
from .version import __version__
from .word_vectors import WordVectors, load_word_vectors

AutoConfig.register(ElmoConfig.model_type, ElmoConfig, exist_ok=True)
AutoTokenizer.register(ElmoConfig, tokenizer_class=ElmoTokenizer, exist_ok=True)
AutoModel.register(ElmoConfig, ElmoModel, exist_ok=True)
AutoModelForPreTraining.register(ElmoConfig, ElmoForPreTraining, exist_ok=True)
AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification, exist_ok=True)
AutoModelForSequenceClassification.register(ElmoConfig, ElmoForSequenceClassification, exist_ok=True)
AutoModelForQuestionAnswering.register(ElmoConfig, ElmoForQuestionAnswering, exist_ok=True)
AutoModelForMultipleChoice.register(ElmoConfig, ElmoForMultipleChoice, exist_ok=True)
if SUBSTITUTES_TASK not in PIPELINE_REGISTRY.get_supported_tasks():
    PIPELINE_REGISTRY.register_pipeline(
        SUBSTITUTES_TASK, ElmoSubstitutesPipeline, pt_model=AutoModelForPreTraining, type="text"
    )
# A class, or from transformers 5.23 on its name; if it is another one, somebody has put it there
if PIPELINE_REGISTRY.supported_tasks[TAGGING_TASK]["impl"] in (
    TokenClassificationPipeline,
    f"{TokenClassificationPipeline.__module__}.{TokenClassificationPipeline.__qualname__}",
):
    PIPELINE_REGISTRY.supported_tasks[TAGGING_TASK]["impl"] = ElmoTokenClassificationPipeline

__all__ = [
    "ELMO_MINI",
    "Coverage",
    "ElmoCharacters",
    "ElmoConfig",
    "ElmoEmbedder",
    "ElmoForMultipleChoice",
    "ElmoForPreTraining",
    "ElmoForPreTrainingOutput",
    "ElmoForQuestionAnswering",
    "ElmoForSequenceClassification",
    "ElmoForTokenClassification",
    "ElmoModel",
    "ElmoModelOutput",
    "ElmoPreTrainedModel",
    "ElmoState",
    "ElmoSubstitutesPipeline",
    "ElmoTokenizer",
    "FeatureCache",
    "GradualUnfreezing",
    "LayerWeights",
    "Sample",
    "ScoreTotals",
    "SentenceScore",
    "Substitute",
    "Substitutes",
    "WordVectors",
    "__version__",
    "batch_to_ids",
    "is_quantized",
    "load_checked",
    "load_mini",
    "load_word_vectors",
    "parameter_groups",
    "quantize",
]
