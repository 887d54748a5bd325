// What each AMQP operation of the drawer means, with the way of a message through the broker.
import { html, useEffect } from "./lib.js";
import { Icon } from "./icons.js";
import { href } from "./router.js";

// The way of a message: places, and the steps between them.
const WAY = [
  { place: "Your page" },
  { step: "publish", operations: ["basic.publish", "basic.confirm"] },
  { place: "Exchange", detail: "general", operations: ["exchange.declare", "exchange.bind", "exchange.unbind", "exchange.delete"] },
  { step: "binding", operations: ["queue.bind", "queue.unbind"] },
  { place: "Queue", detail: "one per user", operations: ["queue.declare", "queue.delete"] },
  { step: "deliver", operations: ["basic.consume", "basic.deliver", "basic.ack", "basic.cancel"] },
  { place: "Every member" },
];

const EXPLANATIONS = {
  "exchange.declare": {
    title: "Declare an exchange",
    direction: "out",
    short: "Messages are not sent to queues but to an exchange, which decides by its bindings where they go.",
    here: "Each room is an exchange with the name of the room. It is declared when a user joins. Declaring an exchange that exists changes nothing, so members need not know who was first.",
    notice: "The type decides how the routing key is compared: topic for rooms, direct for private-messages, where the key must be equal to the id of the recipient. Durable means that the exchange survives a restart of the broker.",
  },
  "queue.declare": {
    title: "Declare a queue",
    direction: "out",
    short: "A queue keeps messages in order until a consumer has acknowledged them.",
    here: "You have exactly one queue. Its name is your id, and all your rooms and private conversations arrive in it. It keeps what is published while your connection is lost.",
    notice: "A queue belongs to the reader, not to the room: that is why a slow member does not hold up the others.",
  },
  "queue.bind": {
    title: "Bind a queue",
    direction: "out",
    short: "A binding tells an exchange to put a copy of each message whose routing key matches into a queue.",
    here: "Joining a room is one binding from the exchange of the room to your queue. From this moment on, everything that is published to the room reaches you.",
    notice: "The key # matches every routing key. Your id as the key binds your queue to private-messages.",
  },
  "queue.unbind": {
    title: "Unbind a queue",
    direction: "out",
    short: "Without the binding, the exchange no longer copies messages into the queue.",
    here: "Leaving a room removes its binding to your queue. The exchange stays for the other members, and so does the history.",
    notice: "Messages that are already in the queue stay there and are delivered.",
  },
  "exchange.bind": {
    title: "Bind an exchange to an exchange",
    direction: "out",
    short: "A binding may also lead to another exchange, which then routes the message on by its own bindings.",
    here: "It lets one publication reach the history and the room without being published twice.",
    notice: "This is an extension of RabbitMQ that recado has too.",
  },
  "basic.consume": {
    title: "Consume a queue",
    direction: "out",
    short: "A consumer subscribes to a queue; the broker then pushes messages to it as they arrive.",
    here: "The server consumes your queue while a page of yours is open, on all your devices together.",
    notice: "The prefetch limits how many messages may be unacknowledged at once, so that a reader is never flooded.",
  },
  "basic.cancel": {
    title: "Cancel a consumer",
    direction: "out",
    short: "The broker stops pushing messages of the queue to this consumer.",
    here: "It happens when your last page is closed. Your queue then collects messages for some time.",
    notice: "What was delivered but not acknowledged goes back to the queue.",
  },
  "basic.publish": {
    title: "Publish a message",
    direction: "out",
    short: "The client hands a message to an exchange, with a routing key, properties and a body.",
    here: "The body is your text. Your name and id are headers that the server adds: a page cannot write under another name. A reply has the correlation id of its thread, from which its colour is made.",
    notice: "Publishing itself has no answer. Whether the message is safe, the confirm says.",
  },
  "basic.confirm": {
    title: "Confirm a publication",
    direction: "in",
    short: "The broker has taken responsibility for a message: a durable one is on disk in all of its queues.",
    here: "Until the confirm arrives, a message is shown with a clock; then with a tick. If the connection breaks before, it is published again under the same client id, and the copy is recognised.",
    notice: "On the wire this is a basic.ack from the broker to the publisher.",
  },
  "basic.deliver": {
    title: "Deliver a message",
    direction: "in",
    short: "The broker pushes a message from a queue to a consumer.",
    here: "Your own messages come back this way too. You see what all members see, in the same order.",
    notice: "The delivery tag names the delivery on its channel; the acknowledgement repeats it.",
  },
  "basic.ack": {
    title: "Acknowledge a delivery",
    direction: "out",
    short: "The consumer has processed a message, and the broker removes it from the queue.",
    here: "The server acknowledges a message once it has been handed to your pages. If the server stops before, the broker delivers the message again.",
    notice: "At least once, therefore. What arrives twice is recognised by its position.",
  },
};

// The confirm of a publication is a basic.ack too, from the broker, and names an exchange; an ack of ours names our queue.
export const subjectOf = ({ operation, object }, queue) => (operation === "basic.ack" && object !== queue ? "basic.confirm" : operation);

const UNKNOWN = { title: "An operation of AMQP", direction: "out", short: "This operation has no explanation yet.", here: "", notice: "" };

export const explanationOf = (operation) => EXPLANATIONS[operation] ?? UNKNOWN;

export function ExplainPage({ operation, back }) {
  const { title, short, here, notice } = explanationOf(operation);
  useEffect(() => {
    document.title = `${title} · recado chat`;
    document.getElementById("title").focus();
  }, [operation]);
  return html`<section class="conversation explain" aria-labelledby="title">
    <header class="conversation-head"><a class="icon-button" href=${back} aria-label="Back to the conversation" title="Back to the conversation"><${Icon} name="back" /></a>
      <div class="conversation-title"><h1 id="title" tabindex="-1">${title}</h1><p class="subtitle"><code>${operation}</code></p></div></header>
    <div class="explain-body" tabindex="0" role="group" aria-label="Explanation">
      <ol class="way" aria-label="The way of a message">
        ${WAY.map(({ place, step, detail, operations = [] }) => html`<li class="${place ? "place" : "step"} ${operations.includes(operation) ? "here" : ""}" aria-current=${operations.includes(operation) ? "step" : undefined}>
          <span>${place ?? step}</span>${detail && html`<small>${detail}</small>`}</li>`)}
      </ol>
      <p class="lead">${short}</p>
      ${here && html`<h2>In this chat</h2><p>${here}</p>`}
      ${notice && html`<h2>Good to know</h2><p>${notice}</p>`}
      <h2>The other operations</h2>
      <ul class="explain-list">${Object.entries(EXPLANATIONS)
        .filter(([name]) => name !== operation)
        .map(([name, each]) => html`<li><a href=${href(["explain", name], { panel: "amqp" })}>${name}</a><span class="muted">${each.title}</span></li>`)}</ul>
    </div>
  </section>`;
}
