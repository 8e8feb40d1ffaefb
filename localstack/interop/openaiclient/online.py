"""Asks `rollout up` with OpenAI's Python client, and waits for the answers.

Usage: online.py BASE_URL. The exit code is not 0 if an answer is wrong."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="unused", max_retries=0, timeout=300)
user = [{"role": "user", "content": "In the beginning"}]

whole = client.chat.completions.create(model="fake", messages=user)
[c] = whole.choices
assert c.finish_reason == "stop" and "In the beginning" in c.message.content, whole
assert whole.usage.completion_tokens > 0, whole.usage

pieces = list(client.chat.completions.create(model="fake", messages=user, stream=True))
text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
assert text == c.message.content, (text, c.message.content)
assert len(pieces) > 1, pieces

by_pool = client.completions.create(model="default", prompt="In the beginning")
assert by_pool.choices[0].text, by_pool

try:
    client.chat.completions.create(model="gpt-9", messages=user)
except openai.NotFoundError as e:
    assert e.param == "model" and e.code == "model_not_found" and "fake" in str(e), e.body
else:
    raise AssertionError("an unknown model was accepted")
