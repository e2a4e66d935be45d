//! Replies that survive the loss of the GPU: it is opened again, the model is loaded onto it, and the reply continues
//! where it was, so that nothing is shown twice.

use super::args::ModelArgs;
use super::{model, output};
use wglm_engine::{DraftKind, Event, Model};

/// How often the GPU may be lost during one reply. Each time costs a load of the model, and a GPU that is lost
/// repeatedly will not finish the reply.
const MAX_GPU_LOSSES: usize = 2;

#[derive(Debug, Clone)]
pub struct Reloader {
    pub args: ModelArgs,
    pub guesses: DraftKind,
}

/// Moves a reply to a model on another GPU.
type Move<R> = fn(&mut R, &Model) -> wglm_engine::Result<()>;

/// The events of a reply, which continues after a loss of the GPU.
pub struct Unbroken<'a, R> {
    reply: R,
    model: Model,
    move_to: Move<R>,
    reloader: &'a Reloader,
    losses: usize,
}

impl Reloader {
    /// Makes a reply with `model` continue after losses of the GPU.
    pub fn keep_going<R>(&self, reply: R, model: Model, move_to: Move<R>) -> Unbroken<'_, R> {
        Unbroken { reply, model, move_to, reloader: self, losses: 0 }
    }
}

impl<R> Unbroken<'_, R> {
    /// Moves the reply to a new device. If that is lost as well, the next one is tried.
    fn recover(&mut self, mut lost: anyhow::Error) -> anyhow::Result<()> {
        while model::is_lost(&lost) && self.losses < MAX_GPU_LOSSES {
            self.losses += 1;
            output::interject(format_args!("note: {lost}; wglm does that now, and the reply then continues"));
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
        Ok((self.move_to)(&mut self.reply, &self.model)?)
    }
}

impl<R: Iterator<Item = wglm_engine::Result<Event>>> Iterator for Unbroken<'_, R> {
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
