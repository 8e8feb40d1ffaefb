// Signing in with the token of the API, which the server keeps as a cookie that scripts can't read.
import { html, nothing } from "../vendor/lit-html-3.3.3/lit-html.js";
import { send } from "../data.js";
import { problem } from "../parts.js";
import { update } from "../state.js";

let error = null;
let busy = false;

// signIn is the form that stands instead of every view; done is called when the server took the token.
export function signIn(done) {
  return html`<div class="signin card"><h1 tabindex="-1">Sign in</h1>
    <p>This installation wants the token of its API (<code>ROLLOUT_SECRET_API_TOKEN</code>, or the secret <code>api-token</code>).</p>
    <form @submit=${(e) => { e.preventDefault(); enter(e.target, done); }}>
      <label class="field">Token <input name="token" type="password" autocomplete="current-password" required></label>
      ${error ? problem(error) : nothing}
      <div class="actions"><button type="submit" class="first" ?disabled=${busy}>Sign in</button></div></form></div>`;
}

async function enter(form, done) {
  busy = true;
  error = null;
  update();
  try {
    await send("POST", "/v1/session", { token: form.elements.token.value });
    form.reset();
    done();
  } catch (e) {
    error = e.status === 401 ? { message: "this is not the token" } : e;
  } finally {
    busy = false;
    update();
  }
}
