// What a person can do with a run: pause, resume, stop after a question, and retry what failed.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { expect, look, send } from "../data.js";
import { count, words } from "../format.js";
import { atFault, ended, problem } from "../parts.js";
import { to } from "../route.js";
import { say, update } from "../state.js";

// open is the dialog that is shown: { what, run, error, busy }, or null.
let open = null;
let acting = ""; // the action that waits for its answer
let failed = null; // { run, error } of the last one

const running = (run) => ["planning", "running"].includes(run.phase);
const resumable = (run) => ["paused", "pausing", "interrupted"].includes(run.phase);

// buttons are the actions that the state of the run allows.
export function buttons(run) {
  const button = (label, act, kind = "") => html`<button type="button" class=${kind} ?disabled=${acting !== ""}
    @click=${act}>${label}</button>`;
  return html`<div class="actions" role="group" aria-label="What to do with the run">
    <a class="button" href=${to(["runs", run.run_id, "items"])}>Items</a>
    ${running(run) ? button("Pause", () => steer(run, "pause")) : nothing}
    ${resumable(run) ? button("Resume", () => steer(run, "resume"), "first") : nothing}
    ${!ended(run) && run.phase !== "ending" && run.phase !== "finalizing" ? button("Stop…", () => show("stop", run), "danger") : nothing}
    ${ended(run) && run.kind === "batch" && run.items.failed > 0 ? button("Retry…", () => show("retry", run), "first") : nothing}
  </div>${failed?.run === run.run_id ? problem(failed.error) : nothing}`;
}

const done = { pause: "pauses: it starts nothing new", resume: "continues", stop: "stops" };

async function steer(run, action) {
  acting = action;
  failed = null;
  update();
  try {
    await send("POST", `/v1/runs/${encodeURIComponent(run.run_id)}/${action}`, { reason: "asked for on the page" });
    say(`${run.name} ${done[action]}.`);
    return true;
  } catch (error) {
    failed = { run: run.run_id, error };
    return false;
  } finally {
    acting = "";
    look(`/v1/runs/${run.run_id}`);
    update();
  }
}

function show(what, run) {
  open = { what, run, error: null, only: run.items.failed > 0 ? "failed" : "all" };
  update();
}

// shut closes the dialog; the browser then gives the focus back to the button that opened it.
const shut = () => document.getElementById("question")?.close();

function closed() {
  open = null;
  update();
}

// dialog is the question that is open. The page shows it once, beside its views.
export function dialog() {
  if (!open) return nothing;
  const { what, run } = open;
  return html`<dialog id="question" aria-labelledby="question-title" @close=${closed}>
    <form @submit=${(e) => { e.preventDefault(); answer(e.target); }}>
      <h2 id="question-title">${what === "stop" ? "Stop" : "Retry"} <bdi>${run.name}</bdi></h2>
      ${what === "stop" ? html`<p>A stopped run can't continue. Its answers are kept; the
        ${count(Math.max(0, run.items.total - run.items.done - run.items.failed))} items without one get the class canceled.
        A pause keeps the run able to continue.</p>` : retryForm(run)}
      ${open.error ? problem(open.error) : nothing}
      <div class="actions"><button type="button" @click=${shut}>Cancel</button>
        <button type="submit" class=${what === "stop" ? "danger" : "first"} ?disabled=${acting !== ""}>${what === "stop" ? "Stop the run"
    : "Start the retry"}</button></div>
    </form></dialog>`;
}

function retryForm(run) {
  const classes = Object.entries(run.failed_by_class ?? {}).filter(([, n]) => n > 0);
  const cut = run.finish_reasons?.length ?? 0;
  const choice = (value, label) => html`<label class="choice"><input type="radio" name="only" value=${value}
    ?checked=${value === open.only}> ${label}</label>`;
  return html`<p>A new run asks the chosen items again. It keeps the rows of all others, ids and seeds.</p>
    <fieldset><legend>Ask again</legend>
      ${choice("failed", `what failed or has no answer (${count(run.items.failed)})`)}
      ${run.items.unanswered ? choice("unanswered", `only what has no answer (${count(run.items.unanswered)})`) : nothing}
      ${classes.length > 1 || (classes.length && atFault(run.items)) ? classes.map(([c, n]) => choice(`class ${c}`, `only class ${words(c)} (${count(n)})`)) : nothing}
      ${cut ? choice("length", `only answers that were cut at the token limit (${count(cut)})`) : nothing}
      ${choice("all", `all (${count(run.items.total)})`)}
    </fieldset>
    <label class="field"><span>Settings for them, one a line, such as <code>sampling.max_tokens=800</code></span>
      <textarea name="set" rows="2" spellcheck="false" autocapitalize="off"></textarea></label>`;
}

async function answer(form) {
  const { what, run } = open;
  if (what === "stop") {
    shut();
    await steer(run, "stop");
    return;
  }
  const only = form.elements.only.value;
  const body = { set: lines(form.elements.set.value) };
  if (only === "length") body.finish_reasons = ["length"];
  else body.only = [only.replace(/^class /, "")];
  acting = "retry";
  open.error = null;
  update();
  try {
    const child = await send("POST", `/v1/runs/${encodeURIComponent(run.run_id)}/retry`, body);
    shut();
    say("The retry has started.");
    expect(child.run_id);
    location.hash = to(["runs", child.run_id]);
  } catch (error) {
    if (open) open.error = error;
  } finally {
    acting = "";
    update();
  }
}

// lines are the settings of a text field.
export const lines = (value) => value.split("\n").map((l) => l.trim()).filter(Boolean);
