"""Reads a model's folder with Hugging Face's libraries and answers requests about it.

Usage: check.py FOLDER. Each line of standard input is a request in JSON, and each
line of standard output its answer:

  {"tokenize": "text"} -> {"tokens": [...]}    tokens of the text
  {"decode": [ids]}    -> {"text": "..."}      text of the tokens
  {"chat": [messages]} -> {"tokens": [...]}    tokens of the chat with a generation prompt
  {"logits": [ids]}    -> {"logits": [...]}    logits after the last id; the score of a reward model

The tokenizers library tokenizes and decodes. The forward pass is written in numpy
from the definition of transformers' LlamaForCausalLM and
LlamaForSequenceClassification (RMSNorm, rotary halves, SwiGLU). It checks that the
tensors have the names, shapes and layout that other software expects."""

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
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(json.load(f)["chat_template"])
heads_by_architecture = {
    "LlamaForCausalLM": "model.embed_tokens.weight",
    "LlamaForSequenceClassification": "score.weight",
}
output = heads_by_architecture[config["architectures"][0]]
assert config["hidden_act"] == "silu" and config["tie_word_embeddings"]


def norm(x, name):
    mean = (x * x).mean(axis=-1, keepdims=True)
    return x / np.sqrt(mean + config["rms_norm_eps"]) * tensors[name + ".weight"]


def rotate(x):
    """Applies rotary positions to x [head, position, size]."""
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

        q, k, v = rotate(project("q")), rotate(project("k")), project("v")
        score = q @ k.transpose(0, 2, 1) / np.sqrt(size)
        score = np.where(np.tril(np.ones((n, n), bool)), score, -np.inf)
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        attended = (weight @ v).transpose(1, 0, 2).reshape(n, heads * size)
        x = x + attended @ tensors[at + "self_attn.o_proj.weight"].T
        h = norm(x, at + "post_attention_layernorm")
        gate = h @ tensors[at + "mlp.gate_proj.weight"].T
        hidden = gate / (1 + np.exp(-gate)) * (h @ tensors[at + "mlp.up_proj.weight"].T)
        x = x + hidden @ tensors[at + "mlp.down_proj.weight"].T
    return norm(x[-1], "model.norm") @ tensors[output].T


for line in sys.stdin:
    request = json.loads(line)
    if "tokenize" in request:
        answer = {"tokens": tokenizer.encode(request["tokenize"], add_special_tokens=False).ids}
    elif "decode" in request:
        answer = {"text": tokenizer.decode(request["decode"], skip_special_tokens=False)}
    elif "chat" in request:
        text = template.render(messages=request["chat"], add_generation_prompt=True)
        answer = {"tokens": tokenizer.encode(text, add_special_tokens=False).ids}
    else:
        answer = {"logits": logits(request["logits"]).tolist()}
    print(json.dumps(answer), flush=True)
