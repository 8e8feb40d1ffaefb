// An item from inside: what was asked, what came back, its scores, and what happened to it.
// Everything in it is the user's or a model's: it is shown as text.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { read } from "../data.js";
import { count, figure, printable, time, words } from "../format.js";
import { badge, id, json, missing, name, text, wide } from "../parts.js";
import { to } from "../route.js";

const itemPath = (parts) => `/v1/runs/${encodeURIComponent(parts[1])}/items/${encodeURIComponent(parts[3])}`;
const statusPath = (parts) => `/v1/runs/${encodeURIComponent(parts[1])}`;

export const item = {
  title: ({ parts }) => `Item ${read(itemPath(parts)).data?.id || parts[3]}`,

  paths(route) {
    const it = read(itemPath(route.parts)).data;
    const over = it && (it.state === "done" || it.state === "failed");
    return [{ path: itemPath(route.parts), every: over ? 60_000 : 2_000 }, { path: statusPath(route.parts), every: 5_000 }];
  },

  announce: ({ parts }) => words(read(itemPath(parts)).data?.state),

  view({ parts }) {
    const entry = read(itemPath(parts));
    const status = read(statusPath(parts)).data;
    const it = entry.data;
    const index = Number(parts[3]);
    const run = parts[1];
    return html`
      <nav class="crumbs" aria-label="Where this is"><a href="#/">Runs</a> › <a href=${to(["runs", run])}>${name(status?.name || run)}</a>
        › <a href=${to(["runs", run, "items"])}>Items</a></nav>
      <div class="head"><h1 tabindex="-1">${it?.id ? name(it.id) : `Item ${parts[3]}`}</h1>
        ${it ? badge(it.state) : nothing}
        <nav class="actions" aria-label="Other items">
          ${index > 0 ? html`<a class="button" href=${to(["runs", run, "items", String(index - 1)])}>Previous</a>` : nothing}
          ${index + 1 < (status?.items.total ?? 0) ? html`<a class="button" href=${to(["runs", run, "items", String(index + 1)])}>Next</a>`
    : nothing}</nav></div>
      ${it ? whole(it) : missing(entry, "This item")}`;
  },
};

function whole(it) {
  const cut = it.truncated ?? [];
  return html`${facts(it)}
    ${it.error ? failure(it.error) : nothing}
    ${cut.length ? html`<p class="note">Long texts are cut here (${cut.map(words).join(", ")}): the run's files have all of them.</p>` : nothing}
    <div class="turns">
      <section aria-labelledby="request"><h2 id="request">Request</h2>${request(it.request)}</section>
      <section aria-labelledby="answer"><h2 id="answer">Answer</h2>${answer(it)}</section>
    </div>
    ${scores(own(it.scores))}
    ${story(own(it.where))}`;
}

// own returns a part of the answer without the mark that it was cut, which `truncated` says as well.
function own(part) {
  const { shortened, ...rest } = part ?? {};
  return part && rest;
}

function facts(it) {
  const known = (n, render) => (typeof n === "number" ? render(n) : "");
  const seeds = it.request?.seeds ?? [];
  const pairs = [["index", count(it.index)], ["score", known(it.score, figure)],
    ["prompt tokens", known(it.answer?.prompt_tokens, count)], ["completion tokens", known(it.answer?.completion_tokens, count)],
    ["attempts", it.attempts ? count(it.attempts) : ""],
    ["claimed", it.timings?.claimed_at ? time(it.timings.claimed_at) : ""],
    ["answered", it.timings?.answered_at ? time(it.timings.answered_at) : ""],
    [seeds.length > 1 ? "seeds" : "seed", seeds.length ? id(seeds.map((s) => JSON.stringify(s)).join(", ")) : ""],
    ["file", it.where?.file ? html`${id(it.where.file)}, line ${count(it.where.line)}` : ""],
    ["item id", it.where?.item_id ? id(it.where.item_id) : ""]];
  return html`<dl class="facts">${pairs.filter(([, v]) => v !== "").map(([what, v]) => html`<div><dt>${what}</dt>
    <dd>${v}</dd></div>`)}</dl>`;
}

const failure = (error) => html`<div class="problem"><strong>${words(error.class)}</strong>
  ${text(error.message)}</div>`;

// request shows the turns of a request, and folds the rest of its body.
function request(r) {
  if (!r) return html`<p class="empty">The line is not a request, or its input is gone.</p>`;
  const { messages, prompt, input, system, instructions, ...rest } = r.body;
  const opening = system ?? instructions;
  return html`<p class="soft">${id(r.path ?? r.endpoint)}</p>
    ${opening ? turn("system", opening) : nothing}
    ${Array.isArray(messages) ? messages.map((m) => turn(m.role, m.content, m)) : nothing}
    ${prompt !== undefined ? turn("prompt", prompt) : nothing}
    ${Array.isArray(input) && input.some((m) => m?.role) ? input.map((m) => turn(m.role, m.content, m))
    : input !== undefined ? turn("input", input) : nothing}
    ${Object.keys(rest).length ? json("Parameters", rest) : nothing}`;
}

// turn shows one message of a conversation.
function turn(role, content, message = {}) {
  return html`<div class="turn ${["assistant", "system", "tool"].includes(role) ? role : "user"}"><h3>${printable(words(role))}</h3>
    ${said(content)}${message.tool_calls ? json("Tool calls", message.tool_calls, true) : nothing}</div>`;
}

// said shows a content: a text, parts of several types, or any JSON.
function said(content) {
  if (content === null || content === undefined) return nothing;
  if (typeof content === "string") {
    const value = parsed(content);
    return value ? html`${text(content)}${json("As JSON", value)}` : text(content);
  }
  if (!Array.isArray(content)) return json("JSON", content, true);
  return content.map((part) => {
    if (typeof part === "string") return text(part);
    const inner = part?.text ?? part?.input_text ?? part?.output_text;
    return typeof inner === "string" ? text(inner) : json(words(part?.type ?? "part"), part);
  });
}

// parsed returns the object or list that a text is, or null. A short text is read as it stands.
function parsed(value) {
  const start = value.trimStart()[0];
  if (value.length < 40 || (start !== "{" && start !== "[")) return null;
  try {
    return JSON.parse(value);
  } catch {
    return null;
  }
}

function answer(it) {
  if (!it.answer) {
    return html`<p class="empty">${it.state === "failed" ? "There is none: the item failed." : "There is none yet."}</p>`;
  }
  const found = answers(it.answer);
  const row = own(it.answer.row);
  return html`${found.map((a, n) => html`<div class="turn assistant"><h3>${found.length > 1 ? `answer ${n + 1}` : "assistant"}
      ${a.finish_reason ? html`<span class="tag">${words(a.finish_reason)}</span>` : nothing}</h3>
    ${a.reasoning ? html`<details class="fold"><summary>Reasoning</summary>
      ${text(a.reasoning)}</details>` : nothing}${said(a.text)}
    ${a.tool_calls ? json("Tool calls", a.tool_calls, true) : nothing}</div>`)}
    ${row ? json("All of the row", row, !found.some((a) => a.text || a.tool_calls)) : nothing}`;
}

// answers are { text, finish_reason, reasoning, tool_calls }: the texts of the answers, with what the row has beside
// them in its dialect. An answer without a text, such as a vector, is in the row alone.
function answers({ answers: texts, row }) {
  const beside = besides(row ?? {});
  return (texts ?? []).map((a, n) => ({ ...beside[n], ...a }));
}

// besides are the reasoning and the tool calls of each answer in a row.
function besides(row) {
  const list = (of) => (Array.isArray(of) ? of : []);
  const response = row.response ?? {};
  if (response.body) { // OpenAI's
    return list(response.body.choices).map(({ message: m }) => ({ reasoning: m?.reasoning_content, tool_calls: m?.tool_calls }));
  }
  if (response.candidates) { // Vertex's
    return list(response.candidates).map((c) => ({ tool_calls: c.toolCalls,
      reasoning: list(c.content?.parts).find((part) => part.thought)?.text }));
  }
  if (row.modelOutput) { // Bedrock's
    return list(row.modelOutputs ?? [row.modelOutput]).map((m) => ({ tool_calls: m.tool_calls,
      reasoning: list(m.content).find((part) => part.type === "thinking")?.thinking }));
  }
  return list(row.completions ?? [row]).map(({ reasoning, tool_calls }) => ({ reasoning, tool_calls }));
}

function scores(all) {
  const list = Object.entries(all ?? {});
  if (!list.length) return nothing;
  return html`<section aria-labelledby="scores"><h2 id="scores">Scores</h2>${wide("Scores", html`<table><thead><tr>
    <th scope="col">grader</th>
    <th scope="col" class="n">score</th><th scope="col">why there is none</th></tr></thead><tbody>
      ${list.map(([grader, s]) => html`<tr>
    <th scope="row">${name(grader)}</th><td class="n">${figure(typeof s === "number" ? s : s?.score)}</td>
    <td>${words(s?.cause ?? "")}</td></tr>`)}</tbody></table>`)}</section>`;
}

function story(where) {
  if (!where) return nothing;
  const told = where.story ?? [];
  return html`<section aria-labelledby="story"><h2 id="story">What happened</h2>
    ${where.why ? html`<p>${printable(where.why)}</p>` : nothing}
    ${told.length ? html`<ol class="story">${told.map((line) => html`<li><bdi>${printable(line)}</bdi></li>`)}</ol>` : nothing}
    ${where.next ? html`<p class="note">${printable(where.next)}</p>` : nothing}
    ${json("Where it is", where)}</section>`;
}
