"""Reads a model's folder as Hugging Face's libraries do, and answers questions
about it: a line of JSON a question on standard input, one an answer.

  {"tokenize": "text"} -> {"tokens": [...]}    with the tokenizers library
  {"decode": [ids]}    -> {"text": "..."}
  {"chat": [messages]} -> {"tokens": [...]}    by the chat template, for the next answer
  {"logits": [ids]}    -> {"logits": [...]}    after the last id; of a reward model its one score

The forward pass is a plain one in numpy, written from the definition of
transformers' LlamaForCausalLM and LlamaForSequenceClassification (RMSNorm, rotary halves, SwiGLU), so that the
names, shapes and layout of the tensors are what others take them for."""

import json
import os
import sys

import jinja2.sandbox
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

folder = sys.argv[1]
tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
tensors = {k: v.astype(np.float64) for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
with open(os.path.join(folder, "config.json")) as f:
    config = json.load(f)
with open(os.path.join(folder, "tokenizer_config.json")) as f:
    template = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(json.load(f)["chat_template"])
output = {"LlamaForCausalLM": "model.embed_tokens.weight", "LlamaForSequenceClassification": "score.weight"}[config["architectures"][0]]
assert config["hidden_act"] == "silu" and config["tie_word_embeddings"]


def norm(x, name):
    mean = (x * x).mean(axis=-1, keepdims=True)
    return x / np.sqrt(mean + config["rms_norm_eps"]) * tensors[name + ".weight"]


def turn(x):  # [head, position, size]
    size = x.shape[-1]
    angle = np.arange(x.shape[1])[:, None] * config["rope_theta"] ** (-np.arange(0, size, 2) / size)[None, :]
    cos, sin = np.concatenate([np.cos(angle)] * 2, axis=-1), np.concatenate([np.sin(angle)] * 2, axis=-1)
    first, second = x[..., : size // 2], x[..., size // 2 :]
    return x * cos + np.concatenate([-second, first], axis=-1) * sin


def logits(ids):
    heads, size, n = config["num_attention_heads"], config["head_dim"], len(ids)
    x = tensors["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        h = norm(x, at + "input_layernorm")

        def project(name):
            y = h @ tensors[at + f"self_attn.{name}_proj.weight"].T
            return y.reshape(n, heads, size).transpose(1, 0, 2)

        q, k, v = turn(project("q")), turn(project("k")), project("v")
        score = q @ k.transpose(0, 2, 1) / np.sqrt(size)
        score = np.where(np.tril(np.ones((n, n), bool)), score, -np.inf)
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        x = x + (weight @ v).transpose(1, 0, 2).reshape(n, heads * size) @ tensors[at + "self_attn.o_proj.weight"].T
        h = norm(x, at + "post_attention_layernorm")
        gate = h @ tensors[at + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ tensors[at + "mlp.up_proj.weight"].T)) @ tensors[at + "mlp.down_proj.weight"].T
    return norm(x[-1], "model.norm") @ tensors[output].T


for line in sys.stdin:
    question = json.loads(line)
    if "tokenize" in question:
        answer = {"tokens": tokenizer.encode(question["tokenize"], add_special_tokens=False).ids}
    elif "decode" in question:
        answer = {"text": tokenizer.decode(question["decode"], skip_special_tokens=False)}
    elif "chat" in question:
        text = template.render(messages=question["chat"], add_generation_prompt=True)
        answer = {"tokens": tokenizer.encode(text, add_special_tokens=False).ids}
    else:
        answer = {"logits": logits(question["logits"]).tolist()}
    print(json.dumps(answer), flush=True)
