/* Replays torch.amp.GradScaler over recorded gradients, as numerics.simulate_loss_scale does, in float32. Where a step
   was not read, what the run did there decides if it can, and otherwise the largest gradient read nearby. */
(function () {
  "use strict";
  const a = (window.ampscope = window.ampscope || {});

  /* Why a policy is none, as GradScaler would refuse it; "" for one that is. */
  a.refused = function (policy) {
    if (!(policy.init > 0 && Number.isFinite(policy.init))) return "init_scale must be a positive number.";
    if (!(policy.growth > 1 && Number.isFinite(policy.growth))) return "growth_factor must be greater than 1.";
    if (!(policy.backoff > 0 && policy.backoff < 1)) return "backoff_factor must lie between 0 and 1.";
    if (!(Number.isInteger(policy.interval) && policy.interval >= 1)) return "growth_interval must be a whole number of steps, at least 1.";
    return "";
  };

  /* [skipped, sure] of one round at a scale. */
  function outcome(rounds, i, scale, overflow) {
    const then = rounds.scale[i];
    if (rounds.broken[i]) return [true, true];
    if (then !== null && rounds.skipped[i] && scale >= then) return [true, true];
    if (then !== null && !rounds.skipped[i] && scale <= then) return [false, true];
    const amax = rounds.amax[i];
    return [amax !== null && amax * scale >= overflow, rounds.read[i]];
  }

  /* rounds: columns of equal length, `n` rounds from `step` on in each row. Gives every change of the scale as points
     (first and last round included), the scale in force at each row, the skipped steps, and how many rounds were not
     decided by what was recorded (`assumed`). */
  a.replay = function (rounds, policy, format) {
    const out = { x: [], y: [], skips: [], rowScale: [], rowSkipped: [], n: 0, skipped: 0, assumed: 0, last: null };
    let scale = Math.fround(policy.init);
    let tracker = 0;
    const put = (step) => {
      out.x.push(step);
      out.y.push(scale);
    };
    let step = 0;
    for (let i = 0; i < rounds.step.length; i++) {
      out.rowScale.push(scale);
      for (let j = 0; j < rounds.n[i]; j++) {
        step = rounds.step[i] + j;
        if (out.n === 0 || out.y[out.y.length - 1] !== scale) put(step);
        const [skip, sure] = outcome(rounds, i, scale, format.overflow);
        if (j === 0) out.rowSkipped.push(skip);
        out.n += 1;
        if (!sure) out.assumed += 1;
        if (skip) {
          out.skipped += 1;
          out.skips.push([step, scale]);
          scale = Math.fround(scale * policy.backoff);
          tracker = 0;
        } else if (++tracker === policy.interval) {
          const grown = Math.fround(scale * policy.growth);
          if (Number.isFinite(grown)) scale = grown;
          tracker = 0;
        }
      }
    }
    if (out.n && out.x[out.x.length - 1] !== step) {
      out.x.push(step);
      out.y.push(out.y[out.y.length - 1]);
    }
    out.last = scale;
    return out;
  };

  /* The scale that was recorded at every change (first and last round included), and the skipped steps. */
  a.recorded = function (rounds) {
    const x = [];
    const y = [];
    const skips = [];
    rounds.step.forEach((step, i) => {
      const scale = rounds.scale[i];
      if (scale === null) return;
      if (!y.length || y[y.length - 1] !== scale) {
        x.push(step);
        y.push(scale);
      }
      const last = step + rounds.n[i] - 1;
      if (i === rounds.step.length - 1 && x[x.length - 1] !== last) {
        x.push(last);
        y.push(scale);
      }
      if (rounds.skipped[i]) for (let j = 0; j < rounds.n[i]; j++) skips.push([step + j, scale]);
    });
    return { x: x, y: y, skips: skips };
  };

  /* Share of the nonzero gradients flushed at each histogram that belongs to a taken step: [[step, low, high], …]. */
  a.flushedOver = function (histograms, scaleAt, format) {
    const out = [];
    for (const h of histograms) {
      const scale = scaleAt(h.row);
      const all = h.counts.reduce((x, y) => x + y, 0);
      if (scale === null || !(scale > 0) || !all) continue;
      const [low, high] = a.flushed(h, Math.log2(scale), format);
      out.push([h.step, low / all, high / all]);
    }
    return out;
  };
})();
