//! Shows a reply while it is generated: the answer on stdout, thinking and statistics on stderr.

use super::args::ShowArgs;
use super::interrupts::{self, INTERRUPTED};
use super::output::{self, FaintText};
use super::wrap::Wrapper;
use super::{failure, terminal};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wglm_engine::instruments::visible;
use wglm_engine::text::ToolCall;
use wglm_engine::{Constraint, DraftStats, Event, Reuse, Stats, Stop};

/// The exit status if the reply ended without an answer, or inside one that must have a form.
const NO_ANSWER: u8 = 3;

/// The parts of a reply that are shown while it is generated.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub answer: bool,
    pub thinking: bool,
    pub figures: bool,
    /// Whether lines break between words on a terminal.
    pub wraps: bool,
}

impl View {
    pub fn of(args: ShowArgs) -> Self {
        Self { answer: true, thinking: !args.hide_thinking && !args.quiet, figures: !args.quiet, wraps: false }
    }

    /// Shows nothing, for callers who print the reply when it is complete.
    pub const NOTHING: Self = Self { answer: false, thinking: false, figures: false, wraps: false };
}

/// The form that an answer must have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    #[default]
    Free,
    /// A value of JSON, by a schema.
    Json,
    /// Text that a grammar matches.
    Grammar,
}

/// A reply, collected from its events. Clones share it, so that it can be printed when Ctrl-C ends the process.
#[derive(Debug, Clone, Default)]
pub struct CollectedReply {
    form: Form,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    constraint: Option<Constraint>,
    text: String,
    thinking: String,
    tool_calls: Vec<ToolCall>,
    stats: Option<Stats>,
}

/// A reply as one JSON object, which always has all these fields. Unknown values are null.
#[derive(Debug, Serialize)]
struct ReplyObject<'a> {
    text: &'a str,
    thinking: &'a str,
    tool_calls: &'a [ToolCall],
    prompt: Option<Reuse>,
    generated: Option<usize>,
    seed: Option<u64>,
    stop: Option<Stop>,
    prompt_seconds: Option<f64>,
    generate_seconds: Option<f64>,
    drafts: Option<DraftStats>,
    error: Option<String>,
    hint: Option<String>,
}

impl CollectedReply {
    pub fn new(form: Form) -> Self {
        Self { form, parts: Arc::default() }
    }

    /// Sets the constraint on the answer, if there is one.
    pub fn constrain(&self, constraint: Option<&Constraint>) {
        self.parts().constraint = constraint.cloned();
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a reply while it is generated and collects it. If there is an error, the part before it is kept.
    ///
    /// # Errors
    /// The errors of the generation, and failures to write to stdout.
    pub fn show<E: Into<anyhow::Error>>(
        &mut self,
        events: impl Iterator<Item = Result<Event, E>>,
        view: View,
    ) -> anyhow::Result<()> {
        let (aside, wrapper) = (FaintText::new(), Wrapper::default());
        let mut display = ReplyDisplay { aside, view, section: Section::Start, wrapper };
        let shown = self.follow(events, &mut display);
        let shown = shown.and(display.turn(Section::End));
        let ended = if view.answer && !self.parts().text.is_empty() { output::say("\n") } else { Ok(()) };
        shown.and(ended)?;
        if view.figures {
            self.figures(&display.aside);
        } else if let Some(why) = self.without_answer() {
            output::complain(format_args!("no answer: {why}"));
        } else if let Some(why) = self.cut() {
            output::complain(format_args!("the answer is cut off: {why}"));
        }
        Ok(())
    }

    fn follow<E: Into<anyhow::Error>>(
        &mut self,
        events: impl Iterator<Item = Result<Event, E>>,
        display: &mut ReplyDisplay,
    ) -> anyhow::Result<()> {
        for event in events {
            let event = event.map_err(Into::into)?;
            display.show(&event)?;
            self.keep(event);
        }
        Ok(())
    }

    fn keep(&mut self, event: Event) {
        let mut parts = self.parts();
        match event {
            Event::Thinking(text) => parts.thinking.push_str(&text),
            Event::Text(text) => parts.text.push_str(&text),
            Event::ToolCall(call) => parts.tool_calls.push(call),
            Event::Done(stats) => parts.stats = Some(stats),
            _ => return,
        }
        drop(parts);
        interrupts::cancel_work_from_now_on();
    }

    /// The reason why the reply ended, if it has.
    pub fn stop(&self) -> Option<Stop> {
        self.parts().stats.map(|stats| stats.stop)
    }

    /// Why there is no answer, if one was expected. None is expected after a cancellation.
    pub fn without_answer(&self) -> Option<&'static str> {
        let parts = self.parts();
        let thinking = !parts.thinking.is_empty();
        match parts.stats?.stop {
            _ if !parts.text.is_empty() || !parts.tool_calls.is_empty() => None,
            Stop::Length if thinking => Some("the -n limit was reached while thinking"),
            Stop::Length => Some("the -n limit was reached"),
            Stop::Context if thinking => Some("the context (-c) ran out while thinking"),
            Stop::Context => Some("the context is full (-c)"),
            Stop::StopString => Some("the reply began with a stop string (-r)"),
            Stop::Loop if thinking => Some("the model repeated itself while thinking"),
            Stop::Loop => Some("the model repeated itself"),
            Stop::End => Some("the model wrote nothing"),
            _ => None,
        }
    }

    /// Why an answer ended too early for its form. An answer without a form may end anywhere, and so may one that
    /// already matches its grammar.
    pub fn cut(&self) -> Option<&'static str> {
        let parts = self.parts();
        let whole = match self.form {
            Form::Free => true,
            // A number could continue; all other values are self-delimiting.
            Form::Json => serde_json::from_str::<Value>(&parts.text).is_ok_and(|value| !value.is_number()),
            Form::Grammar => parts.constraint.as_ref().is_some_and(|it| it.accepts(&parts.text).unwrap_or(false)),
        };
        match parts.stats?.stop {
            _ if whole || parts.text.is_empty() => None,
            Stop::Length => Some("the -n limit was reached"),
            Stop::Context => Some("the context is full (-c)"),
            Stop::StopString => Some("a stop string (-r) came up"),
            Stop::Loop => Some("the model repeated itself"),
            _ => None,
        }
    }

    pub fn code(&self) -> ExitCode {
        match self.stop() {
            Some(Stop::Cancelled) => INTERRUPTED.into(),
            _ if self.without_answer().or(self.cut()).is_some() => NO_ANSWER.into(),
            _ => ExitCode::SUCCESS,
        }
    }

    /// The reply, and the error that ended it if there was one, as one JSON object on a line. A reply that Ctrl-C ended
    /// has the stop `cancelled`, even if it had not begun.
    ///
    /// # Errors
    /// It cannot be represented in JSON, which does not happen.
    pub fn as_json(&self, error: Option<&anyhow::Error>) -> anyhow::Result<String> {
        let Parts { text, thinking, tool_calls, stats, .. } = &*self.parts();
        let is_cancelled = |error: &&anyhow::Error| matches!(error.downcast_ref(), Some(wglm_engine::Error::Cancelled));
        let cancelled = error.is_some_and(|error| is_cancelled(&error)) || (error.is_none() && stats.is_none());
        let error = error.filter(|error| !is_cancelled(error));
        let object = ReplyObject {
            text,
            thinking,
            tool_calls,
            prompt: stats.map(|stats| stats.prompt),
            generated: stats.map(|stats| stats.generated),
            seed: stats.and_then(|stats| stats.seed),
            stop: stats.map(|stats| stats.stop).or(cancelled.then_some(Stop::Cancelled)),
            prompt_seconds: stats.map(|stats| stats.prompt_time.as_secs_f64()),
            generate_seconds: stats.map(|stats| stats.generate_time.as_secs_f64()),
            drafts: stats.map(|stats| stats.drafts),
            error: error.map(failure::sentence),
            hint: error.and_then(failure::hint),
        };
        Ok(serde_json::to_string(&object)?)
    }

    fn figures(&self, aside: &FaintText) {
        let Some(stats) = self.parts().stats else { return };
        let ended = match (self.without_answer(), self.cut()) {
            (Some(why), _) => format!(", {why}: no answer"),
            (None, Some(why)) => format!(", {why}: the answer is cut off"),
            (None, None) => match stats.stop {
                Stop::Cancelled if stats.generated == 0 => ", stopped before a reply",
                Stop::Cancelled => ", stopped",
                Stop::Context => ", the context is full (-c)",
                Stop::Length => ", the -n limit was reached",
                Stop::StopString => ", a stop string came up",
                Stop::Loop => ", stopped because it repeated itself",
                _ => "",
            }
            .to_owned(),
        };
        let drafts = match stats.drafts {
            DraftStats { drafted: 0, .. } => String::new(),
            DraftStats { drafted, accepted, .. } => {
                let gain = stats.draft_gain().map_or(String::new(), |gain| format!(", {gain:.2}x"));
                format!("; {accepted} of {} accepted{gain}", output::count(drafted, "draft"))
            }
        };
        let seed = stats.seed.map_or(String::new(), |seed| format!("; seed {seed}"));
        aside.line(format_args!(
            "[prompt: {} cached, {} new, {:.1} tok/s; reply: {}, {:.1} tok/s{ended}{drafts}{seed}]",
            stats.prompt.cached,
            stats.prompt.new,
            stats.prompt_speed(),
            output::count(stats.generated, "token"),
            stats.speed()
        ));
    }
}

/// The section of the reply that was shown last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Start,
    Prompt,
    Thinking,
    Answer,
    End,
}

struct ReplyDisplay {
    aside: FaintText,
    view: View,
    section: Section,
    /// Wraps the current section, and holds its incomplete word.
    wrapper: Wrapper,
}

impl ReplyDisplay {
    fn show(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Dropped { messages } => {
                let oldest = match messages.len() {
                    1 => "message".to_owned(),
                    count => format!("{count} messages"),
                };
                output::note(format_args!(
                    "note: the context is full (-c): the model no longer sees the oldest {oldest}"
                ));
            }
            Event::Prompt { done, total } if self.view.figures => {
                self.turn(Section::Prompt)?;
                self.aside.passing(format_args!("reading {done}/{total}"));
            }
            Event::Thinking(text) if self.view.thinking => {
                self.turn(Section::Thinking)?;
                self.write(text)?;
            }
            Event::Text(text) if self.view.answer => {
                self.turn(Section::Answer)?;
                self.write(text)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The columns of the terminal that the section is written to, if lines are wrapped there.
    fn width(&self) -> Option<usize> {
        match self.section {
            Section::Answer if self.view.wraps => terminal::columns_for_answers(),
            Section::Thinking if self.view.wraps => terminal::columns_for_asides(),
            _ => None,
        }
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        let text = match self.width() {
            Some(width) => Cow::Owned(self.wrapper.push(&visible(text), width)),
            None => Cow::Borrowed(text),
        };
        if text.is_empty() { Ok(()) } else { self.put(&text) }
    }

    fn put(&self, text: &str) -> anyhow::Result<()> {
        match self.section {
            Section::Answer => output::say(text),
            _ => {
                self.aside.write(text);
                Ok(())
            }
        }
    }

    /// Begins another section of the reply. Without colour, lines in brackets separate thinking from the answer.
    fn turn(&mut self, next: Section) -> anyhow::Result<()> {
        if self.section == next {
            return Ok(());
        }
        let rest = self.wrapper.end(self.width().unwrap_or(usize::MAX));
        if !rest.is_empty() {
            self.put(&rest)?;
        }
        let before = std::mem::replace(&mut self.section, next);
        match before {
            Section::Prompt => self.aside.passing(format_args!("")),
            Section::Thinking => {
                self.aside.write("\n");
                self.aside.mark("[end of thinking]");
            }
            _ => {}
        }
        match next {
            Section::Thinking => self.aside.mark("[thinking]"),
            Section::Answer if before == Section::Thinking => self.aside.write("\n"),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{CollectedReply, View};
    use wglm_engine::{Error, Event};

    #[test]
    fn what_had_come_before_an_error_is_kept() {
        let mut reply = CollectedReply::default();
        let events = [Ok(Event::Thinking("hm".into())), Ok(Event::Text("Seven".into())), Err(Error::NoResult)];
        let shown = reply.show(events.into_iter(), View::NOTHING);
        assert!(shown.is_err_and(|error| matches!(error.downcast_ref(), Some(Error::NoResult))));
        let parts = reply.parts();
        assert_eq!((parts.thinking.as_str(), parts.text.as_str()), ("hm", "Seven"));
    }
}
