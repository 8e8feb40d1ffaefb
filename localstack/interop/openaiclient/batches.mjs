// Runs the life of batches with OpenAI's client for Node.
//
// Usage: batches.mjs FOLDER BASE_URL [CHECK...]. FOLDER has the client in node_modules. Each
// check is a function. The output has a line for each check, with a stack for failed ones; the
// exit code is the number of failed checks. The client repeats refused requests RETRIES times.

import assert from "node:assert/strict";
import http from "node:http";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const [folder, url, ...only] = process.argv.slice(2);
const { OpenAI, toFile } = createRequire(resolve(folder, "package.json"))("openai");
const apiKey = process.env.API_KEY ?? "unused";
const client = new OpenAI({ baseURL: url, apiKey, maxRetries: Number(process.env.RETRIES ?? 0) });
const endpoint = "/v1/chat/completions";

function request(n, text = `question ${n}`) {
  const body = { model: "fake", messages: [{ role: "user", content: text }] };
  return `${JSON.stringify({ custom_id: `r-${n}`, method: "POST", url: endpoint, body })}\n`;
}

const requests = (n) => Array.from({ length: n }, (_, i) => request(i)).join("");

async function upload(text, c = client) {
  return c.files.create({ file: await toFile(Buffer.from(text), "requests.jsonl"), purpose: "batch" });
}

async function create(fileID, more = {}, c = client) {
  return c.batches.create({ input_file_id: fileID, endpoint, completion_window: "24h", ...more });
}

async function wait(batch, ...statuses) {
  while (!statuses.includes(batch.status)) {
    assert(["validating", "in_progress", "finalizing", "cancelling"].includes(batch.status), JSON.stringify(batch));
    await sleep(100);
    batch = await client.batches.retrieve(batch.id);
  }
  return batch;
}

async function all(pages, most = Infinity) {
  const found = [];
  for await (const x of pages) {
    if (found.push(x) === most) break;
  }
  return found;
}

const content = async (id) => (await client.files.content(id)).text();
const rows = async (id) => (await content(id)).trimEnd().split("\n").map((line) => JSON.parse(line));

async function rejects(call, kind) {
  await assert.rejects(call, (e) => e instanceof kind && e.error.message.length > 0);
}

const checks = {
  async wholeLife() {
    const text = requests(30);
    const f = await client.files.waitForProcessing((await upload(text)).id, { pollInterval: 100 });
    assert.deepEqual([f.status, f.purpose, f.filename, f.bytes], ["processed", "batch", "requests.jsonl", text.length]);
    assert.equal(await content(f.id), text);
    const b = await wait(await create(f.id, { metadata: { night: "1" } }), "completed");
    assert.deepEqual(b.request_counts, { total: 30, completed: 30, failed: 0 });
    assert.deepEqual(b.metadata, { night: "1" });
    assert(b.created_at <= b.in_progress_at && b.in_progress_at <= b.finalizing_at && b.finalizing_at <= b.completed_at);
    assert.deepEqual([b.errors, b.error_file_id], [null, null]);
    const answers = await rows(b.output_file_id);
    assert.deepEqual(answers.map((r) => r.custom_id), Array.from({ length: 30 }, (_, n) => `r-${n}`));
    for (const r of answers) {
      assert(r.response.status_code === 200 && r.error === null && r.response.body.choices[0].message.content);
    }
    assert.equal((await client.files.retrieve(b.output_file_id)).purpose, "batch_output");
  },

  async allBad() {
    const b = await wait(await create((await upload("no json\n{}\n[1]\n")).id), "completed", "failed");
    assert.deepEqual([b.output_file_id, b.request_counts.failed], [null, 3]);
    const errors = await rows(b.error_file_id);
    assert(errors.length === 3 && errors.every((e) => e.error.code), JSON.stringify(errors));
  },

  async strict() {
    const f = await upload(`${request(1)}no json\n`);
    const b = await wait(await create(f.id, { metadata: { strict: "true" } }), "failed", "completed");
    assert(b.status === "failed" && b.failed_at, JSON.stringify(b));
    assert.deepEqual(b.errors.data.map((e) => e.line), [2]);
  },

  async cancelled() {
    const f = await upload(requests(2000));
    let b;
    for (let n = 0; n < 20 && b?.status !== "cancelled"; n++) { // a run may end before it is stopped
      const made = await create(f.id);
      try {
        b = await client.batches.cancel(made.id);
      } catch (e) {
        assert(e instanceof OpenAI.ConflictError, e);
        continue;
      }
      b = await wait(b, "cancelled", "completed");
    }
    assert(b.status === "cancelled" && b.cancelled_at && b.cancelling_at, JSON.stringify(b));
    assert.equal((await client.batches.cancel(b.id)).status, "cancelled");
  },

  async expired() {
    const f = await upload(requests(20) + request(20, "hang on this one"));
    const b = await wait(await create(f.id, { completion_window: "3s" }), "expired");
    assert(b.expired_at && b.request_counts.total === 21, JSON.stringify(b));
    const codes = (await rows(b.error_file_id)).map((r) => r.error.code);
    assert(codes.length >= 1 && codes.every((c) => c === "batch_expired"), JSON.stringify(codes));
  },

  async pages() {
    const f = await upload(request(1));
    const made = new Set();
    for (let n = 0; n < 250; n++) made.add((await create(f.id)).id);
    const listed = (await all(client.batches.list({ limit: 99 }))).map((b) => b.id);
    assert.equal(new Set(listed).size, listed.length);
    assert(made.isSubsetOf(new Set(listed)), `${listed.length} batches are listed`);
    const files = (await all(client.files.list({ limit: 2 }))).map((x) => x.id);
    assert(new Set(files).size === files.length && files.includes(f.id), JSON.stringify(files));
    const oldest = (await all(client.files.list({ limit: 2, order: "asc" }))).map((x) => x.id);
    assert.deepEqual(oldest, files.toReversed());
  },

  // The reply to a creation is dropped once: the client asks again, and gets one batch.
  async lostReply() {
    const f = await upload(request(1));
    const target = new URL(url);
    let dropped;
    const proxy = http.createServer((from, to) => {
      const options = { host: target.hostname, port: target.port, method: from.method, path: from.url, headers: from.headers };
      const on = http.request(options, (answer) => {
        const parts = [];
        answer.on("data", (part) => parts.push(part));
        answer.on("end", () => {
          const body = Buffer.concat(parts);
          if (!dropped) {
            dropped = JSON.parse(body).id;
            from.socket.destroy();
            return;
          }
          to.writeHead(answer.statusCode, { "content-type": "application/json" }).end(body);
        });
      });
      from.pipe(on);
    });
    await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
    const c = new OpenAI({ baseURL: `http://127.0.0.1:${proxy.address().port}/v1`, apiKey, maxRetries: 3 });
    const b = await create(f.id, {}, c);
    assert.equal(b.id, dropped);
    const made = (await all(client.batches.list(), 20)).filter((x) => x.input_file_id === f.id);
    assert.deepEqual(made.map((x) => x.id), [b.id]);
    proxy.close();
    proxy.closeAllConnections();
  },

  async errors() {
    await rejects(client.batches.retrieve("batch_none"), OpenAI.NotFoundError);
    await rejects(client.files.retrieve("file-none"), OpenAI.NotFoundError);
    await rejects(create("file-none"), OpenAI.BadRequestError);
    const wrong = await toFile(Buffer.from("{}"), "a.jsonl");
    await rejects(client.files.create({ file: wrong, purpose: "fine-tune" }), OpenAI.BadRequestError);
  },

  async deleted() {
    const f = await upload(request(1));
    assert((await client.files.delete(f.id)).deleted);
    await rejects(client.files.retrieve(f.id), OpenAI.NotFoundError);
  },

  async models() {
    const [m] = (await client.models.list()).data;
    assert.equal(m.id, "fake");
    assert.equal((await client.models.retrieve("fake")).object, "model");
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  if (only.length > 0 && !only.includes(name)) continue;
  try {
    await check();
    console.log("passed", name);
  } catch (e) {
    failed++;
    console.log("FAILED", name, e);
  }
}
process.exit(failed);
