// Unpack the events into columns, search them, and write their values as text. Times are in nanoseconds.

const byId = (id) => document.getElementById(id);

/** The header and the columns that timeline_page.py has packed; NaN where a value is unknown. */
async function unpack(text) {
  const letters = atob(text), zipped = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) zipped[i] = letters.charCodeAt(i);
  const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let at = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)));
  const count = header.rows.flatMap((row) => row.lanes).reduce((sum, many) => sum + many, 0);
  const columns = {};
  for (const [name, [low, planes]] of Object.entries(header.columns)) {
    const values = new Float64Array(count);
    for (let plane = 0, weight = 1; plane < planes; plane++, weight *= 256) {
      for (let i = 0; i < count; i++) values[i] += weight * bytes[at++];
    }
    for (let i = 0; i < count; i++) values[i] = values[i] === 0 ? NaN : values[i] - 1 + low;
    columns[name] = values;
  }
  return { header, columns, count };
}

const { header, columns, count } = await unpack(byId("data").textContent);
byId("data").remove();
const start = new Float64Array(count), end = new Float64Array(count), names = new Int32Array(count);
const { delay = start, call = start, bytes = start, stream = start } = columns;

// Rows have lanes, whose events do not overlap: from `first` up to, not including, `last`.
let low = Infinity, high = -Infinity;
let next = 0;
const rows = header.rows.map((row) => ({
  ...row,
  lanes: row.lanes.map((many) => {
    const lane = { first: next, last: next + many };
    for (let free = 0; next < lane.last; next++) {
      start[next] = free + columns.gap[next];
      free = end[next] = start[next] + columns.duration[next];
      names[next] = columns.name[next];
      if (start[next] < low) low = start[next];
      if (free > high) high = free;
    }
    return lane;
  }),
}));
if (!count) [low, high] = [0, 1];
rows.forEach((row) => (row.gpu = row.kind !== "thread"));
const firstOfRow = rows.map((row) => row.lanes[0].first);

/** The row of an event. */
function rowOf(event) {
  let left = 0, right = rows.length;
  while (right - left > 1) {
    const middle = (left + right) >> 1;
    if (firstOfRow[middle] <= event) left = middle;
    else right = middle;
  }
  return rows[left];
}
const laneOf = (event) => rowOf(event).lanes.findIndex((lane) => event < lane.last);

const fullName = (event) => [header.names[names[event]]].flat()[0];
const shortName = (event) => [header.names[names[event]]].flat().at(-1);
const category = (event) => header.categories[header.kinds[names[event]]];

// The CPU call of each number, and the first activity that it launches.
const numberOfCalls = call.reduce((most, value) => (value >= most ? value + 1 : most), 0);
const caller = new Int32Array(numberOfCalls).fill(-1), launched = new Int32Array(numberOfCalls).fill(-1);
for (const row of rows) {
  const firstEvents = row.gpu ? launched : caller;
  for (let i = row.lanes[0].first; i < row.lanes.at(-1).last; i++) {
    if (call[i] >= 0 && (firstEvents[call[i]] < 0 || start[i] < start[firstEvents[call[i]]])) firstEvents[call[i]] = i;
  }
}
/** The call that launched an activity, or the activity that a call launched; -1 if there is none. */
const partner = (event) => (call[event] >= 0 ? (rowOf(event).gpu ? caller : launched)[call[event]] : -1);

/** The first event of a lane that ends after a time; the lane's end if there is none. */
function firstEndingAfter({ first, last }, time) {
  while (first < last) {
    const middle = (first + last) >> 1;
    if (end[middle] > time) last = middle;
    else first = middle + 1;
  }
  return first;
}

/** The events whose name contains a text, in the order of time; `isMatch` has a 1 for each matching name. */
function findMatches(text) {
  const wanted = text.trim().toLowerCase();
  const isMatch = new Uint8Array(header.names.length);
  if (!wanted) return { isActive: false, isMatch, events: [] };
  header.names.forEach((name, n) => {
    isMatch[n] = [name].flat().some((each) => each.toLowerCase().includes(wanted)) ? 1 : 0;
  });
  const events = [];
  for (const row of rows) {
    if (row.kind === "idle") continue; // its names are causes
    for (let i = row.lanes[0].first; i < row.lanes.at(-1).last; i++) if (isMatch[names[i]]) events.push(i);
  }
  return { isActive: true, isMatch, events: events.sort((a, b) => start[a] - start[b] || a - b) };
}

// --- Text --------------------------------------------------------------------------------------------

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const significant = (value) => (value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3))));

/** `11600000` -> `11.6 ms`, as units.py writes times. */
function duration(nanoseconds) {
  const [factor, unit] = UNITS.find(([factor]) => Math.abs(nanoseconds) >= factor * 0.9995) ?? UNITS[3];
  return `${nanoseconds < 0 ? "−" : ""}${significant(Math.abs(nanoseconds) / factor)} ${unit}`;
}

/** A point in time in a unit, with the decimals that a step between such points needs. */
function instant(nanoseconds, step) {
  const [factor, unit] = UNITS.find(([factor]) => step >= factor) ?? UNITS[3];
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9));
  return `${(nanoseconds / factor).toFixed(decimals).replace("-", "−")} ${unit}`;
}

function bytesText(value) {
  const power = Math.max(0, Math.min(5, Math.floor(Math.log10(Math.max(value, 1) * 1.0005) / 3)));
  return `${significant(value / 1000 ** power)} ${["", "k", "M", "G", "T", "P"][power]}B`;
}

/** What is known of an event: pairs of title and text. */
function facts(event) {
  const row = rowOf(event), pairs = [["duration", duration(end[event] - start[event])]];
  pairs.push(["start", instant(start[event], start[event] < 1e9 ? 1e3 : 1e5)]);
  if (!Number.isNaN(delay[event]) && row.gpu) pairs.push(["launch to start", duration(delay[event])]);
  if (bytes[event] >= 0) {
    pairs.push(["size", bytesText(bytes[event])]);
    const length = end[event] - start[event];
    if (length > 0) pairs.push(["rate", `${bytesText((bytes[event] / length) * 1e9)}/s`]);
  }
  if (row.kind === "copies" && stream[event] >= 0) pairs.push(["stream", header.names[stream[event]]]);
  pairs.push(["row", `${row.label}, ${header.sections[row.section]}`]);
  if (row.kind !== "idle" && row.kind !== "steps") pairs.push(["kind", category(event)]);
  return pairs;
}

const title = (event) => (rowOf(event).kind === "idle" ? `GPU idle: ${header.causes[fullName(event)][0]}` : fullName(event));
