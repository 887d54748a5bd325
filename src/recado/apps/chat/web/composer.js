// The field in which messages are written. It is not controlled by its component, so that input methods (IME) can
// compose in it undisturbed.
import { edit, nameOf, tellTyping, write } from "./chat.js";
import { findEmoji, groups, replaceCodes } from "./emoji.js";
import { count } from "./format.js";
import { Icon, IconButton } from "./icons.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { rewrite } from "./outbox.js";
import { load, remove, save } from "./storage.js";
import { state } from "./store.js";

const SUGGESTIONS_MAX = 8;
const COUNTER_FROM = 0.9; // of the longest text

const draftName = (conversation) => `draft.${state.me.id}.${conversation.id}`;

// `target` is null, { kind: "reply", message } or { kind: "edit", row }.
export function Composer({ conversation, target, setTarget, editLast, onSent }) {
  const area = useRef(null);
  const [length, setLength] = useState(0);
  const [suggestions, setSuggestions] = useState(null); // { from, items, chosen }
  const [isPicking, setPicking] = useState(false);
  const isComposing = useRef(false);
  const kept = useRef(""); // the text before an edit began
  const pick = useRef(null);

  const put = (text) => {
    area.current.value = text;
    area.current.setSelectionRange(text.length, text.length);
    changedText();
  };

  const changedText = () => {
    const { value } = area.current;
    setLength(value.length);
    fit(area.current);
    if (target?.kind === "edit") return;
    if (value) save(draftName(conversation), value);
    else remove(draftName(conversation));
  };

  useLayoutEffect(() => {
    const draft = load(draftName(conversation), "");
    if (draft) put(draft);
    if (matchMedia("(pointer: fine)").matches) area.current.focus();
  }, []);

  const editing = target?.kind === "edit" ? target.row.key : null;
  useLayoutEffect(() => { // with the field as it is shown: what is typed next must not be replaced
    if (editing) {
      kept.current = area.current.value;
      put(target.row.change?.text ?? target.row.message.text);
      return () => put(kept.current);
    }
    return undefined;
  }, [editing]);
  useEffect(() => {
    if (target) area.current.focus();
  }, [target]);

  // What is being typed before the cursor: a shortcode or a mention.
  const suggest = () => {
    const { value, selectionStart } = area.current;
    const [, sign, word] = /(?:^|[\s(])([:@])([\p{L}\p{N}_+-]{1,30})$/u.exec(value.slice(0, selectionStart)) ?? [];
    const items = sign === ":" && word.length > 1 ? emojiItems(word) : sign === "@" ? memberItems(conversation, word) : [];
    setSuggestions(items.length ? { from: selectionStart - word.length - 1, items, chosen: 0 } : null);
  };

  const accept = (item) => {
    const { selectionStart } = area.current;
    area.current.focus();
    area.current.setSelectionRange(suggestions.from, selectionStart);
    insert(`${item.text} `);
    setSuggestions(null);
  };

  // As if typed, so that it can be undone.
  const insert = (text) => {
    area.current.focus();
    if (!document.execCommand("insertText", false, text)) area.current.setRangeText(text, area.current.selectionStart, area.current.selectionEnd, "end");
    changedText();
  };

  const submit = () => {
    const text = replaceCodes(area.current.value).trim();
    if (!text || text.length > state.limits.text) return;
    if (target?.kind === "edit") {
      const { row } = target;
      if (!row.message.id) rewrite(row.key, text) || edit(row.message, text);
      else if (text !== row.message.text || row.change) edit(row.message, text);
      setTarget(null);
    } else {
      write(conversation, text, target?.message);
      area.current.value = "";
      changedText();
      if (target) setTarget(null);
      onSent();
    }
    setSuggestions(null);
    area.current.focus();
  };

  const press = (event) => {
    // Enter and the arrows belong to the input method while it composes; Safari says so by the code 229 only.
    if (event.isComposing || isComposing.current || event.keyCode === 229) return;
    if (suggestions) {
      const { items, chosen } = suggestions;
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        setSuggestions({ ...suggestions, chosen: (chosen + step + items.length) % items.length });
        return;
      }
      if (event.key === "Enter" || event.key === "Tab") {
        event.preventDefault();
        accept(items[chosen]);
        return;
      }
      if (event.key === "Escape") {
        event.stopPropagation();
        setSuggestions(null);
        return;
      }
    }
    if (event.key === "Enter" && !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape" && target) {
      event.stopPropagation();
      setTarget(null);
    } else if (event.key === "ArrowUp" && !event.altKey && area.current.value === "") {
      event.preventDefault();
      editLast();
    }
  };

  const input = (event) => {
    changedText();
    if (area.current.value && target?.kind !== "edit") tellTyping(conversation);
    if (!event.isComposing) suggest();
  };

  const title = conversation.isRoom ? conversation.title : nameOf(conversation.user);
  const surplus = length - state.limits.text;
  return html`<form class="composer" onSubmit=${(event) => {
    event.preventDefault();
    submit();
  }}>
    ${target && html`<div class="target"><${Icon} name=${target.kind === "reply" ? "reply" : "edit"} />
      <span class="target-text">${target.kind === "reply" ? html`<b>Reply to <bdi>${target.message.author.name}</bdi></b> <span dir="auto">${target.message.text}</span>` : html`<b>Edit your message</b>`}</span>
      <${IconButton} name="close" label=${target.kind === "reply" ? "Do not reply" : "Cancel editing"} onClick=${() => setTarget(null)} /></div>`}
    ${suggestions && html`<ul class="suggestions" id="suggestions" role="listbox" aria-label="Suggestions">
      ${suggestions.items.map((item, index) => html`<li key=${item.text} id="suggestion-${index}" role="option" aria-selected=${index === suggestions.chosen ? "true" : "false"}
        onPointerDown=${(event) => {
          event.preventDefault();
          accept(item);
        }}><span class="suggestion-symbol">${item.symbol}</span><bdi>${item.label}</bdi></li>`)}
    </ul>`}
    <div class="field-row">
      <textarea ref=${area} rows="1" aria-label="Message to ${title}" placeholder="Message ${title}" dir="auto" enterkeyhint="send"
        aria-autocomplete="list" aria-controls=${suggestions ? "suggestions" : undefined}
        aria-activedescendant=${suggestions ? `suggestion-${suggestions.chosen}` : undefined}
        onKeyDown=${press} onInput=${input} onBlur=${() => setSuggestions(null)}
        onCompositionStart=${() => (isComposing.current = true)} onCompositionEnd=${() => (isComposing.current = false)}></textarea>
      <button type="button" class="icon-button" ref=${pick} aria-label="Emoji" title="Emoji" aria-expanded=${isPicking ? "true" : "false"} onClick=${() => setPicking(!isPicking)}><${Icon} name="smile" /></button>
      <button type="submit" class="icon-button send" aria-label=${target?.kind === "edit" ? "Save" : "Send"} title=${target?.kind === "edit" ? "Save" : "Send"} disabled=${length === 0 || surplus > 0}><${Icon} name="send" /></button>
    </div>
    ${isPicking && html`<${EmojiPicker} choose=${(symbol) => insert(symbol)} close=${(focusBack) => {
      setPicking(false);
      if (focusBack) pick.current.focus();
    }} opener=${pick} />`}
    ${length > state.limits.text * COUNTER_FROM && html`<p class="counter ${surplus > 0 ? "bad" : ""}" role="status">${surplus > 0 ? `${count(surplus)} characters too long` : `${count(-surplus)} characters left`}</p>`}
  </form>`;
}

// As high as its text; the style limits it.
function fit(element) {
  element.style.height = "auto";
  element.style.height = `${element.scrollHeight + 2}px`;
}

const emojiItems = (word) => findEmoji(word, SUGGESTIONS_MAX).map(({ symbol, codes }) => ({ symbol, text: symbol, label: `:${codes[0]}:` }));

function memberItems(conversation, word) {
  const wanted = word.toLocaleLowerCase();
  const ids = conversation.isRoom ? conversation.members : [conversation.user];
  const items = [];
  for (const id of ids) {
    const name = nameOf(id);
    if (id !== state.me.id && name.toLocaleLowerCase().startsWith(wanted)) items.push({ symbol: "@", text: `@${name}`, label: name });
    if (items.length === SUGGESTIONS_MAX) break;
  }
  return items;
}

const COLUMNS = 8;

function EmojiPicker({ choose, close, opener }) {
  const [filter, setFilter] = useState("");
  const box = useRef(null);
  const shown = filter ? [{ name: "Found", emoji: findEmoji(filter, 48) }] : groups;
  useEffect(() => {
    box.current.querySelector("input").focus();
    const down = (event) => {
      if (!box.current.contains(event.target) && !opener.current.contains(event.target)) close(false);
    };
    addEventListener("pointerdown", down);
    return () => removeEventListener("pointerdown", down);
  }, []);
  const press = (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close(true);
      return;
    }
    const buttons = [...box.current.querySelectorAll(".emoji")];
    const at = buttons.indexOf(document.activeElement);
    if (event.key === "Enter" && at < 0) {
      event.preventDefault();
      buttons[0]?.click();
      return;
    }
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: COLUMNS, ArrowUp: -COLUMNS }[event.key];
    if (!step || (at < 0 && event.key !== "ArrowDown")) return;
    event.preventDefault();
    const next = at < 0 ? 0 : at + step;
    if (next < 0) box.current.querySelector("input").focus();
    else buttons[Math.min(next, buttons.length - 1)]?.focus();
  };
  return html`<div class="picker" ref=${box} role="dialog" aria-label="Emoji" onKeyDown=${press}>
    <input type="search" aria-label="Find emoji" placeholder="Find emoji" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
    <div class="picker-list">
      ${shown.map(({ name, emoji }) => html`<div key=${name}><h3>${name}</h3><div class="emoji-grid">
        ${emoji.map(({ symbol, codes }, index) => html`<button key=${symbol} type="button" class="emoji" tabindex=${index === 0 ? 0 : -1} aria-label=${codes[0].replaceAll("_", " ")} title=":${codes[0]}:" onClick=${() => choose(symbol)}>${symbol}</button>`)}
      </div></div>`)}
      ${filter && !shown[0].emoji.length && html`<p class="muted">No emoji has this name.</p>`}
    </div>
  </div>`;
}
