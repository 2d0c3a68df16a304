// Evaluates the formulas that Python traced (explore/traced_estimate.py). These scripts contain no formula of a cost or a time:
// only the arithmetic operations, and the formatting of numbers.

const byId = (id) => document.getElementById(id);

async function decompress(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const data = await decompress(byId("data").textContent);

// --- Python numbers: ints are BigInt, floats are Number; None is null, and so is each result that uses it ------------

/** The exact quotient of two ints, where it is no int. */
class Fraction {
  constructor(over, under) {
    this.over = over;
    this.under = under;
  }

  valueOf() {
    return Number(this.over) / Number(this.under);
  }
}

const plain = (value) => (value instanceof Fraction ? Number(value) : value);

const PYTHON = (() => {
  const floorDivide = (a, b) => (a - modulo(a, b)) / b;
  const modulo = (a, b) => {
    const remainder = a % b;
    return remainder !== 0n && remainder < 0n !== b < 0n ? remainder + b : remainder;
  };
  const floatModulo = (a, b) => {
    const remainder = a % b;
    return remainder !== 0 && remainder < 0 !== b < 0 ? remainder + b : remainder;
  };
  const floatFloorDivide = (a, b) => {  // as CPython does it: a / b may round up to the next whole number
    const quotient = (a - floatModulo(a, b)) / b, floor = Math.floor(quotient);
    return quotient - floor > 0.5 ? floor + 1 : floor;
  };
  const number = (x) => (typeof x === "boolean" ? BigInt(x) : x);
  const fraction = (over, under) => (over % under === 0n ? over / under : new Fraction(over, under));
  const parts = (x) => (typeof x === "bigint" ? { over: x, under: 1n } : x);
  const of = (ints, floats, fractions) => (a, b) => {
    a = number(a);
    b = number(b);
    if (typeof a === "bigint" && typeof b === "bigint") return ints(a, b);
    const exact = [a, b].every((x) => typeof x === "bigint" || x instanceof Fraction);
    return exact && fractions ? fractions(parts(a), parts(b)) : floats(Number(a), Number(b));
  };
  const negated = (a) => (a instanceof Fraction ? new Fraction(-a.over, a.under) : -number(a));
  const floorDivided = of(floorDivide, floatFloorDivide,
    (a, b) => floorDivide(a.over * b.under, a.under * b.over));
  return {
    "+": of((a, b) => a + b, (a, b) => a + b,
      (a, b) => fraction(a.over * b.under + b.over * a.under, a.under * b.under)),
    "-": of((a, b) => a - b, (a, b) => a - b,
      (a, b) => fraction(a.over * b.under - b.over * a.under, a.under * b.under)),
    "*": of((a, b) => a * b, (a, b) => a * b, (a, b) => fraction(a.over * b.over, a.under * b.under)),
    "/": of((a, b) => Number(a) / Number(b), (a, b) => a / b),
    mean: of(fraction, (a, b) => a / b, (a, b) => fraction(a.over * b.under, a.under * b.over)),
    "//": floorDivided,
    ceil: (a, b) => -floorDivided(negated(a), b),
    "%": of(modulo, floatModulo),
    "**": of((a, b) => (b < 0n ? Number(a) ** Number(b) : a ** b), (a, b) => a ** b),
    "<": (a, b) => a < b,  // exact, also of a BigInt and a Number
    "<=": (a, b) => a <= b,
    "==": (a, b) => a == b,
    min: (a, b) => (a <= b ? a : b),
    max: (a, b) => (a >= b ? a : b),
    neg: negated,
    expm1: (a) => Math.expm1(Number(a)),
  };
})();

const figure = (value) => (typeof value === "string" ? BigInt(value) : value);  // ints travel as text

/** The nodes of a trace for given inputs, each evaluated once and only on demand. */
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
    const [kind, a, b, c] = node, rule = PYTHON[kind];
    if (kind === "whole") return BigInt(a);
    if (kind === "real" || kind === "text") return a;
    if (kind === "input") return this.input(a);
    if (kind === "if") {
      const condition = this.get(a);
      return condition === null ? null : this.get(condition ? b : c);
    }
    if (kind === "bytes") return callFormula(`bytes|${this.input(`format|${this.get(a)}`)}`, [this.get(b)]);
    const values = node.slice(1).map((index) => this.get(index));
    if (rule === undefined) return callFormula(kind, values);
    return values.includes(null) ? null : values.length > 1 ? values.reduce((x, y) => rule(x, y)) : rule(...values);
  }

  /** The case that the conditions select. */
  pick(cases) {
    const isFork = typeof cases === "object" && "if" in cases;
    return isFork ? this.pick(this.get(cases.if) ? cases.yes : cases.no) : cases;
  }

  /** Data with every formula in it replaced by its value. */
  fill(value) {
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map((item) => this.fill(item));
    if ("$" in value) return plain(this.get(value.$));
    if ("if" in value) return this.fill(this.pick(value));
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.fill(item)]));
  }
}

function callFormula(name, values) {
  if (values.includes(null)) return null;
  const formula = data.formulas[name];
  const sheet = new Sheet(formula.nodes, (parameter) => plain(values[parameter]));
  return sheet.fill(sheet.pick(formula.result));
}

// --- Formatted numbers (the same as in units.py) --------- -----------------------------------------------------------

const DECIMAL = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
const BINARY = [["Pi", 2 ** 50], ["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 2 ** 10]];

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
const percent = (part) => `${(100 * part).toFixed(part < 0.0995 && part > 0 ? 1 : 0)}\u00a0%`;
