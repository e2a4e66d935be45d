//! How the window looks, and what it shows to developers. The user chooses it in the settings, and it is saved in a
//! file for the next start.

use crate::files;
use crate::status::Places;
use eframe::egui::{ThemePreference, Ui};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// What is chosen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Appearance {
    theme: Theme,
    /// Whether the status line shows the times between frames.
    pub frame_times: bool,
    #[serde(skip)]
    file: PathBuf,
}

/// The colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Theme {
    /// The system's current ones.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    const ALL: [(Self, &str); 3] = [(Self::System, "System"), (Self::Light, "Light"), (Self::Dark, "Dark")];
}

impl Appearance {
    /// Reads the last choices, and returns a message if the file is damaged.
    pub fn read(file: PathBuf) -> (Self, Option<String>) {
        let (read, damaged) = files::read_or_put_aside(&file);
        (Self { file, ..read }, damaged)
    }

    /// The theme, as egui knows it.
    pub fn theme(&self) -> ThemePreference {
        match self.theme {
            Theme::System => ThemePreference::System,
            Theme::Light => ThemePreference::Light,
            Theme::Dark => ThemePreference::Dark,
        }
    }

    /// Shows the choices. Changes take effect at once, and are written to the file.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn show(&mut self, ui: &mut Ui, places: &mut Places) -> io::Result<()> {
        let before = self.clone();
        ui.separator();
        ui.label("Theme");
        ui.horizontal(|ui| {
            for (theme, name) in Theme::ALL {
                let choice = ui.selectable_value(&mut self.theme, theme, name);
                places.note(format!("theme {}", name.to_lowercase()), choice.rect);
            }
        });
        ui.add_space(10.0);
        let debug = ui.checkbox(&mut self.frame_times, "Show frame times");
        places.note("frame times", debug.rect);
        debug.on_hover_text("For debugging: shows in the status line how long the window takes to draw");
        if *self == before {
            return Ok(());
        }
        ui.ctx().set_theme(self.theme());
        ui.ctx().request_repaint(); // this frame is half drawn in the other theme
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        files::replace(&self.file, &serde_json::to_vec(self)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Appearance, Places, Theme, ThemePreference};
    use eframe::egui::{self, Context, Event, Modifiers, PointerButton, Pos2, RawInput, Rect, ViewportId, pos2, vec2};
    use std::fs;
    use std::time::Duration;

    /// Otherwise a part of the window would keep the colours of the old theme until the mouse moves.
    #[test]
    fn a_new_theme_is_drawn_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (mut appearance, _) = Appearance::read(folder.path().join("appearance.json"));
        let (context, mut places) = (Context::default(), Places::new(true));
        let mut frame = |events| {
            let screen_rect = Some(Rect::from_min_size(Pos2::ZERO, vec2(400.0, 300.0)));
            let input = RawInput { screen_rect, events, ..RawInput::default() };
            let output = context.run_ui(input, |ui| {
                places.clear(ui.ctx());
                appearance.show(ui, &mut places).unwrap();
            });
            let delay = output.viewport_output[&ViewportId::ROOT].repaint_delay;
            output.drop_without_applying_deltas();
            let dark = serde_json::to_value(&places).unwrap()["theme dark"].clone();
            (pos2(dark[0].as_f64().unwrap() as f32, dark[1].as_f64().unwrap() as f32), delay)
        };
        let (pos, _) = frame(vec![]);
        frame(vec![Event::PointerMoved(pos)]);
        let button = |pressed| {
            let (button, modifiers) = (PointerButton::Primary, Modifiers::NONE);
            Event::PointerButton { pos, button, pressed, modifiers }
        };
        frame(vec![button(true)]);
        let (_, delay) = frame(vec![button(false)]);
        assert_eq!((delay, context.theme()), (Duration::ZERO, egui::Theme::Dark));
    }

    #[test]
    fn what_is_chosen_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("appearance.json");
        let (mut appearance, _) = Appearance::read(file.clone());
        assert_eq!((appearance.theme(), appearance.frame_times), (ThemePreference::System, false));
        (appearance.theme, appearance.frame_times) = (Theme::Dark, true);
        appearance.write().unwrap();
        assert_eq!(Appearance::read(file.clone()), (appearance, None));
        assert_eq!(fs::read_to_string(&file).unwrap(), r#"{"theme":"dark","frame_times":true}"#);
        fs::write(&file, "{").unwrap();
        let (damaged, notice) = Appearance::read(file);
        assert_eq!(damaged.theme(), ThemePreference::System);
        assert!(notice.unwrap().contains("appearance.json.damaged"));
    }
}
