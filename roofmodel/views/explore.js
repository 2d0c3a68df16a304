// What Python wrote down (study/explore.py) is evaluated here, and drawn. No formula of a cost or a time stands in this
// file: only what + and min mean, and how figures are shown.

const byId = (id) => document.getElementById(id);

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const data = await unpacked(byId("data").textContent);

// --- Numbers as Python has them: ints are BigInt, floats are Number, None is null and spreads ------------------------

const PYTHON = (() => {
  const floorDivide = (a, b) => (a - modulo(a, b)) / b;
  const modulo = (a, b) => {
    const rest = a % b;
    return rest !== 0n && rest < 0n !== b < 0n ? rest + b : rest;
  };
  const floatModulo = (a, b) => {
    const rest = a % b;
    return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
  };
  const floatFloorDivide = (a, b) => {  // as CPython does it: a / b may round up to the next whole number
    const quotient = (a - floatModulo(a, b)) / b, floor = Math.floor(quotient);
    return quotient - floor > 0.5 ? floor + 1 : floor;
  };
  const number = (x) => (typeof x === "boolean" ? BigInt(x) : x);
  const of = (ints, floats) => (a, b) => {
    a = number(a);
    b = number(b);
    return typeof a === "bigint" && typeof b === "bigint" ? ints(a, b) : floats(Number(a), Number(b));
  };
  return {
    "+": of((a, b) => a + b, (a, b) => a + b),
    "-": of((a, b) => a - b, (a, b) => a - b),
    "*": of((a, b) => a * b, (a, b) => a * b),
    "/": of((a, b) => Number(a) / Number(b), (a, b) => a / b),
    "//": of(floorDivide, floatFloorDivide),
    "%": of(modulo, floatModulo),
    "**": of((a, b) => (b < 0n ? Number(a) ** Number(b) : a ** b), (a, b) => a ** b),
    "<": (a, b) => a < b,  // exact, also of a BigInt and a Number
    "<=": (a, b) => a <= b,
    "==": (a, b) => a == b,
    min: (a, b) => (a <= b ? a : b),
    max: (a, b) => (a >= b ? a : b),
    neg: (a) => -number(a),
  };
})();

const figure = (value) => (typeof value === "string" ? BigInt(value) : value);  // ints travel as text

/** A book's nodes under given inputs, each evaluated once, and only if it is asked for. */
class Sheet {
  constructor(nodes, input) {
    this.nodes = nodes;
    this.input = input;
    this.values = new Array(nodes.length);
  }

  get(index) {
    const known = this.values[index];
    return known === undefined ? (this.values[index] = this.evaluate(this.nodes[index])) : known;
  }

  evaluate(node) {
    const [what, a, b, c] = node;
    if (what === "whole") return BigInt(a);
    if (what === "real" || what === "text") return a;
    if (what === "input") return this.input(a);
    if (what === "if") {
      const condition = this.get(a);
      return condition === null ? null : this.get(condition ? b : c);
    }
    const rule = PYTHON[what];
    if (rule !== undefined) {
      const left = this.get(a), right = b === undefined ? undefined : this.get(b);
      return left === null || right === null ? null : rule(left, right);
    }
    if (what === "bytes") return called(`bytes|${this.input(`format|${this.get(a)}`)}`, [this.get(b)]);
    return called(what, node.slice(1).map((index) => this.get(index)));
  }

  /** What of a fork its condition picks; a fork that is none is itself. */
  pick(cases) {
    while (cases !== null && typeof cases === "object" && "if" in cases) cases = this.get(cases.if) ? cases.yes : cases.no;
    return cases;
  }

  /** Data with every formula in it replaced by its value. */
  fill(value) {
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map((one) => this.fill(one));
    if ("$" in value) return this.get(value.$);
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, this.fill(one)]));
  }
}

function called(name, values) {
  if (values.includes(null)) return null;
  const formula = data.formulas[name];
  const sheet = new Sheet(formula.nodes, (parameter) => values[parameter]);
  return sheet.fill(sheet.pick(formula.result));
}

// --- The situation: what the controls, and the address, say ----------------------------------------------------------

const LENGTHS = ["batch", "seq", "decoder_seq", "context"];
const CHOICES = ["phase", "attention", "runtime"];
const LONGEST = 10 ** 9;
const complaints = [];
let state = {};

const model = () => data.models.find((one) => one.name === state.model);
const device = () => data.devices.find((one) => one.id === state.hw);
const phase = () => model().phases[state.phase];
const lengths = () => ["batch", ...phase().lengths];

/** The formats that may be chosen for a role here and now; "" stands for that of dtype. */
function formats(role) {
  const wide = (name) => data.formats[name].bits >= phase().least_bits;
  if (role === "dtype") return Object.keys(device().pipes).filter(wide);
  return ["", ...Object.keys(data.formats).filter((name) => role === "kv" || wide(name))];
}

function options(key) {
  if (key === "model") return data.models.map((one) => one.name);
  if (key === "hw") return data.devices.map((one) => one.id);
  if (key === "phase") return Object.keys(model().phases);
  if (key === "attention") return model().attentions;
  if (key === "runtime") return ["eager", "graph"];
  return formats(key);
}

function usual(key) {
  if (key === "batch") return 1;
  if (key === "context") return state.phase === "decode" ? model().lengths.context : 0;
  if (LENGTHS.includes(key)) return model().lengths[key];
  if (key === "phase" && "decode" in model().phases) return "decode";
  if (key === "dtype" && formats("dtype").includes("fp16")) return "fp16";
  return options(key)[0];
}

/** Takes a situation over; what cannot be is replaced by what is usual, and said. */
function settle(wanted) {
  const previous = state;
  complaints.length = 0;
  state = {};
  for (const key of ["model", "hw", ...CHOICES, "dtype", "weights", "kv"]) {
    const asked = wanted[key] ?? previous[key];
    const known = options(key);
    state[key] = known.includes(asked) ? asked : usual(key);
    if (wanted[key] !== undefined && asked !== state[key] && asked !== "") {
      complaints.push(`${key} ${asked}: not here; ${known.filter(Boolean).join(", ")} are. Shown is ${state[key] || state.dtype}.`);
    } else if (asked && asked !== state[key] && ["dtype", "weights"].includes(key)) {
      complaints.push(`${key} ${asked} is not possible for ${state.phase} on ${device().name}: shown is ${state[key] || state.dtype}.`);
    }
  }
  const moved = previous.model !== state.model || previous.phase !== state.phase;
  for (const key of LENGTHS) {
    const least = key === "context" ? 0 : 1;
    const text = wanted[key] ?? (moved && key === "context" ? undefined : previous[key]) ?? usual(key);
    const value = Number(text);
    if (Number.isInteger(value) && value >= least && value <= LONGEST && String(text).trim() !== "") {
      state[key] = value;
    } else {
      state[key] = previous[key] ?? usual(key);
      complaints.push(`${key} ${text}: a whole number from ${least} to ${LONGEST} is wanted. Shown is ${state[key]}.`);
    }
  }
  state.theme = ["dark", "light"].includes(wanted.theme) ? wanted.theme : previous.theme;
}

/** The value of an input of the book. */
function input(name) {
  const [kind, ...keys] = name.split("|");
  if (LENGTHS.includes(kind)) return BigInt(state[kind]);
  const stored = (role) => (role === "dtype" ? state.dtype : state[role] || state.dtype);
  if (kind === "format") return stored(keys[0]);
  if (kind === "bits") return BigInt(data.formats[stored(keys[0])].bits);
  if (kind === "device") {
    const [field] = keys, pipes = device().pipes[state.dtype];
    if (field === "vector") return pipes.vector === null ? Infinity : figure(pipes.vector);  // no roof at all
    return figure(field === "matmul" ? pipes.matmul : device()[field]);
  }
  const [set, implementation, role, field] = keys;
  const index = device().sets[`${set}|${implementation}|${role}`]?.[state.dtype][stored(role.split("/")[0])] ?? null;
  return index === null ? null : figure(data.sets[index][field]);
}

/** The situation's numbers: a sheet, and the part of the document that it fills. */
function current() {
  const sheet = new Sheet(data.nodes, input);
  return { sheet, told: sheet.pick(model().situations[`${state.phase} ${state.attention} ${state.runtime}`]) };
}

/** What `roof estimate --format json` says of the phase and of memory. */
function estimate() {
  const { sheet, told } = current();
  return sheet.fill({ ...told, ops: told.ops.map((row) => data.rows[row]) });
}

// --- Figures as people read them (as units.py writes them) -----------------------------------------------------------

const DECIMAL = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
const BINARY = [["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 2 ** 10]];

function significant(value, digits = 3) {
  const text = value.toPrecision(digits);
  return text.includes("e+") ? Number(text).toFixed(0) : text.includes("e-") ? String(Number(text)) :
    text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function si(value, unit = "", digits = 3) {
  const x = Number(value);
  const [prefix, factor] = DECIMAL.find(([, size]) => Math.abs(x) >= size * (1 - 0.5 * 10 ** -digits)) ?? ["", 1];
  return `${significant(x / factor, digits)} ${prefix}${unit}`.trimEnd();
}

function seconds(value) {
  if (value === null) return "not known";
  const x = Number(value);
  const [factor, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]].find(([size]) => x >= size * 0.9995) ?? [1e-9, "ns"];
  return `${significant(x / factor)} ${unit}`;
}

function binary(value) {
  const x = Number(value);
  const [prefix, factor] = BINARY.find(([, size]) => x >= size) ?? ["", 1];
  return `${significant(x / factor)} ${prefix}B`;
}

const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, " ");
const percent = (part) => `${(100 * part).toFixed(part < 0.0995 && part > 0 ? 1 : 0)} %`;
const range = (low, high) => `${seconds(low)} to ${seconds(high)}`;

// --- The page: everything is put in as text --------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

function fillIn(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(node.style, value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const html = (name, attributes = {}, ...children) => fillIn(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fillIn(document.createElementNS(SVG, name), attributes, children);
const cell = (text, word = false) => html("td", word ? { class: "word" } : {}, text);

let shown = null;  // the operator whose formula is read, by its place in the list
let held = false;  // whether a click or Enter holds it
let operators = [];

function draw() {
  const { sheet, told } = current();
  operators = told.ops.map((row) => sheet.fill(data.rows[row]));
  const { ops, ...rest } = told, totals = sheet.fill(rest);
  const known = totals.totals.expected_seconds !== null;
  const time = (op) => (known ? op.all_expected_seconds : op.all_bound_seconds);
  const all = operators.reduce((sum, op) => sum + time(op), 0);
  for (const op of operators) op.share = time(op) / all;
  if (shown === null || shown >= operators.length) {
    shown = operators.reduce((best, op, n) => (op.share > operators[best].share ? n : best), 0);
    held = false;
  }
  byId("heading").textContent = `${model().name} on ${device().name}`;
  byId("situation").textContent = inWords(totals);
  drawComplaints();
  drawFigures(totals);
  drawRoofline(totals);
  drawBars(totals);
  drawTable(known);
  drawNotes(totals);
  show(shown);
}

function inWords(totals) {
  const image = model().image, each = state.batch === 1 ? "1 sequence" : `${grouped(state.batch)} sequences`;
  const work = image !== null ? `${grouped(state.batch)} × an image of ${image.join(" × ")} pixels`
    : `${each} × ${grouped(totals.tokens)} new token${totals.tokens == 1 ? "" : "s"}`;
  const after = totals.context > 0 ? ` after ${grouped(totals.context)} in the cache` : "";
  const source = phase().lengths.includes("decoder_seq") || (model().lengths.seq && phase().lengths[0] === "seq"
    && state.phase === "decode") ? `, source of ${grouped(state.seq)} tokens` : "";
  const stored = ["weights", "kv"].filter((role) => state[role]).map((role) => `, ${role === "kv" ? "KV cache" : role} ${state[role]}`);
  return `${state.phase}: ${work}${after}${source}; ${state.dtype}${stored.join("")}, ${state.attention} attention, `
    + `${state.runtime} runtime. ${model().parameters}; ${device().parameters}.`;
}

function drawComplaints() {
  byId("complaint").hidden = complaints.length === 0;
  byId("complaint").textContent = complaints.join(" ");
}

/** The numbers that the back row reads. */
function drawFigures({ totals, memory }) {
  const memoryBound = operators.filter((op) => op.bound === "memory").reduce((sum, op) => sum + op.all_bound_seconds, 0);
  const part = memoryBound / totals.bound_seconds, images = totals.images_per_second !== undefined;
  const atMost = images ? totals.bound_images_per_second : totals.bound_tokens_per_second;
  const likely = images ? totals.images_per_second : totals.tokens_per_second;
  const unit = images ? "images/s" : "tokens/s", capacity = figure(device().capacity);
  const cards = [
    ["at least (bound)", seconds(totals.bound_seconds), `at most ${si(atMost)} ${unit}`, "bound"],
    ["expected", seconds(totals.expected_seconds), totals.expected_seconds === null ? device().parameters
      : `${range(totals.expected_low_seconds, totals.expected_high_seconds)}; ${si(likely)} ${unit}`
      + (totals.host_bound ? `; the host, which launches ${grouped(totals.kernels)} kernels, is what it waits for` : ""), "expected"],
    ["bound by", part > 0.5 ? "memory" : "compute",
      `memory binds ${percent(part)} of the time at the bound, compute ${percent(1 - part)}`, part > 0.5 ? "memory" : "compute"],
    ["memory", binary(memory.total), capacity === null ? "the device's is not known"
      : `of ${binary(capacity)}: ${memory.fits ? "fits" : "DOES NOT FIT"}`, memory.fits === false ? "alarm" : "fits"],
  ];
  byId("figures").replaceChildren(...cards.map(([name, value, rest, look]) => html("div", { class: `card ${look}` },
    html("span", { class: "name" }, name), html("strong", {}, value), html("span", { class: "rest" }, rest))));
}

// --- The roofline ----------------------------------------------------------------------------------------------------

const plane = { left: -2, right: 4.7, bottom: 9, top: 15 };
plane.top = Math.log10(Math.max(...data.devices.flatMap((one) => Object.values(one.pipes)).map((one) => Number(one.matmul)))) + 0.55;
let marks = new Map();
let places = [];

function drawRoofline({ whole }) {
  const picture = byId("roofline"), width = Math.max(picture.clientWidth, 280), height = Math.max(picture.clientHeight, 260);
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize), small = 0.8 * rem;
  const edge = { left: 5.6 * rem, right: 0.6 * rem, top: 0.6 * rem, bottom: 2.6 * rem };
  const x = (v) => edge.left + (clamp(Math.log10(v), plane.left, plane.right) - plane.left) / (plane.right - plane.left) * (width - edge.left - edge.right);
  const y = (v) => height - edge.bottom - (clamp(Math.log10(v), plane.bottom, plane.top) - plane.bottom) / (plane.top - plane.bottom) * (height - edge.top - edge.bottom);
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const back = layer(picture, "back"), front = layer(picture, "front");
  back.replaceChildren(...grid(x, y, width, height, edge, rem), ...roofs(x, y, small));

  // as many marks as there are operators with FLOPs, each kept while it moves
  places = [];
  const seen = new Set(), labels = [];
  const drawn = operators.map((op, n) => ({ op, n, key: `${op.name} ${op.stage} ${op.layers}` }))
    .filter(({ op }) => Number(op.intensity) > 0).sort((a, b) => b.op.share - a.op.share);
  for (const { op, n, key } of drawn) {
    const at = { n, x: x(op.intensity), bound: y(op.bound_flops_per_second) };
    at.expected = op.expected_flops_per_second === null ? null : y(op.expected_flops_per_second);
    at.r = Math.max(0.28 * rem, Math.sqrt(op.share) * 2.1 * rem);
    const mark = marks.get(key) ?? mark_(front);
    marks.set(key, mark);
    seen.add(key);
    place(mark, at, op.colour, n, rem);
    places.push(at);
    if (labels.length < 7 && op.share > 0.01) labels.push({ at, text: named(op) });
  }
  for (const [key, mark] of marks) {
    if (!seen.has(key)) {
      mark.group.remove();
      marks.delete(key);
    }
  }
  for (const { n, key } of [...drawn].reverse()) if (n !== shown) front.append(marks.get(key).group);
  layer(picture, "sums").replaceChildren(...diamond(x, y, whole, rem));
  layer(picture, "labels").replaceChildren(...lettering(labels, width, height - edge.bottom, small));
}

const clamp = (value, low, high) => Math.min(Math.max(Number.isNaN(value) ? low : value, low), high);
const named = (op) => (op.label.startsWith(op.of) || op.label.includes(op.of) ? op.label : `${op.of}: ${op.label}`);

function layer(picture, name) {
  return picture.querySelector(`.${name}`) ?? picture.appendChild(svg("g", { class: name }));
}

function grid(x, y, width, height, edge, rem) {
  const lines = [];
  for (let power = plane.left; power <= plane.right; power++) {
    const at = x(10 ** power);
    lines.push(svg("line", { x1: at, x2: at, y1: edge.top, y2: height - edge.bottom, class: "grid" }),
      svg("text", { x: at, y: height - edge.bottom + 1.1 * rem, class: "tick", "text-anchor": "middle" }, significant(10 ** power)));
  }
  for (let power = plane.bottom; power <= plane.top; power++) {
    const at = y(10 ** power);
    lines.push(svg("line", { x1: edge.left, x2: width - edge.right, y1: at, y2: at, class: "grid" }),
      svg("text", { x: edge.left - 0.3 * rem, y: at + 0.3 * rem, class: "tick", "text-anchor": "end" }, si(10 ** power, "FLOP/s")));
  }
  const middle = (edge.left + width - edge.right) / 2;
  lines.push(svg("text", { x: middle, y: height - 0.3 * rem, class: "tick", "text-anchor": "middle" }, "intensity: FLOP per byte"));
  return lines;
}

/** DRAM's slope, the pipe that multiplies, and the one for vector work. */
function roofs(x, y, small) {
  const pipes = device().pipes[state.dtype], bandwidth = Number(device().bandwidth), peak = Number(pipes.matmul);
  const low = 10 ** plane.left, high = 10 ** plane.right, ridge = peak / bandwidth;
  const start = Math.max(low, 10 ** plane.bottom / bandwidth);
  const slope = Math.atan2(y(ridge * bandwidth) - y(start * bandwidth), x(ridge) - x(start)) * 180 / Math.PI;
  const middle = start ** 0.72 * ridge ** 0.28;
  const lines = [
    svg("path", { class: "roof", d: `M${x(start)} ${y(start * bandwidth)}L${x(ridge)} ${y(peak)}L${x(high)} ${y(peak)}` }),
    svg("line", { class: "ridge", x1: x(ridge), x2: x(ridge), y1: y(peak), y2: y(10 ** plane.bottom) }),
    svg("text", { class: "roofname", x: x(high), y: y(peak) - 1.2 * small, "text-anchor": "end" }, `${pipes.matmul_name}  ${si(peak, "FLOP/s", 4)}`),
    svg("text", { class: "roofname", x: x(middle), y: y(middle * bandwidth) - 0.5 * small, "text-anchor": "middle",
      transform: `rotate(${slope} ${x(middle)} ${y(middle * bandwidth)})` }, `DRAM  ${si(bandwidth, "B/s", 4)}`),
    svg("text", { class: "tick", x: x(ridge) + 0.4 * small, y: y(10 ** plane.bottom) - 0.5 * small }, `ridge ${significant(ridge)} FLOP/B`),
  ];
  const vector = pipes.vector === null ? null : Number(pipes.vector);
  if (vector !== null && vector !== peak) {
    lines.push(svg("line", { class: "lower", x1: x(vector / bandwidth), x2: x(high), y1: y(vector), y2: y(vector) }),
      svg("text", { class: "tick", x: x(high), y: y(vector) - 0.4 * small, "text-anchor": "end" }, `vector work: ${pipes.vector_name}  ${si(vector, "FLOP/s", 4)}`));
  }
  return lines;
}

function mark_(front) {
  const mark = { stem: svg("line", { class: "stem" }), ring: svg("circle", { class: "ring" }), dot: svg("circle", { class: "dot" }) };
  mark.group = front.appendChild(svg("g", { class: "mark" }, mark.stem, mark.ring, mark.dot));
  return mark;
}

function place(mark, at, colour, n, rem) {
  const { group, stem, ring, dot } = mark, only = at.expected === null;
  group.style.transform = `translate(${at.x}px, ${at.bound}px)`;
  group.style.setProperty("--colour", colour);
  group.dataset.operator = n;
  const down = only ? 0 : at.expected - at.bound;
  stem.setAttribute("y2", down);
  ring.setAttribute("r", only ? at.r : 0.32 * rem);
  dot.setAttribute("r", only ? 0 : at.r);
  dot.style.transform = `translate(0, ${down}px)`;
}

function diamond(x, y, { intensity, bound_flops_per_second: bound, expected_flops_per_second: expected }, rem) {
  if (!(Number(intensity) > 0)) return [];
  const shape = (rate, look) => {
    const [cx, cy, r] = [x(intensity), y(rate), 0.75 * rem];
    return svg("path", { class: look, d: `M${cx} ${cy - r}L${cx + r} ${cy}L${cx} ${cy + r}L${cx - r} ${cy}Z` });
  };
  return [shape(bound, "whole bound"), ...(expected === null ? [] : [shape(expected, "whole")])];
}

/** Names of the largest marks, where they meet neither one another, nor large marks, nor the names of roofs. */
function lettering(labels, width, floor, size) {
  const taken = places.filter(({ r }) => r > size).map(({ x, bound, expected, r }) => (
    { left: x - r, right: x + r, top: (expected ?? bound) - r, bottom: (expected ?? bound) + r }));
  for (const name of byId("roofline").querySelectorAll(".back text:not([transform])")) {
    const box = name.getBBox();
    taken.push({ left: box.x, right: box.x + box.width, top: box.y, bottom: box.y + box.height });
  }
  const found = [];
  for (const { at, text } of labels) {
    const long = text.length * size * 0.55, centre = at.expected ?? at.bound;
    for (const [dx, dy, anchor] of [[at.r + 5, 0.35 * size, "start"], [-at.r - 5, 0.35 * size, "end"], [0, at.r + 1.1 * size, "middle"], [0, -at.r - 0.4 * size, "middle"]]) {
      const left = at.x + dx - (anchor === "end" ? long : anchor === "middle" ? long / 2 : 0), top = centre + dy - size;
      const box = { left, right: left + long, top, bottom: top + 1.25 * size };
      const free = box.left > 0 && box.right < width && box.bottom < floor && taken.every((b) => b.right < box.left || b.left > box.right || b.bottom < box.top || b.top > box.bottom);
      if (free) {
        taken.push(box);
        found.push(svg("text", { class: "label", x: at.x + dx, y: centre + dy, "text-anchor": anchor }, text));
        break;
      }
    }
  }
  return found;
}

// --- Bars: where the time goes, what fills the memory ----------------------------------------------------------------

const HELD = [["weights", "#0072B2"], ["kv_cache", "#E69F00"], ["activations", "#009E73"], ["gradients", "#CC79A7"], ["optimizer", "#D55E00"]];
const WORDS = { kv_cache: "KV cache", optimizer: "optimizer's state" };

function drawBars({ totals, memory }) {
  const groups = new Map();
  for (const op of operators) {
    const group = groups.get(op.of) ?? { name: op.of, colour: op.colour, bound: 0, expected: 0, ops: new Set() };
    group.bound += op.all_bound_seconds;
    group.expected += op.all_expected_seconds;
    group.ops.add(op);
    groups.set(op.of, group);
  }
  const parts = [...groups.values()].filter((group) => group.bound > 0);
  const of = (which) => parts.map((part) => ({ name: part.name, colour: part.colour, size: part[which], text: seconds(part[which]) }));
  const longest = Math.max(totals.bound_seconds, totals.expected_seconds ?? 0);
  const bars = [bar("at least", of("bound"), longest, seconds(totals.bound_seconds))];
  if (totals.expected_seconds !== null) {
    const running = parts.reduce((sum, part) => sum + part.expected, 0), waiting = totals.expected_seconds - running;
    const host = totals.host_bound ? [{ name: "the host, still launching", colour: "", size: waiting, text: seconds(waiting) }] : [];
    bars.push(bar("expected", [...of("expected"), ...host], longest, seconds(totals.expected_seconds)));
  }
  bars.push(legend(parts.map((part) => [part.name, part.colour])));
  const capacity = device().capacity === null ? 0 : Number(device().capacity), total = Number(memory.total);
  const held = HELD.map(([key, colour]) => ({ name: WORDS[key] ?? key, colour, size: Number(memory[key]), text: binary(memory[key]) }))
    .filter((part) => part.size > 0);
  const space = Math.max(capacity, total);
  const end = capacity ? html("span", { class: "capacity", style: { left: `${100 * capacity / space}%` }, title: `${binary(capacity)} there are` }) : null;
  bars.push(bar("memory", held, space, `${binary(total)}${capacity ? ` of ${binary(capacity)}` : ""}`, end),
    legend(held.map((part) => [`${part.name} ${part.text}`, part.colour])));
  byId("bars").replaceChildren(...bars);
}

/** Parts of a whole, as wide as they are large; each names itself where there is room. */
function bar(name, parts, whole, total, end = null) {
  const pieces = parts.map(({ name: part, colour, size, text }) => html("span", {
    class: colour ? "piece" : "piece waiting", title: `${part}: ${text}`,
    style: { width: `${100 * size / whole}%`, background: colour || "" },
  }, size / whole > 0.12 ? part : ""));
  return html("div", { class: "bar", role: "img", "aria-label": `${name}: ${total}; ${parts.map((p) => `${p.name} ${p.text}`).join(", ")}` },
    html("span", { class: "name" }, name), html("span", { class: "track" }, ...pieces, end), html("span", { class: "total" }, total));
}

function legend(parts) {
  return html("p", { class: "legend" }, ...parts.flatMap(([name, colour]) => [
    html("span", { class: "swatch", style: { background: colour } }), ` ${name}  `]));
}

// --- The table, and the formula of one operator ----------------------------------------------------------------------

function drawTable(known) {
  const stages = new Set(operators.map((op) => op.stage)).size > 1;
  byId("operators").tBodies[0].replaceChildren(...operators.map((op, n) => {
    const name = html("button", { type: "button", title: op.spec }, html("span", { class: "swatch", style: { background: op.colour } }),
      ` ${stages ? `${op.stage}: ` : ""}${named(op)}`);
    const row = html("tr", { "data-operator": n, "aria-current": n === shown ? "true" : null },
      html("th", { scope: "row", class: "word" }, name), cell(grouped(op.count)),
      cell(si(Number(op.matmul_flops) + Number(op.vector_flops))), cell(si(Number(op.bytes_read) + Number(op.bytes_written), "B")),
      cell(significant(Number(op.intensity))), cell(op.bound, true), cell(seconds(op.all_bound_seconds)),
      cell(known ? seconds(op.all_expected_seconds) : "–"), cell(percent(op.share)));
    row.classList.toggle("compute", op.bound === "compute");
    return row;
  }));
}

function drawNotes(totals) {
  const limit = model().limits.positions, reach = Number(totals.context) + Number(totals.tokens);
  const notes = [...model().notes];
  if (limit !== null && reach > limit) {
    notes.unshift(`${state.phase} reaches ${grouped(reach)} tokens, but ${model().name} has positions for ${grouped(limit)}; counted as if it had more.`);
  }
  byId("notes").replaceChildren(...notes.map((note) => html("li", {}, note)));
}

const times = (factors) => factors.join(" · ");
const bytesOf = (op) => Number(op.bytes_read) + Number(op.bytes_written);
const flopsOf = (op) => Number(op.matmul_flops) + Number(op.vector_flops);

/** The FLOPs of an operator's products: letters, and today's numbers. */
function products(op) {
  return {
    letters: op.products.map((axes) => times(["2", ...axes.map(([letter]) => letter)])).join(" + "),
    numbers: op.products.map((axes) => times(["2", ...axes.map(([, size]) => size_(size))])).join(" + "),
  };
}

const size_ = (size) => (typeof size === "bigint" || Number.isInteger(size) ? grouped(size) : significant(Number(size), 4));

function show(n) {
  const changed = shown !== n;
  shown = n;
  const op = operators[n];
  for (const row of byId("operators").tBodies[0].rows) {
    if (Number(row.dataset.operator) === n) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
  for (const [, mark] of marks) mark.group.classList.toggle("shown", Number(mark.group.dataset.operator) === n);
  byId("details").replaceChildren(...formula(op));
  if (changed) byId("details").scrollTop = 0;
}

function formula(op) {
  const pipes = device().pipes[state.dtype], { letters, numbers } = products(op), exact = (x) => (typeof x === "bigint" ? ` = ${grouped(x)}` : "");
  const letterMeanings = new Map([...op.products.flat(), ...op.tensors.flatMap((tensor) => tensor.axes)]);
  const lines = [html("h2", {}, html("span", { class: "swatch", style: { background: op.colour } }), ` ${named(op)}`), html("code", { class: "spec" }, op.spec)];
  const line = (name, ...content) => lines.push(html("div", { class: "line" }, html("span", { class: "name" }, name), html("span", {}, ...content)));
  if (letters) line("FLOPs", html("code", {}, letters), html("br"), `= ${numbers}${exact(op.matmul_flops)}`, html("br"), html("strong", {}, `= ${si(op.matmul_flops, "FLOP")}`));
  if (op.vector_flops > 0) line(letters ? "+ vector" : "FLOPs", `${si(op.vector_flops, "FLOP")} on the vector pipe${exact(op.vector_flops)}`);
  line("bytes", ...op.tensors.flatMap((tensor) => [html("code", {}, tensor.name), ` ${moved(tensor)}`, html("br")]), html("strong", {}, `= ${si(bytesOf(op), "B")}`));
  line("intensity", `${si(flopsOf(op), "FLOP")} ÷ ${si(bytesOf(op), "B")} = `, html("strong", {}, `${significant(Number(op.intensity))} FLOP/B`));
  const roofs_ = [["memory_seconds", `${si(bytesOf(op), "B")} ÷ ${si(device().bandwidth, "B/s", 4)}`], ["matmul_seconds", `${si(op.matmul_flops, "FLOP")} ÷ ${si(pipes.matmul, "FLOP/s", 4)}`],
    ["vector_seconds", `${si(op.vector_flops, "FLOP")} ÷ ${pipes.vector === null ? "∞" : si(pipes.vector, "FLOP/s", 4)}`]].filter(([key]) => op[key] > 0);
  line("at least", ...roofs_.flatMap(([key, text]) => [html(op[key] === op.bound_seconds ? "strong" : "span", {}, `${text} = ${seconds(op[key])}${op[key] === op.bound_seconds ? `  ← ${op.bound} binds` : ""}`), html("br")]),
    `× ${grouped(op.count)} = ${seconds(op.all_bound_seconds)}`);
  line("expected", op.expected_seconds === null ? device().parameters : `${seconds(op.expected_seconds)} (${range(op.expected_low_seconds, op.expected_high_seconds)}), × ${grouped(op.count)} = ${seconds(op.all_expected_seconds)}`);
  line("axes", ...[...letterMeanings].flatMap(([letter, size]) => [html("code", {}, letter), ` = ${size_(size)}: ${data.axes[letter]}`, html("br")]));
  return lines;
}

/** A tensor's bytes: its axes' sizes times the width of its role's format. */
function moved(tensor) {
  const format = ["dtype", "weights", "kv"].includes(tensor.role) ? input(`format|${tensor.role}`) : tensor.role;
  const sizes = times(tensor.axes.map(([, size]) => size_(size))) || "1";
  return `${tensor.way}: ${tensor.partly ? "what is needed of " : ""}${sizes} in ${format} = ${si(tensor.bytes, "B")}`;
}

/** The formula in short, beside the mark. */
function drawBeside(n, at) {
  const beside = byId("beside"), op = operators[n], { letters, numbers } = products(op);
  const box = byId("picture").getBoundingClientRect();
  beside.replaceChildren(
    html("strong", {}, named(op)),
    ...(letters ? [html("code", {}, letters), html("span", {}, `= ${numbers} = ${si(op.matmul_flops, "FLOP")}`)] : [html("code", {}, op.spec), html("span", {}, `${si(flopsOf(op), "FLOP")}`)]),
    html("span", {}, `÷ ${si(bytesOf(op), "B")} = ${significant(Number(op.intensity))} FLOP/B`),
    html("span", {}, `${op.bound} binds: at least ${seconds(op.bound_seconds)}${op.expected_seconds === null ? "" : `, expected ${seconds(op.expected_seconds)}`} × ${grouped(op.count)}`));
  beside.hidden = false;
  const right = at.x > box.width / 2, high = (at.expected ?? at.bound) > 150;
  beside.style.left = right ? "" : `${at.x + at.r + 12}px`;
  beside.style.right = right ? `${box.width - at.x + at.r + 12}px` : "";
  beside.style.top = high ? "" : `${(at.expected ?? at.bound) + 12}px`;
  beside.style.bottom = high ? `${box.height - (at.expected ?? at.bound) + 12}px` : "";
}

// --- Controls --------------------------------------------------------------------------------------------------------

/** Where a slider stops: powers of two and what lies between, up to the model's limit. */
function stops(key) {
  const limits = { batch: 1024, seq: model().limits.seq ?? 131072, decoder_seq: model().limits.positions ?? 131072, context: model().limits.positions ?? 131072 };
  const found = key === "context" ? [0] : [];
  for (let n = 1; n <= limits[key]; n *= 2) found.push(n, ...(n > 1 && 1.5 * n <= limits[key] ? [1.5 * n] : []));
  if (found.at(-1) !== limits[key]) found.push(limits[key]);
  return found;
}

const nearest = (found, value) => found.reduce((best, stop, n) => (Math.abs(Math.log((stop + 1) / (value + 1))) < Math.abs(Math.log((found[best] + 1) / (value + 1))) ? n : best), 0);

function drawControls() {
  const form = byId("controls");
  for (const select of form.querySelectorAll("select")) {
    const key = select.name, known = options(key), wanted = JSON.stringify(known);
    const names = { hw: (id) => data.devices.find((one) => one.id === id).name, weights: (name) => name || "same", kv: (name) => name || "same" };
    if (select.dataset.known !== wanted) {
      select.replaceChildren(...known.map((value) => html("option", { value }, (names[key] ?? String)(value))));
      select.dataset.known = wanted;
    }
    select.value = state[key];
  }
  form.querySelector("[data-cached]").hidden = !phase().cached;
  for (const field of form.querySelectorAll("[data-choice]")) {
    const key = field.dataset.choice, known = options(key);
    if (field.dataset.known !== known.join()) {
      for (const old of field.querySelectorAll("label")) old.remove();
      field.append(...known.map((value) => html("label", {}, html("input", { type: "radio", name: key, value }), html("span", {}, value))));
      field.dataset.known = known.join();
    }
    for (const radio of field.querySelectorAll("input")) radio.checked = radio.value === state[key];
    field.hidden = known.length < 2;
  }
  for (const label of form.querySelectorAll("[data-length]")) {
    const key = label.dataset.length, [slider, box] = label.querySelectorAll("input"), found = stops(key);
    label.hidden = !lengths().includes(key);
    slider.max = found.length - 1;
    slider.value = nearest(found, state[key]);
    slider.setAttribute("aria-label", key);
    slider.setAttribute("aria-valuetext", grouped(state[key]));
    if (document.activeElement !== box) box.value = state[key];
    box.setAttribute("aria-label", `${key}, exactly`);
  }
  const theme = state.theme ?? "";
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function address() {
  const kept = ["model", "hw", "phase", ...lengths(), "dtype", "weights", "kv", "attention", "runtime", "theme"];
  return new URLSearchParams(kept.filter((key) => state[key] !== undefined && state[key] !== "").map((key) => [key, state[key]])).toString();
}

/** Takes a change over and shows it. */
function move(change) {
  settle(change);
  drawControls();
  draw();
  byId("beside").hidden = true;
  history.replaceState(null, "", `#${address()}`);
}

function fromAddress() {
  const asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  state = {};
  move({ model: data.models[0].name, hw: data.devices[0].id, ...asked });
}

byId("controls").addEventListener("input", ({ target }) => {
  if (target.type === "range") {
    const key = target.parentNode.dataset.length;
    move({ [key]: stops(key)[target.value] });
  } else if (target.type !== "number") {
    move({ [target.name]: target.value });
  }
});
byId("controls").addEventListener("change", ({ target }) => {
  if (target.type !== "number") return;
  move({ [target.name]: target.value });
  target.value = state[target.name];
});
byId("controls").addEventListener("submit", (event) => event.preventDefault());

const dark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
byId("theme").addEventListener("click", () => move({ theme: dark() ? "light" : "dark" }));

const nearestPlace = ({ clientX, clientY }, reach) => {
  const box = byId("roofline").getBoundingClientRect(), [px, py] = [clientX - box.left, clientY - box.top];
  const far = (at) => Math.min(...[at.bound, at.expected].filter((y) => y !== null).map((y) => Math.hypot(at.x - px, y - py) - at.r));
  const best = places.reduce((found, at) => (found === null || far(at) < far(found) ? at : found), null);
  return best !== null && far(best) < reach ? best : null;
};
byId("roofline").addEventListener("pointermove", (event) => {
  const at = nearestPlace(event, 18);
  if (at === null) byId("beside").hidden = true;
  else {
    if (!held) show(at.n);
    drawBeside(at.n, at);
  }
});
byId("roofline").addEventListener("pointerleave", () => {
  byId("beside").hidden = true;
});
byId("roofline").addEventListener("click", (event) => {
  const at = nearestPlace(event, 24);
  held = at !== null;
  if (at !== null) {
    show(at.n);
    drawBeside(at.n, at);
  }
});
byId("roofline").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step !== undefined) {
    show((shown + step + operators.length) % operators.length);
    const at = places.find(({ n }) => n === shown);
    if (at === undefined) byId("beside").hidden = true;
    else drawBeside(shown, at);
    event.preventDefault();
  } else if (event.key === "Enter") held = true;
  else if (event.key === "Escape") {
    held = false;
    byId("beside").hidden = true;
  }
});
byId("operators").addEventListener("click", ({ target }) => {
  const row = target.closest("tr[data-operator]");
  if (row !== null) {
    held = true;
    show(Number(row.dataset.operator));
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey && !/^(input|select|textarea)$/i.test(event.target.tagName)) byId("theme").click();
});
addEventListener("hashchange", () => {
  if (location.hash.slice(1) !== address()) fromAddress();
});
new ResizeObserver(() => draw()).observe(byId("picture"));

// for tests, and for whoever wants the numbers
globalThis.roof = { move, estimate, state: () => ({ ...state }), complaints: () => [...complaints] };
fromAddress();
