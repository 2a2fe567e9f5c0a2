"""Prompt tuning through Forward and Backward over real servers learns as it does on the unsplit model."""

import pytest
import torch
from texts import ragged

from blockswarm import AutoDistributedModel, AutoDistributedModelForCausalLM
from blockswarm import AutoDistributedModelForSequenceClassification as AutoClassifier

STEPS = 6
LENGTH = 4


class LocalPrompts:
    """The same prompts before and within the unsplit model, by hooks on its layers."""

    def __init__(self, whole, shallow, deep):
        self.whole = whole
        self.shallow = torch.nn.Parameter(shallow.clone())
        self.deep = None if deep is None else torch.nn.Parameter(deep.clone())

    def parameters(self):
        return [self.shallow] if self.deep is None else [self.shallow, self.deep]

    def loss(self, ids, labels):
        embeds = self.whole.get_input_embeddings()(ids)
        hidden = torch.cat([self.shallow.expand(len(ids), -1, -1), embeds], dim=1)
        hooks = []
        if self.deep is not None:
            for layer, own in zip(self.whole.model.layers, self.deep, strict=True):
                hooks.append(layer.register_forward_pre_hook(self.adder(own[0])))
        # The last virtual token predicts the first id here, but not in the shell, where it is already gone.
        ignored = torch.full((len(ids), LENGTH + 1), -100)
        try:
            return self.whole(inputs_embeds=hidden, labels=torch.cat([ignored, labels[:, 1:]], dim=1)).loss
        finally:
            for hook in hooks:
                hook.remove()

    @staticmethod
    def adder(own):
        def add(module, args):
            hidden = args[0]
            return (torch.cat([hidden[:, :LENGTH] + own, hidden[:, LENGTH:]], dim=1), *args[1:])

        return add


def train(parameters, loss):
    optimizer = torch.optim.AdamW(parameters, lr=0.02)
    curve = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        curve.append(value.item())
    return curve


@pytest.mark.parametrize("mode", ["ptune", "deep_ptune"])
def test_the_loss_falls_as_on_the_unsplit_model(swarm, model_folder, whole, tokenizer, tmp_path, mode):
    torch.manual_seed(0)
    model = AutoDistributedModelForCausalLM.from_pretrained(
        model_folder, tuning_mode=mode, pre_seq_len=LENGTH
    )
    trained = [p for p in model.parameters() if p.requires_grad]
    ids, _ = ragged(tokenizer, [12, 12])
    own = dict(model.named_parameters())
    shallow = next(value for name, value in own.items() if name.endswith("shallow")).detach()
    deep = next((value.detach() for name, value in own.items() if name.endswith("deep")), None)
    assert len(trained) == (1 if deep is None else 2)
    local = LocalPrompts(whole, shallow, deep)
    got = train(trained, lambda: model(ids, labels=ids).loss)
    want = train(local.parameters(), lambda: local.loss(ids, ids))
    assert got[-1] < 0.95 * got[0]
    assert want[-1] < 0.95 * want[0]
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=1e-3, atol=1e-3)

    with torch.no_grad():
        trained_answer = model.generate(ids[:1, :6], max_new_tokens=5, do_sample=False)
    model.save_prompts(tmp_path / "prompts.safetensors")
    fresh = AutoDistributedModelForCausalLM.from_pretrained(
        model_folder, tuning_mode=mode, pre_seq_len=LENGTH
    )
    fresh.load_prompts(tmp_path / "prompts.safetensors")
    with fresh.inference_session(max_length=LENGTH + 11) as session:
        answer = fresh.generate(ids[:1, :6], max_new_tokens=5, do_sample=False, session=session)
        assert session.position == LENGTH + 10
    assert answer.tolist() == trained_answer.tolist()


def test_gradients_equal_those_of_the_unsplit_model(model, whole, tokenizer):
    ids, mask = ragged(tokenizer, [14, 9])
    embeds = whole.get_input_embeddings()(ids).detach()
    labels = ids.masked_fill(mask.cumsum(1) <= 1, -100)  # what padding would predict is not compared
    one, two = embeds.clone().requires_grad_(), embeds.clone().requires_grad_()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    got = model(inputs_embeds=one, attention_mask=mask, labels=labels)
    want = whole(inputs_embeds=two, attention_mask=mask, labels=labels, position_ids=positions)
    torch.testing.assert_close(got.loss, want.loss, atol=1e-4, rtol=1e-4)
    got.loss.backward()
    want.loss.backward()
    real = mask.bool()
    torch.testing.assert_close(one.grad[real], two.grad[real], atol=1e-4, rtol=1e-3)


def test_a_classifier_learns(swarm, model_folder, tokenizer):
    torch.manual_seed(0)
    model = AutoClassifier.from_pretrained(
        model_folder, num_labels=2, tuning_mode="deep_ptune", pre_seq_len=LENGTH
    )
    model.score.requires_grad_(True)
    ids, mask = ragged(tokenizer, [10, 7])
    labels = torch.tensor([0, 1])
    trained = [p for p in model.parameters() if p.requires_grad]
    curve = train(trained, lambda: model(ids, attention_mask=mask, labels=labels).loss)
    assert curve[-1] < 0.8 * curve[0]


def test_base_model(swarm, model_folder, whole, tokenizer):
    base = AutoDistributedModel.from_pretrained(model_folder)
    ids, _ = ragged(tokenizer, [8, 8])
    with torch.no_grad():
        got = base(ids).last_hidden_state
        torch.testing.assert_close(got, whole.model(ids).last_hidden_state, atol=1e-4, rtol=1e-4)
        with base.inference_session(max_length=16):
            parts = [base(ids[:, :5]).last_hidden_state, base(ids[:, 5:]).last_hidden_state]
        torch.testing.assert_close(torch.cat(parts, dim=1), got, atol=1e-4, rtol=1e-4)
