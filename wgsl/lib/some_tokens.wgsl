// How many tokens there are, as the host tells.
const ALONE = false;

fn token_count() -> u32 {
    return batch.count;
}
