//! Presets: named settings that can be chosen for a conversation. All of them are in one file.

use crate::access;
use crate::files;
use crate::look;
use crate::settings::Settings;
use crate::status::Places;
use eframe::egui::{ComboBox, Key, TextEdit, Ui};
use serde::{Deserialize, Serialize};
use std::io::Result;
use std::path::PathBuf;

/// Settings with a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Preset {
    name: String,
    settings: Settings,
}

/// The presets, in the order of their names.
pub struct Presets {
    path: PathBuf,
    list: Vec<Preset>,
    /// The name that is typed for a new preset.
    naming: Option<String>,
    /// Whether the user is asked to confirm the deletion of the chosen one.
    deleting: bool,
}

/// An action of the user.
enum Action {
    Choose(Option<String>),
    Save(String),
    Delete(String),
}

impl Presets {
    /// The presets of a file, and a message if it is damaged.
    pub fn read(path: PathBuf) -> (Self, Option<String>) {
        let (list, damaged) = files::read_or_put_aside(&path);
        (Self { path, list, naming: None, deleting: false }, damaged)
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|preset| preset.name.as_str())
    }

    /// Shows which preset the settings are from, with buttons to choose, save and delete one.
    ///
    /// # Errors
    /// If the presets were changed, but the file cannot be written.
    pub fn show(&mut self, ui: &mut Ui, settings: &mut Settings, places: &mut Places) -> Result<()> {
        let chosen = self.choice(ui, settings, places);
        let action = match &mut self.naming {
            Some(_) => self.name(ui, places),
            None => self.buttons(ui, settings, places),
        };
        match action.or(chosen) {
            None => Ok(()),
            Some(Action::Choose(name)) => {
                self.choose(name.as_deref(), settings);
                Ok(())
            }
            Some(Action::Save(name)) => self.save(&name, settings),
            Some(Action::Delete(name)) => self.delete(&name, settings),
        }
    }

    fn choice(&mut self, ui: &mut Ui, settings: &Settings, places: &mut Places) -> Option<Action> {
        let mut action = None;
        let shown = match &settings.preset {
            None => "None".to_owned(),
            Some(name) if self.differs(settings) => format!("{name} (changed)"),
            Some(name) => name.clone(),
        };
        let label = ui.label("Preset");
        let choice =
            ComboBox::from_id_salt("preset").width(ui.available_width()).selected_text(shown).show_ui(ui, |ui| {
                let none = ui.selectable_label(settings.preset.is_none(), "None");
                if none.clicked() {
                    action = Some(Action::Choose(None));
                }
                for name in self.names() {
                    let row = ui.selectable_label(settings.preset.as_deref() == Some(name), name);
                    places.note(format!("preset {name}"), row.rect);
                    if row.clicked() {
                        action = Some(Action::Choose(Some(name.to_owned())));
                    }
                }
            });
        places.note("presets", choice.response.labelled_by(label.id).rect);
        action
    }

    fn buttons(&mut self, ui: &mut Ui, settings: &Settings, places: &mut Places) -> Option<Action> {
        let mut action = None;
        ui.horizontal_wrapped(|ui| {
            let chosen = settings.preset.clone().filter(|name| self.find(name).is_some());
            if let Some(name) = chosen.clone().filter(|_| self.deleting) {
                let delete = ui.add(look::small("Delete for good"));
                places.note("really delete preset", delete.rect);
                let keep = ui.add(look::small("Keep"));
                self.deleting = !delete.clicked() && !keep.clicked();
                action = delete.clicked().then_some(Action::Delete(name));
                return;
            }
            let save = ui.add(look::small("Save as …")).on_hover_text("Save these settings under a name");
            places.note("save preset", save.rect);
            if save.clicked() {
                self.naming = Some(settings.preset.clone().unwrap_or_default());
            }
            let Some(name) = chosen else { return };
            if self.differs(settings) {
                let update = ui.add(look::small("Update")).on_hover_text(format!("Save these settings as {name}"));
                places.note("update preset", update.rect);
                action = update.clicked().then_some(Action::Save(name));
            }
            let delete = ui.add(look::small("Delete"));
            places.note("delete preset", delete.rect);
            self.deleting = delete.clicked();
        });
        action
    }

    /// The field for the name of a new preset. A preset that has this name is replaced.
    fn name(&mut self, ui: &mut Ui, places: &mut Places) -> Option<Action> {
        let typed = self.naming.as_mut()?;
        let field = TextEdit::singleline(typed).hint_text("Name").desired_width(f32::INFINITY);
        let field = ui.add(field);
        access::name(&field, "Name of the preset");
        places.note("preset name", field.rect);
        let name = typed.trim().to_owned();
        let there = self.list.iter().any(|preset| preset.name == name);
        let (mut save, mut leave) = (field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter)), false);
        ui.horizontal(|ui| {
            save |= ui.add(look::small(if there { "Replace" } else { "Save" })).clicked();
            leave = ui.add(look::small("Cancel")).clicked() || ui.input(|input| input.key_pressed(Key::Escape));
        });
        if leave || save && !name.is_empty() {
            self.naming = None;
        } else if ui.memory(|memory| memory.focused().is_none()) {
            field.request_focus();
        }
        (save && !leave && !name.is_empty()).then_some(Action::Save(name))
    }

    fn find(&self, name: &str) -> Option<&Preset> {
        self.list.iter().find(|preset| preset.name == name)
    }

    /// Whether settings differ from their preset.
    fn differs(&self, settings: &Settings) -> bool {
        let preset = settings.preset.as_deref().and_then(|name| self.find(name));
        preset.is_none_or(|preset| preset.settings != *settings)
    }

    /// Sets the settings to those of a preset. Without a name they stay as they are, and belong to no preset.
    fn choose(&mut self, name: Option<&str>, settings: &mut Settings) {
        self.deleting = false;
        match name.and_then(|name| self.find(name)) {
            Some(preset) => *settings = preset.settings.clone(),
            None => settings.preset = None,
        }
    }

    fn save(&mut self, name: &str, settings: &mut Settings) -> Result<()> {
        settings.preset = Some(name.to_owned());
        self.list.retain(|preset| preset.name != name);
        self.list.push(Preset { name: name.to_owned(), settings: settings.clone() });
        self.list.sort_by_cached_key(|preset| preset.name.to_lowercase());
        self.write()
    }

    fn delete(&mut self, name: &str, settings: &mut Settings) -> Result<()> {
        settings.preset = None;
        self.list.retain(|preset| preset.name != name);
        self.write()
    }

    fn write(&self) -> Result<()> {
        files::replace(&self.path, &serde_json::to_vec_pretty(&self.list)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Presets, Settings};

    #[test]
    fn presets_are_chosen_changed_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let read = || Presets::read(folder.path().join("presets.json")).0;
        let mut presets = read();
        let mut settings = Settings { system: "you are an owl".into(), ..Settings::default() };
        assert!(presets.differs(&settings));
        presets.save("owl", &mut settings).unwrap();
        assert!(!presets.differs(&settings));
        settings.sampling.temperature = 0.25;
        presets.save("Cold owl", &mut settings).unwrap();
        let mut presets = read();
        assert_eq!(presets.names().collect::<Vec<_>>(), ["Cold owl", "owl"]);

        let mut other = Settings::default();
        presets.choose(Some("Cold owl"), &mut other);
        assert_eq!(other, settings);
        other.sampling.temperature = 1.5;
        assert!(presets.differs(&other));
        presets.save("Cold owl", &mut other).unwrap();
        presets.choose(None, &mut other);
        assert_eq!((other.preset.as_deref(), other.sampling.temperature), (None, 1.5));
        presets.choose(Some("Cold owl"), &mut settings);
        assert_eq!(settings.sampling.temperature, 1.5, "it was updated");
        presets.delete("Cold owl", &mut settings).unwrap();
        assert_eq!(settings.preset, None);
        assert_eq!(read().names().collect::<Vec<_>>(), ["owl"]);
    }
}
