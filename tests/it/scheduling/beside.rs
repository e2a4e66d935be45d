//! Tests that replies beside others equal those that each conversation gets alone.

use super::{Lot, alone, begin, by_turns, greedy, model, request, rest, said, scheduler, stats};
use wglm::{ChatState, Event, GenerateOptions, Message, SamplerParams, ScheduledReply, Stop};

const PROMPTS: [&str; 8] = [
    "Tell me a story about an owl.",
    "What is seven plus five?",
    "Tell me a story about a fox and a hare who live in the same wood and never speak to each other.",
    "My name is Anna.",
    "What is two plus two?",
    "Tell me about the moon.",
    "Tell me a story about a mouse.",
    "Who are you?",
];

/// Eight conversations of different lengths in five slots. They arrive at random times, and their events are taken in
/// random order.
#[test]
fn extended_replies_equal_those_of_each_alone() {
    let requests: Vec<ChatState> =
        PROMPTS.iter().zip([20, 14, 30, 8, 12, 16, 10, 12]).map(|(text, most)| request(text, most)).collect();
    let wanted: Vec<Vec<Event>> = requests.iter().map(alone).collect();
    for seed in [1, 2] {
        let (scheduler, mut lot) = (scheduler(5), Lot(seed));
        let mut coming = requests.iter().enumerate().peekable();
        let mut running: Vec<(usize, ScheduledReply, Vec<Event>)> = Vec::new();
        let mut left = 0;
        loop {
            let comes = running.len() < 2 || lot.below(12) == 0;
            if let Some((index, request)) = coming.next_if(|_| comes) {
                running.push((index, scheduler.chat(request.clone()).unwrap(), Vec::new()));
            }
            if running.is_empty() {
                break;
            }
            let place = lot.below(running.len());
            let (index, reply, events) = &mut running[place];
            // One of them leaves in the middle.
            let leaves = *index == 2 && said(events).len() > 40;
            match reply.next().filter(|_| !leaves) {
                Some(event) => events.push(event.unwrap()),
                None => {
                    let (got, want) = (said(events), said(&wanted[*index]));
                    if leaves {
                        assert!(want.starts_with(&got), "{got:?} instead of {want:?}");
                        left += 1;
                    } else {
                        assert_eq!(got, want, "conversation {index}, seed {seed}");
                        let (got, want) = (stats(events), stats(&wanted[*index]));
                        assert_eq!((got.stop, got.generated), (want.stop, want.generated), "conversation {index}");
                    }
                    running.swap_remove(place);
                }
            }
        }
        let state = scheduler.state();
        assert_eq!((left, state.counts.requests, state.waiting, state.counts.given_up), (1, 8, 0, 0));
        assert!(state.slots.iter().all(|slot| !slot.busy), "{state:?}");
    }
}

/// Each has its own sampling parameters, stop strings, and log-probabilities if requested.
#[test]
fn long_each_has_its_own_options() {
    let drawn = |seed| SamplerParams { temperature: 1.0, top_p: 0.9, seed: Some(seed), ..SamplerParams::default() };
    let with = |options: GenerateOptions| ChatState { options, ..request(PROMPTS[0], 0) };
    let penalty = SamplerParams { repeat_penalty: 1.5, logit_bias: vec![(7, 2.0)], ..drawn(3) };
    let requests = [
        with(GenerateOptions { sampling: drawn(1), ..greedy(24) }),
        with(GenerateOptions { sampling: drawn(2), ..greedy(24) }),
        with(GenerateOptions { sampling: penalty, ..greedy(24) }),
        with(GenerateOptions { stop: vec!["ow".to_owned()], ..greedy(24) }),
        with(GenerateOptions { logprobs: Some(2), ..greedy(24) }),
        with(greedy(0)),
    ];
    let texts = by_turns(&scheduler(6), &requests);
    for (request, events) in requests.iter().zip(&texts) {
        let want = alone(request);
        assert_eq!(said(events), said(&want), "{:?}", request.options);
        let (got, want_stats) = (stats(events), stats(&want));
        assert_eq!((got.stop, got.seed, got.generated), (want_stats.stop, want_stats.seed, want_stats.generated));
        let chosen = |events: &[Event]| -> Vec<(u32, usize)> {
            let tokens = events.iter().filter_map(|event| if let Event::Token(it) = event { Some(it) } else { None });
            tokens.map(|token| (token.chosen.token, token.top.len())).collect()
        };
        assert_eq!(chosen(events), chosen(&want));
    }
    assert_eq!(stats(&texts[3]).stop, Stop::StopString);
    assert_eq!(texts[4].iter().filter(|event| matches!(event, Event::Token(_))).count(), 24);
    assert_ne!(said(&texts[0]), said(&texts[1]));
}

/// Each request has its own functions, system messages and variables of the template.
#[test]
fn long_each_has_its_own_prompt() {
    let tool = serde_json::json!({"type": "function", "function": {"name": "dice", "description": "Rolls the dice"}});
    let mut requests = [request("Roll the dice.", 30), request("Roll the dice.", 30), request("Roll the dice.", 30)];
    requests[1].tools = vec![tool];
    requests[2].messages.insert(0, Message::system("Be brief."));
    requests[2].reasoning = Some(true);
    let scheduler = scheduler(3);
    let mut replies: Vec<ScheduledReply> = requests.iter().map(|it| scheduler.chat(it.clone()).unwrap()).collect();
    let lengths: Vec<usize> = replies.iter().map(ScheduledReply::prompt_tokens).collect();
    assert!(lengths[0] < lengths[2] && lengths[2] < lengths[1], "{lengths:?}");
    assert!(!replies[0].opens_thinking() && replies[2].opens_thinking());
    let begun: Vec<Vec<Event>> = replies.iter_mut().map(begin_any).collect();
    for ((request, reply), events) in requests.iter().zip(&mut replies).zip(begun) {
        let events = [events, rest(reply)].concat();
        let want = alone(request);
        assert_eq!(said(&events), said(&want));
        assert!(matches!(events[0], Event::Prompt { total, .. } if total == reply.prompt_tokens()), "{events:?}");
    }
}

/// The first two events of any kind.
fn begin_any(reply: &mut ScheduledReply) -> Vec<Event> {
    reply.take(2).map(Result::unwrap).collect()
}

/// A prompt of tokens is continued as text, even beside a conversation.
#[test]
fn plain_text_beside_a_conversation() {
    let prompt = model().tokenizer().unwrap().encode("One morning the owl", true).unwrap();
    let scheduler = scheduler(2);
    let mut chat = scheduler.chat(request(PROMPTS[1], 20)).unwrap();
    let mut text = scheduler.generate(prompt.clone(), greedy(20)).unwrap();
    let (begun, mut events) = (begin(&mut chat), begin(&mut text));
    events.extend(rest(&mut text));
    assert_eq!(said(&[begun, rest(&mut chat)].concat()), said(&alone(&request(PROMPTS[1], 20))));
    let mut session = wglm::Session::new(model()).unwrap();
    let generation = wglm::Generation::new(&mut session, prompt, None, greedy(20)).unwrap();
    assert_eq!(said(&events), said(&generation.map(Result::unwrap).collect::<Vec<_>>()));
}
