// Practice: questions about a time that the reader measured for the shown operator. Its point is drawn on the roofline.

const TOLERANCE = 0.02; // of an answer
const PREFIXES = { n: 1e-9, u: 1e-6, µ: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
const practiced = { key: "", seconds: null, question: 0 }; // of one operator with its settings

/** `120 us`, `0.25e15`, `83 %` as a number of units; null for other texts. */
function numberOf(text, unit) {
  const found = text.trim().replace(",", ".").match(/^(\d*\.?\d+(?:[eE][-+]?\d+)?)\s*([nuµmkMGTP]?)(\S*)$/);
  if (found === null || !["", unit].includes(found[3])) return null;
  const scale = found[3] === "%" ? 0.01 : PREFIXES[found[2]] ?? 1;
  return Number(found[1]) * scale;
}

/** The questions about an operator that takes `time` seconds: text, unit and formula of each, and its answer. */
function questions(op, time) {
  const flops = flopsOf(op), work = si(flops, "FLOP"), least = seconds(op.bound_seconds);
  const ceilings = gpus() > 1 ? "memory, compute or communication" : "memory or compute";
  const rates = [
    { text: "Which FLOP/s does it reach?", unit: "FLOP/s", answer: flops / time, formula: `FLOPs ÷ time = ${work} ÷ ${seconds(time)}` },
    { text: "Which FLOP/s can it reach at most?", unit: "FLOP/s", answer: flops / op.bound_seconds,
      formula: `FLOPs ÷ bound = ${work} ÷ ${least}` },
  ];
  return [
    { text: `Which ceiling limits it: ${ceilings}?`, unit: "", answer: op.bound,
      formula: "the longest of the times that the formula has under bound" },
    ...(flops > 0 ? rates : []),
    { text: "Which share of that is it, in %?", unit: "%", answer: op.bound_seconds / time,
      formula: `bound ÷ time = ${least} ÷ ${seconds(time)}` },
  ];
}

/** Whether an answer is right, and else what to compute. */
function verdict({ unit, answer, formula }, text, count) {
  const given = unit ? numberOf(text, unit) : text.trim().toLowerCase();
  if (given === null) return `Not a number with the unit ${unit}: ${text}`;
  if (unit ? Math.abs(given / answer - 1) <= TOLERANCE : given === answer) return "";
  const ratio = unit ? given / answer : 1, near = (factor) => Math.abs(ratio / factor - 1) <= TOLERANCE;
  const factor = [1e-9, 1e-6, 1e-3, 0.01, 100, 1e3, 1e6, 1e9].find(near);
  const slip = factor ? ` Your answer is ${factor > 1 ? `${grouped(factor)} times too large` : `${grouped(Math.round(1 / factor))} times too small`}.`
    : count > 1 && (near(count) || near(1 / count)) ? ` The time is that of one of ${grouped(count)} occurrences.` : "";
  return `Not yet: ${formula}.${slip}`;
}

/** Shows the question about the shown operator; a new operator or setting starts again. */
function drawPractice() {
  const form = byId("practice").querySelector("form"), op = operators[shown], key = `${op.name} ${op.stage} ${linkText()}`;
  if (practiced.key !== key) {
    Object.assign(practiced, { key, seconds: null, question: 0 });
    form.reset();
    byId("verdict").textContent = "";
  }
  byId("practiced").textContent = fullName(op);
  const time = practiced.seconds, isPossible = time !== null && time >= op.bound_seconds;
  const asked = isPossible ? questions(op, time)[practiced.question] : undefined;
  if (time !== null && !isPossible) {
    byId("verdict").textContent = `${seconds(time)} is below the bound of ${seconds(op.bound_seconds)}, faster than physically `
      + "possible: check the time, the batch and the formats.";
  }
  byId("question").textContent = asked?.text ?? "";
  form.elements.answer.parentNode.hidden = asked === undefined;
  drawMeasured(op, time);
}

/** A star at the measured rate of the operator. */
function drawMeasured(op, time) {
  const { x, y, rem } = pictureScale(), flops = flopsOf(op);
  const star = (at, r) => Array.from({ length: 10 }, (_, n) => {
    const angle = (Math.PI * n) / 5, reach = n % 2 ? 0.45 * r : r;
    return `${at[0] + reach * Math.sin(angle)} ${at[1] - reach * Math.cos(angle)}`;
  }).join("L");
  const at = [x(op.intensity), y(flops / time)];
  layer("measured").replaceChildren(...(time === null || flops === 0 ? [] : [
    svg("path", { class: "star", d: `M${star(at, 0.8 * rem)}Z` }),
    svg("text", { class: "label", x: at[0] + rem, y: at[1] + 0.3 * rem }, "measured"),
  ]));
}

byId("practice").addEventListener("submit", (event) => {
  event.preventDefault();
  pinned = true; // the pointer on its way over the picture selects no other operator
  const { measured, answer } = event.target.elements, op = operators[shown];
  const time = numberOf(measured.value, "s");
  if (time !== practiced.seconds) {
    Object.assign(practiced, { seconds: time, question: 0 });
    byId("verdict").textContent = time === null ? `Not a time: ${measured.value}. Give one such as 120 us.` : "";
  } else if (!answer.parentNode.hidden) {
    const every = questions(op, time), wrong = verdict(every[practiced.question], answer.value, Number(op.count));
    if (wrong === "") {
      practiced.question += 1;
      answer.value = "";
    }
    const isLast = practiced.question === every.length;
    byId("verdict").textContent = wrong || (isLast ? "Right: that was the last question." : "Right.");
  }
  drawPractice();
});
