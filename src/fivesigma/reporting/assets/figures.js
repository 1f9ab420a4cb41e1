// Figures in SVG: linear and logarithmic axes, lines, bands, stacked steps, points. Text only ever by textContent.
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, text = null) {
  const out = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) out.setAttribute(key, value);
  if (text !== null) out.textContent = text;
  return out;
}

function formatNumber(v) {
  if (v === null || v === undefined) return "–";
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 1e7 || size < 1e-4) return v.toExponential(3);
  if (size >= 999.95) return Math.round(v).toString().replace(/\B(?=(\d{3})+$)/g, ",");
  return v.toPrecision(4);
}

function formatShare(v) {
  return v === null ? "–" : (100 * v).toPrecision(3) + " %";
}

function tickText(v) {
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 1e4 || size < 1e-3) return parseFloat(v.toPrecision(4)).toExponential().replace("e+", "e");
  return parseFloat(v.toPrecision(4)).toString();
}

// Powers of ten as physicists write them, but for the few that are as short as numbers.
function powerText(v) {
  const power = Math.round(Math.log10(v));
  if (Math.abs(power) < 3 || Math.abs(Math.log10(v) - power) > 1e-9) return tickText(v);
  return "10" + [...String(power)].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");
}

function linearTicks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const steps = power < 1 ? [1, 2, 2.5, 5, 10] : [1, 2, 5, 10]; // rounds are whole numbers
  const step = power * steps.find((m) => m * power >= raw * 0.999);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) out.push(k * step);
  return out;
}

function logTicks(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first) / 7));
  const out = [];
  for (let k = first; k <= last; k += stride) out.push(10 ** k);
  return out.length > 1 ? out : linearTicks(low, high, 4);
}

function makeScale({ domain, log }, from, to) {
  const at = log ? Math.log10 : (v) => v;
  const [low, high] = domain.map(at);
  const span = high - low || 1;
  // Far outside is as good as outside, and keeps numbers finite where a logarithm is not.
  return (v) => {
    const share = log && v <= 0 ? -2 : (at(v) - low) / span;
    return from + Math.max(-2, Math.min(3, share)) * (to - from);
  };
}

function pathOf(xs, ys, x, y) {
  let out = "";
  let pen = false;
  for (let i = 0; i < xs.length; i += 1) {
    if (ys[i] === null || xs[i] === null) { pen = false; continue; }
    out += `${pen ? "L" : "M"}${x(xs[i]).toFixed(1)},${y(ys[i]).toFixed(1)}`;
    pen = true;
  }
  return out;
}

function bandPath(xs, low, high, x, y) {
  const ok = xs.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
  if (!ok.length) return "";
  const up = ok.map((i) => `${x(xs[i]).toFixed(1)},${y(high[i]).toFixed(1)}`);
  const down = ok.reverse().map((i) => `${x(xs[i]).toFixed(1)},${y(low[i]).toFixed(1)}`);
  return `M${up.concat(down).join("L")}Z`;
}

function stepXY(edges, values) {
  const xs = [];
  const ys = [];
  values.forEach((v, i) => { xs.push(edges[i], edges[i + 1]); ys.push(v, v); });
  return [xs, ys];
}

const LAYERS = {
  line(layer, x, y) {
    const style = `fill:none;stroke:${layer.colour};stroke-width:${layer.width || 2};stroke-linejoin:round;`
      + (layer.dash ? `stroke-dasharray:${layer.dash};` : "");
    const d = pathOf(layer.x, layer.y, x, y);
    const halo = `fill:none;stroke:var(--paper);stroke-width:${(layer.width || 2) + 4};stroke-linejoin:round`;
    return [...(layer.halo ? [element("path", { d, style: halo })] : []), element("path", { d, style })];
  },
  band(layer, x, y) {
    const style = `fill:${layer.colour};opacity:${layer.opacity || 0.25};`;
    return [element("path", { d: bandPath(layer.x, layer.low, layer.high, x, y), style })];
  },
  bars(layer, x, y) {
    return layer.x.map((v, i) => element("line", {
      x1: x(v), x2: x(v), y1: y(layer.low[i]), y2: y(layer.high[i]), style: `stroke:${layer.colour};stroke-width:1.5`,
    }));
  },
  points(layer, x, y) {
    return layer.x.map((v, i) => (layer.y[i] === null ? element("g") : element("circle", {
      cx: x(v), cy: y(layer.y[i]), r: layer.radius || 5,
      style: layer.open ? `fill:var(--paper);stroke:${layer.colour};stroke-width:2` : `fill:${layer.colour};stroke:var(--paper);stroke-width:1.5`,
    })));
  },
};

function drawLegend(box, layers) {
  const list = document.createElement("ul");
  list.className = "legend";
  for (const layer of layers.filter((l) => l.label)) {
    const item = document.createElement("li");
    const swatch = document.createElement("i");
    swatch.className = layer.dash ? "dash" : { band: "", points: "dot" }[layer.type] ?? "thin";
    swatch.style.background = layer.dash ? "none" : layer.colour;
    swatch.style.borderColor = layer.colour;
    if (layer.type === "band") swatch.style.opacity = layer.opacity || 0.25;
    const text = document.createElement("span");
    text.textContent = layer.label;
    item.append(swatch, text);
    list.append(item);
  }
  if (list.children.length) box.append(list);
}

// A figure draws itself again when its box changes; `mark` gives the x of a line or the place of a dot for a row.
function makeFigure(id, spec) {
  const box = document.getElementById(id);
  if (!box) return null;
  const plot = document.createElement("div");
  plot.className = "plot";
  box.prepend(plot);
  drawLegend(box, spec.layers);
  const state = { row: null, x: null, y: null, area: null, marker: null };

  function draw() {
    const width = Math.max(280, plot.clientWidth || 640);
    const height = Math.round(Math.max(240, Math.min(380, width * (spec.ratio || 0.5))));
    const area = { left: 66, right: width - 14, top: 10, bottom: height - 46 };
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.alt });
    const x = makeScale(spec.x, area.left, area.right);
    const y = makeScale(spec.y, area.bottom, area.top);
    const inside = (v, [low, high]) => v >= low - 1e-9 * Math.abs(low) && v <= high + 1e-9 * Math.abs(high);
    const xTicks = spec.x.log ? logTicks(...spec.x.domain) : linearTicks(...spec.x.domain, Math.max(4, Math.round(width / 90)));
    const yTicks = spec.y.log ? logTicks(...spec.y.domain) : linearTicks(...spec.y.domain, 5);
    for (const v of yTicks.filter((t) => inside(t, spec.y.domain))) {
      svg.append(element("line", { class: "grid", x1: area.left, x2: area.right, y1: y(v), y2: y(v) }));
      svg.append(element("text", { x: area.left - 7, y: y(v) + 4, "text-anchor": "end" }, (spec.y.log ? powerText : tickText)(v)));
    }
    for (const v of xTicks.filter((t) => inside(t, spec.x.domain))) {
      svg.append(element("line", { class: "axis", x1: x(v), x2: x(v), y1: area.bottom, y2: area.bottom + 5 }));
      svg.append(element("text", { x: x(v), y: area.bottom + 18, "text-anchor": "middle" }, (spec.x.log ? powerText : tickText)(v)));
    }
    const clip = `${id}-clip`;
    const clipPath = element("clipPath", { id: clip });
    clipPath.append(element("rect", { x: area.left, y: area.top, width: area.right - area.left, height: area.bottom - area.top }));
    svg.append(clipPath);
    const layers = element("g", { "clip-path": `url(#${clip})` });
    for (const layer of spec.layers) layers.append(...LAYERS[layer.type](layer, x, y));
    svg.append(layers);
    svg.append(element("path", { class: "axis", d: `M${area.left},${area.top}V${area.bottom}H${area.right}` }));
    svg.append(element("text", { class: "title", x: (area.left + area.right) / 2, y: height - 8, "text-anchor": "middle" }, spec.x.label));
    const middle = (area.top + area.bottom) / 2;
    svg.append(element("text", { class: "title", x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})` }, spec.y.label));
    const marker = element("g", { "clip-path": `url(#${clip})`, class: "marker" });
    svg.append(marker);
    plot.replaceChildren(svg);
    Object.assign(state, { x, y, area, marker, width });
    mark(state.row);
  }

  function mark(row) {
    state.row = row;
    if (row === null || !spec.mark || !state.marker) return;
    const at = spec.mark(row);
    const { x, y, area, marker } = state;
    if (at === null) { marker.replaceChildren(); return; }
    const style = "stroke:var(--cut);stroke-width:1.5;stroke-dasharray:5 4";
    const parts = [];
    if (spec.markLine) parts.push(element("line", { x1: x(at[0]), x2: x(at[0]), y1: area.top, y2: area.bottom, style }));
    if (at[1] !== null && at[1] !== undefined) {
      parts.push(element("circle", { cx: x(at[0]), cy: y(at[1]), r: 6, style: "fill:var(--cut);stroke:var(--paper);stroke-width:2" }));
    }
    marker.replaceChildren(...parts);
  }

  // The value of x under a pointer, for figures that move the cut.
  function valueAt(event) {
    const rect = plot.firstElementChild.getBoundingClientRect();
    const pixel = ((event.clientX - rect.left) / rect.width) * state.width;
    const share = (pixel - state.area.left) / (state.area.right - state.area.left);
    const [low, high] = spec.x.domain;
    return low + Math.max(0, Math.min(1, share)) * (high - low);
  }

  draw();
  return { draw, mark, valueAt, plot };
}
