// A run: where it is, what holds it up, how fast it goes, why items fail, and what it costs.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { read } from "../data.js";
import { bytes, compact, count, dollars, duration, figure, percent, printable, rate, time, words } from "../format.js";
import { atFault, badge, bar, blockers, ended, id, missing, name, progress, shareBar, tile, when, wide } from "../parts.js";
import { plot } from "../plot.js";
import { to } from "../route.js";
import { buttons } from "./actions.js";
import { kindPath, kindView } from "./kinds.js";

const base = (id) => `/v1/runs/${encodeURIComponent(id)}`;

export const run = {
  title: ({ parts }) => read(base(parts[1])).data?.name || `Run ${parts[1]}`,

  paths({ parts, query }) {
    const path = base(parts[1]);
    const status = read(path).data;
    if (!status) return [{ path, every: 1_000 }];
    const quiet = ended(status) ? 60_000 : 4_000;
    const counts = JSON.stringify([status.failed_by_class, status.finish_reasons]);
    const out = [{ path, every: 1_000 }, { path: `${path}/history`, every: quiet },
      { path: `${path}/errors`, every: 60_000, of: counts, soon: 4_000 }]; // the server reads many rows for it
    const kind = kindPath(status, query);
    if (kind) out.push({ path: kind, every: quiet, of: status.phase, soon: 500 }); // the end has more to show
    return out;
  },

  // announce says where the run is, for people who hear the page: at each state and each tenth.
  announce({ parts }) {
    const s = read(base(parts[1])).data;
    if (!s) return "";
    const at = progress(s);
    return `${s.name}: ${words(s.phase)}${at === null ? "" : `, ${Math.floor(at * 10) * 10} percent`}`;
  },

  view({ parts, query }) {
    const path = base(parts[1]);
    const status = read(path);
    const s = status.data;
    return html`<div class="head"><h1 tabindex="-1">${s ? name(s.name || s.run_id) : html`Run ${id(parts[1])}`}</h1>
      ${s ? html`${badge(s.phase)} ${buttons(s)}` : nothing}</div>
      ${s ? about(s, path, query) : missing(status, "This run")}`;
  },
};

function about(s, path, query) {
  return html`
    <p class="soft">${words(s.kind)} ${id(s.run_id)} · model ${name(s.model)} · pool ${name(s.pool)} · created ${when(s.created_at)}
      ${s.deadline && !ended(s) ? html` · deadline ${time(s.deadline)}` : nothing}
      ${s.parent ? html` · retries <a href=${to(["runs", s.parent.run])}>${id(s.parent.run)}</a>` : nothing}</p>
    ${ended(s) ? nothing : blockers(s.hold_ups)}
    ${s.message ? html`<p class="note">${printable(s.message)}</p>` : nothing}
    ${bar(s)}
    ${tiles(s)}
    ${history(read(`${path}/history`), s)}
    ${kindView(s, query)}
    ${failures(s, read(`${path}/errors`).data)}
    ${finishes(s, read(`${path}/errors`).data)}
    ${costs(s)}
    ${shares(s)}
    ${filesOf(s)}`;
}

function tiles(s) {
  const { items, tokens } = s;
  const over = ended(s);
  return html`<dl class="tiles">
    ${tile("answered", count(items.done), html`${percent(items.done, items.total)} of ${count(items.total)}${items.planned ? "" : " so far"}`)}
    ${tile("failed", html`<span class=${atFault(items) ? "bad" : ""}>${count(atFault(items))}</span>`,
    items.unanswered ? html`and ${count(items.unanswered)} unanswered` : percent(atFault(items), items.done + items.failed))}
    ${over ? tile("took", duration((new Date(s.ended_at) - new Date(s.started_at ?? s.created_at)) / 1000), html`ended ${when(s.ended_at)}`)
    : tile("left", duration(s.eta_seconds), html`${count(items.in_hand)} in hand`)}
    ${tile("rate", rate(s.rate), html`${figure(s.token_rate)} tokens/s`)}
    ${tile("tokens", compact(tokens.prompt + tokens.completion), html`${compact(tokens.prompt)} in, ${compact(tokens.completion)} out`)}
    ${tile("cost", dollars(s.cost_usd), tokens.wasted ? html`${compact(tokens.wasted)} tokens wasted` : nothing)}
  </dl>`;
}

function history(entry, s) {
  const points = entry.data?.points ?? [];
  if (entry.error?.status === 404) return nothing;
  const rates = (of) => points.slice(1).map((p, n) => ({ x: p.t, y: (of(p) - of(points[n])) / Math.max(1e-9, p.t - points[n].t) }));
  const lines = [{ name: "answered", values: rates((p) => p.done) }];
  if (points.some((p) => p.failed > 0)) lines.push({ name: "failed", values: rates((p) => p.failed) });
  return html`<section aria-labelledby="speed"><h2 id="speed">Speed</h2>
    ${points.length < 3 ? html`<p class="empty">${ended(s) ? "The run was too short for a plot." : "A plot comes with the first shards."}</p>`
    : html`<div class="plots">${plot("Items per second", lines)}
      ${plot("Requests in flight", [{ name: "in flight", values: points.map((p) => ({ x: p.t, y: p.in_flight })) }])}
      ${points.some((p) => p.tokens > 0) ? plot("Tokens per second", [{ name: "tokens", values: rates((p) => p.tokens) }]) : nothing}</div>`}
  </section>`;
}

function failures(s, errors) {
  const samples = new Map((errors?.classes ?? []).map((c) => [c.class, c]));
  const classes = Object.entries(s.failed_by_class ?? {}).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  if (!classes.length) return nothing;
  const all = classes.reduce((sum, [, n]) => sum + n, 0);
  return html`<section aria-labelledby="failures"><h2 id="failures">Failures</h2><ul class="classes">
    ${classes.map(([c, n]) => html`<li class="card"><div class="row"><a href=${to(["runs", s.run_id, "items"], { class: c })}>${words(c)}</a>
      <b>${count(n)}</b>${shareBar(n, all, "failed")}</div>
      ${(samples.get(c)?.samples ?? []).map((x) => html`<p class="sample"><a href=${to(["runs", s.run_id, "items", String(x.index)])}>
        ${name(x.id || `#${x.index}`)}</a> <bdi>${printable(x.message)}</bdi></p>`)}</li>`)}</ul></section>`;
}

function finishes(s, errors) {
  const reasons = Object.entries(s.finish_reasons ?? errors?.finish_reasons ?? {}).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  if (!reasons.length) return nothing;
  const all = reasons.reduce((sum, [, n]) => sum + n, 0);
  return html`<section aria-labelledby="finishes"><h2 id="finishes">How answers end</h2>
    <table class="bars"><thead><tr><th scope="col">finish reason</th><th scope="col" class="n">answers</th>
      <th scope="col" class="n">share</th>
      <td></td></tr></thead>
    <tbody>${reasons.map(([r, n]) => html`<tr>
      <th scope="row"><a href=${to(["runs", s.run_id, "items"], { finish_reason: r })}>${words(r)}</a></th>
      <td class="n">${count(n)}</td><td class="n">${percent(n, all)}</td><td class="drawn">${shareBar(n, all)}</td>
        </tr>`)}</tbody></table></section>`;
}

const costLines = [["tokens", "tokens_usd"], ["machines", "machines_usd"], ["of them booting", "boot_usd"], ["of them idle", "idle_usd"],
  ["functions", "functions_usd"], ["storage", "storage_usd"]];

function costs(s) {
  const cost = s.cost ?? {};
  const lines = costLines.filter(([, key]) => cost[key] > 0);
  const tokens = [["prompts", s.tokens.prompt], ["answers", s.tokens.completion], ["wasted", s.tokens.wasted]];
  return html`<section aria-labelledby="cost"><h2 id="cost">Tokens and dollars</h2><div class="side">
    <table><thead><tr><th scope="col">tokens</th><th scope="col" class="n">count</th></tr></thead>
      <tbody>${tokens.map(([what, n]) => html`<tr><th scope="row">${what}</th><td class="n">${count(n)}</td>
        </tr>`)}</tbody></table>
    ${lines.length ? html`<table><thead><tr><th scope="col">cost</th><th scope="col" class="n">dollars</th></tr></thead>
      <tbody>${lines.map(([what, key]) => html`<tr><th scope="row">${what}</th>
        <td class="n">${dollars(cost[key])}</td></tr>`)}
      ${cost.per_million_items_usd > 0 ? html`<tr><th scope="row">a million items</th>
        <td class="n">${dollars(cost.per_million_items_usd)}</td></tr>`
      : nothing}</tbody></table>` : html`<p class="empty">No prices are set: this run costs nothing that is known.</p>`}
    ${s.budgets?.length ? html`<table><thead><tr><th scope="col">budget</th><th scope="col" class="n">used</th>
      <th scope="col" class="n">limit</th>
      <td></td></tr></thead>
      <tbody>${s.budgets.map((b) => html`<tr><th scope="row">${b.name}</th>
        <td class="n">${b.name === "dollars" ? dollars(b.used) : count(b.used)}</td>
      <td class="n">${b.name === "dollars" ? dollars(b.limit) : count(b.limit)}</td>
        <td class="drawn">${shareBar(Math.min(b.used, b.limit), b.limit)}</td>
      </tr>`)}</tbody></table>` : nothing}
  </div>${roles(s)}</section>`;
}

function roles(s) {
  if (!s.roles?.length) return nothing;
  return wide("Roles of the run", html`<table><thead><tr><th scope="col">role</th><th scope="col">model</th>
    <th scope="col" class="n">items</th>
    <th scope="col" class="n">answered</th><th scope="col" class="n">failed</th>
      <th scope="col" class="n">tokens in</th><th scope="col" class="n">out</th>
    </tr></thead><tbody>${s.roles.map((r) => html`<tr><th scope="row">${name(r.name)}</th><td>${name(r.model)}</td>
      <td class="n">${count(r.items)}</td>
    <td class="n">${count(r.completed)}</td><td class="n">${count(r.failed)}</td>
      <td class="n">${compact(r.prompt_tokens)}</td>
    <td class="n">${compact(r.completion_tokens)}</td></tr>`)}</tbody></table>`);
}

function shares(s) {
  if (!s.shares?.length) return nothing;
  return html`<section aria-labelledby="share"><h2 id="share">Share of the pools</h2>
    ${wide("Share of the pools", html`<table><thead><tr><th scope="col">pool</th><th scope="col" class="n">share</th>
      <th scope="col">priority</th>
    <th scope="col" class="n">runs</th><th scope="col" class="n">in flight</th></tr></thead><tbody>
      ${s.shares.map((p) => html`<tr>
    <th scope="row">${name(p.pool)}</th><td class="n">${percent(p.fraction, 1)}</td>
      <td>${p.priority || figure(p.priority_weight)}${p.hurry > 1
    ? `, hurries ×${figure(p.hurry)}` : ""}</td><td class="n">${count(p.runs)}</td>
    <td class="n">${count(p.requests)} of ${count(p.all_requests)}</td></tr>`)}</tbody></table>`)}</section>`;
}

function filesOf(s) {
  return html`<section aria-labelledby="files"><h2 id="files">Files</h2><dl class="pairs">
    <dt>prompts</dt><dd>${(s.inputs ?? []).map((key) => html`${id(key)} `)}${s.more_inputs ? `and ${count(s.more_inputs)} more` : ""}</dd>
    ${ended(s) ? html`<dt>answers</dt><dd>${id(s.outputs)}</dd><dt>errors</dt><dd>${id(s.errors)}</dd><dt>summary</dt>
      <dd>${id(s.summary)}</dd>`
    : nothing}</dl></section>`;
}
