//! Stores the Metal source of each kernel, so that changes to it can be reviewed. Functions that a kernel does not
//! call, which are in the source too, are left out.
//!
//! After an intended change, `INSTA_UPDATE=always cargo test --test metal snapshots` updates them.

use crate::emit::{Checks, Shader, USUAL};
use crate::variants::{apple, cases};
use std::collections::BTreeSet;
use std::path::PathBuf;
use wglm::{Arithmetic, Matrices};
use wglm_engine::kernels::{KERNELS, Kernel};
use wglm_engine::plan::Target;
use wglm_engine::shader::Variant;

/// The format that represents all, because GLM-4.7-Flash in Q4_0 is the main use of the project.
const FORMAT: &str = ".q4_0.";

/// The kernel's shortest shader that a Mac may run, in that format if the kernel has formats, and in floats if it
/// computes in floats.
fn representative(kernel: &Kernel) -> Option<Shader> {
    let usual = if kernel.matrices.is_empty() { Matrices::None } else { Matrices::Eight };
    let own = |arithmetic| -> Vec<Variant> {
        let of_cases = cases(kernel, &Target { arithmetic, matrices: usual, ..apple() });
        let variants = of_cases.into_iter().flat_map(|case| case.plan.variants);
        variants.filter(|v| v.label.starts_with(&format!("{}.", kernel.name))).collect()
    };
    let mut own = Some(own(Arithmetic::Float)).filter(|own| !own.is_empty()).unwrap_or_else(|| own(Arithmetic::Int));
    if own.iter().any(|v| v.label.contains(FORMAT)) {
        own.retain(|v| v.label.contains(FORMAT));
    }
    let shortest = own.into_iter().min_by_key(|v| (length(&v.compose()), v.label.clone()))?;
    Some(Shader::of(&shortest).unwrap()).filter(|shader| !shader.foreign())
}

/// The length of a shader without its comments, which are not what a Mac is given.
fn length(wgsl: &str) -> usize {
    wgsl.lines().map(|line| line.split("//").next().unwrap_or_default().trim().len()).sum()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/metal/snapshots")
}

#[test]
fn metal_sources_equal_their_snapshots() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path(folder());
    let mut known = BTreeSet::new();
    settings.bind(|| {
        for kernel in KERNELS {
            let Some(shader) = representative(kernel) else { continue };
            let (label, shader) = (shader.label.clone(), shader.compacted());
            let text = shader.write(USUAL, Checks::Unchecked).unwrap();
            insta::assert_snapshot!(kernel.name, format!("// {label}\n{text}"));
            known.insert(format!("{}.snap", kernel.name));
        }
    });
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stale: Vec<String> = files.filter(|name| !known.contains(name)).collect();
    assert_eq!(stale, [""; 0], "snapshots of no kernel: remove them");
}
