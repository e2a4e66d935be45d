//! Tests text on its way in and out of the model, through the public API.
mod calls;
mod cuts;
mod fable_vocab;
mod families;
mod guarded;
mod hostile;
mod makers;
mod reply;
mod stops;
mod template;
mod tokenizer;
mod tokens;
