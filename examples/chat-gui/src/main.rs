//! A native chat window whose frames are drawn on the device that wglm computes on.
//!
//! `main` opens the window. [`app`] is its contents, with a module for each part. [`worker`] is the thread on which
//! wglm runs, and [`protocol`] defines the messages between the two. The window never waits for the worker.

mod access;
mod app;
mod appearance;
mod bar;
mod chats;
mod composer;
mod conversation;
mod count;
mod device;
mod engine;
mod export;
mod export_row;
mod fetch;
mod fetch_row;
mod file_row;
mod files;
mod fonts;
mod frames;
mod json_field;
mod last_model;
mod list;
mod listing;
mod look;
mod markdown;
mod message_tools;
mod messages;
mod pages;
mod pending;
mod picker;
mod presets;
mod protocol;
mod rate;
mod restart;
mod results;
mod row;
mod saver;
mod search;
mod settings;
mod shelf;
mod shop;
mod shop_row;
mod status;
mod store;
mod structure;
mod surface;
mod task;
mod tree;
mod tunings;
mod turns;
mod verdict;
mod worker;

use clap::Parser;
use directories::ProjectDirs;
use eframe::UserEvent;
use eframe::egui::ViewportBuilder;
use protocol::Source;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use winit::event_loop::EventLoop;

/// A chat window for wglm.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// A GGUF file to load at the start.
    file: Option<PathBuf>,
    /// Load the demonstration model at the start.
    #[arg(long, conflicts_with = "file")]
    demo: bool,
    /// Context length in tokens; 0 for the longest that the model supports.
    #[arg(short, long)]
    context: Option<usize>,
    /// Temperature of new conversations, instead of the one that the model's makers recommend; 0 always takes the most
    /// likely token.
    #[arg(long)]
    temperature: Option<f32>,
    /// The folder for conversations [default: the platform's folder for application data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// At the first start, tune for this many seconds, as on a GPU that wglm has no measurements of; for tests.
    #[arg(long, value_name = "SECONDS", hide = true)]
    first_tuning: Option<f32>,
    /// Keep a JSON file that reports what the window shows, and where; for tests.
    #[arg(long, value_name = "FILE")]
    status: Option<PathBuf>,
    /// The conversation in which to ask again; the program passes it when it restarts itself after losing its GPU.
    #[arg(long, hide = true, value_name = "ID")]
    after_loss: Option<String>,
}

impl Args {
    fn start(self) -> anyhow::Result<app::Start> {
        let data = self.data.map_or_else(usual_folder, Ok)?;
        let (temperature, status, allowed) = (self.temperature, self.status, self.after_loss.is_none());
        Ok(app::Start {
            source: self.file.map(Source::File).or(self.demo.then_some(Source::Demo)),
            context: self.context,
            again: self.after_loss,
            first_tuning: self.first_tuning,
            restart: restart::Restart { data, temperature, status, allowed },
        })
    }
}

fn main() -> anyhow::Result<()> {
    #[cfg(target_os = "macos")]
    relax_the_watchdog();
    let (start, surface) = (Args::parse().start()?, surface::Surface::default());
    let options = eframe::NativeOptions {
        viewport: ViewportBuilder::default()
            .with_title("wglm chat")
            .with_inner_size([1100.0, 760.0])
            .with_min_inner_size([400.0, 360.0])
            .with_icon(eframe::icon_data::from_png_bytes(include_bytes!("../package/icon-256.png"))?),
        renderer: eframe::Renderer::Wgpu,
        wgpu_options: device::setup(&surface),
        system_font_fallback: false, // `fonts` does that
        dithering: false,            // only gradients need it, and there are none
        ..Default::default()
    };
    let event_loop = EventLoop::<UserEvent>::with_user_event().build()?;
    let (failure, ours) = (Rc::default(), surface.clone());
    let failed: Rc<RefCell<Option<anyhow::Error>>> = Rc::clone(&failure);
    let create = move |context: &eframe::CreationContext<'_>| match app::App::new(context, start, ours) {
        Ok(app) => Ok(Box::new(app) as Box<dyn eframe::App>),
        Err(error) => {
            let text = error.to_string();
            failed.replace(Some(error)); // eframe only logs it
            Err(text.into())
        }
    };
    let app = eframe::create_native("wglm-chat", options, Box::new(create), &event_loop);
    event_loop.run_app(&mut surface::Guarded { app, surface })?;
    failure.take().map_or(Ok(()), Err)
}

/// Makes macOS more patient with GPU work that keeps the screen waiting: see wglm's guide, "A lost device".
#[cfg(target_os = "macos")]
fn relax_the_watchdog() {
    const NAME: &str = "AGX_RELAX_CDM_CTXSTORE_TIMEOUT";
    if std::env::var_os(NAME).is_none() {
        // SAFETY: `main` does this first, when the process has no other thread that could read the environment.
        unsafe { std::env::set_var(NAME, "1") };
    }
}

fn usual_folder() -> anyhow::Result<PathBuf> {
    let folders = ProjectDirs::from("", "", "wglm-chat");
    let folders = folders
        .ok_or_else(|| anyhow::anyhow!("there is no home folder: name one for the conversations with --data"))?;
    Ok(folders.data_dir().to_owned())
}
