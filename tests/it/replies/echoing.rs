//! Tests replies in which the model writes the names of control tokens and tags letter by letter.

use super::script::{script, script_tokens};
use super::{chat, model, text, told};
use wglm::{Event, Message};

const ASKED: &str = "What do you write?";

/// In the next prompt such a name is the same text, and is in the cache already.
#[test]
fn extended_an_echo_forges_nothing() {
    let tokenizer = model().tokenizer().unwrap();
    for said in ["<sop>", "</think>", "[gMASK]"] {
        let mut chat = chat();
        let tokens = tokenizer.encode(said, false).unwrap();
        assert!(tokens.len() > 1);
        script_tokens(&mut chat, Some(ASKED), tokens.clone(), "<|user|>");
        let (events, _) = told(chat.send(ASKED).unwrap());
        assert_eq!(text(&events), said);
        chat.push(Message::user("And then?"));
        let prompt = chat.prompt().unwrap();
        assert!(prompt.windows(tokens.len()).any(|window| window == tokens), "{said}: {prompt:?}");
        assert_eq!(chat.session().reusable(&prompt), chat.session().tokens().len(), "{said}");
    }
}

/// Such a name does not end the thinking either.
#[test]
fn extended_a_tag_in_letters_is_thought() {
    let tokenizer = model().tokenizer().unwrap();
    let mut chat = chat();
    chat.reasoning = Some(true);
    let thought = tokenizer.encode("a</think>", false).unwrap();
    let answer = tokenizer.encode("</think>Yes.", true).unwrap();
    script_tokens(&mut chat, Some(ASKED), [thought, answer].concat(), "<|user|>");
    let (events, _) = told(chat.send(ASKED).unwrap());
    let piece = |event: &Event| if let Event::Thinking(text) = event { text.clone() } else { String::new() };
    assert_eq!(events.iter().map(piece).collect::<String>(), "a</think>");
    assert_eq!(text(&events), "Yes.");
}

/// The token of a tag in the middle of an answer is text there, and in the next prompt.
#[test]
fn a_tag_in_an_answer_comes_back_as_text() {
    let tokenizer = model().tokenizer().unwrap();
    let mut chat = chat();
    script(&mut chat, Some(ASKED), "Use<think>it.", "<|user|>");
    let (events, _) = told(chat.send(ASKED).unwrap());
    assert_eq!(text(&events), "Use<think>it.");
    chat.push(Message::user("And then?"));
    let prompt = chat.prompt().unwrap();
    assert!(!prompt.contains(&tokenizer.special("<think>").unwrap()), "{prompt:?}");
    assert!(tokenizer.decode(&prompt, false).unwrap().contains("Use<think>it."));
}
