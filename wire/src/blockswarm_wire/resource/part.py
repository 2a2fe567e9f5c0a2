"""What every part of the resource is made of: strict, frozen models, rules for the API server, bounded values."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

_MAX_LOOSE_BYTES = 16 * 2**10

# How the API server's own rules (CEL) stand in the JSON schema of a model.
RULES = "x-kubernetes-validations"
# Required fields whose absence deserves a better message than "Required value": field -> message.
REMEDIES = "x-remedies"
# What is told where a text does not match its pattern.
PATTERN_MESSAGE = "x-pattern-message"
PATTERNS: dict[str, str] = {}


class Part(BaseModel):
    """One mapping of the resource."""

    # Strict: YAML already has types, and "2" for a number is a mistake worth telling.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        strict=True,
        use_attribute_docstrings=True,
    )

    def as_kubernetes(self) -> dict[str, Any]:
        """The same as Kubernetes writes it: camelCase, nothing absent."""
        return self.model_dump(by_alias=True, exclude_none=True)


def checked(*rules: Mapping[str, str], remedies: Mapping[str, str] | None = None) -> ConfigDict:
    """Configuration of a part that the API server checks by rules (see `rule`).

    Args:
        rules: each stands beside a validator that checks the same here.
        remedies: what is told where a required field is absent, by the field's name.
    """
    extra: dict[str, Any] = {RULES: [dict(one) for one in rules]}
    if remedies:
        extra[REMEDIES] = dict(remedies)
    return ConfigDict(json_schema_extra=extra)


def rule(expression: str, message: str, field: str = "", reason: str = "") -> dict[str, str]:
    """A rule of the API server: a CEL expression that must hold, and what is told where it does not.

    Args:
        expression: over `self`, the part; with `oldSelf` it is asked at updates only.
        message: names the field and the remedy.
        field: path below the part to blame, such as ".end"; default: the part.
        reason: FieldValueRequired, FieldValueForbidden...; default: FieldValueInvalid.
    """
    texts = {"rule": expression, "message": message, "fieldPath": field, "reason": reason}
    return {key: text for key, text in texts.items() if text}


def text(pattern: str, message: str, *, most: int, least: int = 1) -> Any:
    """Field of a text: lengths, the pattern it must match, and what is told where it does not."""
    PATTERNS[pattern] = message
    return Field(
        min_length=least, max_length=most, pattern=pattern, json_schema_extra={PATTERN_MESSAGE: message}
    )


def unique(key: str) -> Callable[[list[Any]], list[Any]]:
    """A validator of lists: no two entries have the same `key`."""
    named = to_camel(key)

    def check(entries: list[Any]) -> list[Any]:
        seen = set()
        for entry in entries:
            value = getattr(entry, key)
            if value in seen:
                raise ValueError(f"{named} {value!r} is used twice; give each entry one of its own")
            seen.add(value)
        return entries

    return check


def by_key(key: str, most: int) -> Any:
    """Field of a list whose entries are told apart by `key`."""
    extra: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [to_camel(key)]}
    return Field(max_length=most, json_schema_extra=extra)


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must hold printable characters only")
    return value


def _loose(value: dict[str, Any]) -> dict[str, Any]:
    try:
        size = len(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise ValueError("must hold JSON values only; quote dates and other special values") from None
    if size > _MAX_LOOSE_BYTES:
        raise ValueError(f"is larger than {_MAX_LOOSE_BYTES} bytes; shorten it")
    return value


def _pairs(value: dict[str, str]) -> dict[str, str]:
    for key in value:
        if not 1 <= len(key) <= 317:
            raise ValueError(f"key {key[:40]!r} must have 1 to 317 characters")
    return value


# The patterns use nothing that RE2, Rust and Python read differently.
Label = Annotated[
    str,
    # The API server's is the wider check: RE2 knows no class of printable characters.
    Field(
        min_length=1,
        max_length=100,
        json_schema_extra={
            "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
            PATTERN_MESSAGE: "must hold printable characters only; remove line breaks and tabs",
        },
    ),
    AfterValidator(_printable),
]
_LABEL_MESSAGE = "must be made of a-z, 0-9 and -, and start and end with a letter or digit"
# Services, and so the objects that have one, are named by labels of RFC 1035.
DnsName = Annotated[
    str,
    text(
        r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "must be made of a-z, 0-9 and -, start with a letter and end with a letter or digit",
        most=50,
    ),
]
DnsLabel = Annotated[str, text(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", _LABEL_MESSAGE, most=63)]
ObjectName = Annotated[
    str,
    text(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "must be the name of an object: a-z, 0-9, - and ., with a letter or digit at both ends",
        most=253,
    ),
]
QualifiedName = Annotated[
    str,
    text(
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        "must be a qualified name, such as example.org/name or name",
        most=317,
    ),
]
MountPath = Annotated[
    str, text(r"^/[^:]+$", "must be an absolute folder such as /data, without ':'", most=500, least=2)
]
SubPath = Annotated[
    str, text(r"^[^/:]([^:]*)$", "must be a relative path such as models/demo, without ':'", most=500)
]

# A structure of Kubernetes that the API server checks when the pod is made; only its size is checked here.
Loose = Annotated[
    dict[str, Any],
    AfterValidator(_loose),
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
LabelValue = Annotated[str, Field(max_length=63)]
Labels = Annotated[dict[str, LabelValue], Field(max_length=64), AfterValidator(_pairs)]
Annotations = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=64), AfterValidator(_pairs)
]
Quantity = Annotated[
    int | Annotated[str, Field(min_length=1, max_length=32)],
    Field(union_mode="left_to_right"),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
]
Quantities = Annotated[dict[str, Quantity], Field(max_length=32), AfterValidator(_pairs)]


def only_one(names: Sequence[str], sources: Mapping[str, Any]) -> None:
    """Refuse where not exactly one of `names` has a value in `sources`."""
    given = [name for name in names if sources.get(name) is not None]
    if len(given) != 1:
        found = f"; these are set: {', '.join(given)}" if given else ""
        raise ValueError(f"name exactly one of {', '.join(names)}{found}")
