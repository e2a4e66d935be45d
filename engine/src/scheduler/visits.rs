//! Calls of the app that act on the conversation in a slot between two rounds: they drop it, write it to a file, or
//! read one from a file.

use super::engine::{Engine, Slot, caught, died, empty};
use super::memory::Eviction;
use super::storing::ROUND;
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::files::Readers;
use std::path::Path;
use std::time::Instant;

impl Engine {
    /// Drops what a slot holds of a tenant, and returns the number of tokens. `None` if it is in use.
    pub fn forget(&mut self, index: usize, tenant: u64) -> Option<usize> {
        let Some(slot) = self.slot_of(index, tenant) else { return Some(0) };
        let (tokens, is_free) = (slot.session.tokens().len(), slot.work.is_none());
        self.stores_for = ROUND;
        if !is_free || !self.leaves(index, Instant::now()) {
            return None;
        }
        self.slots[index].session.rewind(0);
        Some(tokens)
    }

    /// Writes what a slot holds of a tenant to a file, which only the user can read, and returns the number of tokens.
    /// If there are none, no file is written. `None` if the slot is in use.
    pub fn save(&mut self, index: usize, tenant: u64, path: &Path) -> Result<Option<usize>> {
        let Some(Slot { session, work, .. }) = self.slot_of(index, tenant) else { return Ok(Some(0)) };
        if work.is_some() {
            return Ok(None);
        }
        if session.tokens().is_empty() {
            return Ok(Some(0));
        }
        let saved = caught(|| session.save_snapshot_for(path, Readers::Owner, &Cancel::default()));
        saved.unwrap_or_else(|| Err(died()))?;
        Ok(Some(session.tokens().len()))
    }

    /// Replaces the contents of a slot, which has to exist, by those of a file, for a tenant, and returns the number of
    /// tokens. `None` if the slot is in use. If the file cannot be used or does not fit, the slot keeps its contents.
    pub fn load(&mut self, index: usize, tenant: u64, path: &Path) -> Result<Option<usize>> {
        while self.slots.len() <= index {
            self.slots.push(Slot::new(self.pool.session()?));
        }
        self.stores_for = ROUND;
        if self.slots[index].work.is_some() || !self.leaves(index, Instant::now()) {
            return Ok(None);
        }
        loop {
            let session = &mut self.slots[index].session;
            let loaded = caught(|| session.load_snapshot_for(tenant, path, &Cancel::default())).unwrap_or_else(|| {
                empty(session);
                Err(died())
            });
            match loaded {
                Ok(()) => break,
                Err(full @ Error::PoolFull { .. }) => match self.evict_idle(index) {
                    Eviction::One => {}
                    Eviction::Later => {
                        self.memory_awaited[1] = None; // nobody waits
                        return Ok(None);
                    }
                    Eviction::None => return Err(full),
                },
                Err(error) => return Err(error),
            }
        }
        let tokens = self.slots[index].session.tokens().len();
        self.occupy(index, tokens / 4); // a file does not say how many of its tokens were the prompt
        Ok(Some(tokens))
    }

    /// A slot, if the tenant used it last.
    fn slot_of(&mut self, index: usize, tenant: u64) -> Option<&mut Slot> {
        self.slots.get_mut(index).filter(|slot| slot.session.tenant() == tenant)
    }
}
