"use strict";
// The page of a report: draws the timeline and the memory, fills the tables. The data are in the element `data`; data.rs describes them.
// Only what is visible is drawn: rows are sorted, so that the first visible slice is found by bisection, and slices narrower than a pixel
// are drawn once for the pixel.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const make = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  // Units.
  const scaled = (value, steps) => {
    const [factor, unit] = steps.find(([factor]) => Math.abs(value) >= factor) ?? steps.at(-1);
    const number = value / factor;
    return `${Number(number.toPrecision(4))} ${unit}`;
  };
  const time = (ns) => scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);
  const bytes = (count) => scaled(count, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"], [1, "B"]]);
  const count = (value) => value.toLocaleString("en");
  const deviceName = (at) => data.devices[at].name;

  // Rows of the timeline, each with slices in order that do not overlap.
  const rows = [];
  data.devices.forEach((device, at) => {
    for (const track of device.tracks) {
      const deepest = track.depth.reduce((most, depth) => Math.max(most, depth), 0);
      for (let depth = 0; depth <= deepest; depth++) {
        const slices = [];
        track.depth.forEach((own, slice) => own === depth && slices.push(slice));
        rows.push({ track, slices, device: at, title: depth === 0 ? track.name : "" });
      }
    }
  });
  const sliceCount = rows.reduce((sum, row) => sum + row.slices.length, 0);
  const nameOf = (row, slice) => data.texts[row.track.name_at[slice]];
  const hue = (text) => {
    let hash = 7;
    const base = text.split(": ")[0];
    for (let i = 0; i < base.length; i++) hash = (hash * 31 + base.charCodeAt(i)) >>> 0;
    return (hash * 137) % 360;
  };
  const hues = data.texts.map(hue);
  const fill = (at, isDark) => `hsl(${hues[at]} ${isDark ? "45% 42%" : "60% 72%"})`;
  const isDark = () => {
    const theme = root.dataset.theme;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // View.
  const canvas = byId("timeline");
  const whole = Math.max(data.end_ns, 1);
  const edge = whole / 150;
  let [from, to] = [-edge, whole + edge];
  const GUTTER = 150, ROW = 22, AXIS = 24;
  const gutter = () => Math.min(GUTTER, canvas.clientWidth * 0.3);
  const span = () => Math.max(canvas.clientWidth - gutter(), 1);
  const toX = (ns) => gutter() + ((ns - from) / (to - from)) * span();
  const toTime = (x) => from + ((x - gutter()) / span()) * (to - from);
  let matches = new Set(), hits = [], hit = -1, selected = null;

  const view = (begin, end) => {
    const length = Math.min(Math.max(end - begin, 20), whole * 1.02);
    from = Math.min(Math.max(begin, -whole * 0.01), whole * 1.01 - length);
    to = from + length;
    draw();
  };
  const zoom = (factor, center = (from + to) / 2) => view(center - (center - from) * factor, center + (to - center) * factor);

  // First slice of a row whose end is after a time.
  const firstAfter = ({ track, slices }, ns, low = 0) => {
    let high = slices.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (track.begin[slices[middle]] + track.duration[slices[middle]] <= ns) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  const prepare = (element, height) => {
    const scale = window.devicePixelRatio || 1, width = element.clientWidth;
    element.width = Math.round(width * scale);
    element.height = Math.round(height * scale);
    const context = element.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    return context;
  };
  const clip = (context, text, width) => {
    if (text.length > 200) text = text.slice(0, 200);
    if (context.measureText(text).width <= width) return text;
    const fits = Math.floor(text.length * width / context.measureText(text).width) - 1;
    return fits > 1 ? `${text.slice(0, fits)}…` : "";
  };
  const ticks = (begin, end, most) => {
    const raw = (end - begin) / most, power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max([1, 2, 5, 10].find((factor) => factor * power >= raw) * power, 1);
    const all = [];
    for (let at = Math.ceil(Math.max(begin, 0) / step) * step; at <= end; at += step) all.push(at);
    return all;
  };

  let drawn = 0;
  const draw = () => {
    const height = AXIS + Math.max(rows.length, 1) * ROW + 4;
    canvas.style.height = `${height}px`;
    const context = prepare(canvas, height);
    const [text, faint, line, accent, bad] = ["--text", "--faint", "--line", "--accent", "--bad"].map(color);
    const dark = isDark(), left = gutter(), right = canvas.clientWidth;
    drawn = 0;
    context.strokeStyle = line;
    context.textAlign = "center";
    for (const at of ticks(from, to, Math.max(span() / 110, 1))) {
      const x = toX(at);
      context.beginPath(); context.moveTo(x, AXIS - 4); context.lineTo(x, height); context.stroke();
      context.fillStyle = faint;
      if (x > left + 20 && x < right - 20) context.fillText(time(at), x, AXIS / 2);
    }
    context.textAlign = "left";
    rows.forEach((row, at) => {
      const { track, slices } = row, top = AXIS + at * ROW;
      context.save();
      context.beginPath(); context.rect(left, top, right - left, ROW); context.clip();
      for (let place = firstAfter(row, from); place < slices.length; ) {
        const slice = slices[place], begin = track.begin[slice];
        if (begin > to) break;
        const x = Math.max(toX(begin), left - 2), end = Math.min(toX(begin + track.duration[slice]), right + 2);
        const width = Math.max(end - x, 1), textAt = track.name_at[slice];
        context.globalAlpha = matches.size && !matches.has(textAt) ? 0.25 : 1;
        context.fillStyle = track.failed[slice] ? bad : fill(textAt, dark);
        context.fillRect(x, top + 2, width > 3 ? width - 0.5 : width, ROW - 4);
        drawn++;
        if (width > 28) {
          context.fillStyle = track.failed[slice] ? color("--back") : text;
          context.fillText(clip(context, nameOf(row, slice), width - 8), x + 4, top + ROW / 2 + 0.5);
        }
        // The others that begin and end within this pixel are not drawn.
        place = end - x < 1 ? Math.max(place + 1, firstAfter(row, toTime(x + 1), place)) : place + 1;
      }
      // Those that the previous loop may have passed over.
      context.globalAlpha = 1;
      for (const [list, style] of [[row.failed ??= slices.filter((slice) => track.failed[slice]), bad], [row.found ?? [], accent]]) {
        let last = -1;
        context.fillStyle = context.strokeStyle = style;
        for (const slice of list) {
          const begin = track.begin[slice];
          if (begin + track.duration[slice] < from || begin > to || Math.floor(toX(begin)) === last) continue;
          last = Math.floor(toX(begin));
          const width = Math.max(toX(begin + track.duration[slice]) - toX(begin), 2);
          if (style === bad && width <= 3) context.fillRect(toX(begin), top + 2, width, ROW - 4);
          if (style === accent) context.strokeRect(toX(begin), top + 2, width, ROW - 4);
        }
      }
      context.restore();
      if (row.title) {
        context.fillStyle = faint;
        context.fillText(clip(context, row.title, left - 10), 8, top + ROW / 2);
        context.strokeStyle = line;
        context.beginPath(); context.moveTo(0, top + 0.5); context.lineTo(right, top + 0.5); context.stroke();
      }
    });
    if (selected) drawSelection(context, text, left, right);
    drawMemory();
    drawRoofline();
  };

  // The selected slice, and the flow of its command from host to device.
  const drawSelection = (context, text, left, right) => {
    const middle = (at) => AXIS + at * ROW + ROW / 2;
    const { row, slice } = selected, flow = row.track.flow[slice];
    const places = [];
    rows.forEach((other, at) => other.slices.forEach((one) => {
      if ((other === row && one === slice) || (flow && other.device === row.device && other.track.flow[one] === flow)) places.push([at, other.track, one]);
    }));
    context.save();
    context.beginPath(); context.rect(left, 0, right - left, canvas.clientHeight); context.clip();
    context.strokeStyle = text;
    context.lineWidth = 2;
    for (const [at, track, one] of places) {
      const x = toX(track.begin[one]);
      context.strokeRect(x, AXIS + at * ROW + 2, Math.max(toX(track.begin[one] + track.duration[one]) - x, 2), ROW - 4);
    }
    context.lineWidth = 1.5;
    for (let i = 1; i < places.length; i++) {
      const [[a, before, one], [b, after, other]] = [places[i - 1], places[i]];
      const [x, y] = [toX(before.begin[one] + before.duration[one]), toX(after.begin[other])];
      context.beginPath();
      context.moveTo(x, middle(a));
      context.bezierCurveTo((x + y) / 2, middle(a), (x + y) / 2, middle(b), y, middle(b));
      context.stroke();
    }
    context.restore();
  };

  const describe = (row, slice) => {
    const { track } = row, detail = data.texts[track.detail_at[slice]];
    const lines = [nameOf(row, slice), `${track.name}, submission ${track.submission[slice]}, ${deviceName(row.device)}`,
      `${time(track.duration[slice])} from ${time(track.begin[slice])}`];
    return detail ? [...lines, detail].join("\n") : lines.join("\n");
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const row = rows[Math.floor((y - AXIS) / ROW)];
    if (!row || x < gutter()) return null;
    const slack = (to - from) / span(), place = firstAfter(row, toTime(x) - slack), slice = row.slices[place];
    return slice !== undefined && row.track.begin[slice] <= toTime(x) + slack ? { row, slice } : null;
  };
  const select = (what, moves) => {
    selected = what;
    byId("selected").textContent = what ? describe(what.row, what.slice) : "No slice is selected.";
    if (what && moves) {
      const begin = what.row.track.begin[what.slice], length = Math.max(what.row.track.duration[what.slice] * 8, 100);
      if (begin < from || begin > to || length < (to - from) / 200) return view(begin - length / 2, begin + length / 2);
    }
    draw();
  };
  const step = (by) => {
    if (!hits.length) return;
    hit = (hit + by + hits.length) % hits.length;
    select(hits[hit], true);
  };

  // Search.
  const search = (text) => {
    const wanted = text.trim().toLowerCase();
    const found = new Set();
    if (wanted) data.texts.forEach((one, at) => one.toLowerCase().includes(wanted) && found.add(at));
    matches = new Set();
    hits = [];
    hit = -1;
    for (const row of rows) {
      row.found = found.size ? row.slices.filter((slice) => found.has(row.track.name_at[slice]) || found.has(row.track.detail_at[slice])) : [];
      row.found.forEach((slice) => { matches.add(row.track.name_at[slice]); hits.push({ row, slice }); });
    }
    if (wanted && !hits.length) matches.add(-1);
    hits.sort((a, b) => a.row.track.begin[a.slice] - b.row.track.begin[b.slice]);
    byId("found").textContent = wanted ? `${count(hits.length)} slices` : "";
    root.dataset.found = hits.length;
    draw();
  };

  // Memory over time, in the timeline's view.
  const drawMemory = () => {
    const element = byId("memory"), height = 130, context = prepare(element, height);
    const samples = data.devices.map((device) => device.memory), left = gutter(), right = element.clientWidth;
    const most = samples.flat().reduce((most, [, live, idle]) => Math.max(most, live + idle), 1);
    const y = (value) => height - 8 - (value / most) * (height - 24);
    context.fillStyle = color("--faint");
    context.fillText(bytes(most), 8, y(most));
    context.fillText("0", 8, y(0) - 4);
    context.beginPath(); context.rect(left, 0, right - left, height); context.clip();
    samples.forEach((points, device) => [[2, color("--faint")], [1, color("--accent")]].forEach(([part, style]) => {
      context.beginPath();
      let previous = y(0), last = -2;
      context.moveTo(left, y(0));
      for (const point of points) {
        const x = toX(point[0]), value = y(part === 1 ? point[1] : point[1] + point[2]);
        if (Math.floor(x) === last && value === previous) continue;
        last = Math.floor(x);
        context.lineTo(x, previous); context.lineTo(x, value);
        previous = value;
      }
      context.lineTo(points.length ? right : left, previous);
      context.strokeStyle = style;
      context.setLineDash(device ? [4 + device, 3] : []);
      context.stroke();
    }));
  };

  // Rates below the roofs, on logarithmic axes. The roof of a device is the least of its peak rate and its bandwidth times the intensity.
  const rated = data.kernels.filter((kernel) => kernel.flops > 0 && kernel.touched > 0 && kernel.work_ns);
  const gflops = (kernel) => kernel.flops / kernel.work_ns;
  const intensity = (kernel) => kernel.flops / kernel.touched;
  const roof = (kernel) => {
    const roofs = data.devices[kernel.device].roofs;
    return roofs && Math.min(roofs.flops, roofs.bandwidth * intensity(kernel)) / 1e9;
  };
  const roofed = data.devices.filter((device, at) => device.roofs && rated.some((kernel) => kernel.device === at));
  const drawRoofline = () => {
    if (!roofed.length) return;
    const element = byId("roofline"), height = 300, context = prepare(element, height), left = 70, right = element.clientWidth - 12;
    const ridges = roofed.map(({ roofs }) => roofs.flops / roofs.bandwidth), peaks = roofed.map(({ roofs }) => roofs.flops / 1e9);
    const powers = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
    let [first, last] = powers([...rated.map(intensity), ...ridges]), [low, high] = powers([...rated.map(gflops), ...peaks]);
    [last, high] = [Math.max(last, first + 2), Math.max(high, low + 2)];
    const x = (value) => left + ((Math.log10(value) - first) / (last - first)) * (right - left);
    const y = (value) => height - 30 - ((Math.log10(value) - low) / (high - low)) * (height - 46);
    const [text, faint, line, accent] = ["--text", "--faint", "--line", "--accent"].map(color);
    const power = (at) => at < 0 ? `0.${"0".repeat(-at - 1)}1` : count(10 ** at);
    context.strokeStyle = line;
    context.fillStyle = faint;
    context.textAlign = "center";
    for (let at = first; at <= last; at++) {
      context.beginPath(); context.moveTo(x(10 ** at), 16); context.lineTo(x(10 ** at), height - 30); context.stroke();
      context.fillText(`${power(at)}${at === last ? " FLOP/B" : ""}`, Math.min(x(10 ** at), right - 30), height - 14);
    }
    context.textAlign = "right";
    for (let at = low; at <= high; at++) {
      context.beginPath(); context.moveTo(left, y(10 ** at)); context.lineTo(right, y(10 ** at)); context.stroke();
      context.fillText(power(at), left - 6, y(10 ** at));
    }
    context.textAlign = "left";
    context.fillText("GFLOP/s", left + 6, 8);
    context.strokeStyle = accent;
    context.lineWidth = 2;
    roofed.forEach(({ roofs }, at) => {
      const start = Math.max(10 ** first, (10 ** low * 1e9) / roofs.bandwidth);
      context.setLineDash(at ? [4 + at, 3] : []);
      context.beginPath();
      context.moveTo(x(start), y(Math.min(start * roofs.bandwidth, roofs.flops) / 1e9));
      context.lineTo(x(ridges[at]), y(peaks[at]));
      context.lineTo(right, y(peaks[at]));
      context.stroke();
    });
    context.setLineDash([]);
    const dark = isDark();
    for (const kernel of rated.filter((kernel) => data.devices[kernel.device].roofs)) {
      const [cx, cy] = [x(intensity(kernel)), y(gflops(kernel))];
      context.fillStyle = `hsl(${hue(kernel.name)} ${dark ? "60% 60%" : "60% 42%"})`;
      context.beginPath(); context.arc(cx, cy, 5, 0, 2 * Math.PI); context.fill();
      context.fillStyle = text;
      context.textAlign = cx > right - 160 ? "right" : "left";
      context.fillText(clip(context, kernel.name, 150), cx + (cx > right - 160 ? -9 : 9), cy);
    }
  };

  // Tables; a column is [title, value, text of the value, whether it is text].
  const table = (id, records, columns, none) => {
    const element = byId(id), head = element.tHead.insertRow(), body = element.tBodies[0];
    if (!records.length) {
      element.replaceWith(make("p", none, "note"));
      return;
    }
    let order = null, direction = -1;
    const show = () => {
      const sorted = [...records];
      if (order) {
        const value = order[1];
        sorted.sort((a, b) => direction * (typeof value(a) === "string" ? value(a).localeCompare(value(b)) : (value(a) ?? -1) - (value(b) ?? -1)));
      }
      body.replaceChildren(...sorted.map((record) => {
        const row = make("tr");
        for (const [, value, text, kind] of columns) {
          const cell = make("td", text ? text(value(record), record) : value(record), kind);
          if (kind === "bar") cell.style.setProperty("--part", value(record));
          row.append(cell);
        }
        return row;
      }));
    };
    for (const column of columns) {
      const cell = make("th", undefined, column[3]), button = make("button", column[0]);
      cell.scope = "col";
      button.type = "button";
      button.addEventListener("click", () => {
        direction = order === column ? -direction : column[3] === "text" ? 1 : -1;
        order = column;
        for (const other of head.cells) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
        show();
      });
      cell.append(button);
      head.append(cell);
    }
    show();
  };
  const orNone = (text) => (value) => value === null ? "" : text(value);
  const timed = (key) => (kernel) => kernel.measured ? kernel[key] : null;
  const several = data.devices.length > 1 ? [["device", (it) => deviceName(it.device), null, "text"]] : [];
  table("kernels", data.kernels, [
    ["name", (it) => it.name, null, "text"], ...several,
    ["launches", (it) => it.launches, count], ["failed", (it) => it.failed, (value) => value || ""],
    ["total", timed("total_ns"), orNone(time)], ["share", (it) => it.share, (value) => `${(value * 100).toFixed(1)} %`, "bar"],
    ["mean", timed("mean_ns"), orNone(time)], ["median", timed("median_ns"), orNone(time)], ["p99", timed("p99_ns"), orNone(time)],
    ["recording", (it) => it.host_ns, time],
    ["GB/s", (it) => it.total_ns && it.bytes ? it.bytes / it.total_ns : null, orNone((value) => value.toPrecision(3))],
    ["GFLOP/s", (it) => it.work_ns && it.flops ? gflops(it) : null, orNone((value) => value.toPrecision(3))],
    ["FLOP/B", (it) => it.touched ? intensity(it) : null, orNone((value) => value.toPrecision(3))],
    ["of roof", (it) => rated.includes(it) && roof(it) ? gflops(it) / roof(it) : null, orNone((value) => `${(value * 100).toPrecision(3)} %`)],
  ], "No commands were recorded.");
  table("failures", data.failures, [
    ["at", (it) => it.at_ns, time], ["submission", (it) => it.submission, count], ...several,
    ["command", (it) => it.name, null, "text"], ["error", (it) => it.text, null, "text error"],
  ], "Nothing failed.");
  const metric = (device, name, attribute = "") => device.metrics.find((one) => one.name === name && one.attributes.join() === attribute);
  const compiled = (at) => (device) => metric(device, "elinvar.compilation.duration")?.distribution?.[at] ?? null;
  table("devices", data.devices, [
    ["device", (it) => it.name, null, "text"], ["kind", (it) => it.kind, null, "text"], ["program", (it) => it.program, null, "text"],
    ["process", (it) => it.process], ["units", (it) => it.compute_units], ["clock error", (it) => it.clock_error_ns, time],
    ["lost", (it) => it.lost, count], ["compiled", (it) => metric(it, "elinvar.compilation.duration")?.value ?? 0, count],
    ["in", compiled(0), orNone(time)], ["median", compiled(1), orNone(time)], ["p99", compiled(2), orNone(time)],
    ["pool hits", (it) => metric(it, "elinvar.memory.allocations", "hit")?.value ?? 0, count],
    ["pool misses", (it) => metric(it, "elinvar.memory.allocations", "miss")?.value ?? 0, count],
  ], "No device did anything.");

  // Header, figures, advice.
  const programs = [...new Set(data.devices.map((device) => device.program).filter(Boolean))];
  const versions = [...new Set(data.devices.map((device) => device.version).filter(Boolean))];
  const parts = [programs.join(", "), [...new Set(data.devices.map((device) => device.name))].join(", "),
    data.unix_ns ? new Date(data.unix_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "", versions.map((one) => `Elinvar ${one}`).join(", ")];
  byId("about").textContent = parts.filter(Boolean).join(" · ") || "Nothing was recorded.";
  const launches = data.kernels.filter((kernel) => kernel.is_launch).reduce((sum, kernel) => sum + kernel.launches, 0);
  const busy = data.kernels.reduce((sum, kernel) => sum + kernel.total_ns, 0);
  const most = data.devices.reduce((most, device) => device.memory.reduce((most, sample) => Math.max(most, sample[1]), most), 0);
  for (const [title, text, kind] of [
    ["Duration", time(data.end_ns)], ["Launches", count(launches)], ["Time of commands", time(busy)],
    ["Most live memory", bytes(most)], ["Failures", count(data.failures.length), data.failures.length ? "bad" : ""],
  ]) {
    const group = make("div", undefined, kind);
    group.append(make("dt", title), make("dd", text));
    byId("figures").append(group);
  }
  byId("memory").setAttribute("aria-label", `Memory of the pool over time; at most ${bytes(most)} live`);
  byId("memory-text").textContent = `Line: live buffers. Faint line: with blocks that are kept for reuse. At most ${bytes(most)} were live. The times are those of the timeline.`;
  byId("roofline-section").hidden = !roofed.length;
  byId("roofline-text").textContent = roofed.map(({ name, roofs }) =>
    `${name}: ${Number((roofs.flops / 1e9).toPrecision(3))} GFLOP/s of fused multiply-adds, ${Number((roofs.bandwidth / 1e9).toPrecision(3))} GB/s of a copy, both measured.`).join(" ");
  byId("advice").hidden = !data.advice.length;
  for (const { title, text } of data.advice) {
    const item = make("li", text);
    item.prepend(make("strong", title));
    byId("advice").lastElementChild.append(item);
  }

  // Input.
  let dragged = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), toTime(event.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    dragged = { x: event.clientX, from, to, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const tip = byId("tip");
    if (dragged) {
      dragged.moved ||= Math.abs(event.clientX - dragged.x) > 3;
      const by = ((event.clientX - dragged.x) / span()) * (dragged.to - dragged.from);
      if (dragged.moved) view(dragged.from - by, dragged.to - by);
    }
    const under = dragged?.moved ? null : at(event);
    tip.hidden = !under;
    if (!under) return;
    tip.textContent = describe(under.row, under.slice);
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(0, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 4))}px`;
  });
  canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  canvas.addEventListener("pointerup", (event) => {
    if (dragged && !dragged.moved) select(at(event), false);
    dragged = null;
  });
  canvas.addEventListener("pointercancel", () => { dragged = null; });
  const keys = {
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => view(-edge, whole + edge),
    ArrowLeft: () => view(from - (to - from) / 8, to - (to - from) / 8), ArrowRight: () => view(from + (to - from) / 8, to + (to - from) / 8),
    n: () => step(1), p: () => step(-1), Escape: () => select(null, false),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = !event.ctrlKey && !event.metaKey && !event.altKey && keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  byId("search").addEventListener("input", (event) => search(event.target.value));
  byId("search").addEventListener("keydown", (event) => { if (event.key === "Enter") step(event.shiftKey ? -1 : 1); });
  byId("zoom-in").addEventListener("click", () => zoom(0.6));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
  byId("zoom-all").addEventListener("click", () => view(-edge, whole + edge));
  byId("theme").addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", draw);

  // An address such as `report.html#search=add&from=0&to=5000&theme=dark` shows a view.
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (wanted.has("theme")) root.dataset.theme = wanted.get("theme");
  const began = performance.now();
  if (wanted.has("from") && wanted.has("to")) view(Number(wanted.get("from")), Number(wanted.get("to")));
  else draw();
  if (wanted.has("search")) { byId("search").value = wanted.get("search"); search(wanted.get("search")); step(1); }
  Object.assign(root.dataset, {
    ready: "true", slices: sliceCount, drawn, kernels: data.kernels.length, failures: data.failures.length, advice: data.advice.length,
    drawnMs: Math.round(performance.now() - began),
  });
})();
