// The settings, from the controls and the link, and the handlers of the controls.

const GPUS = ["tp", "dp", "ep"]; // degrees of parallelism
const NUMBERS = [...GPUS, "batch", "seq", "decoder_seq", "context", "image"]; // in order of dependence
const VARIANT = ["phase", "attention", "mla", "recompute"]; // in the order of the keys of `situations`
const CHOICES = [...VARIANT, "optimizer", "logits", "engine"];
const STORED = ["weights", "kv"]; // roles whose format a checkpoint may state
const MAX_VALUE = 10 ** 9;
const NO_LINK = { bandwidth: Infinity, joins: 0, beyond: Infinity }; // a missing link: no bytes, no time
const messages = [];
let state = {};

const model = () => data.models.find((entry) => entry.name === state.model);
const device = () => data.devices.find((entry) => entry.id === state.hw);
const phase = () => model().phases[state.phase];
const gpus = () => state.tp * state.dp;
/** The number of GPUs that communicate, as in counting/workload.py. */
const communicatingGpus = () => (state.phase === "train" || state.ep > state.tp ? gpus() : state.tp);

/** The numbers that apply to the current settings. */
function numbers() {
  const tpByEp = model().tp_by_ep, ep = Object.keys(tpByEp).length > 1;
  const tp = Object.values(tpByEp).flat().some((tp) => tp > 1);
  return [...(tp ? ["tp"] : []), "dp", ...(ep ? ["ep"] : []), "batch", ...phase().lengths];
}

/** The formats that a role can have with the current settings; "" is the format of dtype. */
function formats(role) {
  const isWideEnough = (name) => data.formats[name].bits >= phase().min_bits;
  if (role === "dtype") return Object.keys(device().pipes).filter(isWideEnough);
  return ["", ...Object.keys(data.formats).filter((name) => role === "kv" || isWideEnough(name))];
}

function options(key) {
  if (key === "model") return data.models.map((entry) => entry.name);
  if (key === "hw") return data.devices.map((entry) => entry.id);
  if (VARIANT.includes(key)) return variantValues(VARIANT.indexOf(key));
  if (key === "optimizer") return state.phase === "train" ? data.optimizers : [];
  if (key === "logits") return phase().logits === null ? [] : ["last", "all"];
  if (key === "engine") return phase().engines;
  return formats(key);
}

/** The values of one option of a variant, given the options before it. */
function variantValues(index) {
  const variants = Object.keys(model().situations).map((name) => name.split(" "));
  const matching = variants.filter((words) => VARIANT.slice(0, index).every((key, n) => words[n] === state[key]));
  return [...new Set(matching.map((words) => words[index]))];
}

function defaultValue(key) {
  if (key === "logits") return phase().logits;
  if (key === "batch") return state.dp;
  if (GPUS.includes(key)) return allowedValues(key)?.[0] ?? 1;
  if (key === "context") return state.phase === "decode" ? model().lengths.context : 0;
  if (NUMBERS.includes(key)) return model().lengths[key];
  if (key === "phase" && "decode" in model().phases) return "decode";
  if (key === "dtype" && formats("dtype").includes("fp16")) return "fp16";
  if (STORED.includes(key)) return checkpointFormat(key, state);
  return options(key)[0];
}

/** The format of weights or KV cache in the model's checkpoint; "" (that of dtype) if it is not quantized. */
function checkpointFormat(role, { model: name, phase: pass, dtype }) {
  const entry = data.models.find((each) => each.name === name);
  const isNarrow = role === "kv" && data.formats[dtype]?.bits < 16;
  const format = isNarrow ? entry?.kv_with_narrow_dtype : entry?.checkpoint_formats[role];
  return pass === "train" ? "" : format ?? "";
}

/** The values that a model allows, if it does not allow all. */
function allowedValues(key) {
  const tpByEp = model().tp_by_ep, { tp, dp } = state;
  // as in steps/parallelism.py
  const nested = (ep) => tp % ep === 0 || (ep % tp === 0 && (tp * dp) % ep === 0);
  if (key === "tp") return [...new Set(Object.values(tpByEp).flat())].sort((a, b) => a - b);
  if (key === "ep") return Object.keys(tpByEp).map(Number).filter((ep) => tpByEp[ep].includes(tp) && nested(ep));
  return null;
}

/** The requirement that a number violates; empty if it is valid. */
function violation(key, text) {
  const minimum = model().min_lengths[key] ?? 1, value = Number(text), allowed = allowedValues(key);
  if (!Number.isInteger(value) || value < minimum || value > MAX_VALUE || String(text).trim() === "") {
    return `must be a whole number from ${minimum} to ${MAX_VALUE}`;
  }
  if (allowed !== null && !allowed.includes(value)) return `must be ${allowed.join(" or ")}`;
  return key === "batch" && value % state.dp !== 0 ? `must be a multiple of dp, ${state.dp}` : "";
}

/** The model or device with this name, short name or alias, in any case; other values unchanged. */
function canonicalName(key, name) {
  const all = { model: data.models, hw: data.devices }[key], wanted = String(name).toLowerCase();
  const own = (entry) => (key === "model" ? entry.name : entry.id);
  const match = all?.find((entry) => own(entry) === name)
    ?? all?.find((entry) => [own(entry), ...entry.aliases].some((each) => each.toLowerCase() === wanted));
  return match === undefined ? name : own(match);
}

/** Applies settings; replaces invalid ones by their defaults, with a message. */
function applySettings(wanted) {
  const previous = state;
  messages.length = 0;
  state = {};
  for (const key of ["model", "hw", ...CHOICES, "dtype", "weights", "kv"]) {
    const isDefault = STORED.includes(key)
      ? previous[key] === checkpointFormat(key, previous) : key === "logits" && previous.phase !== state.phase;
    const previousValue = isDefault ? undefined : previous[key];
    const value = canonicalName(key, wanted[key] ?? previousValue), allowed = options(key);
    state[key] = allowed.includes(value) ? value : defaultValue(key);
    const rejected = value && allowed.length > 0 && value !== state[key];
    const replacement = `Using ${state[key] || state.dtype}.`;
    if (rejected && wanted[key] !== undefined) {
      const choices = allowed.filter(Boolean).join(", ");
      messages.push(`${key} ${value} is not available; choose from ${choices}. ${replacement}`);
    } else if (rejected && ["dtype", "weights"].includes(key)) {
      messages.push(`${key} ${value} is not supported for ${state.phase} on ${device().name}. ${replacement}`);
    }
  }
  const changedWorkload = previous.model !== state.model || previous.phase !== state.phase;
  for (const key of NUMBERS) {
    if (!numbers().includes(key)) { // does not apply
      state[key] = GPUS.includes(key) ? 1 : previous[key];
      continue;
    }
    const reset = { context: changedWorkload, image: previous.model !== state.model }[key];
    const text = wanted[key] ?? (reset ? undefined : previous[key]) ?? defaultValue(key);
    const problem = violation(key, text), divisible = key === "batch" ? Math.ceil(text / state.dp) * state.dp : text;
    const values = [divisible, previous[key], defaultValue(key)].map(Number);
    state[key] = values.find((value) => violation(key, value) === "");
    if (problem) messages.push(`${key} ${text}: ${problem}. Using ${state[key]}.`);
  }
  state.theme = ["dark", "light"].includes(wanted.theme) ? wanted.theme : previous.theme;
}

/** The value of an input of the trace. */
function input(name) {
  const [kind, ...keys] = name.split("|");
  if (kind === "batch") return BigInt(state.batch) / BigInt(state.dp); // of a replica
  if (NUMBERS.includes(kind)) return BigInt(state[kind]);
  if (kind === "optimizer") return state.optimizer;
  if (kind === "positions") return state.logits === "all" ? BigInt(state[model().encodes ? "decoder_seq" : "seq"]) : 1n;
  const isNarrow = (name) => data.formats[name].bits < 16;
  const format = (role) => {
    if (role === "dtype") return isNarrow(state.dtype) ? model().activations_with_narrow_dtype[state.hw] : state.dtype;
    if (role === "others") return isNarrow(format("weights")) ? format("dtype") : format("weights");
    if (role === "attention") return isNarrow(format("kv")) ? state.dtype : format("dtype");
    if (role === "index") return ["fp8", "fp4"].includes(state.dtype) ? "fp8" : format("attention");
    return state[role] || state.dtype; // "gemm" is dtype
  };
  if (kind === "format") return format(keys[0]);
  if (kind === "bits") return BigInt(data.formats[format(keys[0])].bits);
  if (kind === "device") {
    const [field, of] = keys;
    if (field in device().links) return figure(device().links[field]?.[of] ?? NO_LINK[of]);
    if (of === undefined) return figure(device()[field]);
    return figure(device().pipes[format(of)][field]) ?? Infinity; // no ceiling
  }
  const [set, implementation, key, field] = keys, isLink = set === "collectives";
  const sets = device().sets[[set, implementation, ...(isLink ? [key] : [])].join("|")];
  const [compute, stored] = key.split("/");
  const index = (isLink ? sets : sets?.[format(compute)][format(stored)]) ?? null;
  return index === null ? null : figure(data.sets[index][field]);
}

/** A sheet for the current settings, and the part of the document that it evaluates. */
function current() {
  const sheet = new Sheet(data.nodes, input);
  return { sheet, selected: sheet.pick(model().situations[VARIANT.map((key) => state[key]).join(" ")])[state.engine] };
}

/** The phase and the memory of `roof estimate --format json`. */
function estimate() {
  const { sheet, selected } = current();
  return sheet.fill({ ...selected, ops: selected.ops.map((row) => data.rows[row]) });
}

// --- Controls --------------------------------------------------------------------------------------------------------

/** The stops of a slider: the allowed values, or powers of two and values between, up to the model's limit. */
function stops(key) {
  const { source, positions } = model().limits, isSource = key === "seq" && model().encodes;
  const fixedLimit = { batch: Math.max(1, Math.floor(1024 / state.dp)), dp: 64, image: 2048 }[key];
  const limit = fixedLimit ?? (isSource ? source : positions) ?? 131072, minimum = model().min_lengths[key] ?? 1;
  const candidates = [minimum, limit, ...(key === "image" ? [model().lengths.image] : [])];
  for (let n = 1; n <= limit; n *= 2) candidates.push(n, ...(n > 1 ? [1.5 * n] : []));
  const values = [...new Set(candidates)].filter((n) => n >= minimum && n <= limit).sort((a, b) => a - b);
  return allowedValues(key) ?? (key === "batch" ? values.map((n) => n * state.dp) : values);
}

/** The index of the stop with the nearest ratio. */
function nearest(values, value) {
  const distance = (n) => Math.abs(Math.log((values[n] + 1) / (value + 1)));
  return values.reduce((best, _, n) => (distance(n) < distance(best) ? n : best), 0);
}

function drawControls() {
  const form = byId("controls");
  for (const select of form.querySelectorAll("select")) drawSelect(select);
  for (const field of form.querySelectorAll("[data-choice]")) drawChoice(field);
  for (const label of form.querySelectorAll("[data-number]")) drawNumber(label);
  form.querySelector("[data-cached]").hidden = !phase().cached;
  if (state.theme) document.documentElement.dataset.theme = state.theme;
}

/** Replaces the choices of a control if they have changed. */
function replaceChoices(control, values, children) {
  if (control.dataset.known === values.join()) return;
  for (const old of control.querySelectorAll("option, label")) old.remove();
  control.append(...children);
  control.dataset.known = values.join();
}

function drawSelect(select) {
  const allowed = options(select.name), devices = Object.fromEntries(data.devices.map(({ id, name }) => [id, name]));
  const text = (value) => (select.name === "hw" ? devices[value] : value || "same");
  replaceChoices(select, allowed, allowed.map((value) => html("option", { value }, text(value))));
  select.value = state[select.name];
}

function drawChoice(field) {
  const name = field.dataset.choice, allowed = options(name);
  const choice = (value) => html("label", {}, html("input", { type: "radio", name, value }), html("span", {}, value));
  replaceChoices(field, allowed, allowed.map(choice));
  for (const radio of field.querySelectorAll("input")) radio.checked = radio.value === state[name];
  field.hidden = allowed.length < 2;
}

function drawNumber(label) {
  const key = label.dataset.number, [slider, box] = label.querySelectorAll("input"), values = stops(key);
  label.hidden = !numbers().includes(key);
  if (label.hidden) return;
  slider.max = values.length - 1;
  slider.value = nearest(values, state[key]);
  slider.setAttribute("aria-label", key);
  slider.setAttribute("aria-valuetext", grouped(state[key]));
  if (document.activeElement !== box) box.value = state[key];
  box.setAttribute("aria-label", `${key}, exactly`);
}

function linkText() {
  const choices = CHOICES.filter((key) => key !== "phase" && options(key).length > 1);
  const keys = ["model", "hw", "phase", ...numbers(), "dtype", "weights", "kv", ...choices, "theme"];
  const isChosen = (key) => (state[key] ?? "") !== "" || (STORED.includes(key) && defaultValue(key) !== "");
  const given = keys.filter(isChosen);
  return new URLSearchParams(given.map((key) => [key, state[key]])).toString();
}

/** Applies a change and redraws. */
function update(change) {
  applySettings(change);
  drawControls();
  draw();
  byId("tooltip").hidden = true;
  history.replaceState(null, "", `#${linkText()}`);
}

function readLink() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  state = {};
  update({ model: data.models[0].name, hw: data.devices[0].id, ...given });
}

byId("controls").addEventListener("input", ({ target }) => {
  if (target.type === "range") {
    const key = target.parentNode.dataset.number;
    update({ [key]: stops(key)[target.value] });
  } else if (target.type !== "number") {
    update({ [target.name]: target.value });
  }
});
byId("controls").addEventListener("change", ({ target }) => {
  if (target.type !== "number") return;
  update({ [target.name]: target.value });
  target.value = state[target.name];
});
byId("controls").addEventListener("submit", (event) => event.preventDefault());

const dark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
byId("theme").addEventListener("click", () => update({ theme: dark() ? "light" : "dark" }));

/** The mark nearest to the pointer, within `reach` pixels of its ring or dot; null if there is none. */
function markAt({ clientX, clientY }, reach) {
  const box = byId("roofline").getBoundingClientRect();
  const distance = ({ x, bound, expected }) => Math.min(...[bound, expected ?? bound].map(
    (y) => Math.hypot(x - clientX + box.left, y - clientY + box.top)));
  const closer = (best, place) => (best === null || distance(place) < distance(best) ? place : best);
  const nearestMark = places.reduce(closer, null);
  return nearestMark !== null && distance(nearestMark) < Math.max(reach, nearestMark.r) ? nearestMark : null;
}

byId("roofline").addEventListener("pointermove", (event) => {
  const place = markAt(event, 18);
  if (place === null) byId("tooltip").hidden = true;
  else {
    if (!pinned) show(place.n);
    drawTooltip(place);
  }
});
byId("roofline").addEventListener("pointerleave", () => {
  byId("tooltip").hidden = true;
});
byId("roofline").addEventListener("click", (event) => {
  const place = markAt(event, 24);
  pinned = place !== null;
  if (pinned) {
    show(place.n);
    drawTooltip(place);
  }
});
byId("roofline").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step !== undefined) {
    show((shown + step + operators.length) % operators.length);
    const place = places.find(({ n }) => n === shown);
    if (place === undefined) byId("tooltip").hidden = true;
    else drawTooltip(place);
    event.preventDefault();
  } else if (event.key === "Enter") pinned = true;
  else if (event.key === "Escape") {
    pinned = false;
    byId("tooltip").hidden = true;
  }
});
byId("operators").addEventListener("click", ({ target }) => {
  const row = target.closest("tr[data-operator]");
  if (row !== null) {
    pinned = true;
    show(Number(row.dataset.operator));
  }
});
document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
  if (event.key === "t" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) byId("theme").click();
});
addEventListener("hashchange", () => {
  if (location.hash.slice(1) !== linkText()) readLink();
});
new ResizeObserver(() => draw()).observe(byId("picture"));

// for tests and scripts
globalThis.roof = { update, estimate, stops, state: () => ({ ...state }), messages: () => [...messages] };
readLink();
