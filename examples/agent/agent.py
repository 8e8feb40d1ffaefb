"""An agent for trials: it asks the model to think, and answers with the last number of what that says.

It needs Python 3 and nothing else. Its task is in task.json, its result goes to $ROLLOUT_OUT.
"""

import json
import os
import re
import urllib.request


def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"messages": messages, "seed": int(os.environ["ROLLOUT_SEED"])}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


with open("task.json") as file:
    prompt = json.load(file)["prompt"]
thoughts = ask([{"role": "user", "content": prompt + "\n\nThink step by step."}])
numbers = re.findall(r"-?\d+", thoughts)
with open(os.path.join(os.environ["ROLLOUT_OUT"], "result.json"), "w") as file:
    json.dump({"answer": numbers[-1] if numbers else thoughts, "thoughts": thoughts}, file)
