//! The row of a model that is being downloaded.

use crate::fetch::{Fetch, Known};
use crate::shop::Action;
use crate::status::Places;
use crate::{look, rate, row};
use eframe::egui::{Button, ProgressBar, RichText, Ui, vec2};
use wglm::download::PullStage;

/// Shows the progress of a download, with the buttons that end it.
pub fn show(ui: &mut Ui, fetch: &Fetch, places: &mut Places) -> Option<Action> {
    row::frame(ui, |ui| {
        ui.strong(fetch.name());
        let text = words(&fetch.known());
        ui.add(ProgressBar::new(fetch.share()).desired_height(10.0));
        ui.label(RichText::new(text).small());
        let mut action = None;
        ui.horizontal_wrapped(|ui| {
            if fetch.is_ending() {
                ui.weak("Stopping …");
                return;
            }
            for (name, does) in [("Pause", Action::Pause), ("Cancel", Action::Cancel)] {
                let button = ui.add(Button::new(name).min_size(vec2(row::BUTTON, 24.0)));
                places.note(if name == "Pause" { "pause" } else { "cancel fetch" }, button.rect);
                if button.clicked() {
                    action = Some(does);
                }
            }
            ui.label(RichText::new("Pause keeps the partial download; Cancel deletes it.").small().weak());
        });
        action
    })
}

/// The progress in words.
fn words(known: &Known) -> String {
    let Some(progress) = &known.progress else { return "Connecting".into() };
    let of = format!("{} of {}", look::bytes(progress.done), look::bytes(progress.total));
    if let Some(trouble) = &progress.trouble {
        return format!("{of}  ·  {trouble}; retrying");
    }
    if progress.stage == PullStage::Checking {
        return format!("Checking the downloaded files: {of}");
    }
    let speed = known.rate.speed().map(|speed| format!("  ·  {}/s", look::bytes(speed as u64)));
    let left = known.rate.left(progress.total.saturating_sub(progress.done));
    let left = left.map(|time| format!("  ·  {} left", rate::words(time)));
    format!("{of}{}{}", speed.unwrap_or_default(), left.unwrap_or_default())
}
