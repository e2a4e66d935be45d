//! Decides which request gets the next free slot.
//!
//! Tenants take turns, so one with many requests delays its own and not those of others. A free slot goes to the tenant
//! with the fewest replies being generated; among equals to the one that was served longest ago; and within a tenant to
//! the oldest request. With one tenant that is first come, first served.

use super::engine::Request;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The replies being generated, and when each tenant had its last turn.
#[derive(Default)]
pub struct Turns {
    /// The tenant of each reply being generated, by the number of its request.
    running: BTreeMap<u64, u64>,
    /// The number of each tenant's last turn. A tenant that neither runs nor waits is forgotten, so this does not grow.
    served: HashMap<u64, u64>,
    /// The number of turns so far.
    turns: u64,
}

impl Turns {
    /// How many replies are being generated.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Removes the next request from the waiting ones, which are in order, oldest first.
    pub fn next(&mut self, waiting: &mut VecDeque<Request>) -> Option<Request> {
        let index = self.choose(waiting.iter().map(|request| request.tenant.turns))?;
        let request = waiting.remove(index)?;
        self.begin(request.id, request.tenant.turns);
        let waits: Vec<u64> = waiting.iter().map(|request| request.tenant.turns).collect();
        self.served.retain(|tenant, _| waits.contains(tenant) || self.running.values().any(|runs| runs == tenant));
        Some(request)
    }

    /// The index of the next request, given the tenants of those that wait, oldest first.
    fn choose(&self, waiting: impl Iterator<Item = u64>) -> Option<usize> {
        let mut runs: HashMap<u64, usize> = HashMap::new();
        self.running.values().for_each(|tenant| *runs.entry(*tenant).or_default() += 1);
        let rank = |tenant| (runs.get(&tenant).copied(), self.served.get(&tenant).copied());
        waiting.enumerate().min_by_key(|(index, tenant)| (rank(*tenant), *index)).map(|(index, _)| index)
    }

    fn begin(&mut self, id: u64, tenant: u64) {
        self.turns += 1;
        self.served.insert(tenant, self.turns);
        self.running.insert(id, tenant);
    }

    /// A reply has ended.
    pub fn end(&mut self, id: u64) {
        self.running.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    /// The order in which requests of these tenants are served, one at a time, by `slots` slots that free the oldest
    /// reply each time.
    fn order(mut waiting: Vec<u64>, slots: usize) -> Vec<u64> {
        let (mut turns, mut served) = (Turns::default(), Vec::new());
        while let Some(index) = turns.choose(waiting.iter().copied()) {
            if turns.running() == slots {
                let oldest = turns.running.keys().next().copied();
                oldest.into_iter().for_each(|id| turns.end(id));
            }
            let index = turns.choose(waiting.iter().copied()).unwrap_or(index);
            let tenant = waiting.remove(index);
            turns.begin(served.len() as u64, tenant);
            served.push(tenant);
        }
        served
    }

    #[test]
    fn tenants_take_turns() {
        assert_eq!(order(vec![1, 1, 1, 1, 2, 2], 1), [1, 2, 1, 2, 1, 1]);
        assert_eq!(order(vec![1, 1, 1, 1, 1, 1, 2, 3], 2), [1, 2, 3, 1, 1, 1, 1, 1]);
        assert_eq!(order(vec![4, 4, 4], 2), [4, 4, 4]);
    }
}
