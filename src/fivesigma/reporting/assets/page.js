// The page: figures from the embedded table, and the slider that moves the cut in all of them.
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const { cuts, progress, scores, verdict, overtraining, profiled } = D;
  const known = (values) => values.filter((v) => v !== null);
  const extent = (values) => [Math.min(...known(values)), Math.max(...known(values))];
  const rows = cuts.cut.map((_, i) => i);
  const counting = rows.filter((i) => cuts.significance[i] !== null);
  const cutDomain = extent(counting.map((i) => cuts.cut[i]));
  const figures = [];
  const add = (id, spec) => {
    const figure = makeFigure(id, spec);
    if (figure) figures.push(figure);
    return figure;
  };

  const top = Math.max(...progress.objective);
  const visible = progress.cut.filter((_, i) => progress.objective[i] > 0.15 * top);
  const colours = (k) => `var(--m${k % 7})`;
  add("fig-progress", {
    alt: "Half the squared significance and the minorants of some rounds against the cut",
    x: { label: "cut on the score", domain: extent(visible) },
    y: { label: progress.name === "F" ? "F, the objective" : "Z²/2, half the squared significance", domain: [0, 1.1 * top] },
    layers: [
      ...progress.minorants.map((m, k) => ({
        type: "line", x: progress.cut, y: m.value, colour: colours(k), width: 1.5,
        label: `round ${m.round}: u = ${formatNumber(m.u)}`,
      })),
      { type: "line", x: progress.cut, y: progress.objective, colour: "var(--ink)", width: 3, label: progress.name === "F" ? "F, the goal" : "Z²/2, the goal" },
      ...progress.minorants.map((m, k) => ({ type: "points", open: true, radius: 4, x: [progress.cut[m.top]], y: [m.value[m.top]], colour: colours(k) })),
      ...progress.minorants.filter((m) => m.touch !== null).map((m) => ({
        type: "points", x: [progress.cut[m.touch]], y: [progress.objective[m.touch]], colour: colours(progress.minorants.indexOf(m)),
      })),
    ],
    markLine: true,
    mark: (i) => [cuts.cut[i], null],
  });

  const many = progress.series.length > 1;
  const rounds = extent(progress.series.flatMap((s) => s.round));
  const roundAxis = { label: "round", domain: rounds[1] > rounds[0] ? rounds : [rounds[0], rounds[0] + 1] };
  const there = (s, key) => s.round.map((_, i) => i).filter((i) => s[key][i] !== null); // not every round is monitored
  const byRound = (key, dash, suffix) => progress.series.map((s, k) => ({
    type: known(s[key]).length > 1 ? "line" : "points", x: there(s, key).map((i) => s.round[i]), y: known(s[key]), dash, width: many ? 1.5 : 2, colour: many ? colours(k) : dash ? "var(--soft)" : "var(--accent)",
    label: many ? (dash ? null : s.name) : suffix,
  })).filter((layer) => known(layer.y).length);
  const padded = (values, fromZero) => {
    const [low, high] = extent(values);
    const pad = 0.08 * (high - low) || 0.1 * Math.abs(high) || 1;
    return [fromZero ? 0 : low - pad, high + pad];
  };
  const paths = byRound("u", null, null);
  if (paths.length) {
    add("fig-u", {
      alt: "Path of u by round", ratio: 0.62, layers: paths, x: roundAxis,
      y: { label: "u, weight of signal", domain: padded(paths.flatMap((l) => l.y), true) },
    });
  }
  const trained = byRound("train", "5 4", "training events");
  const reached = [...byRound("significance", null, trained.length ? "held-out events" : null), ...trained];
  if (reached.length) {
    add("fig-rounds", {
      alt: "Held-out significance by round", ratio: 0.62, layers: reached, x: roundAxis,
      y: { label: "significance (σ)", domain: padded(reached.flatMap((l) => l.y), false) },
    });
  }

  const low = cuts.significance.map((z, i) => (z === null ? null : z - cuts.error[i]));
  const high = cuts.significance.map((z, i) => (z === null ? null : z + cuts.error[i]));
  const significance = add("fig-significance", {
    alt: "Significance against the cut with its band",
    x: { label: "cut on the score", domain: cutDomain },
    y: { label: "significance (σ)", domain: [0, 1.05 * Math.max(...known(cuts.significance)) + Math.max(0, ...known(cuts.error)) * 0.3] },
    layers: [
      { type: "band", x: cuts.cut, low, high, colour: "var(--accent)", label: "± 1 standard error (simulation)" },
      { type: "line", x: cuts.cut, y: cuts.significance, colour: "var(--accent)", label: verdict.utility },
    ],
    markLine: true,
    mark: (i) => [cuts.cut[i], cuts.significance[i]],
  });

  if (cuts.profiled) {
    add("fig-systematics", {
      alt: "Significance against the cut without and with systematics",
      x: { label: "cut on the score", domain: cutDomain },
      y: { label: "significance (σ)", domain: [0, 1.05 * Math.max(...known(cuts.known))] },
      layers: [
        { type: "line", x: cuts.cut, y: cuts.known, colour: "var(--soft)", dash: "5 4", label: "if the background were known" },
        { type: "line", x: cuts.cut, y: cuts.profiled, colour: "var(--accent)", label: "with all systematics" },
      ],
      markLine: true,
      mark: (i) => [cuts.cut[i], cuts.profiled[i]],
    });
  }

  const stacked = [];
  let floor = scores.error.map(() => 0);
  const numbers = { true: 0, false: 0 };
  for (const process of scores.processes) {
    const base = floor;
    const sum = base.map((v, i) => v + process.values[i]);
    const colour = `var(--${process.signal ? "q" : "p"}${numbers[process.signal] % 7})`;
    numbers[process.signal] += 1;
    const [xs, lows] = stepXY(scores.edges, base);
    stacked.push({ type: "band", opacity: 0.9, x: xs, low: lows, high: stepXY(scores.edges, sum)[1], colour, label: process.name });
    floor = sum;
  }
  const signalOnly = scores.error.map((_, i) => scores.processes.filter((p) => p.signal).reduce((a, p) => a + p.values[i], 0));
  const positive = [...signalOnly, ...floor].filter((v) => v > 0);
  const highest = Math.max(...positive);
  const [stepX, stepY] = stepXY(scores.edges, signalOnly);
  const [errorX, errorLow] = stepXY(scores.edges, floor.map((v, i) => v - scores.error[i]));
  add("fig-scores", {
    alt: "Expected events against the score, stacked by process, on a logarithmic scale",
    x: { label: "score, P(signal) at the training weights", domain: [scores.edges[0], scores.edges.at(-1)] },
    y: { label: "expected events per bin", log: true, domain: [Math.max(Math.min(...positive) / 2, highest / 1e6), 3 * highest] },
    layers: [
      ...stacked,
      { type: "band", opacity: 0.35, x: errorX, low: errorLow, high: stepXY(scores.edges, floor.map((v, i) => v + scores.error[i]))[1], colour: "var(--ink)", label: "± 1 standard error of the sum" },
      { type: "line", x: stepX, y: stepY, colour: "var(--signal)", width: 3, halo: true, label: "signal alone" },
    ],
    markLine: true,
    mark: (i) => [cuts.cut[i], null],
  });

  const least = Math.min(...cuts.background_efficiency.filter((v) => v > 0));
  add("fig-roc", {
    alt: "Signal efficiency against background efficiency", ratio: 0.75,
    x: { label: "background efficiency (share of b)", log: true, domain: [Math.max(least, 1e-6), 1] },
    y: { label: "signal efficiency (share of s)", domain: [0, 1] },
    layers: [{ type: "line", x: cuts.background_efficiency, y: cuts.efficiency, colour: "var(--accent)" }],
    mark: (i) => [cuts.background_efficiency[i], cuts.efficiency[i]],
  });
  add("fig-purity", {
    alt: "Purity against signal efficiency", ratio: 0.75,
    x: { label: "signal efficiency (share of s)", domain: [0, 1] },
    y: { label: "purity, s / (s + b)", domain: [0, 1.08 * Math.max(...counting.map((i) => cuts.purity[i]))] },
    layers: [{ type: "line", x: counting.map((i) => cuts.efficiency[i]), y: counting.map((i) => cuts.purity[i]), colour: "var(--accent)" }],
    mark: (i) => (cuts.significance[i] === null ? null : [cuts.efficiency[i], cuts.purity[i]]),
  });

  for (const [k, one] of (overtraining ? overtraining.classes : []).entries()) {
    const { edges } = overtraining;
    const centre = one.here.map((_, i) => (edges[i] + edges[i + 1]) / 2);
    const colour = one.name === "signal" ? "var(--signal)" : "var(--accent)";
    const [x, y] = stepXY(edges, one.training);
    const reach = one.here.map((v, i) => v + one.here_error[i]);
    const top = Math.max(...one.training, ...reach);
    const least = Math.min(...[...one.training, ...one.here].filter((v) => v > 0));
    const log = top > 50 * least; // the events near the cut would lie on the axis
    add(`fig-overtraining-${k}`, {
      alt: `Score of ${one.name} in training and here`, ratio: 0.62,
      x: { label: "score", domain: [edges[0], edges.at(-1)] },
      y: { label: "density", log, domain: log ? [least / 2, 2 * top] : [0, 1.05 * top] },
      layers: [
        { type: "band", x, low: y.map(() => 0), high: y, colour, label: "training events" },
        { type: "bars", x: centre, low: one.here.map((v, i) => v - one.here_error[i]), high: reach, colour },
        { type: "points", x: centre, y: one.here.map((v) => (v > 0 || !log ? v : null)), radius: 3, colour, label: "these events" },
      ],
      markLine: true,
      mark: (i) => [cuts.cut[i], null],
    });
  }

  for (const [k, panel] of (profiled ? profiled.panels : []).entries()) {
    const edges = Array.from({ length: panel.control.length + 1 }, (_, i) => i);
    const [x, marked] = stepXY(edges, panel.control.map((yes) => (yes ? 0.03 : 0)));
    let floor = panel.control.map(() => 0);
    const layers = panel.backgrounds.map((name, j) => {
      const low = floor;
      floor = low.map((v, i) => v + panel.shares[j][i]);
      return { type: "band", opacity: 0.9, x, low: stepXY(edges, low)[1], high: stepXY(edges, floor)[1], colour: `var(--p${j % 7})`, label: name };
    });
    if (panel.control.some(Boolean)) {
      layers.push({ type: "band", opacity: 1, x, low: marked.map(() => 0), high: marked, colour: "var(--ink)", label: "control regions" });
    }
    add(`fig-profiled-${k}`, {
      alt: `Share of each background in the bins of the ${panel.name}`, ratio: 0.62, layers,
      x: { label: "bin of the score, the lowest first", domain: [0, edges.length - 1] },
      y: { label: "share of the background", domain: [0, 1] },
    });
  }

  // The slider moves over the rows of the embedded table; nothing is computed here.
  const slider = document.getElementById("cut");
  const shares = new Set(["fraction", "efficiency", "background_efficiency", "purity"]);
  const live = [...document.querySelectorAll("[data-live]")];
  function show(row) {
    for (const cell of live) {
      const key = cell.dataset.live;
      const values = key.startsWith("utility:") ? cuts.utilities[key.slice(8)] : cuts[key];
      const value = values[row];
      cell.dataset.value = value === null ? "" : value;
      cell.textContent = shares.has(key) ? formatShare(value) : formatNumber(value);
    }
    const z = cuts.significance[row];
    const text = z === null ? "too few background events to count" : `significance ${formatNumber(z)}`;
    slider.setAttribute("aria-valuetext", `cut ${formatNumber(cuts.cut[row])}, ${text}`);
    figures.forEach((figure) => figure.mark(row));
  }
  function moveTo(row) {
    slider.value = row;
    show(row);
  }
  slider.addEventListener("input", () => show(Number(slider.value)));
  document.getElementById("to-chosen").addEventListener("click", () => moveTo(cuts.chosen));
  document.getElementById("to-best").addEventListener("click", () => moveTo(cuts.best));
  function follow(event) {
    const value = significance.valueAt(event);
    moveTo(counting.reduce((a, b) => (Math.abs(cuts.cut[b] - value) < Math.abs(cuts.cut[a] - value) ? b : a)));
  }
  significance.plot.addEventListener("pointerdown", (event) => {
    follow(event);
    significance.plot.setPointerCapture(event.pointerId);
  });
  significance.plot.addEventListener("pointermove", (event) => { if (event.buttons) follow(event); });
  moveTo(cuts.chosen);

  // Copying: a table as tab-separated text, or a block as it stands.
  function textOf(target) {
    const lines = [...target.querySelectorAll("tr")].map((tr) => [...tr.cells].map((c) => c.textContent.trim()).join("\t"));
    return lines.length ? lines.join("\n") : target.textContent;
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const target = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(textOf(target));
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(target);
        button.textContent = "Selected: press Ctrl+C";
      }
    });
  }

  // What scrolls can be reached by the keyboard.
  const focusable = () => document.querySelectorAll(".scroll").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  });
  focusable();

  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      figures.forEach((figure) => figure.draw());
      focusable();
    }, 100);
  });
})();
