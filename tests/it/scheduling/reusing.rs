//! Tests that cached tokens are not computed again.

use super::{begin, request, rest, said, scheduler, small_scheduler, stats, words};
use wglm::{ChatState, Message};

const LONG: &str = "Once there was an owl who lived in an old oak at the edge of a wood, and every evening it sat on the \
    same branch and looked at the same hill, until one evening the hill was gone. The owl asked the fox, and the fox did \
    not know. It asked the hare, and the hare had never seen a hill. So it flew up, higher than it had ever been, and \
    looked down, and there was the hill, and on it sat a mouse, and the mouse said that it had moved house. The owl \
    thought about that for a long time. Then it flew home. The next day it asked the fox again, and the fox laughed and \
    ran away over the hill. What does the story tell us?";

/// Two conversations alternate: each finds its own cache and does not change the other's slot.
#[test]
fn extended_a_conversation_finds_its_cache() {
    let scheduler = scheduler(2);
    let mut turns: Vec<ChatState> =
        ["Tell me a story about an owl.", "What is seven plus five?"].iter().map(|text| request(text, 12)).collect();
    let mut cached = Vec::new();
    for turn in 0..3 {
        for conversation in &mut turns {
            let mut reply = scheduler.chat(conversation.clone()).unwrap();
            let events = rest(&mut reply);
            let stats = stats(&events);
            assert_eq!(stats.prompt.cached + stats.prompt.new, reply.prompt_tokens());
            if turn > 0 {
                cached.push((stats.prompt.cached, stats.prompt.new));
            }
            conversation.messages.push(Message::assistant(said(&events)));
            conversation.messages.push(Message::user("And then?"));
        }
    }
    assert!(cached.iter().all(|(cached, new)| *cached > 8 && *new < 40), "{cached:?}");
    assert!(cached[2..].iter().all(|(cached, new)| cached > new), "{cached:?}");
    let counts = scheduler.state().counts;
    assert!(counts.cached_tokens >= cached.iter().map(|it| it.0 as u64).sum() && counts.generated_tokens > 12);
}

/// Conversations with the same system prompt do not take each other's slots while others are empty.
#[test]
fn extended_the_same_beginning_is_another_conversation() {
    let scheduler = small_scheduler(3);
    let texts = [
        "What did the owl see when it looked at the hill in the evening, and what did it do the next day?",
        "Who lived on the hill in the old days, and why did the fox and the hare not know about that?",
    ];
    let mut turns = texts.map(|text| {
        let mut asked = words(text, 6);
        asked.messages.insert(0, Message::system("An owl sat on a branch and looked at a hill. ".repeat(4)));
        asked
    });
    for turn in 0..3 {
        for conversation in &mut turns {
            let events = rest(&mut scheduler.chat(conversation.clone()).unwrap());
            let stats = stats(&events);
            assert!(turn == 0 || stats.prompt.new < 40, "{stats:?}");
            conversation.messages.push(Message::assistant(said(&events)));
            conversation.messages.push(Message::user("And then?"));
        }
    }
    let held = scheduler.state().slots.iter().filter(|slot| slot.tokens > 0).count();
    assert_eq!(held, 2, "one slot each");
}

/// The pages of a common beginning of two conversations are computed once, although both replies are being generated.
#[test]
fn extended_a_beginning_is_shared() {
    let scheduler = small_scheduler(2);
    let asked = |text: &str| {
        let mut request = words(text, 8);
        request.messages.insert(0, Message::system(LONG.repeat(2)));
        request
    };
    let mut first = scheduler.chat(asked("What did the owl see?")).unwrap();
    assert!(first.prompt_tokens() > 280 && first.prompt_tokens() < 480, "{}", first.prompt_tokens());
    let begun = begin(&mut first);
    let mut second = scheduler.chat(asked("Who lived on the hill?")).unwrap();
    assert_eq!(stats(&rest(&mut second)).prompt.cached, 256);
    assert_eq!(stats(&[begun, rest(&mut first)].concat()).prompt.cached, 0);
}
