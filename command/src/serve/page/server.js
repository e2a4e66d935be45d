/* Requests to the server. */
"use strict";

const byId = id => document.getElementById(id);

/* Small values that the browser keeps; some browsers keep nothing. */
function recall(storage, name) {
  try { return window[storage].getItem(name) ?? ""; } catch { return ""; }
}
function remember(storage, name, value) {
  try { window[storage].setItem(name, value); } catch { /* the page asks for it again */ }
}

let key = recall("sessionStorage", "key");

let asking; // the answer that requests wait for: they share one dialog

function askForKey() {
  const dialog = byId("ask-key");
  const field = dialog.querySelector("[type=password]");
  asking ??= new Promise(resolve => {
    const end = value => {
      asking = undefined;
      dialog.close();
      resolve(value);
    };
    dialog.querySelector("form").onsubmit = event => { event.preventDefault(); end(field.value); };
    byId("no-key").onclick = dialog.oncancel = () => end("");
    field.value = "";
    dialog.showModal();
  });
  return asking;
}

/* Sends a request, and asks the user for a key if the server needs one. */
async function call(path, options = {}) {
  for (;;) {
    const used = key;
    const headers = { "content-type": "application/json", ...(used && { authorization: `Bearer ${used}` }) };
    const response = await fetch(path, { ...options, headers }).catch(error => {
      throw error.name === "AbortError" ? error : new Error("The server does not respond. Is it running?");
    });
    if (response.status !== 401) return response;
    if (key !== used) continue; // another request has asked meanwhile
    const given = await askForKey();
    if (!given) return response;
    key = given;
    remember("sessionStorage", "key", key);
  }
}

/* Requests the reply `message` of a conversation. */
async function requestReply(talk, message, signal) {
  const { temperature, top_p, max_tokens, seed, think } = talk.settings; // JSON leaves out those that are undefined
  const body = JSON.stringify({ messages: requestOf(talk, message.parent), stream: true, overflow: "drop_oldest",
    chat_template_kwargs: { enable_thinking: think !== false }, temperature, top_p, max_tokens, seed });
  const response = await call("v1/chat/completions", { method: "POST", body, signal });
  if (response.ok) return response;
  const answer = await response.json().catch(() => undefined);
  throw new Error(answer?.error?.message ?? `The server answers with status ${response.status}.`);
}

/* The events of a stream. A connection that ends before its last event is an error. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const cut = error => {
    throw error?.name === "AbortError" ? error : new Error("The connection ended before the reply did.");
  };
  for (let rest = ""; ;) {
    const { value, done } = await reader.read().catch(cut);
    if (done) cut();
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.startsWith("data: ") ? part.slice(6) : "";
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

/* Adds what an event of a stream contains to its message. */
function take(message, event) {
  if (event.error) throw new Error(event.error.message);
  const choice = event.choices?.[0];
  const thought = choice?.delta?.reasoning_content;
  const fields = { content: message.content + (choice?.delta?.content ?? "") };
  if (thought) fields.reasoning = (message.reasoning ?? "") + thought;
  if (event.timings) fields.timings = event.timings;
  if (choice?.finish_reason === "length") fields.odd = "The reply was cut off at a limit of tokens or time.";
  if (event.warnings) fields.odd = event.warnings.join("; ");
  changeMessage(message, fields);
}
