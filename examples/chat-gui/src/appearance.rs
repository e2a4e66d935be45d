//! How the window looks, and what it shows to developers. The user chooses it in the settings, and it is kept in a file
//! for the next start.

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

    /// Shows the choices. What is changed takes effect at once, and is written to the file.
    ///
    /// # Errors
    /// Those of the file system.
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
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        files::replace(&self.file, &serde_json::to_vec(self)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Appearance, Theme, ThemePreference};
    use std::fs;

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
