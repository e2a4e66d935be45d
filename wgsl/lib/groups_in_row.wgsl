// The groups of a rounded input lie in a row.
fn input_group(start: u32, g: u32) -> u32 {
    return start + g;
}
