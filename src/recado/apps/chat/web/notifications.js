// Notifications of the system for private messages and mentions while the page is not seen. The browser is asked for
// permission only when the user turns them on.
import { load, save } from "./storage.js";
import { state } from "./store.js";
import { mentions } from "./text.js";
import { addressOf, go } from "./router.js";

const NAME = "notifications";
const TEXT_MAX = 160;

export const areSupported = () => "Notification" in globalThis && globalThis.isSecureContext;
export const areOn = () => areSupported() && Notification.permission === "granted" && load(NAME, false);

// Returns on, off, denied (by the user or the browser) or unsupported.
export function notificationState() {
  if (!areSupported()) return "unsupported";
  if (Notification.permission === "denied") return "denied";
  return areOn() ? "on" : "off";
}

export async function turnOn() {
  if ((await Notification.requestPermission()) === "granted") save(NAME, true);
}

export const turnOff = () => save(NAME, false);

export function notifyOf(message, conversation) {
  if (!areOn() || (document.visibilityState === "visible" && document.hasFocus())) return;
  if (conversation.isRoom && !mentions(message.text, state.me.name)) return;
  const title = conversation.isRoom ? `${message.author.name} in ${conversation.title}` : message.author.name;
  // Devices with the page open twice show one notification per message.
  const shown = new Notification(title, { body: message.text.slice(0, TEXT_MAX), tag: message.id });
  shown.onclick = () => {
    focus();
    go(addressOf(conversation.id, { at: message.id }));
    shown.close();
  };
}
