// Plots of numbers over time, as SVG, with the numbers in a table beneath.
import { html, svg, nothing } from "./vendor/lit-html-3.3.3/lit-html.js";
import { compact, duration, figure } from "./format.js";

const narrow = matchMedia("(max-width: 700px)");

// onResize calls back when plots have to be drawn for another width.
export const onResize = (callback) => narrow.addEventListener("change", callback);

const most = 120; // rows of a table

// seconds are round distances on an axis of time.
const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

// plot draws lines over the seconds since the start. A line is { name, values: [{ x, y }] }, in order of
// x; a y that is not a number leaves a gap. across says what x is: how it is rendered, and its name.
export function plot(title, lines, across = { name: "time", render: duration, sizes: seconds }) {
  const points = lines.flatMap((l) => l.values).filter((v) => Number.isFinite(v.y));
  if (points.length < 2) return html`<figure class="plot"><figcaption>${title}</figcaption>
    <p class="empty">There are too few points yet.</p></figure>`;
  const box = { width: narrow.matches ? 340 : 420, height: 180, left: 46, right: 12, top: 10, bottom: 24 };
  const from = Math.min(...points.map((v) => v.x));
  const to = Math.max(...points.map((v) => v.x), from + 1e-9);
  const down = steps(Math.min(0, ...points.map((v) => v.y)), Math.max(...points.map((v) => v.y)), 4);
  const right = steps(from, to, narrow.matches ? 3 : 4, across.sizes).filter((v) => v >= from && v <= to);
  const x = (v) => box.left + (box.width - box.left - box.right) * (v - from) / (to - from);
  const y = (v) => box.height - box.bottom - (box.height - box.top - box.bottom) * (v - down[0]) / (down.at(-1) - down[0]);
  const last = lines.map((l) => `${l.name} ${figure(l.values.findLast((v) => Number.isFinite(v.y))?.y)}`).join(", ");
  return html`<figure class="plot">
    <figcaption>${title}${lines.length > 1 ? lines.map((l, n) => html`<span class="legend"><svg viewBox="0 0 24 8" aria-hidden="true">
      <path class="line m${n}" d="M0 4H24"/></svg>${l.name}</span>`) : nothing}</figcaption>
    <svg viewBox="0 0 ${box.width} ${box.height}" role="img" aria-label="${title}. Last: ${last}.">
      ${down.map((v) => svg`<path class="grid" d="M${box.left} ${y(v)}H${box.width - box.right}"/>
        <text x=${box.left - 6} y=${y(v) + 4} text-anchor="end">${compactFigure(v)}</text>`)}
      ${right.map((v) => svg`<text x=${x(v)} y=${box.height - 6} text-anchor=${anchor(v, from, to)}>${across.render(v)}</text>`)}
      ${lines.map((l, n) => svg`${n === 0 && lines.length === 1 ? svg`<path class="area m0" d=${area(l.values, x, y, y(down[0]))}/>` : nothing}
        <path class="line m${n}" d=${path(l.values, x, y)}/>`)}
    </svg>
    <details><summary>Numbers of “${title}”</summary><div class="wide" role="region" tabindex="0" aria-label=${title}>
      <table><thead><tr><th scope="col">${across.name}</th>
        ${lines.map((l) => html`<th scope="col" class="n">${l.name}</th>`)}</tr></thead>
      <tbody>${rows(lines).map(([at, ...values]) => html`<tr><th scope="row">${across.render(at)}</th>
        ${values.map((v) => html`<td class="n">${figure(v)}</td>`)}</tr>`)}</tbody></table></div></details>
  </figure>`;
}

// compactFigure keeps the labels of an axis short.
const compactFigure = (v) => (Math.abs(v) >= 10_000 ? compact(v) : figure(v));

const anchor = (v, from, to) => (v - from < (to - from) * 0.04 ? "start" : to - v < (to - from) * 0.06 ? "end" : "middle");

// steps returns about n numbers that cover from and to, at a round distance: one of sizes if one is
// large enough.
function steps(from, to, n, sizes = []) {
  if (!(to > from)) to = from + 1;
  const raw = (to - from) / n;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = sizes.find((s) => s >= raw && raw > sizes[0] / 2) ?? size * [1, 2, 5, 10].find((m) => m * size >= raw * 0.999);
  const out = [];
  for (let v = Math.floor(from / step); v < Math.ceil(to / step) + 0.5; v++) out.push(v * step);
  return out.length > 1 ? out : [from, to];
}

// path is the line through values, broken at gaps.
function path(values, x, y) {
  let pen = "M";
  let d = "";
  for (const v of values) {
    if (!Number.isFinite(v.y)) {
      pen = "M";
      continue;
    }
    d += `${pen}${x(v.x).toFixed(1)} ${y(v.y).toFixed(1)}`;
    pen = "L";
  }
  return d;
}

// area is what is beneath a line without gaps; "" for one with gaps.
function area(values, x, y, bottom) {
  if (values.length < 2 || values.some((v) => !Number.isFinite(v.y))) return "";
  return `${path(values, x, y)}L${x(values.at(-1).x).toFixed(1)} ${bottom}L${x(values[0].x).toFixed(1)} ${bottom}Z`;
}

// rows are the values of all lines by x, thinned to the most that a table has.
function rows(lines) {
  const all = new Map();
  lines.forEach((l, n) => {
    for (const v of l.values) {
      if (!all.has(v.x)) all.set(v.x, [v.x, ...lines.map(() => null)]);
      all.get(v.x)[n + 1] = v.y;
    }
  });
  const sorted = [...all.values()].sort((a, b) => a[0] - b[0]);
  const every = Math.ceil(sorted.length / most);
  return sorted.filter((_, n) => n % every === 0 || n === sorted.length - 1);
}
