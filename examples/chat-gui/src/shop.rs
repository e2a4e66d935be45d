//! The models that can be downloaded from the hub, and the download of one of them.

use crate::fetch::{End, Fetch, How};
use crate::listing::{self, Listing};
use crate::protocol::Source;
use crate::status::Places;
use crate::task::Task;
use crate::{access, fetch_row, look, row, shop_row};
use eframe::egui::{Button, Context, Key, TextEdit, Ui, vec2};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wglm::Gpu;
use wglm::catalog::ModelName;
use wglm::download::HubOptions;
use wglm::offers::{Recommended, recommended};

/// The longest time that a closing window waits for a download to end. Nothing is lost if it takes longer.
const LONGEST: Duration = Duration::from_secs(2);

/// The models that can be downloaded.
pub struct Shop {
    gpu: Gpu,
    /// The host name of the hub.
    host: String,
    rows: Vec<Row>,
    fetch: Option<Fetch>,
    /// The name of a repository that the user types, and the error in it.
    typed: String,
    wrong: Option<String>,
}

/// A repository.
pub struct Row {
    pub name: ModelName,
    /// A short description.
    pub about: String,
    /// Whether none of its models is likely to fit.
    large: bool,
    pub state: State,
    /// How the last download ended, or why it failed.
    pub outcome: Option<Result<&'static str, String>>,
}

/// What is known of a repository.
pub enum State {
    /// The hub was not asked yet.
    Unknown,
    Asked(Task<Result<Listing, String>>),
    Failed(String),
    Known(Box<Listing>),
}

/// An action of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask which models the repository has.
    Ask,
    /// Download the model that is shown, or open it if it is here.
    Get,
    Pause,
    /// End the download, and delete its bytes.
    Cancel,
}

/// A download, for tests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fetching {
    pub name: String,
    pub done: u64,
    pub total: u64,
}

impl Shop {
    /// The recommended repositories.
    pub fn new(gpu: Gpu) -> Self {
        let endpoint = HubOptions::default().endpoint;
        let host = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, host)| host).to_owned();
        let memory = gpu.report().memory;
        let row = |it: Recommended| {
            let large = memory.is_some_and(|memory| memory < it.memory);
            let needs = format!("; needs at least {} of memory", look::bytes(it.memory));
            let about = format!("{}{}", it.about, if large { &needs } else { "" });
            Some(Row { large, ..Row::new(it.name, about)? })
        };
        let rows = recommended(None).filter_map(row).collect();
        Self { gpu, host, rows, fetch: None, typed: String::new(), wrong: None }
    }

    /// Adds repositories that have an unfinished download, and asks which models they have.
    pub fn add_unfinished(&mut self, window: &Context, names: Vec<String>) {
        for name in names {
            let place = self.place(&name).or_else(|| {
                self.rows.insert(0, Row::new(&name, "An unfinished download".to_owned())?);
                Some(0)
            });
            if let Some(row) = place.map(|place| &mut self.rows[place]).filter(|row| row.is_unknown()) {
                row.ask(window, &self.gpu);
            }
        }
    }

    /// Asks which models the other repositories have, except those that are too large for this machine.
    pub fn ask(&mut self, window: &Context) {
        let worth_it = |row: &&mut Row| row.is_unknown() && !row.large;
        self.rows.iter_mut().filter(worth_it).for_each(|row| row.ask(window, &self.gpu));
    }

    /// Takes results that have arrived. Returns a model that was downloaded.
    pub fn receive(&mut self) -> Option<Source> {
        self.rows.iter_mut().for_each(Row::receive);
        let end = self.fetch.as_ref()?.end()?;
        let fetch = self.fetch.take()?;
        let row = self.place(&fetch.repo).map(|place| &mut self.rows[place])?;
        row.ended(&fetch.label, end).map(|file| Source::Model(fetch.name(), file))
    }

    /// The download that is under way.
    pub fn fetch(&self) -> Option<&Fetch> {
        self.fetch.as_ref()
    }

    /// Pauses a download that is under way, and waits a moment for its end.
    pub fn end(&mut self) {
        let Some(fetch) = self.fetch.take() else { return };
        fetch.pause();
        let start = Instant::now();
        while fetch.end().is_none() && start.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The repositories and the download, in words for tests.
    pub fn words(&self) -> (Vec<String>, Option<Fetching>) {
        let fetching = self.fetch.as_ref().map(|fetch| {
            let known = fetch.known();
            let (done, total) = known.progress.as_ref().map_or((0, 0), |it| (it.done, it.total));
            Fetching { name: fetch.name(), done, total }
        });
        (self.rows.iter().map(shop_row::words).collect(), fetching)
    }

    /// Shows the repositories. `can_open` says whether a model can be opened.
    pub fn show(&mut self, ui: &mut Ui, can_open: bool, places: &mut Places) {
        ui.horizontal_wrapped(|ui| {
            ui.label(format!("Download from {}", self.host));
            if self.rows.iter().any(|row| row.is_unknown() && !row.large) {
                let ask = ui.add(look::small("Find what fits this machine"));
                places.note("browse", ask.rect);
                if ask.clicked() {
                    self.ask(ui.ctx());
                }
            }
        });
        ui.add_space(2.0);
        let mut action = None;
        for (place, row) in self.rows.iter_mut().enumerate() {
            let fetch = self.fetch.as_ref().filter(|fetch| row.is(&fetch.repo));
            let asked = match fetch {
                Some(fetch) => fetch_row::show(ui, fetch, places),
                None => shop_row::show(ui, row, can_open, self.fetch.is_none(), places),
            };
            action = asked.map(|asked| (place, asked)).or(action);
        }
        self.another(ui, places);
        if let Some((place, action)) = action {
            self.act(ui.ctx(), place, action);
        }
    }

    fn act(&mut self, window: &Context, place: usize, action: Action) {
        let row = &mut self.rows[place];
        match action {
            Action::Ask => row.ask(window, &self.gpu),
            Action::Get => self.fetch = self.fetch.take().or_else(|| row.fetch(window)),
            Action::Pause => self.fetch.iter().for_each(Fetch::pause),
            Action::Cancel => match &self.fetch {
                Some(fetch) if row.is(&fetch.repo) => fetch.cancel(),
                // The remains of an earlier download are deleted by a new one that is cancelled before it begins.
                _ => self.fetch = self.fetch.take().or_else(|| row.fetch(window).inspect(Fetch::cancel)),
            },
        }
    }

    /// Shows the field for other repositories.
    fn another(&mut self, ui: &mut Ui, places: &mut Places) {
        ui.horizontal(|ui| {
            let width = ui.available_width() - row::BUTTON - ui.spacing().item_spacing.x;
            let hint = "Another repository: OWNER/REPO or OWNER/REPO:QUANT";
            let edit = TextEdit::singleline(&mut self.typed).desired_width(width).hint_text(hint);
            let edit = ui.add(edit);
            access::name(&edit, "Repository");
            places.note("repository", edit.rect);
            let enter = edit.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
            let ready = !self.typed.trim().is_empty();
            let button = ui.add_enabled(ready, Button::new("Browse").min_size(vec2(row::BUTTON, 0.0)));
            if ready && (button.clicked() || enter) {
                self.add(ui.ctx());
            }
        });
        if let Some(wrong) = &self.wrong {
            ui.colored_label(ui.visuals().error_fg_color, wrong);
        }
    }

    /// Adds the repository that the user typed.
    fn add(&mut self, window: &Context) {
        let name: ModelName = match self.typed.trim().parse() {
            Ok(name) => name,
            Err(error) => return self.wrong = Some(crate::fetch::sentence(&error)),
        };
        (self.wrong, self.typed) = (None, String::new());
        let place = self.place(&name.repo.to_string()).unwrap_or_else(|| {
            let (about, large, state, outcome) = (String::new(), false, State::Unknown, None);
            self.rows.push(Row { name: name.clone(), about, large, state, outcome });
            self.rows.len() - 1
        });
        self.rows[place].name = name;
        self.rows[place].ask(window, &self.gpu);
    }

    /// The row of a repository.
    fn place(&self, repo: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.is(repo))
    }
}

impl Row {
    /// The row of a repository, if its name is valid.
    fn new(name: &str, about: String) -> Option<Self> {
        Some(Self { name: name.parse().ok()?, about, large: false, state: State::Unknown, outcome: None })
    }

    fn is(&self, repo: &str) -> bool {
        self.name.repo.to_string().eq_ignore_ascii_case(repo)
    }

    fn is_unknown(&self) -> bool {
        matches!(self.state, State::Unknown)
    }

    fn ask(&mut self, window: &Context, gpu: &Gpu) {
        self.outcome = None;
        self.state = State::Asked(listing::ask(window, gpu, self.name.clone()));
    }

    fn receive(&mut self) {
        let State::Asked(task) = &self.state else { return };
        let Some(result) = task.result() else { return };
        self.state = match result.unwrap_or_else(|| Err("The request failed: its thread ended unexpectedly.".into())) {
            Ok(listing) => State::Known(Box::new(listing)),
            Err(error) => State::Failed(error),
        };
    }

    /// Begins to download the model that is shown.
    fn fetch(&mut self, window: &Context) -> Option<Fetch> {
        let State::Known(listing) = &self.state else { return None };
        let model = listing.offer()?.model.clone();
        self.outcome = None;
        Some(Fetch::start(window, listing.repository.clone(), model))
    }

    /// Notes how a download ended. Returns the file if the model is here.
    fn ended(&mut self, label: &str, end: End) -> Option<PathBuf> {
        if let State::Known(listing) = &mut self.state {
            let place = listing.models.iter().position(|offer| offer.model.label == label);
            place.into_iter().for_each(|place| listing.here[place] = end.here);
        }
        match end.how {
            How::Done(file) => return Some(file),
            How::Paused => {}
            How::Cancelled => self.outcome = Some(Ok("Cancelled. The partial download was deleted.")),
            How::Failed(error) => self.outcome = Some(Err(error)),
        }
        None
    }
}
