// What kinds of run add to their view: a rollout its steps and guidance, a training its loss, trials
// their grid.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { read } from "../data.js";
import { diff } from "../diff.js";
import { count, figure, percent, printable, rate, words } from "../format.js";
import { id, tile, when } from "../parts.js";
import { plot } from "../plot.js";
import { trialsView } from "./trials.js";

// kindPath is what is asked for besides the status of a run; "" for nothing. query is the route's.
export function kindPath(run, query) {
  const path = `/v1/runs/${encodeURIComponent(run.run_id)}`;
  if (run.kind === "rollout") return `${path}/rollout`;
  if (run.kind === "trials") return `${path}/trials?after=${Number(query.get("trials")) || 0}`;
  return run.kind === "train" || run.training ? `${path}/training` : "";
}

export function kindView(run, query) {
  const path = kindPath(run, query);
  if (!path) return nothing;
  const data = read(path).data;
  if (run.kind === "trials") return trialsView(run, data);
  return path.endsWith("/rollout") ? rolloutView(run.rollout, data) : trainingView(run.training, data);
}

const byStep = { name: "step", render: (n) => count(Math.round(n)), sizes: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] };

function rolloutView(r, data) {
  const steps = data?.steps ?? [];
  const line = (key) => steps.map((s) => ({ x: s.step, y: s[key] ?? NaN }));
  const lines = [{ name: "mean score", values: line("mean") }, { name: "best so far", values: line("best") }]
    .filter((l) => l.values.some((v) => Number.isFinite(v.y)));
  return html`<section aria-labelledby="rollout"><h2 id="rollout">Rollout</h2>
    ${r ? html`<dl class="tiles">
      ${tile("batch", r.batch ? `${count(r.batch)} of ${count(r.batches)}` : count(r.batches), r.epoch ? `epoch ${count(r.epoch)} of ${count(r.epochs)}` : nothing)}
      ${tile("tickets", count(r.tickets), r.all_tickets ? `of ${count(r.all_tickets)}` : nothing)}
      ${tile("mean score", figure(r.score))}
      ${tile("accuracy", r.accuracy === null ? "–" : percent(r.accuracy, 1))}
      ${tile("agreement", r.agreement === null ? "–" : percent(r.agreement, 1))}
      ${tile("reflections accepted", `${count(r.accepted ?? 0)} of ${count(r.reflections ?? 0)}`, r.review ? `${count(r.review)} tickets to review` : nothing)}
    </dl>` : html`<p class="empty">The first batch is not over yet.</p>`}
    ${lines.length ? html`<div class="plots">${plot("Score by batch", lines, byStep)}</div>` : nothing}
    ${guidance(data?.guidance ?? [])}</section>`;
}

// guidance lists the revisions, the newest first, each with what it changed.
function guidance(list) {
  if (!list.length) return nothing;
  const sorted = [...list].sort((a, b) => b.revision - a.revision);
  return html`<h3>Guidance</h3><ol class="guidance" reversed>${sorted.map((g, n) => html`<li class="card" value=${g.revision}>
    <details ?open=${n === 0}><summary>Revision ${count(g.revision)}${typeof g.mean === "number" ? html` · mean score ${figure(g.mean)}` : nothing}
      ${g.at ? html` · ${when(g.at)}` : nothing}${g.mission ? html` · ${printable(g.mission)}` : nothing}</summary>
    ${changes(sorted.slice(n + 1).find((o) => o.mission === g.mission)?.text, g.text)}</details></li>`)}</ol>`;
}

const marks = { "+": "added", "-": "removed", " ": "same" };

function changes(before, after) {
  const parts = diff(before ?? "", after ?? "");
  return html`<div class="diff" dir="auto">${parts.map(([mark, line]) => html`<div class=${before === undefined ? "same" : marks[mark]}>
    ${before === undefined || mark === " " ? nothing : html`<span class="hidden">${marks[mark]}: </span>`}<span aria-hidden="true" class="mark">
    ${before === undefined ? " " : mark}</span><bdi>${printable(line)}</bdi></div>`)}</div>`;
}

function trainingView(t, data) {
  const steps = data?.steps ?? [];
  const snapshots = data?.snapshots ?? [];
  return html`<section aria-labelledby="training"><h2 id="training">Training</h2>
    ${t ? html`<dl class="tiles">${tile("step", count(t.step), `of ${count(t.steps)}`)}${tile("loss", figure(t.loss))}
      ${tile("tokens", rate(t.tokens_per_second))}</dl>` : html`<p class="empty">The first step is not over yet.</p>`}
    ${steps.length ? html`<div class="plots">${plot("Loss", [{ name: "loss", values: steps.map((s) => ({ x: s.step, y: s.loss ?? NaN })) }], byStep)}
      ${steps.some((s) => s.lr) ? plot("Learning rate", [{ name: "learning rate", values: steps.map((s) => ({ x: s.step, y: s.lr ?? NaN })) }], byStep)
    : nothing}</div>` : nothing}
    ${snapshots.length ? html`<h3>Snapshots</h3><ul class="plain">${snapshots.slice(-50).map((s) => html`<li>${typeof s === "object"
    ? html`step ${count(s.step)} ${s.id ? id(s.id) : nothing} ${s.at ? when(s.at) : nothing}` : id(words(s))}</li>`)}</ul>` : nothing}</section>`;
}
