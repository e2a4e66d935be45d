// y = silu(gate · x) · (up · x): the first half of a SwiGLU feed-forward.

var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let row = first_row(i.workgroup, team);
    var gates: array<f32, ROWS>;
    var ups: array<f32, ROWS>;
    for (var first = 0u; first < w_gate_GROUPS; first += TILE) {
        let count = min(TILE, w_gate_GROUPS - first);
        stage(8u * first, count, i.local);
        w_add_gated(&gates, &ups, 0u, row, first, count, team);
        workgroupBarrier();
    }
    gates = finished(gates, team);
    ups = finished(ups, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < w_gate_ROWS {
            y[row + k] = swiglu(gates[k], ups[k]);
        }
    }
}
