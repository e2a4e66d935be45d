//! Tests answers that match a constraint, with the demonstration model, which was not trained on JSON, and with random
//! weights.

#[cfg(feature = "schema")]
mod asking;
mod bombs;
mod calls;
mod numbers;
mod refused;
mod schemas;

use super::script::script_tokens;
use super::{CONTEXT, chat, model, text, told};
use crate::common::gpu::gpu;
use crate::hostile_models::small::Small;
use std::sync::atomic::{AtomicUsize, Ordering};
use wglm::serde_json::{Value, from_str, json, to_string};
use wglm::{
    CacheShape, Chat, Chooser, Constraint, DraftKind, Event, GenerateOptions, Generation, LoadOptions, Message, Model,
    Pool, Result, SamplerParams, SchemaOptions, Session, Speculation, Stop,
};

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
        },
        "required": ["name", "age"],
        "additionalProperties": false,
    })
}

fn is_person(text: &str) -> bool {
    let Ok(Value::Object(person)) = from_str(text) else { return false };
    let age = person["age"].as_u64().is_some_and(|age| age <= 120);
    age && person["name"].as_str().is_some_and(|name| name.chars().count() <= 12) && person.len() == 2
}

fn chat_by(constraint: Constraint) -> Chat {
    let mut chat = chat();
    chat.options.constraint = Some(constraint);
    chat
}

/// The answer matches the constraint whatever takes part in the choice; with a temperature of 0 it is always the same.
#[test]
fn extended_answers_match_however_tokens_are_chosen() {
    let by_schema = || chat_by(Constraint::json_schema(person()).unwrap());
    let mut answers = Vec::new();
    for seed in 0..7 {
        let mut chat = by_schema();
        let sampling = &mut chat.options.sampling;
        match seed {
            0 | 1 => {}
            2 => sampling.repeat_penalty = 1.5,
            3 => sampling.logit_bias = vec![(b'{'.into(), -20.0)],
            4 => (sampling.temperature, sampling.top_k) = (1.5, 5),
            5 => (sampling.temperature, sampling.min_p) = (1.0, 0.1),
            _ => sampling.temperature = 5.0,
        }
        sampling.seed = Some(seed);
        let (events, stats) = told(chat.send("Who is the owl?").unwrap());
        let answer = text(&events);
        assert!(is_person(&answer) && stats.stop == Stop::End, "{seed}: {answer} {stats:?}");
        assert_eq!(chat.messages()[1].text(), answer);
        answers.push(answer);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers.iter().any(|answer| *answer != answers[0]), "{answers:?}");
    // The next message of the same conversation is answered freely again.
    let mut chat = by_schema();
    told(chat.send("Who is the owl?").unwrap());
    chat.options.constraint = None;
    let (events, _) = told(chat.send("What is seven plus five?").unwrap());
    assert!(from_str::<Value>(&text(&events)).is_err(), "{events:?}");
}

/// Exactly one of several types that a property distinguishes, as Pydantic and OpenAPI write it.
#[test]
fn extended_one_of_several() {
    let kind = |name: &str, more: Value| {
        json!({"type": "object", "properties": {"kind": {"const": name}, "is": more}, "required": ["kind", "is"],
            "additionalProperties": false})
    };
    let owner = |union: Value| {
        json!({"type": "object", "properties": {"pet": union}, "required": ["pet"], "additionalProperties": false,
            "$defs": {"Cat": kind("cat", json!({"type": "boolean"})), "Dog": kind("dog", json!({"enum": [1, 2]}))}})
    };
    let alternatives = json!([{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]);
    let told_by = json!({"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}});
    for union in [json!({"oneOf": alternatives, "discriminator": told_by}), json!({"oneOf": alternatives})] {
        let mut chat = chat_by(Constraint::json_schema(owner(union)).unwrap());
        let (events, stats) = told(chat.send("Who is the owl?").unwrap());
        let answer = text(&events);
        let value: Value = from_str(&answer).unwrap();
        let pet = &value["pet"];
        let is_cat = pet["kind"] == "cat" && pet["is"].is_boolean();
        let is_dog = pet["kind"] == "dog" && (pet["is"] == 1 || pet["is"] == 2);
        assert!((is_cat || is_dog) && stats.stop == Stop::End, "{answer}");
    }
    let twice = json!({"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Cat"}]});
    assert!(Constraint::json_schema(owner(twice)).unwrap_err().to_string().contains("oneOf"));
}

/// Typical requirements of programs: a form, one of several words, any letters.
#[test]
fn extended_expressions_and_grammars() {
    let mut chat = chat_by(Constraint::regex(r"(?:[A-Z][a-z]{2,5} ){2}\d{4}-\d{2}").unwrap());
    let (events, stats) = told(chat.send("When?").unwrap());
    let answer = text(&events);
    let parts: Vec<&str> = answer.split([' ', '-']).collect();
    assert_eq!((parts.len(), parts[2].len(), parts[3].len(), stats.stop), (4, 4, 2, Stop::End), "{answer}");
    assert!(parts[2..].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit())), "{answer}");

    let grammar = "start: \"The \" animal \" is \" /[a-z]{3,8}/ \".\"\nanimal: \"owl\" | \"fox\" | \"hedgehog\"";
    let mut chat = chat_by(Constraint::lark(grammar).unwrap());
    let (events, stats) = told(chat.send("Tell me a story about a fox.").unwrap());
    let answer = text(&events);
    let (animal, how) = answer.strip_prefix("The ").and_then(|rest| rest.split_once(" is ")).unwrap();
    assert!(["owl", "fox", "hedgehog"].contains(&animal) && how.ends_with('.'), "{answer}");
    assert_eq!(stats.stop, Stop::End);

    // Characters of several bytes, each of which is a token of its own here.
    let mut chat = chat_by(Constraint::regex("猫(é|ß|🦉){3}").unwrap());
    chat.options.sampling.temperature = 1.5;
    chat.options.sampling.seed = Some(3);
    let (events, _) = told(chat.send("Who?").unwrap());
    let answer = text(&events);
    assert!(answer.starts_with('猫') && answer.chars().skip(1).all(|letter| "éß🦉".contains(letter)), "{answer}");
    assert_eq!(answer.chars().count(), 4, "{answer}");
}

/// An answer that is cut off by the limit or the context is the beginning of a matching one, and is reported as cut
/// off.
#[test]
fn extended_cut_answers() {
    let mut chat = chat_by(Constraint::json_schema(person()).unwrap());
    chat.options.max_tokens = Some(5);
    let (events, stats) = told(chat.send("Who is the owl?").unwrap());
    let cut = text(&events);
    assert_eq!((stats.stop, stats.generated), (Stop::Length, 5));
    assert!(cut.starts_with('{') && from_str::<Value>(&cut).is_err(), "{cut}");
    // Continuing it completes it.
    chat.options.max_tokens = Some(200);
    let (rest, stats) = told(chat.resume().unwrap());
    assert_eq!(stats.stop, Stop::End);
    assert!(is_person(&format!("{cut}{}", text(&rest))), "{cut} {rest:?}");
    let whole = chat.messages()[1].text().into_owned();
    assert!(is_person(&whole), "{whole}");

    let prompt = chat.prompt().unwrap().len();
    let small = CacheShape { context: prompt + 20, ..model().cache() };
    let mut chat = Chat::with_session(Session::with_cache(model(), small).unwrap()).unwrap();
    chat.reasoning = Some(false);
    chat.options.constraint = Some(Constraint::regex("(na){5000}").unwrap());
    let (events, stats) = told(chat.send("Sing.").unwrap());
    assert_eq!(stats.stop, Stop::Context);
    assert!(text(&events).starts_with("nanana"), "{events:?}");
}

/// A beginning from the caller has to match too, and the rest continues it.
#[test]
fn extended_resumed_replies() {
    let mut chat = chat_by(Constraint::json_schema(person()).unwrap());
    chat.push(Message::user("Who is the owl?"));
    let (events, stats) = told(chat.prefill("{\"name\":\"Olga\",\"age\":").unwrap());
    assert_eq!(stats.stop, Stop::End);
    let answer = chat.messages()[1].text().into_owned();
    assert!(is_person(&answer) && answer.starts_with("{\"name\":\"Olga\""), "{answer} {events:?}");
    // With blanks, whether they are allowed for the model or not.
    let spaced = "{\"name\": \"Olga\",\n  \"age\":";
    let free = SchemaOptions::default().with_whitespace(true);
    for constraint in [Constraint::json_schema(person()), Constraint::json_schema_with(person(), free)] {
        chat.truncate(1);
        chat.options.constraint = Some(constraint.unwrap());
        told(chat.prefill(spaced).unwrap());
        let answer = chat.messages()[1].text().into_owned();
        assert!(is_person(&answer) && answer.starts_with(spaced), "{answer}");
    }
    chat.truncate(1);
    let error = chat.prefill("The owl is").unwrap_err().to_string();
    assert!(error.contains("satisfies the constraint"), "{error}");
}

/// Thinking is the same as without a constraint, and the reply ends only after the answer.
#[test]
fn extended_thinking_is_free() {
    let mut free = chat();
    free.reasoning = Some(true);
    let (before, _) = told(free.send("What is seven plus five?").unwrap());
    let thought = |events: &[Event]| {
        let piece = |event: &Event| if let Event::Thinking(text) = event { text.clone() } else { String::new() };
        events.iter().map(piece).collect::<String>()
    };
    assert!(!thought(&before).is_empty(), "{before:?}");
    for kind in [DraftKind::Off, DraftKind::Lookup] {
        let mut chat = chat_by(Constraint::json_schema(person()).unwrap());
        chat.reasoning = Some(true);
        chat.options.speculation = Speculation { kind, most: Some(4) };
        let (events, stats) = told(chat.send("What is seven plus five?").unwrap());
        assert_eq!(thought(&events), thought(&before), "{kind:?}");
        assert!(is_person(&text(&events)) && stats.stop == Stop::End, "{events:?}");
    }
    // A model that would end its reply while it thinks still answers, whatever takes part in the choice of tokens.
    struct Watching(Vec<u32>);
    impl Chooser for Watching {
        fn accept(&mut self, token: u32) -> Result<()> {
            self.0.push(token);
            Ok(())
        }
    }
    for watched in [false, true] {
        let mut chat = chat_by(Constraint::regex("yes|no").unwrap());
        chat.reasoning = Some(true);
        chat.options.max_tokens = Some(60);
        let tokenizer = model().tokenizer().unwrap();
        script_tokens(&mut chat, Some("Is it?"), tokenizer.encode("Who", false).unwrap(), "<|user|>");
        let mut seen = Watching(Vec::new());
        let generation = chat.send("Is it?").unwrap();
        let (events, stats) = if watched { told(generation.with_chooser(&mut seen)) } else { told(generation) };
        let answer = text(&events);
        assert!(stats.stop == Stop::End && ["yes", "no"].contains(&answer.as_str()), "{events:?}");
        assert_eq!(thought(&events), "Who", "{events:?}");
        assert_eq!(seen.0.contains(&tokenizer.special("</think>").unwrap()), watched, "{:?}", seen.0);
    }
}

/// If the prompt leaves thinking to the model, it may think, and the answer follows.
#[test]
fn extended_thinking_that_the_model_opens() {
    let tokenizer = model().tokenizer().unwrap();
    let [think, think_end] = ["<think>", "</think>"].map(|tag| tokenizer.special(tag).unwrap());
    let prompt = tokenizer.encode("[gMASK]<sop><|user|>Is it?<|assistant|>", true).unwrap();
    for (bias, thinks) in [(200.0, true), (-200.0, false)] {
        let options = GenerateOptions {
            constraint: Some(Constraint::regex("yes|no").unwrap()),
            max_tokens: Some(60),
            sampling: SamplerParams {
                logit_bias: vec![(think, bias), (think_end, bias / 2.0)],
                frequency_penalty: if thinks { 1000.0 } else { 0.0 },
                repeat_last_n: usize::MAX,
                ..SamplerParams::greedy()
            },
            ..GenerateOptions::default()
        };
        let mut session = Session::with_cache(model(), CacheShape { context: CONTEXT, ..model().cache() }).unwrap();
        let parser = wglm::text::ReplyParser::new(false);
        let (events, stats) = told(Generation::new(&mut session, prompt.clone(), Some(parser), options).unwrap());
        let answer = text(&events);
        assert!(stats.stop == Stop::End && ["yes", "no"].contains(&answer.as_str()), "{thinks}: {events:?}");
        assert_eq!(session.tokens()[prompt.len()..].contains(&think), thinks, "{events:?}");
    }
}

/// A reply that was cut off right after thinking that the model opened itself is continued with its answer.
#[test]
fn a_reply_is_continued_after_thinking_that_the_model_opened() {
    let mut small = Small::like_fable();
    let template = "{% for message in messages %}<|user|>{{ message.content }}{% endfor %}<|assistant|>";
    small.set("tokenizer.chat_template", template);
    let options = LoadOptions { context: Some(64), ..LoadOptions::default() };
    let model = Model::load(&small.open().unwrap(), gpu(), &options).unwrap();
    let tokens = model.tokenizer().unwrap().encode("<think> owl</think>", true).unwrap();
    let mut chat = Chat::new(&model).unwrap();
    let favoured = tokens.iter().copied().zip([3000.0, 2000.0, 1000.0]).collect();
    let sampling = SamplerParams { logit_bias: favoured, frequency_penalty: 5000.0, ..SamplerParams::greedy() };
    chat.options = GenerateOptions {
        constraint: Some(Constraint::regex("yes|no").unwrap()),
        max_tokens: Some(tokens.len()),
        sampling,
        ..GenerateOptions::default()
    };
    let (events, stats) = told(chat.send("Is it?").unwrap());
    assert!(text(&events).is_empty() && stats.stop == Stop::Length, "{events:?}");
    assert!(chat.session().tokens().ends_with(&tokens), "{events:?}");
    chat.options.max_tokens = Some(60);
    let (events, stats) = told(chat.resume().unwrap());
    let answer = text(&events);
    assert!(stats.stop == Stop::End && ["yes", "no"].contains(&answer.as_str()), "{events:?}");
    assert_eq!(chat.messages()[1], Message::assistant(answer).with_reasoning(" owl"));
}

/// A beginning that is the whole answer, and a reply that has ended, are complete.
#[test]
fn complete_beginnings() {
    let whole = "{\"name\":\"Olga\",\"age\":5}";
    let mut chat = chat_by(Constraint::json_schema(person()).unwrap());
    chat.push(Message::user("Who is the owl?"));
    let (events, stats) = told(chat.prefill(whole).unwrap());
    assert_eq!((stats.stop, stats.generated, text(&events).as_str()), (Stop::End, 0, ""), "{events:?}");
    assert_eq!(chat.messages()[1].text(), whole);
    let (events, stats) = told(chat.resume().unwrap());
    assert_eq!((stats.stop, stats.generated, text(&events).as_str()), (Stop::End, 0, ""), "{events:?}");
}

/// Log-probabilities are those of the model, and a chooser sees which tokens are allowed.
#[test]
fn extended_logprobs_and_choosers() {
    let constraint = Constraint::regex("[0-9]{6}").unwrap();
    let mut plain = chat_by(constraint.clone());
    let (events, _) = told(plain.send("A number?").unwrap());
    let mut told_too = chat_by(constraint.clone());
    told_too.options.logprobs = Some(2);
    let (with_logprobs, _) = told(told_too.send("A number?").unwrap());
    assert_eq!(text(&with_logprobs), text(&events));
    let listed =
        with_logprobs.iter().filter_map(|event| if let Event::Token(token) = event { Some(token) } else { None });
    let listed: Vec<_> = listed.collect();
    assert!(!listed.is_empty() && listed.iter().all(|token| token.chosen.logprob < 0.0), "{listed:?}");
    assert!(listed.iter().any(|token| token.top.iter().all(|top| top.token != token.chosen.token)), "{listed:?}");

    struct Most(&'static AtomicUsize);
    impl Chooser for Most {
        fn choose(&mut self, logits: &[f32]) -> Result<Option<u32>> {
            let allowed = logits.iter().filter(|logit| logit.is_finite()).count();
            self.0.fetch_max(allowed, Ordering::Relaxed);
            Ok(None)
        }
    }
    static ALLOWED: AtomicUsize = AtomicUsize::new(0);
    let mut steered = chat_by(constraint.clone());
    let (events, _) = told(steered.send("A number?").unwrap().with_chooser(Most(&ALLOWED)));
    assert_eq!(text(&events), text(&with_logprobs));
    let most = ALLOWED.load(Ordering::Relaxed);
    assert!((10..1200).contains(&most), "{most} of {} allowed", model().config().vocab);

    struct Stubborn(u32);
    impl Chooser for Stubborn {
        fn choose(&mut self, _: &[f32]) -> Result<Option<u32>> {
            Ok(Some(self.0))
        }
    }
    let letter = model().tokenizer().unwrap().encode("x", false).unwrap()[0];
    let mut steered = chat_by(constraint);
    let last = steered.send("A number?").unwrap().with_chooser(Stubborn(letter)).last().unwrap();
    assert!(last.unwrap_err().to_string().contains("a token that the constraint allows"));
}

/// Sessions of a pool, some of which are constrained, generate what each would generate alone, even if their tokens are
/// computed in one step with those of others.
#[test]
fn extended_constrained_sessions_beside_others() {
    let cache = CacheShape { context: CONTEXT, ..model().cache() };
    let options = |constraint: Option<&str>| GenerateOptions {
        constraint: constraint.map(|expression| Constraint::regex(expression).unwrap()),
        max_tokens: Some(24),
        sampling: SamplerParams::greedy(),
        ..GenerateOptions::default()
    };
    let kinds = [None, Some("[a-z]{9}[0-9]{4}"), None, Some("(owl|fox|hen|cat| ){6}!")];
    let prompt = model().tokenizer().unwrap().encode("One morning the owl", false).unwrap();
    let said = |session: &mut Session, constraint: Option<&str>| {
        let events = Generation::new(session, prompt.clone(), None, options(constraint)).unwrap();
        text(&told(events).0)
    };
    let alone = kinds.map(|kind| said(&mut Session::with_cache(model(), cache).unwrap(), kind));
    let pool = Pool::new(model(), kinds.len(), cache, kinds.len() * CONTEXT).unwrap();
    let mut sessions: Vec<Session> = kinds.iter().map(|_| pool.session().unwrap()).collect();
    let together: Vec<String> = std::thread::scope(|scope| {
        let threads = sessions.iter_mut().zip(kinds).map(|(session, kind)| scope.spawn(move || said(session, kind)));
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, alone);

    // Without a generation: one step for all, then the masks.
    let vocab = model().config().vocab;
    let digits = |token: u32| model().tokenizer().unwrap().token_bytes(token).unwrap().iter().all(u8::is_ascii_digit);
    let mut mask = vec![0u32; vocab.div_ceil(32)];
    (0..vocab as u32).filter(|token| digits(*token)).for_each(|token| mask[token as usize / 32] |= 1 << (token % 32));
    let [free, masked, ..] = &mut sessions[..] else { panic!("four sessions") };
    let mut expected = Vec::new();
    let mut single = Session::with_cache(model(), cache).unwrap();
    single.set_masked(true);
    single.feed(&prompt).unwrap();
    for _ in 0..5 {
        let token = single.sample_masked(&mask).unwrap();
        single.feed(&[token]).unwrap();
        expected.push(token);
    }
    let mut unmasked = Session::with_cache(model(), cache).unwrap();
    unmasked.feed(&prompt).unwrap();
    let freely: Vec<u32> = (0..5).map(|_| unmasked.next_token().unwrap()).collect();
    masked.set_masked(true);
    for session in [&mut *free, &mut *masked] {
        session.rewind(0);
        session.set_sampling(&SamplerParams::greedy()).unwrap();
        session.feed(&prompt).unwrap();
    }
    for step in 0..5 {
        assert_eq!(masked.sample_masked(&mask).unwrap(), expected[step], "{step}");
        let tokens = pool.next_token_of_each(&mut [&mut *free, &mut *masked]).unwrap();
        let tokens: Vec<u32> = tokens.into_iter().map(Result::unwrap).collect();
        assert_eq!(tokens, [freely[step], expected[step]], "{step}");
    }
}

/// Text that repeats itself is guessed ahead under a grammar too, and no answer depends on that.
#[test]
fn extended_guesses_that_the_grammar_allows() {
    let prompt = model().tokenizer().unwrap().encode("the owl and the fox, the owl and the fox, the", false).unwrap();
    let names =
        json!({"type": "array", "minItems": 6, "maxItems": 9, "items": {"enum": ["the old owl", "the red fox"]}});
    let constraints =
        [Constraint::regex("((the|old|red|owl|fox|hen),? ){24}!").unwrap(), Constraint::json_schema(names).unwrap()];
    let mut found = (0, 0);
    for constraint in constraints {
        for (seed, temperature) in [(1, 0.7), (3, 0.0)] {
            let mut options = GenerateOptions {
                constraint: Some(constraint.clone()),
                max_tokens: Some(64),
                speculation: Speculation::OFF,
                ..GenerateOptions::default()
            };
            (options.sampling.temperature, options.sampling.seed) = (temperature, Some(seed));
            options.sampling.repeat_penalty = if seed == 3 { 1.1 } else { 1.0 };
            let answer = |speculation| {
                let mut session = Session::new(model()).unwrap();
                let options = GenerateOptions { speculation, ..options.clone() };
                let (events, stats) = told(Generation::new(&mut session, prompt.clone(), None, options).unwrap());
                (text(&events), session.tokens().to_vec(), stats)
            };
            let (plain, fed, stats) = answer(Speculation::OFF);
            assert_eq!(stats.drafts, wglm::DraftStats::default());
            for most in [Some(7), None] {
                let (same, tokens, stats) = answer(Speculation { kind: DraftKind::Lookup, most });
                assert_eq!((&same, &tokens), (&plain, &fed), "{seed}, at most {most:?}: {:?}", stats.drafts);
                found = (found.0 + stats.drafts.drafted, found.1 + stats.drafts.accepted);
            }
        }
    }
    let (drafted, accepted) = found;
    println!("{accepted} of {drafted} accepted");
    assert!(accepted > 20 && drafted > accepted, "{accepted} of {drafted} accepted");
}

/// An invalid mask is refused, and without a mask tokens are sampled from all again.
#[test]
fn masks() {
    let mut session = Session::new(model()).unwrap();
    let prompt = model().tokenizer().unwrap().encode("One morning the owl", false).unwrap();
    session.set_masked(true);
    session.feed(&prompt).unwrap();
    let words = model().config().vocab.div_ceil(32);
    for (mask, expected) in [(vec![1; words + 1], "words"), (vec![0; words], "at least one allowed token")] {
        let error = session.sample_masked(&mask).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let all = session.sample_masked(&vec![u32::MAX; words]).unwrap();
    let mut one = vec![0; words];
    one[2] = 1 << 5;
    assert_eq!(session.sample_masked(&one).unwrap(), 69);
    session.set_masked(false);
    let mut free = Session::new(model()).unwrap();
    free.feed(&prompt).unwrap();
    assert_eq!(free.next_token().unwrap(), all);
    // The token that was chosen under the mask is fed.
    assert_eq!(session.next_token().unwrap(), 69);
    assert_eq!(session.logits().unwrap().len(), model().config().vocab);
}

/// Constraints are saved with a conversation, and checked when they are read.
#[test]
fn saved_constraints() {
    let options = GenerateOptions {
        constraint: Some(Constraint::json_schema(person()).unwrap()),
        calls: wglm::Calls::Function("weather".to_owned()),
        ..GenerateOptions::default()
    };
    let json = to_string(&options).unwrap();
    assert_eq!(from_str::<GenerateOptions>(&json).unwrap(), options);
    let broken = json!({"constraint": {"regex": "("}}).to_string();
    assert!(from_str::<GenerateOptions>(&broken).unwrap_err().to_string().contains("regular expression"));
    assert_eq!(from_str::<GenerateOptions>("{}").unwrap(), GenerateOptions::default());
}
