//! Shows a reply while it is generated: the answer on stdout, thinking and statistics on stderr.

use super::args::ShowArgs;
use super::interrupts::{self, INTERRUPTED};
use super::output::{self, Aside};
use serde::Serialize;
use std::process::ExitCode;
use wglm::text::ToolCall;
use wglm::{DraftStats, Event, Stats, Stop};

/// The exit status if the reply ended without an answer.
const NO_ANSWER: u8 = 3;

/// The parts of a reply that are shown while it is generated.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub answer: bool,
    pub thinking: bool,
    pub figures: bool,
}

impl View {
    /// The parts that the arguments select.
    pub fn of(args: ShowArgs) -> Self {
        Self { answer: true, thinking: !args.hide_thinking && !args.quiet, figures: !args.quiet }
    }

    /// Shows nothing, for callers who print the reply when it is complete.
    pub const NOTHING: Self = Self { answer: false, thinking: false, figures: false };
}

/// A reply, collected from its events.
#[derive(Debug, Default, Serialize)]
pub struct CollectedReply {
    text: String,
    thinking: String,
    tool_calls: Vec<ToolCall>,
    #[serde(flatten)]
    stats: Option<Stats>,
}

impl CollectedReply {
    /// Shows a reply while it is generated and collects it. If there is an error, the part before it is kept.
    ///
    /// # Errors
    /// Those of the generation, and failures to write to stdout.
    pub fn show<E: Into<anyhow::Error>>(
        &mut self,
        events: impl Iterator<Item = Result<Event, E>>,
        view: View,
    ) -> anyhow::Result<()> {
        let mut display = ReplyDisplay { aside: Aside::new(), view, section: Section::Start };
        let shown = self.follow(events, &mut display);
        display.turn(Section::End);
        let ended = if view.answer && !self.text.is_empty() { output::say("\n") } else { Ok(()) };
        shown.and(ended)?;
        if view.figures {
            self.figures(&display.aside);
        } else if let Some(why) = self.without_answer() {
            output::complain(format_args!("no answer: {why}"));
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
        match event {
            Event::Thinking(text) => self.thinking.push_str(&text),
            Event::Text(text) => self.text.push_str(&text),
            Event::ToolCall(call) => self.tool_calls.push(call),
            Event::Done(stats) => self.stats = Some(stats),
            _ => return,
        }
        interrupts::cancel_work_from_now_on();
    }

    /// The reason why the reply ended, if it has.
    pub fn stop(&self) -> Option<Stop> {
        self.stats.map(|stats| stats.stop)
    }

    /// Why there is no answer, if one was to be expected. None is expected after a cancellation, or with `-n 0`.
    pub fn without_answer(&self) -> Option<&'static str> {
        let nothing = self.text.is_empty() && self.tool_calls.is_empty();
        let asked = self.stats.is_some_and(|stats| stats.generated > 0 || stats.stop != Stop::Length);
        let thinking = !self.thinking.is_empty();
        match self.stop() {
            _ if !nothing || !asked => None,
            Some(Stop::Length) if thinking => Some("-n reached while thinking"),
            Some(Stop::Length) => Some("-n reached"),
            Some(Stop::Context) if thinking => Some("the context is full (-c), while thinking"),
            Some(Stop::Context) => Some("the context is full (-c)"),
            Some(Stop::StopString) => Some("a stop string (-r) began it"),
            Some(Stop::Loop) if thinking => Some("the model repeated itself while thinking"),
            Some(Stop::Loop) => Some("the model repeated itself"),
            Some(Stop::End) => Some("the model said nothing"),
            _ => None,
        }
    }

    /// The exit status for this reply.
    pub fn code(&self) -> ExitCode {
        match self.stop() {
            Some(Stop::Cancelled) => INTERRUPTED.into(),
            _ if self.without_answer().is_some() => NO_ANSWER.into(),
            _ => ExitCode::SUCCESS,
        }
    }

    fn figures(&self, aside: &Aside) {
        let Some(stats) = &self.stats else { return };
        let ended = match (self.without_answer(), stats.stop) {
            (Some(why), _) => format!(", {why}: no answer"),
            (None, Stop::Cancelled) if stats.generated == 0 => ", stopped before a reply".to_owned(),
            (None, Stop::Cancelled) => ", stopped".to_owned(),
            (None, Stop::Context) => ", the context is full (-c)".to_owned(),
            (None, Stop::Length) => ", -n reached".to_owned(),
            (None, Stop::StopString) => ", a stop string reached".to_owned(),
            (None, Stop::Loop) => ", stopped because it repeated itself".to_owned(),
            _ => String::new(),
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

/// The part of the reply that was shown last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Start,
    Prompt,
    Thinking,
    Answer,
    End,
}

/// The state of a reply's display.
struct ReplyDisplay {
    aside: Aside,
    view: View,
    section: Section,
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
                self.turn(Section::Prompt);
                self.aside.passing(format_args!("reading {done}/{total}"));
            }
            Event::Thinking(text) if self.view.thinking => {
                self.turn(Section::Thinking);
                self.aside.write(text);
            }
            Event::Text(text) if self.view.answer => {
                self.turn(Section::Answer);
                output::say(text)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Moves on to another part of the reply. Without colour, lines in brackets separate thinking from the answer.
    fn turn(&mut self, next: Section) {
        let before = std::mem::replace(&mut self.section, next);
        if before == next {
            return;
        }
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
    }
}

#[cfg(test)]
mod tests {
    use super::{CollectedReply, View};
    use wglm::{Error, Event};

    #[test]
    fn what_had_come_before_an_error_is_kept() {
        let mut reply = CollectedReply::default();
        let events = [Ok(Event::Thinking("hm".into())), Ok(Event::Text("Seven".into())), Err(Error::NoResult)];
        let shown = reply.show(events.into_iter(), View::NOTHING);
        assert!(shown.is_err_and(|error| matches!(error.downcast_ref(), Some(Error::NoResult))));
        assert_eq!((reply.thinking.as_str(), reply.text.as_str()), ("hm", "Seven"));
    }
}
