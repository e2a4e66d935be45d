// The index of a row's hidden state in the ring buffers of RING_LENGTH vectors, one for each sequence: at its position
// plus a constant.

fn ring_index(row: u32, ahead: u32) -> u32 {
    return batch.rows[row].sequence * RING_LENGTH + (batch.rows[row].position + ahead) % RING_LENGTH;
}
