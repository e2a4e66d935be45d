//! The status line at the bottom: the model, the cache, the speed, the frames.

use crate::frames::Frames;
use crate::pending::Pending;
use crate::protocol::Loaded;
use eframe::egui::{Label, ProgressBar, RichText, Ui, vec2};
use wglm::Stats;

/// The contents of the status line.
pub struct Bar<'a> {
    pub loaded: Option<&'a Loaded>,
    /// The number of tokens that the conversation takes.
    pub tokens: usize,
    pub pending: Option<&'a Pending>,
    /// The statistics of the last reply.
    pub stats: Option<&'a Stats>,
    /// The frames, if their times are to be shown.
    pub frames: Option<&'a Frames>,
}

impl Bar<'_> {
    /// Shows the line.
    pub fn show(&self, ui: &mut Ui) {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 12.0;
            match self.loaded {
                Some(loaded) => self.cache(ui, loaded),
                None => small(ui, "No model loaded"),
            }
            if let Some(prompt) = self.stats.map(|stats| stats.prompt) {
                small(ui, format!("Prompt: {} tokens cached, {} computed", prompt.cached, prompt.new));
            }
            if let Some(speed) = self.speed() {
                small(ui, speed);
            }
            if let Some(frames) = self.frames.filter(|frames| frames.count() > 0) {
                let (between, work) = (frames.between(), frames.work());
                let text = format!("Frames: {:.0} / {:.0} / {:.0} ms", between.p50, between.p95, between.max);
                let hint = format!(
                    "Time between the last {} frames of an animation: median / 95th percentile / maximum.\n\
                     Time that the window itself spent on a frame: {:.1} / {:.1} / {:.1} ms",
                    frames.count(),
                    work.p50,
                    work.p95,
                    work.max
                );
                ui.add(whole(RichText::new(text).weak())).on_hover_text(hint);
            }
        });
    }

    fn cache(&self, ui: &mut Ui, loaded: &Loaded) {
        small(ui, &loaded.name);
        let share = self.tokens as f32 / loaded.context.max(1) as f32;
        ui.add(ProgressBar::new(share).desired_width(70.0).desired_height(8.0));
        ui.spacing_mut().interact_size = vec2(0.0, 0.0);
        let text = RichText::new(format!("{} of {} tokens", self.tokens, loaded.context));
        let full = self.tokens > loaded.context;
        let text = if full { text.color(ui.visuals().error_fg_color) } else { text.weak() };
        ui.add(whole(text))
            .on_hover_text("The context that this conversation takes, with the message that you are writing");
    }

    fn speed(&self) -> Option<String> {
        match (self.pending, self.stats) {
            (Some(pending), _) => pending.speed().map(|speed| format!("about {speed:.0} tokens/s")),
            (None, Some(stats)) => {
                let guessed = match stats.drafts.accepted {
                    0 => String::new(),
                    right => {
                        let gain = stats.draft_gain().map_or(String::new(), |gain| format!(" ({gain:.1}x)"));
                        format!(", {right} of them predicted{gain}")
                    }
                };
                Some(format!("{} tokens, {:.0} tokens/s{guessed}", stats.generated, stats.speed()))
            }
            (None, None) => None,
        }
    }
}

fn small(ui: &mut Ui, text: impl Into<String>) {
    ui.add(whole(RichText::new(text).weak()));
}

/// A label that moves to the next line as a whole.
fn whole(text: RichText) -> Label {
    Label::new(text.small()).extend()
}

#[cfg(test)]
mod tests {
    use super::{Bar, Loaded, Pending, Stats};
    use eframe::egui::{Context, Pos2, RawInput, Rect, Shape, vec2};
    use wglm::{SamplerParams, Stop};

    #[test]
    fn in_a_narrow_window_no_part_is_broken() {
        let (name, sampling) = ("demonstration model".into(), SamplerParams::default());
        let loaded = Loaded { name, context: 4096, sampling, first_tuning: None };
        let stats = Stats::new(Stop::End);
        let (loaded, stats, pending) = (Some(&loaded), Some(&stats), None::<&Pending>);
        let context = Context::default();
        for width in [300.0, 360.0, 420.0, 480.0] {
            let screen_rect = Some(Rect::from_min_size(Pos2::ZERO, vec2(width, 200.0)));
            let mut output = context.run_ui(RawInput { screen_rect, ..RawInput::default() }, |ui| {
                Bar { loaded, tokens: 120, pending, stats, frames: None }.show(ui);
            });
            output.textures_delta.clear(); // nothing is drawn here
            let texts: Vec<_> = output
                .shapes
                .iter()
                .filter_map(|shape| match &shape.shape {
                    Shape::Text(text) => Some((
                        text.galley.text().to_owned(),
                        text.galley.rows.len(),
                        text.visual_bounding_rect().right(),
                    )),
                    _ => None,
                })
                .collect();
            assert!(texts.iter().all(|(_, rows, right)| *rows == 1 && *right <= width), "{texts:?}");
            assert_eq!(texts.len(), 4, "{texts:?}");
        }
    }
}
