//! Which texts a reply may consist of: constraints, their grammars, and the tokens that a grammar allows next.
//!
//! `llguidance` does the work: it compiles a JSON schema, a regular expression or a grammar, and computes of each token
//! whether it may come next. Here is what it needs of a model, its vocabulary; what wglm wants of it, the grammars of
//! answers and of calls in the form of each family; and its errors as wglm's. Nothing here knows a session or the GPU.

mod call_grammar;
mod check;
mod depth;
mod expression;
mod functions;
mod keyed;
mod matcher;
mod numbers;
mod schema;
mod source;
mod stack;
mod together;
mod vocabulary;

pub use call_grammar::{CallGrammar, Calls};
pub use functions::{bounded, name as function_name, supported};
pub use matcher::Matcher;
pub use source::Constraint;
pub use vocabulary::{Grammar, Vocabulary};
#[cfg(feature = "schema")]
pub(crate) use {schema::for_each as for_each_schema, source::BLANKS};
