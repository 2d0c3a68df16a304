// Draw the visible rows on the canvas. Only events within the visible time are visited; those narrower than a pixel are
// merged to one mark per pixel, whose opacity grows with the covered time.

const AXIS = 46, OVERVIEW = 20, GAP = 3, SECTION = 22; // pixels
const LANE_HEIGHT = { steps: 17, idle: 17, stream: 20, copies: 17, thread: 15 };
const OPACITY = [0.13, 0.42, 0.68, 1]; // not matching the search; a pixel of which little, half or most is covered
const MIN_TEXT = 42; // pixels of an event with a name
const BINS = 800; // of the overview

const canvas = byId("canvas"), context = canvas.getContext("2d", { alpha: false });
const causes = Object.keys(header.causes);
const colors = [...header.categories.map((kind) => header.colors[kind]), ...causes.map((cause) => header.causes[cause][1])];
const colorOf = header.kinds.map((kind, n) => // of a name
  header.categories[kind] === "idle" ? header.categories.length + causes.indexOf(header.names[n]) : kind);
const dark = colors.map(needsWhiteText);
const view = { from: 0, to: 1, width: 0, height: 0, top: 0, dpr: 1 };
const theme = {};
let layout = [], totalHeight = 0;
let search = findMatches(""), selected = -1;

function needsWhiteText(color) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16) / 255);
  return 0.2126 * red ** 2.2 + 0.7152 * green ** 2.2 + 0.0722 * blue ** 2.2 < 0.18;
}

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "dim", "paper", "line", "panel"]) theme[name] = style.getPropertyValue(`--${name}`).trim();
  hatches.clear();
}

/** The vertical positions of sections, rows and lanes; rows of threads that launch nothing are optional. */
function arrange(all) {
  layout = [];
  let y = 0, section = -1;
  for (const row of rows) {
    if (!row.launches && !all) continue;
    if (row.section !== section) {
      section = row.section;
      layout.push({ section, y, height: SECTION });
      y += SECTION;
    }
    const height = row.lanes.length * LANE_HEIGHT[row.kind] + GAP;
    layout.push({ row, section, y, height });
    y += height;
  }
  totalHeight = y + AXIS + GAP;
}

const toX = (time) => ((time - view.from) * view.width) / (view.to - view.from);
const toTime = (x) => view.from + (x * (view.to - view.from)) / view.width;
const laneTop = (place, lane) => AXIS + place.y - view.top + GAP / 2 + lane * LANE_HEIGHT[place.row.kind];
const placeOf = (row) => layout.find((place) => place.row === row);

// --- Marks of events -----------------------------------------------------------------------------------

const marks = colors.map(() => OPACITY.map(() => [])); // rectangles by color and opacity: x, y, width, height, ...
const texts = []; // event, x, y, width

/** Add the marks of a lane, of which `wide` draws those of at least `least` pixels. */
function collectLane({ first, last }, y, height, least, drawWide, isIdle = false) {
  const { from, to, width } = view, scale = width / (to - from), searching = search.isActive;
  let pixel = -1, covered = 0, longest = -1, length = -1, hit = false;
  let open = null; // the rectangle of the pixel before
  const close = () => {
    const level = searching && !isIdle ? (hit ? 3 : 0) : covered >= 0.75 ? 3 : covered >= 0.3 ? 2 : isIdle && covered < 0.1 ? 0 : 1;
    const into = marks[colorOf[names[longest]]][level];
    if (open === into && into.at(-4) + into.at(-2) === pixel) into[into.length - 2] += 1;
    else into.push(pixel, y, 1, height);
    open = into;
    pixel = -1;
    covered = 0;
    length = -1;
    hit = false;
  };
  for (let i = firstEndingAfter({ first, last }, from); i < last && start[i] < to; i++) {
    const size = end[i] - start[i], wide = size * scale, x = (start[i] - from) * scale;
    if (wide < least) {
      const at = Math.floor(x);
      if (at !== pixel) {
        if (pixel >= 0) close();
        pixel = Math.max(at, 0);
      }
      const isHit = searching && search.isMatch[names[i]] === 1;
      covered += wide;
      if (isHit ? !hit || size > length : !hit && size > length) {
        longest = i;
        length = size;
      }
      hit ||= isHit;
      continue;
    }
    if (pixel >= 0) close();
    const left = Math.max(-2, Math.round(x)), right = Math.min(width + 2, Math.max(left + 1, Math.round(x + wide)));
    drawWide(i, left, right, y, height, searching && !search.isMatch[names[i]] ? 0 : 3);
  }
  if (pixel >= 0) close();
}

function collectEvent(event, left, right, y, height, level) {
  marks[colorOf[names[event]]][level].push(left, y, right - left > 3 ? right - left - 1 : right - left, height);
  if (right - left > MIN_TEXT) texts.push([event, left, y, right - left, height, level]);
}

function drawMarks() {
  marks.forEach((levels, color) => {
    context.fillStyle = colors[color];
    levels.forEach((rectangles, level) => {
      if (!rectangles.length) return;
      context.globalAlpha = OPACITY[level];
      for (let i = 0; i < rectangles.length; i += 4) {
        context.fillRect(rectangles[i], rectangles[i + 1], rectangles[i + 2], rectangles[i + 3]);
      }
      rectangles.length = 0;
    });
  });
  context.globalAlpha = 1;
}

const fontOf = (size) => `${size}px system-ui, "DejaVu Sans", sans-serif`;

function drawTexts() {
  const size = 11, letter = 0.56 * size;
  context.font = fontOf(size);
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const [event, x, y, width, height, level] of texts) {
    const from = Math.max(x, 0) + 3, room = Math.floor((Math.min(x + width, view.width) - from - 3) / letter);
    if (room < 4) continue;
    const words = rowOf(event).kind === "idle" ? header.causes[fullName(event)][0] : shortName(event);
    const idle = rowOf(event).kind === "idle";
    context.fillStyle = level === 0 || idle ? theme.ink : dark[colorOf[names[event]]] ? "#ffffff" : "#000000";
    if (idle) { // a plain ground below the text of a hatched mark
      const ground = context.measureText(words.length > room ? `${words.slice(0, room - 1)}…` : words).width;
      context.fillStyle = theme.paper;
      context.fillRect(from - 1, y + 2, ground + 3, height - 4);
      context.fillStyle = theme.ink;
    }
    context.fillText(words.length > room ? `${words.slice(0, room - 1)}…` : words, from, y + height / 2 + 0.5);
  }
  texts.length = 0;
}

// --- Idle stretches -------------------------------------------------------------------------------------

const hatches = new Map();

/** The hatched pattern of a color. */
function hatch(color) {
  if (!hatches.has(color)) {
    const size = 6, tile = new OffscreenCanvas(size, size), pen = tile.getContext("2d");
    pen.strokeStyle = color;
    pen.lineWidth = 2;
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift - 1, size + 1);
      pen.lineTo(shift + size + 1, -1);
    }
    pen.stroke();
    hatches.set(color, context.createPattern(tile, "repeat"));
  }
  return hatches.get(color);
}

/** The idle stretches of a rank: hatched in their row, tinted across the rows of the rank and of its CPU threads. */
function drawIdle(place, bottom) {
  collectLane(place.row.lanes[0], laneTop(place, 0), LANE_HEIGHT.idle, 3, (event, left, right, y, height) => {
    const [, color] = header.causes[fullName(event)];
    context.fillStyle = hatch(color);
    context.fillRect(left, y, right - left, height);
    context.fillStyle = color;
    context.globalAlpha = 0.1;
    context.fillRect(left, y + height, right - left, bottom - y - height);
    context.globalAlpha = 1;
    if (right - left > MIN_TEXT) texts.push([event, left, y, right - left, height, 3]);
  }, true);
}

/** Lines at the starts of the steps, across the rows of the rank. */
function drawStepLines(place, bottom) {
  const { first, last } = place.row.lanes[0];
  context.fillStyle = theme.dim;
  let filled = -4;
  for (let i = firstEndingAfter({ first, last }, view.from); i < last && start[i] < view.to; i++) {
    const x = Math.round(toX(start[i]));
    if (x < filled + 4) continue;
    filled = x;
    context.fillRect(x, laneTop(place, 0), 1, bottom - laneTop(place, 0));
  }
}

// --- Axis and overview ------------------------------------------------------------------------------------

/** The share of each bin of the whole time in which GPU work runs; of several ranks, the mean. */
const activity = new Float32Array(BINS);
function fillActivity() {
  const bin = (high - low) / BINS, ranks = new Set(rows.filter((row) => row.gpu).map((row) => row.section)).size;
  for (const row of rows.filter((row) => row.kind === "stream" || row.kind === "copies")) {
    for (let i = row.lanes[0].first; i < row.lanes.at(-1).last; i++) {
      const last = Math.min(BINS - 1, Math.floor((end[i] - low) / bin));
      for (let n = Math.floor((start[i] - low) / bin); n <= last; n++) {
        const inside = Math.min(end[i], low + (n + 1) * bin) - Math.max(start[i], low + n * bin);
        activity[n] += Math.max(0, inside) / bin / ranks;
      }
    }
  }
}

const overviewX = (time) => ((time - low) * view.width) / (high - low);

function drawOverview() {
  context.fillStyle = theme.panel;
  context.fillRect(0, 0, view.width, OVERVIEW);
  context.fillStyle = theme.dim;
  const wide = view.width / BINS;
  for (let n = 0; n < BINS; n++) {
    const height = Math.min(1, activity[n]) * (OVERVIEW - 3);
    if (height > 0) context.fillRect(n * wide, OVERVIEW - 1 - Math.max(1, height), Math.max(wide, 1), Math.max(1, height));
  }
  const left = Math.max(0, overviewX(view.from)), right = Math.min(view.width, overviewX(view.to));
  context.fillStyle = theme.paper;
  context.globalAlpha = 0.55;
  context.fillRect(0, 0, left, OVERVIEW);
  context.fillRect(right, 0, view.width - right, OVERVIEW);
  context.globalAlpha = 1;
  context.strokeStyle = "#0072b2";
  context.lineWidth = 2;
  context.strokeRect(Math.min(left, view.width - 4) + 1, 1, Math.max(right - left - 2, 3), OVERVIEW - 2);
}

/** A step of 1, 2 or 5 times a power of ten, at least that long. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}

function drawAxis() {
  const step = Math.max(1, niceStep(((view.to - view.from) / view.width) * 110));
  context.fillStyle = theme.paper;
  context.fillRect(0, OVERVIEW, view.width, AXIS - OVERVIEW);
  context.font = fontOf(12);
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (let tick = Math.ceil(view.from / step); tick * step < view.to; tick++) {
    const x = Math.round(toX(tick * step));
    context.fillStyle = theme.dim;
    context.fillRect(x, AXIS - 6, 1, 6);
    context.fillStyle = theme.ink;
    const words = instant(tick * step, step);
    if (x + 4 + context.measureText(words).width < view.width) context.fillText(words, x + 3, OVERVIEW + 12);
  }
  context.fillStyle = theme.dim;
  context.fillRect(0, AXIS - 1, view.width, 1);
  return step;
}

function drawGrid() {
  const step = Math.max(1, niceStep(((view.to - view.from) / view.width) * 110));
  context.fillStyle = theme.line;
  for (let tick = Math.ceil(view.from / step); tick * step < view.to; tick++) {
    context.fillRect(Math.round(toX(tick * step)), AXIS, 1, view.height);
  }
}

// --- The selection ------------------------------------------------------------------------------------------

/** The rectangle of an event; null if its row is hidden. */
function box(event) {
  const row = rowOf(event), place = placeOf(row);
  if (!place) return null;
  const x = toX(start[event]);
  return { x, y: laneTop(place, laneOf(event)), width: Math.max(2, toX(end[event]) - x), height: LANE_HEIGHT[row.kind] - 1 };
}

function drawSelection() {
  if (selected < 0) return;
  const own = box(selected), other = partner(selected) >= 0 ? box(partner(selected)) : null;
  context.strokeStyle = theme.ink;
  context.lineWidth = 2.5;
  for (const each of [own, other]) {
    if (!each) continue;
    const left = Math.max(each.x, -5), right = Math.min(each.x + each.width, view.width + 5);
    if (right > left - 1) context.strokeRect(left, each.y, right - left, each.height);
  }
  if (!own || !other) return;
  const [call, work] = rowOf(selected).gpu ? [other, own] : [own, other];
  const from = [call.x, call.y + call.height / 2], to = [work.x, work.y + work.height / 2];
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(...from);
  const bend = Math.max(20, Math.abs(to[0] - from[0]) / 2);
  context.bezierCurveTo(from[0] + bend, from[1], to[0] - bend, to[1], ...to);
  context.stroke();
  context.beginPath();
  context.moveTo(to[0] - 8, to[1] - 4);
  context.lineTo(...to);
  context.lineTo(to[0] - 8, to[1] + 4);
  context.stroke();
}

/** Draw everything; returns the number of marks. */
function draw() {
  context.setTransform(view.dpr, 0, 0, view.dpr, 0, 0);
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, view.width, view.height);
  drawGrid();
  const isVisible = ({ y, height }) => y + height > view.top && y < view.top + view.height - AXIS;
  const bottoms = new Map(); // of sections
  for (const place of [...layout].reverse()) {
    const { section } = place, isCpu = (section) => layout.some((each) => each.section === section && each.row && !each.row.gpu);
    if (bottoms.has(section)) continue;
    bottoms.set(section, AXIS + place.y + place.height - view.top);
    if (!isCpu(section) && isCpu(section + 1)) bottoms.set(section, bottoms.get(section + 1));
  }
  for (const place of layout.filter((place) => !place.row && isVisible(place))) {
    context.fillStyle = theme.panel;
    context.fillRect(0, AXIS + place.y - view.top, view.width, place.height);
  }
  for (const place of layout.filter((place) => place.row)) {
    const bottom = bottoms.get(place.section);
    if (bottom < AXIS || place.y > view.top + view.height) continue;
    if (place.row.kind === "idle") drawIdle(place, bottom);
    if (place.row.kind === "steps") drawStepLines(place, bottom);
  }
  for (const place of layout.filter((place) => place.row && isVisible(place) && place.row.kind !== "idle")) {
    const height = LANE_HEIGHT[place.row.kind] - 1;
    place.row.lanes.forEach((lane, n) => collectLane(lane, laneTop(place, n), height, 1, collectEvent));
  }
  const drawn = marks.flat().reduce((sum, rectangles) => sum + rectangles.length / 4, 0);
  drawMarks();
  drawTexts();
  drawSelection();
  drawAxis();
  drawOverview();
  return drawn;
}
