// Numbers, times and names as people read them. Numbers follow the browser's language.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const two = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const share = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });
const money = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD" });
const cents = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", maximumSignificantDigits: 2 });
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const ago = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

export const unknown = "–";

const known = (n) => typeof n === "number" && Number.isFinite(n);

export const count = (n) => (known(n) ? whole.format(n) : unknown);
export const compact = (n) => (known(n) ? (Math.abs(n) < 10_000 ? whole : short).format(n) : unknown);
export const figure = (n) => (known(n) ? (Math.abs(n) >= 1000 ? whole : two).format(n) : unknown);
export const percent = (part, all) => (known(part) && all > 0 ? share.format(part / all) : unknown);
export const dollars = (n) => (known(n) ? (n !== 0 && Math.abs(n) < 0.995 ? cents : money).format(n) : unknown);
export const rate = (n) => (known(n) ? `${figure(n)}/s` : unknown);

// bytes renders a size. Example: "1.4 MB".
export function bytes(n) {
  if (!known(n)) return unknown;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return `${figure(n)} ${unit}`;
    n /= 1000;
  }
  return `${figure(n)} TB`;
}

// duration renders seconds in at most two units. Example: "4m 10s".
export function duration(seconds) {
  if (!known(seconds)) return unknown;
  if (seconds > 0 && seconds < 10) return `${two.format(seconds)}s`;
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [name, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    if (rest >= size && parts.length < 2) parts.push(`${Math.floor(rest / size)}${name}`);
    else if (parts.length) break;
    rest %= size;
  }
  return parts.join(" ") || "0s";
}

// time renders a time of the API. Example: "Mar 1, 2026, 12:00:00 PM".
export function time(text) {
  const at = new Date(text ?? NaN);
  return Number.isNaN(at.getTime()) ? unknown : clock.format(at);
}

// since renders how long ago a time of the API was. Example: "3 minutes ago".
export function since(text, now = Date.now()) {
  const seconds = (new Date(text ?? NaN).getTime() - now) / 1000;
  if (Number.isNaN(seconds)) return unknown;
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (Math.abs(seconds) >= size) return ago.format(Math.round(seconds / size), unit);
  }
  return ago.format(Math.round(seconds), "second");
}

// unseen are the characters that change how a name is shown without being seen: controls, and marks
// that turn the direction of writing.
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

// visible renders a name of the user's with unseen characters written out, so that two names that
// differ look different. Example: "a\u202eb".
export const visible = (name) => String(name ?? "").replace(unseen, escaped);

const escaped = (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;

// words renders a name of the API for people. Example: "completed with errors".
export const words = (name) => visible(name).replaceAll("_", " ");

// unsafe are those of a longer text: controls other than tabs and line ends, and what turns the direction of
// the text after it. Marks that scripts written from the right need are kept.
const unsafe = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

// printable renders a text of the user's, with its unsafe characters written out.
export const printable = (text) => String(text ?? "").replace(unsafe, escaped);
