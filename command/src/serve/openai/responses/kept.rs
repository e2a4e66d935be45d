//! Responses that are stored in memory, so that later requests can continue them or refer to their items. When their
//! memory is full, the oldest of those who have the most are dropped. A response is found only by clients that share a
//! KV cache with the one that asked for it.

use super::input::Item;
use super::{Message, NOT_KEPT};
use crate::serve::body::{conversation_memory, inner_memory};
use crate::serve::client::{Caller, Client};
use crate::serve::failure::Failure;
use crate::serve::lock;
use crate::serve::memory::Share;
use crate::serve::router::{PathEnd, counted_json, json};
use crate::serve::server::Server;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// What a response takes in addition to its texts, in bytes.
const EACH: usize = 512;

/// What an item takes in addition to its text, in bytes: its id twice, and where it is.
const EACH_ITEM: usize = 256;

/// A response, and the conversation that led to it.
#[derive(Debug)]
pub struct Kept {
    /// Which KV cache the client uses.
    cache: u64,
    /// All messages up to the end of the reply, without the instructions.
    messages: Messages,
    /// The response as it was sent, as JSON.
    response: String,
    /// The ids of its items, and where the response has them.
    items: Vec<(String, Range<usize>)>,
}

impl Kept {
    fn new(cache: u64, messages: Messages, response: &Value) -> Self {
        let text = response.to_string();
        let items = items(response, &text);
        Self { cache, messages, response: text, items }
    }

    fn bytes(&self) -> usize {
        EACH + self.messages.text.len() + self.response.len() + self.items.len() * EACH_ITEM
    }

    /// An item of the response, as JSON.
    fn item(&self, id: &str) -> Option<&str> {
        let (_, place) = self.items.iter().find(|(own, _)| own == id)?;
        self.response.get(place.clone())
    }
}

/// The ids of a response's items, and where its text has them.
fn items(response: &Value, text: &str) -> Vec<(String, Range<usize>)> {
    let mut from = text.find("\"output\":").unwrap_or_default();
    let place = |item: &Value| {
        let (id, item) = (item["id"].as_str()?, item.to_string());
        let start = from + text[from..].find(&item)?;
        from = start + item.len();
        Some((id.to_owned(), start..from))
    };
    response["output"].as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(place).collect()
}

/// Messages as a list in JSON. The arguments of calls are strings in it: as values they would be nested more deeply
/// than in the request, and the parser, which limits that, could refuse them.
#[derive(Debug)]
struct Messages {
    text: String,
    /// The memory that the arguments need, in addition to that of the text.
    arguments: usize,
}

impl Messages {
    fn of(messages: &[Message]) -> Option<Self> {
        let mut written = Self { text: "[]".to_owned(), arguments: 0 };
        written.add(messages).map(|()| written)
    }

    fn add(&mut self, messages: &[Message]) -> Option<()> {
        for message in messages {
            self.text.pop();
            if self.text.len() > 1 {
                self.text.push(',');
            }
            let json = match message.tool_calls.is_empty() {
                true => serde_json::to_string(message),
                false => serde_json::to_string(&self.with_calls_as_text(message.clone())),
            };
            self.text.push_str(&json.ok()?);
            self.text.push(']');
        }
        Some(())
    }

    fn with_calls_as_text(&mut self, mut message: Message) -> Message {
        for call in &mut message.tool_calls {
            let arguments = call.function.arguments.to_string();
            self.arguments += inner_memory(&arguments);
            call.function.arguments = arguments.into();
        }
        message
    }

    /// The memory that they need when they are read.
    fn memory(&self) -> usize {
        conversation_memory(&self.text) + self.arguments
    }
}

#[derive(Default)]
struct Entries {
    /// The responses by id, each with its number.
    responses: HashMap<String, (u64, Arc<Kept>)>,
    /// The ids of responses by those of their items.
    items: HashMap<String, String>,
    /// What clients have that share a KV cache, by the number of the cache.
    owners: HashMap<u64, Owned>,
    next: u64,
    bytes: usize,
}

/// The responses of clients that share a KV cache.
#[derive(Default)]
struct Owned {
    /// The ids by number, the oldest first.
    order: BTreeMap<u64, String>,
    bytes: usize,
}

impl Entries {
    fn get(&self, id: &str, client: Client) -> Option<&Arc<Kept>> {
        self.responses.get(id).map(|(_, kept)| kept).filter(|kept| kept.cache == client.cache)
    }

    /// The response that has an item.
    fn with_item(&self, item: &str, client: Client) -> Option<&Arc<Kept>> {
        self.get(self.items.get(item)?, client)
    }

    fn add(&mut self, id: String, kept: Kept) {
        let (number, bytes) = (self.next, kept.bytes());
        self.next += 1;
        self.bytes += bytes;
        let owned = self.owners.entry(kept.cache).or_default();
        owned.bytes += bytes;
        owned.order.insert(number, id.clone());
        self.items.extend(kept.items.iter().map(|(item, _)| (item.clone(), id.clone())));
        self.responses.insert(id, (number, Arc::new(kept)));
    }

    fn remove(&mut self, id: &str) {
        let Some((number, kept)) = self.responses.remove(id) else { return };
        self.bytes -= kept.bytes();
        kept.items.iter().for_each(|(item, _)| drop(self.items.remove(item)));
        if let Some(owned) = self.owners.get_mut(&kept.cache) {
            owned.bytes -= kept.bytes();
            owned.order.remove(&number);
            if owned.order.is_empty() {
                self.owners.remove(&kept.cache);
            }
        }
    }

    /// The oldest response of those who have the most, if `cache` gets `bytes` more. So nobody can drop all responses
    /// of others.
    fn to_drop(&self, cache: u64, bytes: usize) -> Option<String> {
        let all = |(owner, owned): &(&u64, &Owned)| owned.bytes + if **owner == cache { bytes } else { 0 };
        // Of several with the same, the one that needs the memory.
        let (_, most) = self.owners.iter().max_by_key(|owner| (all(owner), *owner.0 == cache))?;
        most.order.values().next().cloned()
    }
}

pub struct KeptResponses {
    /// The maximum bytes of all of them together; 0 to store none.
    most: usize,
    entries: Mutex<Entries>,
}

impl KeptResponses {
    pub fn new(most: usize) -> Self {
        Self { most, entries: Mutex::default() }
    }

    fn add(&self, id: String, kept: Kept) {
        let (mut entries, bytes) = (lock(&self.entries), kept.bytes());
        if bytes > self.most {
            return;
        }
        while entries.bytes + bytes > self.most {
            let Some(id) = entries.to_drop(kept.cache, bytes) else { break };
            entries.remove(&id);
        }
        entries.add(id, kept);
    }

    fn get(&self, id: &str, client: Client) -> Option<Arc<Kept>> {
        lock(&self.entries).get(id, client).cloned()
    }

    fn remove(&self, id: &str, client: Client) -> bool {
        let mut entries = lock(&self.entries);
        let is_there = entries.get(id, client).is_some();
        if is_there {
            entries.remove(id);
        }
        is_there
    }
}

/// The messages of the response that a request continues. Their memory is added to the request's share before they are
/// parsed.
pub fn earlier(id: &str, server: &Server, client: Client, memory: &Share) -> Result<Vec<Message>, Failure> {
    let missing = || {
        let wrong = format!("there is no response {}; {NOT_KEPT}", super::shown(id));
        Failure::of_field("previous_response_id", wrong).with_code("previous_response_not_found")
    };
    let kept = server.responses.get(id, client).ok_or_else(missing)?;
    memory.resize(memory.bytes() + kept.messages.memory())?;
    read(&kept.messages.text)
}

/// The items that a request refers to take the places of the references. The memory of each is added to the request's
/// share before it is parsed.
pub fn resolve(items: &mut [Item], server: &Server, client: Client, memory: &Share) -> Result<(), Failure> {
    for (index, item) in items.iter_mut().enumerate() {
        let Some(id) = item.reference() else { continue };
        let kept = lock(&server.responses.entries).with_item(id, client).cloned();
        let Some(text) = kept.as_ref().and_then(|kept| kept.item(id)) else {
            let wrong = format!("there is no item {}; {NOT_KEPT}", super::shown(id));
            return Err(Failure::of_field(&format!("input[{index}].id"), wrong));
        };
        // The arguments of a call are JSON in a string.
        memory.resize(memory.bytes() + conversation_memory(text) + inner_memory(&without_quotes(text)))?;
        *item = read(text)?;
    }
    Ok(())
}

/// JSON without quotes and backslashes, so that JSON inside its strings is counted like the rest.
fn without_quotes(text: &str) -> String {
    text.replace(['"', '\\'], " ")
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    let broken =
        |error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read a kept response: {error}"));
    serde_json::from_str(text).map_err(broken)
}

/// Stores the response to a request when its reply has ended.
pub struct Keeper {
    kept: Arc<KeptResponses>,
    cache: u64,
    /// The messages of the request.
    messages: Messages,
}

impl Keeper {
    /// A keeper for a conversation, unless no responses are stored.
    pub fn new(kept: &Arc<KeptResponses>, client: Client, messages: &[Message]) -> Option<Self> {
        let messages = (kept.most > 0).then(|| Messages::of(messages))??;
        Some(Self { kept: kept.clone(), cache: client.cache, messages })
    }

    /// The bytes that it takes while the reply is generated and when the reply ends.
    pub fn bytes(&self) -> usize {
        2 * self.messages.text.len()
    }

    pub fn keep(self, id: &str, reply: &[Message], response: &Value) {
        let Self { kept, cache, mut messages } = self;
        if messages.add(reply).is_none() {
            return;
        }
        messages.text.shrink_to_fit();
        kept.add(id.to_owned(), Kept::new(cache, messages, response));
    }
}

fn unknown(id: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("there is no response {}; {NOT_KEPT}", super::shown(id)))
}

/// `GET /v1/responses/ID`.
pub async fn get(State(server): State<Arc<Server>>, PathEnd(id): PathEnd) -> Result<Response, Failure> {
    let kept = server.responses.get(&id, Caller::current().client).ok_or_else(|| unknown(&id))?;
    let memory = server.memory.requests.take(kept.response.len()).await?;
    Ok(counted_json(kept.response.clone(), memory))
}

/// `DELETE /v1/responses/ID`.
pub async fn delete(State(server): State<Arc<Server>>, PathEnd(id): PathEnd) -> Result<Response, Failure> {
    match server.responses.remove(&id, Caller::current().client) {
        true => Ok(json(&json!({"id": id, "object": "response", "deleted": true}))),
        false => Err(unknown(&id)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Client, EACH, Keeper, KeptResponses, Message, conversation_memory};
    use crate::serve::client::{ClientId, Network};
    use crate::serve::lock;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use wglm_engine::text::{FunctionCall, ToolCall};

    fn client(cache: u64) -> Client {
        Client { id: ClientId::Network(Network::V4(1)), cache }
    }

    /// Stores a response whose texts have 102 bytes.
    fn keep(kept: &Arc<KeptResponses>, cache: u64, id: &str) {
        let keeper = Keeper::new(kept, client(cache), &[]).unwrap();
        keeper.keep(id, &[], &"r".repeat(98).into());
    }

    #[test]
    fn the_oldest_make_room() {
        let kept = Arc::new(KeptResponses::new(2 * (EACH + 102)));
        ["a", "b", "c"].iter().for_each(|id| keep(&kept, 0, id));
        let is_there = |id: &str| kept.get(id, client(0)).is_some();
        assert_eq!(["a", "b", "c"].map(is_there), [false, true, true]);
        assert!(kept.remove("b", client(0)) && !kept.remove("b", client(0)));
        keep(&kept, 0, "d");
        assert_eq!(["c", "d"].map(is_there), [true, true]);
        let too_long = Keeper::new(&kept, client(0), &[Message::user("x".repeat(2000))]).unwrap();
        too_long.keep("e", &[], &Value::Null);
        assert_eq!(["c", "d", "e"].map(is_there), [true, true, false], "what is too long drops nothing");
        assert!(Keeper::new(&Arc::new(KeptResponses::new(0)), client(0), &[]).is_none());
    }

    /// Otherwise one client could drop the responses of all others.
    #[test]
    fn those_who_have_the_most_make_room() {
        let kept = Arc::new(KeptResponses::new(4 * (EACH + 102)));
        ["a", "b", "c", "d"].iter().for_each(|id| keep(&kept, 0, id));
        let left = |cache: u64, ids: &[&str]| ids.iter().filter(|id| kept.get(id, client(cache)).is_some()).count();
        ["e", "f"].iter().for_each(|id| keep(&kept, 1, id));
        assert_eq!((left(0, &["a", "b"]), left(0, &["c", "d"]), left(1, &["e", "f"])), (0, 2, 2));
        ["g", "h", "i"].iter().for_each(|id| keep(&kept, 1, id));
        assert_eq!((left(0, &["c", "d"]), left(1, &["e", "f", "g"]), left(1, &["h", "i"])), (2, 0, 2));
        ["c", "d"].iter().for_each(|id| assert!(kept.remove(id, client(0))));
        assert_eq!(lock(&kept.entries).owners.len(), 1, "nothing is left of a client without responses");
    }

    #[test]
    fn items_are_found_as_long_as_their_response() {
        let kept = Arc::new(KeptResponses::new(1 << 20));
        let items =
            json!([{"id": "rs_1", "type": "reasoning"}, {"type": "message", "id": "msg_1", "x": "\"output\":"}]);
        let keeper = Keeper::new(&kept, client(3), &[Message::user("rs_1")]).unwrap();
        keeper.keep("a", &[], &json!({"id": "a", "instructions": "msg_1", "output": items, "x": items[1]}));
        let found = |id: &str, cache: u64| -> Option<Value> {
            let kept = lock(&kept.entries).with_item(id, client(cache)).cloned()?;
            serde_json::from_str(kept.item(id)?).ok()
        };
        assert_eq!([found("rs_1", 3), found("msg_1", 3)], [0, 1].map(|index| Some(items[index].clone())));
        assert_eq!([found("msg_2", 3), found("msg_1", 4)], [None, None], "of another client");
        assert!(kept.remove("a", client(3)) && found("msg_1", 3).is_none());
        assert!(lock(&kept.entries).items.is_empty());
    }

    #[test]
    fn a_response_is_found_by_its_own_client() {
        let kept = Arc::new(KeptResponses::new(1 << 20));
        keep(&kept, 3, "a");
        assert!(kept.get("a", client(4)).is_none() && !kept.remove("a", client(4)));
        assert!(kept.get("a", client(3)).is_some());
    }

    #[test]
    fn the_reply_follows_the_messages() {
        let kept = Arc::new(KeptResponses::new(1 << 20));
        for messages in [vec![], vec![Message::user("?")]] {
            let keeper = Keeper::new(&kept, client(0), &messages).unwrap();
            let reply = [Message::new("assistant", "!"), Message::tool("c", "2")];
            keeper.keep("a", &reply, &Value::Null);
            let all: Vec<Message> = serde_json::from_str(&kept.get("a", client(0)).unwrap().messages.text).unwrap();
            assert_eq!(all, [&messages[..], &reply].concat());
        }
    }

    /// The parser reads at most 127 levels, and arguments are a text of their own in requests.
    #[test]
    fn deep_arguments_are_read_back() {
        let arguments = format!(r#"{{"a": {}{}}}"#, "[".repeat(126), "]".repeat(126));
        let function = FunctionCall::from_json("f", &arguments);
        assert_eq!(function.arguments["a"].to_string().len(), 252);
        let call = ToolCall { id: Some("c".into()), kind: "function".into(), function };
        let messages = [Message::user("?"), Message::assistant("").with_tool_calls(vec![call])];
        let kept = Arc::new(KeptResponses::new(1 << 20));
        let keeper = Keeper::new(&kept, client(0), &messages).unwrap();
        keeper.keep("a", &messages[1..], &Value::Null);
        let kept = kept.get("a", client(0)).unwrap();
        let all: Vec<Message> = serde_json::from_str(&kept.messages.text).unwrap();
        assert_eq!(all, [&messages[..], &messages[1..]].concat());
        assert!(kept.messages.memory() > conversation_memory(&kept.messages.text));
    }
}
