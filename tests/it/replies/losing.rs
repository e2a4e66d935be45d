//! Tests replies that continue on a new device after the loss of the first.

use super::{OWL, model, told};
use crate::common::gpu::{drop_submissions, open};
use crate::common::models::{fable_file, load_on};
use wglm::{
    Chat, Error, Event, GenerateOptions, Generation, Model, Result, SamplerParams, Session, Speculation, Stats,
};

/// A model on its own device.
fn fresh() -> Model {
    load_on(&fable_file("q4_0"), &open(true))
}

/// The same model on a new device.
fn again(model: &Model) -> Model {
    load_on(&fable_file("q4_0"), &model.gpu().reopen().unwrap())
}

/// A way to ask for a reply.
type Ask = fn(&mut Chat);

/// The reply in one piece.
fn undisturbed(model: &Model, ask: Ask) -> (Vec<Event>, Stats) {
    let mut chat = Chat::new(model).unwrap();
    ask(&mut chat);
    told(chat.send(OWL).unwrap())
}

/// The reply if all submissions of its first device from `first` on are dropped, and the new device. No event arrives
/// before the move.
fn moved(model: Model, ask: Ask, first: u64) -> ((Vec<Event>, Stats), Chat) {
    let mut chat = Chat::new(&model).unwrap();
    ask(&mut chat);
    drop_submissions(model.gpu(), first..u64::MAX);
    let mut events = Vec::new();
    let mut reply = chat.send(OWL).unwrap();
    loop {
        match reply.next() {
            Some(Err(Error::DeviceLost { .. })) => break,
            Some(event) => events.push(Ok::<_, Error>(event.unwrap())),
            None => panic!("the reply ended without a loss"),
        }
    }
    assert!(reply.next().is_none(), "nothing comes without a device");
    reply.move_to(&again(&model)).unwrap();
    events.extend(&mut reply);
    drop(reply);
    (told(events.into_iter()), chat)
}

fn answer(events: &[Event]) -> (String, String) {
    let (mut thinking, mut text) = (String::new(), String::new());
    for event in events {
        match event {
            Event::Thinking(piece) => thinking.push_str(piece),
            Event::Text(piece) => text.push_str(piece),
            _ => {}
        }
    }
    (thinking, text)
}

/// The number of events that are not the progress of a prompt, which depends on how fast it is computed.
fn after_prompt(events: &[Event]) -> usize {
    events.iter().filter(|event| !matches!(event, Event::Prompt { .. })).count()
}

/// Whenever the loss happens, in the prompt, before the first token or in the middle, the reply is that of an
/// undisturbed device, event by event, and so is the next reply of the conversation.
#[test]
fn extended_a_reply_continues_on_a_new_device() {
    let greedy: Ask = |chat| {
        chat.options.sampling = SamplerParams::greedy();
        chat.options.max_tokens = Some(40);
    };
    let (events, stats) = undisturbed(model(), greedy);
    for first in [1, 17] {
        let ((again, after), mut chat) = moved(fresh(), greedy, first);
        assert_eq!(answer(&again), answer(&events), "from submission {first} on");
        assert_eq!(after_prompt(&again), after_prompt(&events), "events of submission {first}");
        assert_eq!((after.generated, after.stop), (stats.generated, stats.stop));
        assert_eq!(chat.messages().len(), 2);
        assert_eq!(chat.messages()[1].text(), answer(&events).1);
        chat.options.max_tokens = Some(8);
        let (next, _) = told(chat.send("And then?").unwrap());
        assert!(!answer(&next).1.is_empty() || !answer(&next).0.is_empty(), "the conversation continues");
    }
}

/// The seed stays, guesses are made again, and text that was held back at the loss is reported once.
#[test]
fn extended_options_stay_on_the_new_device() {
    let options: Ask = |chat| {
        chat.options.sampling =
            SamplerParams { temperature: 0.8, top_k: 20, repeat_penalty: 1.1, ..SamplerParams::default() };
        chat.options.sampling.seed = Some(7);
        chat.options.speculation = Speculation { most: Some(3), ..Speculation::default() };
        chat.options.stop = vec!["no such words at all".to_owned()];
        chat.options.max_tokens = Some(40);
        chat.options.logprobs = Some(1);
    };
    let (events, stats) = undisturbed(model(), options);
    let ((again, after), _) = moved(fresh(), options, 25);
    assert_eq!(answer(&again), answer(&events));
    assert_eq!((after.generated, after.seed), (stats.generated, Some(7)));
    let tokens = |events: &[Event]| events.iter().filter(|event| matches!(event, Event::Token(_))).count();
    assert_eq!((tokens(&again), tokens(&again)), (tokens(&events), stats.generated));
}

/// The grammar of an answer continues where it was.
#[cfg(feature = "constrain")]
#[test]
fn extended_a_constrained_reply_continues_on_a_new_device() {
    let constrained: Ask = |chat| {
        let schema = wglm::serde_json::json!({
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 12}, "animals": {"type": "array", "items": {"enum": ["owl", "fox"]}, "minItems": 3, "maxItems": 3}},
            "required": ["name", "animals"],
            "additionalProperties": false
        });
        chat.reasoning = Some(false);
        chat.options.sampling = SamplerParams::greedy();
        chat.options.constraint = Some(wglm::Constraint::json_schema(schema).unwrap());
    };
    let (events, stats) = undisturbed(model(), constrained);
    for first in [3, 8] {
        let ((again, after), _) = moved(fresh(), constrained, first);
        assert_eq!(answer(&again), answer(&events), "from submission {first} on");
        assert_eq!(after.generated, stats.generated);
    }
}

/// Plain text continues too, and a second loss is handled like the first.
#[test]
fn extended_text_continues_after_two_losses() {
    let whole = |model: &Model| {
        let mut session = Session::new(model).unwrap();
        let prompt = model.tokenizer().unwrap().encode("One morning the owl", false).unwrap();
        let sampling = SamplerParams::greedy();
        let options = GenerateOptions { sampling, max_tokens: Some(30), ..GenerateOptions::default() };
        (told(Generation::new(&mut session, prompt.clone(), None, options.clone()).unwrap()), prompt, options)
    };
    let ((events, stats), prompt, options) = whole(model());
    let mut model = fresh();
    let mut session = Session::new(&model).unwrap();
    let mut generation = Generation::new(&mut session, prompt, None, options).unwrap();
    let mut came: Vec<Result<Event>> = Vec::new();
    for first in [12, 1] {
        drop_submissions(model.gpu(), first..u64::MAX);
        let lost = loop {
            match generation.next().expect("an event or an error") {
                Err(error) => break error,
                event => came.push(event),
            }
        };
        assert!(matches!(lost, Error::DeviceLost { .. }), "{lost}");
        model = again(&model);
        generation.move_to(&model).unwrap();
    }
    came.extend(&mut generation);
    let (again, after) = told(came.into_iter());
    assert_eq!((answer(&again), after.generated), (answer(&events), stats.generated));
    drop(generation);
    assert_eq!(session.model().gpu().check().map_err(|error| error.to_string()), Ok(()));
}
