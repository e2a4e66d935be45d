//! Whether a model fits this machine, in words, with a table of the memory that it needs.

use crate::look;
use eframe::egui::{Grid, RichText, Ui};
use wglm::Estimate;
use wglm::offers::Judged;

/// The verdict in words.
pub fn words(judged: &Judged) -> String {
    let why = judged.why_not.as_deref();
    match (judged.fits, why) {
        (Some(true), None) => "fits".into(),
        (Some(true), Some(condition)) => format!("fits {condition}"),
        (Some(false), why) => format!("does not run here: {}", why.unwrap_or("the reason is not known")),
        (None, None) => "not known whether it fits".into(),
        (None, Some(why)) => format!("not known whether it fits: {why}"),
    }
}

/// Shows the size of a model, its source, the memory that it needs and the verdict, on one line.
pub fn show(ui: &mut Ui, bytes: u64, judged: &Judged, source: Option<&str>) {
    let needs = judged.needs.map(|bytes| format!("needs {} of memory", look::bytes(bytes)));
    let parts = [Some(look::bytes(bytes)), source.map(str::to_owned), needs, Some(words(judged))];
    let line = parts.into_iter().flatten().collect::<Vec<_>>().join("  ·  ");
    let line = RichText::new(line).small();
    let line = if judged.may_fit() { line.weak() } else { line.color(ui.visuals().error_fg_color) };
    let line = ui.label(line);
    if let Some(estimate) = &judged.estimate {
        line.on_hover_ui(|ui| table(ui, estimate));
    }
}

/// Shows how much memory a model needs, and for what.
fn table(ui: &mut Ui, estimate: &Estimate) {
    Grid::new("estimate").num_columns(2).spacing([24.0, 4.0]).show(ui, |ui| {
        let cache = format!("{} for {} tokens", look::bytes(estimate.cache), estimate.shape.context);
        for (name, value) in [
            ("Weights", look::bytes(estimate.weights)),
            ("KV cache", cache),
            ("Working memory", look::bytes(estimate.scratch)),
            ("Peak", look::bytes(estimate.most())),
        ] {
            ui.label(name);
            ui.label(value);
            ui.end_row();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{Judged, words};

    #[test]
    fn verdicts_are_sentences() {
        let mut judged = Judged::default();
        assert_eq!(words(&judged), "not known whether it fits");
        judged.fits = Some(true);
        assert_eq!(words(&judged), "fits");
        judged.why_not = Some("with a context of at most 4096 tokens".into());
        assert_eq!(words(&judged), "fits with a context of at most 4096 tokens");
        assert_eq!(words(&Judged::unfit("not a GGUF file")), "does not run here: not a GGUF file");
    }
}
