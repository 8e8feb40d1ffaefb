"""Checks a server with OpenAI's Python client.

Usage: check.py BASE_URL TOKEN. Each check is a function. The output has a line for
each check, with a traceback for failed ones; the exit code is the number of failed
checks."""

import asyncio
import sys
import traceback

import openai

url, token = sys.argv[1], sys.argv[2]
model = "untrained"
client = openai.OpenAI(base_url=url, api_key=token, max_retries=0)
user = [{"role": "user", "content": "In the beginning"}]


def models():
    [m] = client.models.list().data
    assert m.id == model and m.object == "model", m
    assert client.models.retrieve(model).id == model


def completion():
    r = client.completions.create(model=model, prompt="In the", max_tokens=5, temperature=0)
    [c] = r.choices
    assert r.object == "text_completion" and c.finish_reason == "length" and c.text, r
    assert r.usage.completion_tokens == 5 and r.usage.total_tokens == r.usage.prompt_tokens + 5, r.usage


def completions_of_a_list_of_prompts():
    r = client.completions.create(model=model, prompt=["In the", "And"], n=2, max_tokens=3, seed=1)
    assert [c.index for c in r.choices] == [0, 1, 2, 3], r
    one = client.completions.create(model=model, prompt="And", n=2, max_tokens=3, seed=1)
    assert [c.text for c in one.choices] == [c.text for c in r.choices[2:]], (one, r)


def tokens_as_a_prompt():
    r = client.completions.create(model=model, prompt=[72, 105], max_tokens=2, echo=True, logprobs=2)
    [c] = r.choices
    assert c.text.startswith("Hi") and c.logprobs.tokens[:2] == ["H", "i"], c
    assert c.logprobs.token_logprobs[0] is None and all(p <= 0 for p in c.logprobs.token_logprobs[1:]), c.logprobs
    assert all(len(t) >= 2 for t in c.logprobs.top_logprobs[1:]), c.logprobs
    assert c.logprobs.text_offset[:3] == [0, 1, 2], c.logprobs


def streamed_completion():
    ask = dict(model=model, prompt="In the", max_tokens=8, seed=3, temperature=0.8, stop=["q"])
    whole = client.completions.create(**ask)
    pieces = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(p.choices[0].text for p in pieces if p.choices) == whole.choices[0].text, pieces
    assert pieces[-1].usage == whole.usage, (pieces[-1], whole)
    reasons = [p.choices[0].finish_reason for p in pieces if p.choices and p.choices[0].finish_reason]
    assert reasons == [whole.choices[0].finish_reason], pieces


def chat():
    r = client.chat.completions.create(
        model=model, messages=user, max_completion_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    [c] = r.choices
    assert r.object == "chat.completion" and c.message.role == "assistant" and c.message.content, r
    assert len(c.logprobs.content) == 4 and all(len(t.top_logprobs) == 3 for t in c.logprobs.content), c.logprobs
    assert b"".join(bytes(t.bytes) for t in c.logprobs.content).decode(errors="replace") == c.message.content, c


def streamed_chat():
    ask = dict(model=model, messages=user, max_tokens=8, n=2, seed=5)
    whole = client.chat.completions.create(**ask)
    texts = ["", ""]
    for piece in client.chat.completions.create(**ask, stream=True):
        for c in piece.choices:
            texts[c.index] += c.delta.content or ""
    assert texts == [c.message.content for c in whole.choices], (texts, whole)


def sampling_parameters():
    ask = dict(model=model, messages=user, max_tokens=6)

    def text(**params):
        return client.chat.completions.create(**ask, **params).choices[0].message.content

    extra = dict(top_k=5, min_p=0.01, repetition_penalty=1.2)
    same = [text(seed=1, extra_body=extra) for _ in range(2)]
    assert same[0] == same[1], same
    others = {text() for _ in range(8)}
    assert len(others) > 1, others
    biased = client.chat.completions.create(**ask, temperature=0, logit_bias={"65": 100})
    assert biased.choices[0].message.content == "AAAAAA", biased


def errors():
    for wrong, kind, param in [
        (dict(temperature=-1), openai.BadRequestError, "temperature"),
        (dict(max_tokens=100000), openai.BadRequestError, None),
        (dict(model="gpt-9"), openai.NotFoundError, "model"),
    ]:
        try:
            client.completions.create(**{"model": model, "prompt": "x", **wrong})
        except openai.APIStatusError as e:
            assert type(e) is kind and e.param == param and e.body["code"] == e.status_code, (wrong, e.body)
        else:
            raise AssertionError(f"{wrong} was accepted")
    try:
        openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
    except openai.AuthenticationError as e:
        assert "token" in str(e), e
    else:
        raise AssertionError("a wrong key was accepted")


def many_at_once():
    async def ask(c, i):
        r = await c.chat.completions.create(model=model, messages=user, max_tokens=5, seed=i)
        return r.choices[0].message.content

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=url, api_key=token, max_retries=0) as c:
            together = await asyncio.gather(*(ask(c, i) for i in range(48)))
            for i in (0, 17, 47):
                assert together[i] == await ask(c, i), i

    asyncio.run(all_of_them())


checks = [
    models,
    completion,
    completions_of_a_list_of_prompts,
    tokens_as_a_prompt,
    streamed_completion,
    chat,
    streamed_chat,
    sampling_parameters,
    errors,
    many_at_once,
]
failed = 0
for check in checks:
    try:
        check()
        print("passed", check.__name__)
    except Exception:
        failed += 1
        print("FAILED", check.__name__)
        traceback.print_exc(file=sys.stdout)
sys.exit(failed)
