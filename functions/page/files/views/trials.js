// The trials of a run: what each task came to under each variant, while the run goes on, and how the
// variants compare once it has ended.
import { html, nothing, svg } from "../vendor/lit-html-3.3.3/lit-html.js";
import { count, dollars, figure, words } from "../format.js";
import { name, wide } from "../parts.js";
import { to } from "../route.js";

// Marks of trials, by state: a sign and what it means. No meaning is in a colour alone.
const marks = {
  answered: ["●", "answered", "good"], zero: ["○", "answered, score 0", "off"], failed: ["✕", "lost by the variant: it counts as 0", "bad"],
  infrastructure: ["!", "ended by a fault that is not the variant's: it does not count", "warn"],
  pruned: ["–", "left out", "off"], in_hand: ["◐", "in flight", "busy"], waiting: ["·", "waiting", "off"],
  unread: ["?", "done, not read yet", "off"],
};

const keyOf = (t) => (t.state === "answered" && t.score === 0 ? "zero" : t.state);

// trialsView shows the answer about a run's trials; undefined before it is there.
export function trialsView(run, grid) {
  if (!grid) return nothing;
  return html`<section aria-labelledby="trials"><h2 id="trials">Trials</h2>
    ${leaderboard(grid)}
    ${grid.tasks ? html`${table(run, grid)}${pages(run, grid)}` : html`<p class="empty">The trials are not planned yet.</p>`}</section>`;
}

// leaderboard compares the variants, the best first.
function leaderboard({ variants, graded }) {
  const known = variants.filter((v) => v.ended);
  if (!known.length) return nothing;
  const sorted = known.map((v) => v).sort((a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity));
  const models = new Set(known.map((v) => v.model)).size > 1, priced = known.some((v) => v.tokens_usd !== null);
  return wide("Variants, the best first", html`<table class="leaders"><thead><tr><th scope="col">variant</th>
    ${models ? html`<th scope="col">model</th>` : nothing}
    ${graded ? html`<th scope="col" class="n">mean score</th><th scope="col" class="n">95 % interval</th><td></td>
      <th scope="col" class="n">scored</th><th scope="col" class="n">tasks</th><th scope="col" class="n">solved</th>` : nothing}
    ${priced ? html`<th scope="col" class="n">tokens</th><th scope="col" class="n">a solved task</th>` : nothing}
    <th scope="col" class="n">answered</th><th scope="col" class="n">lost</th><th scope="col" class="n">faults</th>
    <th scope="col" class="n">left out</th></tr></thead><tbody>
    ${sorted.map((v) => html`<tr><th scope="row">${name(v.name)}</th>
      ${models ? html`<td>${name(v.model)}</td>` : nothing}
      ${graded ? html`<td class="n">${figure(v.score)}</td>
        <td class="n">${v.low === null || v.high === null ? "–" : html`${figure(v.low)} to ${figure(v.high)}`}</td>
        <td class="drawn">${interval(v)}</td><td class="n">${count(v.scored)}</td><td class="n">${count(v.scored_tasks)}</td><td class="n">${count(v.solved_tasks)}</td>` : nothing}
      ${priced ? html`<td class="n">${dollars(v.tokens_usd)}</td><td class="n">${dollars(v.usd_per_solved_task)}</td>` : nothing}
      <td class="n">${count(v.answered)}</td><td class="n">${count(v.failed)}</td><td class="n">${count(v.infrastructure)}</td>
      <td class="n">${count(v.pruned)}</td></tr>`)}</tbody></table>`);
}

// interval draws a mean with its interval between 0 and 1, beside numbers that say the same.
function interval({ score, low, high }) {
  if ([score, low, high].some((x) => typeof x !== "number" || x < 0 || x > 1)) return nothing;
  return html`<svg class="interval" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
    <rect class="all" width="100" height="6"/>${svg`<rect class="range" x=${100 * low} y="1.5" width=${Math.max(.5, 100 * (high - low))} height="3"/>
    <rect class="mean" x=${Math.min(99, 100 * score)} width="1" height="6"/>`}</svg>`;
}

function table(run, grid) {
  const { rows, variants, tasks, replications } = grid;
  const first = rows[0]?.number ?? 0;
  const used = new Set(rows.flatMap((r) => r.cells.flatMap((c) => c.trials.map(keyOf))));
  return html`<h3>${rows.length === tasks ? `${count(tasks)} tasks`
    : `Tasks ${count(first + 1)} to ${count(first + rows.length)} of ${count(tasks)}`}, ${replications === 1 ? "once" : `${count(replications)} times`} under each variant</h3>
    ${wide("Trials by task and variant", html`<table class="trials"><thead><tr><th scope="col">task</th>
      ${variants.map((v) => html`<th scope="col">${name(v.name)}</th>`)}</tr></thead><tbody>
      ${rows.map((r) => html`<tr><th scope="row">${r.task ? name(r.task) : `#${count(r.number + 1)}`}</th>
        ${r.cells.map((c) => html`<td>${cell(run, c, grid)}</td>`)}</tr>`)}</tbody></table>`)}
    <p class="soft key">${Object.entries(marks).filter(([state]) => used.has(state))
    .map(([, [sign, means]]) => html`<span><b aria-hidden="true">${sign}</b> ${means}</span> `)}</p>
    ${grid.unread ? html`<p class="soft">${count(grid.unread)} finished trials of these tasks are still to be read.</p>` : nothing}`;
}

// cell shows the mean of a task under a variant, and a mark for each of its trials, which leads to it.
function cell(run, c, { graded, replications }) {
  const done = c.answered + c.failed + c.infrastructure + c.pruned;
  return html`<div class="cell"><span class="mean">${graded ? (c.scored ? figure(c.score) : "–") : `${count(c.answered)}`}</span>
    <span class="marks">${c.trials.map((t, n) => mark(run, t, n, replications))}${c.trials.length < replications
    ? html`<span class="soft">+${count(replications - c.trials.length)}</span>` : nothing}</span>
    ${done < replications ? html`<span class="soft">${count(done)} of ${count(replications)}${c.in_hand ? `, ${count(c.in_hand)} in flight` : nothing}</span>`
    : nothing}</div>`;
}

function mark(run, t, n, replications) {
  const [sign, means, tone] = marks[keyOf(t)] ?? ["?", words(t.state), "off"];
  const label = `${replications > 1 ? `repetition ${n + 1}: ` : ""}${means}${t.score ? `, score ${figure(t.score)}` : ""}`;
  return html`<a class="mark ${tone}" href=${to(["runs", run.run_id, "items", String(t.index)])} title=${label} aria-label=${label}>${sign}</a>`;
}

function pages(run, { rows, next }) {
  const first = rows[0]?.number ?? 0;
  if (!first && next === null) return nothing;
  return html`<nav class="pages" aria-label="Pages of tasks">
    ${first ? html`<a href=${to(["runs", run.run_id])}>First tasks</a>` : nothing}
    ${next === null ? nothing : html`<a href=${to(["runs", run.run_id], { trials: next })}>Next tasks</a>`}</nav>`;
}
