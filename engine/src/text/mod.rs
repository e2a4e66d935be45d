//! Text on its way into the model and out of it.
//!
//! On the way in, a [`ChatTemplate`] renders a conversation to a prompt with the Jinja template of the model's file,
//! and a [`Tokenizer`] cuts the prompt into tokens by the file's vocabulary. On the way out, a [`Detokenizer`] turns
//! tokens into text without ever splitting a character, a [`ReplyParser`] separates the thinking from the answer and
//! finds function calls, and [`StopStrings`] end the answer early. Nothing here uses the GPU. Only [`Vocab::read`]
//! knows the file format.

mod beginning;
mod bpe;
mod byte_level;
mod call;
mod detokenizer;
mod ends;
mod family;
mod from_file;
mod infill;
mod jinja;
mod json;
mod marker;
mod message;
mod prefixes;
mod pretokenizer;
mod python;
mod reply;
mod schema;
mod special;
mod stop;
mod strftime;
mod tag;
mod template;
mod tokenizer;
mod vocab;

pub use detokenizer::Detokenizer;
pub use family::Family;
pub use infill::InfillTokens;
pub use message::{Content, FunctionCall, Message, ToolCall};
pub(crate) use reply::ReplyPosition;
pub use reply::{ReplyParser, ReplyPiece};
pub use stop::StopStrings;
#[doc(hidden)]
pub use template::function_mut;
pub use template::{ChatInput, ChatTemplate, Prompt};
pub use tokenizer::Tokenizer;
pub use vocab::{TokenType, Vocab};
#[cfg(feature = "constrain")]
pub(crate) use {
    family::CallForm, schema::alternatives, schema::decoded, schema::is_of_type, schema::other_argument,
    schema::referred, schema::types, tag::Tag,
};
