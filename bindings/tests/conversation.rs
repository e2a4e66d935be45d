//! A conversation as other languages have it. Their packages have the other tests; this one also makes
//! `cargo test --workspace` build the library that those load.

#![allow(clippy::unwrap_used)]

use wglm_bindings::{Chat, Event, Model, Options, Stop};

#[test]
fn a_question_is_answered() {
    let model = Model::demo(None, None, None).unwrap();
    let chat = Chat::new(&model, None).unwrap();
    chat.set_thinking(Some(false)).unwrap();
    chat.set_options(Options { temperature: Some(0.0), ..Options::default() }).unwrap();
    let reply = chat.send("What is seven plus five?".to_owned());
    drop(model);
    let (mut text, mut end) = (String::new(), None);
    while let Some(event) = reply.wait_next().unwrap() {
        match event {
            Event::Text { text: piece } => text.push_str(&piece),
            Event::Done { stats } => end = Some(stats.stop),
            _ => {}
        }
    }
    assert_eq!((text.trim(), end), ("Seven plus five is twelve.", Some(Stop::End)));
}
