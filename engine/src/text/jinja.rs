//! Sets up the template engine the way Hugging Face transformers sets up Jinja2, and bounds what a template can do.
//!
//! A template is code from an untrusted file, and the engine bounds neither its stack, nor its memory, nor its time.
//! Four parts do so together, and each relies on the others:
//!
//! * [`bounds`] limits the source, so that what recurses over its syntax has a known depth.
//! * [`program`] inserts checks between the instructions; [`operators`] and [`filters`] perform them.
//! * [`budget`] tracks how much a rendering may still allocate and compute; the engine's own fuel limits its steps.
//! * [`held`] limits the depth of values, and [`thread`] runs all of it on a stack that suffices for these depths.

mod bounds;
mod budget;
mod filters;
mod generation;
mod held;
mod operators;
mod program;

pub(super) use bounds::SOURCE;
pub(super) use budget::{exceeded, left, start};
pub(super) use generation::as_condition;
pub(super) use held::from_json;
pub(super) use program::compile;

use super::python;
use crate::error::{Error as CrateError, Result as CrateResult};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value};

/// The most steps that a rendering may take. GLM's template takes about 100 for each message.
pub(super) const FUEL: u64 = 20_000_000;

/// The deepest nesting of macro calls, loops and blocks. A macro call counts as four.
const CALLS: usize = 100;

/// The stack of the thread that compiles and renders. Expressions with as many operators as a tag has tokens ([`TAG`])
/// need most: the parser, the compiler and the drop of the syntax tree recurse once for each, in frames of up to 5 KB
/// without optimization, 10 MB in all. Values nest up to [`DEPTH`] levels, plus 150 from the brackets of one
/// expression; comparing and printing them takes up to 2 KB per level. Calls take 25 frames of the interpreter, of up
/// to 50 KB. The system allocates only the pages that are used.
const STACK: usize = 64 << 20;

/// Runs `run` on a thread with a large enough stack, and converts a panic into an error: minijinja 3.0.5 panics on
/// `[][::-1]`.
pub(super) fn thread<T: Send>(run: impl FnOnce() -> CrateResult<T> + Send) -> CrateResult<T> {
    let failed = |message: String| CrateError::Template { message };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".into()).stack_size(STACK);
        match thread.spawn_scoped(scope, run) {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(failed("the template engine panicked; this is a bug in minijinja".into()))),
            Err(error) => Err(failed(format!("cannot start a thread for the template: {error}"))),
        }
    })
}

/// Creates an environment without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(CALLS);
    environment.set_formatter(write);
    operators::add_to(&mut environment);
    filters::add_to(&mut environment);
    environment
}

/// The syntax of templates.
fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// Writes a value as Python prints it, to the prompt or to a variable.
fn write(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.as_object().is_some() {
        let most = operators::text(value)?;
        budget::work(most)?;
        budget::afford(most)?;
    }
    let text = python::text(value);
    budget::make(text.len() as u64)?;
    Ok(out.write_str(&text)?)
}

/// Marks an error that a template raised with `raise_exception`: the conversation is at fault, not the template.
#[derive(Debug, thiserror::Error)]
#[error("raised by the template")]
pub struct Refusal;

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message).with_source(Refusal))
}
