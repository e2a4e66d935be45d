/* Conversations, and how the browser keeps them. A conversation is a tree of messages, of which one path is shown: what
   is edited or generated again becomes a sibling, and nothing that was said is lost. */
"use strict";

const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 10);

function newTalk(settings) {
  return { id: newId(), title: "", changed: Date.now(), settings: { ...settings }, messages: [], leaf: null };
}

/* Appends a message below `parent`, the shown one by default, and shows it. */
function addMessage(talk, role, content, parent = talk.leaf) {
  const message = { id: newId(), parent, role, content, time: Date.now() };
  talk.messages.push(message);
  talk.leaf = message.id;
  talk.changed = message.time;
  return message;
}

const messageOf = (talk, id) => talk.messages.find(message => message.id === id);

/* The messages from the first to `leaf`, the shown one by default. */
function pathOf(talk, leaf = talk.leaf) {
  const path = [];
  const known = new Map(talk.messages.map(message => [message.id, message]));
  for (let at = leaf; known.has(at); known.delete(at), at = path[0].parent) path.unshift(known.get(at));
  return path;
}

const siblingsOf = (talk, message) => talk.messages.filter(other => other.parent === message.parent);

/* Shows a message, and below it the newest ones. */
function showMessage(talk, message) {
  for (let next = message; next; next = talk.messages.findLast(other => other.parent === next.id)) talk.leaf = next.id;
}

function titleOf(talk) {
  const first = talk.messages.find(message => message.role === "user")?.content.trim().split("\n")[0] ?? "";
  return talk.title || (first.length > 60 ? first.slice(0, 57).trimEnd() + "…" : first) || "New conversation";
}

/* The messages of a request for a reply below `leaf`. */
function requestOf(talk, leaf) {
  const system = talk.settings.system?.trim() ? [{ role: "system", content: talk.settings.system }] : [];
  const said = pathOf(talk, leaf).filter(message => message.role === "user" || message.content || message.reasoning);
  const sent = ({ role, content, reasoning: reasoning_content }) => ({ role, content, reasoning_content });
  return [...system, ...said.map(sent)]; // JSON leaves out what is undefined
}

/* The shown path as Markdown. */
function asMarkdown(talk) {
  const names = { user: "User", assistant: "Assistant" };
  const system = talk.settings.system?.trim() ? [`## System\n\n${talk.settings.system.trim()}`] : [];
  const said = pathOf(talk).map(message => `## ${names[message.role]}\n\n${message.content.trim()}`);
  return [`# ${titleOf(talk)}`, ...system, ...said].join("\n\n") + "\n";
}

const FORM = "wglm conversations";

function asJson(talks) {
  return JSON.stringify({ format: FORM, version: 1, conversations: talks }, null, 1) + "\n";
}

/* The conversations of an exported file, or an error that says what is wrong with it. */
function fromJson(text) {
  const wrong = where => { throw new Error(`This file is no export of conversations: ${where}.`); };
  let file;
  try { file = JSON.parse(text); } catch { wrong("it is not JSON"); }
  if (file?.format !== FORM || !Array.isArray(file.conversations)) wrong(`its field "format" is not "${FORM}"`);
  const isText = (value, ...others) => typeof value === "string" || others.includes(value);
  const isMessage = (one, at, all) => isText(one?.id) && isText(one.content) && isText(one.reasoning, undefined) &&
    ["user", "assistant"].includes(one.role) &&
    (one.parent === null || all.slice(0, at).some(other => other.id === one.parent));
  return file.conversations.map((talk, at) => {
    if (!isText(talk?.id) || !Array.isArray(talk.messages)) wrong(`conversation ${at + 1} has no messages`);
    if (!talk.messages.every(isMessage)) {
      wrong(`a message of conversation ${at + 1} lacks its text, its role or the one before it`);
    }
    const { id, messages, changed = 0 } = talk;
    const leaf = messages.some(one => one.id === talk.leaf) ? talk.leaf : messages.at(-1)?.id ?? null;
    const title = isText(talk.title) ? talk.title : "";
    const settings = Object(talk.settings) === talk.settings ? talk.settings : {};
    if (!isText(settings.system, undefined)) delete settings.system;
    return { id, messages, leaf, changed, title, settings };
  });
}

/* Adds to a conversation the messages that another window has added to its stored form. */
function merge(mine, stored) {
  const known = new Set(mine.messages.map(message => message.id));
  mine.messages.push(...(stored?.messages ?? []).filter(message => !known.has(message.id)));
  return mine;
}

/* The browser's storage, or this page's memory where there is none. `kept` says which. */
class Store {
  static async open(databases) {
    const store = new Store();
    store.talks = new Map();
    try {
      const opening = databases.open("wglm", 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore("talks", { keyPath: "id" });
      store.database = await done(opening);
      store.database.onversionchange = () => store.database.close();
      for (const talk of await done(store.table("readonly").getAll())) store.talks.set(talk.id, talk);
      store.kept = true;
    } catch { store.kept = false; }
    return store;
  }
  table(mode) {
    return this.database.transaction("talks", mode).objectStore("talks");
  }
  /* All conversations, the newest first. */
  list() {
    return [...this.talks.values()].sort((one, other) => other.changed - one.changed);
  }
  async put(talk) {
    this.talks.set(talk.id, talk);
    if (!this.kept) return;
    const table = this.table("readwrite");
    await done(table.put(merge(talk, await done(table.get(talk.id)))));
  }
  async remove(id) {
    this.talks.delete(id);
    if (this.kept) await done(this.table("readwrite").delete(id));
  }
  /* Reads a conversation again that another window has changed. */
  async refresh(id) {
    const talk = this.kept && await done(this.table("readonly").get(id));
    if (talk) this.talks.set(id, talk);
    else this.talks.delete(id);
    return talk;
  }
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
