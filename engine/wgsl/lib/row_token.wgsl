// The ids of rows' tokens. The GPU may compute a token before the host knows its id: then the row has, instead of the
// id, SAMPLED plus the index of the word of `sampled` with the id.

fn id_of(named: u32) -> u32 {
    if named >= SAMPLED {
        return sampled[named - SAMPLED];
    }
    return named;
}

fn token_of(row: u32) -> u32 {
    return id_of(batch.rows[row].token);
}
