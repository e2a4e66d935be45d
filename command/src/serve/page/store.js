/* Conversations, and how the browser keeps them. A conversation is a tree of messages, of which one path is shown: what
   is edited or generated again becomes a sibling, and nothing that was said is lost. Several windows can change one
   conversation: each change of a message gives it a higher version, and the title and the settings have times. */
"use strict";

const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 10);

function newTalk(settings) {
  const said = { messages: [], leaf: null };
  return { id: newId(), title: "", changed: Date.now(), settings: { ...settings }, times: {}, ...said };
}

/* Changes the title or the settings. */
function setField(talk, name, value) {
  talk[name] = value;
  talk.times = { ...talk.times, [name]: Date.now() };
}

/* Appends a message below `parent`, the shown one by default, and shows it. */
function addMessage(talk, role, content, parent = talk.leaf) {
  const message = { id: newId(), parent, role, content, time: Date.now() };
  talk.messages.push(message);
  talk.leaf = message.id;
  talk.changed = message.time;
  return message;
}

function changeMessage(message, fields) {
  Object.assign(message, fields, { version: (message.version ?? 0) + 1 });
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

const isFlag = value => typeof value === "boolean";

/* The fields of conversations in a file, and the values that each may have. Other fields are left out. */
const FIELDS = {
  talk: { id: isText, title: isText, changed: Number.isFinite },
  times: { title: Number.isFinite, settings: Number.isFinite },
  settings: { system: isText, think: isFlag, temperature: Number.isFinite, top_p: Number.isFinite,
    max_tokens: Number.isFinite, seed: Number.isFinite },
  message: { id: isText, parent: value => value === null || isText(value),
    role: value => ["user", "assistant"].includes(value), content: isText, time: Number.isFinite,
    version: Number.isSafeInteger, reasoning: isText, state: value => ["running", "stopped", "done"].includes(value),
    odd: isText, failed: isText },
  timings: { predicted_n: Number.isFinite, predicted_per_second: Number.isFinite, prompt_n: Number.isFinite,
    cache_n: Number.isFinite },
};

function fieldsOf(kind, value) {
  const names = Object.keys(FIELDS[kind]).filter(name => FIELDS[kind][name](value?.[name]));
  return Object.fromEntries(names.map(name => [name, value[name]]));
}

function readMessage(value, known) {
  const message = fieldsOf("message", value);
  const whole = ["id", "parent", "role", "content"].every(name => name in message);
  if (!whole || known.has(message.id) || message.parent !== null && !known.has(message.parent)) return undefined;
  known.add(message.id);
  const timings = fieldsOf("timings", value.timings);
  return Object.keys(timings).length === Object.keys(FIELDS.timings).length ? { ...message, timings } : message;
}

/* The conversations of an exported file, or an error that says what is wrong with it. */
function fromJson(text) {
  const wrong = where => { throw new Error(`This file is no export of conversations: ${where}.`); };
  let file;
  try { file = JSON.parse(text); } catch { wrong("it is not JSON"); }
  if (file?.format !== FORM || !Array.isArray(file.conversations)) wrong(`its field "format" is not "${FORM}"`);
  return file.conversations.map((value, at) => {
    const talk = fieldsOf("talk", value);
    if (!("id" in talk) || !Array.isArray(value.messages)) wrong(`conversation ${at + 1} has no messages`);
    const known = new Set();
    const messages = value.messages.map(one => readMessage(one, known));
    if (messages.includes(undefined)) {
      wrong(`a message of conversation ${at + 1} lacks its text, its role or the one before it, or is there twice`);
    }
    const changed = Math.min(talk.changed ?? 0, Date.now()); // what claims to come from the future would stay the first
    const leaf = known.has(value.leaf) ? value.leaf : messages.at(-1)?.id ?? null;
    const [times, settings] = [fieldsOf("times", value.times), fieldsOf("settings", value.settings)];
    return { title: "", ...talk, changed, settings, times, messages, leaf };
  });
}

/* Takes over from another form of a conversation, stored by another window or read from a file, what is newer there.
   The objects stay, because a reply that arrives is written to its message. A message keeps its place in the tree. */
function merge(mine, other) {
  if (!other) return mine;
  const known = new Map(mine.messages.map(message => [message.id, message]));
  for (const message of other.messages) {
    const old = known.get(message.id);
    if (!old) mine.messages.push(message);
    else if ((message.version ?? 0) > (old.version ?? 0)) {
      const { id, parent, role } = old;
      for (const name of Object.keys(old)) delete old[name];
      Object.assign(old, message, { id, parent, role });
    }
  }
  for (const name of ["title", "settings"]) {
    if ((other.times?.[name] ?? 0) <= (mine.times?.[name] ?? 0)) continue;
    mine[name] = other[name];
    mine.times = { ...mine.times, [name]: other.times[name] };
  }
  mine.changed = Math.max(mine.changed, other.changed ?? 0);
  showMessage(mine, messageOf(mine, mine.leaf ?? other.leaf)); // another window may have continued below it
  return mine;
}

/* The browser's storage, or this page's memory where there is none. `kept` says which. */
class Store {
  talks = new Map(); // the conversations that were opened
  summaries = new Map(); // the titles of all conversations, and when each changed
  stored = new Set(); // the conversations that the database has
  static async open(databases) {
    const store = new Store();
    try {
      const opening = databases.open("wglm", 2);
      opening.onupgradeneeded = ({ oldVersion }) => upgrade(opening, oldVersion);
      store.database = await done(opening);
      store.database.onversionchange = () => store.database.close();
      await store.readSummaries();
      store.kept = true;
    } catch { store.kept = false; }
    return store;
  }
  table(mode) {
    return this.database.transaction("talks", mode).objectStore("talks");
  }
  /* Reads an index that consists of titles and times, because all conversations together can be large. */
  readSummaries() {
    const reading = this.table("readonly").index("summaries").openKeyCursor();
    return new Promise((resolve, reject) => {
      reading.onerror = () => reject(reading.error);
      reading.onsuccess = () => {
        const cursor = reading.result;
        if (!cursor) return resolve();
        const [changed, title] = cursor.key;
        this.summaries.set(cursor.primaryKey, { id: cursor.primaryKey, changed, title });
        this.stored.add(cursor.primaryKey);
        cursor.continue();
      };
    });
  }
  setSummary(talk) {
    this.summaries.set(talk.id, { id: talk.id, changed: talk.changed, title: titleOf(talk) });
  }
  /* The summaries of all conversations, the newest first. */
  list() {
    return [...this.summaries.values()].sort((one, other) => other.changed - one.changed);
  }
  async all() {
    if (this.kept) for (const { id } of this.list()) await this.load(id);
    return this.list().flatMap(({ id }) => this.talks.get(id) ?? []);
  }
  async load(id) {
    if (!this.talks.has(id)) await this.refresh(id);
    return this.talks.get(id);
  }
  /* Stores a conversation with what other windows have added to it, unless one of them has deleted it. */
  async put(talk) {
    this.talks.set(talk.id, talk);
    this.setSummary(talk);
    if (!this.kept) return true;
    const table = this.table("readwrite");
    const stored = await done(table.get(talk.id));
    if (!stored && this.stored.has(talk.id)) return false;
    table.put({ ...merge(talk, stored), name: titleOf(talk) });
    await committed(table.transaction);
    this.stored.add(talk.id);
    this.setSummary(talk);
    return true;
  }
  async remove(id) {
    if (this.kept) {
      const table = this.table("readwrite");
      table.delete(id);
      await committed(table.transaction);
    }
    return this.forget(id);
  }
  /* Returns the conversation if it was opened. */
  forget(id) {
    const talk = this.talks.get(id);
    this.talks.delete(id);
    this.summaries.delete(id);
    this.stored.delete(id);
    return talk;
  }
  /* Reads a conversation again that another window may have changed. Returns false if there is none. */
  async refresh(id) {
    const stored = this.kept && await done(this.table("readonly").get(id));
    if (!stored) return !this.kept && this.talks.has(id);
    const { name, ...talk } = stored;
    this.talks.set(id, this.talks.has(id) ? merge(this.talks.get(id), talk) : talk);
    this.stored.add(id);
    this.setSummary(this.talks.get(id));
    return true;
  }
}

/* Version 1 had no index, and no field `name` for it. */
function upgrade({ result: database, transaction }, oldVersion) {
  const table = oldVersion ? transaction.objectStore("talks") : database.createObjectStore("talks", { keyPath: "id" });
  table.createIndex("summaries", ["changed", "name"]);
  table.openCursor().onsuccess = ({ target: { result: cursor } }) => {
    cursor?.update({ ...cursor.value, name: titleOf(cursor.value) });
    cursor?.continue();
  };
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function committed(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
}
