// The runs: state, progress, speed, cost and what holds each up; and files that became no run.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { read } from "../data.js";
import { count, dollars, duration, percent, printable, rate, visible, words } from "../format.js";
import { andMore, atFault, badge, bar, blockers, ended, id, missing, name, when, wide } from "../parts.js";
import { to } from "../route.js";
import { dropZone } from "./files.js";

const phases = ["running", "pausing", "paused", "planning", "ending", "finalizing", "interrupted", "completed",
  "completed_with_errors", "stopped", "expired", "over_budget", "failed"];

const listPath = (query) => {
  const q = new URLSearchParams({ limit: "20" });
  for (const key of ["after", "phase"]) if (query.get(key)) q.set(key, query.get(key));
  return `/v1/runs?${q}`;
};

export const overviewPath = "/v1/overview?limit=1";

export const runs = {
  title: () => "Runs",
  paths: ({ query }) => [{ path: listPath(query), every: 1_000 }, { path: overviewPath, every: 3_000 }],
  announce: () => "",

  view({ query }) {
    const list = read(listPath(query));
    const overview = read(overviewPath);
    const phase = query.get("phase") ?? "";
    return html`
      <div class="head"><h1 tabindex="-1">Runs</h1>
        <label class="filter">State <select .value=${phase} @change=${(e) => { location.hash = to([], { phase: e.target.value }); }}>
          <option value="">all</option>${phases.map((p) => html`<option value=${p} ?selected=${p === phase}>${p.replaceAll("_", " ")}</option>`)}
        </select></label></div>
      ${dropZone()}
      ${list.data ? runList(list.data, query) : missing(list, "The list of runs")}
      ${uploads(overview.data?.uploads ?? [], overview.data?.more_uploads)}`;
  },
};

function runList(data, query) {
  const { runs: list = [], next } = data;
  return html`${list.length ? html`<ol class="runs" aria-label="Runs, the newest first">${list.map(card)}</ol>`
    : html`<p class="empty">${noRun(query, next)}</p>`}
    <nav class="pages" aria-label="Pages of runs">
      ${query.get("after") ? html`<a href=${to([], { phase: query.get("phase") })}>Newest</a>` : nothing}
      ${next ? html`<a href=${to([], { phase: query.get("phase"), after: next })}>${list.length ? "Older runs" : "Look further back"}</a>`
    : nothing}
    </nav>`;
}

// noRun says why a page has no run. One with a filter has looked at so many runs, and may not be the last.
function noRun(query, next) {
  if (next) return "None of the runs that were looked at is in this state.";
  if (query.get("phase")) return "No run is in this state.";
  return query.get("after") ? "There is no older run."
    : "There is no run yet. Drop a file above, or put one into prompts/ of the bucket.";
}

function card(run) {
  const { items } = run;
  const over = ended(run);
  return html`<li class="card run">
    <div class="who"><a href=${to(["runs", run.run_id])}>${name(run.name || run.run_id)}</a> ${badge(run.phase)}
      <span class="soft">${run.kind === "batch" ? nothing : html`${words(run.kind)} · `}${name(run.model)} · ${when(over ? run.ended_at
    : run.created_at)}</span></div>
    <div class="far">${bar(run)}<span class="soft">${items.planned ? percent(items.done, items.total) : "planning"},
      ${count(items.done)} of ${count(items.total)}${atFault(items) ? html`, <span class="bad">${count(atFault(items))} failed</span>`
    : nothing}</span></div>
    <dl class="facts">
      <div><dt>rate</dt><dd>${rate(run.rate)}</dd></div>
      <div><dt>${over ? "took" : "left"}</dt><dd>${over ? took(run) : duration(run.eta_seconds)}</dd></div>
      <div><dt>cost</dt><dd>${dollars(run.cost_usd)}</dd></div>
    </dl>
    ${!over && run.hold_ups?.length ? blockers(run.hold_ups.slice(0, 1)) : nothing}
    ${over && run.message ? html`<p class="note">${printable(run.message)}</p>` : nothing}
  </li>`;
}

const took = (run) => duration(run.ended_at ? (new Date(run.ended_at) - new Date(run.started_at ?? run.created_at)) / 1000 : null);

function uploads(list, more) {
  if (!list.length) return nothing;
  return html`<section aria-labelledby="uploads"><h2 id="uploads">Uploads that are not a run</h2>
    ${wide("Uploads that are not a run", html`<table><thead><tr><th scope="col">file</th><th scope="col">why</th>
      <th scope="col">since</th></tr></thead>
    <tbody>${list.map((u) => html`<tr><td>${id(u.key)}</td><td class="why">${visible(u.why)}</td>
      <td>${when(u.at)}</td></tr>`)}</tbody></table>`)}${andMore(more)}</section>`;
}
