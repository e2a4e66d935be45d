//! A row of a list of models: its name over a line about it, and a button at the right, which stays in sight in narrow
//! windows.

use eframe::egui::{Align, Button, Frame, Label, Layout, Response, RichText, Ui, vec2};

/// The width of the button.
pub const BUTTON: f32 = 90.0;

/// Shows a row, and returns its button.
pub fn show(ui: &mut Ui, name: &str, button: &str, enabled: bool, about: impl FnOnce(&mut Ui)) -> Response {
    frame(ui, |ui| {
        ui.horizontal_top(|ui| {
            let width = (ui.available_width() - BUTTON - ui.spacing().item_spacing.x).max(0.0);
            ui.allocate_ui_with_layout(vec2(width, 0.0), Layout::top_down(Align::Min), |ui| {
                ui.set_width(width);
                ui.add(Label::new(RichText::new(name).strong()).truncate());
                about(ui);
            });
            ui.add_enabled(enabled, Button::new(button).min_size(vec2(BUTTON, 28.0)))
        })
        .inner
    })
}

/// Draws a frame around a row.
pub fn frame<R>(ui: &mut Ui, contents: impl FnOnce(&mut Ui) -> R) -> R {
    let frame = Frame::group(ui.style()).inner_margin(8.0);
    let shown = frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = 3.0;
        contents(ui)
    });
    ui.add_space(2.0);
    shown.inner
}
