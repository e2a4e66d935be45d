//! Text on its way into the model and out of it.
//!
//! In: a conversation is rendered to a prompt by the file's own Jinja template ([`ChatTemplate`]), the prompt is cut
//! into tokens by the file's own vocabulary ([`Tokenizer`]). Out: a [`Detokenizer`] turns tokens back into text without
//! ever cutting a character, a [`ReplyParser`] separates the thinking from the answer and finds the functions that are
//! called, [`StopStrings`] end it early. Nothing here knows the GPU or the file format: whoever opens the file fills a
//! [`Vocab`].

mod arguments;
mod bpe;
mod byte_level;
mod call;
mod detokenizer;
mod from_file;
mod jinja;
mod json;
mod marker;
mod message;
mod pretokenizer;
mod python;
mod reply;
mod special;
mod stop;
mod strftime;
mod tag;
mod template;
mod tokenizer;
mod vocab;

pub use detokenizer::Detokenizer;
pub use message::{Content, FunctionCall, Message, ToolCall};
pub use reply::{ReplyParser, ReplyPiece};
pub use stop::StopStrings;
pub use template::{ChatInput, ChatTemplate, Prompt};
pub use tokenizer::Tokenizer;
pub use vocab::{TokenType, Vocab};
