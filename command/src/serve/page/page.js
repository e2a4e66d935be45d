/* The page: the shown conversation, the list of all, and the settings. */
"use strict";

const [box, text, side, settings] = ["talk", "text", "side", "settings"].map(find);
const EXAMPLES = [
  "What is seven plus five?",
  "Tell me a story about an owl.",
  "Write a function in Rust that counts the words of a text, and explain it.",
];
const running = new Map();   // by conversations: what cancels their replies
const elsewhere = new Set(); // conversations whose replies other windows receive
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
    await store.put(changed);
    windows.postMessage({ id: changed.id, busy: running.has(changed.id) });
  } catch (error) {
    tell(`This browser cannot keep the conversation (${error.message}). Export it before you close the page.`);
  }
}

function show() {
  const path = pathOf(talk);
  const before = new Map(views);
  views.clear();
  box.replaceChildren(...path.map(message => {
    if (message.role === "user") return userView(message);
    const old = before.get(message.id);
    const view = old?.message === message ? old : new ReplyView(message);
    views.set(message.id, view);
    if (view.complete) view.end();
    else view.draw(!(running.has(talk.id) && message.state === "running"));
    return view.box;
  }));
  find("first").hidden = path.length > 0;
  history.replaceState(null, "", path.length ? "#" + talk.id : " ");
  update();
}

function update() {
  const busy = running.has(talk.id);
  find("send").hidden = busy;
  find("stop").hidden = !busy;
  for (const node of box.querySelectorAll(".when-idle")) node.hidden = busy;
  document.title = talk.messages.length ? `${titleOf(talk)} – wglm` : "wglm";
  list();
}

async function ask(words = text.value) {
  await started;
  if (!words.trim() || running.has(talk.id)) return;
  find("spoken").replaceChildren();
  addMessage(talk, "user", words.trim());
  answer();
  text.value = "";
  typed();
}

/* Requests a reply to a message, beside the replies that it has. */
function answer(to = talk.leaf) {
  if (!running.has(talk.id)) fill(talk, addMessage(talk, "assistant", "", to));
}

/* Requests a reply and fills a message with it. */
async function fill(asked, message) {
  const mine = new AbortController();
  running.set(asked.id, mine);
  for (const name of ["reasoning", "timings", "odd", "failed"]) delete message[name];
  Object.assign(message, { content: "", state: "running" });
  views.delete(message.id); // a reply that is requested again is drawn anew
  save(asked);
  show();
  toEnd();
  say("The model is replying.");
  const saving = setInterval(() => save(asked), 1500);
  try {
    for await (const event of events(await requestReply(asked, message, mine.signal))) {
      take(message, event);
      views.get(message.id)?.later();
    }
    message.state = "done";
  } catch (error) {
    message.state = "stopped";
    if (error.name !== "AbortError") message.failed = error.message;
  }
  clearInterval(saving);
  running.delete(asked.id);
  asked.changed = Date.now();
  save(asked);
  views.get(message.id)?.draw(true);
  if (asked.id === talk.id) say(message.failed ?? (message.state === "done" ? "The reply is complete." : "Stopped."));
  update();
}

const toEnd = () => { find("scroll").scrollTop = find("scroll").scrollHeight; };

function open(other) {
  talk = other;
  if (side.classList.contains("open")) closeSide();
  find("spoken").replaceChildren();
  show();
  toEnd();
}

function begin() {
  open(newTalk(lastSettings()));
  text.focus();
}

/* ---- The list of conversations ---- */

function list() {
  if (renaming || !store) return;
  const focused = document.activeElement?.dataset?.focus;
  const items = store.list().map(entry);
  find("list").replaceChildren(...(items.length ? items : [element("li", { className: "faint" }, "None yet")]));
  if (focused) [...find("list").querySelectorAll("button")].find(one => one.dataset.focus === focused)?.focus();
}

function entry(other) {
  const title = titleOf(other);
  const choose = (label, className, act) => {
    const made = button(label, className, act);
    made.dataset.focus = other.id + label; // to find it again when the list is drawn again
    return made;
  };
  const name = choose((running.has(other.id) ? "… " : "") + title, "name", () => open(other));
  const item = element("li", {}, name);
  name.title = title;
  if (other.id !== talk.id) return item;
  name.ariaCurrent = "true";
  const markdown = choose("Export .md", "quiet", () => download(title, "md", asMarkdown(other)));
  const json = choose(".json", "quiet", () => download(title, "json", asJson([other])));
  json.ariaLabel = "Export .json";
  const change = [choose("Rename", "quiet", () => rename(other, item)), choose("Delete", "quiet", () => remove(other))];
  item.append(element("div", { className: "of" }, ...change, markdown, json));
  return item;
}

function rename(other, item) {
  const field = element("input", { value: titleOf(other), ariaLabel: "Name of the conversation", maxLength: 200 });
  const end = keep => {
    if (!renaming) return;
    renaming = false;
    if (keep) {
      other.title = field.value.trim();
      save(other);
    }
    update();
  };
  renaming = true;
  field.onkeydown = event => {
    if (event.key === "Escape") event.stopPropagation();
    if (event.key === "Enter" || event.key === "Escape") end(event.key === "Enter");
  };
  field.onblur = () => end(true);
  item.replaceChildren(field);
  field.focus();
  field.select();
}

async function remove(other) {
  other.deleted = true;
  running.get(other.id)?.abort();
  await store.remove(other.id);
  windows.postMessage({ id: other.id });
  begin();
  tell(`“${titleOf(other)}” is deleted.`, () => {
    delete other.deleted;
    save(other);
    open(other);
  });
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
    for (const one of talks) await store.put(merge(one, store.talks.get(one.id)));
    if (talks.length) open(talks[0]);
    tell(`${talks.length} conversation${talks.length === 1 ? " is" : "s are"} imported.`);
  } catch (error) {
    tell(error.message);
  }
}

/* Tells the user something for ten seconds, with a button that undoes it. */
function tell(words, undo) {
  const notice = find("notice");
  const [told, back] = notice.children;
  told.textContent = words;
  back.hidden = !undo;
  back.onclick = () => { notice.hidden = true; undo(); };
  notice.hidden = false;
  clearTimeout(tell.hiding);
  tell.hiding = setTimeout(() => { notice.hidden = true; }, 10000);
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
  talk.settings = { system: form.elements.system.value, think: form.elements.think.checked };
  for (const field of NUMBERS.map(name => form.elements[name])) {
    if (field.value !== "" && field.validity.valid) talk.settings[field.name] = field.valueAsNumber;
  }
  remember("localStorage", "settings", JSON.stringify(talk.settings));
  if (talk.messages.length) save(talk);
}

form.oninput = keepSettings;
form.onsubmit = event => { event.preventDefault(); settings.close(); };
find("reset").onclick = () => { talk.settings = { think: true }; openSettings(); keepSettings(); };
find("open-settings").onclick = openSettings;

/* ---- Keys and buttons ---- */

function typed() {
  text.style.height = "auto";
  text.style.height = text.scrollHeight + 2 + "px";
  remember("sessionStorage", "draft", text.value);
}

function openSide() {
  side.classList.add("open");
  find("open-side").ariaExpanded = "true";
  find("page").inert = true;
  find("close-side").focus();
}

function closeSide() {
  side.classList.remove("open");
  find("open-side").ariaExpanded = "false";
  find("page").inert = false;
  find("open-side").focus();
}

find("form").onsubmit = event => { event.preventDefault(); ask(); };
text.oninput = typed;
text.onkeydown = event => { if (isEnter(event)) { event.preventDefault(); ask(); } };
find("stop").onclick = () => running.get(talk.id)?.abort();
document.onkeydown = event => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (side.classList.contains("open")) closeSide();
  else running.get(talk.id)?.abort();
};
find("open-side").onclick = event => { event.stopPropagation(); openSide(); };
find("close-side").onclick = closeSide;
document.onclick = ({ target }) => {
  if (side.classList.contains("open") && document.contains(target) && !side.contains(target)) closeSide();
};
find("new").onclick = begin;
find("export-all").onclick = () => download("wglm conversations", "json", asJson(store.list()));
find("import").onclick = () => find("file").click();
find("file").onchange = ({ target }) => {
  if (target.files[0]) read(target.files[0]);
  target.value = "";
};
find("examples").append(...EXAMPLES.map(example => button(example, "", () => ask(example))));

/* ---- Other windows, and the end of this one ---- */

windows.onmessage = async ({ data: { id, busy } }) => {
  if (busy) elsewhere.add(id);
  else elsewhere.delete(id);
  const changed = !running.has(id) && await store?.refresh(id);
  const inUse = renaming || running.has(id) || box.querySelector(".edit");
  if (changed && id === talk.id && !inUse) {
    talk = changed;
    show();
  }
  list();
};
window.onpagehide = () => {
  for (const id of running.keys()) {
    store.put(store.talks.get(id));
    windows.postMessage({ id });
  }
};

/* ---- The beginning ---- */

async function nameModel() {
  try {
    const response = await call("v1/models");
    if (response.status === 401) {
      find("model").textContent = "No API key: reload the page to enter one.";
      return;
    }
    const model = (await response.json()).data[0];
    find("model").textContent = model.meta ? `${model.id}, up to ${model.meta.n_ctx} tokens` : `${model.id}, loading`;
    if (!model.meta) return setTimeout(nameModel, 2000);
    const { temperature, top_p, n_predict } = (await (await call("props")).json()).default_generation_settings.params;
    server = { temperature, top_p, max_tokens: n_predict < 0 ? "no limit" : n_predict };
  } catch (error) {
    find("model").textContent = error.message;
    setTimeout(nameModel, 5000);
  }
}

async function start() {
  text.value = recall("sessionStorage", "draft");
  typed();
  store = await Store.open(window.indexedDB);
  if (!store.kept) tell("This browser keeps no conversations: they end with this page.");
  const last = store.talks.get(location.hash.slice(1));
  if (last) open(last);
  else show();
}

nameModel();
const started = start();
