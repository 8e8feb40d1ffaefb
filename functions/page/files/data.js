// What the API said last, and how it is kept fresh.
//
//   view ──want(paths)──▶ entries ──GET, If-None-Match──▶ API
//                           ▲  │
//      stream: something ───┘  └──changed()──▶ render
//      changed, or a clock
//
// A view names the paths that it shows, and how often each may be asked for. While the server has a
// stream, a path is asked for again after an event; else every few seconds. An answer that did not
// change is 304, without a body. A tab that can't be seen asks nothing.

import { Stream } from "./stream.js";

const entries = new Map(); // path → { data, etag, error, at, asking, hinted, notBefore }
let wanted = []; // { path, every }, every in ms; maybe with of and soon
let wantedRun = ""; // of which run events are wanted
let awaited = { run: "", until: 0 }; // a run that was started, and is not there yet
let changed = () => {};
let signedOut = () => {};

const pollEvery = 2_000; // without a stream
const lookEvery = 30_000; // beside a stream, in case that an event was lost
const errorEvery = 5_000; // after a failure that may pass
const awaitedEvery = 1_000; // for a run that is not there yet
const awaitedFor = 60_000;
const kept = 60; // entries that nothing shows any more

// link is whether the server answers: lostAt is the time since which it does not, 0 while it does.
export const link = { lostAt: 0, retryAt: 0, tries: 0 };

const stream = new Stream(
  (name, data) => {
    if (name === "run" && data?.run_id) {
      const path = `/v1/runs/${data.run_id}`;
      if (entries.has(path)) Object.assign(entries.get(path), { data, etag: null, error: undefined, at: Date.now() });
    }
    for (const e of entries.values()) e.hinted = true;
    reached();
    tick();
    changed();
  },
  () => { // what happened while there was no stream is not known
    for (const e of entries.values()) e.hinted = true;
    changed();
  });

// streaming reports whether changes are heard of at once.
export const streaming = () => stream.live;

// start begins to keep data fresh. onChange is called after every change, onSignedOut when the
// server wants a token.
export function start(onChange, onSignedOut) {
  changed = onChange;
  signedOut = onSignedOut;
  document.addEventListener("visibilitychange", () => (document.hidden ? stream.close() : retryNow()));
  addEventListener("online", retryNow);
  addEventListener("pagehide", () => stream.close());
  setInterval(() => {
    tick();
    if (link.lostAt && !document.hidden) changed(); // the banner counts the seconds
  }, 500);
}

// expect says that a run was started. Until it is there, its paths are asked for again, and lack no data.
export function expect(run) {
  awaited = { run, until: Date.now() + awaitedFor };
}

const isAwaited = (path) => Date.now() < awaited.until && `${path}/`.startsWith(`/v1/runs/${awaited.run}/`);

// want says what is shown now, and of which run events are wanted. A path with `of` is asked for
// again `soon` ms after its last answer once `of` has changed, else after `every`.
export function want(paths, run = "") {
  wanted = paths;
  wantedRun = run;
  const unused = [...entries.keys()].filter((p) => !paths.some((w) => w.path === p));
  for (const path of unused.slice(0, Math.max(0, unused.length - kept))) entries.delete(path);
  tick();
}

// read returns what is known of a path: { data, error }, both undefined before the first answer.
export const read = (path) => entries.get(path) ?? {};

// look asks again at once for the paths that begin with prefix.
export function look(prefix = "") {
  for (const [path, e] of entries) {
    if (path.startsWith(prefix)) Object.assign(e, { at: 0, notBefore: 0 });
  }
  tick();
}

// retryNow asks a server again that did not answer.
export function retryNow() {
  link.retryAt = 0;
  look();
}

// forget drops all data, for example after signing out.
export function forget() {
  wanted = [];
  entries.clear();
  stream.close();
}

function tick() {
  const now = Date.now();
  if (document.hidden || !wanted.length) return;
  const known = !wantedRun || entries.get(`/v1/runs/${wantedRun}`)?.data; // there is no stream of an unknown run
  if (!link.lostAt && known) stream.keep(wantedRun);
  if (link.lostAt && now < link.retryAt) return;
  for (const one of link.lostAt ? wanted.slice(0, 1) : wanted) {
    if (!entries.has(one.path)) entries.set(one.path, { at: 0, notBefore: 0 });
    const e = entries.get(one.path);
    if (e.asking || now < e.notBefore || now - e.at < pause(e, one)) continue;
    e.of = one.of;
    ask(one.path, e);
  }
}

// pause is how long after the last answer a path is asked for again, in ms.
function pause(e, { every, of, soon }) {
  if (e.at === 0) return 0;
  if (of !== e.of) return soon;
  if (e.hinted) return every;
  return Math.max(every, stream.live ? lookEvery : pollEvery);
}

async function ask(path, e) {
  e.asking = true;
  e.hinted = false;
  const headers = { Accept: "application/json" };
  if (e.etag) headers["If-None-Match"] = e.etag;
  try {
    const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(60_000) });
    if (answer.ok) {
      Object.assign(e, { data: await answer.json(), etag: answer.headers.get("ETag"), error: undefined });
    } else if (answer.status === 401) {
      signedOut();
    } else if (answer.status === 404 && isAwaited(path)) {
      Object.assign(e, { error: undefined, notBefore: Date.now() + awaitedEvery, hinted: true });
    } else if (answer.status !== 304) {
      const passes = answer.status === 429 || answer.status >= 500;
      const seconds = Number(answer.headers.get("Retry-After")) || 0;
      e.notBefore = Date.now() + Math.max(passes ? errorEvery : lookEvery, 1000 * seconds);
      e.error = await problem(answer);
    }
    reached();
  } catch (err) {
    if (err instanceof SyntaxError) e.error = { status: 0, message: "the answer is not JSON" };
    else lost();
  } finally {
    e.asking = false;
    e.at = Date.now();
    changed();
  }
}

// problem reads an error of the API: { status, kind, message }.
async function problem(answer) {
  const body = await answer.json().catch(() => ({}));
  const said = body?.error ?? {};
  return { status: answer.status, kind: said.kind ?? said.type ?? "",
    message: said.message ?? `the server answered with status ${answer.status}` };
}

function reached() {
  if (!link.lostAt) return;
  Object.assign(link, { lostAt: 0, retryAt: 0, tries: 0 });
  for (const e of entries.values()) e.hinted = true;
}

function lost() {
  const now = Date.now();
  if (link.lostAt && now < link.retryAt) return; // another request of the same try
  link.lostAt ||= now;
  link.tries++;
  link.retryAt = now + Math.min(15_000, 1000 * 2 ** (link.tries - 1));
}

// send calls the API to change something, and returns its answer; null without one. It throws what
// the API says against it, as problem has it. It waits so many seconds for the answer.
export async function send(method, path, body, seconds = 120) {
  let answer;
  try {
    answer = await fetch(path, { method, cache: "no-store", signal: AbortSignal.timeout(1000 * seconds),
      headers: { Accept: "application/json", ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body) });
  } catch {
    throw { status: 0, message: "the server does not answer: try again when it does" };
  }
  if (answer.status === 401 && path !== "/v1/session") signedOut();
  if (!answer.ok) throw await problem(answer);
  return answer.status === 204 ? null : answer.json();
}
