// What does the work: workers with the inference servers that they ask, machines that come, and queues.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { read } from "../data.js";
import { count, dollars, duration, figure, printable, rate, words } from "../format.js";
import { andMore, badge, id, missing, name, when, wide } from "../parts.js";
import { to } from "../route.js";
import { overviewPath } from "./runs.js";

const runsPath = "/v1/runs?limit=20";

export const machines = {
  title: () => "Machines",
  paths: () => [{ path: overviewPath, every: 3_000 }, { path: runsPath, every: 5_000 }],
  announce: () => "",

  view() {
    const overview = read(overviewPath);
    return html`<div class="head"><h1 tabindex="-1">Machines</h1></div>
      ${overview.data ? lists(overview.data) : missing(overview, "The list of workers")}`;
  },
};

function lists({ workers = [], more_workers: more, queues: depths = [] }) {
  const alive = workers.filter((w) => w.alive);
  return html`<section aria-labelledby="workers"><h2 id="workers">Workers</h2>
    ${alive.length ? html`<ul class="workers">${alive.map(worker)}</ul>`
    : html`<p class="empty">No worker is alive. In a cloud machines come with work; on one machine, <code>rollout up</code> starts them.</p>`}
    ${workers.length > alive.length ? html`<p class="soft">${count(workers.length - alive.length)} workers have ended.</p>` : nothing}
    ${andMore(more)}</section>
    ${coming((read(runsPath).data?.runs ?? []).flatMap((r) => r.machines ?? []))}
    ${queues(depths)}`;
}

// serverStates are the states of a server's circuit breaker, as what they mean.
const serverStates = { closed: "answers", open: "gets nothing now", half_open: "is tried again", set_aside: "set aside" };

function worker(w) {
  const load = w.load ?? {};
  const servers = load.servers ?? [];
  const held = w.holds ?? [];
  return html`<li class="card worker"><div class="row"><h3>${id(w.worker_id)}</h3> ${badge(w.draining ? "draining" : w.state)}
      <span class="soft">pool ${name(w.pool)} · ${name(w.host)}${w.machine_kind ? html` · ${name(w.machine_kind)}` : nothing}
      ${w.gpus ? ` · ${count(w.gpus)} GPUs` : ""}${w.usd_per_hour ? ` · ${dollars(w.usd_per_hour)} an hour` : ""} · since ${when(w.started_at)}</span></div>
    ${w.draining ? html`<p class="note">${printable(w.draining)}</p>` : nothing}
    ${load.away ? html`<p class="note bad">${printable(load.away)}</p>` : nothing}
    <dl class="facts"><div><dt>in flight</dt><dd>${count(load.busy ?? 0)} of ${count(w.in_flight)}</dd></div>
      <div><dt>rate</dt><dd>${rate(load.rate)}</dd></div><div><dt>tokens</dt><dd>${rate(load.token_rate)}</dd></div>
      <div><dt>median</dt><dd>${load.median_ms ? duration(load.median_ms / 1000) : "–"}</dd></div>
      <div><dt>faults</dt><dd>${count(load.faults ?? 0)}</dd></div>
      <div><dt>engine</dt><dd>${words(w.engine)}</dd></div></dl>
    ${servers.length ? wide("Servers of the worker", html`<table><thead><tr><th scope="col">server</th>
      <th scope="col">state</th>
      <th scope="col" class="n">in flight</th><th scope="col" class="n">limit</th>
        <th scope="col" class="n">waiting</th><th scope="col">last error</th>
      </tr></thead><tbody>${servers.map((s) => html`<tr><th scope="row">${id(s.name)}</th>
        <td>${serverStates[s.state] ?? words(s.state)}</td><td class="n">${count(s.in_flight)}</td>
      <td class="n">${s.limit ? count(s.limit) : "–"}</td><td class="n">${count(s.waiting)}</td>
        <td class="why">${printable(s.why)}</td></tr>`)}
      </tbody></table>`) : nothing}
    ${load.fault ? html`<p class="soft">last fault: <bdi>${printable(load.fault)}</bdi></p>` : nothing}
    ${held.length ? html`<p class="soft">holds ${held.slice(0, 8).map((h) => html`<a href=${to(["runs", h.run])}>shard ${count(h.shard)}</a> `)}
      ${held.length > 8 ? `and ${count(held.length - 8)} more` : ""}</p>` : nothing}</li>`;
}

function coming(pools) {
  const one = [...new Map(pools.map((p) => [p.pool, p])).values()];
  if (!one.length) return nothing;
  return html`<section aria-labelledby="coming"><h2 id="coming">Machines that come</h2>
    ${wide("Machines that come", html`<table><thead><tr>
    <th scope="col">pool</th><th scope="col" class="n">asked for</th><th scope="col" class="n">starting</th>
      <th scope="col">booting</th></tr></thead>
    <tbody>${one.map((p) => html`<tr><th scope="row">${name(p.pool)}</th><td class="n">${count(p.asked)}</td>
      <td class="n">${count(p.launching)}</td>
    <td>${(p.booting ?? []).map((b) => html`<div>${id(b.machine)}: ${words(b.stage)} ${when(b.since)}</div>`)}</td>
      </tr>`)}</tbody></table>`)}</section>`;
}

function queues(list) {
  if (!list.length) return nothing;
  return html`<section aria-labelledby="queues"><h2 id="queues">Queues</h2>${wide("Queues", html`<table><thead><tr>
    <th scope="col">queue</th>
    <th scope="col" class="n">waiting</th><th scope="col" class="n">in work</th>
      <th scope="col" class="n">dead letters</th></tr></thead>
    <tbody>${list.map((q) => html`<tr><th scope="row">${id(q.queue)}</th><td class="n">${figure(q.waiting)}</td>
      <td class="n">${figure(q.hidden)}</td>
    <td class="n"><span class=${q.dead ? "bad" : ""}>${figure(q.dead)}</span></td>
      </tr>`)}</tbody></table>`)}</section>`;
}
