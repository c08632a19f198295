/* Draws the what-if: bands over a tensor's history, its histogram, the window of loss scales. Numbers: whatif.js. */
(function () {
  "use strict";
  const a = window.ampscope;
  const COLORS = { overflow: "#d55e00", normal: "#0f7fc4", subnormal: "#e69f00", flushed: "#cc79a7", zero: "#8a93a3" };
  const NONFINITE = "#d6009a";
  const LABELS = ["#ffa066", "#7cc4f5", "#f2bd4b", "#eaaed0"]; /* the bands again, for text on a dark chip */


  const range = (pair, of) => {
    const share = (n) => a.share(of ? n / of : 0);
    return pair[0] === pair[1] ? share(pair[0]) : share(pair[0]) + " – " + share(pair[1]);
  };
  const html = (type, props) => ({ type: type, namespace: "dash_html_components", props: props });
  const tile = (a.tile = (label, value, note, tone) =>
    html("Div", {
      className: "mini" + (tone ? " tone-" + tone : ""),
      children: [
        html("Div", { className: "mini-label", children: label }),
        html("Div", { className: "mini-value", children: value }),
        html("Div", { className: "mini-note", children: note.replace(/(\d) (?=[%a-z])/g, "$1\u00a0") }),
      ],
    }));

  const valueOf = (key, values, ids) => (values || [])[(ids || []).findIndex((id) => id.key === key)];

  function choice(data, values, ids) {
    const name = valueOf("format", values, ids);
    const format = data.formats.find((f) => f.name === name) || data.formats[0];
    const typed = Number(valueOf("scale", values, ids));
    const scale = typed > 0 && Number.isFinite(typed) ? typed : data.scale;
    return { format: format, scale: scale, k: Math.log2(scale) };
  }

  /* Lines between the bands of a format over true magnitudes, and their names. */
  function bands(format, k) {
    const edges = [
      { at: Math.log2(format.overflow) - k, color: COLORS.overflow },
      { at: format.min_normal_log2 - k, color: COLORS.subnormal },
      { at: format.flush_log2 - k, color: COLORS.flushed },
    ];
    return edges;
  }

  const BEYOND = { inf: "→ inf", nan: "→ NaN", saturate: "saturates" };
  function bandNames(format) {
    return [BEYOND[format.becomes], "normal", "subnormal", "→ 0"];
  }

  /* Exponents to show: those of the data, and the edges of the bands as far as `REACH` binades beyond them. */
  const REACH = 14;
  function shown(data, edges) {
    const high = data.low + data.counts.length - 1;
    const near = edges.map((e) => e.at).filter((t) => t > data.low - REACH && t < high + REACH);
    return [Math.floor(Math.min(data.low, ...near)) - 1, Math.ceil(Math.max(high, ...near)) + 1];
  }

  function ticksOf(low, high, most) {
    let step = 1;
    while ((high - low) / step > most) step *= 2;
    const out = [];
    for (let e = Math.ceil(low / step) * step; e <= high; e += step) out.push(e);
    return out;
  }

  function axisTicks(low, high, zero, bad, unit, most) {
    const ticks = ticksOf(low, high, most);
    return {
      tickmode: "array",
      tickangle: 0,
      tickvals: [zero, ...ticks, bad, bad + unit],
      ticktext: ["0", ...ticks.map((e) => "2" + a.superscript(e)), "inf", "NaN"],
    };
  }

  const bandColors = [COLORS.overflow, COLORS.normal, COLORS.subnormal, COLORS.flushed];

  /* Names of the bands that are wide enough to hold one; `axis` is y or x. */
  function bandLabels(format, edges, low, high, axis, fit) {
    const limits = [high + 0.5, ...edges.map((e) => e.at - 0.5), low - 0.5];
    return bandNames(format).flatMap((name, i) => {
      const upper = Math.min(high + 0.5, limits[i]);
      const lower = Math.max(low - 0.5, limits[i + 1]);
      if (upper - lower < fit) return [];
      const place =
        axis === "y"
          ? { xref: "paper", x: 1, xanchor: "right", xshift: -4, y: (upper + lower) / 2 }
          : { yref: "paper", y: 1, yanchor: "bottom", x: (upper + lower) / 2 };
      return [
        Object.assign(place, {
          text: name, showarrow: false, font: { size: 11, color: axis === "y" ? LABELS[i] : bandColors[i] },
          bgcolor: axis === "y" ? "rgba(18,23,30,0.82)" : "rgba(0,0,0,0)", borderpad: 2,
        }),
      ];
    });
  }

  /* A dashed line with a dark edge, so that it is seen on every colour of the ramp. */
  function lines(edges, axis) {
    const [across, along] = axis === "y" ? ["x", "y"] : ["y", "x"];
    const styles = axis === "y" ? [{ color: "rgba(12,16,22,0.5)", width: 3.4 }, { width: 1.7, dash: "dash" }] : [{ width: 1.6, dash: "dash" }];
    return edges.flatMap((edge) =>
      styles.map((style) => ({
        type: "line", [across + "ref"]: "paper", [across + "0"]: 0, [across + "1"]: 1,
        [along + "0"]: edge.at - 0.5, [along + "1"]: edge.at - 0.5, line: Object.assign({ color: edge.color }, style),
      }))
    );
  }

  function drawHistory(base, data, format, k) {
    const edges = bands(format, k);
    const [low, high] = shown(data, edges);
    const unit = Math.max(1, (high - low) / 17);
    const zero = low - 0.5 - unit;
    const bad = high + 0.5 + unit;
    const middle = { zero: zero, inf: bad, nan: bad + unit };
    const traces = base.data.map((trace) => {
      const y = middle[trace.name];
      return y === undefined ? trace : Object.assign({}, trace, { y: [y - unit / 2, y + unit / 2] });
    });
    const layout = Object.assign({}, base.layout);
    layout.yaxis = Object.assign({}, base.layout.yaxis, axisTicks(low, high, zero, bad, unit, 9), {
      range: [zero - 0.8 * unit, bad + 1.8 * unit],
    });
    layout.shapes = lines(edges, "y");
    layout.annotations = bandLabels(format, edges, low, high, "y", 1.2);
    return { data: traces, layout: layout };
  }

  function drawSpectrum(base, data, format, k) {
    const edges = bands(format, k);
    const [low, high] = shown(data, edges);
    const narrow = window.innerWidth < 600;
    const unit = Math.max(1, Math.round((high - low) / (narrow ? 7 : 24)));
    const zero = low - 1 - unit;
    const bad = high + 1 + unit;
    const total = data.numel || 1;
    const x = [];
    const y = [];
    const color = [];
    const text = [];
    const put = (at, n, c, label) => {
      x.push(at);
      y.push(n > 0 ? (100 * n) / total : null);
      color.push(c);
      text.push(label + ": " + a.share(n / total));
    };
    put(zero, data.zeros, COLORS.zero, "exactly 0");
    data.counts.forEach((n, i) => {
      const middle = data.low + i + 0.5;
      const band = edges.findIndex((edge) => middle > edge.at);
      const label = "2" + a.superscript(data.low + i) + " … 2" + a.superscript(data.low + i + 1);
      put(data.low + i, n, bandColors[band < 0 ? 3 : band], label);
    });
    put(bad, data.inf, NONFINITE, "inf");
    put(bad + unit, data.nan, NONFINITE, "NaN");
    const layout = Object.assign({}, base.layout);
    layout.shapes = lines(edges, "x");
    layout.annotations = bandLabels(format, edges, low, high, "x", 2.5);
    layout.xaxis = Object.assign({}, base.layout.xaxis, axisTicks(low, high, zero, bad, unit, narrow ? 6 : 16), {
      range: [zero - 0.8, bad + unit + 0.8],
    });
    return {
      data: [
        { type: "bar", x: x, y: y, marker: { color: color, line: { width: 0 } }, hovertext: text, hoverinfo: "text" },
      ],
      layout: layout,
    };
  }

  /* What was flushed before it was read is among the zeros, and not counted. */
  const isBlind = (data) => Boolean(data.through) && data.zeros > 0;
  const lostShare = (data, pair, of) => (isBlind(data) && pair[0] < of ? "≥ " : "") + range(pair, of);

  function tensorTiles(data, chosen) {
    const r = a.whatIf(data, chosen.k, chosen.format);
    const now = a.whatIf(data, Math.log2(data.scale), chosen.format);
    const nonzero = data.counts.reduce((x, y) => x + y, 0);
    const was = (key) => "at the recorded scale " + range(now[key], nonzero);
    const loud = (pair) => (nonzero && pair[1] / nonzero > 0.01 ? "warning" : "");
    const room = r.headroom;
    const exact = Number.isInteger(chosen.k) && !data.inexact;
    const blind = isBlind(data);
    if (!nonzero) {
      const why = data.zeros === data.numel ? "every element is zero" : "no element is finite and not zero";
      return ["flushed to 0", "subnormal", "overflow", "headroom", "basis"].map((name) => tile(name, "–", why, ""));
    }
    return [
      tile("flushed to 0", lostShare(data, r.flushed, nonzero), was("flushed"), loud(r.flushed)),
      tile("subnormal", range(r.subnormal, nonzero), was("subnormal"), ""),
      tile(
        chosen.format.becomes === "saturate" ? "saturated" : "overflow",
        range(r.overflow, nonzero), was("overflow"), r.overflow[1] > 0 ? "critical" : ""
      ),
      tile(
        "headroom",
        room === null ? "–" : a.number(Number(room.toFixed(1))) + " binades",
        "up to " + a.number(chosen.format.largest),
        room !== null && room < 0 ? "critical" : room !== null && room < 2 ? "warning" : ""
      ),
      tile(
        "basis",
        blind ? "lower bound" : "predicted",
        (exact ? "exact up to bin edges" : "bounds: no power of two") +
          (blind ? "; what " + data.through + " flushed before is among the zeros" : ""),
        ""
      ),
    ];
  }

  /* One row per format: at the scale of the what-if, and with the largest value scaled to the end of the format. */
  function formatsTable(data, chosen) {
    const nonzero = data.counts.reduce((x, y) => x + y, 0);
    if (!nonzero) return html("P", { className: "muted", children: "No element is finite and not zero." });
    const cell = (type, text, more) => html(type, Object.assign({ children: text }, more));
    const share = (pair) => cell("Td", range(pair, nonzero));
    const lost = (pair) => cell("Td", lostShare(data, pair, nonzero));
    const rows = data.formats.map((format) => {
      const at = a.whatIf(data, chosen.k, format);
      const fitted = a.whatIf(data, Math.log2(format.largest / data.amax), format);
      return html("Tr", {
        className: format.name === chosen.format.name ? "chosen" : "",
        children: [
          cell("Th", format.label, { scope: "row" }), lost(at.flushed), share(at.subnormal),
          share(at.overflow), cell("Td", a.number(Number(at.headroom.toFixed(1)))),
          lost(fitted.flushed), share(fitted.subnormal),
        ],
      });
    });
    const column = (text) => cell("Th", text, { scope: "col" });
    const group = (text, n) => cell("Th", text, { colSpan: n, scope: "colgroup" });
    const head = [
      html("Tr", { children: [cell("Td", ""), group("at the scale " + a.power(chosen.scale), 4), group("largest value at the end of the format", 2)] }),
      html("Tr", {
        children: [cell("Td", ""), ...["flushed to 0", "subnormal", "overflow or saturated", "headroom, binades", "flushed to 0", "subnormal"].map(column)],
      }),
    ];
    return html("Table", {
      className: "versus formats", children: [html("Thead", { children: head }), html("Tbody", { children: rows })],
    });
  }

  function drawWindow(base, data, chosen, found) {
    const ks = [];
    const flushed = [];
    const over = [];
    let nonzero = 0;
    for (const t of data.tensors) nonzero += t.counts.reduce((x, y) => x + y, 0);
    const share = (n) => (n > 0 ? Math.max((100 * n) / (nonzero || 1), 1e-4) : null);
    for (let k = -8; k <= 40; k++) {
      let f = 0;
      let o = 0;
      for (const t of data.tensors) {
        f += a.flushed(t, k, chosen.format)[1];
        o += a.overflow(t, k, chosen.format)[1];
      }
      ks.push(k);
      flushed.push(share(f));
      over.push(share(o));
    }
    const layout = Object.assign({}, base.layout);
    const shapes = [];
    if (found.low !== null && found.high >= found.low)
      shapes.push({
        type: "rect", yref: "paper", y0: 0, y1: 1, x0: found.low, x1: found.high, line: { width: 0 },
        fillcolor: "rgba(0,158,115,0.14)", layer: "below",
      });
    shapes.push({
      type: "line", yref: "paper", y0: 0, y1: 1, x0: Math.log2(data.scale), x1: Math.log2(data.scale),
      line: { color: COLORS.zero, width: 1.6, dash: "dot" },
    });
    shapes.push({
      type: "line", yref: "paper", y0: 0, y1: 1, x0: chosen.k, x1: chosen.k, line: { color: COLORS.normal, width: 2.2 },
    });
    layout.shapes = shapes;
    layout.annotations = [
      { text: "recorded", x: Math.log2(data.scale), y: 1, yref: "paper", yanchor: "bottom", showarrow: false, font: { size: 11, color: COLORS.zero } },
    ];
    if (Math.abs(chosen.k - Math.log2(data.scale)) > 1)
      layout.annotations.push({
        text: "what if", x: chosen.k, y: 1, yref: "paper", yanchor: "bottom", showarrow: false,
        font: { size: 11, color: COLORS.normal },
      });
    const hover = (label, values) => ks.map((k, i) => label + " at 2" + a.superscript(k) + ": " + a.share((values[i] || 0) / 100));
    const trace = (name, y, color) => ({
      type: "scatter", mode: "lines", name: name, x: ks, y: y, line: { color: color, width: 2.2 },
      hovertext: hover(name, y), hoverinfo: "text",
    });
    return { data: [trace("flushed to 0", flushed, COLORS.flushed), trace("overflow", over, COLORS.overflow)], layout: layout };
  }

  /* What was seen to flush at the recorded scale moves the lower end above it: the histograms hold it as zeros. */
  function withObserved(data, found, format) {
    if (data.floor === null || format.label !== data.through || found.low === null || found.low >= data.floor) return found;
    return Object.assign({}, found, { low: data.floor, below: null, lost: data.lost });
  }

  const below = (room) => (room === 0 ? "at the top." : a.number(room) + (room === 1 ? " binade" : " binades") + " below the top.");

  function advice(data, found, format) {
    const two = (k) => "2" + a.superscript(k);
    if (found.low === null || found.high === null) return "No gradient other than zero was recorded.";
    if (found.low > found.high)
      return (
        "No loss scale fits " + format.label + ": " + found.above + " overflows before " + (found.below || "the rest") +
        " stops flushing. Use bfloat16, or float32 for that module."
      );
    const now = Math.log2(data.scale);
    const verdict =
      found.lost !== undefined
        ? "The recorded scale is too low: " + a.share(found.lost) + " of the recomputed backward results became zero at it."
        : now < found.low
        ? "The recorded scale is too low: raise it to at least " + two(found.low) + "."
        : now > found.high
          ? "The recorded scale is too high: lower it to " + two(found.high) + " or less."
          : "The recorded scale is inside, " + below(Number((found.high - now).toFixed(1)));
    const start = Math.max(found.high - 2, found.low);
    const hint = now < found.low || now > found.high ? " A scale to start from: " + two(start) + "." : "";
    return "Safe scales: " + two(found.low) + " to " + two(found.high) + ". " + verdict + hint;
  }

  const knobAt = (scale) => Math.max(-8, Math.min(32, Math.round(Math.log2(scale))));

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    ampscope: Object.assign({}, (window.dash_clientside || {}).ampscope, {
      whatifTensor: function (data, values, ids) {
        if (!data) return Array(4).fill(dash_clientside.no_update);
        const chosen = choice(data, values, ids);
        return [
          drawHistory(data.history, data, chosen.format, chosen.k),
          drawSpectrum(data.spectrum, data, chosen.format, chosen.k),
          tensorTiles(data, chosen),
          formatsTable(data, chosen),
        ];
      },

      whatifModel: function (data, values, ids) {
        if (!data) return [dash_clientside.no_update, dash_clientside.no_update];
        const chosen = choice(data, values, ids);
        const found = withObserved(data, a.window(data.tensors, chosen.format, data.epsilon), chosen.format);
        const closed = [];
        if (found.above) closed.push(html("Span", { children: ["closed above by ", html("Code", { children: found.above })] }));
        if (found.below) closed.push(html("Span", { children: ["closed below by ", html("Code", { children: found.below })] }));
        return [
          drawWindow(data.window, data, chosen, found),
          [
            html("P", { className: "advice", children: advice(data, found, chosen.format) }),
            html("P", { className: "muted closers", children: closed }),
            data.through
              ? html("P", {
                  className: "muted closers",
                  children:
                    "These gradients passed through " + data.through + " at the recorded scale: what it flushed is not seen " +
                    "here, so the lower end may lie higher, and a higher scale may save more than is shown.",
                })
              : null,
          ],
        ];
      },

      /* The slider moves in powers of two; the number beside it takes any scale. */
      slide: function (knobs, values, ids) {
        const scale = Number(valueOf("scale", values, ids));
        const k = (knobs || [])[0];
        if (k !== undefined && scale > 0 && knobAt(scale) !== k)
          dash_clientside.set_props({ type: "ctl", key: "scale" }, { value: 2 ** k });
        return "";
      },
      knob: function (values, ids, knobs) {
        /* While the user moves the slider, the number follows it and not the other way round. */
        if (document.activeElement && document.activeElement.getAttribute("role") === "slider") return "";
        const scale = Number(valueOf("scale", values, ids));
        if (scale > 0 && knobs.length && knobs[0] !== knobAt(scale))
          dash_clientside.set_props({ type: "slider", key: "scale" }, { value: knobAt(scale) });
        return "";
      },
    }),
  });
})();
