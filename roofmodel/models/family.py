"""What a family is: a row of data that says what the keys of a Hugging Face config mean. Not a class a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roofmodel.models.architecture import Dense
from roofmodel.models.convolutional import Network
from roofmodel.models.fields import CORE, FIELDS, NETWORK_FIELDS, Key, Kind


class Family(NamedTuple):
    """A row: the prefix of its class names, the heads by their suffix (the usual one first), the fields.

    `switches` are keys that are no field themselves; fields are derived from them (`falcon` has examples).
    `network` lays out a convolutional network from NETWORK_FIELDS; the others are layers that FIELDS describe.
    """

    prefix: str
    classes: Mapping[str, tuple[Dense, ...]]
    fields: Mapping[str, Any]
    switches: Mapping[str, tuple[Kind, Key]] = {}
    encoder: bool = False
    network: Callable[[Mapping[str, Any]], Network] | None = None
    source: Mapping[str, Any] = {}  # of an encoder-decoder: the fields in which its encoder is not as its decoder
    source_classes: tuple[str, ...] = ()  # the heads that stand on that encoder alone
    refuses: tuple[str, ...] = ()  # switches that, when true, add work that is not counted
    config: str = ""  # the name of the config class, where it is not the prefix and Config

    @property
    def config_class(self) -> str:
        return self.config or f"{self.prefix}Config"

    @property
    def schema(self) -> Mapping[str, tuple[Kind, Any]]:
        """The fields that the row may set: what each may be, and its value where the row leaves it out."""
        return NETWORK_FIELDS if self.network else FIELDS

    def has_core_sizes(self, config: Mapping[str, Any]) -> bool:
        """Whether the config has every core size under one of the family's keys."""
        core = [self.fields.get(field) for field in CORE if field in self.schema]
        return all(isinstance(key, Key) and any(name in config for name in key.names) for key in core)

    def like(
        self,
        prefix: str,
        classes: Mapping[str, tuple[Dense, ...]] | None = None,
        switches: Mapping[str, tuple[Kind, Key]] | None = None,
        refuses: tuple[str, ...] | None = None,
        config: str = "",
        source: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Family:
        """The same row under another prefix, with other heads, switches or refusals and some fields changed.

        `source` changes fields of the encoder beside those that it has.
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

LM = (Dense("logits", "vocabulary", "logits", bias="head_bias", tied=True),)
CAUSAL_HEADS = {
    "ForCausalLM": LM,
    "ForSequenceClassification": (Dense("score", "classes", "logits", bias=False),),
    "ForTokenClassification": (Dense("classifier", "classes", "tokens"),),
    "ForQuestionAnswering": (Dense("span", "classes", "tokens", classes=2),),
    "Model": (),
}


def heads(*suffixes: str) -> dict[str, tuple[Dense, ...]]:
    """Those of the usual heads of a decoder that a family has."""
    return {suffix: CAUSAL_HEADS[suffix] for suffix in suffixes}


POOLER = Dense("pooler", "hidden", "first", activation="pooler_activation")
CLASSIFIER = Dense("classifier", "classes", "first")
TRANSFORM = Dense("transform", "hidden", "tokens", activation="transform_activation", norm=True, from_layers=True)
MASKED_LM = (TRANSFORM, Dense("logits", "vocabulary", "tokens", tied=True))
BERT_MASKED_LM = (TRANSFORM, MASKED_LM[1]._replace(spare_bias=True))
BERT_HEADS = {
    "ForMaskedLM": BERT_MASKED_LM,
    "ForSequenceClassification": (POOLER, CLASSIFIER),
    "ForTokenClassification": (CLASSIFIER._replace(rows="tokens"),),
    "ForQuestionAnswering": (Dense("span", "classes", "tokens"),),
    "Model": (POOLER,),
}

IMAGE_CLASSES = Dense("classifier", "classes", "first")
