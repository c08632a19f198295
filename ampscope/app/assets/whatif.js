/* What another loss scale or format would do to recorded values, computed from their exponent histograms.
   Exact for scales that are powers of two, up to elements exactly on a bin edge; otherwise lower and upper bounds. */
(function () {
  "use strict";
  const a = (window.ampscope = window.ampscope || {});
  /* ---- arithmetic: hist[i] counts true magnitudes in [2^(low+i), 2^(low+i+1)); k = log2(scale) ---- */

  /* [surely, possibly] how many scaled magnitudes are below 2^t. */
  a.below = function (hist, low, k, t) {
    let sure = 0;
    let maybe = 0;
    for (let i = 0; i < hist.length; i++) {
      if (low + i + 1 + k <= t) sure += hist[i];
      if (low + i + k < t) maybe += hist[i];
    }
    return [sure, maybe];
  };

  /* [surely, possibly] how many scaled magnitudes round to zero: all of them when the largest one does, edge included. */
  a.flushed = function (data, k, format) {
    const all = data.counts.reduce((x, y) => x + y, 0);
    if (!(data.amax > 0) || data.amax * 2 ** k <= 2 ** format.flush_log2) return [all, all];
    return a.below(data.counts, data.low, k, format.flush_log2);
  };

  a.overflow = function (data, k, format) {
    const t = Math.log2(format.overflow);
    if (!(data.amax > 0) || data.amax * 2 ** k < format.overflow) return [0, 0];
    let sure = 0;
    let maybe = 0;
    data.counts.forEach((n, i) => {
      if (data.low + i + k >= t) sure += n;
      if (data.low + i + 1 + k > t) maybe += n;
    });
    return [Math.max(sure, 1), Math.max(maybe, 1)];
  };

  /* Counts of one histogram in one format at one scale, each [lower, upper]. */
  a.whatIf = function (data, k, format) {
    const flushed = a.flushed(data, k, format);
    const small = a.below(data.counts, data.low, k, format.min_normal_log2);
    return {
      flushed: flushed,
      subnormal: [Math.max(0, small[0] - flushed[1]), Math.max(0, small[1] - flushed[0])],
      overflow: a.overflow(data, k, format),
      headroom: data.amax > 0 ? Math.log2(format.largest / data.amax) - k : null,
    };
  };

  /* Loss scales 2^low … 2^high at which no tensor overflows and none has more than `epsilon` of its nonzero elements
     flushed, and the tensors that close the window. null: nothing closes that side. As numerics.loss_scale does. */
  a.window = function (tensors, format, epsilon) {
    const found = { low: null, high: null, below: null, above: null };
    for (const t of tensors) {
      const low = lowest(t, format, epsilon);
      const high = highest(t, format);
      if (low !== null && (found.low === null || low > found.low)) [found.low, found.below] = [low, t.name];
      if (high !== null && (found.high === null || high < found.high)) [found.high, found.above] = [high, t.name];
    }
    return found;
  };

  /* Smallest k at which at most `epsilon` of the nonzero elements is flushed: their first bin above starts there. */
  function lowest(t, format, epsilon) {
    const allowed = Math.floor(epsilon * t.counts.reduce((x, y) => x + y, 0));
    let flushed = 0;
    for (let i = 0; i < t.counts.length; i++) {
      flushed += t.counts[i];
      if (flushed <= allowed) continue;
      const k = format.flush_log2 - (t.low + i);
      const edge = a.flushed(t, k, format)[0] > allowed ? 1 : 0;
      return Math.max(-126, Math.min(127, k + edge));
    }
    return null;
  }

  /* Largest k at which nothing overflows. */
  function highest(t, format) {
    if (!(t.amax > 0)) return null;
    let k = Math.floor(Math.log2(format.overflow / t.amax)) + 1;
    while (t.amax * 2 ** k >= format.overflow) k -= 1;
    return Math.max(-126, Math.min(127, k));
  }

})();
