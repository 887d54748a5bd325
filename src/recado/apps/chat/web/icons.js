// Line icons of 20 × 20 pixels.
import { html } from "./lib.js";

const PATHS = {
  reply: "M8 5 3.5 9.5 8 14M4 9.5h7.5a5 5 0 0 1 5 5v.5",
  edit: "m4 16 .8-3.4L13.2 4.2a1.6 1.6 0 0 1 2.3 0l.3.3a1.6 1.6 0 0 1 0 2.3l-8.4 8.4zM11.8 5.7l2.5 2.5",
  remove: "M4 6h12M8 6V4h4v2M5.5 6l.7 10h7.6l.7-10M8.5 9v4.5M11.5 9v4.5",
  copy: "M7 7V4h9v9h-3M4 7h9v9H4z",
  search: "M9 4a5 5 0 1 1 0 10A5 5 0 0 1 9 4zM12.8 12.8 16.5 16.5",
  people: "M7.5 9.5a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM2.5 16c.3-3 2.3-4.5 5-4.5s4.7 1.5 5 4.5M13 9.3a2.4 2.4 0 1 0-.6-4.7M14.3 11.7c1.9.4 3 1.8 3.2 4.3",
  traffic: "M3 7h11l-3-3M17 13H6l3 3",
  back: "M12 4.5 6.5 10l5.5 5.5",
  close: "M5 5l10 10M15 5 5 15",
  more: "M4.5 10h.01M10 10h.01M15.5 10h.01",
  plus: "M10 4v12M4 10h12",
  down: "M10 4v11M5 10.5l5 5 5-5",
  send: "M3.5 10 16.5 4 13 16.5l-3.5-5zM9.5 11.5l7-7.5",
  smile: "M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM7.5 8h.01M12.5 8h.01M7 12c1.6 2.2 4.4 2.2 6 0",
  leave: "M8 4H4v12h4M8 10h8.5M13 6.5l3.5 3.5-3.5 3.5",
  bell: "M5.5 13V9a4.5 4.5 0 0 1 9 0v4l1.5 1.5H4zM8.5 16.5h3",
  device: "M4 4h8v12H4zM8 13.5h.01M14.5 7h2v6h-2",
  keys: "M2.5 5.5h15v9h-15zM5.5 8.5h.01M8.5 8.5h.01M11.5 8.5h.01M14.5 8.5h.01M6 11.8h8",
  sun: "M10 6.5a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7zM10 2.5v1.5M10 16v1.5M2.5 10H4M16 10h1.5M4.7 4.7l1 1M14.3 14.3l1 1M4.7 15.3l1-1M14.3 5.7l1-1",
  clock: "M10 3.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM10 6.5V10l2.5 1.5",
  alert: "M10 3.5 17.5 16h-15zM10 8.5v3.5M10 14h.01",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

export function Logo() {
  return html`<svg class="logo" viewBox="0 0 32 32" aria-hidden="true"><path d="M8 3h16a5 5 0 0 1 5 5v11a5 5 0 0 1-5 5H14l-7 6v-6.1A5 5 0 0 1 3 19V8a5 5 0 0 1 5-5z" fill="#3d4fd6" /><path d="M9.5 10.5h13M9.5 16h7" stroke="#fff" stroke-width="2.6" stroke-linecap="round" /><circle cx="22" cy="16" r="2.3" fill="#ffc857" /></svg>`;
}

export function IconButton({ name, label, isPressed, children, class: className = "", ...rest }) {
  return html`<button type="button" class="icon-button ${className}" aria-label=${label} title=${label} aria-pressed=${isPressed} ...${rest}><${Icon} name=${name} />${children}</button>`;
}
