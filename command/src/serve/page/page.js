/* The page: the shown conversation, the list of all, and the settings. */
"use strict";

const [box, text, side, settings] = ["talk", "text", "side", "settings"].map(byId);
const EXAMPLES = [
  "What is seven plus five?",
  "Tell me a story about an owl.",
  "Write a function in Rust that counts the words of a text, and explain it.",
];
const running = new Map();   // by conversations: the replies that this window receives, and what cancels them
const elsewhere = new Map(); // by messages: replies that other windows receive, and timers that forget them
const views = new Map();     // by messages: the replies that are shown
const windows = new BroadcastChannel("wglm");
let store;
let talk = newTalk(lastSettings());
let server = {};             // the settings that apply where a conversation has none
let renaming = false;

/* ---- The shown conversation ---- */

async function save(changed) {
  if (changed.deleted) return;
  try {
    if (!await store.put(changed)) return lose(changed.id);
    windows.postMessage({ id: changed.id, busy: running.get(changed.id)?.message.id });
  } catch (error) {
    tell(`This browser cannot keep the conversation (${error.message}). Export it before you close the page.`);
  }
}

/* Shows the conversation. If the focus has to move, a control with this name gets it. */
function show(name) {
  const path = pathOf(talk);
  const before = new Map(views);
  views.clear();
  const draw = message => {
    if (message.role === "user") return userView(message);
    const old = before.get(message.id);
    const view = old?.message === message ? old : new ReplyView(message);
    views.set(message.id, view);
    if (view.version === (message.version ?? 0)) view.end();
    else view.draw(running.get(talk.id)?.message !== message);
    return view.box;
  };
  keepFocus(() => box.replaceChildren(...path.map(draw)), name);
  byId("first").hidden = path.length > 0;
  history.replaceState(null, "", path.length ? "#" + talk.id : " ");
  update();
}

/* Shows the conversation after changes from elsewhere, but leaves a message that the user is editing. */
function showAgain() {
  if (!box.querySelector(".edit")) show();
  else update();
}

function update() {
  const busy = running.has(talk.id);
  const [shown, hidden] = [byId(busy ? "stop" : "send"), byId(busy ? "send" : "stop")];
  shown.hidden = false;
  if (document.activeElement === hidden) shown.focus();
  hidden.hidden = true;
  for (const node of box.querySelectorAll(".when-idle")) node.hidden = busy;
  document.title = talk.messages.length ? `${titleOf(talk)} – wglm` : "wglm";
  listTalks();
}

/* Sends what is in the message field. */
async function send() {
  if (!await ask(text.value)) return;
  text.value = "";
  typed();
}

/* Asks the model. Returns false if that is not possible now. */
async function ask(words) {
  await started;
  if (!words.trim() || running.has(talk.id)) return false;
  if (pathOf(talk).some(message => message.state === "running" && elsewhere.has(message.id))) {
    tell("Another window is receiving the last reply. Wait until it is complete, or stop it there.");
    return false;
  }
  byId("spoken").replaceChildren();
  addMessage(talk, "user", words.trim());
  answer();
  return true;
}

/* Requests a reply to a message, beside the replies that it has. */
function answer(to = talk.leaf) {
  if (!running.has(talk.id)) fill(talk, addMessage(talk, "assistant", "", to));
}

const SAVE_EVERY = 1500; // ms

/* Requests a reply and fills a message with it. */
async function fill(asked, message) {
  const cancel = new AbortController();
  running.set(asked.id, { message, cancel });
  for (const name of ["reasoning", "timings", "odd", "failed"]) delete message[name];
  changeMessage(message, { content: "", state: "running" });
  views.delete(message.id); // a reply that is requested again is drawn anew
  let saved = -Infinity;
  const keep = () => {
    if (performance.now() - saved < SAVE_EVERY) return;
    saved = performance.now();
    save(asked);
  };
  keep();
  show();
  toEnd();
  say("The model is replying.");
  const saving = setInterval(keep, SAVE_EVERY); // also while nothing comes
  try {
    for await (const event of events(await requestReply(asked, message, cancel.signal))) {
      take(message, event);
      views.get(message.id)?.later();
      keep(); // browsers slow down the timers of hidden windows
    }
    changeMessage(message, { state: "done" });
  } catch (error) {
    changeMessage(message, { state: "stopped", ...(error.name !== "AbortError" && { failed: error.message }) });
  }
  clearInterval(saving);
  running.delete(asked.id);
  asked.changed = Date.now();
  save(asked);
  views.get(message.id)?.draw(true);
  if (asked.id === talk.id) say(message.failed ?? (message.state === "done" ? "The reply is complete." : "Stopped."));
  update();
}

const toEnd = () => { byId("scroll").scrollTop = byId("scroll").scrollHeight; };

function openTalk(other) {
  talk = other;
  if (side.classList.contains("open")) closeSide();
  byId("spoken").replaceChildren();
  show();
  toEnd();
}

function begin() {
  openTalk(newTalk(lastSettings()));
  text.focus();
}

/* ---- The list of conversations ---- */

function listTalks() {
  if (renaming || !store) return;
  const items = store.list().map(entry);
  if (!items.length) items.push(element("li", { className: "faint" }, "None yet"));
  keepFocus(() => byId("list").replaceChildren(...items));
}

function entry({ id, title }) {
  const name = button((running.has(id) ? "… " : "") + title, "name", () => openStored(id));
  const item = element("li", { tabIndex: -1 }, name);
  item.dataset.place = id;
  name.title = title;
  if (id === talk.id) {
    name.ariaCurrent = "true";
    item.append(element("div", { className: "of" }, ...choicesFor(talk, title, item)));
  }
  return item;
}

/* The buttons of the open conversation. */
function choicesFor(other, title, item) {
  const json = button(".json", "quiet", () => download(title, "json", asJson([other])));
  json.ariaLabel = "Export .json";
  return [
    button("Rename", "quiet", () => rename(other, item)),
    button("Delete", "quiet", () => remove(other)),
    button("Export .md", "quiet", () => download(title, "md", asMarkdown(other))),
    json,
  ];
}

async function openStored(id) {
  const other = await store.load(id);
  if (other) openTalk(other);
  else lose(id);
}

function rename(other, item) {
  const field = element("input", { value: titleOf(other), ariaLabel: "Name of the conversation", maxLength: 200 });
  const end = keep => {
    if (!renaming) return;
    renaming = false;
    if (keep) {
      setField(other, "title", field.value.trim());
      store.setSummary(other);
      save(other);
    }
    keepFocus(update, "Rename");
  };
  renaming = true;
  field.onkeydown = event => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.stopPropagation();
    event.preventDefault(); // the button that gets the focus is not pressed
    end(event.key === "Enter");
  };
  field.onblur = () => end(true);
  item.replaceChildren(field);
  field.focus();
  field.select();
}

async function remove(other) {
  other.deleted = true; // nothing stores it from now on
  try {
    await store.remove(other.id);
  } catch (error) {
    delete other.deleted;
    return tell(`This browser cannot delete the conversation (${error.message}).`);
  }
  running.get(other.id)?.cancel.abort();
  windows.postMessage({ id: other.id, deleted: true });
  begin();
  tell(`“${titleOf(other)}” is deleted.`, () => {
    delete other.deleted;
    save(other);
    openTalk(other);
  });
}

/* Closes a conversation that another window has deleted. */
function lose(id) {
  const lost = store.forget(id);
  if (lost) lost.deleted = true;
  running.get(id)?.cancel.abort();
  if (lost && lost === talk) {
    openTalk(newTalk(lastSettings()));
    tell("Another window has deleted this conversation.");
  }
  listTalks();
}

function download(title, extension, content) {
  const name = title.replace(/[^\p{L}\p{N} _-]/gu, "").trim() || "conversation";
  const href = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  element("a", { href, download: `${name}.${extension}` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

async function read(file) {
  try {
    const talks = fromJson(await file.text());
    for (const one of talks) {
      const known = await store.load(one.id);
      await store.put(known ? merge(known, one) : one);
      windows.postMessage({ id: one.id });
    }
    if (talks.length) await openStored(talks[0].id);
    tell(`${talks.length} conversation${talks.length === 1 ? " is" : "s are"} imported.`);
  } catch (error) {
    tell(error.message);
  }
}

const notice = byId("notice");
let undo; // what the last notice offers, also when it is no longer shown

/* Tells the user something for ten seconds, or as long as the notice has the focus or the pointer, with a button that
   undoes it. The key for that works until the next notice. */
function tell(words, back) {
  const [told, choice] = notice.children;
  told.textContent = words;
  undo = back;
  choice.hidden = !undo;
  notice.classList.add("shown");
  hideLater();
}

function hideLater() {
  clearTimeout(hideLater.timer);
  hideLater.timer = setTimeout(() => {
    if (notice.matches(":hover, :focus-within")) hideLater();
    else hideNotice();
  }, 10000);
}

/* The notice stays in the document, without words: screen readers watch it for some. */
function hideNotice() {
  const [told, choice] = notice.children;
  told.textContent = "";
  choice.hidden = true;
  notice.classList.remove("shown");
}

function undoLast() {
  const last = undo;
  undo = undefined;
  if (notice.contains(document.activeElement)) text.focus();
  hideNotice();
  last?.();
}

/* ---- Settings ---- */

const form = settings.querySelector("form");
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];

function lastSettings() {
  try { return { think: true, ...JSON.parse(recall("localStorage", "settings")) }; } catch { return { think: true }; }
}

function openSettings() {
  form.elements.system.value = talk.settings.system ?? "";
  form.elements.think.checked = talk.settings.think !== false;
  for (const name of NUMBERS) {
    form.elements[name].value = talk.settings[name] ?? "";
    form.elements[name].placeholder = server[name] ?? form.elements[name].placeholder;
  }
  if (!settings.open) settings.showModal();
}

function keepSettings() {
  const chosen = { system: form.elements.system.value, think: form.elements.think.checked };
  for (const field of NUMBERS.map(name => form.elements[name])) {
    if (field.value !== "" && field.validity.valid) chosen[field.name] = field.valueAsNumber;
  }
  setField(talk, "settings", chosen);
  remember("localStorage", "settings", JSON.stringify(talk.settings));
  if (talk.messages.length) save(talk);
}

form.oninput = keepSettings;
form.onsubmit = event => { event.preventDefault(); settings.close(); };
byId("reset").onclick = () => { talk.settings = { think: true }; openSettings(); keepSettings(); };
byId("open-settings").onclick = openSettings;

/* ---- Keys and buttons ---- */

function typed() {
  text.style.height = "auto";
  text.style.height = text.scrollHeight + 2 + "px";
  remember("sessionStorage", "draft", text.value);
}

function openSide() {
  side.classList.add("open");
  byId("open-side").ariaExpanded = "true";
  byId("page").inert = true;
  byId("close-side").focus();
}

function closeSide() {
  side.classList.remove("open");
  byId("open-side").ariaExpanded = "false";
  byId("page").inert = false;
  byId("open-side").focus();
}

const stopReply = () => running.get(talk.id)?.cancel.abort();

byId("form").onsubmit = event => { event.preventDefault(); send(); };
text.oninput = typed;
text.onkeydown = event => { if (isEnter(event)) { event.preventDefault(); send(); } };
byId("stop").onclick = stopReply;
byId("undo").onclick = undoLast;
document.onkeydown = event => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (side.classList.contains("open")) closeSide();
    else stopReply();
  }
  const typing = event.target.value; // there the keys undo what was typed
  if (undo && !typing && event.key === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey) {
    event.preventDefault();
    undoLast();
  }
};
byId("open-side").onclick = event => { event.stopPropagation(); openSide(); };
byId("close-side").onclick = closeSide;
document.onclick = ({ target }) => {
  if (side.classList.contains("open") && document.contains(target) && !side.contains(target)) closeSide();
};
byId("new").onclick = begin;
byId("export-all").onclick = async () => download("wglm conversations", "json", asJson(await store.all()));
byId("import").onclick = () => byId("file").click();
byId("file").onchange = ({ target }) => {
  if (target.files[0]) read(target.files[0]);
  target.value = "";
};
byId("examples").append(...EXAMPLES.map(example => button(example, "", () => ask(example))));

/* ---- Other windows, and the end of this one ---- */

/* A window that receives a reply tells the others every second or two, or every ten if it is hidden. */
const FORGET_AFTER = 15000;

function markElsewhere(message) {
  clearTimeout(elsewhere.get(message));
  elsewhere.set(message, setTimeout(() => clearElsewhere(message), FORGET_AFTER));
}

function clearElsewhere(message) {
  clearTimeout(elsewhere.get(message));
  elsewhere.delete(message);
  if (messageOf(talk, message)) showAgain();
}

windows.onmessage = async ({ data: { id, busy, ended, deleted } }) => {
  await started;
  if (deleted) return lose(id);
  if (busy) markElsewhere(busy);
  await store.refresh(id);
  if (ended) clearElsewhere(ended);
  if (id === talk.id) showAgain();
  else listTalks();
};

/* A database need not finish what a page begins when it ends, but small values are kept at once. */
const ARRIVED = "arrived ";

window.onpagehide = () => {
  for (const [id, { message }] of running) {
    remember("localStorage", ARRIVED + message.id, JSON.stringify({ id, message }));
    windows.postMessage({ id, ended: message.id });
  }
};

async function takeArrived() {
  const names = store.kept ? Object.keys(window.localStorage).filter(name => name.startsWith(ARRIVED)) : [];
  for (const name of names) {
    const arrived = recall("localStorage", name);
    window.localStorage.removeItem(name); // first, so that one that cannot be read is not met again
    const { id, message } = JSON.parse(arrived);
    const known = await store.load(id);
    if (known) await store.put(merge(known, { messages: [message] }));
  }
}

/* ---- The beginning ---- */

async function nameModel() {
  try {
    const response = await call("v1/models");
    if (response.status === 401) {
      byId("model").textContent = "No API key: reload the page to enter one.";
      return;
    }
    const model = (await response.json()).data[0];
    byId("model").textContent = model.meta ? `${model.id}, up to ${model.meta.n_ctx} tokens` : `${model.id}, loading`;
    if (!model.meta) return setTimeout(nameModel, 2000);
    const { temperature, top_p, n_predict } = (await (await call("props")).json()).default_generation_settings.params;
    server = { temperature, top_p, max_tokens: n_predict < 0 ? "no limit" : n_predict };
  } catch (error) {
    byId("model").textContent = error.message;
    setTimeout(nameModel, 5000);
  }
}

async function start() {
  text.value = recall("sessionStorage", "draft");
  typed();
  store = await Store.open(window.indexedDB);
  if (!store.kept) tell("This browser does not store conversations; they are lost when the page closes.");
  await takeArrived().catch(error => tell(`A part of the last reply is lost (${error.message}).`));
  const last = await store.load(location.hash.slice(1));
  if (last) openTalk(last);
  else show();
}

nameModel();
const started = start();
