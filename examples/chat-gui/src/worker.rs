//! The thread on which wglm runs, as the window sees it: commands go in, what is told comes out, nothing waits.

use crate::engine::Engine;
use crate::protocol::{Command, Told};
use crate::turns::Turns;
use eframe::egui::Context;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wglm::{Cancel, Gpu};

/// How long after something was told the window shows it at the latest: what comes faster than frames shares one.
const SOON: Duration = Duration::from_millis(16);

/// The window's end of the thread.
pub struct Worker {
    /// None once the thread was told to end.
    commands: Option<Sender<(Command, Cancel)>>,
    told: Receiver<Told>,
    /// What stops the loads and replies that were asked for and are not over, oldest first.
    asked: VecDeque<Cancel>,
    /// Whose turn it is to use the device.
    pub turns: Turns,
    thread: Option<JoinHandle<()>>,
}

/// The thread's way to tell the window something.
#[derive(Clone)]
pub struct Teller {
    told: Sender<Told>,
    window: Context,
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
        let ((commands, received), (telling, told)) = (channel::<(Command, Cancel)>(), channel());
        let teller = Teller { told: telling, window };
        let turns = Turns::new(&gpu);
        let same = turns.clone();
        gpu.before_submissions(move || same.pass());
        let run = move || {
            let mut engine = Engine::new(gpu, teller);
            received.into_iter().for_each(|(command, cancel)| engine.obey(command, &cancel));
            engine.leave();
        };
        let thread = std::thread::Builder::new().name("wglm".into()).spawn(run)?;
        Ok(Self { commands: Some(commands), told, asked: VecDeque::new(), turns, thread: Some(thread) })
    }

    /// Asks for something; false if the thread is no more.
    pub fn ask(&mut self, command: Command) -> bool {
        let cancel = Cancel::default();
        if matches!(command, Command::Load(..) | Command::Reply(_)) {
            self.asked.push_back(cancel.clone());
        }
        self.commands.as_ref().is_some_and(|commands| commands.send((command, cancel)).is_ok())
    }

    /// Stops the loads and replies that were asked for, whether they have begun or not, and none that comes later.
    pub fn stop(&self) {
        self.asked.iter().for_each(Cancel::cancel);
    }

    /// What was told since the last time.
    pub fn hear(&mut self) -> Vec<Told> {
        let told: Vec<Told> = self.told.try_iter().collect();
        let over = |told: &&Told| matches!(told, Told::Loaded(_) | Told::NotLoaded(_) | Told::Replied { .. });
        let over = told.iter().filter(over).count();
        self.asked.drain(..over.min(self.asked.len()));
        told
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
