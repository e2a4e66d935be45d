//! Replies that survive the loss of the GPU: it is opened again, the model is loaded onto it, and the reply continues
//! where it was, so that nothing is shown twice.

use super::args::ModelArgs;
use super::{model, output};
use wglm_engine::{DraftKind, Event, Generation, Model, Reply};

/// How often the GPU may be lost during one reply. Each time costs a load of the model, and a GPU that is lost
/// repeatedly will not finish the reply.
const MOST: usize = 2;

/// The arguments for loading a model again.
#[derive(Debug, Clone)]
pub struct Reloader {
    pub args: ModelArgs,
    pub guesses: DraftKind,
}

/// A reply that can continue with a model on another GPU.
pub trait Movable: Iterator<Item = wglm_engine::Result<Event>> {
    fn move_to(&mut self, model: &Model) -> wglm_engine::Result<()>;
}

impl Movable for Reply<'_> {
    fn move_to(&mut self, model: &Model) -> wglm_engine::Result<()> {
        Self::move_to(self, model)
    }
}

impl Movable for Generation<'_> {
    fn move_to(&mut self, model: &Model) -> wglm_engine::Result<()> {
        Self::move_to(self, model)
    }
}

/// The events of a reply, which continues after a loss of the GPU.
pub struct Unbroken<'a, R> {
    reply: R,
    model: Model,
    reloader: &'a Reloader,
    losses: usize,
}

impl Reloader {
    /// Makes a reply with `model` continue after losses of the GPU.
    pub fn keep_going<R: Movable>(&self, reply: R, model: Model) -> Unbroken<'_, R> {
        Unbroken { reply, model, reloader: self, losses: 0 }
    }
}

impl<R: Movable> Unbroken<'_, R> {
    /// Moves the reply to a new device. If that is lost as well, the next one is tried.
    fn recover(&mut self, mut lost: anyhow::Error) -> anyhow::Result<()> {
        while model::is_lost(&lost) && self.losses < MOST {
            self.losses += 1;
            output::interject(format_args!("note: {lost}; doing that now, and the reply continues"));
            match self.move_on() {
                Ok(()) => return Ok(()),
                Err(error) => lost = error,
            }
        }
        Err(lost)
    }

    fn move_on(&mut self) -> anyhow::Result<()> {
        let Reloader { args, guesses } = self.reloader;
        self.model = model::load_again(&self.model, args, *guesses)?;
        Ok(self.reply.move_to(&self.model)?)
    }
}

impl<R: Movable> Iterator for Unbroken<'_, R> {
    type Item = anyhow::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let error = match self.reply.next()? {
                Ok(event) => return Some(Ok(event)),
                Err(error) => error.into(),
            };
            if let Err(error) = self.recover(error) {
                return Some(Err(error));
            }
        }
    }
}
