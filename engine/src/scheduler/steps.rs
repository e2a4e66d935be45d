//! Steps that several conversations take together.
//!
//! If a grammar restricts the next token of a conversation, it is sampled under a mask before the step, which only
//! feeds it. For the other conversations the step verifies guesses of further tokens where that pays off. The tokens
//! that a step has fed are reported before the next step. A conversation whose context is full, or that is alone, takes
//! its steps by itself.

use super::engine::{Engine, Slot, caught, died, empty};
use crate::error::Error;
use crate::generate::GenerationTask;
use crate::session::Session;

impl Engine {
    /// Generates a token of each conversation whose prompt is complete, or several if guesses are right.
    pub(super) fn decode(&mut self) {
        for index in 0..self.slots.len() {
            while self.decodes(index, |task, _| task.has_pending()) {
                self.advance(index);
            }
        }
        let decoding: Vec<usize> = (0..self.slots.len()).filter(|index| self.decodes(*index, |_, _| true)).collect();
        let joins = |index: &usize| self.decodes(*index, GenerationTask::joins);
        let (mut together, mut alone): (Vec<usize>, Vec<usize>) = decoding.into_iter().partition(joins);
        if together.len() == 1 {
            alone.append(&mut together);
        }
        for index in alone {
            // Its cache may have been dropped for another one meanwhile.
            if self.decodes(index, |_, _| true) {
                self.advance(index);
            }
        }
        self.step(together);
    }

    /// Whether the reply of a slot generates a token next and satisfies a condition.
    fn decodes(&self, index: usize, is: impl Fn(&GenerationTask<'static>, &Session) -> bool) -> bool {
        let Slot { session, work, .. } = &self.slots[index];
        work.as_ref().is_some_and(|work| work.decodes() && is(&work.task, session))
    }

    /// Takes one step with several conversations, given in the order of their slots.
    fn step(&mut self, together: Vec<usize>) {
        let mut steps = Vec::with_capacity(together.len());
        for index in together {
            match self.attempt(index, |task, session| task.open_token(session)) {
                Ok(Some(open)) => steps.push((index, open)),
                ended => self.conclude(index, ended.map(drop)),
            }
        }
        for (index, _) in &steps {
            self.reserve(*index);
        }
        // Some may have failed meanwhile, or their caches were dropped for others.
        steps.retain(|(index, _)| self.decodes(*index, |_, _| true));
        // Only now that all have their pages: a token that was chosen has to be fed.
        for (index, open) in &steps {
            if let Err(error) = self.attempt(*index, |task, session| task.choose_ahead(session, open)) {
                self.fail(*index, error);
            }
        }
        steps.retain(|(index, _)| self.decodes(*index, |_, _| true));
        if steps.is_empty() {
            return;
        }
        let slots = self.slots.iter_mut().enumerate();
        let taking = slots.filter_map(|(index, slot)| {
            let (_, open) = steps.iter().find(|(of, _)| *of == index)?;
            Some((&mut slot.session, slot.work.as_ref().map_or(1, |work| work.task.wants(open))))
        });
        let (mut sessions, most): (Vec<&mut Session>, Vec<usize>) = taking.unzip();
        let stepped = caught(|| self.pool.next_tokens_of_each(&mut sessions, &most)).unwrap_or_else(|| {
            sessions.iter_mut().for_each(|session| empty(session));
            Err(died())
        });
        let mut fed = match stepped {
            Ok(fed) => fed,
            Err(error) => steps.iter().map(|_| Err(error.clone())).collect(),
        }
        .into_iter();
        for (index, open) in steps {
            let fed = fed.next().unwrap_or(Err(Error::NoResult));
            self.work_on(index, |task, session| task.close_token(session, open, &fed?));
        }
    }

    /// Reserves the pages that a conversation needs to take part in a step.
    fn reserve(&mut self, index: usize) {
        while self.decodes(index, |_, _| true) {
            match self.attempt(index, |_, session| session.reserve_next()) {
                Ok(()) => return,
                failed => self.conclude(index, failed),
            }
        }
    }
}
