// A file of prompts on its way to a run: dropped, uploaded, checked without sending a prompt, started.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { expect, send } from "../data.js";
import { bytes, count, dollars, duration, printable } from "../format.js";
import { id, name, problem, tile, wide } from "../parts.js";
import { go, to } from "../route.js";
import { say, update } from "../state.js";
import { lines } from "./actions.js";

// upload is the file that is sent now: { name, size, sent, request, error }; null without one.
let upload = null;

// checks are the dry runs by the id of their file: { data, error, refused, busy, set, typed, run }. set are the
// settings that data is of, typed those in the form, and run is the run that was started.
const checks = new Map();

const uploadKept = 24 * 60 * 60; // seconds: a file that is not started is deleted after a day
const startLimit = 660; // seconds: the server copies the file, for at most 600

// listen takes files that are dropped anywhere on the page.
export function listen() {
  addEventListener("dragover", (e) => {
    if (!e.dataTransfer?.types.includes("Files")) return;
    e.preventDefault();
    document.documentElement.classList.add("dragging");
  });
  const over = () => document.documentElement.classList.remove("dragging");
  addEventListener("dragleave", (e) => !e.relatedTarget && over());
  addEventListener("drop", (e) => {
    over();
    if (!e.dataTransfer?.files.length) return;
    e.preventDefault();
    take(e.dataTransfer.files);
  });
}

// dropZone is where a file is dropped or chosen, and how far its upload is.
export function dropZone() {
  const u = upload;
  return html`<section class="drop" aria-labelledby="drop-title"><h2 id="drop-title" class="hidden">Start a run</h2>
    ${u && !u.error ? html`<p>Uploading ${name(u.name)}: ${bytes(u.sent)} of ${bytes(u.size)}</p>
      <progress max="1" value=${u.size ? u.sent / u.size : 0} aria-label="Upload"></progress>
      <button type="button" @click=${() => u.request.abort()}>Cancel</button>`
    : html`<label class="button">Choose a file<input type="file" accept=".jsonl,.gz,.zst" class="hidden" @change=${(e) => {
    take(e.target.files);
    e.target.value = "";
  }}></label>
      <p>or drop one here: <code>.jsonl</code>, <code>.jsonl.gz</code> or <code>.jsonl.zst</code>. You see its dry run before it starts.</p>`}
    ${u?.error ? problem(u.error) : nothing}</section>`;
}

// take sends what was dropped or chosen, if it is one file.
function take(files) {
  if (files.length === 1) begin(files[0]);
  if (files.length < 2) return;
  const message = "Drop one file at a time: each becomes a run.";
  say(message);
  if (upload && !upload.error) return; // it is shown how far it is
  upload = { error: { message } };
  if (location.hash.replace(/^#\/?/, "").split("?")[0] !== "") go("#/");
  update();
}

// begin sends a file. XMLHttpRequest alone tells how much of it is sent.
function begin(file) {
  upload?.request?.abort();
  const request = new XMLHttpRequest();
  const mine = { name: file.name, size: file.size, sent: 0, request, error: null };
  upload = mine;
  if (location.hash.replace(/^#\/?/, "").split("?")[0] !== "") go("#/");
  const fail = (message) => {
    mine.error = { message };
    say(`The upload failed: ${message}`);
    update();
  };
  request.upload.onprogress = (e) => {
    mine.sent = Math.min(e.loaded, file.size);
    update();
  };
  request.onerror = () => fail("the connection broke: the file is not uploaded");
  request.onabort = () => {
    if (upload === mine) upload = null;
    update();
  };
  request.onload = () => {
    const said = request.response;
    if (request.status < 300 && said?.id) {
      upload = null;
      say("The file is uploaded.");
      go(to(["files", said.id], { name: file.name }));
    } else if (request.status === 404 || request.status === 501) {
      fail("this installation takes no files here: put the file into prompts/ of its bucket");
    } else if (request.status === 413) {
      fail(said?.error?.message ?? "the file is too large for this address: put it into prompts/ of the bucket");
    } else {
      fail(said?.error?.message ?? `the server answered with status ${request.status}`);
    }
  };
  request.open("POST", "/v1/files");
  request.responseType = "json";
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("expires_after[anchor]", "created_at");
  form.append("expires_after[seconds]", String(uploadKept));
  form.append("file", file);
  request.send(form);
  update();
}

export const file = {
  title: ({ query }) => `Dry run of ${query.get("name") ?? "a file"}`,
  paths: () => [],
  announce: ({ parts }) => (checks.get(parts[1])?.data ? "The dry run is ready." : ""),

  view({ parts, query }) {
    const check = checks.get(parts[1]) ?? look(parts[1]);
    return html`<nav class="crumbs" aria-label="Where this is"><a href="#/">Runs</a></nav>
      <div class="head"><h1 tabindex="-1">Dry run of ${name(query.get("name") ?? parts[1])}</h1></div>
      ${check.data ? dryRun(parts[1], query.get("name") ?? "", check) : check.error?.status === 404
    ? html`<p class="empty">This file is not here, or this installation has no dry run of uploads. <code>rollout submit FILE
      --dry-run</code> shows one.</p>` : check.error ? html`${problem(check.error)}
        <button type="button" @click=${() => { checks.delete(parts[1]); update(); }}>Try again</button>`
    : html`<p class="loading" aria-busy="true">Reading every line, and sending no prompt…</p>`}`;
  },
};

const filePath = (fileID) => `/v1/files/${encodeURIComponent(fileID)}`;

// look asks for the dry run of a file.
function look(fileID) {
  const check = { data: null, error: null, refused: null, busy: false, set: [], typed: [], run: "" };
  checks.set(fileID, check);
  send("POST", `${filePath(fileID)}/check`, {})
    .then((data) => { check.data = data; }, (error) => { check.error = error; }).finally(update);
  return check;
}

const unchecked = (check) => JSON.stringify(check.typed) !== JSON.stringify(check.set);

function dryRun(fileID, fileName, check) {
  const d = check.data;
  const whole = d.complete !== false;
  return html`${whole ? nothing : html`<p class="note">The file is long: these are the numbers of its beginning.</p>`}
    <dl class="tiles">
      ${tile("lines", count(d.rows), bytes(d.bytes))}
      ${tile("bad lines", html`<span class=${d.bad_lines ? "bad" : ""}>${count(d.bad_lines)}</span>`, d.bad_lines ? "they fail alone" : nothing)}
      ${tile("repeated ids", count(d.duplicates))}
      ${known("prompt tokens", d.prompt_tokens_estimate, count, "estimated")}
      ${known("shards", d.shards, count)}
      ${known("cost", d.cost_usd_estimate, dollars, "estimated")}
      ${known("time", d.eta_seconds, duration, "estimated")}
    </dl>
    <p class="soft">${d.dialect ? html`The lines are read as ${name(d.dialect)}. ` : nothing}${d.model ? html`They go to the
      model ${name(d.model)}.` : nothing}</p>
    ${(d.warnings ?? []).map((w) => html`<p class="note"><bdi>${printable(w)}</bdi></p>`)}
    ${start(fileID, fileName, check)}
    ${d.first_bad?.length ? html`<section aria-labelledby="bad"><h2 id="bad">Bad lines</h2>
      ${wide("Bad lines", html`<table><thead><tr>
      <th scope="col" class="n">line</th><th scope="col">why</th></tr></thead><tbody>${d.first_bad.map((b) => html`<tr>
      <td class="n">${count(b.line)}</td><td class="why"><bdi>${printable(b.message)}</bdi></td>
        </tr>`)}</tbody></table>`)}</section>` : nothing}
    ${d.head?.length ? html`<section aria-labelledby="first"><h2 id="first">First prompts</h2>
      ${wide("First prompts", html`<table><thead><tr>
      <th scope="col" class="n">#</th><th scope="col">id</th><th scope="col">prompt</th></tr></thead><tbody>
        ${d.head.map((h) => html`<tr>
      <td class="n">${count(h.index)}</td><td>${id(h.id)}</td><td class="why"><bdi>${printable(h.preview)}</bdi></td>
        </tr>`)}</tbody></table>`)}
      </section>` : nothing}`;
}

// known is the tile of a number; null has none.
const known = (label, n, render, more) => (typeof n === "number" ? tile(label, render(n), more) : nothing);

function start(fileID, fileName, check) {
  if (check.run) return html`<p class="note">The file is <a href=${to(["runs", check.run])}>a run</a> now.</p>`;
  const suggested = fileName.replace(/\.jsonl(\.gz|\.zst)?$/, "");
  const nothingToAsk = check.data.complete !== false && check.data.rows - check.data.bad_lines <= 0;
  return html`<form class="start card" @submit=${(e) => { e.preventDefault(); begun(fileID, e.target, check); }}>
    <label class="field">Name of the run <input name="name" type="text" .defaultValue=${suggested} autocomplete="off" spellcheck="false"></label>
    <label class="field"><span>Settings, one a line, such as <code>sampling.max_tokens=200</code></span>
      <textarea name="set" rows="2" spellcheck="false" autocapitalize="off" .defaultValue=${check.typed.join("\n")} @input=${(e) => {
    check.typed = lines(e.target.value);
    update();
  }}></textarea></label>
    ${check.refused ? problem(check.refused) : nothing}
    <div class="actions"><button type="submit" class="first" ?disabled=${check.busy || (nothingToAsk && !unchecked(check))}>${unchecked(check)
    ? "Check the settings" : "Start the run"}</button>
      ${nothingToAsk ? html`<span class="soft">There is no line that can be asked.</span>` : nothing}</div></form>`;
}

// begun starts the run. Settings that were typed since the dry run are checked first, so that it is of them.
async function begun(fileID, form, check) {
  const set = lines(form.elements.set.value);
  check.typed = set;
  check.busy = true;
  check.refused = null;
  update();
  try {
    if (unchecked(check)) {
      check.data = await send("POST", `${filePath(fileID)}/check`, { set });
      check.set = set;
      say("The dry run with these settings is ready.");
      return;
    }
    const run = await send("POST", `${filePath(fileID)}/start`, { name: form.elements.name.value.trim(), set }, startLimit);
    check.run = run.run_id;
    send("DELETE", filePath(fileID)).catch(() => {}); // the run has its copy, and the file expires by itself
    expect(run.run_id);
    say("The run has started.");
    go(to(["runs", run.run_id]));
  } catch (error) {
    check.refused = error;
  } finally {
    check.busy = false;
    update();
  }
}
