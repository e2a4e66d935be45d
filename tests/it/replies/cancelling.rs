//! Tests conversations that another thread stops.

use super::{OWL, text, told};
use crate::common::gpu::open;
use crate::common::models::fable_file;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use wglm::{
    Cancel, Chat, DraftKind, Event, Gguf, Gpu, LoadOptions, Model, PromptOptions, SamplerParams, Speculation, Stop,
};

/// A conversation on its own device, whose submissions are counted. A step of a reply is one submission, because no
/// tokens are guessed.
fn chat(gpu: &Gpu) -> Chat {
    let prompt = PromptOptions { limit: Duration::from_millis(1), ..PromptOptions::default() };
    let options = LoadOptions { context: Some(768), prompt, ..LoadOptions::default() };
    let mut chat = Chat::new(&Model::load(&Gguf::open(fable_file("q4_0")).unwrap(), gpu, &options).unwrap()).unwrap();
    chat.options.sampling = SamplerParams::greedy();
    chat.options.speculation = Speculation { kind: DraftKind::Off, most: None };
    chat.reasoning = Some(false);
    chat
}

/// Lets another thread cancel some time after event number `count` or, for `None`, after the question, while the reply
/// is generated. Returns how the reply ended and what was submitted after the request.
fn cancelled(chat: &mut Chat, gpu: &Gpu, question: &str, count: usize, pause: Duration) -> (String, Stop, u64) {
    let cancel = Cancel::default();
    let stop = cancel.clone();
    let (ask, asked) = mpsc::channel();
    std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            asked.recv().unwrap();
            std::thread::sleep(pause);
            stop.cancel();
            gpu.work().submissions
        });
        let mut seen = 0;
        let reply = chat.send(question).unwrap().with_cancel(&cancel);
        if count == 0 {
            ask.send(()).unwrap();
        }
        let (events, stats) = told(reply.inspect(|_| {
            seen += 1;
            if seen == count {
                ask.send(()).unwrap();
            }
        }));
        let at = watch.join().unwrap();
        (text(&events), stats.stop, gpu.work().submissions - at)
    })
}

/// Asks a question in a new conversation. Returns the reply, of at most `most` tokens, and the time that it took.
fn timed(chat: &mut Chat, question: &str, most: Option<usize>) -> (String, Duration) {
    chat.clear();
    let usual = chat.options.max_tokens;
    chat.options.max_tokens = most.or(usual);
    let begun = Instant::now();
    let whole = text(&told(chat.send(question).unwrap()).0);
    chat.options.max_tokens = usual;
    (whole, begun.elapsed())
}

#[test]
fn extended_a_cancelled_reply_ends_soon_and_leaves_a_usable_chat() {
    let gpu = open(true);
    let mut chat = chat(&gpu);
    let long = OWL.repeat(40);
    // Twice, because the first time creates everything that is created at first use, and by turns, so that neither
    // prompt is in the cache.
    let [_, [(whole, for_reply), (_, for_prompt)]] =
        [(); 2].map(|()| [timed(&mut chat, OWL, None), timed(&mut chat, &long, Some(1))]);
    for (question, count, pause) in [
        (OWL, 1, Duration::ZERO),
        (OWL, 3, for_reply / 20),
        (OWL, 5, for_reply / 8),
        (&long, 0, for_prompt / 50),
        (&long, 0, for_prompt / 6),
        (&long, 0, for_prompt / 2),
    ] {
        chat.clear();
        let (told, stop, after) = cancelled(&mut chat, &gpu, question, count, pause);
        println!("{count} events and {pause:?}: {after} more submissions, {told:?}");
        assert_eq!(stop, Stop::Cancelled, "{count} events and {pause:?}");
        assert!(after <= 1, "{after} submissions after the request");
        assert!(told.len() < whole.len() && (question != OWL || whole.starts_with(&told)), "{told}");
        assert_eq!(chat.messages().len(), if told.is_empty() { 1 } else { 2 });
    }
    chat.clear();
    assert_eq!(text(&told(chat.send(OWL).unwrap()).0), whole);
}

/// A reply that is cancelled at some moment, and the next reply, which is not.
fn pressed(chat: &mut Chat, moment: usize) -> Stop {
    let cancel = Cancel::default();
    let press = |now: usize| {
        if now == moment {
            cancel.cancel();
        }
    };
    press(0); // before the generating thread receives the question
    let reply = chat.send("My name is Anna.").unwrap();
    press(1);
    let reply = reply.with_cancel(&cancel);
    press(2);
    let mut now = 2;
    let (_, stats) = told(reply.inspect(|_| {
        now += 1;
        press(now);
    }));
    stats.stop
}

/// At any moment, from before the message is sent to the last event before the end, a cancellation is never lost and
/// never stops another reply.
#[test]
fn extended_no_cancellation_is_lost() {
    let mut chat = super::chat();
    let mut moments = 0;
    for moment in 0.. {
        chat.clear();
        let stop = pressed(&mut chat, moment);
        if stop == Stop::End {
            break; // cancelled after the end, or never
        }
        assert_eq!(stop, Stop::Cancelled, "pressed at {moment}");
        moments += 1;
        let (events, stats) = told(chat.send("What is seven plus five?").unwrap());
        assert!(stats.stop == Stop::End && !text(&events).is_empty(), "pressed at {moment}: the next reply is stopped");
    }
    assert!(moments > 5, "only {moments} moments");
}

/// As in the guide, the window creates a `Cancel` for each question and sends both. However the cancellation and the
/// reply coincide, the reply that it is for ends, and the next one does not.
#[test]
fn extended_question_and_cancellation_at_once() {
    let mut chat = super::chat();
    let (say, said) = mpsc::channel::<(String, Cancel)>();
    let (tell, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (text, cancel) in said {
                chat.clear();
                let (_, stats) = told(chat.send(&text).unwrap().with_cancel(&cancel));
                tell.send(stats.stop).unwrap();
            }
        });
        for round in 0..10 {
            let stop = Cancel::default();
            say.send((OWL.to_owned(), stop.clone())).unwrap();
            (0..round).for_each(|_| std::thread::yield_now());
            stop.cancel();
            say.send(("My name is Anna.".to_owned(), Cancel::default())).unwrap();
            let stops = [heard.recv().unwrap(), heard.recv().unwrap()];
            assert_eq!(stops, [Stop::Cancelled, Stop::End], "round {round}");
        }
        drop(say);
    });
}

/// One `Cancel` serves a question whose answer takes several replies.
#[test]
fn extended_one_cancel_for_several_replies() {
    let mut chat = super::chat();
    let cancel = Cancel::default();
    told(chat.send("My name is Anna.").unwrap().with_cancel(&cancel));
    cancel.cancel();
    chat.push(wglm::Message::user("What is my name?"));
    let (events, stats) = told(chat.reply().unwrap().with_cancel(&cancel));
    assert!(events.iter().all(|event| !matches!(event, Event::Text(_))) && stats.stop == Stop::Cancelled, "{events:?}");
    assert_eq!(chat.unanswered().len(), 1);
}

/// Its own `Cancel` and those that it was given each stop the reply, and none cancels another.
#[test]
fn every_cancel_of_a_reply_stops_it() {
    let mut chat = super::chat();
    for pressed in 0..3 {
        let reply = chat.send(OWL).unwrap();
        let buttons = [reply.cancel(), Cancel::default(), Cancel::default()];
        let mut reply = reply.with_cancel(&buttons[1]).with_cancel(&buttons[2]);
        reply.next().unwrap().unwrap();
        buttons[pressed].cancel();
        assert_eq!(told(reply).1.stop, Stop::Cancelled, "button {pressed}");
        for (index, button) in buttons.iter().enumerate() {
            assert_eq!(button.is_cancelled(), index == pressed, "button {index} of {pressed}");
        }
    }
}
