// The page's entry: its frame, its routes, and who is signed in.
//
//   address ──▶ view of the route ──▶ paths ──▶ data.js keeps them fresh ──▶ draw ──▶ view(route)
import { html, nothing, render } from "./vendor/lit-html-3.3.3/lit-html.js";
import { forget, link, look, retryNow, send, start, streaming, want } from "./data.js";
import { duration, time, visible } from "./format.js";
import { onResize } from "./plot.js";
import { current } from "./route.js";
import { onUpdate, say, update } from "./state.js";
import { dialog } from "./views/actions.js";
import { file, listen } from "./views/files.js";
import { item } from "./views/item.js";
import { items } from "./views/items.js";
import { machines } from "./views/machines.js";
import { run } from "./views/run.js";
import { runs } from "./views/runs.js";
import { signIn } from "./views/signin.js";

// session is what the server says: needed and signed_in.
let session = { needed: false, signed_in: true };
let route = current();

// A view has: title(route), paths(route) as data.js wants them, view(route), announce(route): a sentence
// that is read out when it changes, and maybe settled(route), called after each drawing.
function viewOf({ parts }) {
  const [first, , third, fourth] = parts;
  if (!first) return runs;
  if (first === "machines") return machines;
  if (first === "files" && parts.length === 2) return file;
  if (first === "runs" && parts.length === 2) return run;
  if (first === "runs" && third === "items") return fourth === undefined ? items : item;
  return lostView;
}

const lostView = { title: () => "Not found", paths: () => [], announce: () => "",
  view: () => html`<div class="head"><h1 tabindex="-1">There is nothing here</h1></div>
    <p><a href="#/">Look at the runs</a></p>` };

const signedIn = () => !session.needed || session.signed_in;

function draw() {
  const view = viewOf(route);
  const shown = signedIn();
  if (shown) want(view.paths(route), route.parts[0] === "runs" ? route.parts[1] : "");
  document.title = `${shown ? visible(view.title(route)) : "Sign in"} · rollout`;
  render(frame(shown ? view.view(route) : signIn(enter)), document.getElementById("app"));
  const question = document.getElementById("question");
  if (question && !question.open) question.showModal();
  if (shown) {
    tell(view.announce(route));
    view.settled?.(route);
  }
}

const frame = (content) => html`
  <a class="skip" href="#main" @click=${(e) => { e.preventDefault(); document.querySelector("main h1")?.focus(); }}>Skip to the content</a>
  <header><a class="brand" href="#/"><img src="/page/icon.svg" alt="" width="22" height="22">rollout</a>
    <nav aria-label="Views">${tab("#/", "Runs", route.parts[0] !== "machines")}${tab("#/machines", "Machines", route.parts[0] === "machines")}</nav>
    <span class="link">${link.lostAt ? "no connection" : streaming() ? "live" : signedIn() ? "polling" : ""}</span>
    ${session.needed && session.signed_in ? html`<button type="button" class="quiet" @click=${leave}>Sign out</button>` : nothing}</header>
  ${banner()}
  <main id="main">${content}</main>
  ${dialog()}`;

const tab = (address, label, here) => html`<a href=${address} aria-current=${here ? "page" : nothing}>${label}</a>`;

function banner() {
  if (!link.lostAt) return nothing;
  const left = Math.max(0, Math.ceil((link.retryAt - Date.now()) / 1000));
  return html`<div class="banner"><span>No connection since ${time(link.lostAt)}, for ${duration(Math.round((Date.now() - link.lostAt) / 1000))}:
    the numbers are of then. ${left ? `The next try is in ${left}s.` : "Trying now."}</span>
    <button type="button" @click=${retryNow}>Try now</button></div>`;
}

// told is what was read out last. Sentences come at most every 5 seconds, so that they don't
// interrupt each other.
let told = "";
let toldAt = 0;
let toldLost = false;

function tell(sentence) {
  if (Boolean(link.lostAt) !== toldLost) {
    toldLost = Boolean(link.lostAt);
    say(toldLost ? "The connection to the server is lost." : "The connection is back.");
    toldAt = Date.now();
  } else if (sentence && sentence !== told && Date.now() - toldAt > 5_000) {
    told = sentence;
    toldAt = Date.now();
    say(sentence);
  }
}

// enter follows a sign-in, and leave ends it.
function enter() {
  session = { needed: true, signed_in: true };
  look();
  focusTitle();
}

async function leave() {
  await send("DELETE", "/v1/session").catch(() => {}); // the cookie expires by itself
  session = { needed: true, signed_in: false };
  forget();
  focusTitle();
}

// focusTitle moves the focus to the title of what is shown, after it is drawn.
function focusTitle() {
  update();
  queueMicrotask(() => document.querySelector("main h1")?.focus({ preventScroll: true }));
}

addEventListener("hashchange", () => {
  const before = route;
  route = current();
  told = "";
  const sameList = before.parts.join("/") === route.parts.join("/");
  if (!sameList || route.query.get("after") !== before.query.get("after")) scrollTo(0, 0);
  if (sameList) update();
  else focusTitle();
});

onUpdate(draw);
document.getElementById("app").replaceChildren(); // the note for browsers without scripts
onResize(update);
listen();
start(update, () => {
  session = { needed: true, signed_in: false };
  forget();
  update();
});
setInterval(() => !document.hidden && update(), 10_000); // times such as "3 minutes ago"
try {
  const answer = await fetch("/v1/session", { cache: "no-store" });
  if (answer.ok) session = await answer.json();
} catch { /* the first view says that the server does not answer */ }
update();
