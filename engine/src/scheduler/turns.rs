//! Decides which request gets the next free slot.
//!
//! Tenants take turns, so one with many requests delays its own and not those of others. A free slot goes to the tenant
//! with the fewest replies being generated; among equals to the one that was served longest ago; and within a tenant to
//! the oldest request. With one tenant that is first come, first served.

use super::engine::Request;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// How many tenants that neither run nor wait are remembered.
const ABSENT: usize = 256;

/// The replies being generated, and when each tenant had its last turn.
#[derive(Default)]
pub struct Turns {
    /// The tenant of each reply being generated, by the number of its request.
    running: BTreeMap<u64, u64>,
    /// The number of each tenant's last turn. Of those that neither run nor wait, only the ones that were served last
    /// are remembered, so this does not grow. They must be remembered for a while: a tenant that makes a request when
    /// the last one has ended, as for one text after another, is absent for a moment between the two, and would come
    /// before all others each time.
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
        self.forget(&waits);
        Some(request)
    }

    /// Forgets the tenants that neither run nor wait, except those that were served last.
    fn forget(&mut self, waits: &[u64]) {
        let is_absent = |tenant: &u64| !waits.contains(tenant) && !self.running.values().any(|runs| runs == tenant);
        let absent = self.served.iter().filter(|(tenant, _)| is_absent(tenant));
        let mut absent: Vec<(u64, u64)> = absent.map(|(tenant, turn)| (*turn, *tenant)).collect();
        absent.sort_unstable();
        let forgotten = absent.len().saturating_sub(ABSENT);
        for (_, tenant) in &absent[..forgotten] {
            self.served.remove(tenant);
        }
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

    /// Records that a reply has ended.
    pub fn end(&mut self, id: u64) {
        self.running.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::{ABSENT, Turns};

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

    /// A turn of a tenant that is absent afterwards, while others wait.
    fn turn(turns: &mut Turns, tenant: u64, waits: &[u64]) {
        let id = turns.turns;
        turns.begin(id, tenant);
        turns.end(id);
        turns.forget(waits);
    }

    #[test]
    fn a_tenant_that_was_absent_for_a_moment_has_no_more_turns_than_others() {
        let mut turns = Turns::default();
        [1, 2, 3].into_iter().for_each(|tenant| turn(&mut turns, tenant, &[2, 3]));
        let next = |turns: &Turns, waiting: &[u64]| turns.choose(waiting.iter().copied()).map(|index| waiting[index]);
        assert_eq!(next(&turns, &[2, 3, 1]), Some(1), "it was served longest ago");
        turn(&mut turns, 1, &[2, 3]);
        assert_eq!(next(&turns, &[3, 2, 1]), Some(2), "it was served last");
        assert_eq!(next(&turns, &[3, 2, 1, 4]), Some(4), "a new tenant comes first");
        (10..10 + 2 * ABSENT as u64).for_each(|tenant| turn(&mut turns, tenant, &[2]));
        assert_eq!(turns.served.len(), ABSENT + 1);
        assert_eq!(next(&turns, &[2, 3]), Some(3), "those that were served longest ago are forgotten");
    }
}
