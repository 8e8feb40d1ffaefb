"""Runs the life of batches with OpenAI's Python client.

Usage: batches.py BASE_URL [CHECK...]. Each check is a function. The output has a line
for each check, with a traceback for failed ones; the exit code is the number of failed
checks. The client has the key API_KEY, and repeats refused requests RETRIES times."""

import io
import json
import os
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import urllib.request

import openai

url = sys.argv[1]
key = os.environ.get("API_KEY", "unused")
client = openai.OpenAI(base_url=url, api_key=key, max_retries=int(os.environ.get("RETRIES", "0")))


def request(n, text=None):
    body = {"model": "fake", "messages": [{"role": "user", "content": text or f"question {n}"}]}
    return json.dumps({"custom_id": f"r-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body})


def upload(text, name="requests.jsonl", c=client):
    return c.files.create(file=(name, io.BytesIO(text.encode())), purpose="batch")


def create(file_id, c=client, **more):
    return c.batches.create(
        input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h", **more
    )


def wait(batch, *statuses):
    while batch.status not in statuses:
        assert batch.status in ("validating", "in_progress", "finalizing", "cancelling"), batch
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    return batch


def whole_life():
    text = "\n".join(request(n) for n in range(30)) + "\n"
    f = client.files.wait_for_processing(upload(text).id, poll_interval=0.1)
    assert f.status == "processed" and f.purpose == "batch" and f.filename == "requests.jsonl", f
    assert f.bytes == len(text) and client.files.content(f.id).text == text
    b = wait(create(f.id, metadata={"night": "1"}), "completed")
    assert b.request_counts.total == b.request_counts.completed == 30 and b.request_counts.failed == 0, b
    assert b.metadata == {"night": "1"} and b.completed_at and b.in_progress_at and b.expires_at, b
    assert b.errors is None and b.error_file_id is None, b
    rows = [json.loads(line) for line in client.files.content(b.output_file_id).text.splitlines()]
    assert [r["custom_id"] for r in rows] == [f"r-{n}" for n in range(30)], rows
    for r in rows:
        assert r["response"]["status_code"] == 200 and r["error"] is None, r
        assert r["response"]["body"]["choices"][0]["message"]["content"], r
    out = client.files.retrieve(b.output_file_id)
    assert out.purpose == "batch_output" and out.bytes > 0, out
    assert client.files.delete(out.id).deleted
    gone(out.id)


def gone(file_id):
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        try:
            call(file_id)
        except openai.NotFoundError:
            continue
        raise AssertionError(f"a deleted file is still there for {call.__name__}")


def all_bad():
    b = wait(create(upload("no json\n{}\n[1]\n").id), "completed", "failed")
    assert b.output_file_id is None and b.request_counts.failed == 3, b
    errors = [json.loads(line) for line in client.files.content(b.error_file_id).text.splitlines()]
    assert len(errors) == 3 and all(e["error"]["code"] for e in errors), errors


def strict():
    b = create(upload(request(1) + "\nno json\n").id, metadata={"strict": "true"})
    b = wait(b, "failed", "completed")
    assert b.status == "failed" and b.failed_at and [e.line for e in b.errors.data] == [2], b


def cancelled():
    text = "\n".join(request(n) for n in range(2000)) + "\n"
    f = upload(text)
    for _ in range(20):  # a run may end before it is stopped
        try:
            b = wait(client.batches.cancel(create(f.id).id), "cancelled", "completed")
        except openai.ConflictError:
            continue
        if b.status == "cancelled":
            break
    assert b.cancelled_at and b.cancelling_at and b.request_counts.total <= 2000, b
    again = client.batches.cancel(b.id)
    assert again.status == "cancelled", again


def expired():
    """What was answered before the end of the window is kept. A busy machine needs a longer one for that."""
    text = "\n".join(request(n) for n in range(20)) + "\n" + request(20, "hang on this one") + "\n"
    f = upload(text)
    for window in ("3s", "15s", "60s"):
        b = client.batches.create(input_file_id=f.id, endpoint="/v1/chat/completions", completion_window=window)
        b = wait(b, "expired")
        assert b.expired_at and b.completion_window == window and b.request_counts.total == 21, b
        errors = [json.loads(line) for line in client.files.content(b.error_file_id).text.splitlines()]
        assert errors and all(e["error"]["code"] == "batch_expired" for e in errors), errors
        assert len(errors) == b.request_counts.failed and errors[-1]["custom_id"] == "r-20", errors
        if b.request_counts.completed:
            break
        assert b.output_file_id is None, b
    rows = [json.loads(line) for line in client.files.content(b.output_file_id).text.splitlines()]
    assert len(rows) == b.request_counts.completed == 21 - len(errors), (b, rows)
    assert len({r["custom_id"] for r in rows + errors}) == 21, (rows, errors)


def pages():
    f = upload(request(1) + "\n")
    made = [create(f.id).id for _ in range(250)]
    listed = [b.id for b in client.batches.list(limit=99)]
    assert len(listed) == len(set(listed)) and set(made) <= set(listed), listed
    files = [x.id for x in client.files.list(limit=2)]
    assert len(files) == len(set(files)) and f.id in files, files
    oldest = [x.id for x in client.files.list(limit=2, order="asc")]
    assert oldest == files[::-1], (oldest, files)


def lost_reply():
    """The reply to a creation is dropped once: the client asks again, and gets one batch."""
    dropped = []

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            r = urllib.request.Request(url.removesuffix("/v1") + self.path, body, dict(self.headers), method="POST")
            r.remove_header("Host")
            with urllib.request.urlopen(r) as answer:
                data = answer.read()
            if self.path.endswith("/batches") and not dropped:
                dropped.append(json.loads(data)["id"])
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{proxy.server_port}/v1", api_key=key, max_retries=3)
    f = upload(request(1) + "\n")
    b = create(f.id, c=c)
    assert dropped == [b.id], (dropped, b.id)
    assert [x.id for x in client.batches.list(limit=20).data if x.input_file_id == f.id] == [b.id]
    proxy.shutdown()


def in_parts():
    text = "".join(request(n, f"{n}: " + "x" * 900) + "\n" for n in range(12_000))
    up = client.uploads.upload_file_chunked(
        file=text.encode(), filename="large.jsonl", bytes=len(text), mime_type="application/jsonl",
        purpose="batch", part_size=4_000_000,
    )
    assert up.status == "completed" and up.file.bytes == len(text) > 8_000_000, up
    assert client.files.content(up.file.id).text == text
    up = client.uploads.create(filename="b.jsonl", bytes=200, mime_type="application/jsonl", purpose="batch")
    one, two = (client.uploads.parts.create(up.id, data=(request(n) + "\n").encode()) for n in (1, 2))
    length = 2 * len(request(1)) + 2
    try:
        client.uploads.complete(up.id, part_ids=[two.id, one.id])
    except openai.BadRequestError as e:
        assert "200" in e.message, e
    else:
        raise AssertionError(f"{length} bytes are taken for 200")
    assert client.uploads.cancel(up.id).status == "cancelled"
    try:
        client.uploads.complete(up.id, part_ids=[one.id])
    except openai.ConflictError as e:
        assert "cancelled" in e.message, e
    else:
        raise AssertionError("a cancelled upload is completed")
    up = client.uploads.create(filename="c.jsonl", bytes=length, mime_type="application/jsonl", purpose="batch")
    one, two = (client.uploads.parts.create(up.id, data=(request(n) + "\n").encode()) for n in (1, 2))
    done = client.uploads.complete(up.id, part_ids=[two.id, one.id])
    assert done == client.uploads.complete(up.id, part_ids=[two.id, one.id]), done
    b = wait(create(done.file.id), "completed")
    rows = [json.loads(line)["custom_id"] for line in client.files.content(b.output_file_id).text.splitlines()]
    assert rows == ["r-2", "r-1"], rows


def errors():
    for call, kind in [
        (lambda: client.batches.retrieve("batch_none"), openai.NotFoundError),
        (lambda: client.files.retrieve("file-none"), openai.NotFoundError),
        (lambda: create("file-none"), openai.BadRequestError),
        (lambda: client.files.create(file=("a.jsonl", b"{}"), purpose="fine-tune"), openai.BadRequestError),
    ]:
        try:
            call()
        except openai.APIStatusError as e:
            assert type(e) is kind and e.body["message"], e
        else:
            raise AssertionError("it was accepted")


def deleted():
    f = upload(request(1) + "\n")
    assert client.files.delete(f.id).deleted
    gone(f.id)


def models():
    [m] = client.models.list().data
    assert m.id == "fake" and client.models.retrieve("fake").object == "model", m


checks = [whole_life, all_bad, strict, cancelled, expired, pages, lost_reply, in_parts, errors, deleted, models]
failed = 0
for check in checks:
    if sys.argv[2:] and check.__name__ not in sys.argv[2:]:
        continue
    try:
        check()
        print("passed", check.__name__)
    except Exception:
        failed += 1
        print("FAILED", check.__name__)
        traceback.print_exc(file=sys.stdout)
sys.exit(failed)
