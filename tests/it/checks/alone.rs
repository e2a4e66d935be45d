//! Replaces each kernel of the demonstration model that can be replaced, one at a time: every plan still computes
//! correctly.

use super::plans::replaceable;
use super::{demo, load, verdict};
use crate::common::goldens::goldens;
use crate::common::gpu::gpu;
use std::collections::BTreeSet;
use wglm::{
    Arithmetic, Config, DraftKind, Event, GenerateOptions, Generation, LoadOptions, Model, PromptOptions,
    SamplerParams, Session, Speculation, Verdict, serde_json,
};
use wglm_engine::model::{Shaders, plan_token};

/// The options of a load. With a software driver the load compiles only the kernels of a token, and a reply compiles
/// the others that it needs.
fn options(arithmetic: Arithmetic, chunk: usize) -> LoadOptions {
    let prompt = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
    LoadOptions { context: Some(256), prompt, arithmetic: Some(arithmetic), ..LoadOptions::default() }
}

fn kernels(model: &Model, options: &LoadOptions) -> BTreeSet<String> {
    let file = demo();
    let (config, target) = (Config::read(&file).unwrap(), model.target());
    let token = plan_token(&file, &config, model.cache(), target).unwrap();
    let shaders = Shaders::of(&config, &token, target, options.prompt, DraftKind::Auto, u64::MAX).unwrap();
    replaceable(&shaders.all())
}

/// A reply that is sampled with penalties, with drafts unless speculation is off.
fn reply(model: &Model, speculation: Speculation) -> Vec<u32> {
    let sampling = SamplerParams { repeat_penalty: 1.1, ..SamplerParams::greedy() };
    let options = GenerateOptions { sampling, max_tokens: Some(6), speculation, ..GenerateOptions::default() };
    let golden = &goldens()[0];
    let mut session = Session::new(model).unwrap();
    let events = Generation::new(&mut session, golden.tokens[..golden.prompt].to_vec(), None, options).unwrap();
    let drafts = events.map(Result::unwrap).find_map(|event| match event {
        Event::Done(stats) => Some(stats.drafts),
        _ => None,
    });
    let drafts = drafts.expect("the end of the reply");
    assert_eq!(drafts.drafted > 0, !speculation.is_off(), "{drafts:?}");
    session.tokens().to_vec()
}

/// A verdict that replaces only this kernel, and says that nothing was checked.
fn avoiding(known: &Verdict, kernel: &str) -> Verdict {
    let finding = serde_json::json!({ "kernel": kernel, "fault": "wrong", "place": "here" });
    let text = serde_json::json!({ "subject": known.subject(), "checked": false, "replaced": [finding] });
    serde_json::from_value(text).unwrap()
}

fn each_alone(options: &LoadOptions, speculation: Speculation, least: usize) {
    let base = load(gpu(), options).unwrap();
    let (known, wanted, kernels) = (verdict(&base), reply(&base, speculation), kernels(&base, options));
    assert!(kernels.len() >= least, "{kernels:?}");
    for kernel in kernels {
        let verdicts = vec![avoiding(&known, &kernel)];
        let model = load(gpu(), &LoadOptions { verdicts, ..options.clone() }).unwrap();
        let found = verdict(&model);
        assert_eq!(super::replaced(&found).iter().map(|(kernel, _)| *kernel).collect::<Vec<_>>(), [kernel.as_str()]);
        assert!(found.is_checked(), "{kernel}");
        assert_eq!(reply(&model, speculation), wanted, "{kernel}");
    }
}

/// In the plans of prompts, of tokens, of drafts by the model's block, and of sampling with penalties.
#[test]
fn extended_each_kernel_can_be_replaced() {
    let speculation = Speculation { kind: DraftKind::Mtp, most: Some(3) };
    each_alone(&options(Arithmetic::Float, 40), speculation, 10);
}

/// In the plan of a token, products of bytes write rounded vectors for each other.
#[test]
fn long_each_kernel_of_products_of_bytes_can_be_replaced() {
    each_alone(&options(Arithmetic::Int, 1), Speculation::OFF, 8);
}
