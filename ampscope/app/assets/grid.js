/* Functions and renderers that the tables name. Cells are React text nodes: nothing from a trace becomes HTML. */
(function () {
  "use strict";
  const functions = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});
  const components = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});

  functions.ampscopeFormat = function (kind, value) {
    const a = window.ampscope;
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (kind === "count") return value.toLocaleString("en-US");
    if (kind === "si") return a.si(value);
    if (kind === "share") return a.share(value);
    if (kind === "seconds") return a.seconds(value);
    if (kind === "bytes") return a.bytes(value);
    if (kind === "power") return a.power(value);
    return a.number(value);
  };

  functions.ampscopeGridTheme = function (theme) {
    return theme.withParams({
      backgroundColor: "var(--surface)",
      foregroundColor: "var(--text)",
      headerBackgroundColor: "var(--surface-2)",
      headerTextColor: "var(--muted)",
      borderColor: "var(--line)",
      rowHoverColor: "var(--surface-2)",
      oddRowBackgroundColor: "var(--surface)",
      accentColor: "var(--accent)",
      chromeBackgroundColor: "var(--surface)",
      menuBackgroundColor: "var(--surface)",
      fontFamily: "inherit",
      fontSize: 12.5,
      headerFontSize: 12,
      spacing: 5,
      wrapperBorder: false,
      wrapperBorderRadius: 0,
    });
  };

  components.AmpscopeJump = function (props) {
    const href = props.data && props.data[props.link];
    if (!href) return String(props.value === null || props.value === undefined ? "–" : props.value);
    return React.createElement(
      "a",
      {
        href: href,
        className: "jump",
        title: String(props.value),
        onClick: function (event) {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          window.ampscope.go(href);
        },
      },
      String(props.value)
    );
  };
})();
