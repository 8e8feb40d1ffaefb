// The page's entry: lists the runs.
import { html, render } from "./vendor/lit-html-3.3.3/lit-html.js";

const answer = await fetch("/v1/runs", { headers: { Accept: "application/json" } });
const { runs = [] } = answer.ok ? await answer.json() : {};
render(html`<main><h1>Runs</h1><ul>${runs.map((run) => html`<li><bdi>${run.name}</bdi>: ${run.phase}</li>`)}</ul></main>`,
  document.getElementById("app"));
