//! The status line at the bottom: the model, the cache, the speed, the frames.

use crate::frames::Frames;
use crate::pending::Pending;
use crate::protocol::Loaded;
use eframe::egui::{ProgressBar, RichText, Ui, vec2};
use wglm::Stats;

/// The contents of the status line.
pub struct Bar<'a> {
    pub loaded: Option<&'a Loaded>,
    /// The number of tokens in the cache.
    pub held: usize,
    pub pending: Option<&'a Pending>,
    /// The statistics of the last reply.
    pub stats: Option<&'a Stats>,
    pub frames: &'a Frames,
}

impl Bar<'_> {
    /// Shows the line.
    pub fn show(&self, ui: &mut Ui) {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 12.0;
            match self.loaded {
                Some(loaded) => self.cache(ui, loaded),
                None => small(ui, "no model"),
            }
            if let Some(prompt) = self.stats.map(|stats| stats.prompt) {
                small(ui, format!("prompt: {} cached, {} new", prompt.cached, prompt.new));
            }
            if let Some(speed) = self.speed() {
                small(ui, speed);
            }
            if self.frames.count() > 0 {
                let (between, work) = (self.frames.between(), self.frames.work());
                let text = format!("frames: {:.0} / {:.0} / {:.0} ms", between.p50, between.p95, between.max);
                let hint = format!(
                    "Time between the last {} frames in motion: half of them, 95 of 100, all of them were as fast.\n\
                     What the window itself worked of that: {:.1} / {:.1} / {:.1} ms",
                    self.frames.count(),
                    work.p50,
                    work.p95,
                    work.max
                );
                ui.label(RichText::new(text).small().weak()).on_hover_text(hint);
            }
        });
    }

    fn cache(&self, ui: &mut Ui, loaded: &Loaded) {
        small(ui, &loaded.name);
        let share = self.held as f32 / loaded.context.max(1) as f32;
        ui.add(ProgressBar::new(share).desired_width(70.0).desired_height(8.0));
        ui.spacing_mut().interact_size = vec2(0.0, 0.0);
        small(ui, format!("{} of {} tokens", self.held, loaded.context));
    }

    fn speed(&self) -> Option<String> {
        match (self.pending, self.stats) {
            (Some(pending), _) => pending.speed().map(|speed| format!("about {speed:.0} tokens/s")),
            (None, Some(stats)) => {
                let guessed = match stats.drafts.accepted {
                    0 => String::new(),
                    right => {
                        let gain = stats.draft_gain().map_or(String::new(), |gain| format!(" ({gain:.1}x)"));
                        format!(", {right} of them guessed{gain}")
                    }
                };
                Some(format!("{} tokens, {:.0} tokens/s{guessed}", stats.generated, stats.speed()))
            }
            (None, None) => None,
        }
    }
}

fn small(ui: &mut Ui, text: impl Into<String>) {
    ui.label(RichText::new(text).small().weak());
}
