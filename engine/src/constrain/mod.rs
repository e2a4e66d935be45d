//! Constraints on the text of a reply: their grammars, and the tokens that a grammar allows next.
//!
//! `llguidance` does the work: it compiles a JSON schema, a regular expression or a grammar, and computes for each
//! token whether it may come next. This module supplies the model's vocabulary and the grammars of answers and of calls
//! in the form of each family, and converts errors. It depends neither on sessions nor on the GPU.

mod call_grammar;
mod check;
mod decimal;
mod depth;
mod exact;
mod expression;
mod finite;
mod format;
mod functions;
mod keyed;
mod keywords;
mod matcher;
mod numbers;
mod range;
mod reference;
mod schema;
mod source;
mod stack;
mod together;
mod vocabulary;

pub use call_grammar::{CallGrammar, Calls};
pub use functions::{bounded, name as function_name, supported};
pub use matcher::Matcher;
#[cfg(feature = "schema")]
pub(crate) use schema::for_each as for_each_schema;
pub use source::{Constraint, SchemaOptions};
pub use vocabulary::{Grammar, Vocabulary};

#[cfg(test)]
mod accepted;
