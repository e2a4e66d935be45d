//! Options that accept a few names.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A name that an option accepts, its help, which may be empty, and its meaning.
pub type Choice<T> = (&'static str, &'static str, T);

/// Parses one of some names.
pub fn choice<T: Clone + Send + Sync>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T> {
    let name = |(name, help, _): &Choice<T>| PossibleValue::new(*name).help((!help.is_empty()).then_some(*help));
    PossibleValuesParser::new(choices.iter().map(name)).try_map(move |given| {
        let chosen = choices.iter().find(|(name, ..)| *name == given);
        chosen.map(|(.., meaning)| meaning.clone()).ok_or("no such name")
    })
}
