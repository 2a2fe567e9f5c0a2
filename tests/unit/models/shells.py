"""Tiny whole models and the shells of them."""

import copy

import torch
from fakes import FakeSession, Far
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from blockswarm.models.layers import RemoteLayers
from blockswarm.models.remote import RemoteSequential
from blockswarm.models.shell import dress


class LocalRemote(RemoteSequential):
    """Blocks that are here after all."""

    def __init__(self, config, far, blocks):
        nn.Module.__init__(self)
        manager = type("Manager", (), {"num_blocks": blocks, "model": type("M", (), {"name": "tiny"})})
        super().__init__(config, manager, 0, blocks)
        self.far = [far]
        self.sessions = []

    def open_session(self, max_length, *, max_batch=None):
        self.sessions.append(FakeSession(self.far[0], max_length))
        self.sessions[-1].reserved = max_batch
        return self.sessions[-1]

    def stateless(self, inputs, prompts, *, pad=None):
        mask = None
        if pad is not None:
            mask = torch.arange(inputs.shape[1])[None] >= torch.tensor(pad)[:, None]
        return self.far[0].span.pass_forward(inputs, prompts, mask=mask)


def tiny(family="llama", **changes):
    values = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 256, "bos_token_id": 1,
        "eos_token_id": None, "pad_token_id": 0, "head_dim": 8,
        "d_model": 32, "n_heads": 4, "n_layers": 4, "max_seq_len": 256,
        "n_embd": 32, "n_head": 4, "n_layer": 4, "n_positions": 256, "ffn_dim": 48, "word_embed_proj_dim": 32,
    }  # fmt: skip
    known = AutoConfig.for_model(family).to_dict()
    values = {key: value for key, value in {**values, **changes}.items() if key in known}
    return AutoConfig.for_model(family, **values)


def make_shell(whole, *, prompts=None):
    """The whole model and the shell of it, with the same weights outside the layers."""
    far = Far(whole)
    shell = copy.deepcopy(whole)
    core = shell.base_model
    core = core.decoder if hasattr(core, "decoder") else core
    name = next(name for name in ("layers", "h", "blocks") if hasattr(core, name))
    remote = LocalRemote(shell.config, far, shell.config.num_hidden_layers)
    family = shell.config.model_type
    layers = RemoteLayers(remote, prompts, as_tuple=family in ("bloom", "falcon", "mpt"))
    setattr(core, name, nn.ModuleList([layers]))
    return dress(shell, core, layers)


def make_whole(family="llama", seed=0, **changes):
    torch.manual_seed(seed)
    attention = "eager" if family in ("bloom", "gemma2", "mpt") else "sdpa"
    model = AutoModelForCausalLM.from_config(tiny(family, **changes), attn_implementation=attention).eval()
    # Random weights of the usual spread answer with one token for ever: make them livelier.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    return model
