// Routes are in the address after "#", so that a reload, a bookmark and the back button lead to the
// same view on every server of files.
//
//   #/                             the runs; ?after= a run, ?phase=
//   #/runs/ID                      a run; ?trials= the number of the first task of its grid
//   #/runs/ID/items                its items; ?after= ?class= ?finish_reason= ?min_score= ?max_score= ?q=
//   #/runs/ID/items/INDEX          an item
//   #/machines                     workers, servers and machines
//   #/files/ID                     the dry run of an uploaded file; ?name= the file's

// current returns the route of the address: its parts and its query.
export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

// decode reads a part of an address. One that is not encoded well stays as it is.
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// to returns the address of a route. Values of the query that are empty are left out.
export function to(parts, query = {}) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") q.set(name, value);
  }
  const tail = q.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${tail ? `?${tail}` : ""}`;
}

// go shows another route; replace leaves no entry for the back button.
export function go(address, { replace = false } = {}) {
  if (replace) location.replace(address);
  else location.assign(address);
}
