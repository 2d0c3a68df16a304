"use strict";
// The roofline chart, and filters, sorting and selection of its table. Python writes table, checkboxes and data.
// Points, rows and ceilings have tokens such as "level:l2"; they are shown while the checkbox of every token is checked.

const data = JSON.parse(document.getElementById("data").textContent);
const plot = document.getElementById("plot");
const table = document.getElementById("points");
const details = document.getElementById("details");
const rows = [...table.tBodies[0].rows];
const toggles = [...document.querySelectorAll("#toggles input")];
const log = Math.log10;
let hidden = new Set();
let selected = null;

const shown = (tokens) => tokens.every((token) => !hidden.has(token));
const escapeHtml = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const fontSize = () => parseFloat(getComputedStyle(document.documentElement).fontSize); // pixels

// --- The chart --------------------------------------------------------------------------------------

// Visible ceilings of one device as lines: bandwidths end at the highest pipe, pipes begin at the fastest level.
function visibleCeilings(ceilings) {
  const all = ceilings.filter((ceiling) => shown(ceiling.tokens));
  const pipes = all.filter((ceiling) => ceiling.kind === "pipe");
  const levels = all.filter((ceiling) => ceiling.kind === "level");
  const peak = Math.max(...pipes.map((pipe) => pipe.rate));
  const fastest = Math.max(...levels.map((level) => level.rate));
  const far = 1e12;
  return [
    ...levels.map((level) => {
      const ridge = pipes.length ? peak / level.rate : far;
      return { ...level, x: [1 / far, ridge], y: [level.rate / far, level.rate * ridge] };
    }),
    ...pipes.map((pipe) => ({ ...pipe, x: [levels.length ? pipe.rate / fastest : 1 / far, far], y: [pipe.rate, pipe.rate] })),
  ];
}

const isOutline = (point) => point.symbol.endsWith("-open");

// Lines through the marks of a kernel at its memory levels, which are equally high.
function levelLines(points) {
  const kernels = new Map();
  for (const { tokens, name, x, y } of points) {
    const key = [tokens[0], name, y].join(); // the device, the kernel
    kernels.set(key, { y, x: [...(kernels.get(key)?.x ?? []), x] });
  }
  return [...kernels.values()].filter(({ x }) => x.length > 1).map(({ x, y }) => [[Math.min(...x), Math.max(...x)], [y, y]]);
}

const margins = () => ({ l: 9.5 * fontSize(), r: fontSize(), t: fontSize(), b: 3.5 * fontSize() });

// Pixels per decade of each axis.
function pixelsPerDecade([left, right], [low, high]) {
  const { l, r, t, b } = margins();
  return { wide: (plot.clientWidth - l - r) / (right - left), tall: (plot.clientHeight - t - b) / (high - low) };
}

// Places for a point's label, the best first: [1 right or -1 left of the mark, 1 above or -1 below it]. A predicted point
// is on its ceiling, so its label is below it.
function labelPlaces(point, [left, right]) {
  const aside = (log(point.x) - left) / (right - left) < 0.8 ? 1 : -1;
  if (point.hollow) return [[aside, -1]];
  return point.sign === "↑" ? [[0, 1]] : [[0, 1], [0, -1], [1, 1], [-1, 1], [1, -1], [-1, -1]];
}

// The points' labels with their places. Where labels would overlap each other or the names of ceilings, points above
// their ceiling come first, then the largest.
function pointLabels(points, names, ...range) {
  const { wide, tall } = pixelsPerDecade(...range);
  const half = 0.6 * fontSize(); // of a line of text
  const kept = new Map();
  const taken = names.flatMap((label) => { // centers and widths; for slanted names, of five parts each
    const width = 0.6 * label.font.size * label.text.length, [x, y] = [label.x * wide, label.y * tall + label.yshift];
    if (label.xanchor) return [[x - width / 2, y + half, width]];
    const [cos, sin] = [Math.cos, Math.sin].map((f) => f((-label.textangle * Math.PI) / 180));
    return [-2, -1, 0, 1, 2].map((n) => [x + label.xshift + (n / 5) * width * cos, y + (n / 5) * width * sin, (width * cos) / 5]);
  });
  for (const point of points.filter((point) => point.sign).sort((a, b) => b.above - a.above || b.size - a.size)) {
    const width = 0.6 * fontSize() * point.sign.length;
    for (const [aside, up] of labelPlaces(point, range[0])) {
      const x = log(point.x) * wide + (aside * width) / 2, y = log(point.y) * tall + up * ((point.size * fontSize()) / 2 + half);
      if (x - width / 2 < range[0][0] * wide || x + width / 2 > range[0][1] * wide) continue; // outside the axes
      const clear = ([other, low, size]) => Math.abs(x - other) > (width + size) / 2 || Math.abs(y - low) > 1.3 * fontSize();
      if (!taken.every(clear)) continue;
      taken.push([x, y, width]);
      kept.set(point, `${up > 0 ? "top" : "bottom"} ${["left", "center", "right"][aside + 1]}`);
      break;
    }
  }
  return { text: points.map((p) => (kept.has(p) ? p.sign : "")), textposition: points.map((p) => kept.get(p) || "top center") };
}

// The number of marks that a text covers: start and width in pixels, at an angle.
function coveredMarks(points, x, y, width, angle, scale) {
  const half = 0.6 * fontSize(), [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  return points.filter((point) => {
    const across = log(point.x) * scale.wide - x, up = log(point.y) * scale.tall - y, reach = (point.size * fontSize()) / 2;
    const along = across * cos + up * sin, aside = up * cos - across * sin;
    return along > -reach && along < width + reach && Math.abs(aside) < half + reach;
  }).length;
}

const least = (places, cost) => places.reduce((best, place) => (cost(place) < cost(best) ? place : best)); // the first of equal ones

// Names of ceilings on their visible parts, where they cover the fewest marks; pipes of equal peak share one name. For
// several devices, the name of the lowest bandwidth is below its line.
function ceilingNames(lines, points, [left, right], [low, high]) {
  const scale = pixelsPerDecade([left, right], [low, high]), { wide, tall } = scale;
  const angle = Math.atan2(tall, wide), [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const lowest = data.ceilings.length > 1 ? Math.min(...lines.filter((line) => line.kind === "level").map((line) => line.rate)) : 0;
  const labels = [];
  let free = -Infinity; // lowest free position for the next pipe's name, in pixels
  for (const line of [...lines].sort((a, b) => a.rate - b.rate)) {
    const rate = log(line.rate);
    const label = { text: escapeHtml(line.text), showarrow: false,
      font: { size: fontSize() * (line.main ? 1 : 0.85), ...(line.color && { color: line.color }) } };
    if (line.kind === "level") {
      const start = Math.max(left, low - rate), end = Math.min(right, high - rate, log(line.x[1]));
      const apart = fontSize() * (line.rate === lowest ? -0.75 : 0.75);
      const width = 0.7 * line.text.length * fontSize(), across = (width * cos) / wide; // pixels; decades
      const places = []; // of its center, from the start of the line
      for (let x = start + across * (0.5 + line.device) + fontSize() / wide; x + across / 2 < end; x += across / 4) places.push(x);
      const covers = (x) => coveredMarks(points, (x - across / 2) * wide - apart * sin, (x - across / 2 + rate) * tall + apart * cos,
        width, angle, scale);
      if (!places.length) continue;
      const x = least(places, covers);
      labels.push({ ...label, x, y: x + rate, textangle: (-angle * 180) / Math.PI, xshift: -apart * sin, yshift: apart * cos });
    } else if (rate > low && rate < high) {
      const same = labels.find((other) => other.xanchor && Math.abs(other.y - rate) * tall < 2);
      if (same) same.text = `${escapeHtml(line.name)}, ${same.text}`;
      else {
        const width = 0.6 * label.font.size * line.text.length, above = Math.max(0, free - rate * tall);
        const covers = (up) => coveredMarks(points, right * wide - width, rate * tall + up + 0.7 * fontSize(), width, 0, scale);
        const yshift = least([0, 0.3, 0.6, 0.9].map((up) => above + up * fontSize()), covers);
        free = rate * tall + yshift + 1.2 * label.font.size;
        labels.push({ ...label, x: right, y: rate, yshift, xanchor: "right", yanchor: "bottom" });
      }
    }
  }
  return labels;
}

function hover(point) {
  const name = point.name.match(/.{1,72}/gu).slice(0, 4).map(escapeHtml).join("<br>");
  return [`<b>${name}</b>`, ...point.facts.map(([what, value]) => `${what}: ${escapeHtml(value)}`)].join("<br>");
}

function render() {
  hidden = new Set(toggles.filter((box) => !box.checked).map((box) => box.value));
  for (const row of rows) row.hidden = !shown(row.dataset.tokens.split(" "));
  const ink = themeColor("--ink"), dim = themeColor("--dim"), grid = themeColor("--line"), paper = themeColor("--paper");
  const lines = data.ceilings.flatMap(visibleCeilings);
  const points = data.points.filter((point) => point.x && shown(point.tokens));
  const ring = points.filter((point) => point.id === selected);
  const tails = points.filter((point) => point.low);
  const text = { size: fontSize() };
  const axis = (title, [low, high], ticks) => {
    const fine = high - low < 3; // decades
    const at = ticks.filter(([value]) => fine || Number.isInteger(log(value)));
    return { type: "log", range: [low, high], gridcolor: grid, linecolor: dim, zeroline: false, tickfont: text,
      title: { text: title, font: text }, tickvals: at.map(([value]) => value), ticktext: at.map(([, words]) => words) };
  };
  const range = plot.layout ? [plot.layout.xaxis.range, plot.layout.yaxis.range] : [data.across, data.up];
  const names = ceilingNames(lines, points, ...range);
  const traces = [
    ...lines.map((line) => ({
      x: line.x, y: line.y, mode: "lines", hoverinfo: "skip",
      line: { color: line.color || (line.main ? ink : dim), width: line.main ? 3 : 1.5 },
    })),
    ...levelLines(points).map(([x, y]) => ({ x, y, mode: "lines", hoverinfo: "skip", line: { color: dim, width: 1 } })),
    ...tails.map((p) => ({
      x: [p.x, p.low[0]], y: [p.y, p.low[1]], mode: "lines+markers", hoverinfo: "skip", opacity: p.opacity,
      line: { color: p.color, width: 2.5 }, marker: { symbol: "line-ew-open", size: [0, 0.7 * fontSize()], color: p.color, line: { width: 2.5 } },
    })),
    {
      x: points.map((p) => p.x), y: points.map((p) => p.y), customdata: points.map((p) => p.id),
      mode: "markers+text", ...pointLabels(points, names, ...range), cliponaxis: true,
      textfont: { size: fontSize() * 0.85, color: ink },
      marker: {
        symbol: points.map((p) => p.symbol), size: points.map((p) => p.size * fontSize()), opacity: points.map((p) => p.opacity),
        color: points.map((p) => p.color),
        line: { color: points.map((p) => (p.above ? themeColor("--alarm") : isOutline(p) ? p.color : paper)),
                width: points.map((p) => (p.above ? 4 : isOutline(p) ? 3 : 1)) },
      },
      hovertext: points.map(hover), hovertemplate: "%{hovertext}<extra></extra>",
    },
    {
      x: ring.map((p) => p.x), y: ring.map((p) => p.y), mode: "markers", hoverinfo: "skip",
      marker: { symbol: "circle-open", size: ring.map((p) => (p.size + 1) * fontSize()), color: ink, line: { width: 4 } },
    },
  ];
  const layout = {
    paper_bgcolor: paper, plot_bgcolor: paper, font: { color: ink, family: "system-ui, DejaVu Sans, sans-serif" },
    width: plot.clientWidth, height: plot.clientHeight, showlegend: false, hovermode: "closest", dragmode: "zoom", uirevision: "kept", margin: margins(),
    hoverlabel: { align: "left", bgcolor: paper, bordercolor: dim, font: { color: ink, size: fontSize() * 0.9 } },
    xaxis: axis("arithmetic intensity (FLOP per byte)", range[0], data.ticks.across),
    yaxis: axis("performance (FLOP/s)", range[1], data.ticks.up),
    annotations: names,
  };
  const buttons = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"];
  return Plotly.react(plot, traces, layout, { displaylogo: false, modeBarButtons: [buttons] });
}

// --- Selection ----------------------------------------------------------------------------------------

function select(id) {
  selected = id;
  const point = data.points.find((point) => point.id === id);
  for (const row of rows) row.toggleAttribute("aria-current", Number(row.dataset.point) === id);
  const row = rows.find((row) => Number(row.dataset.point) === id);
  const box = document.getElementById("scroll"); // only the table scrolls, so that the chart stays visible
  const above = row.offsetTop - table.tHead.offsetHeight, below = row.offsetTop + row.offsetHeight - box.clientHeight;
  box.scrollTop = Math.min(above, Math.max(below, box.scrollTop));
  const name = Object.assign(document.createElement("strong"), { textContent: point.name });
  const list = document.createElement("dl");
  for (const [what, value] of point.facts) {
    const pair = list.appendChild(document.createElement("div"));
    pair.append(Object.assign(document.createElement("dt"), { textContent: what }),
                Object.assign(document.createElement("dd"), { textContent: value }));
  }
  details.replaceChildren(name, list);
  details.hidden = false;
  render();
}

for (const row of rows) row.addEventListener("click", () => select(Number(row.dataset.point)));

table.tBodies[0].addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const visible = [...table.tBodies[0].rows].filter((row) => !row.hidden);
  const next = visible[visible.indexOf(event.target.closest("tr")) + step];
  if (next) next.querySelector("button").focus();
});

// --- Sorting ------------------------------------------------------------------------------------------

function sort(header) {
  const column = header.cellIndex;
  const value = (row) => row.cells[column].dataset.value;
  const words = header.classList.contains("word");
  const first = words ? "ascending" : "descending"; // text from A, numbers from the largest
  const second = words ? "descending" : "ascending";
  const order = header.getAttribute("aria-sort") === first ? second : first;
  const direction = order === "ascending" ? 1 : -1;
  rows.sort((a, b) => {
    const [valueA, valueB] = [value(a), value(b)];
    // unknown values last in both directions
    if (valueA === "" || valueB === "") return (valueA === "") - (valueB === "");
    return direction * (words ? valueA.localeCompare(valueB) : valueA - valueB);
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", order);
  table.tBodies[0].append(...rows);
}

for (const header of table.tHead.rows[0].cells) header.firstElementChild.addEventListener("click", () => sort(header));

// --- Keys, themes, printing ------------------------------------------------------------------------------

plot.addEventListener("keydown", (event) => {
  const zoom = { "+": 0.7, "=": 0.7, "-": 1 / 0.7 }[event.key];
  const [across, up] = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key] || [0, 0];
  if (!zoom && !across && !up && event.key !== "0") return;
  event.preventDefault();
  const moved = ([low, high], part) => {
    const middle = (low + high) / 2 + part * (high - low), half = ((zoom || 1) * (high - low)) / 2;
    return [middle - half, middle + half];
  };
  const { xaxis, yaxis } = plot.layout;
  const range = event.key === "0" ? [data.across, data.up] : [moved(xaxis.range, across), moved(yaxis.range, up)];
  Plotly.relayout(plot, { "xaxis.range": range[0], "yaxis.range": range[1] });
});

for (const box of toggles) box.addEventListener("change", render);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
addEventListener("resize", render);
for (const [event, printing] of [["beforeprint", true], ["afterprint", false]])
  addEventListener(event, () => { // print in light colors and at a fixed size
    document.documentElement.classList.toggle("printing", printing);
    Object.assign(plot.style, printing ? { width: "1000px", height: "560px" } : { width: "", height: "" });
    render();
  });

render().then(() => {
  plot.on("plotly_click", ({ points: [point] }) => select(point.customdata));
  plot.on("plotly_relayout", render);
  plot.removeAttribute("aria-busy"); // Plotly draws asynchronously: from here on the marks exist
});
