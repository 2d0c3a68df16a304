// Draws the page: totals, roofline, bars, table, and the formula of one operator. Names come from configs of unknown
// authors, so everything is inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(node.style, value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const html = (name, attributes = {}, ...children) => build(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => build(document.createElementNS(SVG, name), attributes, children);
const cell = (text, look = "") => html("td", look ? { class: look } : {}, text);
const swatch = (color) => html("span", { class: "swatch", style: { background: color } });

let operators = []; // with the values for the current settings
let shown = null; // index of the operator whose formula is shown
let pinned = false; // set by a click or Enter: the pointer no longer changes `shown`

const bytesOf = (op) => Number(op.bytes_read) + Number(op.bytes_written);
const flopsOf = (op) => Number(op.matmul_flops) + Number(op.vector_flops);
const fullName = (op) => (op.label.includes(op.of) ? op.label : `${op.of}: ${op.label}`);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

function draw() {
  const { sheet, selected } = current();
  operators = selected.ops.map((row) => sheet.fill(data.rows[row]));
  const situation = sheet.fill({ ...selected, ops: [] });
  const all = sum(operators.map((op) => op.all_bound_seconds));
  for (const op of operators) op.share = op.all_bound_seconds / all;
  if (shown === null || shown >= operators.length) {
    shown = operators.reduce((best, op, n) => (op.share > operators[best].share ? n : best), 0);
    pinned = false;
  }
  byId("heading").textContent = `${model().name} on ${device().name}`;
  byId("situation").textContent = inWords(situation);
  byId("messages").textContent = messages.join(" ");
  byId("messages").hidden = messages.length === 0;
  byId("warning").textContent = [...positionWarnings(situation), ...linkWarnings()].join(" ");
  byId("warning").hidden = byId("warning").textContent === "";
  drawFigures(situation);
  drawRoofline(situation.whole);
  drawBars(situation);
  drawTable();
  byId("notes").replaceChildren(...model().notes.map((note) => html("li", {}, note)));
  show(shown);
}

function inWords({ tokens, context }) {
  const { parameters } = model(), plural = state.batch === 1 ? "" : "s";
  const image = phase().lengths.includes("image") ? [state.image, state.image] : model().image;
  const work = image === null
    ? `${grouped(state.batch)} sequence${plural} × ${grouped(tokens)} new token${Number(tokens) === 1 ? "" : "s"}`
    : `${grouped(state.batch)} image${plural} of ${image.join(" × ")} pixels`;
  const parts = [
    Number(context) > 0 ? ` after ${grouped(context)} cached tokens` : "",
    model().encodes ? `, source of ${grouped(state.seq)} tokens` : "",
    `; ${state.dtype}`,
    state.weights ? `, weights ${state.weights}` : "",
    state.kv && phase().cached ? `, KV cache ${state.kv}` : "",
    options("attention").length > 1 ? `, ${state.attention} attention` : "",
    options("mla").length > 1 ? `, latents ${state.mla === "absorbed" ? "absorbed" : "expanded"}` : "",
    state.logits ? `, logits of ${state.logits === "all" ? "all positions" : "the last position"}` : "",
    options("recompute").length > 1 ? `, ${state.recompute === "none" ? "no" : state.recompute} recomputation` : "",
    state.optimizer ? `, ${state.optimizer}` : "",
    `, ${state.engine}${sharing()}. ${parameters}; ${device().parameters}.`,
  ];
  return `${state.phase}: ${work}${parts.join("")}`;
}

/** Which of several GPUs is shown, and the links between them. */
function sharing() {
  if (gpus() === 1) return "";
  const ways = GPUS.filter((key) => state[key] > 1).map((key) => `${key} ${state[key]}`).join(", ");
  const rates = [...new Set(operators.filter((op) => op.link_seconds > 0).map(rate))];
  const rateText = rates.length === 0 ? "" : `, ${rates.join(" or ")} per direction between GPUs`;
  return `; one of ${grouped(gpus())} GPUs (${ways})${rateText}`;
}

/** Whether the operator runs in a kernel with others: its share of that kernel's time is less than its own bound. */
const isFused = (op) => op.expected_seconds !== null && op.expected_seconds < op.bound_seconds * (1 - 1e-9);

/** Why the expected time is unknown. */
function whyNotExpected() {
  const kinds = new Set(operators.filter((op) => op.expected_seconds === null).map((op) => op.kind));
  return Object.keys(device().sets).length === 0 ? device().parameters : `not calibrated for ${[...kinds].join(", ")}`;
}

/** The cards with the totals. */
function drawFigures({ totals, memory }) {
  const several = gpus() > 1, all = several ? ` on ${grouped(gpus())} GPUs` : "";
  const ceilings = ["memory", "compute", ...(several ? ["communication"] : [])];
  const shareOf = (ceiling) => sum(operators.filter((op) => op.bound === ceiling).map((op) => op.share));
  const largest = ceilings.reduce((best, ceiling) => (shareOf(ceiling) > shareOf(best) ? ceiling : best));
  const shares = ceilings.map((ceiling) => `${ceiling} ${percent(shareOf(ceiling))}`).join(", ");
  const what = model().image === null ? "tokens" : "images";
  const rate = (seconds) => `${si(totals[`${seconds}${what}_per_second`])} ${what}/s${all}`;
  const latency = { prefill: "TTFT, ", decode: "TPOT, " }[state.phase] ?? "";
  const host = totals.host_bound ? `; launch-bound: the host launches ${grouped(totals.kernels)} kernels` : "";
  const known = totals.expected_seconds !== null, capacity = figure(device().capacity);
  const cards = [
    ["bound", `${latency}bound`, seconds(totals.bound_seconds), `at most ${rate("bound_")}`],
    ["expected", `${latency}expected`, seconds(totals.expected_seconds), known
      ? `${seconds(totals.expected_low_seconds)} to ${seconds(totals.expected_high_seconds)}; ${rate("")}${host}`
      : whyNotExpected()],
    [largest, "bound by", largest, `share of the bound: ${shares}`],
    [memory.fits === false ? "alarm" : "fits", several ? "memory of each GPU" : "memory", binary(memory.total),
      capacity === null ? "device memory unknown"
        : `of ${usableText(capacity)}: ${memory.fits ? "fits" : "does not fit"}`],
  ];
  byId("figures").replaceChildren(...cards.map(([look, name, value, rest]) => html("div", { class: `card ${look}` },
    html("span", { class: "name" }, name), html("strong", {}, value), html("span", { class: "rest" }, rest))));
}

// --- The roofline ----------------------------------------------------------------------------------------------------

// axis limits as powers of ten; the same for all settings, so that changes of settings are visible
const peaks = data.devices.flatMap((entry) => Object.values(entry.pipes)).map((pipes) => Number(pipes.matmul));
const plane = { left: -2, right: 4.7, bottom: 9, top: Math.log10(Math.max(...peaks)) + 0.55 };
const marks = new Map(); // SVG elements by operator, reused so that marks move to their new positions
let places = []; // positions of marks in pixels

/** The current size of the picture in pixels. */
function pictureScale() {
  const picture = byId("roofline"), width = Math.max(picture.clientWidth, 280);
  const height = Math.max(picture.clientHeight, 260);
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const box = { left: 5.6 * rem, right: width - 0.6 * rem, top: 0.6 * rem, bottom: height - 2.6 * rem };
  const fraction = (value, low, high) => {
    const power = Math.log10(Number(value));
    return (Math.min(Math.max(Number.isNaN(power) ? low : power, low), high) - low) / (high - low);
  };
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return {
    rem, width, height, box, letter: 0.8 * rem,
    x: (intensity) => box.left + fraction(intensity, plane.left, plane.right) * (box.right - box.left),
    y: (rate) => box.bottom - fraction(rate, plane.bottom, plane.top) * (box.bottom - box.top),
  };
}

function layer(name) {
  const picture = byId("roofline");
  return picture.querySelector(`.${name}`) ?? picture.appendChild(svg("g", { class: name }));
}

function drawRoofline(whole) {
  const at = pictureScale();
  layer("back").replaceChildren(...axes(at), ...ceilings(at));
  drawMarks(at);
  nameSlope(at);
  layer("sums").replaceChildren(...diamonds(at, whole));
  const largest = places.filter(({ n }) => operators[n].share > 0.01).slice(0, 7);
  drawMarkNames(at, largest);
}

function axes({ x, y, box, height, rem }) {
  const text = (x1, y1, anchor, words) => svg("text", { x: x1, y: y1, class: "tick", "text-anchor": anchor }, words);
  const lines = [text((box.left + box.right) / 2, height - 0.3 * rem, "middle", "intensity: FLOP per byte")];
  for (let power = plane.left; power <= plane.right; power++) {
    const tickX = x(10 ** power);
    lines.push(svg("line", { x1: tickX, x2: tickX, y1: box.top, y2: box.bottom, class: "grid" }),
      text(tickX, box.bottom + 1.1 * rem, "middle", significant(10 ** power)));
  }
  for (let power = plane.bottom; power <= plane.top; power++) {
    const tickY = y(10 ** power);
    lines.push(svg("line", { x1: box.left, x2: box.right, y1: tickY, y2: tickY, class: "grid" }),
      text(box.left - 0.3 * rem, tickY + 0.3 * rem, "end", si(10 ** power, "FLOP/s")));
  }
  return lines;
}

/** The rates of the device, and the intensities between which its DRAM ceiling is drawn. */
function roof() {
  const pipes = device().pipes[state.dtype], bandwidth = Number(device().bandwidth), peak = Number(pipes.matmul);
  return { pipes, bandwidth, peak, ridge: peak / bandwidth,
    start: Math.max(10 ** plane.left, 10 ** plane.bottom / bandwidth) };
}

/** The name of the DRAM ceiling along its line, where the fewest marks cover it. */
function nameSlope({ x, y, rem, letter }) {
  const { bandwidth, peak, ridge, start } = roof();
  const angle = Math.atan2(y(peak) - y(start * bandwidth), x(ridge) - x(start)) * 180 / Math.PI;
  const words = `DRAM  ${si(bandwidth, "B/s", 4)}`;
  const name = layer("back").appendChild(svg("text", { class: "ceiling-name", "text-anchor": "middle" }, words));
  const parts = places.map(({ x: across, bound, expected, r }) => ({
    left: across - r, right: across + r, top: bound - (expected === null ? r : 0.32 * rem), bottom: (expected ?? bound) + r }));
  const covering = (part) => {
    const near = start ** (1 - part) * ridge ** part, at = [x(near), y(near * bandwidth)];
    const turned = { x: at[0], y: at[1] - 0.5 * letter, transform: `rotate(${angle} ${at.join(" ")})` };
    for (const [key, value] of Object.entries(turned)) name.setAttribute(key, value);
    return squaresAlong(name).filter((square) => !parts.every((other) => disjoint(other, square))).length;
  };
  const shares = [0.28, 0.45, 0.62, 0.78, 0.14];
  covering(shares.reduce((best, share) => (covering(share) < covering(best) ? share : best)));
}

/** The ceilings: DRAM bandwidth, the matmul pipe, and the pipe for vector work if it is another one. */
function ceilings({ x, y, box, letter }) {
  const { pipes, bandwidth, peak, ridge, start } = roof();
  const slope = (rate, intensity) => `${x(intensity)} ${y(rate)}`;
  const fits = x(ridge) + 11 * letter < box.right; // the name of the ridge point, to the right of its line
  const text = (attributes, words) => (
    svg("text", { class: "ceiling-name", "text-anchor": "end", ...attributes }, words));
  const lines = [
    svg("path", { class: "ceiling", d: `M${slope(start * bandwidth, start)}L${slope(peak, ridge)}H${box.right}` }),
    svg("line", { class: "ridge", x1: x(ridge), x2: x(ridge), y1: y(peak), y2: box.bottom }),
    text({ x: box.right, y: y(peak) - 1.2 * letter }, `${pipes.matmul_name}  ${si(peak, "FLOP/s", 4)}`),
    text({ x: x(ridge) + (fits ? 0.4 : -0.4) * letter, y: box.bottom - 0.5 * letter, class: "tick",
      "text-anchor": fits ? "start" : "end" }, `ridge ${significant(ridge)} FLOP/B`),
  ];
  const vector = Number(pipes.vector);
  if (pipes.vector !== null && vector !== peak) {
    lines.push(svg("line", { class: "lower", x1: x(vector / bandwidth), x2: box.right, y1: y(vector), y2: y(vector) }),
      text({ x: box.right, y: y(vector) - 0.4 * letter, class: "tick" },
        `vector work: ${pipes.vector_name}  ${si(vector, "FLOP/s", 4)}`));
  }
  return lines;
}

/** Operators with FLOPs, each with its bound and its expected rate; small ones are drawn on top. */
function drawMarks({ x, y, rem }) {
  const drawn = operators.map((op, n) => ({ op, n })).filter(({ op }) => Number(op.intensity) > 0)
    .sort((a, b) => b.op.share - a.op.share);
  places = drawn.map(({ op, n }) => ({
    n,
    x: x(op.intensity),
    bound: y(op.bound_flops_per_second),
    expected: op.expected_flops_per_second === null || isFused(op) ? null : y(op.expected_flops_per_second),
    r: Math.max(0.28 * rem, Math.sqrt(op.share) * 2.1 * rem), // the area is the share
  }));
  const removed = new Map(marks);
  for (const place of places) {
    const op = operators[place.n], key = `${op.name} ${op.stage} ${op.layers}`;
    const mark = marks.get(key) ?? newMark();
    marks.set(key, mark);
    removed.delete(key);
    placeMark(mark, place, op.color, rem);
    requestAnimationFrame(() => mark.group.classList.add("placed"));
  }
  for (const [key, mark] of removed) {
    mark.group.remove();
    marks.delete(key);
  }
}

function newMark() {
  const parts = { stem: svg("line", { class: "stem" }), ring: svg("circle", { class: "ring" }) };
  parts.dot = svg("circle", { class: "dot" });
  return { ...parts, group: layer("front").appendChild(svg("g", { class: "mark" }, ...Object.values(parts))) };
}

function placeMark({ group, stem, ring, dot }, { n, x, bound, expected, r }, color, rem) {
  const down = expected === null ? 0 : expected - bound;
  group.style.transform = `translate(${x}px, ${bound}px)`;
  group.style.setProperty("--color", color);
  group.dataset.operator = n;
  stem.setAttribute("y2", down);
  ring.setAttribute("r", expected === null ? r : 0.32 * rem);
  dot.setAttribute("r", expected === null ? 0 : r);
  dot.style.transform = `translate(0, ${down}px)`;
}

/** The whole phase: a hollow diamond at its bound, a filled one at its expected rate. */
function diamonds({ x, y, rem }, { intensity, bound_flops_per_second: bound, expected_flops_per_second: expected }) {
  const r = 0.75 * rem, rates = [["whole bound", bound], ["whole", expected]].filter(([, rate]) => Number(rate) > 0);
  return rates.map(([look, rate]) => svg("path",
    { class: look, d: `M${x(intensity)} ${y(rate) - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}Z` }));
}

const disjoint = (a, b) => a.right < b.left || a.left > b.right || a.bottom < b.top || a.top > b.bottom;

/** Boxes along a rotated text, as axes-parallel squares of its height. */
function squaresAlong(text) {
  const { x, y, width, height } = text.getBBox(), count = Math.ceil(2 * width / height);
  const { matrix } = text.transform.baseVal.consolidate();
  return Array.from({ length: count + 1 }, (_, n) => {
    const center = new DOMPoint(x + width * n / count, y + height / 2).matrixTransform(matrix);
    return { left: center.x - height / 2, right: center.x + height / 2, top: center.y - height / 2,
      bottom: center.y + height / 2 };
  });
}

/** Names of the largest marks, where they overlap no other name, large mark, diamond or name of a ceiling. */
function drawMarkNames({ box, letter }, largest) {
  const center = ({ bound, expected }) => expected ?? bound;
  const occupied = places.filter(({ r }) => r > letter).map((place) => (
    { left: place.x - place.r, right: place.x + place.r, top: center(place) - place.r,
      bottom: center(place) + place.r }));
  for (const name of byId("roofline").querySelectorAll(".back text:not([transform]), .sums path")) {
    const { x, y, width, height } = name.getBBox();
    occupied.push({ left: x, right: x + width, top: y, bottom: y + height });
  }
  for (const name of byId("roofline").querySelectorAll(".back text[transform]")) occupied.push(...squaresAlong(name));
  layer("labels").replaceChildren();
  for (const place of largest) {
    const name = layer("labels").appendChild(svg("text", { class: "label" }, fullName(operators[place.n])));
    const width = name.getComputedTextLength(), gap = place.r + 5;
    let isPlaced = false;
    const positions = [["start", gap, 0.35 * letter, 0], ["end", -gap, 0.35 * letter, width],
      ["middle", 0, place.r + 1.1 * letter, width / 2], ["middle", 0, -place.r - 0.4 * letter, width / 2]];
    for (const [anchor, across, down, shift] of positions) {
      const x = place.x + across, y = center(place) + down;
      const textBox = { left: x - shift, right: x - shift + width, top: y - letter, bottom: y + 0.25 * letter };
      const inside = textBox.left > 0 && textBox.right < box.right && textBox.bottom < box.bottom;
      if (inside && occupied.every((other) => disjoint(other, textBox))) {
        occupied.push(textBox);
        for (const [key, value] of Object.entries({ x, y, "text-anchor": anchor })) name.setAttribute(key, value);
        isPlaced = true;
        break;
      }
    }
    if (!isPlaced) name.remove();
  }
}

// --- Bars: time and memory by part -------------------------------------------------------------------------------

const MEMORY_ROLES = [
  ["weights", "weights", "#0072B2"], ["kv_cache", "KV cache", "#E69F00"], ["activations", "activations", "#009E73"],
  ["gradients", "gradients", "#CC79A7"], ["optimizer", "optimizer's state", "#D55E00"],
  ["logits", "logits", "#56B4E9"], ["other", "other", "#999999"],
];

function drawBars({ totals, memory }) {
  const groups = [...new Set(operators.map((op) => op.of))];
  const parts = (key) => groups.map((name) => {
    const own = operators.filter((op) => op.of === name), size = sum(own.map((op) => op[key]));
    return { name, color: own[0].color, size, text: seconds(size) };
  });
  const bound = parts("all_bound_seconds"), longest = Math.max(totals.bound_seconds, totals.expected_seconds ?? 0);
  const bars = [bar("bound", bound, longest, seconds(totals.bound_seconds))];
  if (totals.expected_seconds !== null) {
    const expected = parts("all_expected_seconds");
    if (totals.host_bound) {
      const size = totals.expected_seconds - sum(expected.map((part) => part.size));
      expected.push({ name: "host launches", color: "", size, text: seconds(size) });
    }
    bars.push(bar("expected", expected, longest, seconds(totals.expected_seconds)));
  }
  bars.push(legend(bound.map(({ name, color }) => [name, color])), ...memoryBar(memory));
  byId("bars").replaceChildren(...bars);
  for (const piece of byId("bars").querySelectorAll(".piece")) {
    if (piece.scrollWidth > piece.clientWidth) piece.textContent = ""; // too narrow: the legend has the name
  }
}

/** The part of a device's memory that a workload may use, as in `roof estimate`. */
const usableText = (capacity) => {
  const [usable, all] = [data.memory_utilization * Number(capacity), capacity].map(binary);
  const [number, unit] = all.split(" ");
  return `${usable} usable (${100 * data.memory_utilization} % of ${usable.endsWith(` ${unit}`) ? number : all})`;
};

function memoryBar(memory) {
  const roles = MEMORY_ROLES.filter(([key]) => Number(memory[key]) > 0).map(([key, name, color]) => (
    { name, color, size: Number(memory[key]), text: binary(memory[key]) }));
  const capacity = device().capacity === null ? null : Number(device().capacity), total = Number(memory.total);
  const space = Math.max(capacity ?? 0, total), left = `${100 * capacity / space}%`;
  const end = capacity && html("span", { class: "capacity", style: { left }, title: `capacity ${binary(capacity)}` });
  return [
    bar("memory", roles, space, `${binary(total)}${capacity ? ` of ${binary(capacity)}` : ""}`, end),
    legend(roles.map(({ name, color, text }) => [`${name} ${text}`, color])),
  ];
}

/** A bar of named parts, whose widths are their shares. */
function bar(name, parts, whole, total, end = null) {
  const pieces = parts.map((part) => html("span", {
    class: part.color ? "piece" : "piece waiting",
    title: `${part.name}: ${part.text}`,
    style: { width: `${100 * part.size / whole}%`, background: part.color },
  }, part.name));
  const words = `${name}: ${total}; ${parts.map((part) => `${part.name} ${part.text}`).join(", ")}`;
  return html("div", { class: "bar", role: "img", "aria-label": words }, html("span", { class: "name" }, name),
    html("span", { class: "track" }, ...pieces, end), html("span", { class: "total" }, total));
}

function legend(parts) {
  return html("p", { class: "legend" }, ...parts.flatMap(([name, color]) => [swatch(color), ` ${name}  `]));
}

// --- The table, and the formula of one operator ----------------------------------------------------------------------

function drawTable() {
  const staged = new Set(operators.map((op) => op.stage)).size > 1;
  byId("operators").tBodies[0].replaceChildren(...operators.map((op, n) => {
    const name = ` ${staged ? `${op.stage}: ` : ""}${fullName(op)}`;
    const button = html("button", { type: "button", title: op.spec }, swatch(op.color), name);
    return html("tr", { "data-operator": n }, html("th", { scope: "row", class: "word" }, button),
      cell(grouped(op.count)), cell(si(flopsOf(op))), cell(si(bytesOf(op), "B")),
      cell(significant(Number(op.intensity))), cell(op.bound, `word ${op.bound}`), cell(seconds(op.all_bound_seconds)),
      cell(percent(op.share)), cell(isFused(op) ? "fused" : op.all_expected_seconds === null ? "–" : seconds(op.all_expected_seconds)));
  }));
}

/** Warnings about lengths that exceed the model's positions; a decode may follow a prompt that fills all of them. */
function positionWarnings({ context, tokens }) {
  const { positions, source } = model().limits, name = model().name;
  const isDefault = state.phase === "decode" && Number(context) === model().lengths.context;
  const reach = Number(context) + (isDefault ? 0 : Number(tokens));
  const warning = (what, length, limit) => (limit === null || length <= limit ? []
    : [`Warning: ${what} ${grouped(length)} tokens, but ${name} has positions for ${grouped(limit)}; `
      + "the limit is not enforced."]);
  return [...(model().encodes ? warning("the source has", state.seq, source) : []),
    ...warning(`${state.phase} reaches`, reach, positions)];
}

/** The note of `roof estimate` on the links between this many GPUs. */
function linkWarnings() {
  const { no_link_note: noLink, node_size: nodeSize, network_note: networkNote } = device();
  if (communicatingGpus() > 1 && noLink !== null) return [`${noLink}.`];
  return communicatingGpus() > nodeSize ? [networkNote.replace("{gpus}", grouped(communicatingGpus()))] : [];
}

/** Shows an operator's formula and highlights its mark. */
function show(n) {
  shown = n;
  for (const row of byId("operators").tBodies[0].rows) {
    if (Number(row.dataset.operator) === n) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
  for (const { group } of marks.values()) group.classList.toggle("shown", Number(group.dataset.operator) === n);
  byId("details").replaceChildren(...formula(operators[n]));
  drawPractice();
}

const sizeText = (size) => (Number.isInteger(Number(size)) ? grouped(size) : significant(Number(size), 4));
const productText = (factors) => factors.join(" · ");
const exactCount = (count) => (typeof count === "bigint" ? ` = ${grouped(count)}` : "");

/** The matmul FLOPs of an operator, in letters and in numbers; empty without a GEMM. */
function gemmFlops({ contractions: lines }) {
  return {
    letters: lines.map((axes) => productText(["2", ...axes.map(([letter]) => letter)])).join(" + "),
    numbers: lines.map((axes) => productText(["2", ...axes.map(([, size]) => sizeText(size))])).join(" + "),
  };
}

/** The vector FLOPs as a whole number per element: of the GEMM's output, or without a GEMM of the first tensor read.
 * Empty if that is not a whole number, or if the operator has several GEMMs. */
function perElement(op) {
  if (op.contractions.length > 1) return [];
  const { axes } = op.contractions.length ? op.tensors.find(({ way }) => way === "written") : op.tensors[0];
  const each = Number(op.vector_flops) / axes.reduce((elements, [, size]) => elements * Number(size), 1);
  return Number.isInteger(each) ? [html("code", {}, productText([each, ...axes.map(([letter]) => letter)])),
    `= ${productText([each, ...axes.map(([, size]) => sizeText(size))])}${exactCount(op.vector_flops)}`] : [];
}

function formula(op) {
  const { letters, numbers } = gemmFlops(op), pipes = device().pipes[input(`format|${op.compute_role}`)];
  const bytes = si(bytesOf(op), "B"), matmul = si(op.matmul_flops, "FLOP"), vector = si(op.vector_flops, "FLOP");
  const line = (name, ...content) => html("div", { class: "line" },
    html("span", { class: "name" }, name), ...content.map((part) => html("div", {}, ...[part].flat())));
  const ceilings = [
    [op.memory_seconds, `${bytes} ÷ ${si(device().bandwidth, "B/s", 4)}`],
    [op.matmul_seconds, `${matmul} ÷ ${si(pipes.matmul, "FLOP/s", 4)}`],
    [op.vector_seconds, `${vector} ÷ ${si(pipes.vector ?? 0, "FLOP/s", 4)}`],
    [op.link_seconds, `${si(op.link_bytes, "B")} ÷ ${rate(op)}`],
  ].filter(([time]) => time > 0).map(([time, text]) => (time === op.bound_seconds
    ? html("strong", {}, `${text} = ${seconds(time)}  ← bound by ${op.bound}`) : `${text} = ${seconds(time)}`));
  const sizes = new Map([...op.contractions.flat(), ...op.tensors.flatMap((tensor) => tensor.axes)]);
  return [
    html("h2", {}, swatch(op.color), ` ${fullName(op)}`),
    html("code", { class: "spec" }, op.spec),
    letters ? line("FLOPs", html("code", {}, letters), `= ${numbers}${exactCount(op.matmul_flops)}`,
      html("strong", {}, `= ${matmul}`)) : null,
    op.vector_flops > 0 ? line("vector FLOPs", ...perElement(op), html("strong", {}, `= ${vector}`)) : null,
    line("bytes", ...op.tensors.map((tensor) => [html("code", {}, tensor.name), ` ${tensorText(tensor)}`]),
      html("strong", {}, `= ${bytes}`)),
    op.exchange ? line(`sent by each GPU: ${op.exchange.name} over ${grouped(op.exchange.gpus)} GPUs`,
      linkBytesText(op)) : null,
    line("intensity", [`${si(flopsOf(op), "FLOP")} ÷ ${bytes} = `,
      html("strong", {}, `${significant(Number(op.intensity))} FLOP/B`)]),
    line("bound", ...ceilings, `× ${grouped(op.count)} = ${seconds(op.all_bound_seconds)}`),
    line("expected", isFused(op) ? "no time of its own: computed in a kernel with other operators, which moves less"
      : op.expected_seconds === null ? whyNotExpected() : `${seconds(op.expected_seconds)} `
      + `(${seconds(op.expected_low_seconds)} to ${seconds(op.expected_high_seconds)}), `
      + `× ${grouped(op.count)} = ${seconds(op.all_expected_seconds)}`),
    line("axes", ...[...sizes].map(([letter, size]) => [
      html("code", {}, letter), ` = ${sizeText(size)}: ${op.meanings[letter] ?? data.axes[letter]}`])),
  ].filter((part) => part !== null);
}

/** The rate at which a GPU sends in a collective. */
function rate(op) {
  return si(Number(op.link_bytes) / op.link_seconds, "B/s", 4);
}

/** Bytes over a GPU's link in each direction: the parts of the other GPUs, once or twice. */
function linkBytesText({ exchange: { gpus, times, bytes }, link_bytes: link }) {
  return [`${times > 1 ? `${times} · ` : ""}(${grouped(gpus)} − 1) ÷ ${grouped(gpus)} · ${si(bytes, "B")} = `,
    html("strong", {}, si(link, "B"))];
}

/** A tensor's bytes: the sizes of its axes times the width of its format. */
function tensorText({ axes, role, way, partly, bytes }) {
  const format = role in data.formats ? role : input(`format|${role}`);
  const sizes = productText(axes.map(([, size]) => sizeText(size))) || "1";
  return `${way}: ${partly ? "part of " : ""}${sizes} in ${format} = ${si(bytes, "B")}`;
}

/** The short formula next to the mark. */
function drawTooltip({ n, x, bound, expected, r }) {
  const tooltip = byId("tooltip"), box = byId("picture").getBoundingClientRect(), y = expected ?? bound, gap = r + 12;
  const op = operators[n], { letters, numbers } = gemmFlops(op), flops = si(flopsOf(op), "FLOP");
  const expectedText = isFused(op) ? ", fused with others" : op.expected_seconds === null ? "" : `, expected ${seconds(op.expected_seconds)}`;
  const lines = [
    letters ? `= ${numbers} = ${si(op.matmul_flops, "FLOP")}` : flops,
    `÷ ${si(bytesOf(op), "B")} = ${significant(Number(op.intensity))} FLOP/B`,
    `bound by ${op.bound}: ${seconds(op.bound_seconds)}${expectedText}; × ${grouped(op.count)}`,
  ];
  tooltip.replaceChildren(html("strong", {}, fullName(op)), html("code", {}, letters || op.spec),
    ...lines.map((text) => html("span", {}, text)));
  tooltip.hidden = false;
  tooltip.style.left = x > box.width / 2 ? "" : `${x + gap}px`;
  tooltip.style.right = x > box.width / 2 ? `${box.width - x + gap}px` : "";
  tooltip.style.top = y > 150 ? "" : `${y + 12}px`;
  tooltip.style.bottom = y > 150 ? `${box.height - y + 12}px` : "";
}
