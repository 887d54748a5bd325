// Runs before the first paint, so that a page never flashes in the other theme.
"use strict";
{
  let theme = null;
  try {
    theme = localStorage.getItem("recado.theme");
  } catch {
    // Storage is off: the theme of the system applies.
  }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
}
