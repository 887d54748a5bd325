// Preact and htm in one import.
import { Component, Fragment, h, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export * from "./vendor/hooks.js";
export { Component, Fragment, h, render };
export const html = htm.bind(h);
