//! The memory that a model needs, as a table.

use crate::look;
use eframe::egui::{Grid, Ui};
use wglm::{Estimate, Fit};

/// Shows how much memory a model needs, and whether that much is available.
pub fn show(ui: &mut Ui, estimate: &Estimate) {
    Grid::new("estimate").num_columns(2).spacing([24.0, 4.0]).show(ui, |ui| {
        let cache = format!("{} for {} tokens", look::bytes(estimate.cache), estimate.shape.context);
        for (name, value) in [
            ("Weights", look::bytes(estimate.weights)),
            ("Cache of the conversation", cache),
            ("To compute with", look::bytes(estimate.scratch)),
            ("At most at once", look::bytes(estimate.most())),
        ] {
            ui.label(name);
            ui.label(value);
            ui.end_row();
        }
    });
    let (text, good) = verdict(&estimate.fit);
    let colour = if good { ui.visuals().text_color() } else { ui.visuals().error_fg_color };
    ui.colored_label(colour, text);
}

fn verdict(fit: &Fit) -> (String, bool) {
    match fit {
        Fit::Fits => ("It fits.".into(), true),
        Fit::Memory { needed, available } => {
            let (needed, available) = (look::bytes(*needed), look::bytes(*available));
            (
                format!("It needs {needed}, but there are {available}: shorten the context or take a smaller file."),
                false,
            )
        }
        Fit::Context { bytes, allowed, most } => {
            let (bytes, allowed) = (look::bytes(*bytes), look::bytes(*allowed));
            (
                format!("The context needs {bytes} per layer, this GPU allows {allowed}: at most {most} tokens fit."),
                false,
            )
        }
        Fit::Piece { tensor, bytes, limit, allowed } => {
            let (bytes, allowed) = (look::bytes(*bytes), look::bytes(*allowed));
            (format!("{tensor} needs {bytes} in one piece, this GPU allows {allowed} ({limit})."), false)
        }
        _ => ("Whether it fits is not known: the device does not tell how much memory it has.".into(), true),
    }
}
