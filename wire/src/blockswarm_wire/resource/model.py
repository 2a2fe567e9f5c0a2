"""Which model a BlockServer serves, and where its folder comes from."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from blockswarm_wire.resource.part import Label, ObjectName, Part, checked, only_one, rule, text
from blockswarm_wire.resource.volumes import ModelVolume

PATH_MESSAGE = (
    "path: a folder of this machine has no meaning in a cluster; "
    "name a repository with hub, or a volume with volume"
)


class TokenSecret(Part):
    """A Secret of the same namespace that holds a token of the Hub."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[
        str,
        text(r"^[A-Za-z0-9_.-]+$", "must be a key of the Secret: letters, digits, '_', '.', '-'", most=253),
    ] = "token"
    """Key of the Secret's data that holds the token."""


class HubSource(Part):
    """A repository of the Hugging Face Hub."""

    repo: Annotated[
        str,
        text(
            r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?$",
            "must be a repository id such as HuggingFaceTB/SmolLM2-135M-Instruct",
            most=200,
        ),
    ]
    """Repository id, such as `HuggingFaceTB/SmolLM2-135M-Instruct`."""
    revision: Annotated[
        str,
        text(
            r"^[A-Za-z0-9_.][A-Za-z0-9_./-]*$",
            "must be a branch, tag or commit: letters, digits, '_', '.', '/' and '-'",
            most=100,
        ),
    ] = "main"
    """Branch, tag or commit. Name a commit where replicas must never differ."""
    token_secret: TokenSecret | None = None
    """Secret with the token that a private or gated repository asks for."""


class ModelSource(Part):
    """Where the model folder comes from: exactly one of the fields."""

    model_config = checked(
        rule("!has(self.path)", PATH_MESSAGE, ".path", "FieldValueForbidden"),
        rule("has(self.path) || has(self.hub) != has(self.volume)", "name exactly one of hub, volume"),
    )

    path: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """Local mode only: a folder with config.json and safetensors; relative to the manifest's folder."""
    hub: HubSource | None = None
    """A Hub repository."""
    volume: ModelVolume | None = None
    """A volume of Kubernetes that holds the folder; in a cluster only."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        only_one(("path", "hub", "volume"), dict(self))
        return self


class Model(Part):
    """Which model the server holds a part of."""

    model_config = checked(
        remedies={"source": "source: is required; name a repository with hub, or a volume with volume"}
    )

    name: Label
    """Label under which clients see the model; identity is its contents."""
    source: ModelSource
    """Where the model folder comes from: exactly one of the fields."""
