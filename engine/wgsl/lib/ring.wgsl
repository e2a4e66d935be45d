// The place of a row's hidden state in the ring buffers of PLACES vectors, one for each sequence: at its position plus
// a constant.

fn ring_place(row: u32, ahead: u32) -> u32 {
    return batch.rows[row].sequence * PLACES + (batch.rows[row].position + ahead) % PLACES;
}
