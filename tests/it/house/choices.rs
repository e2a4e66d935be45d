//! The plan of sampling with bias and penalties fits every model's plan of a token.

use super::plans::{buffers, grids, mismatch, models, planned, repeated, targets};
use wglm::{CacheType, Config};
use wglm_engine::kernels::mask_words;
use wglm_engine::model::{SamplingPlan, plan_sampling};
use wglm_engine::shader::reflect;

#[test]
fn every_step_of_a_choice_fits() {
    let (mut complaints, mut seen) = (Vec::new(), 0);
    for (name, file) in models() {
        let config = Config::read(&file).unwrap();
        let all = [(0, false), (1, false), (5000, false), (0, true), (5000, true)];
        for (target, (room, masked)) in targets().iter().flat_map(|target| all.map(|asked| (target, asked))) {
            let token = planned(&file, target, CacheType::F16);
            let SamplingPlan { plan, shared, adjustments, mask, .. } =
                plan_sampling(&config, &token, token.head().unwrap(), target, room, masked).unwrap();
            assert_eq!(repeated(plan.steps.iter().map(|s| s.label.as_str())), [""; 0], "{name}: steps");
            assert!(plan.weights.is_empty() && plan.local(adjustments).bytes as usize >= 12 * room, "{name}");
            let words = mask.map(|mask| plan.local(mask).bytes as usize / 4);
            assert_eq!(words, masked.then(|| plan.rows * mask_words(config.vocab)), "{name}: the mask");
            for (here, there) in shared {
                let (here, there) = (plan.local(here), token.plan.local(there));
                assert_eq!(here.bytes, there.bytes, "{name}: {} and {}", here.name, there.name);
            }
            for step in &plan.steps {
                let mut of_step = [grids(&plan, step), buffers(&plan, step)].concat();
                of_step.extend(mismatch(step, &reflect(&plan.variants[step.variant]).unwrap()));
                complaints.extend(of_step.iter().map(|c| format!("{name} {}: {c}", step.label)));
                seen += 1;
            }
        }
    }
    assert!(seen > 500, "{seen} steps");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
