"""Runs a batch with LiteLLM's library, which gets the address alone.

Usage: litellm_batch.py BASE_URL."""

import json
import sys
import time

import litellm

at = {"custom_llm_provider": "openai", "api_base": sys.argv[1], "api_key": "unused"}
lines = [
    json.dumps(
        {
            "custom_id": f"r-{n}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "fake", "messages": [{"role": "user", "content": f"question {n}"}]},
        }
    )
    for n in range(5)
]
f = litellm.create_file(file=("a.jsonl", "\n".join(lines).encode()), purpose="batch", **at)
b = litellm.create_batch(
    completion_window="24h", endpoint="/v1/chat/completions", input_file_id=f.id, **at
)
while b.status != "completed":
    assert b.status in ("validating", "in_progress", "finalizing"), b
    time.sleep(0.1)
    b = litellm.retrieve_batch(batch_id=b.id, **at)
assert b.request_counts.completed == 5 and b.usage.input_tokens > 0, b
rows = litellm.file_content(file_id=b.output_file_id, **at).text.splitlines()
assert [json.loads(row)["custom_id"] for row in rows] == [f"r-{n}" for n in range(5)], rows
assert b.id in [x.id for x in litellm.list_batches(limit=20, **at).data]
litellm.file_delete(file_id=f.id, **at)
