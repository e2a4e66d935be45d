//! The thread on which wglm runs, as the window sees it: commands go in, messages come out, and the window never waits.

use crate::engine::Engine;
use crate::protocol::{Command, WorkerMessage};
use crate::restart::Restart;
use crate::saver::Jobs;
use crate::tunings::Tunings;
use crate::turns::Turns;
use eframe::egui::Context;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wglm::{Cancel, Gpu};

/// The longest time until the window shows a message. Messages that arrive within it share a frame.
const SOON: Duration = Duration::from_millis(16);

/// The window's end of the thread.
pub struct Worker {
    /// `None` once the thread has been asked to end.
    commands: Option<Sender<(Command, Cancel)>>,
    messages: Receiver<WorkerMessage>,
    /// The handles that stop the requested loads, tunings and replies that have not ended, oldest first.
    asked: VecDeque<Cancel>,
    /// Decides whether a frame or wglm may use the device.
    pub turns: Turns,
    thread: Option<JoinHandle<()>>,
}

/// The thread's end, through which it sends messages to the window.
#[derive(Clone)]
pub struct WindowSender {
    messages: Sender<WorkerMessage>,
    window: Context,
}

impl WindowSender {
    /// Sends a message to the window, and makes the window draw.
    pub fn send(&self, message: WorkerMessage) {
        if self.messages.send(message).is_ok() {
            self.window.request_repaint_after(SOON); // on failure the window is closed, and the thread ends soon
        }
    }
}

impl Worker {
    /// Starts the thread. What tuning finds is kept in the folder `tunings`. If the GPU is lost, the program starts
    /// again as `restart` says.
    ///
    /// # Errors
    /// The error of the operating system if it refuses the thread.
    pub fn start(gpu: Gpu, window: Context, tunings: Tunings, restart: Restart, saves: Jobs) -> std::io::Result<Self> {
        let ((commands, received), (sender, messages)) = (channel::<(Command, Cancel)>(), channel());
        let window = WindowSender { messages: sender, window };
        let turns = Turns::new(&gpu);
        let run = move || {
            let mut engine = Engine::new(gpu, window, tunings, restart, saves);
            received.into_iter().for_each(|(command, cancel)| engine.obey(command, &cancel));
            engine.leave();
        };
        let thread = std::thread::Builder::new().name("wglm".into()).spawn(run)?;
        Ok(Self { commands: Some(commands), messages, asked: VecDeque::new(), turns, thread: Some(thread) })
    }

    /// Sends a command; false if the thread has ended.
    pub fn ask(&mut self, command: Command) -> bool {
        let cancel = Cancel::default();
        if matches!(command, Command::Load(..) | Command::Tune(_) | Command::Reply(_)) {
            self.asked.push_back(cancel.clone());
        }
        self.commands.as_ref().is_some_and(|commands| commands.send((command, cancel)).is_ok())
    }

    /// Stops all requested loads, tunings and replies, whether they have begun or not, but none that is requested
    /// later.
    pub fn stop(&self) {
        self.asked.iter().for_each(Cancel::cancel);
    }

    /// The messages since the last call.
    pub fn received(&mut self) -> Vec<WorkerMessage> {
        let messages: Vec<WorkerMessage> = self.messages.try_iter().collect();
        let over = |message: &&WorkerMessage| {
            matches!(
                message,
                WorkerMessage::Loaded(_)
                    | WorkerMessage::NotLoaded(_)
                    | WorkerMessage::Tuned { .. }
                    | WorkerMessage::Replied { .. }
            )
        };
        let over = messages.iter().filter(over).count();
        self.asked.drain(..over.min(self.asked.len()));
        messages
    }

    /// Whether the thread is running.
    pub fn lives(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the current work, and waits until the session is saved.
    pub fn end(&mut self) {
        self.stop();
        self.commands = None;
        // If the thread panicked, nothing more can be done about it here.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
