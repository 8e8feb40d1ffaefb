// Parts that several views show. Values reach the page as text: there is no HTML of data anywhere.
import { html, svg, nothing } from "./vendor/lit-html-3.3.3/lit-html.js";
import { count, percent, printable, since, time, visible, words } from "./format.js";

// name shows an id or a name of the user's: whatever is in it, it changes nothing around it.
export const name = (text) => html`<bdi class="name">${visible(text)}</bdi>`;

// id shows an id of the product.
export const id = (text) => html`<bdi class="id">${visible(text)}</bdi>`;

// text shows a longer text of the user's.
export const text = (value) => html`<pre class="text" dir="auto">${printable(value)}</pre>`;

// json folds a value under a summary.
export const json = (summary, value, open = false) => html`
  <details class="fold" ?open=${open}><summary>${summary}</summary>
    <pre class="json" tabindex="0" aria-label=${summary}>${printable(typeof value === "string" ? value
    : JSON.stringify(value, null, 2))}</pre></details>`;

const tones = {
  planning: "busy", running: "busy", pausing: "wait", paused: "wait", interrupted: "wait", ending: "wait",
  finalizing: "busy", completed: "good", ready: "good", completed_with_errors: "warn", stopped: "off", expired: "warn",
  over_budget: "warn", failed: "bad", done: "good", waiting: "off", in_hand: "busy", left_out: "warn",
};

// badge shows a phase or a state.
export const badge = (state, kind = "") => html`<span class="badge ${tones[state] ?? "off"} ${kind}">${words(state)}</span>`;

// ended reports whether a run is over.
export const ended = (run) => ["completed", "completed_with_errors", "stopped", "expired", "over_budget", "failed"]
  .includes(run.phase);

// atFault is how many items failed by a fault of their own.
export const atFault = (items) => items.at_fault ?? Math.max(0, items.failed - (items.unanswered ?? 0));

// progress is the share of a run's items that have a row, from 0 to 1; null while none is planned.
export function progress(run) {
  const { total, done, failed, in_hand: held = 0 } = run.items;
  return total > 0 ? Math.min(1, (done + failed + held) / total) : null;
}

// bar shows how far a run is: answered, failed, and in hand.
export function bar(run) {
  const { total, done, failed, in_hand: held = 0 } = run.items;
  const at = (n) => (total > 0 ? Math.min(100, 100 * n / total) : 0);
  const label = `${percent(done, total)} answered, ${count(failed)} failed, ${count(held)} in hand`;
  const segment = (kind, from, to) => svg`<rect class=${kind} x=${at(from)} width=${Math.max(0, at(to) - at(from))} height="6"/>`;
  return html`<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="all" width="100" height="6"/>${segment("done", 0, done)}${segment("failed", done, done + failed)}
    ${segment("held", done + failed, done + failed + held)}</svg>`;
}

// shareBar shows a part of a whole, beside a number that says the same.
export const shareBar = (part, all, kind = "done") => html`<svg class="bar small" viewBox="0 0 100 6" preserveAspectRatio="none"
  aria-hidden="true"><rect class="all" width="100" height="6"/><rect class=${kind} width=${all > 0 ? 100 * part / all : 0}
  height="6"/></svg>`;

// when shows a time of the API as how long ago it was, with the time itself as its title.
export const when = (at) => (at ? html`<time datetime=${at} title=${time(at)}>${since(at)}</time>` : nothing);

// tile shows a number with what it is.
export const tile = (label, value, more = nothing) => html`<div class="tile"><dt>${label}</dt><dd>${value}</dd>
  ${more === nothing ? nothing : html`<dd class="soft">${more}</dd>`}</div>`;

// wide lets a table scroll within itself where it is too wide for the window.
export const wide = (label, table) => html`<div class="wide" role="region" aria-label=${label} tabindex="0">${table}</div>`;

// blockers lists what holds a run up, with what to do about it.
export const blockers = (list) => (list?.length ? html`<ul class="blockers">${list.map((b) => html`
  <li><strong>${printable(b.text)}</strong>${b.remedy ? html`<span class="remedy">${printable(b.remedy)}</span>` : nothing}</li>`)}
  </ul>` : nothing);

// andMore says how many a list leaves out.
export const andMore = (n) => (n > 0 ? html`<p class="soft">and ${count(n)} more</p>` : nothing);

// problem says what the API said against a request.
export const problem = (error) => html`<p class="problem" role="alert">${printable(error.message)}</p>`;

// missing shows why a view has no data: it is asked for, or the API refused.
export const missing = (entry, what) => (entry.error
  ? (entry.error.status === 404 ? html`<p class="empty">${what} can't be found here.</p>` : problem(entry.error))
  : html`<p class="loading" aria-busy="true">Loading…</p>`);
