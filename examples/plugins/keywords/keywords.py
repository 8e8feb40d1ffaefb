"""A grader for rollout: the share of the expected words that an answer has.

It needs the standard library alone. examples/plugins/README.md has the protocol.
"""

import json
import os
import socket
import struct


def score(item):
    """Returns the score of one answer, or None if there is nothing to compare it with."""
    words = item.get("expected")
    if isinstance(words, str):
        words = words.split()
    if not isinstance(words, list) or not words:
        return None
    answer = item["answer"].lower()
    return sum(str(word).lower() in answer for word in words) / len(words)


def handle(method, payload):
    if method == "init":
        return {"abi": 1}
    if method == "grade":
        return {"scores": [score(item) for item in payload["items"]]}
    if method == "shutdown":
        return {}
    raise ValueError("unknown method " + method)


def read(connection, size):
    text = b""
    while len(text) < size:
        part = connection.recv(size - len(text))
        if not part:
            raise SystemExit(0)  # the worker has gone
        text += part
    return text


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["ROLLOUT_PLUGIN_SOCKET"])
    method = None
    while method != "shutdown":
        (size,) = struct.unpack(">I", read(connection, 4))
        request = json.loads(read(connection, size))
        method = request["method"]
        try:
            reply = {"payload": handle(method, request.get("payload"))}
        except Exception as e:
            reply = {"error": f"{type(e).__name__}: {e}"}
        text = json.dumps(reply).encode()
        connection.sendall(struct.pack(">I", len(text)) + text)


main()
