// Preact and htm in one import.
import { h, render, Fragment } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export * from "./vendor/hooks.js";
export { h, render, Fragment };
export const html = htm.bind(h);
