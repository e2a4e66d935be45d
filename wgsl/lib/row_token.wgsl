// The ids of tokens that rows name. The GPU may compute a token before the host knows its id: then the row names, from
// SAMPLED on, the word of `sampled` that holds the id.

fn id_of(named: u32) -> u32 {
    if named >= SAMPLED {
        return sampled[named - SAMPLED];
    }
    return named;
}

fn token_of(row: u32) -> u32 {
    return id_of(batch.rows[row].token);
}
