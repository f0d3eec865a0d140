"use strict";
// Shared by the scripts of the page: the data, text for amounts, elements, colours.

const DATA = JSON.parse(document.getElementById("data").textContent);
const RUN = DATA.shown;
const ROLE_COLOURS = {
  "compile C++": "--cxx", "compile CUDA": "--cuda", "compile C": "--c", "compile Fortran": "--fortran",
  "compile Rust": "--rust", "link": "--link", "archive": "--archive", "other": "--other",
};
const LOST = new Set(["preempted", "out of memory", "ended at the deadline"]);

// -- amounts as text --------------------------------------------------------------------------

function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const sign = bytes < 0 ? "−" : "";
  let amount = Math.abs(bytes), unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (amount >= 1024 && unit < units.length - 1) { amount /= 1024; unit += 1; }
  return `${sign}${amount.toFixed(unit === 0 || amount >= 100 ? 0 : 1)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const sign = seconds < 0 ? "−" : "";
  const all = Math.abs(seconds);
  if (all < 1) return `${sign}${Math.round(all * 1000)} ms`;
  if (all < 10) return `${sign}${all.toFixed(1)} s`;
  if (all < 100) return `${sign}${Math.round(all)} s`;
  const whole = Math.round(all), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours ? `${sign}${hours} h ${minutes} min` : `${sign}${minutes} min ${whole % 60} s`;
}

function clock(seconds) {
  const whole = Math.floor(seconds), rest = String(whole % 60).padStart(2, "0");
  const minutes = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)} %`;
const count = (number) => number.toLocaleString("en");
const times = (factor) => `×${factor.toFixed(2)}`;
const tick = (bytes) => size(bytes).replace(".0 ", " ");
function memoryTime(amount) {
  if (amount === null) return "–";
  if (amount < 1024 ** 3 / 10) return `${(amount / 1024 ** 2).toFixed(amount < 1024 ** 2 * 10 ? 1 : 0)} MiB·s`;
  const amounts = amount / 1024 ** 3;
  return `${amounts < 100 ? amounts.toFixed(amounts < 1 ? 2 : 1) : count(Math.round(amounts))} GiB·s`;
}
const money = (amount) => (amount === null || amount === undefined ? "–" : `${amount.toFixed(amount < 1 ? 3 : 2)} ${DATA.currency}`.trim());
const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many || `${one}s`}`;

// -- elements ---------------------------------------------------------------------------------

// el("td", {class: "num", onclick: f}, "text", otherElement): text always becomes a text node.
function el(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(made.style, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// Attributes of a row that can be chosen with the pointer or with Enter.
function picking(act) {
  return { class: "pick", tabindex: "0", onclick: act, onkeydown: (event) => { if (event.key === "Enter") act(); } };
}

function bar(share, colour) {
  const width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  return el("div", { class: "bar", "aria-hidden": "true" }, el("i", { style: { width, background: `var(${colour})` } }));
}

function announce(text) { document.getElementById("live").textContent = text; }

// A table whose columns are {title, num, cell(row), key(row)}; a key makes the column sortable.
function table(columns, rows, options = {}) {
  const body = el("tbody");
  const fill = () => body.replaceChildren(...rows.map((row) => {
    const cells = columns.map((column) => el("td", { class: column.num ? "num" : column.name ? "name" : null }, column.cell(row)));
    return el("tr", options.pick ? picking(() => options.pick(row)) : {}, cells);
  }));
  const heads = columns.map((column) => el("th", { scope: "col", class: column.num ? "num" : null }, column.title || el("span", { class: "unseen" }, "as a bar")));
  fill();
  return el("div", { class: "scroll", tabindex: "0" }, el("table", {}, options.caption ? el("caption", { class: "unseen" }, options.caption) : null, el("thead", {}, el("tr", {}, heads)), body));
}

function card(id, title, note, ...children) {
  const head = el("div", { class: "row between" }, el("h2", {}, title), note ? el("span", { class: "muted" }, note) : null);
  return el("section", { class: "card", id, "aria-label": title }, head, children);
}

// -- steps ------------------------------------------------------------------------------------

class Steps {
  constructor(columns) {
    Object.assign(this, columns);
    this.length = this.title.length;
    this.ended = this.started.map((start, i) => start + this.seconds[i]);
    this.waited = this.asked.map((at, i) => (at === null ? null : Math.max(0, this.started[i] - at)));
    this.decoded = new Map();
  }
  word(column, i) { const place = this[column][i]; return place === null ? "" : this.tables[column][place]; }
  lost(i) { return LOST.has(this.word("outcome", i)); }
  failed(i) { return this.word("outcome", i) === "failed"; }
  shape(i) {
    if (!this.decoded.has(i)) {
      const text = atob(this.profile[i]);
      this.decoded.set(i, Uint8Array.from(text, (character) => character.charCodeAt(0)));
    }
    return this.decoded.get(i);
  }
  // Bytes in use at a time within the step's life: by its profile, else its mean.
  memory(i, time) {
    const shape = this.shape(i), life = this.seconds[i];
    if (!shape.length) return life > 0 && this.byte_seconds[i] !== null ? Math.min(this.peak[i], this.byte_seconds[i] / life) : this.peak[i];
    const part = Math.min(shape.length - 1, Math.max(0, Math.floor(shape.length * (time - this.started[i]) / life)));
    return this.peak[i] * shape[part] / 100;
  }
}

const STEPS = new Steps(RUN.columns);

// -- colours ----------------------------------------------------------------------------------

const Theme = {
  values: new Map(),
  listeners: [],
  colour(name) {
    if (!this.values.has(name)) this.values.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    return this.values.get(name);
  },
  set(name) {
    document.documentElement.dataset.theme = name;
    this.values.clear();
    for (const listener of this.listeners) listener();
  },
  toggle() { this.set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); },
};
const preferred = window.matchMedia("(prefers-color-scheme: dark)");
Theme.set(preferred.matches ? "dark" : "light");
preferred.addEventListener("change", (event) => Theme.set(event.matches ? "dark" : "light"));
