"""The two examples that this project started from, with only the import line and the model's name changed."""

import torch


def test_basic_generation_with_session(model, whole, model_folder):
    model_name = model_folder
    torch.manual_seed(0)

    from transformers import AutoTokenizer

    from blockswarm import AutoDistributedModelForCausalLM

    model = AutoDistributedModelForCausalLM.from_pretrained(model_name)
    tokenizer = AutoTokenizer.from_pretrained(model_name)

    inputs = tokenizer("A cat sat on", return_tensors="pt")["input_ids"]

    # Use inference session for efficient autoregressive generation
    with model.inference_session(max_length=100) as session:
        torch.manual_seed(0)
        outputs = model.generate(
            inputs,
            session=session,
            max_new_tokens=20,
            do_sample=True,
            temperature=0.7,
        )

    print(tokenizer.decode(outputs[0], skip_special_tokens=True))

    torch.manual_seed(0)
    want = whole.generate(inputs, max_new_tokens=20, do_sample=True, temperature=0.7)
    assert outputs.tolist() == want.tolist()


def test_manual_step_by_step_generation(swarm, model_folder):
    model_name = model_folder
    texts = []

    import torch
    from transformers import AutoTokenizer

    from blockswarm import AutoDistributedModelForCausalLM

    model = AutoDistributedModelForCausalLM.from_pretrained(model_name)
    tokenizer = AutoTokenizer.from_pretrained(model_name)

    inputs = tokenizer("Once upon a time", return_tensors="pt")["input_ids"]

    with model.inference_session(max_length=50) as session:
        # Process the prompt
        embs = model.transformer.word_embeddings(inputs)
        hidden = session.step(embs)

        # Generate tokens one at a time
        for _ in range(20):
            logits = model.lm_head(hidden[:, -1:, :])
            next_token = torch.argmax(logits, dim=-1)
            texts.append(next_token)
            embs = model.transformer.word_embeddings(next_token)
            hidden = session.step(embs)

    want = model.generate(inputs, max_new_tokens=20, do_sample=False)
    assert torch.cat([inputs, *texts], dim=1).tolist() == want.tolist()
    text = tokenizer.decode(torch.cat(texts, dim=1)[0])
    assert text == tokenizer.decode(want[0, inputs.shape[1] :])
    assert session.position == inputs.shape[1] + 20
