//! Constraints on the text of a reply: their grammars, and the tokens that a grammar allows next.
//!
//! `llguidance` does the work: it compiles a JSON schema, a regular expression or a grammar, and computes for each
//! token whether it may come next. This module supplies the model's vocabulary and the grammars of answers and of calls
//! in the form of each family, and converts errors. It depends neither on sessions nor on the GPU.
//!
//! A constraint is checked when it is made (`check`), after `depth`, `together`, `expression` and `finite` have bounded
//! what llguidance recurses over or multiplies; `stack` runs llguidance on a thread with a large stack. `source` makes
//! its grammar, with `schema`, `keywords`, `reference`, `closed`, `exact`, `range` and `numbers` for JSON schemas;
//! `call_grammar` and `keyed` make those of function calls. `vocabulary` is the model's tokens, and `matcher` the state
//! of a reply.

mod call_grammar;
mod check;
mod closed;
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
