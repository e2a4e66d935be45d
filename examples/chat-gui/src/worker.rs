//! The thread on which wglm runs, as the window sees it: commands go in, what is told comes out, nothing waits.

use crate::engine::Engine;
use crate::protocol::{Command, Told};
use crate::turns::Turns;
use eframe::egui::Context;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wglm::{Cancel, Gpu};

/// How long after something was told the window shows it at the latest: what comes faster than frames shares one.
const SOON: Duration = Duration::from_millis(16);

/// The window's end of the thread.
pub struct Worker {
    /// None once the thread was told to end.
    commands: Option<Sender<Command>>,
    told: Receiver<Told>,
    cancel: Cancel,
    /// Whose turn it is to use the device.
    pub turns: Turns,
    thread: Option<JoinHandle<()>>,
}

/// The thread's way to tell the window something, and to learn that it should stop.
#[derive(Clone)]
pub struct Teller {
    told: Sender<Told>,
    window: Context,
    /// Stops the load or the reply that is under way.
    pub cancel: Cancel,
}

impl Teller {
    /// Tells the window, and has it draw.
    pub fn tell(&self, told: Told) {
        if self.told.send(told).is_ok() {
            self.window.request_repaint_after(SOON); // otherwise it is gone, and the thread ends soon
        }
    }
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// What the operating system says if there can be none.
    pub fn start(gpu: Gpu, window: Context) -> std::io::Result<Self> {
        let ((commands, asked), (telling, told)) = (channel(), channel());
        let cancel = Cancel::default();
        let teller = Teller { told: telling, window, cancel: cancel.clone() };
        let turns = Turns::new(&gpu);
        let same = turns.clone();
        gpu.before_submissions(move || same.pass());
        let run = move || {
            let mut engine = Engine::new(gpu, teller);
            asked.into_iter().for_each(|command| engine.obey(command));
            engine.leave();
        };
        let thread = std::thread::Builder::new().name("wglm".into()).spawn(run)?;
        Ok(Self { commands: Some(commands), told, cancel, turns, thread: Some(thread) })
    }

    /// Asks for something; false if the thread is no more.
    pub fn ask(&self, command: Command) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok())
    }

    /// Asks for something that can be stopped.
    pub fn ask_anew(&self, command: Command) -> bool {
        self.cancel.reset();
        self.ask(command)
    }

    /// Stops the load or the reply that is under way, or the next one.
    pub fn stop(&self) {
        self.cancel.cancel();
    }

    /// What was told since the last time.
    pub fn hear(&self) -> Vec<Told> {
        self.told.try_iter().collect()
    }

    /// True unless the thread has ended.
    pub fn lives(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops what is under way, and waits until the session is saved.
    pub fn end(&mut self) {
        self.stop();
        self.commands = None;
        // A thread that died has told nobody; nothing is left to be done about it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
