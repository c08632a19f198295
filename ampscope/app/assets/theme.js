/* Before anything is drawn: the colour scheme that the user chose, or the system's, so that nothing flashes. */
(function () {
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("mantine-color-scheme-value") || "auto";
  } catch (error) {
    chosen = "auto";
  }
  const dark = chosen === "dark" || (chosen === "auto" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
