//! Steps that several conversations take together.
//!
//! The tokens of those that a grammar restricts are sampled under masks before, and the step feeds them. Of the others it
//! verifies guesses of further tokens, where that pays. What a step has fed of a conversation is reported before the next step.
//! A conversation whose context is full takes its steps by itself, and so does one that is alone.

use super::engine::{Engine, Slot, Work, caught, died, empty};
use crate::error::Error;
use crate::session::Session;

impl Engine {
    /// Generates a token of each conversation that is past its prompt.
    pub(super) fn decode(&mut self) {
        let decodes = |slot: &Slot| slot.work.as_ref().is_some_and(Work::decodes);
        let decoding: Vec<usize> = (0..self.slots.len()).filter(|index| decodes(&self.slots[*index])).collect();
        for index in &decoding {
            let has_pending =
                |slot: &Slot| slot.work.as_ref().is_some_and(|work| work.decodes() && work.task.has_pending());
            while has_pending(&self.slots[*index]) {
                let advanced = self.attempt(*index, |task, session| task.advance(session));
                self.conclude(*index, advanced);
            }
        }
        let decoding = decoding.into_iter().filter(|index| decodes(&self.slots[*index])).collect::<Vec<_>>();
        let joins = |index: &usize| {
            let slot = &self.slots[*index];
            slot.work.as_ref().is_some_and(|work| work.task.joins(&slot.session))
        };
        let (mut together, mut alone): (Vec<usize>, Vec<usize>) = decoding.into_iter().partition(joins);
        if together.len() == 1 {
            alone.append(&mut together);
        }
        for index in alone {
            // Another one may have needed the memory of its cache in the meantime.
            if decodes(&self.slots[index]) {
                let advanced = self.attempt(index, |task, session| task.advance(session));
                self.conclude(index, advanced);
            }
        }
        self.step(together);
    }

    /// Takes one step with several conversations, given in the order of their slots.
    fn step(&mut self, together: Vec<usize>) {
        let mut steps = Vec::with_capacity(together.len());
        for index in together {
            match self.attempt(index, |task, session| task.begin_step(session)) {
                Ok(Some(step)) => steps.push((index, step)),
                ended => self.conclude(index, ended.map(drop)),
            }
        }
        for (index, _) in &steps {
            self.make_ready(*index);
        }
        // Some may have failed meanwhile, or have given up their caches for others.
        let held = |slot: &Slot| slot.work.as_ref().is_some_and(Work::decodes);
        steps.retain(|(index, _)| held(&self.slots[*index]));
        // Only now, when all have their pages: a token that was chosen has to be fed.
        for (index, step) in &steps {
            if let Err(error) = self.attempt(*index, |task, session| task.choose_ahead(session, step)) {
                self.fail(*index, error);
            }
        }
        steps.retain(|(index, _)| held(&self.slots[*index]));
        if steps.is_empty() {
            return;
        }
        let slots = self.slots.iter_mut().enumerate();
        let taking = slots.filter_map(|(index, slot)| {
            let (_, step) = steps.iter().find(|(of, _)| *of == index)?;
            Some((&mut slot.session, slot.work.as_ref().map_or(1, |work| work.task.wants(step))))
        });
        let (mut sessions, most): (Vec<&mut Session>, Vec<usize>) = taking.unzip();
        let stepped = caught(|| self.pool.next_of_each(&mut sessions, &most)).unwrap_or_else(|| {
            sessions.iter_mut().for_each(|session| empty(session));
            Err(died())
        });
        let mut fed = match stepped {
            Ok(fed) => fed,
            Err(error) => steps.iter().map(|_| Err(error.clone())).collect(),
        }
        .into_iter();
        for (index, step) in steps {
            let fed = fed.next().unwrap_or(Err(Error::NoResult));
            let ended = self.attempt(index, |task, session| task.end_common_step(session, step, &fed?));
            self.conclude(index, ended);
        }
    }

    /// Makes sure that a conversation can take part in a step.
    fn make_ready(&mut self, index: usize) {
        while self.slots[index].work.as_ref().is_some_and(Work::decodes) {
            match self.attempt(index, |_, session| session.make_ready()) {
                Ok(()) => return,
                failed => self.conclude(index, failed),
            }
        }
    }
}
