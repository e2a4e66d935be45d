//! Tests replies that are values of a type.

use super::super::{chat, model};
use schemars::JsonSchema;
use serde::Deserialize;
use wglm::generate::Stop;
use wglm::{AskError, Constraint, Error};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fable {
    /// Who it is about.
    hero: Animal,
    #[schemars(length(max = 12))]
    moral: String,
    #[schemars(length(max = 3))]
    others: Vec<Animal>,
    #[schemars(range(min = 1, max = 9))]
    pages: u8,
    told_by: Option<Teller>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Animal {
    Owl,
    Fox,
    Hedgehog,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Teller {
    Nobody,
    Named {
        #[schemars(length(max = 5))]
        name: String,
    },
}

#[test]
fn a_value_of_a_type() {
    for seed in 0..4 {
        let mut chat = chat();
        chat.options.sampling.temperature = 1.5;
        chat.options.max_tokens = Some(400);
        chat.options.sampling.seed = Some(seed);
        let before = chat.options.clone();
        let fable: Fable = chat.ask("Tell me a story about an owl.").unwrap_or_else(|error| panic!("{seed}: {error}"));
        println!("{fable:?}");
        assert!(
            (1..=9).contains(&fable.pages) && fable.others.len() <= 3 && fable.moral.chars().count() <= 12,
            "{fable:?}"
        );
        if let Some(Teller::Named { name }) = &fable.told_by {
            assert!(name.chars().count() <= 5, "{fable:?}");
        }
        assert!(matches!(fable.hero, Animal::Owl | Animal::Fox | Animal::Hedgehog));
        assert_eq!((chat.options.clone(), chat.messages().len()), (before, 2));
    }
}

/// A value that is cut comes back as the text so far, and why it ended.
#[test]
fn a_value_that_is_cut() {
    let mut chat = chat();
    chat.options.max_tokens = Some(4);
    match chat.ask::<Fable>("Tell me a story about an owl.") {
        Err(AskError::Unfinished { text, stop: Stop::Length }) => assert!(text.starts_with('{'), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(chat.messages()[1].text().starts_with('{'), "{:?}", chat.messages());
    assert_eq!(chat.options.constraint, None::<Constraint>);
}

/// A type whose schema nothing meets is an error before anything is said.
#[test]
fn a_type_of_nothing() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Nothing {
        #[schemars(range(min = 5, max = 4))]
        count: u32,
    }
    let mut chat = chat();
    match chat.ask::<Nothing>("How many?") {
        Err(AskError::Failed(Error::Constraint { place, .. })) => assert_eq!(place, "#/properties/count"),
        other => panic!("{other:?}"),
    }
    assert!(chat.messages().is_empty());
}

/// A number that is cut is no number: 12 of 1234.
#[test]
fn a_number_that_is_cut() {
    let mut chat = chat();
    let digit = model().tokenizer().unwrap().encode("1", false).unwrap()[0];
    chat.options.sampling.logit_bias = vec![(digit, 100.0)];
    let number = chat.ask::<u32>("How many?").unwrap();
    assert!(number > 1000, "{number}");
    for most in 1..4 {
        chat.clear();
        chat.options.max_tokens = Some(most);
        match chat.ask::<u32>("How many?") {
            Err(AskError::Unfinished { stop: Stop::Length, text }) => assert!(!text.is_empty()),
            other => panic!("{other:?}"),
        }
    }
}

/// An alternative whose entries are those of the object around it.
#[test]
fn a_flattened_alternative() {
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Numbered {
        #[schemars(range(min = 1, max = 9))]
        number: u8,
        #[serde(flatten)]
        teller: Told,
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    enum Told {
        By(Animal),
        Times(bool),
    }
    // It stays open, so there may be more entries than a short reply has room for.
    let mut chat = chat();
    chat.options.max_tokens = Some(200);
    match chat.ask::<Numbered>("Who told it?") {
        Ok(Numbered { number, teller }) => {
            match teller {
                Told::By(animal) => println!("{animal:?}"),
                Told::Times(many) => println!("{many}"),
            }
            assert!((1..=9).contains(&number));
        }
        Err(AskError::Unfinished { text, stop: Stop::Length }) => assert!(text.starts_with('{'), "{text}"),
        other => panic!("{other:?}"),
    }
}
