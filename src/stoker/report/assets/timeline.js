"use strict";
// Steps in lanes, steps that wait, and memory under the limit, on one time axis that zooms.
//
// Everything is drawn on one canvas. What is under the pointer is found by search in sorted lists,
// so that thousands of steps cost no elements of the page.

const GUTTER = 74;
const AXIS = 22;
const WAITING = 44;
const MARKS = 16;
const MEMORY = 190;
const GAP = 12;
const BINS = 8192; // in which the sum of all memory is kept
const CLOSEST = 0.05; // seconds: the shortest stretch that can be shown
const MARK_COLOURS = { "preempted": "--bad", "out of memory": "--bad", "ended at the deadline": "--warn", "failed": "--warn", "paused": "--warn" };

function lowerBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1; else high = middle;
  }
  return low; // how many are at most the value
}

class Timeline {
  constructor(canvas, overview, onPick) {
    this.canvas = canvas;
    this.overview = overview;
    this.onPick = onPick;
    this.end = Math.max(RUN.wall_s, ...chunkedMax(STEPS.ended), 0.1);
    this.from = 0;
    this.to = this.end;
    this.by = "role";
    this.picked = null;
    this.hovered = null;
    this.drag = null;
    this.wholeLanes();
    this.waitingSince = sortedNumbers(STEPS.asked.filter((at) => at !== null));
    this.waitingUntil = sortedNumbers(STEPS.started.filter((_, i) => STEPS.asked[i] !== null));
    this.mostWaiting = this.countMostWaiting();
    this.total = this.sumOfMemory();
    [this.mostMemory] = chunkedMax(this.total);
    this.marks = this.allMarks();
    this.targetColours = new Map(RUN.targets.slice(0, 10).map((target, i) => [target.name, `--t${i}`]));
    this.listen();
    Theme.listeners.push(() => this.draw());
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.resize();
  }

  // -- what does not change ---------------------------------------------------------------------

  wholeLanes() {
    this.lanes = [];
    for (let i = 0; i < STEPS.length; i += 1) {
      const lane = STEPS.lane[i];
      while (this.lanes.length <= lane) this.lanes.push({ steps: [], starts: [] });
      this.lanes[lane].steps.push(i);
      this.lanes[lane].starts.push(STEPS.started[i]);
    }
  }

  countMostWaiting() {
    let most = 0;
    for (const at of this.waitingSince) most = Math.max(most, this.waitingAt(at));
    return most;
  }

  waitingAt(time) { return lowerBound(this.waitingSince, time) - lowerBound(this.waitingUntil, time); }

  sumOfMemory() {
    const total = new Float64Array(BINS), width = this.end / BINS;
    for (let i = 0; i < STEPS.length; i += 1) {
      const last = Math.min(BINS - 1, Math.ceil(STEPS.ended[i] / width - 0.5) - 1);
      for (let bin = Math.max(0, Math.ceil(STEPS.started[i] / width - 0.5)); bin <= last; bin += 1) {
        total[bin] += STEPS.memory(i, (bin + 0.5) * width);
      }
    }
    return total;
  }

  allMarks() {
    const marks = [];
    for (let i = 0; i < STEPS.length; i += 1) {
      const outcome = STEPS.word("outcome", i);
      if (STEPS.lost(i)) marks.push({ at: STEPS.ended[i], step: i, kind: outcome });
      else if (outcome === "failed" && STEPS.word("target", i) !== "CMake probes") marks.push({ at: STEPS.ended[i], step: i, kind: "failed" });
      for (const pause of STEPS.pauses[i] || []) marks.push({ at: pause.at, step: i, kind: "paused" });
    }
    return marks.sort((a, b) => a.at - b.at);
  }

  // -- layout -----------------------------------------------------------------------------------

  resize() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    const lanes = Math.max(1, this.lanes.length);
    this.laneHeight = lanes > 80 ? 330 / lanes : Math.min(18, Math.floor(330 / lanes));
    this.width = width;
    this.plot = width - GUTTER;
    this.stagesTop = AXIS;
    const stages = RUN.build && RUN.build.stages.length ? 20 : 0;
    this.lanesTop = AXIS + stages + 4;
    this.waitingTop = this.lanesTop + lanes * this.laneHeight + GAP;
    this.marksTop = this.waitingTop + (this.mostWaiting ? WAITING + GAP : 0);
    this.memoryTop = this.marksTop + (this.marks.length ? MARKS : 0);
    this.height = this.memoryTop + MEMORY + 6;
    scaled(this.canvas, width, this.height);
    scaled(this.overview, width, 34);
    this.draw();
  }

  x(time) { return GUTTER + (time - this.from) / (this.to - this.from) * this.plot; }
  time(x) { return this.from + (x - GUTTER) / this.plot * (this.to - this.from); }

  colourOf(i) {
    if (STEPS.lost(i)) return Theme.colour("--bad");
    if (this.by === "role") return Theme.colour(ROLE_COLOURS[STEPS.word("role", i)] || "--other");
    return Theme.colour(this.targetColours.get(STEPS.word("target", i)) || "--other");
  }

  // -- drawing ----------------------------------------------------------------------------------

  draw() {
    if (!this.width) return;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.drawAxis(pen);
    this.drawStages(pen);
    this.drawLanes(pen);
    if (this.mostWaiting) this.drawWaiting(pen);
    this.drawMemory(pen);
    this.drawMarks(pen);
    this.drawPointer(pen);
    this.drawOverview();
    this.canvas.dataset.from = this.from.toFixed(3);
    this.canvas.dataset.to = this.to.toFixed(3);
  }

  label(pen, text, y) {
    pen.fillStyle = Theme.colour("--muted");
    pen.textAlign = "right";
    pen.fillText(text, GUTTER - 10, y);
  }

  drawAxis(pen) {
    const step = niceStep((this.to - this.from) / Math.max(2, this.plot / 110));
    pen.textAlign = "center";
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      pen.strokeStyle = Theme.colour("--line");
      pen.beginPath();
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, this.height);
      pen.stroke();
      const text = step < 1 ? `${at.toFixed(2)} s` : clock(at), half = pen.measureText(text).width / 2;
      pen.fillStyle = Theme.colour("--muted");
      pen.fillText(text, Math.min(x, this.width - half - 1), AXIS / 2 - 2);
    }
  }

  drawStages(pen) {
    let at = 0;
    if (!RUN.build || !RUN.build.stages.length) return;
    this.label(pen, "stages", this.stagesTop + 9);
    for (const stage of RUN.build.stages) {
      const left = Math.max(GUTTER, this.x(at)), right = Math.min(this.width, this.x(at + stage.wall_s));
      at += stage.wall_s;
      if (right <= left) continue;
      pen.fillStyle = Theme.colour("--soft");
      pen.fillRect(left, this.stagesTop + 1, Math.max(1, right - left - 1), 16);
      pen.fillStyle = Theme.colour(stage.end === "failed" ? "--bad" : "--muted");
      pen.textAlign = "left";
      if (right - left > pen.measureText(stage.stage).width + 12) pen.fillText(stage.stage, left + 6, this.stagesTop + 9);
    }
  }

  drawLanes(pen) {
    this.label(pen, "running", this.lanesTop + this.lanes.length * this.laneHeight / 2);
    const inset = this.laneHeight > 6 ? 1 : this.laneHeight > 3 ? 0.5 : 0;
    this.lanes.forEach((lane, number) => {
      const y = this.lanesTop + number * this.laneHeight;
      let place = Math.max(0, lowerBound(lane.starts, this.from) - 1), free = GUTTER;
      for (; place < lane.steps.length && lane.starts[place] < this.to; place += 1) {
        const i = lane.steps[place];
        const left = Math.max(GUTTER, this.x(STEPS.started[i])), right = Math.min(this.width, this.x(STEPS.ended[i]));
        if (right < GUTTER || (right < free && this.picked !== i)) continue; // hidden behind others
        const width = Math.max(0.6, right - left - (right - left > 3 ? 0.8 : 0));
        pen.globalAlpha = this.faded(i) ? 0.25 : STEPS.lost(i) ? 0.75 : 1;
        pen.fillStyle = this.colourOf(i);
        pen.fillRect(left, y + inset, width, this.laneHeight - 2 * inset);
        if (STEPS.lost(i) && width > 5) hatch(pen, left, y + inset, width, this.laneHeight - 2 * inset);
        free = left + 0.5;
        if (this.laneHeight >= 13 && width > 60) this.nameInside(pen, i, left, y, width);
      }
    });
    pen.globalAlpha = 1;
  }

  nameInside(pen, i, left, y, width) {
    const title = STEPS.title[i], isCommand = STEPS.word("role", i) === "other";
    const text = isCommand ? title.split(" ").map(shortName).join(" ") : shortName(title);
    pen.save();
    pen.beginPath();
    pen.rect(left, y, width - 4, this.laneHeight);
    pen.clip();
    pen.fillStyle = "#fff";
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.fillText(text, left + 4, y + this.laneHeight / 2 + 0.5);
    pen.restore();
  }

  faded(i) { return this.path ? !this.path.has(i) : false; }

  drawWaiting(pen) {
    const bottom = this.waitingTop + WAITING;
    this.label(pen, "waiting", this.waitingTop + WAITING / 2);
    pen.fillStyle = Theme.colour("--wait");
    pen.beginPath();
    pen.moveTo(GUTTER, bottom);
    for (let x = GUTTER; x <= this.width; x += 1) {
      const share = this.waitingAt(this.time(x)) / this.mostWaiting;
      pen.lineTo(x, bottom - share * (WAITING - 2));
    }
    pen.lineTo(this.width, bottom);
    pen.fill();
    pen.fillStyle = Theme.colour("--faint");
    pen.textAlign = "right";
    pen.fillText(`most ${this.mostWaiting}`, GUTTER - 10, this.waitingTop + WAITING / 2 + 15);
  }

  memoryTopValue() {
    const most = Math.max(RUN.peak, this.mostMemory, 1);
    if (!RUN.limit) return most * 1.1;
    return most < 0.35 * RUN.limit ? most * 1.35 : Math.max(RUN.limit, most) * 1.06;
  }

  drawMemory(pen) {
    const bottom = this.memoryTop + MEMORY, most = this.memoryTopValue();
    const y = (bytes) => bottom - bytes / most * MEMORY;
    this.stackColumns();
    this.drawBands(pen, y);
    this.drawEnvelope(pen, y);
    this.label(pen, "memory", this.memoryTop + 9);
    const unit = niceBytes(most / 6);
    for (let bytes = unit; bytes < most * 0.85; bytes += unit) this.label(pen, tick(bytes), y(bytes));
    pen.strokeStyle = Theme.colour("--line");
    line(pen, GUTTER, bottom + 0.5, this.width, bottom + 0.5);
    this.drawLimit(pen, y, most);
  }

  drawLimit(pen, y, most) {
    if (!RUN.limit) return;
    const above = RUN.limit > most, at = above ? this.memoryTop + 7 : Math.round(y(RUN.limit)) + 0.5;
    pen.fillStyle = pen.strokeStyle = Theme.colour("--bad");
    pen.textAlign = "left";
    if (!above) {
      pen.setLineDash([5, 4]);
      line(pen, GUTTER, at, this.width, at);
      pen.setLineDash([]);
    }
    const text = above ? `limit ${size(RUN.limit)}, above this chart` : `limit ${size(RUN.limit)}`;
    const width = pen.measureText(text).width;
    pen.fillStyle = Theme.colour("--card");
    pen.globalAlpha = 0.85;
    pen.fillRect(this.width - width - 12, at - 8, width + 10, 16);
    pen.globalAlpha = 1;
    pen.fillStyle = Theme.colour("--bad");
    pen.fillText(text, this.width - width - 7, at);
  }

  // For each pixel column, the step of each lane and the memory of all lanes up to it.
  stackColumns() {
    const columns = Math.max(1, Math.floor(this.plot)), below = new Float64Array(columns);
    this.stack = this.lanes.map((lane) => {
      const step = new Int32Array(columns).fill(-1), top = new Float64Array(columns);
      let place = Math.max(0, lowerBound(lane.starts, this.from) - 1);
      for (let column = 0; column < columns; column += 1) {
        const time = this.time(GUTTER + column + 0.5);
        while (place + 1 < lane.steps.length && lane.starts[place + 1] <= time) place += 1;
        const i = lane.steps[place];
        if (STEPS.started[i] <= time && time < STEPS.ended[i]) {
          step[column] = i;
          below[column] += STEPS.memory(i, time);
        }
        top[column] = below[column];
      }
      return { step, top };
    });
  }

  drawBands(pen, y) {
    this.stack.forEach((band, number) => {
      const under = number ? this.stack[number - 1].top : null, columns = band.step.length;
      let column = 0;
      while (column < columns) {
        const i = band.step[column];
        let last = column;
        while (last + 1 < columns && band.step[last + 1] === i) last += 1;
        if (i >= 0) this.drawBand(pen, y, i, band.top, under, column, last);
        column = last + 1;
      }
    });
    pen.globalAlpha = 1;
  }

  drawBand(pen, y, i, top, under, first, last) {
    pen.fillStyle = this.colourOf(i);
    pen.globalAlpha = this.faded(i) ? 0.2 : i === this.picked || i === this.hovered ? 1 : 0.78;
    if (last - first <= 6) { // too narrow for an outline: rectangles are much quicker than a path
      for (let column = first; column <= last; column += 1) {
        const upper = y(top[column]);
        pen.fillRect(GUTTER + column, upper, 1, y(under ? under[column] : 0) - upper);
      }
      return;
    }
    pen.beginPath();
    for (let column = first; column <= last; column += 1) {
      pen.lineTo(GUTTER + column, y(top[column]));
      pen.lineTo(GUTTER + column + 1, y(top[column]));
    }
    for (let column = last; column >= first; column -= 1) {
      const base = y(under ? under[column] : 0);
      pen.lineTo(GUTTER + column + 1, base);
      pen.lineTo(GUTTER + column, base);
    }
    pen.fill();
    pen.globalAlpha *= 0.7;
    pen.strokeStyle = Theme.colour("--band");
    pen.lineWidth = 0.7;
    pen.stroke();
    pen.lineWidth = 1;
  }

  drawEnvelope(pen, y) {
    const width = this.end / BINS;
    if ((this.to - this.from) / this.plot < width) return; // the bands themselves are finer
    pen.strokeStyle = Theme.colour("--muted");
    pen.globalAlpha = 0.7;
    pen.beginPath();
    for (let column = 0; column < this.plot; column += 1) {
      const first = Math.floor(this.time(GUTTER + column) / width);
      const last = Math.min(BINS - 1, Math.floor(this.time(GUTTER + column + 1) / width));
      let most = 0;
      for (let bin = Math.max(0, first); bin <= last; bin += 1) most = Math.max(most, this.total[bin]);
      pen.lineTo(GUTTER + column + 0.5, y(most));
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  drawMarks(pen) {
    if (!this.marks.length) return;
    this.label(pen, "events", this.marksTop + MARKS / 2);
    for (const mark of this.marks) {
      const x = this.x(mark.at), y = this.marksTop + MARKS / 2;
      if (x < GUTTER || x > this.width) continue;
      pen.fillStyle = Theme.colour(MARK_COLOURS[mark.kind]);
      if (mark.kind === "paused") {
        pen.fillRect(x - 2.5, y - 4, 2, 8);
        pen.fillRect(x + 0.5, y - 4, 2, 8);
      } else {
        pen.beginPath();
        if (mark.kind === "out of memory") pen.arc(x, y, 4, 0, 7);
        else { pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y - 4); pen.lineTo(x, y + 4); }
        pen.fill();
      }
    }
  }

  drawPointer(pen) {
    for (const i of [this.hovered, this.picked]) {
      if (i === null || i === undefined) continue;
      const y = this.lanesTop + STEPS.lane[i] * this.laneHeight;
      const left = Math.max(GUTTER, this.x(STEPS.started[i])), right = Math.min(this.width, this.x(STEPS.ended[i]));
      if (right < GUTTER || left > this.width) continue;
      pen.strokeStyle = Theme.colour("--text");
      pen.lineWidth = i === this.picked ? 2 : 1;
      pen.strokeRect(left, y + 0.5, Math.max(2, right - left), this.laneHeight - 1);
      if (STEPS.asked[i] !== null && left > GUTTER) line(pen, Math.max(GUTTER, this.x(STEPS.asked[i])), y + this.laneHeight / 2, left, y + this.laneHeight / 2);
      pen.lineWidth = 1;
    }
    if (this.drag && this.drag.moved) {
      const left = Math.min(this.drag.x, this.drag.now), width = Math.abs(this.drag.now - this.drag.x);
      pen.fillStyle = Theme.colour("--accent");
      pen.globalAlpha = 0.15;
      pen.fillRect(left, AXIS, width, this.height - AXIS);
      pen.globalAlpha = 1;
    }
  }

  drawOverview() {
    const pen = this.overview.getContext("2d"), height = 34, most = this.memoryTopValue();
    pen.clearRect(0, 0, this.width, height);
    pen.fillStyle = Theme.colour("--wait");
    const each = BINS / this.plot;
    for (let column = 0; column < this.plot; column += 1) {
      let highest = 0;
      for (let bin = Math.floor(column * each); bin < (column + 1) * each && bin < BINS; bin += 1) highest = Math.max(highest, this.total[bin]);
      const tall = highest / most * (height - 2);
      pen.fillRect(GUTTER + column, height - tall, 1, tall);
    }
    const left = GUTTER + this.from / this.end * this.plot, right = GUTTER + this.to / this.end * this.plot;
    pen.fillStyle = Theme.colour("--accent");
    pen.globalAlpha = 0.14;
    pen.fillRect(left, 0, Math.max(2, right - left), height);
    pen.globalAlpha = 1;
    pen.strokeStyle = Theme.colour("--accent");
    pen.strokeRect(left + 0.5, 0.5, Math.max(2, right - left - 1), height - 1);
    pen.textBaseline = "middle";
    pen.font = "12px system-ui, sans-serif";
    this.label(pen, "whole run", height / 2);
  }

  // -- what is under the pointer ----------------------------------------------------------------

  find(x, y) {
    if (x < GUTTER) return null;
    if (y >= this.marksTop && y < this.memoryTop) {
      const near = this.marks.filter((mark) => Math.abs(this.x(mark.at) - x) < 6);
      return near.length ? near[0].step : null;
    }
    if (y >= this.lanesTop && y < this.waitingTop - GAP) return this.findInLane(x, Math.floor((y - this.lanesTop) / this.laneHeight));
    if (y >= this.memoryTop && y <= this.memoryTop + MEMORY) return this.findInMemory(x, y);
    return null;
  }

  findInLane(x, number) {
    const lane = this.lanes[number];
    if (!lane) return null;
    const place = lowerBound(lane.starts, this.time(x)) - 1;
    const near = [place, place + 1].filter((each) => each >= 0 && each < lane.steps.length).map((each) => lane.steps[each]);
    const distance = (i) => Math.max(this.x(STEPS.started[i]) - x, x - this.x(STEPS.ended[i]), 0);
    const [nearest] = near.sort((a, b) => distance(a) - distance(b));
    return nearest !== undefined && distance(nearest) <= 2 ? nearest : null;
  }

  findInMemory(x, y) {
    const bytes = (this.memoryTop + MEMORY - y) / MEMORY * this.memoryTopValue();
    const column = Math.min(Math.floor(this.plot) - 1, Math.floor(x - GUTTER));
    const band = this.stack.find((each) => each.step[column] >= 0 && each.top[column] >= bytes);
    return band ? band.step[column] : null;
  }

  // -- zoom -------------------------------------------------------------------------------------

  show(from, to) {
    const length = Math.min(this.end, Math.max(CLOSEST, to - from));
    this.from = Math.max(0, Math.min(from, this.end - length));
    this.to = this.from + length;
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = null; this.draw(); });
  }

  zoom(factor, centre = (this.from + this.to) / 2) {
    this.show(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
  }

  pan(share) { const by = (this.to - this.from) * share; this.show(this.from + by, this.to + by); }

  whole() { this.show(0, this.end); }

  pick(i, { centre = false } = {}) {
    this.picked = i;
    if (i !== null && centre && (STEPS.ended[i] < this.from || STEPS.started[i] > this.to)) {
      const length = this.to - this.from, middle = (STEPS.started[i] + STEPS.ended[i]) / 2;
      this.show(middle - length / 2, middle + length / 2);
    }
    this.redraw();
    this.onPick(i);
  }

  listen() {
    const place = (event) => { const box = this.canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    this.canvas.addEventListener("pointermove", (event) => this.moved(event, ...place(event)));
    this.canvas.addEventListener("pointerleave", () => { this.hovered = null; hideTip(); this.redraw(); });
    this.canvas.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      if (event.button !== 0) return;
      this.drag = { x: Math.max(GUTTER, x), y, now: x, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointerup", (event) => this.released(...place(event)));
    this.canvas.addEventListener("pointercancel", () => { this.drag = null; this.redraw(); });
    this.canvas.addEventListener("dblclick", () => this.whole());
    this.canvas.addEventListener("wheel", (event) => this.wheeled(event, place(event)[0]), { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    const along = (event) => {
      const box = this.overview.getBoundingClientRect();
      const at = (event.clientX - box.left - GUTTER) / this.plot * this.end, half = (this.to - this.from) / 2;
      this.show(at - half, at + half);
    };
    this.overview.addEventListener("pointerdown", (event) => { this.overview.setPointerCapture(event.pointerId); along(event); });
    this.overview.addEventListener("pointermove", (event) => { if (event.buttons) along(event); });
  }

  moved(event, x, y) {
    if (this.drag) {
      this.drag.now = Math.max(GUTTER, Math.min(this.width, x));
      this.drag.moved = this.drag.moved || Math.abs(x - this.drag.x) > 4;
      this.redraw();
      return;
    }
    const found = this.find(x, y);
    if (found !== this.hovered) { this.hovered = found; this.redraw(); }
    if (found !== null) showTip(event, stepTip(found));
    else if (x > GUTTER && y > AXIS) showTip(event, momentTip(this.time(x), this));
    else hideTip();
  }

  released(x, y) {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (drag.moved) {
      const [from, to] = [this.time(drag.x), this.time(drag.now)].sort((a, b) => a - b);
      this.show(from, to);
    } else this.pick(this.find(x, y));
  }

  wheeled(event, x) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), this.time(Math.max(GUTTER, x)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / this.plot);
    }
  }

  pressed(event) {
    const actions = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.whole(), "Home": () => this.whole(),
      "ArrowLeft": () => this.pan(-0.2), "ArrowRight": () => this.pan(0.2),
      "ArrowDown": () => this.neighbour(1), "ArrowUp": () => this.neighbour(-1),
      "Escape": () => this.pick(null),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
    if (["+", "=", "-", "0", "Home", "ArrowLeft", "ArrowRight"].includes(event.key)) announce(`${clock(this.from)} to ${clock(this.to)} of ${clock(this.end)}`);
  }

  neighbour(by) {
    if (!STEPS.length) return;
    const next = this.picked === null ? 0 : Math.max(0, Math.min(STEPS.length - 1, this.picked + by));
    this.pick(next, { centre: true });
  }
}

// -- helpers ----------------------------------------------------------------------------------

function chunkedMax(values) {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return [most];
}

function sortedNumbers(values) { return Float64Array.from(values).sort(); }

function scaled(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
}

function line(pen, x1, y1, x2, y2) { pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke(); }

function hatch(pen, left, top, width, height) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
  pen.strokeStyle = Theme.colour("--card");
  pen.globalAlpha = 0.6;
  for (let x = left - height; x < left + width; x += 5) line(pen, x, top + height, x + height, top);
  pen.restore();
}

function niceStep(rough) {
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  return steps.find((step) => step >= rough) || 86400 * Math.ceil(rough / 86400);
}

function niceBytes(rough) {
  let bytes = 1;
  while (bytes < rough) bytes *= 2;
  return bytes;
}

function shortName(path) { return path.slice(path.lastIndexOf("/") + 1); }

function outcomeText(i) {
  const outcome = STEPS.word("outcome", i);
  if (outcome === "preempted") return "killed by stoker, then repeated";
  if (outcome === "out of memory") return "killed for lack of memory";
  if (outcome === "ended at the deadline") return outcome;
  return outcome === "failed" ? `failed with status ${STEPS.status[i]}` : "done";
}

function stepTip(i) {
  const wait = STEPS.waited[i] ? `, waited ${duration(STEPS.waited[i])}` : "";
  const lines = [
    `${STEPS.word("role", i)}, ${STEPS.word("target", i)}`,
    `${duration(STEPS.seconds[i])} from ${clock(STEPS.started[i])}${wait}`,
    `peak ${size(STEPS.peak[i])}, CPU ${duration(STEPS.cpu_seconds[i])}`,
  ];
  if (STEPS.word("outcome", i) !== "done") lines.push(outcomeText(i));
  return [el("b", {}, STEPS.title[i]), ...lines.map((text) => el("div", {}, text))];
}

function momentTip(time, timeline) {
  const bin = Math.min(BINS - 1, Math.max(0, Math.floor(time / timeline.end * BINS)));
  const running = timeline.lanes.filter((lane) => {
    const i = lane.steps[Math.max(0, lowerBound(lane.starts, time) - 1)];
    return STEPS.started[i] <= time && time < STEPS.ended[i];
  }).length;
  const waiting = timeline.mostWaiting ? `, ${timeline.waitingAt(time)} waiting` : "";
  return [el("b", {}, clock(time)), el("div", {}, `${running} running${waiting}`), el("div", {}, `${size(timeline.total[bin])} in use`)];
}

function showTip(event, content) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, window.innerWidth - box.width - 12))}px`;
  tip.style.top = `${event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 12 : event.clientY + 18}px`;
}

function hideTip() { document.getElementById("tip").hidden = true; }
