/* Draws the replay of dynamic loss scaling beside what was recorded. Arithmetic: replay.js. */
(function () {
  "use strict";
  const a = window.ampscope;
  const RECORDED = "#0f7fc4";
  const FAINT = "rgba(15,127,196,0.5)"; /* the line that another may lie on */
  const REPLAYED = "#e69f00";
  const SKIP = "#d55e00";
  const MARKS = 1000; /* most single marks; the newest stay */
  const KEYS = ["init", "growth", "backoff", "interval"];

  function policyOf(data, values, ids) {
    const out = Object.assign({}, data.policy);
    (ids || []).forEach((id, i) => {
      if (KEYS.includes(id.key) && values[i] !== "" && values[i] !== null && values[i] !== undefined)
        out[id.key] = Number(values[i]);
    });
    return out;
  }

  const log2 = (values) => values.map((v) => (v > 0 ? Math.log2(v) : null));

  const line = (name, x, y, color, width) => ({
    type: "scatter", mode: "lines", name: name, x: x, y: log2(y), line: { shape: "hv", width: width, color: color },
    customdata: y.map(a.power), hovertemplate: name + "<br>step %{x}<br>scale %{customdata}<extra></extra>",
  });

  const marks = (name, points, color, symbol) => {
    const kept = points.slice(-MARKS);
    return {
      type: "scatter", mode: "markers", name: name + " (" + points.length + ")", x: kept.map((p) => p[0]), y: log2(kept.map((p) => p[1])),
      marker: { symbol: symbol, size: 8, color: color, line: { width: 2, color: color } },
      customdata: kept.map((p) => a.power(p[1])), hovertemplate: name + "<br>step %{x}<br>scale %{customdata}<extra></extra>",
    };
  };

  const shares = (name, found, color, symbol) => ({
    type: "scatter", mode: "lines+markers", name: name, showlegend: false, yaxis: "y2", x: found.map((f) => f[0]),
    y: found.map((f) => 100 * f[2]), line: { width: 1.4, color: color }, marker: { size: 5, color: color, symbol: symbol },
    customdata: found.map((f) => (f[1] === f[2] ? a.share(f[1]) : a.share(f[1]) + " – " + a.share(f[2]))),
    hovertemplate: name + "<br>step %{x}<br>%{customdata} flushed<extra></extra>",
  });

  function draw(base, rounds, then, now, flushed) {
    const all = then.y.concat(now.y).filter((v) => v > 0).map(Math.log2);
    let [low, high] = [Math.min(...all), Math.max(...all)];
    if (high - low < 2) [low, high] = [low - 1, high + 1];
    let step = 1;
    while ((high - low) / step > 8) step *= 2;
    const ticks = [];
    for (let e = Math.ceil(Math.floor(low) / step) * step; e <= Math.ceil(high); e += step) ticks.push(e);
    const layout = Object.assign({}, base.layout);
    layout.yaxis = Object.assign({}, base.layout.yaxis, {
      tickmode: "array", tickvals: ticks, ticktext: ticks.map((e) => "2" + a.superscript(e)),
      range: [low - 0.08 * (high - low) - 0.2, high + 0.08 * (high - low) + 0.2],
    });
    const most = Math.max(0, ...flushed.then.concat(flushed.now).map((f) => 100 * f[2]));
    const [start, end] = [rounds.step[0], rounds.step[rounds.step.length - 1] + rounds.n[rounds.n.length - 1] - 1];
    const room = Math.max(0.5, 0.01 * (end - start));
    layout.xaxis = Object.assign({}, base.layout.xaxis, { range: [start - room, end + room] });
    layout.yaxis2 = Object.assign({}, base.layout.yaxis2, { range: [0, most > 0 ? 1.1 * most : 1] });
    const traces = [];
    if (then.x.length) {
      traces.push(line("recorded", then.x, then.y, FAINT, 4));
      if (then.skips.length) traces.push(marks("skipped, recorded", then.skips, RECORDED, "x-thin"));
    }
    traces.push(line("replayed", now.x, now.y, REPLAYED, 2));
    if (now.skips.length) traces.push(marks("skipped, replayed", now.skips, SKIP, "circle-open"));
    if (then.x.length) traces.push(shares("recorded", flushed.then, RECORDED, "x"));
    traces.push(shares("replayed", flushed.now, REPLAYED, "circle"));
    return { data: traces, layout: layout };
  }

  const mean = (found, at) => (found.length ? found.reduce((sum, f) => sum + f[at], 0) / found.length : null);

  function meanShare(found) {
    const [low, high] = [mean(found, 1), mean(found, 2)];
    if (low === null) return "–";
    return low === high ? a.share(low) : a.share(low) + " – " + a.share(high);
  }

  const count = (n, of) => n + " of " + of;

  function numbers(data, now, then, flushed) {
    const was = data.recorded;
    const basis = now.assumed ? "estimated" : "exact";
    const why = now.assumed
      ? now.assumed + " of " + now.n + " steps are settled neither by a reading nor by what the run did: the larger of the nearest readings stands in"
      : "a reading, or what the run did at the step, decides every one of the " + now.n + " steps";
    const blind = data.through && data.through === data.format.label;
    return [
      a.tile(
        "skipped steps", count(now.skipped, now.n),
        a.share(now.n ? now.skipped / now.n : 0) + (was ? "; recorded " + count(was.skipped, now.n) : "; the run had no loss scale"), ""
      ),
      a.tile("scale at the end", a.power(now.last), then.y.length ? "recorded, last step " + a.power(then.y[then.y.length - 1]) : "", ""),
      a.tile(
        "flushed to 0, mean", (blind && flushed.now.length ? "≥ " : "") + meanShare(flushed.now),
        (then.x.length ? "at the recorded scale " + meanShare(flushed.then) + "; " : "") + flushed.now.length + " sampled steps", ""
      ),
      a.tile("basis of the skips", basis, why, ""),
      a.tile(
        "basis of the flushed", blind ? "lower bound" : "predicted",
        blind ? "what " + data.through + " flushed at the recorded scale is a zero by now, and is not counted" : "from histograms, bounds where a scale is no power of two", ""
      ),
    ];
  }

  function words(data, now, same) {
    const was = data.recorded;
    const cut = data.cut ? " Only the first " + now.n + " steps are replayed." : "";
    if (was && same) return "With the recorded policy the replay takes the recorded course." + cut;
    if (!was) return "With this policy float16 would have skipped " + count(now.skipped, now.n) + " steps." + cut;
    const more = now.skipped - was.skipped;
    const how = more === 0 ? "as many steps as" : Math.abs(more) + (more > 0 ? " more" : " fewer") + (Math.abs(more) === 1 ? " step than" : " steps than");
    return "With this policy the scaler would have skipped " + how + " the recorded run." + cut;
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    ampscope: Object.assign({}, (window.dash_clientside || {}).ampscope, {
      replay: function (data, values, ids) {
        const none = dash_clientside.no_update;
        if (!data) return [none, none, none, none];
        const policy = policyOf(data, values, ids);
        const untouched = KEYS.every((key) => policy[key] === data.policy[key]);
        const refused = a.refused(policy);
        if (refused) return [none, none, "GradScaler would refuse this: " + refused, untouched];
        const now = a.replay(data.rounds, policy, data.format);
        const then = a.recorded(data.rounds);
        const flushed = {
          now: a.flushedOver(data.histograms, (row) => (now.rowSkipped[row] ? null : now.rowScale[row]), data.format),
          then: a.flushedOver(data.histograms, (row) => data.rounds.scale[row], data.format),
        };
        const same = now.rowScale.every((scale, i) => scale === data.rounds.scale[i]);
        return [
          draw(data.figure, data.rounds, then, now, flushed),
          numbers(data, now, then, flushed),
          words(data, now, same),
          untouched,
        ];
      },

      /* The policy that the card opened with, into its inputs: the address follows them. */
      replayBack: function (clicks, found) {
        if ((clicks || []).some(Boolean) && found[0])
          KEYS.forEach((key) => dash_clientside.set_props({ type: "ctl", key: key }, { value: found[0].policy[key] }));
        return "";
      },
    }),
  });
})();
