//! What the window shows, for tests: a file of JSON that is written anew when something changes.

use crate::frames::{Dispatches, Times};
use eframe::egui::{Context, Rect};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The least time between two writes.
const EVERY: Duration = Duration::from_millis(50);

/// Where what can be clicked is: the middle of it, in pixels from the window's corner.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Places {
    #[serde(skip)]
    scale: f32,
    #[serde(flatten)]
    of: BTreeMap<&'static str, [f32; 2]>,
}

impl Places {
    /// Begins a frame.
    pub fn clear(&mut self, context: &Context) {
        self.scale = context.pixels_per_point();
        self.of.clear();
    }

    /// Notes where something is.
    pub fn note(&mut self, name: &'static str, rect: Rect) {
        let middle = rect.center() * self.scale;
        self.of.insert(name, [middle.x, middle.y]);
    }
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The name of the model that is there.
    pub model: Option<String>,
    /// Whether the model that is picked can be loaded: its estimate is shown.
    pub estimated: bool,
    pub loading: bool,
    pub replying: bool,
    /// Their names.
    pub conversations: Vec<String>,
    /// The open one's system prompt.
    pub system: String,
    /// What the open conversation's messages say.
    pub messages: Vec<String>,
    /// What has come of the reply on its way, thinking and answer.
    pub pending: String,
    pub held: usize,
    /// The last reply's prompt and its length, in tokens, and how it ended.
    pub cached: Option<usize>,
    pub new: Option<usize>,
    pub generated: Option<usize>,
    pub stop: Option<String>,
    /// What went wrong or is to be known.
    pub notices: Vec<String>,
    pub frames: usize,
    pub dispatches: Dispatches,
    pub between_ms: Times,
    pub work_ms: Times,
    pub places: Places,
}

/// The file.
pub struct StatusFile {
    path: PathBuf,
    written: Option<(Status, Instant)>,
}

impl StatusFile {
    /// That is not there yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, written: None }
    }

    /// Writes what is new. It takes its place at once, so that nobody reads half of it. True if it has yet to be
    /// written, for it has just been.
    pub fn write(&mut self, status: Status) -> bool {
        match &self.written {
            Some((before, _)) if *before == status => return false,
            Some((_, when)) if when.elapsed() < EVERY => return true,
            _ => {}
        }
        let beside = self.path.with_extension("new");
        if let Ok(json) = serde_json::to_vec(&status) {
            // Whoever waits for the file learns that it does not come.
            let _ = fs::write(&beside, json).and_then(|()| fs::rename(&beside, &self.path));
        }
        self.written = Some((status, Instant::now()));
        false
    }
}
