/* Messages on the page: the user's, which can be edited, and replies, which are drawn while they arrive. */
"use strict";

const isEnter = event => event.key === "Enter" && !event.shiftKey && !event.isComposing;

function button(label, className, onclick) {
  return element("button", { type: "button", className, onclick }, label);
}

const isSeen = node => node.isConnected && node.checkVisibility();
const nameOf = node => node.ariaLabel ?? node.textContent;

/* Redraws a part of the page. If that replaces the element that has the focus, the new control of the same name gets
   it, or else its message or conversation, so that the next Tab continues from there. */
function keepFocus(draw, name) {
  const focused = document.activeElement ?? document.body;
  const place = focused.closest("[data-place]")?.dataset.place;
  draw();
  if (!place || isSeen(focused)) return;
  const again = document.querySelector(`[data-place="${CSS.escape(place)}"]`);
  const controls = [...again?.querySelectorAll("button, summary") ?? []];
  (controls.find(one => nameOf(one) === (name ?? nameOf(focused)) && isSeen(one)) ?? again)?.focus();
}

/* Has screen readers say something: the blocks of a reply when they are complete, and not each token. */
function say(words) {
  const spoken = byId("spoken");
  if (words) spoken.append(element("p", {}, words));
  while (spoken.childElementCount > 50) spoken.firstChild.remove();
}

/* The words of a block, without the heads of code, and with blanks where a new line or cell begins. */
function wordsOf(block) {
  const copy = block.cloneNode(true);
  for (const head of copy.querySelectorAll(".head")) head.remove();
  for (const part of copy.querySelectorAll("br, li, p, pre, td, th")) part.after(" ");
  return copy.textContent.trim();
}

const placeOf = message => message.role + message.parent;

/* The element of a message. Versions of a message have the same place. */
function article(message, ariaLabel, ...parts) {
  const made = element("article", { className: `message ${message.role}`, ariaLabel, tabIndex: -1 }, ...parts);
  made.dataset.place = placeOf(message);
  return made;
}

/* The choice among messages that have the same place in the conversation. */
function variants(message) {
  const all = siblingsOf(talk, message);
  const at = all.indexOf(message);
  const to = (other, sign, ariaLabel) => {
    const choose = () => {
      if (!other) return; // a disabled button would lose the focus
      showMessage(talk, other);
      save(talk);
      show();
    };
    return Object.assign(button(sign, "quiet", choose), { ariaDisabled: String(!other), ariaLabel });
  };
  if (all.length < 2) return [];
  const place = `${at + 1}/${all.length}`;
  return [to(all[at - 1], "‹", "Previous version"), place, to(all[at + 1], "›", "Next version")];
}

function userView(message) {
  const said = element("div", { className: "said" }, message.content);
  const copy = copyButton(() => message.content, "Copy the message");
  const change = button("Edit", "quiet when-idle", () => edit(message, view));
  const actions = element("div", { className: "actions" }, copy, change, ...variants(message));
  const view = article(message, "Your message", said, actions);
  return view;
}

/* Lets the user change a message. The old one and the replies to it stay as another version. */
function edit(message, view) {
  const rows = Math.min(message.content.split("\n").length + 1, 14);
  const field = element("textarea", { value: message.content, rows, ariaLabel: "Your message" });
  const cancel = () => show("Edit");
  const finish = () => {
    if (!field.value.trim() || running.has(talk.id)) return;
    addMessage(talk, "user", field.value.trim(), message.parent);
    answer();
    byId("text").focus();
  };
  field.onkeydown = event => {
    if (event.key === "Escape") { event.stopPropagation(); cancel(); }
    if (isEnter(event)) { event.preventDefault(); finish(); }
  };
  const choices = [button("Cancel", "", cancel), button("Send", "main", finish)];
  const actions = element("div", { className: "row end" }, ...choices);
  view.replaceChildren(element("div", { className: "edit" }, field, actions));
  field.focus();
}

/* A reply on the page. It is drawn at most once per frame. */
class ReplyView {
  constructor(message) {
    this.message = message;
    this.summary = element("summary");
    this.thought = element("div");
    this.thoughts = 0; // the length of what is shown of it
    this.folded = element("details", { className: "thinking" }, this.summary, this.thought);
    this.shown = element("div", { className: "answer" });
    this.drawing = new Drawing(this.shown);
    this.odd = element("div", { className: "odd" });
    this.actions = element("div", { className: "actions" });
    const parts = [this.folded, this.shown, this.odd, this.actions];
    this.box = article(message, "Reply", ...parts);
  }
  later() {
    this.frame ??= requestAnimationFrame(() => this.draw(false));
  }
  draw(whole) {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    const { content, reasoning } = this.message;
    const scroll = byId("scroll");
    const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
    this.folded.hidden = !reasoning;
    if (whole) this.thought.textContent = reasoning ?? "";
    else this.thought.append((reasoning ?? "").slice(this.thoughts));
    this.thoughts = reasoning?.length ?? 0;
    this.summary.textContent = whole || content ? "Thought" : "Thinking …";
    const complete = this.drawing.draw(content.replaceAll("\r", ""), whole);
    if (this.arriving) complete.forEach(node => say(wordsOf(node)));
    this.arriving = !whole;
    this.version = whole ? this.message.version ?? 0 : -1; // the one that is shown in full
    const waiting = whole || content || reasoning ? [] : [element("span", { className: "faint" }, "Reading …")];
    if (whole) this.end();
    else this.odd.replaceChildren(...waiting);
    if (atEnd) scroll.scrollTop = scroll.scrollHeight;
  }
  /* Shows what belongs below a reply that has ended. */
  end() {
    const { message } = this;
    const received = message.state === "running" && elsewhere.has(message.id);
    const lost = received ? "Another window is receiving this reply." : "This reply was interrupted.";
    const odd = message.failed ?? { running: lost, stopped: "Stopped." }[message.state] ?? message.odd;
    const broken = message.state !== "done";
    const again = broken
      ? button("Retry", "when-idle", () => retry(message))
      : button("Regenerate", "quiet when-idle", () => answer(message.parent));
    const copy = message.content ? [copyButton(() => message.content, "Copy the reply")] : [];
    const lines = [...(odd ? [element("span", {}, odd)] : []), ...(broken && !received ? [again] : [])];
    const actions = [...copy, ...(broken ? [] : [again]), ...variants(message), ...this.figures()];
    keepFocus(() => {
      this.odd.replaceChildren(...lines);
      this.actions.replaceChildren(...actions);
    });
  }
  figures() {
    const open = this.actions.querySelector(".figures")?.open ?? false;
    const timings = this.message.timings;
    if (!timings) return [];
    const speed = Math.round(timings.predicted_per_second * 10) / 10;
    const told = `${timings.predicted_n} tokens, ${speed} tok/s; ` +
      `prompt ${timings.cache_n + timings.prompt_n} tokens, ${timings.cache_n} cached`;
    const parts = [element("summary", {}, "Figures"), element("span", {}, told)];
    return [element("details", { className: "figures", open }, ...parts)];
  }
}

/* Requests a reply again: in its place if it failed before it began, and as another version otherwise. */
function retry(message) {
  if (message.content || message.reasoning) answer(message.parent);
  else if (!running.has(talk.id)) fill(talk, message);
}
