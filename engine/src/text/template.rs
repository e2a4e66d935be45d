//! The chat template of a model file, which turns a conversation into the form of prompt that the model was trained on.
//!
//! A template sees what it would see under Hugging Face transformers: the same control of whitespace, the same
//! variables, and values printed as Python prints them. [`ChatTemplate`] lists the differences. A template is code from
//! an untrusted file. It can reach only the conversation, and its steps, its memory and its stack are bounded: the
//! worst it can cause is an error.

use super::marker::{Marker, unmark};
use super::reply::opens_thinking;
use super::{Content, Family, Message, Tokenizer, Vocab, jinja};
use crate::error::{Error, Result};
use minijinja::machinery::{eval, make_string_output};
use minijinja::{AutoEscape, Environment, ErrorKind, Value};
use serde_json::Map;
use std::fmt;

/// The deepest nesting of a value in a conversation: JSON is read up to 128 levels deep.
const DEPTH: usize = 150;

/// The input of a template.
#[derive(Debug, Clone)]
pub struct ChatInput<'a> {
    /// The conversation, oldest first.
    pub messages: &'a [Message],
    /// Descriptions of the functions that the model may call, in OpenAI's JSON.
    pub tools: Option<&'a [serde_json::Value]>,
    /// Whether the prompt ends with the beginning of the assistant's reply.
    pub add_generation_prompt: bool,
    /// Whether the model thinks before it answers; `None` leaves this to the template. Templates read it as
    /// `enable_thinking` or, like DeepSeek-V3.1's, as `thinking`.
    pub enable_thinking: Option<bool>,
    /// Further variables for the template, such as GLM's `clear_thinking`.
    pub extra: Map<String, serde_json::Value>,
}

impl<'a> ChatInput<'a> {
    /// A conversation for the assistant to reply to, with everything else left to the template.
    pub fn new(messages: &'a [Message]) -> Self {
        Self { messages, tools: None, add_generation_prompt: true, enable_thinking: None, extra: Map::new() }
    }

    /// All variables of the template, and the bytes that they take. As in transformers, `tools` and `documents` are
    /// always defined, and may be none. The named fields take precedence over `extra`, and `extra` over the names of
    /// tokens, which are the template's own text, and over `thinking`, as templates of DeepSeek-V3.1 call
    /// `enable_thinking`. With a marker all other strings are marked.
    fn context(&self, names: &[(&'static str, String)], marker: Option<&Marker>) -> Result<(Value, u64)> {
        self.check_depth()?;
        let mut bytes = 0;
        let mut outside = |value: &dyn Fn() -> serde_json::Result<serde_json::Value>| {
            outside(value(), marker, &mut bytes).map_err(|error| explain(&error))
        };
        let mut variables = vec![("documents", Value::from(()))];
        variables.extend(names.iter().map(|(variable, name)| (*variable, name.as_str().into())));
        variables.extend(self.enable_thinking.map(|enable| ("thinking", enable.into())));
        for (name, value) in &self.extra {
            variables.push((name, outside(&|| Ok(value.clone()))?));
        }
        variables.extend([
            ("messages", outside(&|| serde_json::to_value(self.messages))?),
            ("tools", outside(&|| described(self.tools))?),
            ("add_generation_prompt", self.add_generation_prompt.into()),
        ]);
        variables.extend(self.enable_thinking.map(|enable| ("enable_thinking", enable.into())));
        Ok((Value::from_pairs(variables), bytes))
    }

    /// Refuses values that are nested too deeply for recursion, which an app can construct.
    fn check_depth(&self) -> Result<()> {
        let parts = self.messages.iter().filter_map(|message| match &message.content {
            Some(Content::Parts(parts)) => Some(parts),
            _ => None,
        });
        let of_messages = self.messages.iter().flat_map(|message| {
            message.tool_calls.iter().map(|call| &call.function.arguments).chain(message.extra.values())
        });
        let values = self.extra.values().chain(self.tools.into_iter().flatten());
        if values.chain(of_messages).chain(parts.flatten()).any(is_deep) {
            let reason = format!("a value in the conversation is nested more than {DEPTH} levels deep");
            return Err(Error::Refused { reason });
        }
        Ok(())
    }
}

/// The tools as the model gets them: without `strict`, which says what their arguments are held to.
fn described(tools: Option<&[serde_json::Value]>) -> serde_json::Result<serde_json::Value> {
    let mut tools = serde_json::to_value(tools)?;
    for function in tools.as_array_mut().into_iter().flatten().filter_map(function_mut) {
        function.shift_remove("strict");
    }
    Ok(tools)
}

/// The description of a function, from a tool in OpenAI's form or from only the inner object of that form.
#[doc(hidden)]
pub fn function_mut(tool: &mut serde_json::Value) -> Option<&mut Map<String, serde_json::Value>> {
    let inner = if tool.get("function").is_some() { tool.get_mut("function") } else { Some(tool) };
    inner?.as_object_mut()
}

/// Whether a value is nested more than [`DEPTH`] levels deep, without recursion.
fn is_deep(value: &serde_json::Value) -> bool {
    let mut left = vec![(value, 0)];
    while let Some((value, depth)) = left.pop() {
        if depth > DEPTH {
            return true;
        }
        match value {
            serde_json::Value::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
            serde_json::Value::Object(entries) => left.extend(entries.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    false
}

/// A value from outside the template, in the form that the template sees.
fn outside(
    value: serde_json::Result<serde_json::Value>,
    marker: Option<&Marker>,
    bytes: &mut u64,
) -> Result<Value, minijinja::Error> {
    let failed = |error: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string());
    let value = value.map_err(failed)?;
    let value = match marker {
        Some(marker) => marker.mark(value),
        None => value,
    };
    jinja::from_json(value, bytes)
}

/// The tokens of a prompt, and what follows from them about the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prompt {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Whether the prompt ends inside a block of thinking, so that the reply starts there.
    pub opens_thinking: bool,
    /// The form of thinking and of calls in the reply.
    pub family: &'static Family,
}

/// A compiled chat template.
///
/// It is rendered by minijinja 3 with the additions of transformers to Jinja2: `trim_blocks`, `lstrip_blocks`, `break`
/// and `continue`, `tojson` without HTML escapes, `{% generation %}`, `raise_exception`, and `strftime_now`, which uses
/// UTC. Values print as in Python, and the methods of strings and mappings that templates use exist. The remaining
/// differences from Jinja2, each of which is a case of `tests/fixtures/jinja/cases.json`, are:
///
/// * Formatting with `%` (`'%s' % x`), the test `callable`, `varargs` in macros, `cycler`, `joiner` and
///   `lipsum`, the filters `truncate`, `wordcount` and other rare ones, positional arguments of
///   `dictsort`, and methods such as `zfill`, `center`, `index` are errors.
/// * `'text'|int` is an error, not 0. A loop over none is empty, not an error. `d|attr('k')` reads a key of a mapping.
/// * Slices with a negative step are right only over the whole list: `x[2:0:-1]` has one item too many, and reversing
///   an empty list is an error.
/// * Floats from 1e16 up and below 1e-4 have no exponent when they are joined or concatenated, only when they are
///   printed.
/// * Strings have marks in them while [`prompt`](Self::prompt) renders the template. `length` and slices count the
///   marks, and `pprint` and `urlencode` print them.
/// * `escape` writes other, equivalent entities; `{% raw %}` removes a new line after it; `strip()` keeps the ASCII
///   separators U+001C to U+001F.
/// * Arguments from a list (`f(*list)`) and a namespace in a namespace are errors, and there is no `debug`.
/// * `thinking` is defined if `enable_thinking` is. A template that fails for messages with calls is rendered again
///   with null as their content, and then with their arguments as text, as OpenAI's JSON has both.
///
/// # Bounds
/// A template comes from an untrusted file. Exceeding one of these bounds is an error, never an abort:
///
/// * The source has at most 128 KiB, a tag at most 2000 tokens, and at most 500 `elif` are open at one point. Brackets
///   and blocks nest as deeply as the engine's parser allows, between 70 and 140 levels. Products of literals take a
///   few MB at most.
/// * A rendering takes at most 20 million steps.
/// * It makes at most 64 MiB of text and lists, its output included, and 64 bytes more for each byte of the
///   conversation. Text and lists that it no longer uses count too.
/// * It runs for a few seconds at most, and longer for a long conversation: 2^28 units of work, and 256 more for each
///   byte of the conversation. A unit reads or copies one byte; an item of a list is 24 units. A conversation with
///   calls may be rendered three times.
/// * Values nest at most 200 levels deep, values of the conversation 150; a conversation with deeper ones is refused.
/// * Macros, loops and blocks nest at most 100 levels; a call of a macro counts as four.
///
/// Everything happens on a thread of its own with a stack of 64 MiB, of which the system allocates only the used pages.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    family: &'static Family,
    /// The variables that are names of tokens: `bos_token` and `eos_token`.
    names: Vec<(&'static str, String)>,
}

impl ChatTemplate {
    /// Compiles the Jinja source of a file's `tokenizer.chat_template`.
    ///
    /// # Errors
    /// [`Error::Template`] if it does not parse.
    pub fn new(source: &str) -> Result<Self> {
        if source.len() > jinja::SOURCE {
            let message = format!("the template has {} bytes, the maximum is {}", source.len(), jinja::SOURCE);
            return Err(Error::Template { message });
        }
        // Jinja2 reads every kind of line ending as a new line.
        let source = jinja::as_condition(&source.replace("\r\n", "\n").replace('\r', "\n"));
        jinja::thread(|| jinja::compile(&source).map(drop).map_err(|error| explain(&error)))?;
        Ok(Self { environment: jinja::environment(), family: Family::of(&source), source, names: Vec::new() })
    }

    /// The same template with the names of a vocabulary's tokens that templates write: `bos_token` and `eos_token`.
    pub fn with_vocab(self, vocab: &Vocab) -> Self {
        let name = |(variable, id): (_, Option<u32>)| Some((variable, vocab.tokens.get(id? as usize)?.clone()));
        let names = [("bos_token", vocab.bos), ("eos_token", vocab.eos)].into_iter().filter_map(name).collect();
        Self { names, ..self }
    }

    /// The form of thinking and of calls in replies.
    pub fn family(&self) -> &'static Family {
        self.family
    }

    /// Renders the prompt for a conversation as text. The text does not show which parts the template wrote and which
    /// come from messages; [`prompt`](Self::prompt) keeps these apart.
    ///
    /// # Errors
    /// [`Error::Refused`] if the template refuses the conversation, [`Error::Template`] if it uses something that does
    /// not exist.
    pub fn render(&self, input: &ChatInput<'_>) -> Result<String> {
        self.rendered(input, None)
    }

    /// The text for a conversation. A template that fails may expect OpenAI's JSON in messages with calls, as DeepSeek
    /// V3's does. So it is rendered again with null as their content, and if that fails too, also with their arguments
    /// as text. What a template expects can depend on the conversation, so it is not found out in advance; a template
    /// that fails does so at the first call.
    fn rendered(&self, input: &ChatInput<'_>, marker: Option<&Marker>) -> Result<String> {
        let rendered = self.rendered_as_given(input, marker);
        let has_calls = input.messages.iter().any(|message| !message.tool_calls.is_empty());
        if !has_calls || !matches!(rendered, Err(Error::Template { .. })) {
            return rendered;
        }
        let again = |form: fn(&Message) -> Message| {
            let messages: Vec<Message> = input.messages.iter().map(form).collect();
            self.rendered_as_given(&ChatInput { messages: &messages, ..input.clone() }, marker)
        };
        again(Message::with_null_beside_calls).or_else(|_| again(Message::with_calls_as_text)).or(rendered)
    }

    /// The source is compiled again, because compiled code borrows it; that takes less time than starting the thread.
    fn rendered_as_given(&self, input: &ChatInput<'_>, marker: Option<&Marker>) -> Result<String> {
        jinja::thread(|| {
            jinja::start(0);
            let (context, bytes) = input.context(&self.names, marker)?;
            jinja::start(bytes);
            let mut text = String::new();
            let run = || -> Result<(), minijinja::Error> {
                let program = jinja::compile(&self.source)?;
                let out = &mut make_string_output(&mut text);
                eval(&self.environment, &program.instructions, context, &program.blocks, out, AutoEscape::None)?;
                Ok(())
            };
            run().map_err(|error| explain(&error))?;
            Ok(text)
        })
    }

    /// Renders the prompt for a conversation as tokens. Control tokens and tags come from the template only, so nobody
    /// can forge a role or a tag. The names of such tokens are plain text in every string of the input: user messages,
    /// of a function or of the model, descriptions of functions and further variables. For the same reason the template
    /// finds no tags in messages: put thinking in [`Message::reasoning_content`], not in the content. Only the words of
    /// the input's form, which are known roles, types, and keys of messages and of schemas, count as the template's
    /// text where it prints them.
    ///
    /// If a template itself writes the brackets around a string, as in `<|{{ role }}|>`, the result is the token that
    /// the string names.
    ///
    /// # Errors
    /// The errors of [`render`](Self::render); [`Error::NoToken`] if the text cannot be encoded.
    pub fn prompt(&self, input: &ChatInput<'_>, tokenizer: &Tokenizer) -> Result<Prompt> {
        self.prompt_within(input, tokenizer, usize::MAX)
    }

    /// Like [`prompt`](Self::prompt), for a context of `context` tokens: a text longer than that many of the longest
    /// token is refused before it is encoded. A shorter one may still have too many tokens.
    ///
    /// # Errors
    /// The errors of [`prompt`](Self::prompt); [`Error::ContextFull`] if the text is refused.
    pub fn prompt_within(&self, input: &ChatInput<'_>, tokenizer: &Tokenizer, context: usize) -> Result<Prompt> {
        let text = self.rendered(input, Some(tokenizer.marker())).map_err(|error| match error {
            Error::Template { message } => Error::Template { message: unmark(&message).into_owned() },
            Error::Refused { reason } => Error::Refused { reason: unmark(&reason).into_owned() },
            other => other,
        })?;
        tokenizer.check_length(&text, context)?;
        let (tokens, family) = (tokenizer.encode_marked(&text)?, self.family);
        Ok(Prompt { tokens, opens_thinking: opens_thinking(&text, family), family })
    }

    /// Whether the template's source mentions a role: in quotes, in a tag that also contains the word `role`.
    pub fn names_role(&self, role: &str) -> bool {
        let names = |tag: &str| ['\'', '"'].iter().any(|quote| tag.contains(&format!("{quote}{role}{quote}")));
        // The text before the first tag and the text after each tag are skipped.
        let mut tags = self.source.split("{%").skip(1).filter_map(|tag| tag.split("%}").next());
        tags.any(|tag| tag.contains("role") && names(tag))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}

/// Converts an error of the engine. The message has the line, the reason, and its causes. A refusal has the message of
/// the template.
fn explain(error: &minijinja::Error) -> Error {
    if std::error::Error::source(error).is_some_and(|source| source.is::<jinja::Refusal>()) {
        return Error::Refused { reason: error.detail().unwrap_or("it gives no reason").to_owned() };
    }
    let mut message = String::new();
    if let Some(line) = error.line() {
        message = format!("line {line}: ");
    }
    match error.detail() {
        Some(detail) => message += detail,
        None => message += &error.kind().to_string(),
    }
    let mut reason = std::error::Error::source(error);
    while let Some(source) = reason {
        message += &format!(": {source}");
        reason = source.source();
    }
    Error::Template { message }
}
