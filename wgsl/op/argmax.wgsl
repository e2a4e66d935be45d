// The index of the largest logit, the lowest of equals; NONE where there is no number among them.
// One workgroup.

struct Params {
    count: u32,
}

const NONE = 0xffffffffu;
const LOWEST = -3.4e38; // below every logit worth the name

var<uniform> params: Params;
var<storage, read> logits: array<f32>;
var<storage, read_write> token: array<u32>;

var<workgroup> values: array<f32, WORKGROUP>;
var<workgroup> indices: array<u32, WORKGROUP>;

// By its bits: fast-math compilers take no comparison's word for it.
fn is_number(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) < 0x7f800000u;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    var value = LOWEST;
    var index = NONE;
    for (var k = local; k < params.count; k += WORKGROUP) {
        let logit = logits[k];
        if is_number(logit) && logit > value {
            value = logit;
            index = k;
        }
    }
    values[local] = value;
    indices[local] = index;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            let other = values[local + half];
            if other > values[local] || (other == values[local] && indices[local + half] < indices[local]) {
                values[local] = other;
                indices[local] = indices[local + half];
            }
        }
    }
    if local == 0u {
        token[0] = indices[0];
    }
}
