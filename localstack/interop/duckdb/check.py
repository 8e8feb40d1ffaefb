"""Queries the facts of a run with DuckDB while the run goes on, and after it was stopped.

Usage: check.py FOLDER API. The folder is that of an installation with a server that answers
no prompt with "hang on this one". Each wait lasts until what it waits for is there: the test
that starts this has a limit."""

import glob
import json
import os
import sys
import time
import urllib.request

import duckdb

folder, api = sys.argv[1:]
prompts = os.path.join(folder, "bucket", "prompts")
items, part = 1000, 100
hostile = ["a \u0000 in it", "\U0001f600 is a pair", "quotes ' \" and\nlines", "long " * 200_000]


def call(method, path):
    request = urllib.request.Request(api + path, method=method, data=b"{}" if method == "POST" else None)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def until(what):
    while True:
        if found := what():
            return found
        time.sleep(0.05)


os.makedirs(prompts, exist_ok=True)
with open(os.path.join(prompts, "x.toml"), "w") as f:
    f.write(f"schema_version = 1\n[shard]\nitems = 20\n[facts]\nparquet = true\npart_items = {part}\n")
with open(os.path.join(prompts, "new"), "w") as f:
    for n in range(items - 1):
        row = {"id": f"id-{n}", "prompt": hostile[n] if n < len(hostile) else f"question {n}"}
        if n == 5:  # a lone surrogate
            f.write('{"id":"id-5","prompt":"\\ud800 alone"}\n')
        elif n == 6:
            f.write('{"id":"id-6"}\n')  # no request: it fails alone
        else:
            f.write(json.dumps(row) + "\n")
    f.write('{"id":"last","prompt":"hang on this one"}\n')
os.rename(os.path.join(prompts, "new"), os.path.join(prompts, "x.jsonl"))

run = until(lambda: call("GET", "/v1/runs")["runs"])[0]["run_id"]
pattern = os.path.join(folder, "bucket", "runs", run, "facts", "*.parquet")


def ask(sql):
    return duckdb.sql(sql.replace("FACTS", f"read_parquet('{pattern}')")).fetchall()


# The last item has no answer, so that the run goes on, and all parts but the last are whole.
until(lambda: len(glob.glob(pattern)) >= 9)
assert call("GET", f"/v1/runs/{run}")["phase"] == "running"
counted = ask("SELECT count(*), count(DISTINCT item), min(item), max(item) FROM FACTS")
rows = counted[0][0]
assert counted == [(rows, rows, 0, rows - 1)] and 9 * part <= rows < items, counted
grouped = ask("SELECT status, class, count(*), avg(prompt_tokens) > 0 FROM FACTS GROUP BY ALL ORDER BY ALL")
assert grouped == [("answered", None, rows - 1, True), ("failed", "invalid_line", 1, None)], grouped

call("POST", f"/v1/runs/{run}/stop")
until(lambda: call("GET", f"/v1/runs/{run}")["phase"] == "stopped")
ended = ask("SELECT item, id, status, class, prompt, completion FROM FACTS")
assert [row[0] for row in ended] == list(range(items)), "the items are not in their order, each once"
assert ended[-1][1:5] == ("last", "failed", "canceled", "hang on this one"), ended[-1]
for n, text in enumerate(hostile):
    assert ended[n][4] == text, (n, ended[n][4][:40])
assert ended[5][4] == "\ufffd alone", ended[5][4]
with open(os.path.join(folder, "bucket", "runs", run, "completions.jsonl")) as f:
    answers = {row["id"]: row["completion"] for row in map(json.loads, f)}
assert {row[1]: row[5] for row in ended if row[2] == "answered"} == answers
print(f"{rows} facts while the run went on, {len(ended)} after it")
