// The difference of two texts by lines.

const most = 400; // lines of each text that are compared; more are shown as removed and added

// diff returns [mark, line] for each line: " " in both, "-" only before, "+" only after.
export function diff(before, after) {
  const a = before === "" ? [] : before.split("\n");
  const b = after === "" ? [] : after.split("\n");
  if (a.length > most || b.length > most) return [...a.map((l) => ["-", l]), ...b.map((l) => ["+", l])];
  // longest[i][j] is the length of the longest common subsequence of a from i and b from j.
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const out = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push([" ", a[i++]]);
      j++;
    } else if (i < a.length && (j === b.length || longest[i + 1][j] >= longest[i][j + 1])) out.push(["-", a[i++]]);
    else out.push(["+", b[j++]]);
  }
  return out;
}
