//! Tests replies that are values of a type.

use super::super::{chat, model, text, told};
use schemars::JsonSchema;
use serde::Deserialize;
use std::task::Poll;
use wglm::serde_json;
use wglm::serde_json::json;
use wglm::{
    AskError, Asking, Cancel, Chat, ChatState, Constraint, Error, Message, Scheduler, SchedulerOptions, SharedChat,
    Stop,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fable {
    /// The subject of the text.
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
fn extended_a_value_of_a_type() {
    let mut chat = chat();
    chat.options.sampling.temperature = 1.5;
    chat.options.max_tokens = Some(400);
    for seed in 0..2 {
        chat.clear();
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

/// A value that is cut off is returned as the text so far, with the reason.
#[test]
fn a_value_that_is_cut_off() {
    let mut chat = chat();
    chat.options.max_tokens = Some(4);
    match chat.ask::<Fable>("Tell me a story about an owl.") {
        Err(AskError::Unfinished { text, stop: Stop::Length }) => assert!(text.starts_with('{'), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(chat.messages()[1].text().starts_with('{'), "{:?}", chat.messages());
    assert_eq!(chat.options.constraint, None::<Constraint>);
}

/// A type whose schema has no value is an error before anything is generated.
#[test]
fn a_type_without_values() {
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

/// A number that is cut off is not a value: 12 of 1234.
#[test]
fn extended_a_number_that_is_cut_off() {
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

/// An alternative whose entries are part of the enclosing object.
#[test]
fn extended_a_flattened_alternative() {
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
    // It stays open, but its end is favoured, so no entries follow those of the type.
    let mut chat = chat();
    let end = model().tokenizer().unwrap().encode("}", false).unwrap()[0];
    chat.options.sampling.logit_bias = vec![(end, 100.0)];
    chat.options.max_tokens = Some(200);
    let Numbered { number, teller } = chat.ask("Who told it?").unwrap();
    match teller {
        Told::By(animal) => println!("{animal:?}"),
        Told::Times(many) => println!("{many}"),
    }
    assert!((1..=9).contains(&number));
}

/// An unfinished reply continues with the same schema, in small pieces, to a value or as events.
#[test]
fn extended_a_value_in_pieces() {
    let mut chat = chat();
    chat.options.max_tokens = Some(8);
    let mut asked = chat.ask::<Fable>("Tell me a story about an owl.");
    let (mut before, mut pieces) = (String::new(), 1);
    while let Err(AskError::Unfinished { text, stop: Stop::Length }) = &asked {
        assert!(text.len() > before.len() && text.starts_with(&before), "{before}: {text}");
        assert_eq!(chat.options.constraint, None::<Constraint>);
        before.clone_from(text);
        asked = chat.resume_ask::<Fable>();
        pieces += 1;
    }
    asked.unwrap_or_else(|error| panic!("{error}: {before}"));
    assert!(pieces > 2 && chat.messages().len() == 2, "{pieces}: {:?}", chat.messages());
    // Without the tokens in the session, from the text alone; and as events, which are cut off once more.
    for forgets in [true, false] {
        chat.clear();
        chat.options.max_tokens = Some(9);
        assert!(matches!(chat.ask::<Fable>("Tell me a story about an owl."), Err(AskError::Unfinished { .. })));
        if forgets {
            chat.session_mut().rewind(0);
        }
        told(chat.resume().unwrap());
        chat.options.max_tokens = Some(400);
        let (_, stats) = told(chat.resume().unwrap());
        let answer = chat.messages()[1].text().into_owned();
        assert_eq!(stats.stop, Stop::End, "{answer}");
        serde_json::from_str::<Fable>(&answer).unwrap_or_else(|error| panic!("{answer}: {error}"));
    }
    // Another conversation is unconstrained.
    chat.truncate(0);
    chat.push(Message::user("What is seven plus five?"));
    let (events, _) = told(chat.prefill("The answer is").unwrap());
    assert!(serde_json::from_str::<serde_json::Value>(&text(&events)).is_err());
}

/// The schema of a value that is cut off is saved with the conversation and applies to the rest: as events and as a
/// value, with the tokens in a session and without. A conversation that was changed meanwhile is unconstrained.
#[test]
fn extended_a_saved_value_is_continued() {
    let mut cut = chat();
    cut.options.max_tokens = Some(8);
    assert!(matches!(cut.ask::<Fable>("Tell me a story about an owl."), Err(AskError::Unfinished { .. })));
    let saved = serde_json::to_string(&cut.save()).unwrap();
    let restored = || {
        let mut again = chat();
        again.restore(serde_json::from_str(&saved).unwrap());
        again.options.max_tokens = Some(400);
        assert_eq!(again.options.constraint, None::<Constraint>);
        again
    };
    let mut again = restored();
    let (_, stats) = told(again.resume().unwrap());
    let answer = again.messages()[1].text().into_owned();
    assert_eq!(stats.stop, Stop::End, "{answer}");
    serde_json::from_str::<Fable>(&answer).unwrap_or_else(|error| panic!("{answer}: {error}"));
    restored().resume_ask::<Fable>().unwrap();
    let mut changed = restored();
    changed.set_messages(vec![Message::user("What is seven plus five?"), Message::assistant("The answer")]);
    assert_eq!(changed.save().unfinished, None);
    let whole = serde_json::to_string(&changed.save()).unwrap();
    assert!(!whole.contains("unfinished"), "{whole}");
}

/// The schema of an unfinished value applies only to its reply, whatever constraint the app sets.
#[test]
fn extended_the_schema_of_an_unfinished_value() {
    let mut chat = chat();
    chat.reasoning = Some(true);
    chat.options.max_tokens = Some(2);
    for truncates in [true, false] {
        chat.options.max_tokens = Some(2);
        match chat.ask::<Fable>("Tell me a story about an owl.") {
            Err(AskError::Unfinished { text, .. }) => assert_eq!(text, "", "cut while it thinks"),
            other => panic!("{other:?}"),
        }
        if truncates {
            chat.truncate(0);
        } else {
            chat.clear();
        }
        told(chat.send("What is seven plus five?").unwrap());
        chat.options.max_tokens = Some(100);
        told(chat.resume().unwrap());
        let answer = chat.messages().last().unwrap().text().into_owned();
        assert!(!answer.is_empty() && !answer.starts_with('{'), "{answer}");
        chat.clear();
    }

    chat.reasoning = Some(false);
    chat.options.constraint = Some(Constraint::regex("yes|no").unwrap());
    chat.options.max_tokens = Some(8);
    assert!(matches!(chat.ask::<Fable>("Tell me a story about an owl."), Err(AskError::Unfinished { .. })));
    chat.options.max_tokens = Some(400);
    told(chat.resume().unwrap());
    let answer = chat.messages()[1].text().into_owned();
    serde_json::from_str::<Fable>(&answer).unwrap_or_else(|error| panic!("{answer}: {error}"));
}

/// Types of all kinds have schemas that are enforced, and serde accepts the answers.
#[test]
#[allow(dead_code)]
fn extended_types_of_all_kinds() {
    use std::collections::{BTreeMap, BTreeSet, HashSet};
    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    struct Empty {}
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Unit;
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Pair(u8, bool);
    #[derive(Debug, Deserialize, JsonSchema)]
    enum Kind {
        Bare {},
        Of(u8),
        None,
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    enum Tagged {
        One {},
        Two { count: u8 },
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(untagged)]
    enum Either {
        Count(u8),
        Flag(bool),
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Tree {
        #[schemars(length(max = 1))]
        inner: Vec<Tree>,
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Outer {
        empty: Empty,
        #[serde(flatten)]
        more: Flat,
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Flat {
        flag: bool,
    }

    let mut chat = chat();
    chat.options.max_tokens = Some(24);
    chat.options.sampling.temperature = 1.0;
    chat.options.sampling.seed = Some(2);
    macro_rules! asked {
        ($($kind:ty),* $(,)?) => {$(
            chat.clear();
            match chat.ask::<$kind>("Which?") {
                Ok(_) | Err(AskError::Unfinished { .. }) => {}
                Err(error) => panic!("{}: {error}: {:?}", stringify!($kind), chat.messages()),
            }
        )*};
    }
    asked!(
        Unit, Pair, Kind, Tagged, Either, Tree, Outer,
        u8, i8, u16, i32, u32, i64, u64, usize, i128, u128, f32, f64, bool, char, (), Option<u8>, Vec<bool>, [u8; 3],
        (u8, bool), Option<Option<u8>>, BTreeSet<u8>, HashSet<bool>, BTreeMap<String, bool>, Box<Pair>,
        std::num::NonZeroU8, std::num::NonZeroI32, Result<u8, bool>, std::time::Duration, std::net::Ipv4Addr,
        std::net::Ipv6Addr, std::net::IpAddr, std::ops::Range<u8>, std::num::Wrapping<u8>,
    );
    chat.clear();
    assert_eq!(chat.ask::<Empty>("Nothing?").unwrap(), Empty {});
    assert_eq!(chat.messages()[1].text(), "{}");
}

/// Types without a value, and types whose values are all infinite.
#[test]
#[allow(dead_code)]
fn types_without_a_value() {
    #[derive(Debug, Deserialize, JsonSchema)]
    enum Nothing {}
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Never {
        next: Box<Never>,
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Holder {
        of: Nothing,
    }
    let mut chat = chat();
    let refused = |error: AskError, words: &str| {
        let text = error.to_string();
        assert!(
            ["no value", "no finite value"].iter().any(|none| text.contains(none)) && text.contains(words),
            "{text}"
        );
    };
    refused(chat.ask::<Nothing>("What?").unwrap_err(), "is allowed");
    refused(chat.ask::<Never>("What?").unwrap_err(), "another one of its kind");
    refused(chat.ask::<Holder>("What?").unwrap_err(), "#/$defs/Nothing");
    assert!(chat.messages().is_empty());
}

/// An unfinished `ask_value` continues with the schema, and is stopped by a `Cancel`.
#[test]
fn extended_a_value_of_a_schema_in_pieces() {
    let item = json!({"type": "integer", "minimum": 100, "maximum": 999});
    let schema = json!({"type": "array", "items": item, "minItems": 4, "maxItems": 4});
    let (mut chat, cancel, stopped) = (chat(), Cancel::default(), Cancel::default());
    stopped.cancel();
    chat.options.max_tokens = Some(4);
    let mut asked = chat.ask_value("What is seven plus five?", &schema, &cancel);
    let mut pieces = 1;
    while let Err(AskError::Unfinished { text, stop: Stop::Length }) = &asked {
        let before = text.clone();
        let now = chat.resume_ask_value(&schema, &stopped);
        assert!(
            matches!(&now, Err(AskError::Unfinished { text, stop: Stop::Cancelled }) if *text == before),
            "{now:?}"
        );
        asked = chat.resume_ask_value(&schema, &cancel);
        pieces += 1;
    }
    let list = asked.unwrap();
    assert!(pieces > 1 && list.as_array().is_some_and(|list| list.len() == 4), "{pieces}: {list}");
}

/// A shared conversation can be asked too, but not while a reply is being generated.
#[test]
fn a_shared_conversation_is_asked() {
    let (shared, cancel) = (SharedChat::new(chat()), Cancel::default());
    let Sum { sum } = shared.ask("What is seven plus five?", &cancel).unwrap();
    assert!(sum <= 99 && shared.messages().len() == 2);
    let mut reply = shared.send("Tell me a story about an owl.");
    assert!(reply.next().is_some());
    let busy = shared.ask::<Sum>("And?", &cancel);
    assert!(matches!(&busy, Err(AskError::Failed(Error::ChatInUse))), "{busy:?}");
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Sum {
    #[schemars(range(min = 0, max = 99))]
    sum: u32,
}

/// A value of a conversation and of a scheduler that is polled, awaited or waited for.
#[test]
fn extended_a_value_without_blocking() {
    let question = "What is seven plus five?";
    let shared = SharedChat::new(chat());
    let mut asking = shared.begin_ask::<Sum>(question).unwrap();
    assert_eq!(shared.messages().len(), 0, "nothing is computed before it is polled");
    let Sum { sum } = polled(&mut asking).unwrap();
    assert!(sum <= 99 && asking.text() == shared.messages()[1].text(), "{asking:?}");
    let again = polled(&mut asking).unwrap_err();
    assert!(matches!(again, AskError::Failed(Error::Argument { argument: "asking", .. })), "{again}");
    assert!(pollster::block_on(shared.begin_ask::<Sum>(question).unwrap()).unwrap().sum <= 99);
    let schema = json!({"type": "integer", "minimum": 10, "maximum": 99});
    let value = shared.begin_ask_value(question, &schema).unwrap().wait().unwrap();
    assert!((10..=99).contains(&value.as_u64().unwrap()), "{value}");
    assert_eq!(shared.messages().len(), 6);

    let scheduler = Scheduler::new(model(), &SchedulerOptions { sessions: 2, ..Default::default() }).unwrap();
    let request =
        || ChatState { messages: vec![Message::user(question)], reasoning: Some(false), ..ChatState::default() };
    let mut two = [(); 2].map(|()| scheduler.begin_ask::<Sum>(request()).unwrap());
    assert!(two.iter_mut().all(|asking| polled(asking).unwrap().sum <= 99));
    assert!(pollster::block_on(scheduler.begin_ask_value(request(), &schema).unwrap()).unwrap().is_u64());
}

fn polled<T: serde::de::DeserializeOwned>(asking: &mut Asking<T>) -> Result<T, AskError> {
    loop {
        match asking.try_value() {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// A value that is cancelled, cut off or dropped is part of the conversation, and continues with its schema. Invalid
/// schemas are errors at once; refusals of the conversation arrive in place of the value.
#[test]
fn extended_a_value_that_is_not_awaited_to_its_end() {
    let shared = SharedChat::new(chat());
    shared.with(|chat| chat.options.max_tokens = Some(8)).unwrap();
    let cut = shared.begin_ask::<Fable>("Tell me a story about an owl.").unwrap().wait();
    assert!(matches!(&cut, Err(AskError::Unfinished { stop: Stop::Length, text }) if text.starts_with('{')), "{cut:?}");
    shared.with(|chat| chat.options.max_tokens = Some(400)).unwrap();
    let rest: Vec<_> = shared.resume().map(Result::unwrap).collect();
    let answer = shared.messages()[1].text().into_owned();
    serde_json::from_str::<Fable>(&answer).unwrap_or_else(|error| panic!("{answer}: {error}"));
    assert!(answer.ends_with(&text(&rest)));

    // Or it continues until it is a value, whose text begins with what was there.
    shared.with(Chat::clear).unwrap();
    shared.with(|chat| chat.options.max_tokens = Some(8)).unwrap();
    let mut asked = shared.begin_ask::<Fable>("Tell me a story about an owl.").unwrap().wait().map(drop);
    let mut pieces = 1;
    while let Err(AskError::Unfinished { text: before, stop: Stop::Length }) = asked {
        let mut asking = shared.begin_resume_ask::<Fable>().unwrap();
        assert_eq!(asking.text(), before);
        asked = polled(&mut asking).map(drop);
        assert!(asking.text() == shared.messages()[1].text() && asking.text().len() > before.len(), "{asking:?}");
        pieces += 1;
    }
    asked.unwrap();
    assert!(pieces > 1 && shared.messages().len() == 2, "{pieces}: {:?}", shared.messages());
    let item = json!({"type": "integer", "minimum": 100, "maximum": 999});
    let schema = json!({"type": "array", "items": item, "minItems": 9, "maxItems": 9});
    let cut = shared.begin_ask_value("Count.", &schema).unwrap().wait();
    assert!(matches!(cut, Err(AskError::Unfinished { stop: Stop::Length, .. })), "{cut:?}");
    shared.with(|chat| chat.options.max_tokens = Some(400)).unwrap();
    let list = shared.begin_resume_ask_value(&schema).unwrap().wait().unwrap();
    assert_eq!(list.as_array().map(Vec::len), Some(9), "{list}");

    let (cancel, before) = (Cancel::default(), shared.messages());
    cancel.cancel();
    let stopped = shared.begin_ask::<Fable>("And one about a fox.").unwrap().with_cancel(&cancel).wait();
    assert!(matches!(stopped, Err(AskError::Unfinished { stop: Stop::Cancelled, .. })), "{stopped:?}");
    let mut dropped = shared.begin_ask::<Fable>("And one about a hen.").unwrap();
    let _ = dropped.try_value();
    drop(dropped);
    assert!(shared.messages().starts_with(&before) && shared.with(|_| ()).is_ok());
    let refused = shared.begin_ask_value("Which?", &json!({"type": "string", "minLength": "3"})).map(drop);
    assert!(matches!(refused, Err(Error::Constraint { .. })), "{refused:?}");
}
