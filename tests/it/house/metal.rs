//! What wgpu requires on Metal of plans and of the code that submits them, tested without a Mac.

use super::code::{files, names};
use super::plans::{accessed, models, plans};
use std::collections::HashMap;
use wglm::{Arithmetic, CacheShape, CacheType, Config};
use wglm_engine::model::plan_token;
use wglm_engine::plan::{BufferRef, Plan, Step, Target};
use wglm_engine::shader::{Access, Reflected};

/// The most pipelines of a token. Metal compiles each from source at every start, because wgpu has no pipeline cache
/// there.
const PIPELINES: usize = 32;

/// wgpu tracks whole buffers: it refuses a buffer that one binding of a dispatch reads and another writes, whatever the
/// ranges. A buffer that two bindings write is a race.
fn shared(plan: &Plan, step: &Step, reflected: &Reflected) -> Vec<String> {
    let mut bound: HashMap<BufferRef, Vec<&str>> = HashMap::new();
    let mut written: Vec<BufferRef> = Vec::new();
    for binding in &step.bindings {
        bound.entry(binding.buffer).or_default().push(&binding.name);
        if accessed(reflected, &binding.name) == Some(Access::ReadWrite) {
            written.push(binding.buffer);
        }
    }
    let name = |buffer: &BufferRef| match *buffer {
        BufferRef::Weight(id) => plan.weight(id).name.to_string(),
        BufferRef::Local(id) => plan.local(id).name.clone(),
    };
    let complain = |buffer: &BufferRef| match bound[buffer].as_slice() {
        _ if matches!(buffer, BufferRef::Weight(_)) => Some(format!("the weight `{}` is written", name(buffer))),
        [_] => None,
        names => Some(format!("`{}` is written and bound as {names:?}", name(buffer))),
    };
    written.iter().filter_map(complain).collect()
}

#[test]
fn extended_no_buffer_that_a_step_writes_is_bound_twice() {
    let (mut complaints, mut steps) = (Vec::new(), 0);
    let mut known = HashMap::new();
    for (name, planned) in plans() {
        let plan = &planned.plan;
        for step in &plan.steps {
            let variant = &plan.variants[step.variant];
            let reflected =
                known.entry(variant.clone()).or_insert_with(|| wglm_engine::shader::reflect(variant).unwrap());
            complaints.extend(shared(plan, step, reflected).iter().map(|c| format!("{name} {}: {c}", step.label)));
            steps += 1;
        }
    }
    println!("{steps} steps");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// The test above must detect such a step.
#[test]
fn a_buffer_read_and_written_at_once_is_detected() {
    let (_, mut planned) = plans().swap_remove(0);
    let index = planned.plan.steps.iter().position(|step| step.kernel == "mul_mv").unwrap();
    let reflected = wglm_engine::shader::reflect(&planned.plan.variants[planned.plan.steps[index].variant]).unwrap();
    assert_eq!(shared(&planned.plan, &planned.plan.steps[index], &reflected), [""; 0]);
    let bindings = &mut planned.plan.steps[index].bindings;
    let place = |access| bindings.iter().position(|b| accessed(&reflected, &b.name) == Some(access)).unwrap();
    let (input, output) = (place(Access::Read), place(Access::ReadWrite));
    bindings[input].buffer = bindings[output].buffer;
    assert_eq!(shared(&planned.plan, &planned.plan.steps[index], &reflected).len(), 1);
}

#[test]
fn every_model_takes_few_pipelines() {
    for (name, file) in models() {
        let config = Config::read(&file).unwrap();
        for arithmetic in [Arithmetic::Float, Arithmetic::Int] {
            let cache = CacheShape { context: 300, ty: CacheType::F16 };
            let plan = plan_token(&file, &config, cache, &Target { arithmetic, ..Target::default() }).unwrap().plan;
            let count = plan.variants.len();
            println!("{name}, {arithmetic:?}: {count} pipelines");
            assert!(count <= PIPELINES, "{name}, {arithmetic:?}: {count} pipelines, at most {PIPELINES}");
            let told = plan.table(0).to_string();
            assert!(told.contains(&format!(", {count} pipelines")), "{told}");
        }
    }
}

/// The files in which a word of the code occurs, once for each occurrence.
fn places(word: &str) -> Vec<String> {
    let mut places = Vec::new();
    for file in files("engine/src", "rs") {
        let count = file.code().flat_map(names).filter(|name| *name == word).count();
        places.extend(std::iter::repeat_n(file.path, count));
    }
    places
}

/// So that the counters of submissions and passes count all of them.
#[test]
fn encoders_and_passes_are_made_in_one_place() {
    for word in ["create_command_encoder", "begin_compute_pass"] {
        assert_eq!(places(word), ["engine/src/gpu/work.rs"], "{word}");
    }
}

/// Apple's GPUs take timestamps at the ends of a pass only.
#[test]
fn timestamps_are_only_at_the_ends_of_passes() {
    for word in ["write_timestamp", "TIMESTAMP_QUERY_INSIDE_PASSES", "TIMESTAMP_QUERY_INSIDE_ENCODERS"] {
        assert_eq!(places(word), [""; 0], "{word}");
    }
    assert!(places("TIMESTAMP_QUERY").contains(&"engine/src/gpu/device.rs".to_owned()), "is the search broken?");
}
