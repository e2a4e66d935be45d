// y += Σ W[ids[slot]] · x[slot] + S · x[TOP_K]: the second half of the chosen experts, whose inputs carry
// their weights, and of the shared ones, onto the residual stream.

const CHOSEN_GROUPS = TOP_K * w_GROUPS;
const ALL_GROUPS = CHOSEN_GROUPS + shared_GROUPS;

var<storage, read> ids: array<u32>;
var<storage, read_write> y: array<f32>;

var<workgroup> chosen: array<u32, TOP_K>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let row = first_row(i.workgroup, team);
    for (var k = i.local; k < TOP_K; k += WORKGROUP) {
        chosen[k] = ids[k];
    }
    var sums: array<f32, ROWS>;
    for (var first = 0u; first < ALL_GROUPS; first += TILE) {
        let count = min(TILE, ALL_GROUPS - first);
        stage(8u * first, count, i.local);
        let mine = min(max(CHOSEN_GROUPS, first) - first, count); // staged groups of the chosen experts
        for (var g = team.lane; g < mine; g += LANES) {
            var a = staged_group(g);
            let expert = chosen[(first + g) / w_GROUPS];
            for (var k = 0u; k < ROWS; k++) {
                let r = expert * w_ROWS + min(row + k, w_ROWS - 1u);
                sums[k] += w_dot(r * w_GROUPS + (first + g) % w_GROUPS, &a);
            }
        }
        for (var g = mine + team.lane; g < count; g += LANES) {
            var a = staged_group(g);
            for (var k = 0u; k < ROWS; k++) {
                sums[k] += shared_dot(min(row + k, w_ROWS - 1u) * shared_GROUPS + first + g - CHOSEN_GROUPS, &a);
            }
        }
        workgroupBarrier();
    }
    sums = finished(sums, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < w_ROWS {
            y[row + k] += sums[k];
        }
    }
}
