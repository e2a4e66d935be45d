//! The row of a repository from which nothing is being downloaded.

use crate::listing::Listing;
use crate::shop::{Action, Row, State};
use crate::status::Places;
use crate::{look, row, verdict};
use eframe::egui::{ComboBox, RichText, Ui};

/// Shows a repository: the model to download, and the button that does. `can_open` and `can_fetch` say whether a model
/// can be opened, and whether another download can begin.
pub fn show(ui: &mut Ui, row: &mut Row, can_open: bool, can_fetch: bool, places: &mut Places) -> Option<Action> {
    let name = row.name.repo.to_string();
    let Row { state, outcome, about, .. } = row;
    let (text, enabled) = button(state, can_open, can_fetch);
    let mut cancelled = false;
    let pressed = row::show(ui, &name, text, enabled, |ui| {
        if !about.is_empty() {
            ui.label(RichText::new(about.as_str()).small().weak());
        }
        match state {
            State::Unknown => {}
            State::Asked(_) => {
                ui.horizontal(|ui| {
                    ui.spinner();
                    ui.label(RichText::new("Looking for what fits this machine").small().weak());
                });
            }
            State::Failed(error) => fail(ui, error),
            State::Known(listing) => cancelled = known(ui, &name, listing, can_fetch, places),
        }
        match outcome {
            Some(Ok(news)) => drop(ui.label(RichText::new(*news).small())),
            Some(Err(error)) => fail(ui, error),
            None => {}
        }
    });
    places.note(format!("{} {name}", text.to_lowercase()), pressed.rect);
    match (pressed.clicked(), &row.state) {
        (false, _) => cancelled.then_some(Action::Cancel),
        (true, State::Known(listing)) if listing.offer().is_some() => Some(Action::Get),
        (true, _) => Some(Action::Ask),
    }
}

/// What the button says, and whether it can be pressed.
fn button(state: &State, can_open: bool, can_fetch: bool) -> (&'static str, bool) {
    let State::Known(listing) = state else {
        return match state {
            State::Failed(_) => ("Try again", true),
            State::Unknown => ("Browse", true),
            _ => ("Download", false),
        };
    };
    let Some(offer) = listing.offer() else { return ("Browse", true) };
    let runs = offer.judged.may_fit();
    match listing.here() {
        0 => ("Download", can_fetch && runs),
        here if here >= offer.bytes => ("Open", can_fetch && can_open && runs),
        _ => ("Resume", can_fetch),
    }
}

/// Shows the models of a repository. True if the user deletes an unfinished download.
fn known(ui: &mut Ui, name: &str, listing: &mut Listing, can_fetch: bool, places: &mut Places) -> bool {
    listing.trouble.iter().for_each(|trouble| fail(ui, trouble));
    if listing.models.is_empty() {
        fail(ui, "This repository has no GGUF file.");
        return false;
    }
    ui.horizontal_wrapped(|ui| {
        let shown = listing.models.get(listing.shown).map_or("", |offer| offer.model.label.as_str());
        ui.name_inputs(format!("Quantization of {name}"), |ui| {
            ComboBox::from_id_salt(name).selected_text(shown).show_ui(ui, |ui| {
                for (place, offer) in listing.models.iter().enumerate() {
                    let mark = if offer.chosen { ", recommended for this machine" } else { "" };
                    let text = format!("{}, {}{mark}", offer.model.label, look::bytes(offer.bytes));
                    ui.selectable_value(&mut listing.shown, place, text);
                }
            });
        });
        if let Some(offer) = listing.models.get(listing.shown) {
            verdict::show(ui, offer.bytes, &offer.judged, None);
        }
    });
    unfinished(ui, name, listing, can_fetch, places)
}

/// Shows an unfinished download. True if the user deletes it.
fn unfinished(ui: &mut Ui, name: &str, listing: &Listing, can_fetch: bool, places: &mut Places) -> bool {
    let (here, whole) = (listing.here(), listing.offer().map_or(0, |offer| offer.bytes));
    if here == 0 || here >= whole {
        return false;
    }
    let cancel = ui.horizontal_wrapped(|ui| {
        let text = format!("{} of {} downloaded.", look::bytes(here), look::bytes(whole));
        ui.label(RichText::new(text).small());
        let cancel = ui.add_enabled(can_fetch, look::small("Cancel"));
        ui.label(RichText::new("deletes the partial download.").small().weak());
        cancel
    });
    places.note(format!("cancel {name}"), cancel.inner.rect);
    cancel.inner.clicked()
}

fn fail(ui: &mut Ui, text: &str) {
    ui.label(RichText::new(text).small().color(ui.visuals().error_fg_color));
}

/// A repository in words, for tests.
pub fn words(row: &Row) -> String {
    let name = &row.name.repo;
    let outcome = row
        .outcome
        .as_ref()
        .map(|outcome| format!(" {}", outcome.as_deref().unwrap_or_else(String::as_str)))
        .unwrap_or_default();
    match &row.state {
        State::Unknown => format!("{name}: unknown{outcome}"),
        State::Asked(_) => format!("{name}: asked{outcome}"),
        State::Failed(error) => format!("{name}: {error}{outcome}"),
        State::Known(listing) => match listing.offer() {
            None => format!("{name}: nothing{outcome}"),
            Some(offer) => {
                let (label, here) = (&offer.model.label, listing.here());
                format!("{name}: {label}, {here} of {} here, {}{outcome}", offer.bytes, verdict::words(&offer.judged))
            }
        },
    }
}
