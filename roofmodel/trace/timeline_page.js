// The visible time, the search, the selection, and the handlers of wheel, pointer and keys.

const MIN_SPAN = 20, MARGIN = 0.02; // nanoseconds; share of the whole time
const NEAR = 3; // pixels from the pointer to an event
const scroller = byId("view"), tooltip = byId("tooltip");
let frame = 0, match = -1;

function invalidate() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    draw();
  });
}

/** Show the time from `from` to `to`, within the run and not narrower than MIN_SPAN. */
function show(from, to) {
  const margin = MARGIN * (high - low) + MIN_SPAN, span = Math.min(Math.max(to - from, MIN_SPAN), high - low + 2 * margin);
  const middle = (from + to) / 2, first = Math.min(Math.max(middle - span / 2, low - margin), high + margin - span);
  [view.from, view.to] = [first, first + span];
  tooltip.hidden = true;
  invalidate();
}

/** Zoom by a factor around a time that keeps its place. */
const zoom = (factor, x = view.width / 2) => {
  const time = toTime(x);
  show(time - (time - view.from) / factor, time + (view.to - time) / factor);
};
const pan = (pixels) => {
  const time = (pixels * (view.to - view.from)) / view.width;
  show(view.from + time, view.to + time);
};
const showWhole = () => show(low - MARGIN * (high - low), high + MARGIN * (high - low));

/** The time of the GPU's work, and of the CPU calls that launch it: CPU events may begin long before. */
function showRun() {
  let [first, last] = [Infinity, -Infinity];
  for (const row of rows.filter((row) => row.kind === "stream" || row.kind === "copies")) {
    for (let i = row.lanes[0].first; i < row.lanes.at(-1).last; i++) {
      first = Math.min(first, start[i]);
      last = Math.max(last, end[i]);
    }
  }
  if (first < last) show(first - MARGIN * (last - first), last + MARGIN * (last - first));
  else showWhole();
}

/** Move the view so that an event is visible; where it would be narrow, zoom in. */
function reveal(event, closely = false) {
  const length = Math.max(end[event] - start[event], MIN_SPAN / 4), span = view.to - view.from;
  const isInside = start[event] >= view.from && end[event] <= view.to;
  if (closely) show(start[event] - length, end[event] + length);
  else if (!isInside || (length / span) * view.width < 4) {
    const wide = Math.max(Math.min(span, (length * view.width) / 12), length * 1.5), middle = (start[event] + end[event]) / 2;
    show(middle - wide / 2, middle + wide / 2);
  }
  const place = placeOf(rowOf(event));
  if (!place) {
    byId("all").checked = true;
    rearrange();
    return reveal(event, closely);
  }
  const top = place.y + laneOf(event) * LANE_HEIGHT[place.row.kind], room = view.height - AXIS;
  if (top < view.top || top + 20 > view.top + room) scroller.scrollTop = Math.max(0, top - room / 2);
}

// --- Labels, legend, size -------------------------------------------------------------------------------

function rearrange() {
  arrange(byId("all").checked);
  const labels = layout.map((place) => {
    const label = document.createElement("div"), text = document.createElement("span");
    text.textContent = place.row ? place.row.label : header.sections[place.section];
    label.className = place.row ? "row" : "section";
    label.title = text.textContent;
    label.style.top = `${AXIS + place.y}px`;
    label.style.height = `${place.height}px`;
    label.append(text);
    return label;
  });
  const corner = document.createElement("p");
  corner.id = "corner";
  corner.style.height = `${AXIS}px`;
  corner.textContent = "whole run";
  byId("labels").replaceChildren(corner, ...labels);
  byId("labels").style.height = `${totalHeight}px`;
  markRow();
  resize();
}

function markRow() {
  const row = selected < 0 ? null : rowOf(selected);
  [...byId("labels").children].slice(1).forEach((label, n) => label.classList.toggle("current", layout[n].row === row && row !== null));
}

function resize() {
  canvas.style.height = "0"; // so that the rows decide on the height
  view.width = Math.max(50, canvas.clientWidth);
  view.height = scroller.clientHeight;
  view.dpr = window.devicePixelRatio || 1;
  canvas.style.height = `${view.height}px`;
  canvas.width = Math.round(view.width * view.dpr);
  canvas.height = Math.round(view.height * view.dpr);
  invalidate();
}

function drawLegend() {
  const used = new Set();
  for (const row of rows) {
    if (row.kind !== "idle") for (let i = row.lanes[0].first; i < row.lanes.at(-1).last; i++) used.add(header.kinds[names[i]]);
  }
  const ofColor = new Map();
  for (const kind of [...used].map((kind) => header.categories[kind])) {
    ofColor.set(header.colors[kind], [...(ofColor.get(header.colors[kind]) ?? []), kind]);
  }
  const entries = [...ofColor].map(([color, kinds]) => ["", color, kinds.join(", ")]);
  const times = new Map();
  for (const row of rows.filter((row) => row.kind === "idle")) {
    for (let i = row.lanes[0].first; i < row.lanes[0].last; i++) times.set(fullName(i), (times.get(fullName(i)) ?? 0) + end[i] - start[i]);
  }
  for (const [cause, time] of [...times].sort((a, b) => b[1] - a[1])) {
    const [words, color] = header.causes[cause];
    entries.push([" idle", color, `idle: ${words}, ${duration(time)}`]);
  }
  byId("legend").replaceChildren(...entries.map(([kind, color, words]) => {
    const entry = document.createElement("span"), swatch = document.createElement("i");
    swatch.className = `swatch${kind}`;
    swatch.style.setProperty("--color", color);
    entry.append(swatch, ` ${words}`);
    return entry;
  }));
}

// --- Events at the pointer, the tooltip, the selection -----------------------------------------------------

/** The event at a place of the canvas, and the number of events in its pixel; of several the longest. */
function eventAt(x, y) {
  const place = layout.find((place) => place.row && y >= laneTop(place, 0) && y < laneTop(place, place.row.lanes.length));
  if (!place || y < AXIS) return null;
  const lane = place.row.lanes[Math.floor((y - laneTop(place, 0)) / LANE_HEIGHT[place.row.kind])];
  const first = firstEndingAfter(lane, toTime(Math.floor(x))), till = toTime(Math.floor(x) + 1);
  let event = -1, many = 0;
  for (let i = first; i < lane.last && start[i] < till; i++, many++) {
    if (event < 0 || end[i] - start[i] > end[event] - start[event]) event = i;
  }
  if (event < 0) { // the nearest event next to the pointer
    const near = [first - 1, first].filter((i) => i >= lane.first && i < lane.last)
      .map((i) => [Math.max(toX(start[i]) - x, x - toX(end[i])), i]).filter(([far]) => far <= NEAR);
    if (!near.length) return null;
    [event, many] = [near.sort((a, b) => a[0] - b[0])[0][1], 1];
  }
  return { event, many };
}

function list(pairs) {
  const parts = document.createElement("dl");
  for (const [heading, value] of pairs) {
    const pair = document.createElement("div"), term = document.createElement("dt"), words = document.createElement("dd");
    [term.textContent, words.textContent] = [heading, value];
    pair.append(term, words);
    parts.append(pair);
  }
  return parts;
}

function describe(event, many = 1) {
  const name = document.createElement("strong");
  name.textContent = title(event);
  const rest = many > 1 ? [["in this pixel", `${many} events; zoom in to see them`]] : [];
  return [name, list([...facts(event), ...rest])];
}

function showTooltip(place, x, y) {
  tooltip.hidden = place === null;
  if (place === null) return;
  tooltip.replaceChildren(...describe(place.event, place.many));
  const { width, height } = tooltip.getBoundingClientRect();
  tooltip.style.left = `${Math.max(4, x + 16 + width > innerWidth ? x - width - 12 : x + 16)}px`;
  tooltip.style.top = `${Math.max(4, y + 18 + height > innerHeight ? y - height - 12 : y + 18)}px`;
}

/** Select an event (-1: none) and describe it below the timeline. */
function select(event) {
  selected = event;
  byId("details").hidden = event < 0;
  if (event >= 0) {
    const other = partner(event), parts = describe(event);
    if (other >= 0) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = rowOf(event).gpu ? `show its launch: ${shortName(other)}` : `show what it launches: ${shortName(other)}`;
      button.addEventListener("click", () => {
        select(other);
        reveal(other);
      });
      parts.push(button);
    }
    byId("details").replaceChildren(...parts);
  }
  markRow();
  invalidate();
}

/** The events before and after the selection in its row, in the order of time. */
function neighbor(step) {
  const lane = rowOf(selected).lanes[laneOf(selected)];
  return Math.min(Math.max(selected + step, lane.first), lane.last - 1);
}

/** The event of another row that is nearest in time to the selection. */
function eventInRow(step) {
  const places = layout.filter((place) => place.row), at = places.findIndex((place) => place.row === rowOf(selected));
  const place = places[Math.min(Math.max(at + step, 0), places.length - 1)];
  if (place.row === rowOf(selected)) return selected;
  const lane = place.row.lanes[0];
  return Math.min(firstEndingAfter(lane, start[selected]), lane.last - 1);
}

function firstVisible() {
  const time = (view.from + view.to) / 2;
  const place = layout.find((place) => place.row?.kind === "stream") ?? layout.find((place) => place.row);
  return place ? Math.min(firstEndingAfter(place.row.lanes[0], time), place.row.lanes[0].last - 1) : -1;
}

function go(event) {
  if (event < 0) return;
  select(event);
  reveal(event);
}

// --- Search ---------------------------------------------------------------------------------------------

function countMatches() {
  const { isActive, events } = search;
  byId("matches").textContent = !isActive ? "" : !events.length ? "no match" : match < 0 ? `${events.length} matches`
    : `${match + 1} of ${events.length}`;
  byId("previous").disabled = byId("next").disabled = !events.length;
}

function searchFor(text) {
  search = findMatches(text);
  match = -1;
  countMatches();
  invalidate();
}

/** Select the next or previous match; the first one is the first match after the start of the visible time. */
function goToMatch(step) {
  const { events } = search;
  if (!events.length) return;
  if (match < 0) {
    const first = events.findIndex((event) => start[event] >= view.from);
    match = step > 0 ? Math.max(first, 0) : (first < 0 ? events.length : first) - 1;
  } else match += step;
  match = (match + events.length) % events.length;
  countMatches();
  go(events[match]);
}

byId("search").addEventListener("input", (event) => searchFor(event.target.value));
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.shiftKey) {
    event.preventDefault();
    goToMatch(-1);
  }
});
byId("tools").addEventListener("submit", (event) => {
  event.preventDefault();
  goToMatch(1);
});
byId("previous").addEventListener("click", () => goToMatch(-1));

// --- Wheel, pointer, keys -----------------------------------------------------------------------------------

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  const across = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
  if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) pan(across * unit);
  else zoom(2 ** ((-event.deltaY * unit) / (event.ctrlKey ? 60 : 240)), event.offsetX);
}, { passive: false });

let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  canvas.setPointerCapture(event.pointerId);
  drag = { x: event.offsetX, y: event.clientY, moved: 0, overview: event.offsetY < OVERVIEW, scroll: scroller.scrollTop };
  if (drag.overview) centerAt(event.offsetX);
});
canvas.addEventListener("pointermove", (event) => {
  if (drag === null) {
    showTooltip(eventAt(event.offsetX, event.offsetY), event.clientX, event.clientY);
    return;
  }
  if (drag.overview) {
    centerAt(event.offsetX);
    return;
  }
  drag.moved = Math.max(drag.moved, Math.abs(event.offsetX - drag.x), Math.abs(event.clientY - drag.y));
  if (drag.moved < 4) return;
  canvas.classList.add("dragging");
  pan(drag.x - event.offsetX);
  drag.x = event.offsetX;
  scroller.scrollTop = drag.scroll + drag.y - event.clientY;
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, (event) => {
    if (drag !== null && !drag.overview && drag.moved < 4 && name === "pointerup") {
      select(eventAt(event.offsetX, event.offsetY)?.event ?? -1);
    }
    drag = null;
    canvas.classList.remove("dragging");
  });
}
canvas.addEventListener("pointerleave", () => (tooltip.hidden = true));
canvas.addEventListener("dblclick", (event) => {
  const place = eventAt(event.offsetX, event.offsetY);
  if (place) reveal(place.event, true);
});

function centerAt(x) {
  const time = low + (x * (high - low)) / view.width, half = (view.to - view.from) / 2;
  show(time - half, time + half);
}

const KEYS = {
  "+": () => zoom(1.5), "=": () => zoom(1.5), w: () => zoom(1.5), "-": () => zoom(1 / 1.5), s: () => zoom(1 / 1.5),
  ArrowLeft: () => pan(-view.width / 6), a: () => pan(-view.width / 6), ArrowRight: () => pan(view.width / 6), d: () => pan(view.width / 6),
  0: showWhole, Home: showWhole,
  PageUp: () => (scroller.scrollTop -= view.height * 0.8), PageDown: () => (scroller.scrollTop += view.height * 0.8),
  n: () => go(selected < 0 ? firstVisible() : neighbor(1)), p: () => go(selected < 0 ? firstVisible() : neighbor(-1)),
  ArrowDown: () => go(selected < 0 ? firstVisible() : eventInRow(1)), ArrowUp: () => go(selected < 0 ? firstVisible() : eventInRow(-1)),
  Enter: () => selected >= 0 && reveal(selected, true), Escape: () => select(-1),
};
canvas.addEventListener("keydown", (event) => {
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  action();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target.tagName !== "INPUT") {
    event.preventDefault();
    byId("search").focus();
  }
});

byId("in").addEventListener("click", () => zoom(2));
byId("out").addEventListener("click", () => zoom(1 / 2));
byId("whole").addEventListener("click", showWhole);
byId("all").addEventListener("change", rearrange);
scroller.addEventListener("scroll", () => {
  view.top = scroller.scrollTop;
  tooltip.hidden = true;
  invalidate();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readTheme();
  invalidate();
});
new ResizeObserver(resize).observe(scroller);

byId("quiet").hidden = rows.every((row) => row.launches);
readTheme();
fillActivity();
drawLegend();
countMatches();
rearrange();
showRun();
draw();
byId("message").remove();
scroller.removeAttribute("aria-busy");

// for tests and scripts
globalThis.roof = {
  count, zoom, pan, show, select, draw, searchFor, eventAt, reveal,
  state: () => ({ ...view, selected, matches: search.events.length, whole: [low, high] }),
  event: (n) => ({ name: fullName(n), start: start[n], end: end[n], delay: delay[n], bytes: bytes[n], row: rowOf(n).label, partner: partner(n) }),
  box,
};
