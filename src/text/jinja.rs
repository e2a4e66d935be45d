//! Sets up the template engine the way Hugging Face transformers sets up Jinja2.

use super::{json, python, strftime};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};

/// The most steps that a rendering may take. GLM's template takes about 50 for each message.
const FUEL: u64 = 10_000_000;

/// The deepest nesting of macro calls.
const DEPTH: usize = 100;

/// Creates an environment without templates.
pub(super) fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(DEPTH);
    environment.set_formatter(|out, _, value| Ok(out.write_str(&python::text(value))?));
    environment.set_unknown_method_callback(python::method);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("length", python::length);
    environment.add_filter("count", python::length);
    environment.add_filter("string", |value: &Value| python::text(value).into_owned());
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime::now);
    Ok(environment)
}

/// Marks an error that a template raised itself with `raise_exception`: the conversation is wrong, and the template is
/// not.
#[derive(Debug, thiserror::Error)]
#[error("raised by the template")]
pub struct Refusal;

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message).with_source(Refusal))
}
