//! How the window looks, and what it shows for those who develop it: chosen in the settings, and kept in a file for the
//! next start.

use crate::status::Places;
use eframe::egui::{ThemePreference, Ui};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::{fs, io};

/// The name of the file, in the folder of the conversations. Theirs end in `.json`.
const FILE: &str = "appearance";

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
    /// Those that the system has at the moment.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    const ALL: [(Self, &str); 3] = [(Self::System, "System"), (Self::Light, "Light"), (Self::Dark, "Dark")];
}

impl Appearance {
    /// Reads what was chosen last. A file that is missing or damaged has chosen nothing.
    pub fn read(folder: &std::path::Path) -> Self {
        let file = folder.join(FILE);
        let read = fs::read(&file).ok().and_then(|json| serde_json::from_slice(&json).ok());
        Self { file, ..read.unwrap_or_default() }
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

    /// Writes the file. At any time it is either the old one or the new one.
    fn write(&self) -> io::Result<()> {
        let beside = self.file.with_extension("new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(&beside, &self.file)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Appearance, FILE, Theme, ThemePreference, fs};

    #[test]
    fn what_is_chosen_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut appearance = Appearance::read(folder.path());
        assert_eq!((appearance.theme(), appearance.frame_times), (ThemePreference::System, false));
        (appearance.theme, appearance.frame_times) = (Theme::Dark, true);
        appearance.write().unwrap();
        assert_eq!(Appearance::read(folder.path()), appearance);
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), r#"{"theme":"dark","frame_times":true}"#);
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(Appearance::read(folder.path()).theme(), ThemePreference::System);
    }
}
