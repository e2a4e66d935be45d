//! Reports what the window shows, for tests: a JSON file that is rewritten when something changes.

use crate::frames::{Dispatches, Times};
use crate::shop::Fetching;
use eframe::egui::{Context, Rect};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The least time between two writes.
const EVERY: Duration = Duration::from_millis(50);

/// The positions of buttons and fields: their middle, in pixels from the corner of the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Places {
    /// Whether they are recorded.
    #[serde(skip)]
    wanted: bool,
    #[serde(skip)]
    scale: f32,
    #[serde(flatten)]
    of: BTreeMap<String, [f32; 2]>,
}

impl Places {
    /// None yet.
    pub fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Whether they are recorded.
    pub fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// Begins a frame.
    pub fn clear(&mut self, context: &Context) {
        self.scale = context.pixels_per_point();
        self.of.clear();
    }

    /// Records the position of something.
    pub fn note(&mut self, name: impl Into<String>, rect: Rect) {
        if self.wanted {
            let middle = rect.center() * self.scale;
            self.of.insert(name.into(), [middle.x, middle.y]);
        }
    }
}

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Status {
    /// The name of the loaded model.
    pub model: Option<String>,
    /// The models on this machine, the verdict on the file that is named, and the repositories, in words.
    pub local: Vec<String>,
    pub file: Option<String>,
    pub offered: Vec<String>,
    pub fetching: Option<Fetching>,
    pub loading: bool,
    pub tuning: bool,
    pub replying: bool,
    /// The titles of the conversations.
    pub conversations: Vec<String>,
    /// The system prompt of the open conversation.
    pub system: String,
    /// The texts of the open conversation's messages.
    pub messages: Vec<String>,
    /// Which version of each message is shown, counted from 0, and how many there are.
    pub versions: Vec<(usize, usize)>,
    /// The preset of the open conversation, all presets, and the errors in the settings.
    pub preset: Option<String>,
    pub presets: Vec<String>,
    pub errors: Vec<String>,
    /// Whether the cursor is in the search field, and the messages that were found.
    pub seeking: bool,
    pub found: Vec<String>,
    /// The bytes of models and sessions on the GPU.
    pub memory: u64,
    /// The typed text, and whether it is that of the last message.
    pub typed: String,
    pub editing: bool,
    /// The reply so far, thinking and answer.
    pub pending: String,
    /// How many replies have ended.
    pub replies: usize,
    pub held: usize,
    /// The tokens of the conversation with what is typed, once they are counted.
    pub tokens: Option<usize>,
    /// Buttons and fields without a name for screen readers.
    pub nameless: Vec<String>,
    /// The letters of the messages for which there is no glyph.
    pub boxes: String,
    /// The prompt and the length of the last reply in tokens, and why it ended.
    pub cached: Option<usize>,
    pub new: Option<usize>,
    pub generated: Option<usize>,
    pub stop: Option<String>,
    /// Errors and notices.
    pub notices: Vec<String>,
    /// How often wglm was held back while the window changed its size.
    pub met: u64,
    pub frames: usize,
    pub dispatches: Dispatches,
    pub between_ms: Times,
    pub work_ms: Times,
    pub places: Places,
}

/// The file and its last contents.
pub struct StatusFile {
    path: PathBuf,
    written: Option<(Status, Instant)>,
    /// The status in the frame before, without what is measured, and the places in it.
    before: Option<(Status, Places)>,
}

impl StatusFile {
    /// A file that does not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, written: None, before: None }
    }

    /// Writes the file if anything changed. The new file replaces the old one in one step, so that no reader gets half
    /// of it. Returns true if it has to be written again, because the last time was too recent or something still
    /// moves.
    pub fn write(&mut self, mut status: Status) -> bool {
        let moves = self.settle(&mut status);
        match &self.written {
            Some((before, _)) if *before == status => return moves,
            Some((_, when)) if when.elapsed() < EVERY => return true,
            _ => {}
        }
        let beside = self.path.with_extension("new");
        if let Ok(json) = serde_json::to_vec(&status) {
            // A test that waits for the file will notice that it does not appear.
            let _ = fs::write(&beside, json).and_then(|()| fs::rename(&beside, &self.path));
        }
        self.written = Some((status, Instant::now()));
        moves
    }

    /// Leaves out places that may be different in the next frame, as after every change, which reaches the parts of the
    /// window one by one. Returns true if any was left out.
    fn settle(&mut self, status: &mut Status) -> bool {
        let places = std::mem::take(&mut status.places);
        let (dispatches, times) = (Dispatches::default(), Times::default());
        let rest = Status { frames: 0, dispatches, between_ms: times, work_ms: times, ..status.clone() };
        let before = self.before.replace((rest.clone(), places.clone())).filter(|(before, _)| *before == rest);
        let count = places.of.len();
        status.places = places;
        status
            .places
            .of
            .retain(|name, place| before.as_ref().is_some_and(|(_, before)| before.of.get(name) == Some(place)));
        status.places.of.len() < count
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use eframe::egui::{pos2, vec2};

    fn status(typed: &str, at: f32) -> Status {
        let mut places = Places { scale: 1.0, ..Places::new(true) };
        places.note("here", Rect::from_min_size(pos2(at, 0.0), vec2(2.0, 2.0)));
        Status { typed: typed.into(), places, ..Status::default() }
    }

    #[test]
    fn places_are_reported_once_nothing_moves() {
        let mut file = StatusFile::new(PathBuf::new());
        let mut settled = |typed, at| {
            let mut status = status(typed, at);
            let moves = file.settle(&mut status);
            assert_eq!(moves, status.places.of.is_empty());
            !moves
        };
        assert!(!settled("", 0.0));
        assert!(settled("", 0.0));
        assert!(!settled("owl", 0.0), "the effects of the change may appear later");
        assert!(!settled("owl", 9.0), "it moved");
        assert!(settled("owl", 9.0));
    }
}
