"""A family of models as a row of data: what the keys of a Hugging Face config mean. No family has a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roofmodel.models.architecture import HeadStage, Network
from roofmodel.models.fields import CORE, FIELDS, NETWORK_FIELDS, FieldType, Key


class Family(NamedTuple):
    """A row: the prefix of its class names, its heads by class suffix (the usual one first), its fields.

    `switches` are config keys that are not fields; fields are derived from them (`falcon` has examples). A family
    with `network` is a convolutional network, built from NETWORK_FIELDS; all others have the layers of FIELDS.
    """

    prefix: str
    classes: Mapping[str, tuple[HeadStage, ...]]
    fields: Mapping[str, Any]
    switches: Mapping[str, tuple[FieldType, Key]] = {}
    encoder: bool = False
    network: Callable[[Mapping[str, Any]], Network] | None = None
    source: Mapping[str, Any] = {}  # of an encoder-decoder: fields whose value differs in the encoder
    source_classes: tuple[str, ...] = ()  # heads on the encoder alone
    refuses: tuple[str, ...] = ()  # keys that, if true, add unsupported operators
    config: str = ""  # name of the config class, if it is not the prefix + Config

    @property
    def config_class(self) -> str:
        return self.config or f"{self.prefix}Config"

    @property
    def schema(self) -> Mapping[str, tuple[FieldType, Any]]:
        """The fields that the row may set: the type of each, and its default if the row does not set it."""
        return NETWORK_FIELDS if self.network else FIELDS

    def has_core_sizes(self, config: Mapping[str, Any]) -> bool:
        """Whether the config has every core size under one of the family's keys."""
        core = [self.fields.get(field) for field in CORE if field in self.schema]
        return all(isinstance(key, Key) and any(name in config for name in key.names) for key in core)

    def like(
        self,
        prefix: str,
        classes: Mapping[str, tuple[HeadStage, ...]] | None = None,
        switches: Mapping[str, tuple[FieldType, Key]] | None = None,
        refuses: tuple[str, ...] | None = None,
        config: str = "",
        source: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Family:
        """A copy of the row with another prefix, and with other heads, switches, refusals or fields if given.

        `source` adds fields in which the encoder differs.
        """
        return self._replace(
            prefix=prefix,
            classes=self.classes if classes is None else classes,
            switches=self.switches if switches is None else switches,
            refuses=self.refuses if refuses is None else refuses,
            config=config,
            source={**self.source, **(source or {})},
            fields={**self.fields, **fields},
        )


# --- Heads, by the suffix of the class's name -------------------------------------------------------

LM = (HeadStage("logits", "vocabulary", "logits", bias="head_bias", tied=True),)
CAUSAL_HEADS = {
    "ForCausalLM": LM,
    "ForSequenceClassification": (HeadStage("score", "classes", "logits", bias=False),),
    "ForTokenClassification": (HeadStage("classifier", "classes", "tokens"),),
    "ForQuestionAnswering": (HeadStage("span", "classes", "tokens", classes=2),),
    "Model": (),
}


def heads(*suffixes: str) -> dict[str, tuple[HeadStage, ...]]:
    """The common decoder heads with these class suffixes."""
    return {suffix: CAUSAL_HEADS[suffix] for suffix in suffixes}


POOLER = HeadStage("pooler", "hidden", "first", activation="pooler_activation")
CLASSIFIER = HeadStage("classifier", "classes", "first")
TRANSFORM = HeadStage(
    "transform", "hidden", "tokens", activation="transform_activation", norm=True, input_from_layers=True
)
MASKED_LM = (TRANSFORM, HeadStage("logits", "vocabulary", "tokens", tied=True))
BERT_MASKED_LM = (TRANSFORM, MASKED_LM[1]._replace(unused_bias=True))
BERT_HEADS = {
    "ForMaskedLM": BERT_MASKED_LM,
    "ForSequenceClassification": (POOLER, CLASSIFIER),
    "ForTokenClassification": (CLASSIFIER._replace(rows="tokens"),),
    "ForQuestionAnswering": (HeadStage("span", "classes", "tokens"),),
    "Model": (POOLER,),
}

IMAGE_CLASSES = HeadStage("classifier", "classes", "first")
