//! On a Mac, the products of a token read their vectors from memory into registers. Their workgroups need neither
//! workgroup memory nor barriers for that, so only registers limit how many run at once.

use crate::emit::Shader;
use crate::variants::{apple, fable, full};
use naga::{AddressSpace, Block, Expression, Function, GlobalVariable, Handle, Literal, Module, Statement};
use std::collections::{BTreeMap, BTreeSet};
use tempfile::TempDir;
use wglm::{CacheShape, CacheType, Config, Gguf};
use wglm_engine::model::plan_token;
use wglm_engine::plan::{Plan, Target};
use wglm_engine::shader::Variant;

/// The products. The workgroups of the last share something other than vectors: the sum of a KV row's squares.
const PRODUCTS: [&str; 7] =
    ["mul_mv", "mul_mv_pair", "query_up_kv_write", "absorb_query", "gate_up", "moe_gate_up", "moe_down"];
const SHARING: &str = "query_up_kv_write";
/// If every workgroup selects the experts itself, it needs barriers for that, and stages its vector too.
const SELECTING: &str = "lib/moe_top_k.wgsl";

/// What a shader's workgroup shares: the arrays in workgroup memory, and the number of barriers in its source.
#[derive(Debug, Default, PartialEq)]
struct Shared {
    arrays: BTreeSet<String>,
    bytes: u32,
    barriers: usize,
}

impl Shared {
    fn of(variant: &Variant) -> Self {
        let Shader { module, .. } = Shader::of(variant).unwrap().compacted();
        let entry = &module.entry_points[0].function;
        let mut shared = Self { barriers: barriers(&module, entry, &entry.body), ..Self::default() };
        for (_, global) in module.global_variables.iter().filter(|(_, global)| in_workgroup(global)) {
            shared.arrays.extend(global.name.clone());
            shared.bytes += module.types[global.ty].inner.size(module.to_ctx()).next_multiple_of(16);
        }
        shared
    }
}

fn in_workgroup(global: &GlobalVariable) -> bool {
    global.space == AddressSpace::WorkGroup
}

/// The barriers of a block and of the functions that it calls, except those under a condition that is known to be
/// false.
fn barriers(module: &Module, function: &Function, block: &Block) -> usize {
    let within = |block: &Block| barriers(module, function, block);
    let of = |statement: &Statement| match statement {
        Statement::ControlBarrier(_) => 1,
        Statement::Block(block) => within(block),
        Statement::If { condition, accept, reject } => match known(module, function, *condition) {
            Some(true) => within(accept),
            Some(false) => within(reject),
            None => within(accept) + within(reject),
        },
        Statement::Switch { cases, .. } => cases.iter().map(|case| within(&case.body)).sum(),
        Statement::Loop { body, continuing, .. } => within(body) + within(continuing),
        Statement::Call { function, .. } => {
            let called = &module.functions[*function];
            barriers(module, called, &called.body)
        }
        _ => 0,
    };
    block.iter().map(of).sum()
}

/// The value of a constant condition.
fn known(module: &Module, function: &Function, condition: Handle<Expression>) -> Option<bool> {
    let literal = |expression: &Expression| match expression {
        Expression::Literal(Literal::Bool(value)) => Some(*value),
        _ => None,
    };
    match &function.expressions[condition] {
        Expression::Constant(constant) => literal(&module.global_expressions[module.constants[*constant].init]),
        other => literal(other),
    }
}

/// The plan of a token, with a cache in f16.
fn plan(file: &Gguf, target: &Target) -> Plan {
    let cache = CacheShape { context: 300, ty: CacheType::F16 };
    plan_token(file, &Config::read(file).unwrap(), cache, target).unwrap().plan
}

/// The shaders of a plan's products, by kernel.
fn products(plan: &Plan) -> BTreeMap<&'static str, Vec<&Variant>> {
    let mut products: BTreeMap<&str, BTreeMap<&str, &Variant>> = BTreeMap::new();
    for step in plan.steps.iter().filter(|step| PRODUCTS.contains(&step.kernel)) {
        let variant = &plan.variants[step.variant];
        products.entry(step.kernel).or_default().insert(&variant.label, variant);
    }
    products.into_iter().map(|(kernel, variants)| (kernel, variants.into_values().collect())).collect()
}

fn has(variant: &Variant, file: &str) -> bool {
    variant.parts.iter().any(|part| part.source.path == file)
}

#[test]
fn products_of_a_mac_stage_nothing() {
    let dir = TempDir::new().unwrap();
    for file in [fable(), full(&dir)] {
        let plan = plan(&file, &apple());
        let products = products(&plan);
        assert!(products.keys().eq(BTreeSet::from(PRODUCTS).iter()), "{:?}", products.keys());
        let all = products.iter().flat_map(|(kernel, all)| all.iter().map(move |one| (*kernel, *one)));
        for (kernel, variant) in all.filter(|(_, variant)| !has(variant, SELECTING)) {
            let shared = Shared::of(variant);
            println!("{}: {shared:?}", variant.label);
            assert!(has(variant, "lib/direct.wgsl"), "{} stages its vectors", variant.label);
            assert!(!shared.arrays.iter().any(|name| name.starts_with("staged")), "{}: {shared:?}", variant.label);
            if kernel != SHARING {
                assert_eq!(shared, Shared::default(), "{}", variant.label);
            }
        }
    }
}

/// On other GPUs the measured tilings stay: only the router, which has few rows, reads its vector directly, unless
/// options say otherwise.
#[test]
fn other_gpus_stage_by_default() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let direct = |target: &Target| -> BTreeSet<String> {
        let plan = plan(&file, target);
        let steps = plan.steps.iter().filter(|step| has(&plan.variants[step.variant], "lib/direct.wgsl"));
        steps.map(|step| step.kind().to_owned()).collect()
    };
    let mut target = Target::default();
    assert_eq!(direct(&target), BTreeSet::from(["moe.router".to_owned()]));
    let choices = wglm::tune::Choices {
        tilings: ["moe.down=32x4x64d", "moe.router=64x1x64"].map(|tiling| tiling.parse().unwrap()).to_vec(),
        ..Default::default()
    };
    target.choices = choices.into();
    assert_eq!(direct(&target), BTreeSet::from(["moe.down".to_owned()]));
}
