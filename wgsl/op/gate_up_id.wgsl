// y[slot] = silu(gate[e] · x) · (up[e] · x) with e = ids[slot]: the first half of the chosen experts.

var<storage, read> ids: array<u32>;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let slot = i.workgroup.z;
    let row = first_row(i.workgroup, team);
    var gates: array<f32, ROWS>;
    var ups: array<f32, ROWS>;
    for (var first = 0u; first < w_gate_GROUPS; first += TILE) {
        let count = min(TILE, w_gate_GROUPS - first);
        stage(8u * first, count, i.local);
        w_add_gated(&gates, &ups, ids[slot], row, first, count, team);
        workgroupBarrier();
    }
    gates = finished(gates, team);
    ups = finished(ups, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < w_gate_ROWS {
            y[slot * Y_STRIDE + row + k] = swiglu(gates[k], ups[k]);
        }
    }
}
