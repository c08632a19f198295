/* The address is the state: controls write it, and follow it. Also numbers as text, as the Python side writes them. */
(function () {
  "use strict";
  const a = (window.ampscope = window.ampscope || {});
  const BROWSER_KEYS = ["format", "scale", "init", "growth", "backoff", "interval"];

  /* ---- numbers ---- */
  a.number = function (v) {
    if (v === null || v === undefined) return "–";
    if (Number.isNaN(v)) return "NaN";
    if (!Number.isFinite(v)) return v > 0 ? "inf" : "-inf";
    if (v < 0) return "−" + a.number(-v);
    if (v === 0) return "0";
    const size = Math.abs(v);
    if (Number.isInteger(v) && size < 1e7) return String(v);
    if (size >= 1e-3 && size < 1e6) return String(Number(v.toPrecision(4)));
    const [mantissa, exponent] = v.toExponential(3).split("e");
    return String(Number(mantissa)) + "e" + Number(exponent);
  };
  /* 131 k, 1.05 M, 2.1 G: a count of operations. */
  a.si = function (v) {
    for (const [unit, scale] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
      if (v >= scale) return Number((v / scale).toPrecision(3)) + " " + unit;
    return a.number(v);
  };
  a.share = function (v) {
    if (v === null || v === undefined) return "–";
    const p = 100 * v;
    if (p === 0) return "0 %";
    if (p >= 99.995) return v >= 1 ? "100 %" : "> 99.99 %";
    return p >= 0.01 ? Number(p.toPrecision(3)) + " %" : a.number(p) + " %";
  };
  a.seconds = function (v) {
    const size = Math.abs(v);
    if (size >= 7200) return Number((v / 3600).toPrecision(3)) + " h";
    if (size >= 120) return Number((v / 60).toPrecision(3)) + " min";
    for (const [unit, scale] of [["s", 1], ["ms", 1e3], ["µs", 1e6]])
      if (size * scale >= 1) return Number((v * scale).toPrecision(3)) + " " + unit;
    return a.number(v) + " s";
  };
  a.bytes = function (v) {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (Math.abs(v) < 1024) return Number(v.toPrecision(4)) + " " + unit;
      v /= 1024;
    }
    return Number(v.toPrecision(4)) + " TiB";
  };
  a.superscript = (n) =>
    String(n).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  a.power = function (v) {
    const k = Math.log2(v);
    return Number.isInteger(k) && Math.abs(k) > 3 ? a.number(v) + " (2" + a.superscript(k) + ")" : a.number(v);
  };

  /* ---- the address ---- */
  a.go = function (href) {
    const url = new URL(href, window.location.href);
    dash_clientside.set_props("url", { pathname: url.pathname, search: url.search });
  };
  a.params = () => new URLSearchParams(window.location.search);

  function setParams(changes) {
    const params = a.params();
    let browserOnly = true;
    let changed = false;
    for (const [key, value] of Object.entries(changes)) {
      if ((params.get(key) ?? null) === value) continue;
      changed = true;
      if (!BROWSER_KEYS.includes(key)) browserOnly = false;
      if (value === null || value === "") params.delete(key);
      else params.set(key, value);
      if (key === "run") ["process", "tensor", "at", "param", "step"].forEach((k) => params.delete(k));
      if (key === "of") params.delete("tensor");
    }
    if (!changed) return;
    const text = params.toString().replace(/%2F/g, "/").replace(/%3A/g, ":").replace(/%2C/g, ",");
    const search = text ? "?" + text : "";
    if (browserOnly) window.history.replaceState(window.history.state, "", window.location.pathname + search);
    else dash_clientside.set_props("url", { search: search });
  }

  /* 16384 and "16384.0" are one value. */
  const same = (x, y) => String(x) === String(y) || (y !== "" && Number(x) === Number(y));

  const keyOf = (id) => JSON.parse(id.split(".")[0]).key;

  /* What every control shows as far as we know, by key. A value that it was given (built with, or by `follow`) comes
     back as a change, late perhaps, when the address is already another: it must not be taken for a choice. */
  const shown = new Map();
  let built = null;

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    ampscope: Object.assign({}, (window.dash_clientside || {}).ampscope, {
      /* The address, without what only the browser reads, is what the server renders. */
      view: function (pathname, search, ticks, current) {
        const params = new URLSearchParams(search || "");
        BROWSER_KEYS.forEach((k) => params.delete(k));
        const next = { path: pathname || "/", search: params.toString(), ticks: ticks || 0 };
        const same = current && ["path", "search", "ticks"].every((k) => current[k] === next[k]);
        if (current && current.path !== next.path) window.scrollTo(0, 0);
        return same ? dash_clientside.no_update : next;
      },

      /* A control that the user changed goes into the address; one that shows what is there anyway does not. */
      control: function (values, ids, defaults, rendered) {
        const context = dash_clientside.callback_context;
        const changes = {};
        const known = Object.assign({}, ...(defaults || []));
        const anew = built !== (rendered || {}).key;
        built = (rendered || {}).key;
        for (const trigger of context.triggered || []) {
          if (!trigger.prop_id || trigger.prop_id === ".") continue;
          const key = keyOf(trigger.prop_id);
          if (trigger.value === null || trigger.value === undefined || trigger.value === "") continue;
          const value = String(trigger.value);
          if (anew || (shown.has(key) && same(value, shown.get(key)))) continue;
          const current = a.params().get(key) ?? known[key];
          if (current !== undefined && same(value, current)) continue;
          changes[key] = known[key] !== undefined && same(value, known[key]) ? null : value;
        }
        ids.forEach((id, i) => shown.set(id.key, values[i]));
        setParams(changes);
        return "";
      },

      /* Back and forward: the controls follow the address, those built for an earlier address too. */
      follow: function (search, rendered, ids, values, defaults) {
        const params = a.params();
        const known = Object.assign({}, ...(defaults || []));
        built = (rendered || {}).key;
        return ids.map((id, i) => {
          const wanted = params.get(id.key) ?? known[id.key];
          shown.set(id.key, wanted ?? values[i]);
          if (wanted === undefined || same(values[i], wanted)) return dash_clientside.no_update;
          return typeof values[i] === "number" ? Number(wanted) : wanted;
        });
      },

      /* A click into a figure chooses what was clicked: its layout.meta says which parameter, along which axis,
         and what the categories of that axis stand for. */
      pick: function (clicks, figures) {
        const context = dash_clientside.callback_context;
        for (const trigger of context.triggered || []) {
          const point = trigger.value && trigger.value.points && trigger.value.points[0];
          const at = clicks.indexOf(trigger.value);
          const meta = point && at >= 0 && figures[at] && figures[at].layout.meta;
          if (!meta || !meta.pick) continue;
          const place = point[meta.pick.axis];
          const chosen = meta.pick.values[typeof place === "number" ? Math.round(place) : meta.pick.labels.indexOf(place)];
          if (chosen !== undefined) setParams({ [meta.pick.key]: String(chosen) });
        }
        return "";
      },

      nav: function (pathname, search, ids) {
        const params = new URLSearchParams(search || "");
        const kept = new URLSearchParams();
        for (const key of ["run", "process"]) if (params.get(key)) kept.set(key, params.get(key));
        const query = kept.toString() ? "?" + kept.toString() : "";
        const here = "/" + (pathname || "/").split("/")[1];
        ids.forEach((id) => {
          const link = document.getElementById(dash_clientside_id(id));
          if (link) id.path === here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
        });
        return [ids.map((id) => id.path + query), ids.map((id) => id.path === here)];
      },

      burger: (opened, navbar) => Object.assign({}, navbar, { collapsed: { mobile: !opened } }),

      /* Names the run, so that the link shows the same when another run has become the first. */
      copyLink: async function (clicks, rendered) {
        if (!clicks) return dash_clientside.no_update;
        const url = new URL(window.location.href);
        if (rendered && rendered.run) url.searchParams.set("run", rendered.run);
        const text = url.href;
        try {
          await navigator.clipboard.writeText(text);
        } catch (error) {
          const area = document.createElement("textarea");
          area.value = text;
          document.body.appendChild(area);
          area.select();
          document.execCommand("copy");
          area.remove();
        }
        setTimeout(() => dash_clientside.set_props("copy-link", { children: "Copy link" }), 1600);
        return "Copied";
      },

      title: function (rendered) {
        if (rendered && rendered.title) document.title = rendered.title;
        return "";
      },
    }),
  });

  function dash_clientside_id(id) {
    return JSON.stringify(id, Object.keys(id).sort());
  }

  /* A control that is built anew while it has the keyboard focus keeps it. */
  let focused = null;
  document.addEventListener("focusin", (event) => {
    focused = event.target;
  });
  new MutationObserver(() => {
    if (!focused || !focused.id || document.contains(focused) || document.activeElement !== document.body) return;
    const again = document.getElementById(focused.id);
    if (again) again.focus({ preventScroll: true });
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
