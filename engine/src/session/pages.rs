//! The pages of the KV cache that the sessions of a pool share: which of them are free, and which tokens the others
//! hold.
//!
//! A full page may be part of several sequences that begin with the same tokens. It is found by its tokens and by the
//! page before it, which represents all tokens before them. A sequence that holds a page also holds the one before it,
//! so that no page is given away while one after it can be found. Sequences of different tenants share nothing: whether
//! a page is found would tell a tenant what another one has computed.
//!
//! A session takes a page when its tokens reach it. A page is copied for a session that writes to it while others read
//! it.

use crate::error::{Error, Result};
use crate::plan::PAGE;
use std::collections::HashMap;
use std::sync::Arc;

/// The key of a full page: the page before it, or at the beginning the tenant of the sequence, and its tokens.
type Key = (Before, Arc<[u32]>);

/// What precedes a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Before {
    /// Nothing: the page begins a sequence of this tenant.
    Start(u64),
    /// A page, whose key leads to the tenant.
    Page(u32),
}

/// The pages of a pool, by their numbers.
pub struct Pages {
    /// How many sequences hold each page.
    holders: Vec<u32>,
    /// The free pages, the next one last.
    free: Vec<u32>,
    /// Full pages.
    full: HashMap<Key, u32>,
    /// The key of each page there, which shares the tokens with the entry.
    keys: Vec<Option<Key>>,
}

impl Pages {
    pub fn new(count: usize) -> Self {
        let free = (0..count as u32).rev().collect();
        Self { holders: vec![0; count], free, full: HashMap::new(), keys: vec![None; count] }
    }

    /// The number of pages.
    pub fn count(&self) -> usize {
        self.holders.len()
    }

    /// The number of free pages.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes `count` free pages.
    ///
    /// # Errors
    /// [`Error::PoolFull`] if there are fewer.
    pub fn take(&mut self, count: usize) -> Result<Vec<u32>> {
        let free = self.free.len();
        let Some(rest) = free.checked_sub(count) else { return Err(Error::PoolFull { needed: count, free }) };
        let mut taken = self.free.split_off(rest);
        taken.reverse();
        taken.iter().for_each(|page| self.holders[*page as usize] = 1);
        Ok(taken)
    }

    /// Checks that a sequence could take `count` pages in place of those that it holds.
    ///
    /// # Errors
    /// [`Error::PoolFull`] if there are fewer.
    pub fn check_exchange(&self, held: &[u32], count: usize) -> Result<()> {
        let own = held.iter().filter(|page| !self.is_shared(**page)).count();
        let (needed, free) = (count.saturating_sub(own), self.free.len());
        if needed > free { Err(Error::PoolFull { needed, free }) } else { Ok(()) }
    }

    /// Releases pages that a sequence held. Free ones are taken again in the same order.
    pub fn release(&mut self, pages: impl IntoIterator<Item = u32, IntoIter: DoubleEndedIterator>) {
        for page in pages.into_iter().rev() {
            self.holders[page as usize] -= 1;
            if self.holders[page as usize] == 0 {
                self.forget(page);
                self.free.push(page);
            }
        }
    }

    /// True if another sequence holds the page too.
    pub fn is_shared(&self, page: u32) -> bool {
        self.holders[page as usize] > 1
    }

    /// Stops finding a page, because its holder writes to it.
    pub fn forget(&mut self, page: u32) {
        if let Some(key) = self.keys[page as usize].take() {
            self.full.remove(&key);
        }
    }

    /// Stops finding any page, because their content is unknown.
    pub fn forget_all(&mut self) {
        self.full.clear();
        self.keys.iter_mut().for_each(|key| *key = None);
    }

    /// Lets a full page be found, unless another one has the same key.
    pub fn offer(&mut self, page: u32, before: Before, tokens: &[u32]) {
        debug_assert_eq!(tokens.len(), PAGE);
        let key = (before, tokens.into());
        if !self.full.contains_key(&key) {
            self.keys[page as usize] = Some(key.clone());
            self.full.insert(key, page);
        }
    }

    /// Holds the page with these tokens after `before`, if there is one.
    pub fn find(&mut self, before: Before, tokens: &[u32]) -> Option<u32> {
        let page = *self.full.get(&(before, tokens.into()))?;
        self.holders[page as usize] += 1;
        Some(page)
    }
}

/// The runs of consecutive pages of a list: the first page of each, and its number of pages.
pub fn runs(pages: &[u32]) -> impl Iterator<Item = (u32, usize)> {
    pages.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0], run.len()))
}

#[cfg(test)]
mod tests {
    use super::{Before, Error, PAGE, Pages, Result, runs};

    #[test]
    fn pages_are_held_and_given_back() -> Result<()> {
        let mut pages = Pages::new(3);
        let first = pages.take(2)?;
        assert_eq!(first, [0, 1]);
        assert!(matches!(pages.take(2), Err(Error::PoolFull { needed: 2, free: 1 })));
        let tokens = [7; PAGE];
        let start = Before::Start(0);
        pages.offer(0, start, &tokens);
        pages.offer(1, Before::Page(0), &tokens);
        assert_eq!((pages.find(start, &tokens), pages.find(Before::Page(1), &tokens)), (Some(0), None));
        assert_eq!(pages.find(Before::Start(1), &tokens), None, "which is another tenant's");
        assert_eq!(pages.find(Before::Page(0), &tokens), Some(1));
        pages.release(first);
        assert!(!pages.is_shared(0) && pages.take(2).is_err());
        pages.check_exchange(&[0, 1], 3)?;
        assert_eq!(pages.find(start, &tokens), Some(0));
        let full = pages.check_exchange(&[0, 1], 3);
        assert!(matches!(full, Err(Error::PoolFull { needed: 2, free: 1 })), "page 0 is shared: {full:?}");
        pages.release([0]);
        pages.release([0, 1]);
        assert_eq!(pages.find(start, &tokens), None);
        assert_eq!(pages.take(3)?, [0, 1, 2]);
        Ok(())
    }

    #[test]
    fn a_list_is_cut_into_runs() {
        assert_eq!(runs(&[4, 5, 6, 1, 0, 1]).collect::<Vec<_>>(), [(4, 3), (1, 1), (0, 2)]);
        assert_eq!(runs(&[]).count(), 0);
    }
}
