// The items of a run, a page at a time, in the order of the input.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { read } from "../data.js";
import { count, figure, printable, words } from "../format.js";
import { badge, ended, id, missing, name } from "../parts.js";
import { go, to } from "../route.js";

const filters = ["class", "finish_reason", "min_score", "max_score", "q"];

const statusPath = (run) => `/v1/runs/${encodeURIComponent(run)}`;

function listPath(run, query) {
  const q = new URLSearchParams({ limit: "50" });
  for (const key of ["after", ...filters]) if (query.get(key)) q.set(key, query.get(key));
  return `${statusPath(run)}/items?${q}`;
}

const route = (run, query) => to(["runs", run, "items"], query);

export const items = {
  title: ({ parts }) => `Items of ${read(statusPath(parts[1])).data?.name ?? parts[1]}`,

  paths({ parts, query }) {
    const status = read(statusPath(parts[1])).data;
    const quiet = status && ended(status) ? 60_000 : 5_000;
    return [{ path: statusPath(parts[1]), every: 2_000 }, { path: listPath(parts[1], query), every: quiet }];
  },

  announce({ parts, query }) {
    const { data } = read(listPath(parts[1], query));
    return data && !skipped(data) ? `${count(data.items.length)} items` : "";
  },

  // settled goes on from a page without a match, until one matches or the run's end is reached.
  settled({ parts, query }) {
    const { data } = read(listPath(parts[1], query));
    if (data && skipped(data)) go(route(parts[1], { ...Object.fromEntries(query), after: data.next }), { replace: true });
  },

  view({ parts, query }) {
    const run = parts[1];
    const status = read(statusPath(run)).data;
    const list = read(listPath(run, query));
    const filtered = filters.some((f) => query.get(f));
    return html`
      <nav class="crumbs" aria-label="Where this is"><a href="#/">Runs</a> › <a href=${to(["runs", run])}>${name(status?.name || run)}</a></nav>
      <div class="head"><h1 tabindex="-1">Items</h1></div>
      ${form(run, query, status)}
      ${list.data ? html`${table(run, list.data, filtered)}${pages(run, query, list.data)}` : missing(list, "The items of this run")}`;
  },
};

// skipped reports whether a page has nothing, and there is more to look at.
const skipped = (data) => data.items.length === 0 && data.next;

function form(run, query, status) {
  const classes = new Set([...Object.keys(status?.failed_by_class ?? {}), query.get("class")].filter(Boolean));
  const reasons = new Set(["stop", "length", ...Object.keys(status?.finish_reasons ?? {}), query.get("finish_reason")].filter(Boolean));
  const choose = (label, field, values) => html`<label>${label} <select name=${field}><option value="">any</option>
    ${[...values].map((v) => html`<option value=${v} ?selected=${v === query.get(field)}>${words(v)}</option>`)}</select></label>`;
  const enter = (label, field, kind, size) => html`<label>${label} <input name=${field} type="text" inputmode=${kind} size=${size}
    .value=${query.get(field) ?? ""} autocomplete="off" spellcheck="false"></label>`;
  return html`<form class="filters" role="search" aria-label="Filter the items" @submit=${(e) => {
    e.preventDefault();
    go(route(run, Object.fromEntries(new FormData(e.target))));
  }}>
    ${choose("Failed as", "class", classes)} ${choose("Ended by", "finish_reason", reasons)}
    ${enter("Score from", "min_score", "decimal", 5)} ${enter("to", "max_score", "decimal", 5)}
    ${enter("Id has", "q", "text", 14)}
    <button type="submit">Filter</button> ${filters.some((f) => query.get(f)) ? html`<a href=${route(run, {})}>Clear</a>` : nothing}
  </form>`;
}

function table(run, data, filtered) {
  if (skipped(data)) {
    return html`<p class="loading" aria-busy="true">Looked at ${count(data.scanned)} of ${count(data.of)} items, and no match yet…</p>`;
  }
  if (!data.items.length) return html`<p class="empty">${filtered ? "No item matches." : "There is no item here."}</p>`;
  return html`<table class="items" role="table" aria-label="Items">
    <thead role="rowgroup"><tr role="row"><th scope="col" class="n" role="columnheader">#</th>
      <th scope="col" role="columnheader">id</th>
      <th scope="col" role="columnheader">state</th><th scope="col" class="n" role="columnheader">score</th>
      <th scope="col" class="n" role="columnheader">tokens</th>
        <th scope="col" role="columnheader">begin of the answer</th></tr></thead>
    <tbody role="rowgroup">${data.items.map((it) => html`<tr role="row">
      <td class="n index" role="cell">${count(it.index)}</td>
      <td class="key" role="cell"><a href=${to(["runs", run, "items", String(it.index)])}>${it.id ? name(it.id) : `item ${it.index}`}</a></td>
      <td class="state" role="cell">${badge(it.state, "plain")} ${it.class ? html`<span class="tag bad">${words(it.class)}</span>` : nothing}
        ${it.finish_reason && it.finish_reason !== "stop" ? html`<span class="tag">${words(it.finish_reason)}</span>` : nothing}</td>
      <td class="n score" role="cell">${typeof it.score === "number" ? figure(it.score) : ""}</td>
      <td class="n tokens" role="cell">${it.tokens ? count(it.tokens) : ""}</td>
      <td class="preview" role="cell"><bdi>${printable(it.preview)}</bdi></td></tr>`)}</tbody></table>`;
}

function pages(run, query, data) {
  const q = Object.fromEntries(query);
  return html`<nav class="pages" aria-label="Pages of items">
    ${query.get("after") ? html`<a href=${route(run, { ...q, after: "" })}>From the start</a>` : nothing}
    ${data.next && data.items.length ? html`<a href=${route(run, { ...q, after: data.next })}>Next page</a>` : nothing}
    ${data.of ? html`<span class="soft">of ${count(data.of)} items</span>` : nothing}</nav>`;
}
