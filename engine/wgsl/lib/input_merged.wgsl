// The input of a product is the output of a head's attention, merged from its splits.

fn input(column: u32, start: u32, at: u32) -> vec4<f32> {
    return merged(at);
}

fn input_staged(local: u32) {}

fn column_factor(column: u32, team: Team) -> f32 {
    return 1.0;
}
