// Bias and penalties on the logits of the tokens that the host lists for a row, each once, as in
// src/sample/penalties.rs. One workgroup for each row. A token that the GPU has sampled counts too: the host may not
// know it yet, and does not list it.

struct Adjustment {
    token: u32,
    count: u32, // how often it occurs among the last tokens
    bias: u32, // the bits of an f32
}

struct Params {
    count: u32, // logits of a row
    pitch: u32, // from one row's logits to the next's
}

const BANNED = 0xff800000u; // the bits of minus infinity, for which is_number is false

var<uniform> params: Params;
var<storage, read> sampled: array<u32>; // as op/sample.wgsl writes it
var<storage, read> adjustments: array<Adjustment>; // row after row
var<storage, read_write> logits: array<u32>; // the bits of f32

var<workgroup> is_listed: atomic<u32>;

fn adjust(id: u32, count: u32, bias: u32, way: Sampling) {
    let place = row * params.pitch + id;
    if id >= params.count || !is_number(logits[place]) {
        return;
    }
    // Not computed, because fast-math compilers assume no infinities.
    if bias == BANNED {
        logits[place] = BANNED;
        return;
    }
    var logit = bitcast<f32>(logits[place]) + bitcast<f32>(bias);
    if count > 0u {
        logit = select(logit / way.repeat, logit * way.repeat, logit <= 0.0);
        logit -= f32(count) * way.frequency + way.presence;
    }
    logits[place] = bitcast<u32>(logit);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    row = workgroup.x;
    if workgroup.x >= row_count() {
        return;
    }
    let way = sampling[batch.rows[row].sequence];
    let newest = select(NO_TOKEN, token_of(row), batch.rows[row].token >= SAMPLED);
    if local == 0u {
        atomicStore(&is_listed, 0u);
    }
    workgroupBarrier();
    for (var i = local; i < batch.rows[row].adjustments; i += WORKGROUP) {
        let listed = adjustments[batch.rows[row].first_adjustment + i];
        let once_more = listed.token == newest;
        if once_more {
            atomicStore(&is_listed, 1u);
        }
        adjust(listed.token, listed.count + u32(once_more), listed.bias, way);
    }
    workgroupBarrier();
    if local == 0u && atomicLoad(&is_listed) == 0u {
        adjust(newest, 1u, 0u, way);
    }
}
